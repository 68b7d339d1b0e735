//! The list of preloaded libraries, in the order that all of them bear.
//!
//! The run-time libraries of sanitizers replace functions of the C library and refuse to run behind
//! another that does; so does ours, and does not mind. They come first, whether the user preloads one or
//! the program is built with one.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// What the names of those libraries begin with, gcc's and clang's.
const SANITIZERS: &[&str] = &["libasan.", "libhwasan.", "libtsan.", "liblsan.", "libclang_rt."];

fn is_sanitizer(library: &OsStr) -> bool {
    let name = Path::new(library).file_name().unwrap_or_default().as_bytes();
    SANITIZERS.iter().any(|first| name.starts_with(first.as_bytes()))
}

/// The list for a program that needs the libraries of these names: with what was in it, and ours.
pub(crate) fn list(needed: &[OsString], before: &OsStr, ours: &[PathBuf]) -> OsString {
    // The loader takes spaces as well.
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
