//! Captures of tests: the packets of every recorded world, in a file named after the test.
//!
//! A test that builds several worlds gets one file with one pcapng section for each; a world that
//! sent nothing has an empty one.

use std::env;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;
use std::thread;

use crate::record::Record;
use crate::world::World;

/// Environment variable that names the folder for captures. If it is not set, none are written.
pub const CAPTURE_DIR: &str = "UROCE_CAPTURE_DIR";

impl Drop for World {
    /// Writes the capture. If that fails, prints an error and does not change the test's result.
    fn drop(&mut self) {
        let Some(record) = &self.record else { return };
        if let Some(folder) = env::var_os(CAPTURE_DIR)
            && let Err(error) = append(record, Path::new(&folder))
        {
            eprintln!("no capture: {error}");
        }
    }
}

fn append(record: &Record, folder: &Path) -> io::Result<()> {
    let thread = thread::current();
    let file = format!("{}.pcapng", thread.name().unwrap_or("unnamed"));
    let file = File::options().create(true).append(true).open(folder.join(file))?;
    record.write_pcapng(BufWriter::new(file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pair;
    use std::fs;

    #[test]
    fn each_world_of_a_test_is_a_section_of_its_capture() {
        let folder = env::temp_dir().join(format!("uroce-capture-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        for _ in 0..2 {
            let mut pair = Pair::rts();
            pair.write(0, 10);
            pair.run();
            append(pair.world.record().unwrap(), &folder).unwrap();
        }
        let mut files = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
        let (file, another) = (files.next().unwrap(), files.next());
        let bytes = fs::read(&file).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        let name = file.file_name().unwrap().to_str().unwrap();
        assert!(name.ends_with("each_world_of_a_test_is_a_section_of_its_capture.pcapng"));
        assert_eq!(another, None);
        let sections = bytes.windows(4).filter(|word| *word == [0x0a, 0x0d, 0x0d, 0x0a]);
        assert_eq!(sections.count(), 2);
    }
}
