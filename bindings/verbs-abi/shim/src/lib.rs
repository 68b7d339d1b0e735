//! The path shim: an `LD_PRELOAD` library that shows uroce's devices to a program in the place of
//! the kernel's.
//!
//! UCX, NCCL and the tests of pyverbs read files of the kernel's RDMA subsystem and skip a device
//! without such files. `uroce-run` writes these files to a directory, the tree, and names it in
//! `UROCE_TREE`. The functions here redirect paths below three directories to the tree, and leave
//! all other paths unchanged:
//!
//! ```text
//!   /sys/class/infiniband/…        ->  TREE/class/infiniband/…
//!   /sys/class/infiniband_verbs/…  ->  TREE/class/infiniband_verbs/…
//!   /dev/infiniband/…              ->  TREE/dev/infiniband/…
//! ```
//!
//! The shim has three more tasks. A program that opens the system's RDMA libraries by path gets
//! uroce's instead (module `library`). Before a program gives up privileges, or changes its root
//! directory or namespaces, uroce's library is called, so that it can start what it could not start
//! later (module `before_drop`). Some variables that programs read have another default (module
//! `defaults`).
//!
//! Invariants
//! - Without a tree, and for any other path, a function has the effect, result and `errno` of the C
//!   library's.
//! - Nothing is allocated, locked or printed, because the caller may be a signal handler or a
//!   process that was just forked. The function registered in module `before_drop` is excepted.
//!
//! Not here: relative paths, which are not redirected; system calls that a program makes without
//! the C library, as statically linked programs do; the tree's contents.

mod before_drop;
mod defaults;
mod library;
mod next;
mod redirect;

use libc::{c_char, c_int, c_uint, c_void, mode_t, size_t, ssize_t};
use next::{Failure, Next};
use redirect::Room;

/// Changes the tree of this process. uroce's library calls it when it has chosen the process's
/// identity.
///
/// # Safety
///
/// `tree` is null, which disables redirection, or a C string that is never freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uroce_shim_set_tree(tree: *const c_char) {
    redirect::set_tree(tree);
}

/// Defines functions of the C library. Each redirects its path and calls the next function of the
/// same name in the loader's search order. The parameters before `;` precede the path, the others
/// follow it.
///
/// `open` and `openat` are variadic in C. On all machines that Linux runs on, arguments of such
/// calls are passed like those of other functions. A mode that the caller has not given is read and
/// passed on, but not used.
macro_rules! redirect {
    ($(
        fn $name:ident($($before:ident: $bt:ty),*; $($after:ident: $at:ty),*) -> $result:ty;
    )*) => { $(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            $($before: $bt,)* path: *const c_char $(, $after: $at)*
        ) -> $result {
            type Function =
                unsafe extern "C" fn($($bt,)* *const c_char $(, $at)*) -> $result;
            static NEXT: Next = Next::new(concat!(stringify!($name), "\0"));
            let Some(next) = NEXT.find() else { return <$result>::fail() };
            // SAFETY: the symbol is the C library's function of this name, which has these
            // parameters.
            let next = unsafe { std::mem::transmute::<*mut c_void, Function>(next) };
            let mut room = Room::new();
            // SAFETY: the caller's path is null or a C string, as the function requires.
            let path = unsafe { room.redirect(path) };
            // SAFETY: the arguments are passed on unchanged, and the redirected path is in `room`,
            // which outlives the call.
            unsafe { next($($before,)* path $(, $after)*) }
        }
    )* };
}

redirect! {
    fn open(; flags: c_int, mode: mode_t) -> c_int;
    fn open64(; flags: c_int, mode: mode_t) -> c_int;
    fn openat(dir: c_int; flags: c_int, mode: mode_t) -> c_int;
    fn openat64(dir: c_int; flags: c_int, mode: mode_t) -> c_int;
    fn creat(; mode: mode_t) -> c_int;
    fn creat64(; mode: mode_t) -> c_int;
    fn __open_2(; flags: c_int) -> c_int;
    fn __open64_2(; flags: c_int) -> c_int;
    fn __openat_2(dir: c_int; flags: c_int) -> c_int;
    fn __openat64_2(dir: c_int; flags: c_int) -> c_int;

    fn fopen(; mode: *const c_char) -> *mut c_void;
    fn fopen64(; mode: *const c_char) -> *mut c_void;
    fn freopen(; mode: *const c_char, stream: *mut c_void) -> *mut c_void;
    fn freopen64(; mode: *const c_char, stream: *mut c_void) -> *mut c_void;

    fn stat(; status: *mut c_void) -> c_int;
    fn stat64(; status: *mut c_void) -> c_int;
    fn lstat(; status: *mut c_void) -> c_int;
    fn lstat64(; status: *mut c_void) -> c_int;
    fn fstatat(dir: c_int; status: *mut c_void, flags: c_int) -> c_int;
    fn fstatat64(dir: c_int; status: *mut c_void, flags: c_int) -> c_int;
    fn statx(dir: c_int; flags: c_int, mask: c_uint, status: *mut c_void) -> c_int;
    // Called by programs that were linked with a glibc before 2.33.
    fn __xstat(version: c_int; status: *mut c_void) -> c_int;
    fn __xstat64(version: c_int; status: *mut c_void) -> c_int;
    fn __lxstat(version: c_int; status: *mut c_void) -> c_int;
    fn __lxstat64(version: c_int; status: *mut c_void) -> c_int;
    fn __fxstatat(version: c_int, dir: c_int; status: *mut c_void, flags: c_int) -> c_int;
    fn __fxstatat64(version: c_int, dir: c_int; status: *mut c_void, flags: c_int) -> c_int;

    fn access(; mode: c_int) -> c_int;
    fn eaccess(; mode: c_int) -> c_int;
    fn euidaccess(; mode: c_int) -> c_int;
    fn faccessat(dir: c_int; mode: c_int, flags: c_int) -> c_int;

    fn readlink(; buffer: *mut c_char, len: size_t) -> ssize_t;
    fn readlinkat(dir: c_int; buffer: *mut c_char, len: size_t) -> ssize_t;
    fn __readlink_chk(; buffer: *mut c_char, len: size_t, room: size_t) -> ssize_t;
    fn __readlinkat_chk(dir: c_int; buffer: *mut c_char, len: size_t, room: size_t) -> ssize_t;
    fn realpath(; resolved: *mut c_char) -> *mut c_char;
    fn __realpath_chk(; resolved: *mut c_char, len: size_t) -> *mut c_char;
    fn canonicalize_file_name(;) -> *mut c_char;

    fn chdir(;) -> c_int;
    fn opendir(;) -> *mut c_void;
    fn scandir(; list: *mut c_void, filter: *mut c_void, order: *mut c_void) -> c_int;
    fn scandir64(; list: *mut c_void, filter: *mut c_void, order: *mut c_void) -> c_int;

    fn getxattr(; name: *const c_char, value: *mut c_void, len: size_t) -> ssize_t;
    fn lgetxattr(; name: *const c_char, value: *mut c_void, len: size_t) -> ssize_t;
    fn listxattr(; list: *mut c_char, len: size_t) -> ssize_t;
    fn llistxattr(; list: *mut c_char, len: size_t) -> ssize_t;
}
