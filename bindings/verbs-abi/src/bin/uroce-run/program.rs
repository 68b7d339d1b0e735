//! Finds the program to run, and checks that the loader will load our libraries into it.

mod libc_of;

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access, getxattr};
use rustix::process::{getegid, geteuid};

const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;
/// `PT_INTERP`: a segment with the path of the loader. Statically linked programs have none.
const INTERPRETER: u32 = 3;
/// `PT_LOAD`: a segment that is mapped into memory.
const LOADED: u32 = 1;
/// `PT_DYNAMIC`: the segment with the loader's table of tags and values.
const DYNAMIC: u32 = 2;
/// `DT_NEEDED`: tag of the name of a library to load.
const NEEDED: usize = 1;
/// `DT_STRTAB`: tag of the address of the string table.
const STRINGS: usize = 5;
/// `SHT_DYNSYM`: the section with the symbols that the loader sees.
const SYMBOLS: usize = 11;
/// Size of a section's header, and of a symbol.
const SECTION: usize = 64;
const SYMBOL: usize = 24;
/// A function of DPDK that every program calls that starts it.
const DPDK: &[u8] = b"rte_eal_init";
/// Bytes read for a library's name, with its terminating zero.
const NAME_MAX: usize = 256;

/// The path of the program, looked up in PATH as a shell does.
///
/// # Errors
///
/// A message for the user, if PATH has no such program.
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

/// Checks that the file is a program into which the loader will load our libraries.
///
/// # Errors
///
/// A message for the user: the file cannot be run, gains privileges, is statically linked, offers
/// a DPDK of its own to libraries, or has a C library that cannot load ours.
pub(crate) fn check(path: &Path) -> Result<(), String> {
    let metadata = path.metadata().map_err(|error| format!("{}: {error}", path.display()))?;
    if !metadata.is_file() || access(path, Access::EXEC_OK).is_err() {
        return Err(format!("{} is not a program that you may run", path.display()));
    }
    if gains_privilege(path, &metadata) {
        return Err(format!(
            "{} runs with privileges that you do not have (setuid, setgid or file capabilities), \
             so the loader ignores our libraries. Run a copy of it, which has no such privileges, \
             or run it as root.",
            path.display()
        ));
    }
    if is_static(path).unwrap_or(false) {
        return Err(format!(
            "{} is statically linked, so no RDMA library can be put under it. Build it with shared \
             libraries.",
            path.display()
        ));
    }
    if Elf::read(path).is_some_and(|program| program.defines(DPDK)) {
        return Err(format!(
            "{} has DPDK linked into it and exports its symbols, which DPDK's shared libraries \
             under uroce would take for their own. Link it with DPDK's shared libraries \
             (pkg-config --libs libdpdk), which it then shares with uroce, or without \
             -Wl,--export-dynamic.",
            path.display()
        ));
    }
    libc_of::check(path)
}

fn gains_privilege(path: &Path, metadata: &Metadata) -> bool {
    let sets_user = metadata.mode() & SETUID != 0 && metadata.uid() != geteuid().as_raw();
    let sets_group = metadata.mode() & SETGID != 0 && metadata.gid() != getegid().as_raw();
    let mut room = [0u8; 64];
    let capable = getxattr(path, "security.capability", &mut room[..]).is_ok();
    sets_user || sets_group || (capable && !geteuid().is_root())
}

/// Whether a 64-bit ELF program has no interpreter, and so loads no shared libraries. `None` if the
/// file is something else, such as a script.
fn is_static(path: &Path) -> Option<bool> {
    // The loader has no interpreter either, but loads programs with our libraries.
    let is_loader = path.file_name()?.as_bytes().starts_with(b"ld-");
    let program = Elf::read(path).filter(|_| !is_loader)?;
    Some(program.segment(INTERPRETER).is_none())
}

/// The path of the loader of a 64-bit ELF program. `None` if it has none, or is something else.
fn interpreter(path: &Path) -> Option<PathBuf> {
    let program = Elf::read(path)?;
    let segment = program.segment(INTERPRETER)?;
    let path = program.bytes(segment.offset, segment.len.min(NAME_MAX))?;
    let path = path.split(|byte| *byte == 0).next()?;
    Some(PathBuf::from(OsStr::from_bytes(path)))
}

/// The names of the libraries that a 64-bit ELF program is linked with directly. Empty for any
/// other file.
pub(crate) fn needed(path: &Path) -> Vec<OsString> {
    Elf::read(path).and_then(|program| program.needed()).unwrap_or_default()
}

/// The open file of a 64-bit ELF program.
struct Elf(File);

/// An unsigned little-endian number of at most 8 bytes.
fn number(bytes: &[u8]) -> Option<usize> {
    bytes.iter().rev().try_fold(0usize, |value, byte| Some(value << 8 | usize::from(*byte)))
}

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

    /// Reads an unsigned little-endian number of `len` bytes at offset `at`.
    fn number(&self, at: usize, len: usize) -> Option<usize> {
        number(&self.bytes(at, len)?)
    }

    /// The program headers of this type, in file order.
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

    /// Translates a virtual address to an offset in the file.
    fn place(&self, address: usize) -> Option<usize> {
        self.segments(LOADED).find_map(|segment| {
            let within = address.checked_sub(segment.address)?;
            (within < segment.len).then(|| segment.offset.checked_add(within))?
        })
    }

    /// Whether libraries find a definition of this symbol in the program. False where the program
    /// has no section headers.
    fn defines(&self, name: &[u8]) -> bool {
        self.symbols(name).unwrap_or(false)
    }

    fn symbols(&self, name: &[u8]) -> Option<bool> {
        let (table, count) = (self.number(40, 8)?, self.number(60, 2)?);
        let header = |index: usize| self.bytes(table.checked_add(index * SECTION)?, SECTION);
        let kind = |header: &Vec<u8>| number(header.get(4..8)?);
        let is_it = |header: &Vec<u8>| kind(header) == Some(SYMBOLS);
        let symbols = (0..count).map_while(header).find(is_it)?;
        let strings = self.section(&header(number(&symbols[40..44])?)?)?;
        let symbols = self.section(&symbols)?;
        Some(symbols.chunks_exact(SYMBOL).any(|symbol| {
            let text = number(&symbol[..4]).and_then(|at| strings.get(at..));
            let is_defined = symbol[6..8] != [0, 0];
            let found = text.and_then(|text| text.strip_prefix(name));
            is_defined && found.and_then(|rest| rest.first()) == Some(&0)
        }))
    }

    /// The contents of a section with this header.
    fn section(&self, header: &[u8]) -> Option<Vec<u8>> {
        let len = usize::try_from(self.0.metadata().ok()?.len()).ok()?;
        let (offset, size) = (number(header.get(24..32)?)?, number(header.get(32..40)?)?);
        (size <= len).then(|| self.bytes(offset, size))?
    }

    fn needed(&self) -> Option<Vec<OsString>> {
        let dynamic = self.segment(DYNAMIC)?;
        // Each entry is a pair of 8-byte numbers, a tag and a value.
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
