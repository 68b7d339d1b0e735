//! Files that commands write: made here, with this user's rights. The process writes those of
//! captures itself.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

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
        Output::new(Path::new(name)).map(Some)
    }

    /// Makes a file that did not exist.
    ///
    /// # Errors
    ///
    /// What is wrong, for people.
    pub(crate) fn new(path: &Path) -> Result<Output, String> {
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        match made {
            Ok(file) => Ok(Output { path: path.to_owned(), file }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(format!(
                "{}: exists already; choose another name, or remove it",
                path.display()
            )),
            Err(error) => Err(format!("{}: {error}", path.display())),
        }
    }

    /// Writes the whole content of a file. A file that cannot take it is removed.
    ///
    /// # Errors
    ///
    /// What is wrong, for people.
    pub(crate) fn fill(mut self, text: &str) -> Result<(), String> {
        let written = self.file.write_all(text.as_bytes());
        written.map_err(|error| {
            let wrong = format!("{}: {error}", self.path.display());
            self.discard();
            wrong
        })
    }

    /// Removes the file of a request that was refused.
    pub(crate) fn discard(self) {
        // Another program may have removed it already.
        let _ = std::fs::remove_file(self.path);
    }
}
