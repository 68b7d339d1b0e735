//! The configuration of a process that has none: a member of the local fabric.

use uroce_command::run_dir::{RunDirError, run_dir};

use super::{Config, DeviceConfig, Driver, Idle, PortConfig};

/// Name of the device of [`Config::built_in`].
pub const BUILT_IN_DEVICE: &str = "uroce0";
/// MTU of its port in bytes; enough for a path MTU of 4096.
pub const BUILT_IN_MTU: u16 = 4200;
/// Megabytes for DPDK's packet buffers and queues, without the shared memory of the local fabric.
pub const BUILT_IN_MEMORY_MB: u32 = 128;
/// Directory of the local fabric in the run directory.
pub const FABRIC: &str = "fabric";

impl Config {
    /// Creates the configuration of a process that has none: the device [`BUILT_IN_DEVICE`] with
    /// one port, to all other processes of this user on this machine. The process gets the next
    /// free address of 192.0.2.0/24 and of 2001:db8::/64.
    ///
    /// # Errors
    ///
    /// There is no directory in which the processes could meet.
    pub fn built_in() -> Result<Config, RunDirError> {
        let port = PortConfig::local(run_dir()?.join(FABRIC)).mtu(BUILT_IN_MTU);
        // A program that polls shares its CPU with the lcore; a program that waits for events
        // leaves the lcore idle most of the time.
        let device = DeviceConfig::new(BUILT_IN_DEVICE).driver(Driver::Poller).idle(Idle::Sleep);
        let mut config = Config::new().device(device.port(port));
        config.eal.memory_mb = Some(BUILT_IN_MEMORY_MB);
        Ok(config)
    }
}
