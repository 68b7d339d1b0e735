//! The program to run: where it is, and whether the loader will let us put libraries before its own.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access, getxattr};
use rustix::process::{getegid, geteuid};

const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;
/// `PT_INTERP`: names the loader that a dynamically linked program wants.
const INTERPRETER: u32 = 3;
/// `PT_LOAD` and `PT_DYNAMIC`: what is in memory, and what the loader is asked for.
const LOADED: u32 = 1;
const DYNAMIC: u32 = 2;
/// `DT_NEEDED` and `DT_STRTAB`: the name of a library, and where names are.
const NEEDED: usize = 1;
const STRINGS: usize = 5;
/// Bytes of a library's name, which is a file's.
const NAME_MAX: usize = 256;

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
    // The loader itself is one; it loads programs with our libraries.
    let is_loader = path.file_name()?.as_bytes().starts_with(b"ld-");
    let program = Elf::read(path).filter(|_| !is_loader)?;
    Some(program.segment(INTERPRETER).is_none())
}

/// The names of the libraries that a 64-bit ELF program asks for itself; none of something else's.
pub(crate) fn needed(path: &Path) -> Vec<OsString> {
    Elf::read(path).and_then(|program| program.needed()).unwrap_or_default()
}

/// A 64-bit ELF program's file.
struct Elf(File);

/// A program header's `p_offset`, `p_vaddr` and `p_filesz`.
struct Segment {
    offset: usize,
    address: usize,
    len: usize,
}

impl Elf {
    fn read(path: &Path) -> Option<Elf> {
        let program = Elf(File::open(path).ok()?);
        (program.bytes(0, 5)? == b"\x7fELF\x02").then_some(program)
    }

    fn bytes(&self, at: usize, len: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.0.read_exact_at(&mut bytes, at as u64).ok().map(|()| bytes)
    }

    /// A little-endian number.
    fn number(&self, at: usize, len: usize) -> Option<usize> {
        self.bytes(at, len)?
            .iter()
            .rev()
            .try_fold(0usize, |value, byte| Some(value << 8 | usize::from(*byte)))
    }

    /// The segments of this type, in their order.
    fn segments(&self, kind: u32) -> impl Iterator<Item = Segment> {
        let (table, size, count) = (self.number(32, 8), self.number(54, 2), self.number(56, 2));
        (0..count.unwrap_or(0)).filter_map(move |entry| {
            let at = table?.checked_add(entry.checked_mul(size?)?)?;
            let is_it = u32::try_from(self.number(at, 4)?).ok()? == kind;
            let field = |offset: usize| self.number(at.checked_add(offset)?, 8);
            is_it.then_some(Segment { offset: field(8)?, address: field(16)?, len: field(32)? })
        })
    }

    fn segment(&self, kind: u32) -> Option<Segment> {
        self.segments(kind).next()
    }

    /// Where in the file an address of the running program is.
    fn place(&self, address: usize) -> Option<usize> {
        self.segments(LOADED).find_map(|segment| {
            let within = address.checked_sub(segment.address)?;
            (within < segment.len).then(|| segment.offset.checked_add(within))?
        })
    }

    fn needed(&self) -> Option<Vec<OsString>> {
        let dynamic = self.segment(DYNAMIC)?;
        // Pairs of a tag and a value.
        let pairs = (0..dynamic.len / 16).filter_map(|entry| {
            let at = dynamic.offset.checked_add(entry * 16)?;
            Some((self.number(at, 8)?, self.number(at.checked_add(8)?, 8)?))
        });
        let pairs: Vec<(usize, usize)> = pairs.take_while(|(tag, _)| *tag != 0).collect();
        let (_, strings) = pairs.iter().find(|(tag, _)| *tag == STRINGS)?;
        let strings = self.place(*strings)?;
        let name = |at: usize| {
            let mut room = vec![0; NAME_MAX];
            let read = self.0.read_at(&mut room, strings.checked_add(at)? as u64).ok()?;
            room.truncate(room[..read].iter().position(|byte| *byte == 0)?);
            Some(OsString::from_vec(room))
        };
        let needed = pairs.iter().filter(|(tag, _)| *tag == NEEDED);
        Some(needed.filter_map(|(_, at)| name(*at)).collect())
    }
}
