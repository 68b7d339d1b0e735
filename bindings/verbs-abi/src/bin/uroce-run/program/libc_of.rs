//! Checks that the C library of the program to run can load our libraries.
//!
//! `uroce-run` itself may be statically linked, so it starts in an image whatever C library that
//! image has; without this check the loader's message would name symbols instead of the cause.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Version node of the first glibc release that has all symbols that our libraries, DPDK and what
/// it needs import. `deploy/container/build` compares it with the imports.
const OLDEST: &str = "GLIBC_2.34";
/// Largest number of bytes of a script's first line, as the kernel reads.
const FIRST_LINE_MAX: u64 = 256;

/// Checks the program, or the interpreter of a script.
///
/// # Errors
///
/// A message for the user: the C library is musl, or a glibc that is too old.
pub(super) fn check(path: &Path) -> Result<(), String> {
    let script = interpreter_of_script(path);
    let program = script.as_deref().unwrap_or(path);
    let Some(loader) = super::interpreter(program) else { return Ok(()) };
    let name = loader.file_name().unwrap_or_default().as_bytes();
    let (program, oldest) = (program.display(), OLDEST.replace('_', " "));
    if name.starts_with(b"ld-musl") {
        return Err(format!(
            "{program} is linked with musl (Alpine): uroce needs {oldest} or newer. Use an image of \
             Debian 12, Ubuntu 22.04, RHEL 9 or newer."
        ));
    }
    match has_node(&loader) {
        Some(false) => Err(format!(
            "the C library of {program} is too old: uroce needs {oldest} or newer. Use an image of \
             Debian 12, Ubuntu 22.04, RHEL 9 or newer."
        )),
        Some(true) | None => Ok(()),
    }
}

/// The first word after `#!`. `None` if the file is no script.
fn interpreter_of_script(path: &Path) -> Option<PathBuf> {
    let mut line = Vec::new();
    File::open(path).ok()?.take(FIRST_LINE_MAX).read_to_end(&mut line).ok()?;
    let rest = line.strip_prefix(b"#!")?;
    let rest = rest.split(|byte| *byte == b'\n').next()?.trim_ascii();
    let word = rest.split(|byte| byte.is_ascii_whitespace()).next()?;
    Some(PathBuf::from(OsStr::from_bytes(word)))
}

/// Whether the libc.so.6 beside the loader defines the version node. `None` if there is no such
/// file.
fn has_node(loader: &Path) -> Option<bool> {
    let beside = std::fs::canonicalize(loader).ok()?;
    let library = std::fs::read(beside.with_file_name("libc.so.6")).ok()?;
    let node = format!("\0{OLDEST}\0");
    Some(library.windows(node.len()).any(|bytes| bytes == node.as_bytes()))
}
