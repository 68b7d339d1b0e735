//! Finds libdpdk, compiles the shim, and generates bindings of the shim's interface.
//!
//! bindgen reads `wrapper.h`, which has the shim's prototypes and a few constants of DPDK, but none
//! of DPDK's structs. So the build takes one or two seconds. If a DPDK release moves a field, a
//! `_Static_assert` in C fails here, and not the stack at run time.

use std::path::PathBuf;
use std::process::Command;

/// Oldest supported and first unsupported DPDK release.
const VERSIONS: std::ops::Range<&str> = "21.11".."26.0";

/// Libraries that the shim calls. Drivers are plugins that EAL loads.
const LIBRARIES: &[&str] = &[
    "rte_ethdev",
    "rte_net_ring",
    "rte_mbuf",
    "rte_mempool",
    "rte_ring",
    "rte_eal",
    "rte_telemetry",
];

const PACKAGES: &str = "on Debian and Ubuntu: apt-get install libdpdk-dev libclang-dev pkg-config";

fn main() {
    for file in ["build.rs", "wrapper.h", "shim.h", "shim.c"] {
        println!("cargo::rerun-if-changed={file}");
    }
    for variable in ["LIBCLANG_PATH", "PKG_CONFIG_PATH", "PKG_CONFIG_LIBDIR"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    if let Err(reason) = build() {
        // A directive is one line. cargo shows it as this crate's error.
        println!("cargo::error={}", reason.replace('\n', " "));
    }
}

fn build() -> Result<(), String> {
    let library = pkg_config::Config::new()
        .cargo_metadata(false)
        .range_version(VERSIONS)
        .probe("libdpdk")
        .map_err(|_| explain_missing_dpdk())?;
    println!("cargo::metadata=version={}", library.version);

    let flags = compiler_flags()?;
    compile_shim(&flags);
    for path in &library.link_paths {
        println!("cargo::rustc-link-search=native={}", path.display());
    }
    for name in LIBRARIES {
        println!("cargo::rustc-link-lib=dylib={name}");
    }
    generate_bindings(&flags)
}

fn explain_missing_dpdk() -> String {
    let found = Command::new("pkg-config").args(["--modversion", "libdpdk"]).output();
    match found {
        Err(_) => format!("pkg-config cannot be run; {PACKAGES}"),
        Ok(output) if output.status.success() => format!(
            "DPDK {} is installed, uroce is written for {} up to, not including, {}",
            String::from_utf8_lossy(&output.stdout).trim(),
            VERSIONS.start,
            VERSIONS.end
        ),
        Ok(_) => format!("libdpdk was not found by pkg-config; {PACKAGES}"),
    }
}

/// libdpdk's compiler flags, unchanged, because `-include rte_config.h` and `-march` affect its
/// ABI.
fn compiler_flags() -> Result<Vec<String>, String> {
    let output = Command::new("pkg-config")
        .args(["--cflags", "libdpdk"])
        .output()
        .map_err(|error| format!("pkg-config cannot be run ({error}); {PACKAGES}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

fn compile_shim(flags: &[String]) {
    let mut shim = cc::Build::new();
    for flag in flags {
        shim.flag(flag);
    }
    // DPDK's headers use GNU C and cause warnings that cannot be fixed here.
    shim.file("shim.c").std("gnu11").opt_level(3).warnings(true).flag("-Wno-unused-parameter");
    shim.flag_if_supported("-Wno-address-of-packed-member").compile("uroce_dpdk_shim");
}

fn generate_bindings(flags: &[String]) -> Result<(), String> {
    let generate = || {
        bindgen::Builder::default()
            .header("wrapper.h")
            .clang_args(flags)
            .allowlist_function("uroce_.*")
            .allowlist_type("uroce_.*")
            .allowlist_var("UROCE_.*|RTE_PKTMBUF_HEADROOM|RTE_MEMPOOL_CACHE_MAX_SIZE")
            // Structs that DPDK owns; Rust only passes their addresses.
            .opaque_type("rte_mempool|rte_ring")
            // Replaced by `Mbuf` in src/lib.rs.
            .blocklist_type("rte_mbuf")
            .derive_default(true)
            .generate()
    };
    // bindgen panics when libclang cannot be loaded.
    std::panic::set_hook(Box::new(|_| {}));
    let result = std::panic::catch_unwind(generate);
    let _ = std::panic::take_hook();
    let bindings = result
        .map_err(|_| format!("libclang could not be loaded; {PACKAGES}"))?
        .map_err(|error| format!("bindgen refused wrapper.h: {error}"))?;

    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    bindings
        .write_to_file(out.join("bindings.rs"))
        .map_err(|error| format!("bindings.rs could not be written: {error}"))
}
