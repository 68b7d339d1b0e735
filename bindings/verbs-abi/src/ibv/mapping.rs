//! Checks that a range of the program's memory is mapped, and that the kernel can provide its
//! pages.
//!
//! Linux pins registered memory and refuses memory that it cannot pin. Nothing is pinned here.
//! Private anonymous pages of normal size are only looked up in the list of mappings, because the
//! kernel can always provide them. The look-up takes the same time for many bytes as for few.
//!
//! Other pages may be unavailable though they are mapped: a page may lie beyond the end of its
//! file, its file system may be full, or no huge page may be free. Each page of a file, of shared
//! memory and of huge pages is therefore touched once, without changing it. This takes some tens of
//! nanoseconds if the page is present. `MADV_POPULATE_WRITE` would touch all pages with one call,
//! but takes ten times as long for present pages. `mincore` does not show which pages may be
//! written.
//!
//! Memory that the program removes later is detected when it is accessed.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use crate::errno::Errno;

/// Bytes that the kernel returns for one read of the list.
const CHUNK: usize = 4096;
const PAGE: usize = 4096;

/// Checks that a range is mapped, is readable, is writable if `writable` is set, and that the
/// kernel can provide its pages.
///
/// # Errors
///
/// EFAULT if any of these does not hold.
pub(crate) fn check(addr: usize, len: usize, writable: bool) -> Result<(), Errno> {
    let end = addr.checked_add(len).ok_or(Errno::EFAULT)?;
    if len == 0 {
        return Ok(());
    }
    let Ok(maps) = File::open("/proc/self/maps") else {
        // No file descriptor is left, or /proc is not mounted.
        check_mapped(addr, len)?;
        return touch(addr..end, writable);
    };
    let mut parts = |mapping: &Mapping, part| mapping.check(part, writable);
    ask(maps.as_fd(), addr..end, &mut parts).unwrap_or_else(|| {
        let maps = BufReader::with_capacity(CHUNK, maps);
        list(maps, addr..end, &mut parts)
    })
}

/// A part of the address space with uniform properties.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Mapping {
    start: usize,
    end: usize,
    readable: bool,
    writable: bool,
    /// The mapping has private anonymous pages of normal size.
    is_private: bool,
}

impl Mapping {
    /// Checks `part`, which is inside this mapping.
    fn check(&self, part: Range<usize>, writable: bool) -> Result<(), Errno> {
        if !self.readable || writable && !self.writable {
            return Err(Errno::EFAULT);
        }
        if self.is_private {
            return Ok(());
        }
        if is_device(part.start) {
            return Err(Errno::EFAULT);
        }
        touch(part, writable)
    }
}

/// A function that is called with each mapping of a range, and the part of it that is in the range.
type Parts<'a> = &'a mut dyn FnMut(&Mapping, Range<usize>) -> Result<(), Errno>;

/// Checks that all pages of a range are present, or makes the kernel allocate them.
fn touch(part: Range<usize>, writable: bool) -> Result<(), Errno> {
    let start = std::ptr::with_exposed_provenance_mut(part.start);
    // SAFETY: the mapping is the program's memory, and permits reading, and writing if `writable`
    // is set.
    let is_there = unsafe { uroce::raw::is_there(start, part.len(), writable) };
    if is_there { Ok(()) } else { Err(Errno::EFAULT) }
}

/// Whether device registers, rather than memory, are mapped at an address. Even a read may change
/// such registers. Linux does not pin them.
fn is_device(addr: usize) -> bool {
    let populate = |addr: usize| {
        let place = std::ptr::without_provenance_mut(addr / PAGE * PAGE);
        // SAFETY: the call makes the page present if possible, and does not change it.
        let result = unsafe { libc::madvise(place, PAGE, libc::MADV_POPULATE_READ) };
        result == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::EINVAL)
    };
    // A kernel before 5.14 returns EINVAL for any memory. So the call is also tried on the page of
    // this stack frame.
    !populate(addr) && populate((&raw const addr).addr())
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
    _page_size_offset: [u64; 2],
    inode: u64,
    _device_name_build: [u32; 4],
    _name_build: [u64; 2],
}

impl Query {
    /// The request number: `_IOWR('f', 17, struct procmap_query)`.
    const REQUEST: libc::Ioctl = (3 << 30 | (size_of::<Query>() as libc::Ioctl) << 16) | 0x6611;
    const READABLE: u64 = 1;
    const WRITABLE: u64 = 2;
    const SHARED: u64 = 8;

    fn mapping(&self) -> Mapping {
        let has = |right| self.rights & right != 0;
        Mapping {
            start: self.start as usize,
            end: self.end as usize,
            readable: has(Query::READABLE),
            writable: has(Query::WRITABLE),
            is_private: !has(Query::SHARED) && self.inode == 0,
        }
    }
}

/// Walks through a range with one query per mapping. The cost of a query does not depend on the
/// number of mappings. `None` if the kernel is older than 6.11 and has no such query.
fn ask(maps: BorrowedFd<'_>, range: Range<usize>, parts: Parts<'_>) -> Option<Result<(), Errno>> {
    let mut from = range.start;
    while from < range.end {
        let size = size_of::<Query>() as u64;
        let mut query = Query { size, addr: from as u64, ..Query::default() };
        // SAFETY: the request takes this structure, which the kernel fills in.
        let result = unsafe { libc::ioctl(maps.as_raw_fd(), Query::REQUEST, &raw mut query) };
        if result != 0 {
            let error = std::io::Error::last_os_error().raw_os_error();
            return (error == Some(libc::ENOENT)).then_some(Err(Errno::EFAULT));
        }
        let mapping = query.mapping();
        if mapping.end <= from {
            return Some(Err(Errno::EFAULT));
        }
        if let Err(error) = parts(&mapping, from..mapping.end.min(range.end)) {
            return Some(Err(error));
        }
        from = mapping.end;
    }
    Some(Ok(()))
}

/// Walks through a range with the kernel's list of mappings, which is sorted by address.
fn list(mut maps: impl BufRead, range: Range<usize>, parts: Parts<'_>) -> Result<(), Errno> {
    let mut from = range.start;
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
        if mapping.start > from {
            return Err(Errno::EFAULT);
        }
        parts(&mapping, from..mapping.end.min(range.end))?;
        from = mapping.end;
        if from >= range.end {
            return Ok(());
        }
    }
}

/// Parses a line of the list, which begins like `7f0c5a400000-7f0c5a428000 rw-p 00000000 00:00 0 `.
fn parse(line: &[u8]) -> Option<Mapping> {
    let mut words = line.trim_ascii_end().split(|byte| *byte == b' ');
    let (range, rights) = (words.next()?, words.next()?);
    let inode = words.nth(2)?;
    let range = str::from_utf8(range).ok()?;
    let (start, end) = range.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    Some(Mapping {
        start: number(start)?,
        end: number(end)?,
        readable: *rights.first()? == b'r',
        writable: *rights.get(1)? == b'w',
        is_private: *rights.get(3)? == b'p' && inode == b"0",
    })
}

/// Checks that a range is mapped, with any rights.
fn check_mapped(addr: usize, len: usize) -> Result<(), Errno> {
    let start = addr / PAGE * PAGE;
    let place = std::ptr::without_provenance_mut(start);
    // SAFETY: MS_ASYNC changes nothing; the call only fails if a part of the range is not mapped.
    let result = unsafe { libc::msync(place, addr - start + len, libc::MS_ASYNC) };
    if result == 0 { Ok(()) } else { Err(Errno::EFAULT) }
}

#[cfg(test)]
mod tests;
