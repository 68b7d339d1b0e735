//! Imports of Debian's RDMA programs and libraries.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::elf::{self, Symbol};

/// A package, its name in MATRIX.md, and the first letters of its relevant files; empty for all
/// files.
type Package = (&'static str, &'static str, &'static [&'static str]);

const PACKAGES: &[Package] = &[
    ("ibverbs-utils", "ibverbs-utils", &[]),
    ("rdmacm-utils", "rdmacm-utils", &[]),
    ("perftest", "perftest", &[]),
    ("qperf", "qperf", &[]),
    ("fio", "fio", &[]),
    ("libucx0", "ucx", &[]),
    ("ucx-utils", "ucx", &[]),
    ("libfabric1", "libfabric", &[]),
    ("libfabric-bin", "libfabric", &[]),
    ("python3-pyverbs", "pyverbs", &[]),
    // Drivers that programs link directly. Drivers that only the real libibverbs loads are not
    // used.
    ("ibverbs-providers", "providers", &["libmlx4.so.", "libmlx5.so.", "libefa.so."]),
];

/// The packages that import each symbol, by the symbol's name and node.
pub(crate) type Imports = BTreeMap<(String, String), BTreeSet<&'static str>>;

/// The packages of [`PACKAGES`] that are installed.
pub(crate) struct Installed {
    pub(crate) imports: Imports,
    pub(crate) missing: Vec<&'static str>,
    found: Vec<(&'static str, String)>,
}

impl Installed {
    pub(crate) fn look() -> Installed {
        let mut this = Installed { imports: Imports::new(), missing: vec![], found: vec![] };
        for (package, user, files) in PACKAGES {
            match version(package) {
                Some(version) => {
                    this.found.push((package, version));
                    this.read(package, user, files);
                }
                None => this.missing.push(package),
            }
        }
        this
    }

    fn read(&mut self, package: &str, user: &'static str, names: &[&str]) {
        for (_, symbols) in elf::symbols(&objects(package, names)) {
            for symbol in symbols {
                if let Symbol::Imported { name, node } = symbol {
                    self.imports.entry((name, node)).or_default().insert(user);
                }
            }
        }
    }

    pub(crate) fn has(&self, package: &str) -> bool {
        self.found.iter().any(|(name, _)| *name == package)
    }

    /// The packages and versions, in MATRIX.md's format.
    pub(crate) fn versions(&self) -> String {
        let found = self.found.iter().map(|(name, version)| format!("{name} {version}"));
        found.collect::<Vec<_>>().join(", ")
    }

    pub(crate) fn say_what_is_missing(&self) {
        if !self.missing.is_empty() {
            println!(
                "SKIP: imports of packages that are not installed: {}",
                self.missing.join(" ")
            );
        }
    }
}

/// The symbols that a package's libraries export, without the nodes themselves. `None` if it is not
/// installed.
pub(crate) fn exports(package: &str) -> Option<Vec<((String, String), bool)>> {
    version(package)?;
    let names = ["libibverbs.so.", "librdmacm.so."];
    let symbols = elf::symbols(&objects(package, &names)).into_iter().flat_map(|(_, all)| all);
    let exported = symbols.filter_map(|symbol| match symbol {
        Symbol::Exported { name, node, is_default } if !node.is_empty() => {
            Some(((name, node), is_default))
        }
        _ => None,
    });
    Some(exported.collect())
}

fn version(package: &str) -> Option<String> {
    let text = dpkg_query(&["-W", "-f=${db:Status-Status} ${Version}", package])?;
    text.strip_prefix("installed ").map(str::to_owned)
}

/// The ELF files of a package, without links.
fn objects(package: &str, names: &[&str]) -> Vec<PathBuf> {
    let files = dpkg_query(&["-L", package]).unwrap_or_default();
    let wanted = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        names.is_empty() || names.iter().any(|start| name.starts_with(start))
    };
    let paths = files.lines().map(PathBuf::from);
    paths
        .filter(|path| !path.is_symlink() && path.is_file() && wanted(path) && is_elf(path))
        .collect()
}

fn is_elf(path: &Path) -> bool {
    use std::io::Read;
    let mut magic = [0; 4];
    let file = std::fs::File::open(path);
    file.and_then(|mut file| file.read_exact(&mut magic)).is_ok() && magic == *b"\x7fELF"
}

/// Runs dpkg-query. `None` if it fails, also on other systems than Debian.
fn dpkg_query(args: &[&str]) -> Option<String> {
    let output = Command::new("dpkg-query").args(args).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
