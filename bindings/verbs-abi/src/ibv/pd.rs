//! `ibv_pd`: protection domains, and what programs may use as one: parent domains and imports.

use std::ffi::c_int;
use std::sync::{Arc, OnceLock};

use uroce::ProtectionDomain;

use super::context::{self, Context, FileId};
use crate::abi::{ibv_context, ibv_pd};
use crate::entry;
use crate::errno::Errno;
use crate::handle::{Entry, Held, Object, number, object};
use crate::ibv::domain::Td;
use crate::ibv::query::MAX_PD;
use crate::quota::Place;
use crate::runtime;

/// A protection domain.
pub(crate) struct Pd {
    /// Made when it is needed, as it needs the engine; shared with its other names.
    domain: Arc<OnceLock<ProtectionDomain>>,
    pub(crate) context: Held<Context>,
    /// Its number within the file of its context.
    handle: u32,
    /// What it is another name of.
    of: Option<Held<Pd>>,
    /// What a parent domain was made with.
    _td: Option<Held<Td>>,
    /// Other names of a domain take none.
    place: Option<Place>,
}

/// What is published of a domain.
enum Kind {
    /// A new one.
    First(Place),
    /// Another name, perhaps with a thread domain.
    Name(Held<Pd>, Option<Held<Td>>),
}

object!(Pd as ibv_pd, of of, _td, place);

impl Pd {
    /// Publishes a domain of a context.
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

    /// Another name of a domain, in a context of the same device.
    ///
    /// # Errors
    ///
    /// EINVAL if the context is of another device.
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

    /// What it is in the engine.
    ///
    /// # Errors
    ///
    /// Those of starting the device.
    pub(crate) fn domain(&self) -> Result<&ProtectionDomain, Errno> {
        if let Some(domain) = self.domain.get() {
            runtime::usable()?;
            return Ok(domain);
        }
        let domain = self.context.device.context()?.allocate_pd();
        Ok(self.domain.get_or_init(|| domain))
    }

    /// Whether it is the domain of that number in a file, by its first name.
    pub(crate) fn is_number(&self, handle: u32, file: FileId) -> bool {
        !self.is_alias() && self.handle == handle && self.context.file == file
    }

    /// Whether it is another name of a domain.
    pub(crate) fn is_alias(&self) -> bool {
        self.of.is_some()
    }
}

/// The domain of a program's pointer.
///
/// # Errors
///
/// EINVAL if it is none.
pub(crate) fn get(pd: *const ibv_pd) -> Result<Arc<Entry<Pd>>, Errno> {
    Pd::registry().get(pd)
}

/// The same, as a part of another object.
///
/// # Errors
///
/// As [`get`].
pub(crate) fn hold(pd: *const ibv_pd) -> Result<Held<Pd>, Errno> {
    Pd::registry().hold(pd)
}

pub(crate) unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    entry::object(|| {
        let context = context::hold(context)?;
        let place = context.device.quotas.pds.take(MAX_PD)?;
        Ok(Pd::add(context, Arc::default(), number(), Kind::First(place)))
    })
}

pub(crate) unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    entry::code(|| Pd::registry().remove(pd).map(drop))
}
