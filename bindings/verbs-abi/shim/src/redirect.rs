//! Which paths lead to the tree, and where in it.

use libc::c_char;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

/// What is redirected, and the place in the tree.
const PREFIXES: [(&[u8], &[u8]); 3] = [
    // Before the next, which is how it begins.
    (b"/sys/class/infiniband_verbs", b"/class/infiniband_verbs"),
    (b"/sys/class/infiniband", b"/class/infiniband"),
    (b"/dev/infiniband", b"/dev/infiniband"),
];

/// Longest path in the tree. A longer one is left as it is, and leads to nothing.
const LEN_MAX: usize = 1024;

/// A terminated string; null until the environment has been looked at, empty if there is no tree.
static TREE: AtomicPtr<c_char> = AtomicPtr::new(std::ptr::null_mut());

/// The tree that the environment named at the beginning. Its own memory may change.
static NAMED: [AtomicU8; LEN_MAX] = [const { AtomicU8::new(0) }; LEN_MAX];

const EMPTY: &[u8; 1] = b"\0";

/// Null is no tree.
pub(crate) fn set_tree(tree: *const c_char) {
    let tree = if tree.is_null() { EMPTY.as_ptr().cast() } else { tree };
    TREE.store(tree.cast_mut(), Ordering::Release);
}

fn tree() -> *const c_char {
    let tree = TREE.load(Ordering::Acquire);
    if !tree.is_null() {
        return tree;
    }
    // A program with privileges that its user has not is not shown what that user names.
    // SAFETY: has no preconditions.
    let is_privileged = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    // SAFETY: the name is terminated.
    let named = unsafe { libc::getenv(c"UROCE_TREE".as_ptr()) };
    let mut to = NAMED.as_ptr().cast::<c_char>();
    if named.is_null() || is_privileged || !copy(named) {
        to = EMPTY.as_ptr().cast();
    }
    // Whoever looked first, or has been told by `set_tree` meanwhile, is right.
    let first = TREE.compare_exchange(
        std::ptr::null_mut(),
        to.cast_mut(),
        Ordering::AcqRel,
        Ordering::Acquire,
    );
    first.map_or_else(|there| there.cast_const(), |_| to)
}

/// Copies a terminated string to `NAMED`, if it fits. Threads that do it at once write the same.
fn copy(from: *const c_char) -> bool {
    // SAFETY: a variable of the environment is terminated.
    let bytes = unsafe { Bytes::new(from) };
    let mut room = NAMED[..LEN_MAX - 1].iter();
    for byte in bytes {
        let Some(to) = room.next() else { return false };
        to.store(byte, Ordering::Relaxed);
    }
    true
}

/// The bytes of a terminated string, without the terminator.
struct Bytes(*const c_char);

impl Bytes {
    /// # Safety
    ///
    /// `text` is terminated, and stays as long as this.
    unsafe fn new(text: *const c_char) -> Self {
        Self(text)
    }
}

impl Iterator for Bytes {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        // SAFETY: no byte before this one was the terminator.
        let byte = unsafe { *self.0 }.cast_unsigned();
        if byte == 0 {
            return None;
        }
        // SAFETY: the terminator is further on.
        self.0 = unsafe { self.0.add(1) };
        Some(byte)
    }
}

/// Where a redirected path is written.
pub(crate) struct Room([MaybeUninit<u8>; LEN_MAX]);

impl Room {
    pub(crate) fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; LEN_MAX])
    }

    /// The path that `path` stands for: itself, or one in here.
    ///
    /// # Safety
    ///
    /// `path` is null or terminated.
    #[inline]
    pub(crate) unsafe fn redirect(&mut self, path: *const c_char) -> *const c_char {
        for (prefix, place) in PREFIXES {
            // SAFETY: as the caller says.
            if let Some(rest) = unsafe { strip(path, prefix) } {
                return self.join(tree(), place, rest).unwrap_or(path);
            }
        }
        path
    }

    /// Writes the three parts; `None` if there is no tree or it is too long.
    fn join(
        &mut self,
        tree: *const c_char,
        place: &[u8],
        rest: *const c_char,
    ) -> Option<*const c_char> {
        let mut len = 0;
        // SAFETY: a tree is a terminated string that stays.
        for byte in unsafe { Bytes::new(tree) } {
            self.push(&mut len, byte)?;
        }
        if len == 0 {
            return None;
        }
        for byte in place {
            self.push(&mut len, *byte)?;
        }
        // SAFETY: it is the end of the caller's path.
        for byte in unsafe { Bytes::new(rest) } {
            self.push(&mut len, byte)?;
        }
        self.push(&mut len, 0)?;
        Some(self.0.as_ptr().cast())
    }

    fn push(&mut self, len: &mut usize, byte: u8) -> Option<()> {
        self.0.get_mut(*len)?.write(byte);
        *len += 1;
        Some(())
    }
}

/// What follows `prefix` in `path`, if that is a part of it: nothing, or something with a slash.
/// Slashes may be doubled.
///
/// # Safety
///
/// `path` is null or terminated.
#[inline]
unsafe fn strip(path: *const c_char, prefix: &[u8]) -> Option<*const c_char> {
    if path.is_null() {
        return None;
    }
    let mut at = path;
    for (index, byte) in prefix.iter().enumerate() {
        // SAFETY: as below.
        while index > 0 && prefix[index - 1] == b'/' && unsafe { *at }.cast_unsigned() == b'/' {
            // SAFETY: as below.
            at = unsafe { at.add(1) };
        }
        // SAFETY: no byte before this one was the terminator.
        if unsafe { *at }.cast_unsigned() != *byte {
            return None;
        }
        // SAFETY: the byte is not the terminator.
        at = unsafe { at.add(1) };
    }
    // SAFETY: as above.
    matches!(unsafe { *at }.cast_unsigned(), 0 | b'/').then_some(at)
}
