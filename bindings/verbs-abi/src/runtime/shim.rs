//! The path shim, where `uroce-run` has put it before the C library.

use std::ffi::{CString, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

type SetTree = unsafe extern "C" fn(*const c_char);

/// The shim of this process.
pub(super) struct Shim(SetTree);

/// Finds it.
pub(super) fn find() -> Option<Shim> {
    // SAFETY: the name is terminated.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"uroce_shim_set_tree".as_ptr()) };
    // SAFETY: the shim's function of that name has this type; an absent one is `None`.
    unsafe { std::mem::transmute::<*mut c_void, Option<SetTree>>(found) }.map(Shim)
}

impl Shim {
    /// Has it show this tree from now on.
    pub(super) fn show(&self, tree: &Path) {
        let Ok(path) = CString::new(tree.as_os_str().as_bytes()) else { return };
        // SAFETY: a terminated string that is never freed.
        unsafe { (self.0)(path.into_raw()) };
    }
}
