//! Decides which paths are redirected, and writes the redirected path.

use crate::defaults;
use libc::c_char;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

/// Redirected prefixes, each with its place in the tree.
const PREFIXES: [(&[u8], &[u8]); 3] = [
    // Must precede the next entry, which is a prefix of it.
    (b"/sys/class/infiniband_verbs", b"/class/infiniband_verbs"),
    (b"/sys/class/infiniband", b"/class/infiniband"),
    (b"/dev/infiniband", b"/dev/infiniband"),
];

/// Longest path in the tree, in bytes. A longer path is not redirected.
const LEN_MAX: usize = 1024;

/// The tree's path, a C string. Null until the environment was read, empty if there is no tree.
static TREE: AtomicPtr<c_char> = AtomicPtr::new(std::ptr::null_mut());

/// A copy of the path in `UROCE_TREE`, because the program may change its environment.
static NAMED: [AtomicU8; LEN_MAX] = [const { AtomicU8::new(0) }; LEN_MAX];

const EMPTY: &[u8; 1] = b"\0";

/// Sets the tree. Null disables redirection.
pub(crate) fn set_tree(tree: *const c_char) {
    let tree = if tree.is_null() { EMPTY.as_ptr().cast() } else { tree };
    TREE.store(tree.cast_mut(), Ordering::Release);
}

/// Whether there is a tree.
pub(crate) fn has_tree() -> bool {
    // SAFETY: a tree is a C string that is never freed.
    unsafe { *tree() != 0 }
}

fn tree() -> *const c_char {
    let tree = TREE.load(Ordering::Acquire);
    if !tree.is_null() {
        return tree;
    }
    // In a program with privileges that its user does not have, the variable is ignored.
    // SAFETY: `getauxval` has no preconditions.
    let is_privileged = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    // SAFETY: the name is a C string.
    let named = unsafe { defaults::variable(c"UROCE_TREE".as_ptr()) };
    let mut to = NAMED.as_ptr().cast::<c_char>();
    if named.is_null() || is_privileged || !copy(named) {
        to = EMPTY.as_ptr().cast();
    }
    // If another thread was faster, or `set_tree` was called in the meantime, that value is used.
    let first = TREE.compare_exchange(
        std::ptr::null_mut(),
        to.cast_mut(),
        Ordering::AcqRel,
        Ordering::Acquire,
    );
    first.map_or_else(|there| there.cast_const(), |_| to)
}

/// Copies a C string to `NAMED`. False if it is too long. Several threads may do this at once; they
/// write the same bytes.
fn copy(from: *const c_char) -> bool {
    // SAFETY: a variable of the environment is a C string.
    let bytes = unsafe { Bytes::new(from) };
    let mut room = NAMED[..LEN_MAX - 1].iter();
    for byte in bytes {
        let Some(to) = room.next() else { return false };
        to.store(byte, Ordering::Relaxed);
    }
    true
}

/// The bytes of a C string, without the terminating zero.
struct Bytes(*const c_char);

impl Bytes {
    /// Iterates over the bytes of `text`.
    ///
    /// # Safety
    ///
    /// `text` is a C string that exists as long as this value.
    unsafe fn new(text: *const c_char) -> Self {
        Self(text)
    }
}

impl Iterator for Bytes {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        // SAFETY: all bytes before this one were not zero, so it is part of the string or its
        // terminator.
        let byte = unsafe { *self.0 }.cast_unsigned();
        if byte == 0 {
            return None;
        }
        // SAFETY: this byte is not the terminator, so there is a next one.
        self.0 = unsafe { self.0.add(1) };
        Some(byte)
    }
}

/// A buffer for a redirected path.
pub(crate) struct Room([MaybeUninit<u8>; LEN_MAX]);

impl Room {
    pub(crate) fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; LEN_MAX])
    }

    /// Returns `path`, or the redirected path in this buffer.
    ///
    /// # Safety
    ///
    /// `path` is null or a C string.
    #[inline]
    pub(crate) unsafe fn redirect(&mut self, path: *const c_char) -> *const c_char {
        for (prefix, place) in PREFIXES {
            // SAFETY: the caller passes null or a C string.
            if let Some(rest) = unsafe { strip(path, prefix) } {
                return self.join(tree(), place, rest).unwrap_or(path);
            }
        }
        path
    }

    /// Writes the three parts of a path. `None` if there is no tree or the path is too long.
    fn join(
        &mut self,
        tree: *const c_char,
        place: &[u8],
        rest: *const c_char,
    ) -> Option<*const c_char> {
        let mut len = 0;
        // SAFETY: a tree is a C string that is never freed.
        for byte in unsafe { Bytes::new(tree) } {
            self.push(&mut len, byte)?;
        }
        if len == 0 {
            return None;
        }
        for byte in place {
            self.push(&mut len, *byte)?;
        }
        // SAFETY: `rest` is the end of the caller's path, a C string.
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

/// The rest of `path` after `prefix`, if the prefix consists of whole components: an empty string
/// or one that begins with a slash. Slashes may be doubled.
///
/// # Safety
///
/// `path` is null or a C string.
#[inline]
unsafe fn strip(path: *const c_char, prefix: &[u8]) -> Option<*const c_char> {
    if path.is_null() {
        return None;
    }
    let mut at = path;
    for (index, byte) in prefix.iter().enumerate() {
        // SAFETY: the bytes before `at` matched the prefix and were not the terminator.
        while index > 0 && prefix[index - 1] == b'/' && unsafe { *at }.cast_unsigned() == b'/' {
            // SAFETY: the byte at `at` is a slash, not the terminator.
            at = unsafe { at.add(1) };
        }
        // SAFETY: the bytes before `at` matched the prefix and were not the terminator.
        if unsafe { *at }.cast_unsigned() != *byte {
            return None;
        }
        // SAFETY: the byte at `at` matched the prefix, so it is not the terminator.
        at = unsafe { at.add(1) };
    }
    // SAFETY: the bytes before `at` matched the prefix and were not the terminator.
    matches!(unsafe { *at }.cast_unsigned(), 0 | b'/').then_some(at)
}
