use super::*;
use std::time::{Duration, Instant};

const MAPS: &[u8] = b"1000-3000 rw-p 00000000 00:00 0 \n\
    3000-4000 r--p 00000000 00:00 0  /a file\n\
    4000-5000 ---p 00000000 00:00 0\n\
    6000-7000 rw-p 00000000 00:00 0  [heap]\n\
    7000-8000 rw-s 00000000 00:01 77 /memfd:x (deleted)\n\
    8000-9000 rw-p 00000000 00:01 77 /memfd:x (deleted)\n\
    9000-a000 rw-s 00000000 00:00 0\n";

/// The parts of a range that are not private pages. EFAULT if a part is not mapped, or not with
/// these rights.
fn foreign(addr: usize, len: usize, writable: bool) -> Result<Vec<Range<usize>>, Errno> {
    let mut found = Vec::new();
    let mut parts = |mapping: &Mapping, part: Range<usize>| {
        if mapping.is_private {
            return mapping.check(part, writable);
        }
        found.push(part);
        Ok(())
    };
    list(MAPS, addr..addr + len, &mut parts)?;
    Ok(found)
}

#[test]
fn a_range_is_there_if_all_of_it_is_mapped_with_the_rights() {
    for (addr, len, writable) in
        [(0x1000, 0x2000, true), (0x2fff, 0x1001, false), (0x6fff, 1, true)]
    {
        assert_eq!(foreign(addr, len, writable), Ok(vec![]), "{addr:x} {len:x} {writable}");
    }
    for (addr, len, writable) in [
        (0xfff, 2, false),
        (0x2fff, 2, true),
        (0x3000, 0x1001, false),
        (0x4000, 1, false),
        (0x5000, 1, false),
        (0x5fff, 2, true),
        (0x9fff, 2, false),
    ] {
        let result = foreign(addr, len, writable);
        assert_eq!(result, Err(Errno::EFAULT), "{addr:x} {len:x} {writable}");
    }
}

#[test]
fn file_mappings_and_shared_memory_differ_from_private_pages() {
    let expected = vec![0x7000..0x8000, 0x8000..0x9000, 0x9000..0x9800];
    assert_eq!(foreign(0x6800, 0x3000, true), Ok(expected));
}

#[test]
fn an_invalid_line_is_an_error() {
    for line in [
        &b""[..],
        b"\n",
        b"1000 rw-p 0 00:00 0",
        b"x-y rw-p 0 00:00 0",
        b"1000-2000",
        b"1000-2000 r 0 00:00 0",
        b"1000-2000 rw-p 0 00:00",
    ] {
        assert_eq!(parse(line), None);
    }
}

/// Whether the range exists. Both ways of reading the mappings must agree.
fn is_there(addr: usize, len: usize, writable: bool) -> bool {
    let result = check(addr, len, writable);
    let maps = BufReader::new(File::open("/proc/self/maps").unwrap());
    let mut parts = |mapping: &Mapping, part| mapping.check(part, writable);
    assert_eq!(list(maps, addr..addr + len, &mut parts), result, "{addr:x} {len:x} {writable}");
    result.is_ok()
}

#[test]
fn memory_of_ours_is_there_and_what_was_never_mapped_is_not() {
    let bytes = vec![1u8; 1 << 20];
    let addr = bytes.as_ptr().addr();
    assert!(is_there(addr, bytes.len(), true));
    assert_eq!(check_mapped(addr, bytes.len()), Ok(()));
    let code = check as *const () as usize;
    assert!(is_there(code, 1, false));
    assert!(!is_there(code, 1, true));
    for (addr, len) in [(0, 1), (8, 4096), (addr, usize::MAX - addr), (addr, usize::MAX)] {
        assert_eq!(check(addr, len, false), Err(Errno::EFAULT), "{addr:x} {len:x}");
    }
    assert_eq!(check_mapped(0, 1), Err(Errno::EFAULT));
}

/// A mapping that is removed when it is dropped.
struct Mapped(*mut libc::c_void, usize);

impl Mapped {
    fn new(len: usize, rights: i32, kind: i32, file: i32) -> Option<Mapped> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let place = unsafe { libc::mmap(std::ptr::null_mut(), len, rights, kind, file, 0) };
        (place != libc::MAP_FAILED).then_some(Mapped(place, len))
    }

    fn addr(&self) -> usize {
        self.0.expose_provenance()
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: `new` made the mapping, and the test keeps no pointer into it.
        unsafe { libc::munmap(self.0, self.1) };
    }
}

const BOTH: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// A memfd of `len` bytes.
fn file(len: i64) -> File {
    use std::os::fd::FromRawFd;
    // SAFETY: the name is a valid C string.
    let number = unsafe { libc::memfd_create(c"test".as_ptr(), 0) };
    assert!(number >= 0);
    // SAFETY: the descriptor was just made and has no other owner.
    let file = unsafe { File::from_raw_fd(number) };
    file.set_len(len as u64).unwrap();
    file
}

#[test]
fn pages_beyond_the_end_of_a_file_are_not_there() {
    let file = file(PAGE as i64 + 1);
    for kind in [libc::MAP_SHARED, libc::MAP_PRIVATE] {
        let mapped = Mapped::new(4 * PAGE, BOTH, kind, file.as_raw_fd()).unwrap();
        for writable in [false, true] {
            // The page that contains the file's end exists as a whole.
            assert!(is_there(mapped.addr(), 2 * PAGE, writable));
            assert!(!is_there(mapped.addr(), 2 * PAGE + 1, writable));
            assert!(!is_there(mapped.addr() + 3 * PAGE, 1, writable));
        }
    }
}

#[test]
fn nothing_that_is_looked_at_is_changed() {
    use std::os::unix::fs::FileExt;
    let file = file(3 * PAGE as i64);
    let bytes: Vec<u8> = (0..3 * PAGE).map(|at| (at * 31 + 7) as u8).collect();
    file.write_all_at(&bytes, 0).unwrap();
    let mapped = Mapped::new(3 * PAGE, BOTH, libc::MAP_SHARED, file.as_raw_fd()).unwrap();
    assert!(is_there(mapped.addr() + 5, 3 * PAGE - 5, true));
    let mut now = vec![0; 3 * PAGE];
    file.read_exact_at(&mut now, 0).unwrap();
    assert_eq!(now, bytes);
}

#[test]
fn shared_memory_is_there_for_what_it_may_be_used_for() {
    let file = file(2 * PAGE as i64);
    let number = file.as_raw_fd();
    let read_only = Mapped::new(2 * PAGE, libc::PROT_READ, libc::MAP_SHARED, number).unwrap();
    assert!(is_there(read_only.addr(), 2 * PAGE, false));
    assert!(!is_there(read_only.addr(), 2 * PAGE, true));
    let kind = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    let nameless = Mapped::new(2 * PAGE, BOTH, kind, -1).unwrap();
    assert!(is_there(nameless.addr(), 2 * PAGE, true));
}

/// Maps more huge pages than are free: the mapping succeeds, its pages do not exist.
#[test]
fn huge_pages_that_cannot_be_allocated_are_not_there() {
    const HUGE: usize = 2 << 20;
    let kind = libc::MAP_ANONYMOUS | libc::MAP_PRIVATE | libc::MAP_HUGETLB | libc::MAP_NORESERVE;
    let free = std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    let Some(free) = free.ok().and_then(|text| text.trim().parse::<usize>().ok()) else {
        return println!("SKIP: no huge pages of 2 MiB in this kernel");
    };
    if free > 64 {
        return println!("SKIP: {free} huge pages, too many to take all");
    }
    let Some(mapped) = Mapped::new((free + 1) * HUGE, BOTH, kind, -1) else {
        return println!("SKIP: no mapping of huge pages");
    };
    assert!(!is_there(mapped.addr(), (free + 1) * HUGE, true));
}

/// Reading registers of a device could change them, so such a page must be refused.
#[test]
fn a_page_without_memory_behind_it_is_no_memory() {
    let own = vec![0u8; PAGE];
    assert!(!is_device(own.as_ptr().addr()));
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let Some(line) = maps.lines().find(|line| line.ends_with("[vvar]")) else {
        return println!("SKIP: this kernel shows no such page");
    };
    assert!(is_device(parse(line.as_bytes()).unwrap().start));
}

/// A whole registration must take at most 1 ms, whatever its size.
#[test]
fn a_gibibyte_takes_less_than_a_millisecond() {
    const LEN: usize = 1 << 30;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let mapped = Mapped::new(LEN, BOTH, kind, -1).unwrap();
    assert!(best_of(32, mapped.addr(), LEN) < Duration::from_millis(1));
}

/// Present pages that must be touched take some tens of nanoseconds each, so 128 MiB take a
/// fraction of the time for pinning them.
#[test]
fn shared_memory_that_is_there_is_looked_through_fast() {
    const LEN: usize = 128 << 20;
    let kind = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    let mapped = Mapped::new(LEN, BOTH, kind, -1).unwrap();
    let best = best_of(8, mapped.addr(), LEN);
    println!("{} ns a page", best.as_nanos() / (LEN / PAGE) as u128);
    assert!(best < Duration::from_millis(100), "{best:?}");
}

/// The shortest of several runs, because other processes use the CPU too.
fn best_of(times: usize, addr: usize, len: usize) -> Duration {
    let check = || {
        let begin = Instant::now();
        check(addr, len, true).unwrap();
        begin.elapsed()
    };
    (0..times).map(|_| check()).min().unwrap()
}
