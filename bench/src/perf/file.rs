//! Files of results, looked at before a test takes its time.

use crate::error::BenchError;
use std::fs::OpenOptions;
use std::path::Path;

/// Checks that a file can be written. It stays as it is: what it has is of an earlier test until
/// this one has results.
pub(super) fn check_writable(path: &Path) -> Result<(), BenchError> {
    let is_new = path.symlink_metadata().is_err();
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.map_err(|error| BenchError::io(format!("writing {}", path.display()), error))?;
    if is_new {
        // What cannot be removed is an empty file, to be written later.
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_left_as_it_was() {
        let path = std::env::temp_dir().join(format!("uroce-writable-{}", std::process::id()));
        check_writable(&path).expect("a new file");
        assert!(!path.exists());
        std::fs::write(&path, "earlier").expect("a file");
        check_writable(&path).expect("it is there");
        assert_eq!(std::fs::read_to_string(&path).expect("a file"), "earlier");
        std::fs::remove_file(&path).expect("a file");
        let error = check_writable(Path::new("/no/such/folder/x")).expect_err("no folder");
        assert!(error.to_string().starts_with("writing /no/such/folder/x: "), "{error}");
    }
}
