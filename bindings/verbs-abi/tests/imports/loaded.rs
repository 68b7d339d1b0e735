//! The library, loaded into the test process.

use std::ffi::{CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The loaded library. It is not unloaded.
pub(crate) struct Library(*mut c_void);

impl Library {
    pub(crate) fn open(path: &Path) -> Library {
        let path = CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: `path` is a C string, and the library's constructors have no preconditions.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!library.is_null(), "dlopen {path:?}");
        Library(library)
    }

    pub(crate) fn by_name(&self, name: &str) -> *mut c_void {
        let name = CString::new(name).unwrap();
        // SAFETY: the library is loaded, and `name` is a C string.
        unsafe { libc::dlsym(self.0, name.as_ptr()) }
    }

    pub(crate) fn by_version(&self, name: &str, node: &str) -> *mut c_void {
        let (name, node) = (CString::new(name).unwrap(), CString::new(node).unwrap());
        // SAFETY: the library is loaded, and both names are C strings.
        unsafe { dlvsym(self.0, name.as_ptr(), node.as_ptr()) }
    }

    /// Calls a stub. Returns the lower half of its result, and `errno`.
    pub(crate) fn call(&self, name: &str, node: &str) -> (i32, i32) {
        let address = self.by_version(name, node);
        assert!(!address.is_null(), "{name}@{node}");
        // SAFETY: the symbol is a stub, which ignores its arguments and returns an integer or a
        // pointer in the same register.
        let stub: extern "C" fn() -> i32 = unsafe { std::mem::transmute(address) };
        // SAFETY: `__errno_location` has no preconditions.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: the pointer is to this thread's `errno`.
        unsafe { errno.write(0) };
        let result = stub();
        // SAFETY: the pointer is to this thread's `errno`.
        (result, unsafe { errno.read() })
    }
}

unsafe extern "C" {
    /// A function of glibc that the libc crate does not declare.
    fn dlvsym(
        library: *mut c_void,
        name: *const libc::c_char,
        version: *const libc::c_char,
    ) -> *mut c_void;
}
