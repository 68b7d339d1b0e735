//! Copies the libraries, the path shim and `uroce-run` into a directory, from which programs in
//! another image use them.
//!
//! ```text
//!   init container: install DIR          container of the program, DIR mounted
//!     /usr/lib/uroce ── copy ──> DIR ──> DIR/uroce-run PROGRAM, or
//!                                        LD_LIBRARY_PATH=DIR/lib PROGRAM
//! ```
//!
//! Each file is complete before it gets its name, so a program that runs with the files of an
//! earlier run keeps them.

#![forbid(unsafe_code)]

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Directory of what is copied, seen from the directory of this program.
const SOURCE: &str = "../lib/uroce";
/// Exit code of wrong usage, and of a directory that cannot be used.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [directory] = &arguments[..] else {
        eprintln!("install: usage: install DIR (a volume that the program's container mounts too)");
        return ExitCode::from(USAGE);
    };
    match install(Path::new(directory)) {
        Ok(files) => {
            let at = Path::new(directory).display();
            println!(
                "install: {files} files in {at}. In the program's container, if it mounts them at \
                 {at}: {at}/uroce-run PROGRAM, or LD_LIBRARY_PATH={at}/lib"
            );
            ExitCode::SUCCESS
        }
        Err(reason) => {
            eprintln!("install: {reason}");
            ExitCode::from(USAGE)
        }
    }
}

/// Copies everything, and returns the number of files.
///
/// # Errors
///
/// A message for the user.
fn install(directory: &Path) -> Result<usize, String> {
    let own = std::env::current_exe().and_then(fs::canonicalize);
    let own = own.map_err(|error| format!("cannot find out where it is itself: {error}"))?;
    let source = own.parent().unwrap_or(Path::new("/")).join(SOURCE);
    if !source.join("uroce-run").exists() {
        return Err(format!("there is nothing to install in {}", source.display()));
    }
    if !directory.is_absolute() {
        return Err(format!("{} is not an absolute path", directory.display()));
    }
    let copied = copy(&source, directory).and_then(|files| {
        replace(&directory.join("profile"), 0o644, |new| fs::write(new, profile(directory)))?;
        Ok(files + 1)
    });
    copied.map_err(|(path, error)| {
        let remedy = match error.kind() {
            io::ErrorKind::ReadOnlyFilesystem => {
                "mount a volume there that is not read-only (volumeMounts, readOnly)"
            }
            io::ErrorKind::PermissionDenied => {
                "let this user write there (securityContext: fsGroup, runAsUser)"
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "give the volume more room (emptyDir: sizeLimit; 64Mi suffice)"
            }
            _ => "give a directory of a volume (volumeMounts)",
        };
        format!("{}: {error}: {remedy}", path.display())
    })
}

/// The path at which a step failed, and the error.
type Failure = (PathBuf, io::Error);

/// Copies a directory and what is in it. Returns the number of files.
fn copy(from: &Path, to: &Path) -> Result<usize, Failure> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |error| (path, error)
    };
    fs::create_dir_all(to).map_err(at(to))?;
    let mut files = 0;
    for entry in fs::read_dir(from).map_err(at(from))? {
        let entry = entry.map_err(at(from))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().map_err(at(&source))?;
        if kind.is_dir() {
            files += copy(&source, &target)?;
            continue;
        }
        let mode = entry.metadata().map_err(at(&source))?.permissions().mode() & 0o777;
        if kind.is_symlink() {
            let link = fs::read_link(&source).map_err(at(&source))?;
            replace(&target, mode, |new| std::os::unix::fs::symlink(&link, new))?;
        } else {
            replace(&target, mode, |new| fs::copy(&source, new).map(|_| ()))?;
        }
        files += 1;
    }
    Ok(files)
}

/// Makes a file under a temporary name, and gives it its own.
fn replace(path: &Path, mode: u32, make: impl Fn(&Path) -> io::Result<()>) -> Result<(), Failure> {
    let new = path.with_added_extension(format!("new-{}", std::process::id()));
    let _ = fs::remove_file(&new);
    let made = make(&new).and_then(|()| {
        if !new.is_symlink() {
            fs::set_permissions(&new, fs::Permissions::from_mode(mode))?;
        }
        fs::rename(&new, path)
    });
    made.map_err(|error| {
        let _ = fs::remove_file(&new);
        (path.to_owned(), error)
    })
}

/// What a shell of the program's container reads: `. DIR/profile`.
fn profile(directory: &Path) -> String {
    let at = directory.display();
    format!(
        "# Programs started from this shell use uroce.\n\
         export LD_LIBRARY_PATH='{at}/lib'\"${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}\"\n\
         export LD_PRELOAD='{at}/lib/liburoce_shim.so'\"${{LD_PRELOAD:+:$LD_PRELOAD}}\"\n"
    )
}
