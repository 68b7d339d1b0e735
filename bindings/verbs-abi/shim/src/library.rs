//! `dlopen` of the RDMA libraries by path: the program gets uroce's libraries, which are beside the
//! shim.
//!
//! If a program opens a library by name alone, the loader finds ours in `LD_LIBRARY_PATH`. The C
//! library's `dlopen` uses its return address to find the calling object and its search path. So it
//! is entered with a jump that keeps the caller's return address.
//!
//! On other machines than those below nothing is replaced.

#![cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]

use crate::next::Next;
use libc::{c_char, c_int, c_void};
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU8, Ordering};

/// Longest path of one of our libraries, with its terminating zero.
const LEN_MAX: usize = 1024;

/// The file names that are replaced, each with the path of our library. A path is empty until it is
/// first needed.
static LIBRARIES: [(&CStr, [AtomicU8; LEN_MAX]); 2] = [
    (c"libibverbs.so.1", [const { AtomicU8::new(0) }; LEN_MAX]),
    (c"librdmacm.so.1", [const { AtomicU8::new(0) }; LEN_MAX]),
];

/// The path and the function with which `dlopen` continues.
#[repr(C)]
struct Onward {
    path: *const c_char,
    next: *mut c_void,
}

/// Decides how a call of `dlopen` with this path continues.
///
/// # Safety
///
/// `path` is null or a C string.
unsafe extern "C" fn onward(path: *const c_char) -> Onward {
    static NEXT: Next = Next::new("dlopen\0");
    let next = NEXT.find().unwrap_or(fail as *mut c_void);
    if path.is_null() {
        return Onward { path, next };
    }
    // SAFETY: `path` is not null, so it is a C string.
    let asked = unsafe { CStr::from_ptr(path) };
    Onward { path: ours(asked.to_bytes()).unwrap_or(path), next }
}

/// Replaces `dlopen` if the C library has none.
extern "C" fn fail(_path: *const c_char, _flags: c_int) -> *mut c_void {
    std::ptr::null_mut()
}

/// The path of our library for a path of the system's: of any version, or without a version. `None`
/// for any other path, and if our library does not exist.
fn ours(path: &[u8]) -> Option<*const c_char> {
    let at = path.iter().rposition(|byte| *byte == b'/')?;
    let name = &path[at + 1..];
    let is_named = |own: &CStr| {
        let linked = &own.to_bytes()[..own.count_bytes() - 2];
        let rest = name.strip_prefix(linked);
        rest.is_some_and(|rest| rest.is_empty() || rest == b".1" || rest.starts_with(b".1."))
    };
    let (own, place) = LIBRARIES.iter().find(|(own, _)| is_named(own))?;
    if place[0].load(Ordering::Acquire) == 0 && !write(own.to_bytes(), place) {
        return None;
    }
    let found = place.as_ptr().cast::<c_char>();
    // SAFETY: the path is terminated, because `write` never writes the last byte.
    (unsafe { libc::access(found, libc::R_OK) } == 0).then_some(found)
}

/// Writes the path of the file `name` beside the shim. Several threads may do this at once; they
/// write the same bytes. The first byte is written last.
fn write(name: &[u8], place: &[AtomicU8; LEN_MAX]) -> bool {
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: the address is in this object, and `info` has room for the result.
    if unsafe { libc::dladdr(onward as *const c_void, info.as_mut_ptr()) } == 0 {
        return false;
    }
    // SAFETY: the call has succeeded, so `info` is initialised.
    let file = unsafe { info.assume_init() }.dli_fname;
    // SAFETY: the loader's name of an object is a C string that exists as long as the object.
    let shim = unsafe { CStr::from_ptr(file) }.to_bytes();
    let Some(end) = shim.iter().rposition(|byte| *byte == b'/') else { return false };
    let (directory, len) = (&shim[..=end], end + 1 + name.len());
    if shim[0] != b'/' || len >= LEN_MAX {
        return false;
    }
    let bytes = directory.iter().chain(name);
    for (to, byte) in place.iter().zip(bytes).skip(1) {
        to.store(*byte, Ordering::Relaxed);
    }
    place[0].store(shim[0], Ordering::Release);
    true
}

#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
    std::arch::naked_asm!(
        "push rsi",
        "call {onward}",
        "pop rsi",
        "mov rdi, rax",
        "jmp rdx",
        onward = sym onward,
    )
}

#[cfg(target_arch = "aarch64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
    std::arch::naked_asm!(
        "stp x1, x30, [sp, #-16]!",
        "bl {onward}",
        "mov x16, x1",
        "ldp x1, x30, [sp], #16",
        "br x16",
        onward = sym onward,
    )
}
