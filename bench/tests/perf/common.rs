//! Runs `uroce-perf` as a user does: as a process, with a time limit.

use std::io::Read;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time after which a run counts as hanging.
const LIMIT: Duration = Duration::from_secs(150);

/// Result of a run.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Output {
    /// Checks that the run has succeeded.
    pub(crate) fn succeeded(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// Returns the last line of standard output as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        let line = self.stdout.lines().last().unwrap_or_default();
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// A running `uroce-perf`; killed when dropped.
pub(crate) struct Run {
    child: Child,
    /// Text that [`Run::until`] has read.
    said: String,
}

impl Run {
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::of(Command::new(env!("CARGO_BIN_EXE_uroce-perf")).args(args))
    }

    pub(crate) fn of(command: &mut Command) -> Self {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        Self { child, said: String::new() }
    }

    /// Waits until the process has written `text`.
    pub(crate) fn until(&mut self, text: &str) {
        let pipe = self.child.stdout.as_mut().expect("it is piped");
        let mut byte = [0];
        while !self.said.contains(text) {
            let count = pipe.read(&mut byte).expect("text");
            assert!(count > 0, "it has ended without {text:?}: {}", self.said);
            self.said.push(byte[0].into());
        }
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it is ours");
    }

    /// Waits for the end of the process.
    pub(crate) fn finish(mut self) -> Output {
        let deadline = Instant::now() + LIMIT;
        // The output is short, so that the pipes can hold all of it.
        let code = loop {
            match self.child.try_wait().expect("it is ours") {
                Some(status) => break status.code(),
                None if Instant::now() > deadline => {
                    self.kill();
                    panic!("it hangs: {:?}", self.read());
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        let (stdout, stderr) = self.read();
        Output { code, stdout, stderr }
    }

    fn read(&mut self) -> (String, String) {
        let (mut stdout, mut stderr) = (std::mem::take(&mut self.said), String::new());
        if let Some(pipe) = &mut self.child.stdout {
            pipe.read_to_string(&mut stdout).expect("text");
        }
        if let Some(pipe) = &mut self.child.stderr {
            pipe.read_to_string(&mut stderr).expect("text");
        }
        (stdout, stderr)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs `uroce-perf` to its end.
pub(crate) fn run(args: &[&str]) -> Output {
    Run::start(args).finish()
}

/// A folder for a memif socket, removed when dropped.
pub(crate) struct Memif {
    folder: PathBuf,
    port: String,
}

impl Memif {
    pub(crate) fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("uroce-{name}-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a new folder");
        // The port is free, and the system does not hand it out again for a while.
        let probe = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = probe.local_addr().expect("it is bound").port().to_string();
        Self { folder, port }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the TCP port of the exchange, as text.
    pub(crate) fn port(&self) -> &str {
        &self.port
    }

    /// Starts one end of a test: the server without a host, the client with it.
    pub(crate) fn start(&self, role: &str, args: &[&str]) -> Run {
        let mut all = args.to_vec();
        all.extend(["-p", &self.port]);
        if role == "client" {
            all.push("localhost");
        }
        self.start_alone(role, &all)
    }

    /// Starts one end of a test on the default device, in the local fabric of this folder.
    pub(crate) fn start_default(&self, role: &str, args: &[&str]) -> Run {
        let mut command = Command::new(env!("CARGO_BIN_EXE_uroce-perf"));
        command.args(args).args(["-p", &self.port]).env("XDG_RUNTIME_DIR", &self.folder);
        if role == "client" {
            command.arg("localhost");
        }
        Run::of(&mut command)
    }

    /// Starts one end of a test that needs no exchange.
    pub(crate) fn start_alone(&self, role: &str, args: &[&str]) -> Run {
        let socket = self.folder.join("memif.sock");
        let vdev = format!(
            "net_memif0,role={role},socket-abstract=no,socket={},bsize=4352,rsize=10",
            socket.display()
        );
        let mut all = args.to_vec();
        all.extend(["--vdev", &vdev]);
        Run::start(&all)
    }
}

impl Drop for Memif {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
