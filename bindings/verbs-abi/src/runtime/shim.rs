//! The path shim, where `uroce-run` has put it before the C library.

use std::ffi::{CStr, CString, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

type SetTree = unsafe extern "C" fn(*const c_char);
type BeforeDrop = unsafe extern "C" fn(extern "C" fn());

/// The shim of this process.
pub(super) struct Shim(SetTree);

/// Finds it.
pub(super) fn find() -> Option<Shim> {
    // SAFETY: the shim's function of that name has this type; an absent one is `None`.
    unsafe { std::mem::transmute::<*mut c_void, Option<SetTree>>(symbol(c"uroce_shim_set_tree")) }
        .map(Shim)
}

/// Has the shim, if it is there, call this before the program gives up privileges.
pub(super) fn before_drop(call: extern "C" fn()) {
    let found = symbol(c"uroce_shim_before_drop");
    // SAFETY: the shim's function of that name has this type; an absent one is `None`.
    let found = unsafe { std::mem::transmute::<*mut c_void, Option<BeforeDrop>>(found) };
    if let Some(register) = found {
        // SAFETY: it stores the function, which stays: the library is never unloaded.
        unsafe { register(call) };
    }
}

fn symbol(name: &CStr) -> *mut c_void {
    // SAFETY: the name is terminated.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

impl Shim {
    /// Has it show this tree from now on.
    pub(super) fn show(&self, tree: &Path) {
        // A thread may be reading the path of a former tree. All stay, where leak checkers see them.
        static SHOWN: Mutex<Vec<CString>> = Mutex::new(Vec::new());
        let Ok(path) = CString::new(tree.as_os_str().as_bytes()) else { return };
        // SAFETY: a terminated string, which is kept: moving its owner does not move it.
        unsafe { (self.0)(path.as_ptr()) };
        SHOWN.lock().unwrap_or_else(PoisonError::into_inner).push(path);
    }
}
