//! C programs that use the library like any program: compiled with the system's headers and linked
//! with the library under both names.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The shared object, which cargo places beside the test.
pub(crate) fn library() -> PathBuf {
    let library = std::env::current_exe().unwrap().with_file_name("liburoce_verbs_abi.so");
    assert!(library.exists(), "{}", library.display());
    library
}

/// A directory for one test, with the library under the names that programs load.
pub(crate) struct Place(PathBuf);

impl Place {
    pub(crate) fn new() -> Place {
        static PLACES: AtomicUsize = AtomicUsize::new(0);
        // A short name, because a socket's path has at most 107 bytes.
        let number = PLACES.fetch_add(1, Ordering::Relaxed);
        let name = format!("uroce-abi-{}-{number}", std::process::id());
        let place = Place(std::env::temp_dir().join(name));
        // Of a test that was killed, when a process had this number before.
        let _ = std::fs::remove_dir_all(&place.0);
        std::fs::create_dir_all(&place.0).unwrap();
        for name in ["libibverbs.so.1", "libibverbs.so", "librdmacm.so.1", "librdmacm.so"] {
            symlink(library(), place.0.join(name)).unwrap();
        }
        place
    }

    /// Path of the directory.
    #[allow(dead_code, reason = "not every test looks")]
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// A command that runs `uroce-run` with this directory as its run directory and with the
    /// built-in configuration.
    #[allow(dead_code, reason = "not every test starts programs by it")]
    pub(crate) fn launcher(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_uroce-run"));
        command.env("XDG_RUNTIME_DIR", &self.0).env("LC_ALL", "C");
        for name in ["UROCE_CONFIG", "UROCE_NETDEV", "LD_PRELOAD"] {
            command.env_remove(name);
        }
        command
    }

    /// Compiles a program of tests/c.
    pub(crate) fn compile(&self, name: &str) -> PathBuf {
        self.compile_with(name, &[])
    }

    /// Compiles a program of tests/c, with options of the compiler.
    pub(crate) fn compile_with(&self, name: &str, options: &[&str]) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name);
        let program = self.0.join(name).with_extension("");
        let mut cc = Command::new("cc");
        cc.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-o"]);
        cc.arg(&program).arg(&source).arg("-L").arg(&self.0);
        cc.args(["-libverbs", "-lrdmacm", "-lpthread"]).args(options);
        // CFLAGS has the sanitizer's option if the library was built with AddressSanitizer.
        cc.args(std::env::var("CFLAGS").unwrap_or_default().split_whitespace());
        let output = cc.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        program
    }

    /// Writes a configuration of devices with ports on rings, and returns its path.
    pub(crate) fn configure(&self, devices: &str) -> PathBuf {
        let path = self.0.join("uroce.toml");
        let text = format!("[eal]\nhuge = false\nmemory_mb = 128\n{devices}");
        std::fs::write(&path, text).unwrap();
        path
    }

    /// A command that runs a program with the library, this configuration and this run directory.
    pub(crate) fn command(&self, program: &Path, config: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env("LD_LIBRARY_PATH", &self.0)
            .env("UROCE_CONFIG", config)
            .env("XDG_RUNTIME_DIR", &self.0);
        command
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The output of a program, which must have succeeded.
pub(crate) fn printed(output: Output) -> String {
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{out}{err}", output.status);
    out.into_owned()
}

/// One device with one port, which has an address of each IP version.
#[allow(dead_code, reason = "some tests have another")]
pub(crate) const ONE_DEVICE: &str = r#"
[[device]]
name = "uroce0"
idle = "sleep"
[[device.port]]
ethdev = { ring = "one" }
ip = ["192.0.2.1/24", "2001:db8::1/64"]
"#;

/// One device with one port, and an lcore that pollers drive, as in the built-in configuration.
#[allow(dead_code, reason = "some tests have another")]
pub(crate) const POLLED_DEVICE: &str = r#"
[[device]]
name = "uroce0"
driver = "poller"
idle = "sleep"
[[device.port]]
ethdev = { ring = "one" }
ip = ["192.0.2.1/24", "2001:db8::1/64"]
"#;

/// What a program's claim, which holds, makes the library say on stderr.
#[allow(dead_code, reason = "some tests look at outcomes only")]
pub(crate) fn said(source: &str, claim: &str) -> String {
    let place = Place::new();
    let program = place.compile(source);
    let config = place.configure(ONE_DEVICE);
    let output = place.command(&program, &config).arg(claim).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}\n{said}", output.status);
    said
}

/// Defines tests, one per claim of a C program; the claim is the program's only argument. The
/// device is [`ONE_DEVICE`] if no other is given.
macro_rules! claims {
    ($source:literal: $($name:ident)*) => {
        claims! { $source, common::ONE_DEVICE => $($name)* }
    };
    ($source:literal, $device:expr => $($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                let place = common::Place::new();
                let program = place.compile($source);
                let config = place.configure($device);
                let run = place.command(&program, &config).arg(stringify!($name)).output();
                common::printed(run.unwrap());
            }
        )*
    };
}

pub(crate) use claims;
