//! Protection domains, and objects that programs use like them: parent domains and imported
//! domains.

use std::sync::{Arc, OnceLock};

use uroce::ProtectionDomain;

use super::context::{self, Context, FileId};
use super::td::Td;
use crate::abi::ibv_pd;
use crate::errno::Errno;
use crate::handle::{Entry, Held, Object, number, object};
use crate::quota::Place;
use crate::runtime;

/// A protection domain.
pub(crate) struct Pd {
    /// The engine's domain, made on first use because that starts the engine. Shared by all handles
    /// of the domain.
    domain: Arc<OnceLock<ProtectionDomain>>,
    pub(crate) context: Held<Context>,
    /// Number of the domain within the file of its context.
    handle: u32,
    /// The handle that this one was made from. `None` for the original handle of a domain.
    of: Option<Held<Pd>>,
    /// The thread domain of a parent domain.
    _td: Option<Held<Td>>,
    /// Counts the domain against the device's limit. `None` for further handles of a domain.
    place: Option<Place>,
}

/// The kind of a new handle.
enum Kind {
    /// A new domain.
    First(Place),
    /// Another handle of a domain; a parent domain may have a thread domain.
    Name(Held<Pd>, Option<Held<Td>>),
}

object!(Pd as ibv_pd, of of, _td, place);

impl Pd {
    /// Registers a handle of a domain and returns the program's pointer.
    fn add(
        context: Held<Context>,
        domain: Arc<OnceLock<ProtectionDomain>>,
        handle: u32,
        kind: Kind,
    ) -> *mut ibv_pd {
        let public = ibv_pd { context: context::context_of(context.public()), handle };
        let (of, _td, place) = match kind {
            Kind::First(place) => (None, None, Some(place)),
            Kind::Name(of, td) => (Some(of), td, None),
        };
        let pd = Pd { domain, context, handle, of, _td, place };
        Pd::registry().insert(public, pd).public()
    }

    /// Makes a new domain and returns the program's pointer.
    pub(crate) fn create(context: Held<Context>, place: Place) -> *mut ibv_pd {
        Pd::add(context, Arc::default(), number(), Kind::First(place))
    }

    /// Makes another handle of a domain, in a context of the same device.
    ///
    /// # Errors
    ///
    /// EINVAL if the context belongs to another device.
    pub(crate) fn alias(
        of: Held<Pd>,
        context: Held<Context>,
        td: Option<Held<Td>>,
    ) -> Result<*mut ibv_pd, Errno> {
        if !std::ptr::eq(of.context.device, context.device) {
            return Err(Errno::EINVAL);
        }
        let (domain, handle) = (Arc::clone(&of.domain), of.handle);
        Ok(Pd::add(context, domain, handle, Kind::Name(of, td)))
    }

    /// The engine's domain. Starts the engine if necessary.
    ///
    /// # Errors
    ///
    /// The errors of starting the engine; EOPNOTSUPP in a child that was forked after it had
    /// started.
    pub(crate) fn domain(&self) -> Result<&ProtectionDomain, Errno> {
        if let Some(domain) = self.domain.get() {
            runtime::usable()?;
            return Ok(domain);
        }
        let domain = self.context.device.context()?.allocate_pd();
        Ok(self.domain.get_or_init(|| domain))
    }

    /// Whether this is the original handle of the domain with this number in a file.
    pub(crate) fn is_number(&self, handle: u32, file: FileId) -> bool {
        !self.is_alias() && self.handle == handle && self.context.file == file
    }

    /// Whether this is another handle of an existing domain.
    pub(crate) fn is_alias(&self) -> bool {
        self.of.is_some()
    }
}

/// The domain that a program's pointer refers to.
///
/// # Errors
///
/// EINVAL if it is not a domain of this library.
pub(crate) fn get(pd: *const ibv_pd) -> Result<Arc<Entry<Pd>>, Errno> {
    Pd::registry().get(pd)
}

/// The domain that a program's pointer refers to, kept busy while the result exists.
///
/// # Errors
///
/// EINVAL if it is not a domain of this library.
pub(crate) fn hold(pd: *const ibv_pd) -> Result<Held<Pd>, Errno> {
    Pd::registry().hold(pd)
}
