//! Whether a range of the program's memory is there, without touching it.
//!
//! The kernel pins what is registered; here nothing keeps a program from unmapping it later, and
//! then it kills itself as by any pointer. What is not there at registration is told by an error.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use crate::errno::Errno;

/// As much as the kernel gives by one read.
const CHUNK: usize = 4096;

/// Checks that all of a range may be read, and written if `writable`.
///
/// # Errors
///
/// EFAULT if not.
pub(crate) fn check(addr: usize, len: usize, writable: bool) -> Result<(), Errno> {
    let end = addr.checked_add(len).ok_or(Errno::EFAULT)?;
    if len == 0 {
        return Ok(());
    }
    let Ok(maps) = File::open("/proc/self/maps") else {
        // No file descriptor is left, or there is no /proc.
        return check_mapped(addr, len);
    };
    ask(maps.as_fd(), addr, end, writable).unwrap_or_else(|| {
        let maps = BufReader::with_capacity(CHUNK, maps);
        check_in(maps, addr, end, writable)
    })
}

/// `struct procmap_query` of linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    flags: u64,
    addr: u64,
    start: u64,
    end: u64,
    rights: u64,
    _page_size_offset_inode: [u64; 3],
    _device_name_build: [u32; 4],
    _name_build: [u64; 2],
}

impl Query {
    /// `_IOWR('f', 17, struct procmap_query)`.
    const REQUEST: libc::Ioctl = (3 << 30 | (size_of::<Query>() as libc::Ioctl) << 16) | 0x6611;
    const READABLE: u64 = 1;
    const WRITABLE: u64 = 2;
}

/// The same by questions for one mapping each, which take no longer where there are many; `None` if
/// the kernel does not answer them, being older than 6.11.
fn ask(maps: BorrowedFd<'_>, addr: usize, end: usize, writable: bool) -> Option<Result<(), Errno>> {
    let needed = if writable { Query::READABLE | Query::WRITABLE } else { Query::READABLE };
    let mut from = addr as u64;
    while from < end as u64 {
        let size = size_of::<Query>() as u64;
        let mut query = Query { size, addr: from, ..Query::default() };
        // SAFETY: the request has this structure, which the kernel fills in.
        let result = unsafe { libc::ioctl(maps.as_raw_fd(), Query::REQUEST, &raw mut query) };
        if result != 0 {
            let error = std::io::Error::last_os_error().raw_os_error();
            return (error == Some(libc::ENOENT)).then_some(Err(Errno::EFAULT));
        }
        if query.rights & needed != needed || query.end <= from {
            return Some(Err(Errno::EFAULT));
        }
        from = query.end;
    }
    Some(Ok(()))
}

/// The same by the kernel's list of mappings, which is in the order of their addresses.
fn check_in(mut maps: impl BufRead, addr: usize, end: usize, writable: bool) -> Result<(), Errno> {
    let mut from = addr;
    let mut line = Vec::new();
    loop {
        line.clear();
        if maps.read_until(b'\n', &mut line)? == 0 {
            return Err(Errno::EFAULT);
        }
        let mapping = parse(&line).ok_or(Errno::EIO)?;
        if mapping.end <= from {
            continue;
        }
        if mapping.start > from || !mapping.readable || writable && !mapping.writable {
            return Err(Errno::EFAULT);
        }
        from = mapping.end;
        if from >= end {
            return Ok(());
        }
    }
}

#[derive(Debug, PartialEq)]
struct Mapping {
    start: usize,
    end: usize,
    readable: bool,
    writable: bool,
}

/// A line begins as `7f0c5a400000-7f0c5a428000 rw-p `.
fn parse(line: &[u8]) -> Option<Mapping> {
    let mut words = line.split(|byte| *byte == b' ');
    let (range, rights) = (words.next()?, words.next()?);
    let range = str::from_utf8(range).ok()?;
    let (start, end) = range.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    Some(Mapping {
        start: number(start)?,
        end: number(end)?,
        readable: *rights.first()? == b'r',
        writable: *rights.get(1)? == b'w',
    })
}

/// Checks that something is mapped, whatever its rights.
fn check_mapped(addr: usize, len: usize) -> Result<(), Errno> {
    const PAGE: usize = 4096;
    let start = addr / PAGE * PAGE;
    let place = std::ptr::without_provenance_mut(start);
    // SAFETY: asks for nothing to be done, but looks whether all of the range is mapped.
    let result = unsafe { libc::msync(place, addr - start + len, libc::MS_ASYNC) };
    if result == 0 { Ok(()) } else { Err(Errno::EFAULT) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    const MAPS: &[u8] = b"1000-3000 rw-p 00000000 00:00 0\n\
        3000-4000 r--p 00000000 00:00 0  /a file\n\
        4000-5000 ---p 00000000 00:00 0\n\
        6000-7000 rw-p 00000000 00:00 0  [heap]\n";

    fn is_there(addr: usize, len: usize, writable: bool) -> bool {
        check_in(MAPS, addr, addr + len, writable).is_ok()
    }

    #[test]
    fn a_range_is_there_if_all_of_it_is_mapped_with_the_rights() {
        assert!(is_there(0x1000, 0x2000, true));
        assert!(is_there(0x2fff, 0x1001, false));
        assert!(is_there(0x6fff, 1, true));
        for (addr, len, writable) in [
            (0xfff, 2, false),
            (0x2fff, 2, true),
            (0x3000, 0x1001, false),
            (0x4000, 1, false),
            (0x5000, 1, false),
            (0x6000, 0x1001, true),
            (0x7000, 1, false),
        ] {
            assert!(!is_there(addr, len, writable), "{addr:x} {len:x} {writable}");
        }
    }

    #[test]
    fn a_line_that_is_none_is_an_error() {
        for line in [&b""[..], b"\n", b"1000 rw-p", b"x-y rw-p", b"1000-2000", b"1000-2000 r"] {
            assert_eq!(parse(line), None);
        }
    }

    #[test]
    fn memory_of_ours_is_there_and_what_was_unmapped_is_not() {
        let bytes = vec![1u8; 1 << 20];
        let addr = bytes.as_ptr().addr();
        assert_eq!(check(addr, bytes.len(), true), Ok(()));
        assert_eq!(check_mapped(addr, bytes.len()), Ok(()));
        let maps = || BufReader::new(File::open("/proc/self/maps").unwrap());
        assert_eq!(check_in(maps(), addr, addr + bytes.len(), true), Ok(()));
        let code = check as *const () as usize;
        assert_eq!(check(code, 1, false), Ok(()));
        assert_eq!(check(code, 1, true), Err(Errno::EFAULT));
        assert_eq!(check_in(maps(), code, code + 1, true), Err(Errno::EFAULT));
        for (addr, len) in [(0, 1), (8, 4096), (addr, usize::MAX - addr), (addr, usize::MAX)] {
            assert_eq!(check(addr, len, false), Err(Errno::EFAULT), "{addr:x} {len:x}");
        }
        assert_eq!(check_mapped(0, 1), Err(Errno::EFAULT));
    }

    /// The issue's bound for a whole registration is 1 ms, whatever the size.
    #[test]
    fn a_gibibyte_takes_less_than_a_millisecond() {
        const LEN: usize = 1 << 30;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh mapping, which is not touched.
        let place = unsafe { libc::mmap(std::ptr::null_mut(), LEN, rights, kind, -1, 0) };
        assert_ne!(place, libc::MAP_FAILED);
        let check = || {
            let begin = Instant::now();
            check(place.addr(), LEN, true).unwrap();
            begin.elapsed()
        };
        // The best of some: others use the CPU as well.
        let best = (0..32).map(|_| check()).min().unwrap();
        // SAFETY: mapped above.
        unsafe { libc::munmap(place, LEN) };
        assert!(best.as_micros() < 1000, "{best:?}");
    }
}
