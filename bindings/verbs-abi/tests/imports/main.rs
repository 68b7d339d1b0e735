//! The import gate: the library's dynamic symbols are those of `symbols.txt`; every program and
//! library of Debian that imports from libibverbs or librdmacm finds its symbols; `MATRIX.md` is up
//! to date.
//!
//! Versioned symbols depend on how rustc's linker combines two version scripts (build.rs). So the
//! test reads them in the file and looks them up as programs do (`dlvsym`).
//!
//! `UROCE_UPDATE_MATRIX=1 cargo test -p uroce-verbs-abi --test imports` writes `MATRIX.md`.

mod elf;
mod loaded;
mod matrix;
mod newest;
mod programs;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use elf::Symbol;
use programs::Installed;
use table::Row;

/// The shared object, which cargo places beside the test.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.with_file_name("liburoce_verbs_abi.so");
    assert!(library.exists(), "{}", library.display());
    library
}

/// Symbols by name and node. The value is true for a default version.
type Symbols = BTreeMap<(String, String), bool>;

/// The symbols that the library exports.
fn exported() -> Symbols {
    let symbols = elf::symbols(&[library()]).into_iter().flat_map(|(_, symbols)| symbols);
    let exported = symbols.filter_map(|symbol| match symbol {
        Symbol::Exported { name, node, is_default } => Some(((name, node), is_default)),
        Symbol::Imported { .. } => None,
    });
    exported.collect()
}

/// The symbols of `a` that `b` lacks, or has with another kind.
fn difference<'a>(a: &'a Symbols, b: &Symbols) -> Vec<&'a (String, String)> {
    let odd = a.iter().filter(|(symbol, kind)| b.get(*symbol) != Some(kind));
    odd.map(|(symbol, _)| symbol).collect()
}

#[test]
fn the_library_exports_what_the_table_says_and_nothing_else() {
    let wanted = table::read().iter().flat_map(Row::expand).collect::<Symbols>();
    let exported = exported();
    let missing = difference(&wanted, &exported);
    let surplus = difference(&exported, &wanted);
    assert!(missing.is_empty(), "not exported, or not so: {missing:?}");
    assert!(surplus.is_empty(), "exported, or so, without being in symbols.txt: {surplus:?}");
}

#[test]
fn a_symbol_has_one_default_version_at_most() {
    let mut defaults = BTreeMap::<String, Vec<String>>::new();
    for ((name, node), is_default) in exported() {
        let nodes = defaults.entry(name).or_default();
        if is_default {
            nodes.push(node);
        }
    }
    let odd: Vec<_> = defaults.iter().filter(|(_, nodes)| nodes.len() > 1).collect();
    assert!(odd.is_empty(), "{odd:?}");
}

#[test]
fn the_loader_finds_each_symbol_by_its_version() {
    let library = loaded::Library::open(&library());
    for ((name, node), is_default) in table::read().iter().flat_map(Row::expand) {
        let versioned = library.by_version(&name, &node);
        assert!(!versioned.is_null(), "dlvsym: {name}@{node}");
        if is_default {
            assert_eq!(library.by_name(&name), versioned, "dlsym: {name} is {name}@{node}");
        }
    }
    assert!(library.by_version("ibv_open_device", "IBVERBS_1.9").is_null(), "a wrong node");
}

#[test]
fn one_file_is_both_libraries() {
    let dynamic = elf::dynamic_section(&library());
    assert!(dynamic.contains("soname: [libibverbs.so.1]"), "{dynamic}");
    assert!(dynamic.contains("NODELETE"), "{dynamic}");
}

/// A program may have been linked with any of these symbols.
#[test]
fn the_exports_of_the_distributions_libraries_are_there() {
    let ours = exported();
    for package in ["libibverbs1", "librdmacm1"] {
        let Some(theirs) = programs::exports(package) else {
            println!("SKIP: exports of {package}: not installed");
            continue;
        };
        assert!(theirs.len() > 50, "{package}: {}", theirs.len());
        // The private interface of a release is the default version in that release only.
        let is_private = |node: &str| node.starts_with("IBVERBS_PRIVATE_");
        let is_odd = |(symbol, is_default): &&((String, String), bool)| {
            let ours = ours.get(symbol);
            ours != Some(is_default) && !(is_private(&symbol.1) && ours.is_some())
        };
        let odd: Vec<_> = theirs.iter().filter(is_odd).collect();
        assert!(odd.is_empty(), "{package}: {odd:?}");
    }
}

/// Programs of newer distributions may import symbols of later releases.
#[test]
fn the_exports_of_the_newest_release_are_there() {
    let theirs = newest::read();
    let of = |family: &str| theirs.iter().filter(|(_, node)| node.starts_with(family)).count();
    assert_eq!((of("IBVERBS_1."), of("RDMACM_1."), of("IBVERBS_PRIVATE_")), (128, 75, 20));
    let ours = exported();
    let missing: Vec<_> = theirs.iter().filter(|symbol| !ours.contains_key(*symbol)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// A program that tests for a feature must get an error and continue.
#[test]
fn stubs_report_that_they_are_not_supported() {
    let library = loaded::Library::open(&library());
    let stubs = table::read().into_iter().filter(|row| row.node == "IBVERBS_1.18");
    let mut tried = 0;
    for Row { name, node, body, .. } in stubs {
        let failed = match body.as_str() {
            "stub::code" => libc::EOPNOTSUPP,
            "stub::minus_one" => -1,
            "stub::null" => 0,
            _ => continue,
        };
        let (result, errno) = library.call(&name, &node);
        assert_eq!((result, errno), (failed, libc::EOPNOTSUPP), "{name}");
        tried += 1;
    }
    assert!(tried > 5, "{tried}");
}

#[test]
fn every_import_of_the_installed_programs_resolves() {
    let installed = Installed::look();
    installed.say_what_is_missing();
    let exported: BTreeSet<_> = exported().into_keys().collect();
    let unresolved: Vec<String> = installed
        .imports
        .iter()
        .filter(|(symbol, _)| !exported.contains(*symbol))
        .map(|((name, node), users)| format!("{name}@{node} of {users:?}"))
        .collect();
    assert!(unresolved.is_empty(), "{unresolved:#?}");
    // perftest imports from both libraries; if none of its imports were found, the search is
    // broken.
    if installed.has("perftest") {
        let of = |node: &str| installed.imports.keys().any(|(_, of)| of.starts_with(node));
        assert!(of("IBVERBS_1.") && of("RDMACM_1."));
    }
}

#[test]
fn the_matrix_is_up_to_date() {
    let installed = Installed::look();
    let text = matrix::render(&table::read(), &installed);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("MATRIX.md");
    if std::env::var_os("UROCE_UPDATE_MATRIX").is_some() {
        assert!(installed.missing.is_empty(), "not installed: {:?}", installed.missing);
        return std::fs::write(&path, text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    // The imports in the matrix are those of the packages it was written with.
    let (text, kept) = if matrix::packages_of(&kept) == installed.versions() {
        (text, kept)
    } else {
        println!("SKIP: the imports in MATRIX.md: it was written with other packages");
        (matrix::without_users(&text), matrix::without_users(&kept))
    };
    let news = text.lines().filter(|line| !kept.lines().any(|old| old == *line));
    assert!(
        text == kept,
        "MATRIX.md is stale; UROCE_UPDATE_MATRIX=1 cargo test -p uroce-verbs-abi --test imports \
         updates it. New lines:\n{}",
        news.collect::<Vec<_>>().join("\n")
    );
}
