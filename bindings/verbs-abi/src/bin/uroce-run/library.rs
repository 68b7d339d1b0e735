//! Finds the library and the path shim.
//!
//! An installation has both in `../lib/uroce` or in `lib`, relative to the directory of
//! `uroce-run`, under the names that programs load. Files built by cargo have other names and get
//! links: in /run/uroce-lib if the user is root, so that a program can change its user and still
//! find them, else in the run directory.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::place;

/// File name of the path shim.
pub(crate) const SHIM: &str = "liburoce_shim.so";
/// File name of the library in cargo's target directory.
const BUILT: &str = "liburoce_verbs_abi.so";
/// Names under which programs load the library. All four are one file.
const NAMES: [&str; 4] = ["libibverbs.so", "libibverbs.so.1", "librdmacm.so", "librdmacm.so.1"];

/// The directory with the library and the shim.
///
/// # Errors
///
/// A message for the user, if either file is missing or links to it cannot be made.
pub(crate) fn directory() -> Result<PathBuf, String> {
    let own = std::env::current_exe().and_then(std::fs::canonicalize);
    let own = own.map_err(|error| format!("cannot find out where uroce-run is: {error}"))?;
    let beside = own.parent().unwrap_or(Path::new("/"));
    let installed = [beside.join("../lib/uroce"), beside.join("lib")];
    for directory in &installed {
        if directory.join(NAMES[1]).exists() && directory.join(SHIM).exists() {
            return std::fs::canonicalize(directory).map_err(|error| error.to_string());
        }
    }
    if let (Some(library), Some(shim)) = (built(beside, BUILT), built(beside, SHIM)) {
        return linked(&library, &shim);
    }
    Err(format!(
        "no library beside {}. Install uroce's libraries there in lib, or in ../lib/uroce; in a \
         checkout: cargo build --release -p uroce-verbs-abi -p uroce-shim",
        own.display()
    ))
}

/// The newest build of a file in cargo's target directory. Files built only for tests are in
/// `deps`.
fn built(beside: &Path, name: &str) -> Option<PathBuf> {
    let places = [beside.join(name), beside.join("deps").join(name)];
    let time = |path: &PathBuf| path.metadata().and_then(|metadata| metadata.modified()).ok();
    let times = places.into_iter().filter_map(|path| Some((time(&path)?, path)));
    times.max().map(|(_, newest)| newest)
}

/// Makes a directory of links to these two files. Its name is a digest of their paths, so that
/// several builds do not mix.
fn linked(library: &Path, shim: &Path) -> Result<PathBuf, String> {
    let digest = place::digest(&format!("{} {}", library.display(), shim.display()));
    let directory = place::public_dir(&format!("lib-{digest:016x}")).map_err(|e| e.to_string())?;
    let links = NAMES.iter().map(|name| (*name, library)).chain([(SHIM, shim)]);
    for (name, target) in links {
        let link = directory.join(name);
        if std::fs::read_link(&link).is_ok_and(|there| there == target) {
            continue;
        }
        // Another run may be making the same link.
        let made = symlink(target, &link);
        if !link.exists() {
            made.map_err(|error| format!("{}: {error}", link.display()))?;
        }
    }
    Ok(directory)
}
