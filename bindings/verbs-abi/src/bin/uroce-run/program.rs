//! The program to run: where it is, and whether the loader will let us put libraries before its own.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access, getxattr};
use rustix::process::{getegid, geteuid};

const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;
/// `PT_INTERP`: names the loader that a dynamically linked program wants.
const INTERPRETER: u32 = 3;

/// The file that a shell would run.
pub(crate) fn find(name: &OsStr) -> Result<PathBuf, String> {
    if name.as_bytes().contains(&b'/') {
        return Ok(PathBuf::from(name));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).map(|directory| directory.join(name));
    let is_program = |file: &PathBuf| file.is_file() && access(file, Access::EXEC_OK).is_ok();
    places.into_iter().find(is_program).ok_or_else(|| {
        format!(
            "there is no program {} in PATH. RDMA programs are in Debian's packages perftest, \
             ibverbs-utils, rdmacm-utils, qperf, fio, ucx-utils.",
            name.display()
        )
    })
}

/// Says what is in the way of a program that would not get our libraries.
pub(crate) fn check(path: &Path) -> Result<(), String> {
    let metadata = path.metadata().map_err(|error| format!("{}: {error}", path.display()))?;
    if !metadata.is_file() || access(path, Access::EXEC_OK).is_err() {
        return Err(format!("{} is not a program that you may run", path.display()));
    }
    if gains_privilege(path, &metadata) {
        return Err(format!(
            "{} runs with privileges that you do not have (setuid, setgid or file capabilities), \
             so the loader ignores our libraries. Run a copy of it, which has no such privilege, \
             or run it as root.",
            path.display()
        ));
    }
    if is_static(path).unwrap_or(false) {
        return Err(format!(
            "{} is statically linked: it has its RDMA library inside, if any. Build it with shared \
             libraries.",
            path.display()
        ));
    }
    Ok(())
}

fn gains_privilege(path: &Path, metadata: &Metadata) -> bool {
    let sets_user = metadata.mode() & SETUID != 0 && metadata.uid() != geteuid().as_raw();
    let sets_group = metadata.mode() & SETGID != 0 && metadata.gid() != getegid().as_raw();
    let mut room = [0u8; 64];
    let capable = getxattr(path, "security.capability", &mut room[..]).is_ok();
    sets_user || sets_group || (capable && !geteuid().is_root())
}

/// Whether a 64-bit ELF program wants no loader. `None` if it is something else, as a script.
fn is_static(path: &Path) -> Option<bool> {
    let mut header = Vec::new();
    File::open(path).ok()?.take(4096).read_to_end(&mut header).ok()?;
    let is_elf64 = header.starts_with(b"\x7fELF\x02");
    // The loader itself is one; it loads programs with our libraries.
    let is_loader = path.file_name()?.as_bytes().starts_with(b"ld-");
    if !is_elf64 || is_loader {
        return None;
    }
    let field = |at: usize, len: usize| {
        let bytes = header.get(at..at + len)?;
        bytes.iter().rev().try_fold(0usize, |value, byte| Some(value << 8 | usize::from(*byte)))
    };
    let (table, size, count) = (field(32, 8)?, field(54, 2)?, field(56, 2)?);
    for entry in 0..count {
        let at = table.checked_add(entry.checked_mul(size)?)?;
        // A table that is further on is not looked at.
        if u32::try_from(field(at, 4)?).ok()? == INTERPRETER {
            return Some(false);
        }
    }
    Some(true)
}
