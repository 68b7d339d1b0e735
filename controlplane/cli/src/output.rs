//! Files that commands write: made here, with this user's rights, and written by the process.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use uroce_command::{Capture, Request};

/// A file that was made for a request.
#[derive(Debug)]
pub(crate) struct Output {
    path: PathBuf,
    pub(crate) file: File,
}

impl Output {
    /// Makes the file of a request; `None` if the request has none. The file must not exist:
    /// neither one that is there nor the target of a link is overwritten.
    ///
    /// # Errors
    ///
    /// What is wrong, for people.
    pub(crate) fn of(request: &Request) -> Result<Option<Output>, String> {
        let Request::Capture(Capture::Start { file: name, .. }) = request else { return Ok(None) };
        let path = PathBuf::from(name);
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        match made {
            Ok(file) => Ok(Some(Output { path, file })),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(format!("{name}: exists already; choose another name, or remove it"))
            }
            Err(error) => Err(format!("{name}: {error}")),
        }
    }

    /// Removes the file of a request that was refused.
    pub(crate) fn discard(self) {
        // Another program may have removed it already.
        let _ = std::fs::remove_file(self.path);
    }
}
