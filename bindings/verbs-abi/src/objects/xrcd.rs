//! XRC domains.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use uroce::XrcDomain;

use super::context::{Context, FileId};
use crate::abi::ibv_xrcd;
use crate::errno::Errno;
use crate::handle::{Held, Part, object};

/// A handle of an XRC domain.
pub(crate) struct Xrcd {
    pub(crate) domain: Arc<Domain>,
    pub(crate) context: Held<Context>,
}

object!(Xrcd as ibv_xrcd, of context);

/// An XRC domain, which has several handles if it was opened again by its file.
pub(crate) struct Domain {
    pub(crate) engine: XrcDomain,
    /// The file that it can be opened by again.
    pub(crate) file: Option<File>,
}

/// A file that keeps its identity, because it is not freed while this exists.
pub(crate) struct File {
    pub(crate) id: FileId,
    /// `Some` until this is dropped.
    pin: Option<OwnedFd>,
}

impl File {
    /// The file of this descriptor, which is the library's own.
    ///
    /// # Errors
    ///
    /// EBADF if it is not a descriptor.
    pub(crate) fn new(pin: OwnedFd) -> Result<File, Errno> {
        Ok(File { id: FileId::of(&pin)?, pin: Some(pin) })
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let Some(pin) = self.pin.take() else { return };
        // The program may have closed the descriptor and have its own file under the number.
        if FileId::of(&pin) != Ok(self.id) {
            std::mem::forget(pin);
        }
    }
}

/// A handle's part in an XRC target: the handle of the domain that it was opened by, and the number
/// of handles that the target has.
pub(crate) struct Share {
    pub(crate) xrcd: Held<Xrcd>,
    handles: Arc<AtomicU32>,
}

impl Share {
    /// That of the first handle.
    pub(crate) fn first(xrcd: Held<Xrcd>) -> Share {
        Share { xrcd, handles: Arc::new(AtomicU32::new(1)) }
    }

    /// That of one more handle, opened by `xrcd`. `None` if the last one is being destroyed.
    pub(crate) fn another(&self, xrcd: Held<Xrcd>) -> Option<Share> {
        let one_more = |handles: u32| if handles == 0 { None } else { handles.checked_add(1) };
        let counted = self.handles.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more);
        counted.ok().map(|_| Share { xrcd, handles: Arc::clone(&self.handles) })
    }

    /// Ends one handle. Returns whether it was the last; then there will be no other. To be called
    /// once for each handle.
    pub(crate) fn end(&self) -> bool {
        self.handles.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

impl Part for Share {
    fn let_go(&self) {
        self.xrcd.let_go();
    }
}
