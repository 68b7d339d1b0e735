//! Dynamic symbols, as binutils' readelf prints them.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A dynamic symbol with a node of libibverbs or librdmacm, or without a node.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Symbol {
    Exported { name: String, node: String, is_default: bool },
    Imported { name: String, node: String },
}

/// The symbols of these files: imports from libibverbs or librdmacm, and all exports.
pub(crate) fn symbols(files: &[PathBuf]) -> Vec<(PathBuf, Vec<Symbol>)> {
    let mut of_files = Vec::new();
    for files in files.chunks(64) {
        // With a single file, readelf does not print its name.
        let text =
            readelf("--dyn-syms", files.iter().map(PathBuf::as_path).chain(["/dev/null".as_ref()]));
        let mut symbols = Vec::new();
        let mut file = None;
        for line in text.lines() {
            if let Some(next) = line.strip_prefix("File: ") {
                of_files.extend(
                    file.replace(PathBuf::from(next))
                        .map(|file| (file, std::mem::take(&mut symbols))),
                );
            } else {
                symbols.extend(parse(line));
            }
        }
        of_files.extend(file.map(|file| (file, symbols)));
    }
    of_files
}

/// Parses a line like `  12: 00000000000bbe03     5 FUNC    GLOBAL DEFAULT   16
/// ibv_alloc_pd@@IBVERBS_1.1`
fn parse(line: &str) -> Option<Symbol> {
    let mut words = line.split_whitespace();
    let number = words.next()?.strip_suffix(':')?;
    number.parse::<u32>().ok()?;
    let section = words.nth(5)?;
    let symbol = words.next()?;
    let (name, version) = symbol.split_once('@').unwrap_or((symbol, ""));
    let node = version.trim_start_matches('@').to_owned();
    let name = name.to_owned();
    if section == "UND" {
        let is_ours = node.starts_with("IBVERBS_") || node.starts_with("RDMACM_");
        return is_ours.then_some(Symbol::Imported { name, node });
    }
    Some(Symbol::Exported { name, node, is_default: version.starts_with('@') })
}

/// The dynamic section of a file, as text.
pub(crate) fn dynamic_section(file: &Path) -> String {
    readelf("--dynamic", [file].into_iter())
}

fn readelf<'a>(what: &str, files: impl Iterator<Item = &'a Path>) -> String {
    let mut command = Command::new("readelf");
    command.args(["--wide", what]).args(files).env("LC_ALL", "C");
    let output = command.output().expect("readelf, of binutils");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
