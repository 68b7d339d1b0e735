//! The functions of the path shim, if `uroce-run` has preloaded it.

use std::ffi::{CStr, CString, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

type SetTree = unsafe extern "C" fn(*const c_char);
type BeforeDrop = unsafe extern "C" fn(extern "C" fn());

/// The path shim's function that sets the tree to show.
pub(super) struct Shim(SetTree);

/// Finds the path shim. `None` if it is not loaded.
pub(super) fn find() -> Option<Shim> {
    // SAFETY: the shim exports `uroce_shim_set_tree` with the type `SetTree`, and null becomes
    // `None`.
    unsafe { std::mem::transmute::<*mut c_void, Option<SetTree>>(symbol(c"uroce_shim_set_tree")) }
        .map(Shim)
}

/// Registers a function that the path shim calls before the program gives up privileges. Does
/// nothing if the shim is not loaded.
pub(super) fn before_drop(call: extern "C" fn()) {
    let found = symbol(c"uroce_shim_before_drop");
    // SAFETY: the shim exports `uroce_shim_before_drop` with the type `BeforeDrop`, and null
    // becomes `None`.
    let found = unsafe { std::mem::transmute::<*mut c_void, Option<BeforeDrop>>(found) };
    if let Some(register) = found {
        // SAFETY: the shim stores `call`, which stays valid because this library is never unloaded.
        unsafe { register(call) };
    }
}

fn symbol(name: &CStr) -> *mut c_void {
    // SAFETY: `name` is a valid C string.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

impl Shim {
    /// Makes the path shim show this tree from now on.
    pub(super) fn show(&self, tree: &Path) {
        // Paths are never freed, as another thread may still read a former one. They are kept in a
        // static so that leak checkers find them.
        static SHOWN: Mutex<Vec<CString>> = Mutex::new(Vec::new());
        let Ok(path) = CString::new(tree.as_os_str().as_bytes()) else { return };
        // SAFETY: `path` is a valid C string. It is moved into `SHOWN`, which does not move its
        // heap buffer, and is never freed.
        unsafe { (self.0)(path.as_ptr()) };
        SHOWN.lock().unwrap_or_else(PoisonError::into_inner).push(path);
    }
}
