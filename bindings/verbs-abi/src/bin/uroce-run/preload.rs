//! The value of LD_PRELOAD, and options for sanitizers.
//!
//! A sanitizer's run-time library ends the program if another library that replaces functions of
//! the C library is loaded before it. The path shim is such a library, and works in any place. So
//! sanitizers come first, both those that the user preloads and those that the program is linked
//! with. A program that a launcher starts cannot be looked into, so AddressSanitizer is told not to
//! insist on its place.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// First letters of the names of sanitizers' libraries, gcc's and clang's.
const SANITIZERS: &[&str] = &["libasan.", "libhwasan.", "libtsan.", "liblsan.", "libclang_rt."];

/// Variables with options of sanitizers, and the options that our libraries need there.
/// AddressSanitizer otherwise ends a program that a launcher, such as a shell, starts with our
/// libraries before its own. ThreadSanitizer takes locks and atomics of libraries that it has not
/// compiled for data races.
pub(crate) const OPTIONS: [(&str, &str); 2] = [
    ("ASAN_OPTIONS", "verify_asan_link_order=0"),
    ("TSAN_OPTIONS", "ignore_noninstrumented_modules=1"),
];

/// The value of a variable with options: `ours`, then those of `before`, which override them.
pub(crate) fn options(ours: &str, before: Option<&OsStr>) -> OsString {
    let before = before.unwrap_or_default();
    let all = [OsStr::new(ours), before];
    let all: Vec<&[u8]> =
        all.iter().map(|part| part.as_bytes()).filter(|part| !part.is_empty()).collect();
    OsString::from_vec(all.join(&b':'))
}

fn is_sanitizer(library: &OsStr) -> bool {
    let name = Path::new(library).file_name().unwrap_or_default().as_bytes();
    SANITIZERS.iter().any(|first| name.starts_with(first.as_bytes()))
}

/// The list for a program that is linked with the libraries `needed`: sanitizers, then `ours`, then
/// the rest of `before`, the value that LD_PRELOAD had.
pub(crate) fn list(needed: &[OsString], before: &OsStr, ours: &[PathBuf]) -> OsString {
    // The loader accepts spaces as separators too.
    let before = before.as_bytes().split(|byte| matches!(byte, b':' | b' '));
    let before = before.filter(|entry| !entry.is_empty()).map(OsStr::from_bytes);
    let (first, rest): (Vec<&OsStr>, Vec<&OsStr>) = before.partition(|entry| is_sanitizer(entry));
    let is_there = |name: &OsStr| first.iter().any(|entry| Path::new(entry).ends_with(name));
    let needed = needed.iter().map(OsString::as_os_str);
    let needed: Vec<&OsStr> = needed.filter(|name| is_sanitizer(name) && !is_there(name)).collect();
    let ours = ours.iter().map(|path| path.as_os_str());
    let all = first.iter().copied().chain(needed).chain(ours).chain(rest);
    let all: Vec<&[u8]> = all.map(OsStr::as_bytes).collect();
    OsString::from_vec(all.join(&b':'))
}
