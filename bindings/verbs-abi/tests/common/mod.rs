//! C programs that use the library as any program does: compiled against the system's headers,
//! linked with the file under both names.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The shared object, which cargo puts beside the test.
pub(crate) fn library() -> PathBuf {
    let library = std::env::current_exe().unwrap().with_file_name("liburoce_verbs_abi.so");
    assert!(library.exists(), "{}", library.display());
    library
}

/// A directory of the test's own, with the library under the names that programs look for.
pub(crate) struct Place(PathBuf);

impl Place {
    pub(crate) fn new() -> Place {
        static PLACES: AtomicUsize = AtomicUsize::new(0);
        // Short: sockets in it have a path of 107 bytes at most.
        let number = PLACES.fetch_add(1, Ordering::Relaxed);
        let name = format!("uroce-abi-{}-{number}", std::process::id());
        let place = Place(std::env::temp_dir().join(name));
        std::fs::create_dir_all(&place.0).unwrap();
        for name in ["libibverbs.so.1", "libibverbs.so", "librdmacm.so.1", "librdmacm.so"] {
            symlink(library(), place.0.join(name)).unwrap();
        }
        place
    }

    /// Where it is.
    #[allow(dead_code, reason = "not every test looks")]
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// `uroce-run`, with its run directory in here and what is configured without options.
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
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name);
        let program = self.0.join(name).with_extension("");
        let mut cc = Command::new("cc");
        cc.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-o"]);
        cc.arg(&program).arg(&source).arg("-L").arg(&self.0);
        cc.args(["-libverbs", "-lrdmacm", "-lpthread"]);
        // A library under AddressSanitizer wants its programs to be as well.
        cc.args(std::env::var("CFLAGS").unwrap_or_default().split_whitespace());
        let output = cc.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        program
    }

    /// Writes a configuration of devices; each has a port at the end of a ring.
    pub(crate) fn configure(&self, devices: &str) -> PathBuf {
        let path = self.0.join("uroce.toml");
        let text = format!("[eal]\nhuge = false\nmemory_mb = 128\n{devices}");
        std::fs::write(&path, text).unwrap();
        path
    }

    /// A program with the library in its way, and its locks in the test's directory.
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

/// What a program has printed, if it ended well.
pub(crate) fn printed(output: Output) -> String {
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{out}{err}", output.status);
    out.into_owned()
}

/// One device of one port, with an address of each IP version.
#[allow(dead_code, reason = "some tests have another")]
pub(crate) const ONE_DEVICE: &str = r#"
[[device]]
name = "uroce0"
idle = "sleep"
[[device.port]]
ethdev = { ring = "one" }
ip = ["192.0.2.1/24", "2001:db8::1/64"]
"#;

/// Tests of one device, [`ONE_DEVICE`] if no other is given, each a claim of a C program, named by its
/// only argument.
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
