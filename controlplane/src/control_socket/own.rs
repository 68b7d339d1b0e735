//! Descriptors that are checked before each use. The program may have closed them and opened its
//! own files, which then have the same numbers.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{Stat, fstat};

/// A descriptor of ours. When this is dropped, a file of the program with the same number stays
/// open.
#[derive(Debug)]
pub(crate) struct Own<T: AsFd> {
    /// `None` only while this is dropped.
    file: Option<T>,
    identity: (u64, u64),
}

impl<T: AsFd> Own<T> {
    /// Takes over a descriptor that was just opened.
    ///
    /// # Errors
    ///
    /// The descriptor's file cannot be identified: `fstat` has failed.
    pub(crate) fn new(file: T) -> std::io::Result<Own<T>> {
        let identity = identity(&fstat(&file)?);
        Ok(Own { file: Some(file), identity })
    }

    /// Returns the descriptor; `None` if it now belongs to another file.
    pub(crate) fn get(&self) -> Option<&T> {
        let file = self.file.as_ref()?;
        fstat(file).is_ok_and(|stat| identity(&stat) == self.identity).then_some(file)
    }

    /// Returns the descriptor without a check, for a poll, which does no harm to any file.
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

/// Returns device and inode number. No other open file has both.
fn identity(file: &Stat) -> (u64, u64) {
    (file.st_dev, file.st_ino)
}
