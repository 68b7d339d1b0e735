//! Generates the exports and the version script from `symbols.txt`, and the C layouts from the
//! system's verbs headers.
//!
//! rustc passes a version script of its own to the linker, without versions. So each exported
//! symbol is a jump in assembly with its version (`.symver`), and the version script that is added
//! here only defines the nodes. This works with LLD, rustc's default linker on this target; tests
//! compare the result with `symbols.txt`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Releases of the interface between libibverbs and its drivers that programs may have been linked
/// against, directly or through a driver's library. The symbols of the last release are the default
/// ones.
const PRIVATE: &[u32] = &[20, 21, 22, 25, 33, 34, 57, 59, 64, 65];
/// Minor versions of IBVERBS_1. Each node depends on the one before it.
const IBVERBS: &[u32] = &[0, 1, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18];
/// Minor versions of RDMACM_1. Each node depends on the one before it.
const RDMACM: &[u32] = &[0, 1, 2, 3, 4, 5];

const PACKAGES: &str =
    "on Debian and Ubuntu: apt-get install libibverbs-dev librdmacm-dev libclang-dev";

fn main() {
    for file in ["build.rs", "symbols.txt", "wrapper.h"] {
        println!("cargo::rerun-if-changed={file}");
    }
    if let Err(reason) = build() {
        println!("cargo::error={}", reason.replace('\n', " "));
    }
}

fn build() -> Result<(), String> {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let table = std::fs::read_to_string("symbols.txt").map_err(|error| error.to_string())?;
    write(&out.join("exports.rs"), &exports(&table)?)?;
    let map = out.join("nodes.map");
    write(&map, &nodes())?;
    for argument in [
        format!("-Wl,--version-script={}", map.display()),
        "-Wl,-soname,libibverbs.so.1".to_owned(),
        // Symbols that the linker defines for the ends of sections are not exported.
        "-Wl,-z,start-stop-visibility=hidden".to_owned(),
        // Plugins are unloaded, but the engine's threads keep running code of this library.
        "-Wl,-z,nodelete".to_owned(),
        // An installation may have DPDK and its libraries in `dpdk` beside the library. Only the
        // older tag is also used for the libraries of these libraries.
        "-Wl,-rpath,$ORIGIN/dpdk".to_owned(),
        "-Wl,--disable-new-dtags".to_owned(),
    ] {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
    generate_layouts(&out)
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Generates one macro call per symbol and version.
fn exports(table: &str) -> Result<String, String> {
    let mut text = String::new();
    let lines = table.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    for line in lines {
        let [name, node, kind, body] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            return Err(format!("symbols.txt: not four words: {line}"));
        };
        let at = match kind {
            "default" => "@@",
            "alias" => "@",
            _ => return Err(format!("symbols.txt: neither default nor alias: {line}")),
        };
        let Some(family) = node.strip_suffix('*') else {
            export(&mut text, name, at, node, body);
            continue;
        };
        let (last, former) = PRIVATE.split_last().ok_or("no private release")?;
        for release in former {
            export(&mut text, name, "@", &format!("{family}{release}"), body);
        }
        export(&mut text, name, at, &format!("{family}{last}"), body);
    }
    Ok(text)
}

fn export(text: &mut String, name: &str, at: &str, node: &str, body: &str) {
    let tag = format!("__sv_{name}__{}", node.replace('.', "_"));
    let symbol = format!("{name}{at}{node}");
    // Writing to a `String` does not fail.
    let _ = match body {
        "data" => writeln!(text, "export_byte!(\"{tag}\", \"{symbol}\");"),
        stub if stub.starts_with("stub::") => {
            writeln!(text, "export!(crate::{stub}, \"{tag}\", \"{symbol}\");")
        }
        module => writeln!(text, "export!(crate::{module}::{name}, \"{tag}\", \"{symbol}\");"),
    };
}

/// Generates the version script: nodes without symbols. Labels of the jumps are local.
fn nodes() -> String {
    let mut text = String::new();
    for (family, minors) in [("IBVERBS_1", IBVERBS), ("RDMACM_1", RDMACM)] {
        let mut former = String::new();
        for minor in minors {
            let locals = if text.is_empty() { "local: __sv_*;" } else { "" };
            let _ = writeln!(text, "{family}.{minor} {{ {locals} }}{former};");
            former = format!(" {family}.{minor}");
        }
    }
    for release in PRIVATE {
        let _ = writeln!(text, "IBVERBS_PRIVATE_{release} {{ }};");
    }
    text
}

fn generate_layouts(out: &Path) -> Result<(), String> {
    let generate = || {
        bindgen::Builder::default()
            .header("wrapper.h")
            .allowlist_type("ibv_.*|verbs_.*|rdma_.*|pthread_.*_t")
            .allowlist_var("IBV_.*|RDMA_.*|RAI_.*")
            .opaque_type("pthread_.*")
            .blocklist_function(".*")
            .default_enum_style(bindgen::EnumVariation::Consts)
            .prepend_enum_name(false)
            .derive_debug(false)
            .generate_comments(false)
            .generate()
    };
    // bindgen panics when libclang cannot be loaded.
    std::panic::set_hook(Box::new(|_| {}));
    let result = std::panic::catch_unwind(generate);
    let _ = std::panic::take_hook();
    let layouts = result
        .map_err(|_| format!("libclang could not be loaded; {PACKAGES}"))?
        .map_err(|error| format!("the verbs headers cannot be read: {error}; {PACKAGES}"))?;
    layouts
        .write_to_file(out.join("layouts.rs"))
        .map_err(|error| format!("layouts.rs could not be written: {error}"))
}
