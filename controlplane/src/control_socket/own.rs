//! Descriptors that are checked before each use: the program may have closed them and opened files
//! of its own, which have the same numbers.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{Stat, fstat};

/// A descriptor of ours. If its number is another file when it is dropped, that stays open.
#[derive(Debug)]
pub(crate) struct Own<T: AsFd> {
    /// `None` only while this is dropped.
    file: Option<T>,
    identity: (u64, u64),
}

impl<T: AsFd> Own<T> {
    /// Takes a descriptor that was just opened.
    ///
    /// # Errors
    ///
    /// The system's.
    pub(crate) fn new(file: T) -> std::io::Result<Own<T>> {
        let identity = identity(&fstat(&file)?);
        Ok(Own { file: Some(file), identity })
    }

    /// Returns the descriptor if it still is ours.
    pub(crate) fn get(&self) -> Option<&T> {
        let file = self.file.as_ref()?;
        fstat(file).is_ok_and(|stat| identity(&stat) == self.identity).then_some(file)
    }

    /// Returns the descriptor for a poll, which does no harm to any file.
    pub(crate) fn unchecked(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }
}

impl<T: AsFd> Drop for Own<T> {
    fn drop(&mut self) {
        if self.get().is_none() {
            std::mem::forget(self.file.take());
        }
    }
}

/// Returns device and inode number, which together no other open file has.
fn identity(file: &Stat) -> (u64, u64) {
    (file.st_dev, file.st_ino)
}
