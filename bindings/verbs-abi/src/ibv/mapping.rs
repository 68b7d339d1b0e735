//! Whether a range of the program's memory is there.
//!
//! Linux pins what is registered, and refuses what it cannot pin. Here pages that the process has of
//! its own are only looked up in the list of mappings, since one can always be had: that takes no
//! longer for many bytes than for few. A page of a file, of memory that is shared, or of huge pages may
//! be impossible to have though it is mapped: beyond the file's end, with no room left for it, with no
//! huge page free. Of those each is touched once, without changing it, which takes some tens of
//! nanoseconds where it is there. `MADV_POPULATE_WRITE` would do it in one call, but takes ten times as
//! long for pages that are there, and `mincore` does not say what may be written.
//!
//! What a program takes away later is found when it is used.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use crate::errno::Errno;

/// As much as the kernel gives by one read.
const CHUNK: usize = 4096;
const PAGE: usize = 4096;

/// Checks that all of a range may be read, and written if `writable`, and has its pages.
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
        check_mapped(addr, len)?;
        return touch(addr..end, writable);
    };
    let mut parts = |mapping: &Mapping, part| mapping.check(part, writable);
    ask(maps.as_fd(), addr..end, &mut parts).unwrap_or_else(|| {
        let maps = BufReader::with_capacity(CHUNK, maps);
        list(maps, addr..end, &mut parts)
    })
}

/// A part of the address space of one kind.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Mapping {
    start: usize,
    end: usize,
    readable: bool,
    writable: bool,
    /// Of the process's own pages, of the usual size.
    is_private: bool,
}

impl Mapping {
    /// Checks a part of it.
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

/// What is done with each mapping of a range and the part of it that is in the range.
type Parts<'a> = &'a mut dyn FnMut(&Mapping, Range<usize>) -> Result<(), Errno>;

/// Checks that the kernel has all pages of a range, or gives them.
fn touch(part: Range<usize>, writable: bool) -> Result<(), Errno> {
    let start = std::ptr::with_exposed_provenance_mut(part.start);
    // SAFETY: the program's own memory, which it registers: it is to be read, and written if it is
    // mapped so and is to be `writable`.
    let is_there = unsafe { uroce::raw::is_there(start, part.len(), writable) };
    if is_there { Ok(()) } else { Err(Errno::EFAULT) }
}

/// Whether there is no memory behind an address, but a device's registers, which even a read may
/// change. Linux pins none of those.
fn is_device(addr: usize) -> bool {
    let populate = |addr: usize| {
        let place = std::ptr::without_provenance_mut(addr / PAGE * PAGE);
        // SAFETY: the page is had if it can be, and not changed.
        let result = unsafe { libc::madvise(place, PAGE, libc::MADV_POPULATE_READ) };
        result == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::EINVAL)
    };
    // A kernel before 5.14 says so of all memory, also of the page of this very frame.
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
    /// `_IOWR('f', 17, struct procmap_query)`.
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

/// Goes through a range by questions for one mapping each, which take no longer where there are many;
/// `None` if the kernel does not answer them, being older than 6.11.
fn ask(maps: BorrowedFd<'_>, range: Range<usize>, parts: Parts<'_>) -> Option<Result<(), Errno>> {
    let mut from = range.start;
    while from < range.end {
        let size = size_of::<Query>() as u64;
        let mut query = Query { size, addr: from as u64, ..Query::default() };
        // SAFETY: the request has this structure, which the kernel fills in.
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

/// Goes through a range by the kernel's list of mappings, which is in the order of their addresses.
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

/// A line begins as `7f0c5a400000-7f0c5a428000 rw-p 00000000 00:00 0 `.
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

/// Checks that something is mapped, whatever its rights.
fn check_mapped(addr: usize, len: usize) -> Result<(), Errno> {
    let start = addr / PAGE * PAGE;
    let place = std::ptr::without_provenance_mut(start);
    // SAFETY: asks for nothing to be done, but looks whether all of the range is mapped.
    let result = unsafe { libc::msync(place, addr - start + len, libc::MS_ASYNC) };
    if result == 0 { Ok(()) } else { Err(Errno::EFAULT) }
}

#[cfg(test)]
mod tests;
