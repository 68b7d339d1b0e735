//! `uroce-run` as `install` copies it: statically linked, so it starts in any image, and says what
//! is wrong with the C library of this one instead of the loader's words about symbols.
//!
//! It starts `bin/uroce-run` beside it with the same arguments. Built by rustc alone, without cargo
//! and crates: with DPDK's shared libraries on the linker's command line nothing can be static.

#![forbid(unsafe_code)]

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Loader of programs that are linked with glibc.
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";
/// Loader of programs that are linked with musl.
const MUSL: &str = "/lib/ld-musl-x86_64.so.1";
/// Version node of the oldest glibc that has what the libraries import.
const OLDEST: &str = "GLIBC_2.34";
/// Exit code of a program that cannot be run, as of a shell.
const CANNOT_RUN: u8 = 127;

fn main() -> ExitCode {
    let own = std::env::current_exe().and_then(std::fs::canonicalize);
    let own = own.unwrap_or_else(|_| "/uroce/uroce-run".into());
    let reason = match unfit() {
        Some(reason) => reason,
        None => {
            let program = own.with_file_name("bin").join("uroce-run");
            // `exec` returns only if it fails.
            let error = Command::new(&program).args(std::env::args_os().skip(1)).exec();
            format!("{}: {error}", program.display())
        }
    };
    eprintln!("uroce-run: {reason}");
    ExitCode::from(CANNOT_RUN)
}

/// Returns what is wrong with the image's C library, if that is known.
fn unfit() -> Option<String> {
    let wanted = format!(
        "uroce needs {} or newer: use an image of Debian 12, Ubuntu 22.04, RHEL 9 or newer",
        OLDEST.replace('_', " ")
    );
    let Ok(loader) = std::fs::canonicalize(LOADER) else {
        let found = if Path::new(MUSL).exists() { "musl (Alpine)" } else { "no glibc" };
        return Some(format!("this image has {found}; {wanted}"));
    };
    let library = std::fs::read(loader.with_file_name("libc.so.6")).ok()?;
    let node = format!("\0{OLDEST}\0");
    let is_new = library.windows(node.len()).any(|bytes| bytes == node.as_bytes());
    (!is_new).then(|| format!("the glibc of this image is too old; {wanted}"))
}
