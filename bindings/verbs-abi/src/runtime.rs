//! The process's devices: what is configured, and the engine behind it, which starts when it is
//! needed.

use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

use uroce::{Config, Context, PortAttr};

use crate::errno::Errno;

/// A device of the configuration; it stays for the life of the process.
pub(crate) struct Device {
    config: Config,
    name: String,
    index: usize,
    context: Mutex<Option<Context>>,
}

/// The devices of the configuration.
///
/// # Errors
///
/// ENODEV without a usable configuration; why is on stderr.
pub(crate) fn devices() -> Result<&'static [Device], Errno> {
    static DEVICES: OnceLock<Result<Vec<Device>, Errno>> = OnceLock::new();
    DEVICES.get_or_init(read).as_deref().map_err(|error| *error)
}

fn read() -> Result<Vec<Device>, Errno> {
    let path = std::env::var_os("UROCE_CONFIG").ok_or(Errno::ENODEV)?;
    let config = Config::from_file(Path::new(&path)).map_err(|error| {
        eprintln!("uroce: {error}");
        Errno::ENODEV
    })?;
    let named = config.devices.iter().enumerate();
    let device = |(index, device): (usize, &uroce::config::DeviceConfig)| Device {
        config: config.clone(),
        name: device.name.clone(),
        index,
        context: Mutex::new(None),
    };
    Ok(named.map(device).collect())
}

impl Device {
    /// Its name, as `uroce0`.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its place in the list.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// Its GUID, in host order.
    ///
    /// # Errors
    ///
    /// Those of starting it, where only the port can tell.
    pub(crate) fn guid(&self) -> Result<u64, Errno> {
        let ports = self.ports()?;
        let mac = ports.first().ok_or(Errno::ENODEV)?.mac.0;
        let [a, b, c, d, e, f] = mac;
        Ok(u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f]))
    }

    /// Its ports, as they are now; it is started only if the configuration does not tell them.
    ///
    /// # Errors
    ///
    /// Those of starting it.
    pub(crate) fn ports(&self) -> Result<Vec<PortAttr>, Errno> {
        Ok(self.context()?.ports())
    }

    /// The device, open; starts it if it is not started yet.
    ///
    /// # Errors
    ///
    /// Why it does not start is on stderr; the number says how.
    pub(crate) fn context(&self) -> Result<Context, Errno> {
        let mut context = self.context.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(context) = context.as_ref() {
            return Ok(context.clone());
        }
        let opened = Context::open(&self.config, &self.name).map_err(|error| {
            eprintln!("uroce: {}: {error}", self.name);
            Errno::EIO
        })?;
        Ok(context.insert(opened).clone())
    }
}
