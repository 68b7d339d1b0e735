//! The library as a program has it.

use std::ffi::{CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// It stays loaded.
pub(crate) struct Library(*mut c_void);

impl Library {
    pub(crate) fn open(path: &Path) -> Library {
        let path = CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: a string; the library's constructors need nothing of us.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!library.is_null(), "dlopen {path:?}");
        Library(library)
    }

    pub(crate) fn by_name(&self, name: &str) -> *mut c_void {
        let name = CString::new(name).unwrap();
        // SAFETY: a loaded library and a string.
        unsafe { libc::dlsym(self.0, name.as_ptr()) }
    }

    pub(crate) fn by_version(&self, name: &str, node: &str) -> *mut c_void {
        let (name, node) = (CString::new(name).unwrap(), CString::new(node).unwrap());
        // SAFETY: a loaded library and two strings.
        unsafe { dlvsym(self.0, name.as_ptr(), node.as_ptr()) }
    }

    /// Calls what has no body: gives the lower half of the result, and `errno`.
    pub(crate) fn call(&self, name: &str, node: &str) -> (i32, i32) {
        let address = self.by_version(name, node);
        assert!(!address.is_null(), "{name}@{node}");
        // SAFETY: a function of the library that looks at no arguments and gives an integer or a
        // pointer, which has the same register.
        let stub: extern "C" fn() -> i32 = unsafe { std::mem::transmute(address) };
        // SAFETY: it has no preconditions.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: this thread's own.
        unsafe { errno.write(0) };
        let result = stub();
        // SAFETY: as above.
        (result, unsafe { errno.read() })
    }
}

unsafe extern "C" {
    /// glibc's; the libc crate has it not.
    fn dlvsym(
        library: *mut c_void,
        name: *const libc::c_char,
        version: *const libc::c_char,
    ) -> *mut c_void;
}
