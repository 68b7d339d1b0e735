//! The socket's life: made with the first device, gone with the last, swept after a kill.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};

use uroce::{Config, Context};

use crate::lab::{Lab, config, eventually, find_socket, socket, text, uroce};

/// A child that opens a device and waits; see [`a_child_with_a_device`].
struct Process(Child);

impl Process {
    fn start(control: Option<&str>) -> Process {
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command.args(["--exact", "life::a_child_with_a_device", "--ignored", "--nocapture"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        command.env_remove("UROCE_CONTROL");
        command.envs(control.map(|value| ("UROCE_CONTROL", value)));
        let mut child = command.spawn().expect("a child");
        let lines = BufReader::new(child.stdout.as_mut().expect("a pipe")).lines();
        let open = lines.map_while(Result::ok).find(|line| line.contains("the device is open"));
        assert!(open.is_some());
        Process(child)
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn kill(&mut self) {
        // Fails for a process that has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

#[test]
#[ignore = "started by the other tests"]
fn a_child_with_a_device() {
    let _context = Context::open(&config(), "left").expect("a device");
    println!("the device is open");
    std::io::stdout().flush().unwrap();
    let _ = std::io::stdin().read_line(&mut String::new());
}

#[test]
fn the_socket_is_private_and_goes_with_the_last_device() {
    let Lab { left, right } = Lab::new();
    let path = socket();
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    drop(left);
    assert!(path.exists());
    let process = uroce(&["-s", path.to_str().unwrap(), "show", "process"]).output().unwrap();
    let said = text(&process.stdout);
    assert!(said.contains("right") && !said.contains("left"), "{said}");
    drop(right);
    assert!(!path.exists());
    eventually("the end of the thread", || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
        tasks.filter_map(|task| name(task).ok()).all(|name| name.trim() != "uroce-socket")
    });
    let again = Lab::new();
    assert!(path.exists());
    drop(again);
}

#[test]
fn a_device_that_is_shut_down_is_not_served() {
    let lab = Lab::new();
    let path = socket();
    lab.left.context.shut_down(std::time::Duration::ZERO);
    lab.right.context.shut_down(std::time::Duration::ZERO);
    assert!(!path.exists());
}

#[test]
fn ps_lists_processes_and_what_a_killed_one_left_is_swept() {
    let mut child = Process::start(None);
    let pid = child.pid();
    let list = || text(&uroce(&["ps"]).output().unwrap().stdout);
    let line = list().lines().find(|line| line.starts_with(&format!("{pid} "))).map(str::to_owned);
    let line = line.expect("a line of the child");
    assert!(
        line.contains("left") && line.contains("192.0.2.1") && line.ends_with("running"),
        "{line}"
    );
    let json = uroce(&["-j", "ps"]).output().unwrap();
    let all: Vec<uroce_command::answer::Process> = serde_json::from_slice(&json.stdout).unwrap();
    let found = all.iter().find(|process| process.pid == pid).expect("the child");
    assert_eq!((found.devices[0].name.as_str(), found.devices[0].qps), ("left", 0));
    child.kill();
    assert!(find_socket(pid).is_some(), "a killed process leaves its socket");
    assert!(!list().contains(&format!("{pid} ")));
    let gone = uroce(&["-s", &pid.to_string(), "show", "cq"]).output().unwrap();
    assert_eq!(gone.status.code(), Some(1));
    // Another test's process may have removed the socket by now.
    let said = text(&gone.stderr);
    assert!(
        said.contains("its process has ended") || said.contains("there is no process"),
        "{said}"
    );
    let _next = Process::start(None);
    assert!(find_socket(pid).is_none(), "the next process has removed it");
}

#[test]
fn the_environment_or_the_configuration_turns_it_off() {
    let off = Process::start(Some("off"));
    assert!(find_socket(off.pid()).is_none());
    let asked = uroce(&["-s", &off.pid().to_string(), "show", "cq"]).output().unwrap();
    assert_eq!(asked.status.code(), Some(1));
    assert!(text(&asked.stderr).contains("UROCE_CONTROL=off"), "{}", text(&asked.stderr));
    let text = "[[device]]\nname = \"d\"\ncontrol = false\n[[device.port]]\n\
                ethdev = { ring = \"r\" }\nip = [\"192.0.2.1/24\"]";
    let config = Config::from_toml(text).unwrap();
    let _context = Context::open(&config, "d").unwrap();
    assert!(find_socket(std::process::id()).is_none());
}

#[test]
fn a_process_that_is_not_there_or_not_ours_is_named() {
    let ask = |target: &str| uroce(&["-s", target, "show", "cq"]).output().unwrap();
    let said = |target: &str| text(&ask(target).stderr);
    assert!(said("4194305").contains("there is no process 4194305"));
    assert!(said("1234x").contains("neither a process number nor a path"));
    assert!(said("/nonexistent/socket").contains("/nonexistent/socket: No such file"));
    let own = said(&std::process::id().to_string());
    assert!(own.contains("has no control socket"), "{own}");
    assert_eq!(ask("4194305").status.code(), Some(1));
}

#[test]
#[ignore = "needs root, to become another user"]
fn another_users_process_is_refused() {
    let _lab = Lab::new();
    let pid = std::process::id().to_string();
    let path = socket();
    let program = format!("/tmp/uroce-copy-{pid}");
    std::fs::copy(env!("CARGO_BIN_EXE_uroce"), &program).unwrap();
    let ask = |target: &str| {
        let arguments =
            ["--reuid=65534", "--regid=65534", "--clear-groups", &program, "-s", target];
        Command::new("setpriv").args(arguments).args(["show", "cq"]).output().unwrap()
    };
    for target in [pid.as_str(), path.to_str().unwrap()] {
        let output = ask(target);
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains("permission denied"), "{}", text(&output.stderr));
    }
    std::fs::remove_file(&program).unwrap();
}

#[test]
#[ignore = "needs root, for a PID namespace"]
fn a_client_in_another_pid_namespace_is_answered() {
    let _lab = Lab::new();
    let path = socket();
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", env!("CARGO_BIN_EXE_uroce"), "-s", path.to_str().unwrap()]);
    let output = command.args(["show", "process"]).output().unwrap();
    assert!(text(&output.stdout).contains("left running"), "{}", text(&output.stderr));
}
