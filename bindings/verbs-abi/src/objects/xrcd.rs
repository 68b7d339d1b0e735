//! XRC domains.

use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Weak};

use uroce::XrcDomain;

use super::context::{Context, FileId};
use crate::abi::ibv_xrcd;
use crate::handle::{Held, object};

/// A handle of an XRC domain.
pub(crate) struct Xrcd {
    pub(crate) domain: Arc<Domain>,
    pub(crate) context: Held<Context>,
}

object!(Xrcd as ibv_xrcd, of context);

/// An XRC domain, which has several handles if it was opened again by its file.
pub(crate) struct Domain {
    pub(crate) engine: XrcDomain,
    /// Keeps other processes from opening a domain by the same file, if it was opened by one.
    pub(crate) _claim: Option<UnixDatagram>,
}

/// A domain that can be opened again by its file, and the address of its device.
pub(crate) struct Named {
    pub(crate) device: usize,
    pub(crate) file: FileId,
    pub(crate) domain: Weak<Domain>,
}
