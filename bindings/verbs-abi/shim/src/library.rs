//! `dlopen` of the RDMA libraries by a path: the program gets uroce's, which lie beside the shim.
//!
//! By their names alone the loader finds them in `LD_LIBRARY_PATH`. The C library's `dlopen` looks at
//! where it is called from, to search that object's own path; so it is entered by a jump, with the
//! caller's return address.
//!
//! Elsewhere than on the machines below nothing is replaced.

#![cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]

use crate::next::Next;
use libc::{c_char, c_int, c_void};
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU8, Ordering};

/// Longest path of a library of ours, with its terminator.
const LEN_MAX: usize = 1024;

/// The names of files that are replaced, each with the path of ours: empty until it has been made.
static LIBRARIES: [(&CStr, [AtomicU8; LEN_MAX]); 2] = [
    (c"libibverbs.so.1", [const { AtomicU8::new(0) }; LEN_MAX]),
    (c"librdmacm.so.1", [const { AtomicU8::new(0) }; LEN_MAX]),
];

/// What `dlopen` goes on with.
#[repr(C)]
struct Onward {
    path: *const c_char,
    next: *mut c_void,
}

/// What a call of `dlopen` with this path goes on with.
///
/// # Safety
///
/// `path` is null or terminated.
unsafe extern "C" fn onward(path: *const c_char) -> Onward {
    static NEXT: Next = Next::new("dlopen\0");
    let next = NEXT.find().unwrap_or(fail as *mut c_void);
    if path.is_null() {
        return Onward { path, next };
    }
    // SAFETY: terminated, as the caller says.
    let asked = unsafe { CStr::from_ptr(path) };
    Onward { path: ours(asked.to_bytes()).unwrap_or(path), next }
}

/// Stands in for a C library without `dlopen`.
extern "C" fn fail(_path: *const c_char, _flags: c_int) -> *mut c_void {
    std::ptr::null_mut()
}

/// The path of ours, for one of the system's: of any version, and also under the name that programs are
/// linked with.
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
    // SAFETY: it is terminated: `write` leaves the last byte alone.
    (unsafe { libc::access(found, libc::R_OK) } == 0).then_some(found)
}

/// Writes the path of the file of that name beside the shim. Threads that do it at once write the same;
/// the first byte comes last.
fn write(name: &[u8], place: &[AtomicU8; LEN_MAX]) -> bool {
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: an address of this object's, and room for what is known of it.
    if unsafe { libc::dladdr(onward as *const c_void, info.as_mut_ptr()) } == 0 {
        return false;
    }
    // SAFETY: the call has succeeded.
    let file = unsafe { info.assume_init() }.dli_fname;
    // SAFETY: the loader's name of an object is terminated, and stays as long as the object.
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
