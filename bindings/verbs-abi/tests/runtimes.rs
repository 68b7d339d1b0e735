//! Runtimes of languages that live from SIGSEGV and SIGBUS: null pointers, the end of a stack and
//! the end of a mapped file are exceptions in Java and panics in Go. They stay so while registered
//! memory goes away under a peer's WRITE. The programs are in tests/runtimes.
//!
//! These are tests of this crate and no cases of the laboratory's applications: both ends are in
//! one process and nothing is compared with Soft-RoCE, so that the two programs run in seconds. A
//! test without its compiler says so and passes.

#[allow(dead_code, unused_macros, unused_imports, reason = "each test file uses its part")]
mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{ONE_DEVICE, POLLED_DEVICE, Place, printed};

/// A file or folder beside this one.
fn beside(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

/// The first program of this name in PATH, without links; says so if there is none.
fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&path).find_map(|dir| dir.join(name).canonicalize().ok());
    if found.is_none() {
        println!("SKIP: {name} is not installed (deploy/env/packages.sh, `runtimes`)");
    }
    found
}

/// Runs a compiler.
fn build(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// How many faults came to the runtime's own handler, which the program prints at its end.
fn faults(output: Output) -> u64 {
    printed(output).trim().parse().unwrap()
}

#[test]
fn a_java_program_has_its_exceptions_while_memory_goes_away() {
    let Some(javac) = find("javac") else { return };
    let place = Place::new();
    let home = javac.ancestors().nth(2).unwrap();
    let library = place.path().join("libfaults.so");
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O1", "-g", "-shared", "-fPIC", "-o"]).arg(&library);
    for include in [home.join("include"), home.join("include/linux"), beside("c")] {
        cc.arg("-I").arg(include);
    }
    build(cc.arg(beside("runtimes/jni.c")).arg("-L").arg(place.path()).arg("-libverbs"));
    build(Command::new(&javac).arg("-d").arg(place.path()).arg(beside("runtimes/Faults.java")));

    let java = home.join("bin/java");
    let run = |device: &str, options: &[&str], more: &[&str]| {
        let config = place.configure(device);
        let mut command = place.command(&java, &config);
        command.args(options).arg("-cp").arg(place.path()).arg("Faults").arg(&library);
        command.arg(place.path().join("file")).args(more).output().unwrap()
    };
    // Interpreted and compiled code look for null in ways of their own.
    let first_compiler = "-XX:TieredStopAtLevel=1";
    for (options, device) in
        [("-Xint", POLLED_DEVICE), (first_compiler, ONE_DEVICE), ("-Xmixed", POLLED_DEVICE)]
    {
        assert!(faults(run(device, &[options], &[])) > 100, "{options}");
    }
    let report = format!("-XX:ErrorFile={}", place.path().join("report").display());
    let output = run(ONE_DEVICE, &[&report, "-XX:-CreateCoredumpOnCrash"], &["fatal"]);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success(), "{told}");
    assert!(told.contains("SIGSEGV (0xb)") && told.contains("Java_Faults_faultInC"), "{told}");
}

#[test]
fn a_go_program_has_its_panics_while_memory_goes_away() {
    let Some(go) = find("go") else { return };
    let place = Place::new();
    let program = place.path().join("faults");
    let mut compiler = Command::new(&go);
    compiler.arg("build").arg("-o").arg(&program).arg(beside("runtimes/faults.go"));
    compiler.env("GOCACHE", place.path().join("cache")).env("GO111MODULE", "off");
    compiler.env("CGO_CFLAGS", format!("-std=gnu11 -O1 -I{}", beside("c").display()));
    build(compiler.env("CGO_LDFLAGS", format!("-L{}", place.path().display())));

    let run = |device: &str, more: &[&str]| {
        let config = place.configure(device);
        let mut command = place.command(&program, &config);
        command.arg(place.path().join("file")).args(more).output().unwrap()
    };
    for device in [ONE_DEVICE, POLLED_DEVICE] {
        assert!(faults(run(device, &[])) > 100);
    }
    let output = run(ONE_DEVICE, &["fatal"]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("[signal SIGSEGV: segmentation violation"), "{told}");
}
