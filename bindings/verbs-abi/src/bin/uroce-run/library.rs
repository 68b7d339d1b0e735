//! Where the library and the shim are.
//!
//! Installed, they are in `lib/uroce` beside the program's directory, or in `lib` beside the
//! program, under the names by which programs ask for them. Where cargo built them they have other
//! names, and get links: in the run directory, or where root's programs find them as other users, too.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::place;

/// The shim's name.
pub(crate) const SHIM: &str = "liburoce_shim.so";
/// The library's, where cargo has built it.
const BUILT: &str = "liburoce_verbs_abi.so";
/// What programs ask for; all are one file.
const NAMES: [&str; 4] = ["libibverbs.so", "libibverbs.so.1", "librdmacm.so", "librdmacm.so.1"];

/// The directory that has both.
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

/// What cargo has built: what is built for tests is in `deps` alone.
fn built(beside: &Path, name: &str) -> Option<PathBuf> {
    let places = [beside.join(name), beside.join("deps").join(name)];
    let time = |path: &PathBuf| path.metadata().and_then(|metadata| metadata.modified()).ok();
    let times = places.into_iter().filter_map(|path| Some((time(&path)?, path)));
    times.max().map(|(_, newest)| newest)
}

/// A directory of links to these files. It is named after them, so that builds do not mix.
fn linked(library: &Path, shim: &Path) -> Result<PathBuf, String> {
    let digest = place::digest(&format!("{} {}", library.display(), shim.display()));
    let directory = place::public_dir(&format!("lib-{digest:016x}")).map_err(|e| e.to_string())?;
    let links = NAMES.iter().map(|name| (*name, library)).chain([(SHIM, shim)]);
    for (name, target) in links {
        let link = directory.join(name);
        if std::fs::read_link(&link).is_ok_and(|there| there == target) {
            continue;
        }
        // Another run may be making the same.
        let made = symlink(target, &link);
        if !link.exists() {
            made.map_err(|error| format!("{}: {error}", link.display()))?;
        }
    }
    Ok(directory)
}
