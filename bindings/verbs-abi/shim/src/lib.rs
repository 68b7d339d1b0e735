//! The path shim: an `LD_PRELOAD` library that shows a program uroce's devices where the kernel
//! would show its own.
//!
//! UCX, NCCL and the tests of pyverbs look at files of the kernel's RDMA subsystem themselves, and
//! leave a device out whose files are not there. `uroce-run` writes such files to a directory, the
//! tree, and names it in `UROCE_TREE`; the functions here take a path under one of these to the
//! tree, and every other path to where it leads anyway:
//!
//! ```text
//!   /sys/class/infiniband/…        ->  TREE/class/infiniband/…
//!   /sys/class/infiniband_verbs/…  ->  TREE/class/infiniband_verbs/…
//!   /dev/infiniband/…              ->  TREE/dev/infiniband/…
//! ```
//!
//! Two things more are told of here. A program that opens the system's RDMA libraries by their path gets
//! uroce's ([`library`]). Before it gives up privileges or its view of the system, `uroce`'s library is
//! called, which then starts what it could not start afterwards ([`before_drop`]).
//!
//! Invariants
//! - Without a tree, and for any path that does not begin so, a function does what the C library's
//!   does, with its result and its `errno`.
//! - Nothing is allocated, locked or printed: a signal handler, or a thread of a process that has
//!   just forked, may be in here. What is called before privileges go is another library's.
//!
//! Not here: relative paths, which are left alone; system calls that a program makes without the C
//! library, as statically linked programs do; the tree's contents.

mod before_drop;
mod library;
mod next;
mod redirect;

use libc::{c_char, c_int, c_uint, c_void, mode_t, size_t, ssize_t};
use next::{Failure, Next};
use redirect::Room;

/// Changes the tree of this process. `uroce`'s libraries call it when they have chosen what the
/// process's devices are.
///
/// # Safety
///
/// `tree` is null, which redirects nothing, or a terminated string that stays as long as the
/// process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uroce_shim_set_tree(tree: *const c_char) {
    redirect::set_tree(tree);
}

/// Defines functions of the C library, each as the one that comes next in the search order with its
/// path redirected. The parameters before `;` come before the path, the others behind it.
///
/// `open` and `openat` are variadic in C. Where an argument of such a call lies is the same as if
/// it were not, on all machines that Linux runs on; a mode that the caller has not given is read
/// and handed on, but used by nobody.
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
            // SAFETY: the symbol is the C library's function of that name, whose parameters these
            // are.
            let next = unsafe { std::mem::transmute::<*mut c_void, Function>(next) };
            let mut room = Room::new();
            // SAFETY: the caller's path is null or terminated, as the function demands.
            let path = unsafe { room.redirect(path) };
            // SAFETY: the arguments are the caller's; the path is as long as `room`.
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
    // What programs call that were linked with a glibc before 2.33.
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
