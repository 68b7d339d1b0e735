//! DPDK's telemetry: the commands of uroce, asked by DPDK's protocol and by DPDK's own program.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};
use serde_json::{Value, json};
use uroce::Config;
use uroce::cm::Listener;

use crate::lab::{Lab, Side, answer, config, eventually, find_socket, text, uroce};

/// Name of the socket in the directory of EAL's files.
const SOCKET: &str = "dpdk_telemetry.v2";
/// Environment variable that names the directory above `dpdk/PREFIX`, to EAL and to DPDK's program.
const RUNTIME_DIRECTORY: &str = "RUNTIME_DIRECTORY";

/// Two devices in a process with a telemetry socket of its own.
struct Told {
    /// `None` while both are closed.
    lab: Option<Lab>,
    config: Config,
    prefix: String,
}

impl Told {
    fn new() -> Told {
        Told::of(|_| {})
    }

    fn of(change: impl Fn(&mut Config)) -> Told {
        let prefix = format!("uroce-telemetry-{}", std::process::id());
        let mut config = config();
        let own = ["--telemetry", "--no-shconf", "--file-prefix", &prefix];
        config.eal.args.extend(own.map(str::to_owned));
        change(&mut config);
        Told { lab: Some(Lab::of(&config)), config, prefix }
    }

    /// Opens the devices again.
    fn reopen(&mut self) {
        self.lab = Some(Lab::of(&self.config));
    }

    fn lab(&mut self) -> &mut Lab {
        self.lab.as_mut().expect("open devices")
    }

    /// Returns the directory of EAL's files.
    fn directory(&self) -> PathBuf {
        let of = |name| std::env::var_os(name).map(PathBuf::from);
        let base =
            of(RUNTIME_DIRECTORY).unwrap_or_else(|| match rustix::process::geteuid().is_root() {
                true => PathBuf::from("/var/run"),
                false => of("XDG_RUNTIME_DIR").unwrap_or_else(|| "/tmp".into()),
            });
        base.join("dpdk").join(&self.prefix)
    }

    fn connect(&self) -> OwnedFd {
        greeted(&self.directory().join(SOCKET))
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.directory());
    }
}

/// Connects to a telemetry socket and reads the greeting.
fn greeted(path: &Path) -> OwnedFd {
    let socket = connected(path);
    assert!(message(&socket).expect("a greeting")["max_output_len"].is_number());
    socket
}

fn connected(path: &Path) -> OwnedFd {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None).expect("a socket");
    connect(&socket, &SocketAddrUnix::new(path).expect("a path")).expect("EAL listens");
    socket
}

/// Reads a message; `None` at the end.
fn message(socket: &OwnedFd) -> Option<Value> {
    let mut bytes = vec![0; 1 << 16];
    let (len, _) = recv(socket, &mut bytes, RecvFlags::empty()).ok()?;
    (len > 0).then(|| {
        let text = String::from_utf8_lossy(&bytes[..len]);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    })
}

/// Returns the answer to a command with its parameters.
fn ask(socket: &OwnedFd, line: &str) -> Value {
    send(socket, line.as_bytes(), SendFlags::empty()).expect("sent");
    let answer = message(socket).expect("an answer");
    let command = line.split(',').next().expect("a command");
    answer.get(command).unwrap_or_else(|| panic!("{line}: {answer}")).clone()
}

#[test]
fn dpdks_telemetry_has_the_answers_of_the_commands_as_flat_dictionaries() {
    let mut told = Told::new();
    told.lab().write(3);
    let socket = told.connect();
    let commands = ask(&socket, "/");
    let commands: Vec<_> = commands.as_array().expect("a list").iter().collect();
    let own = commands.iter().filter_map(|name| name.as_str()?.strip_prefix("/uroce/"));
    let expected = [
        "ah/count",
        "cm/info",
        "cm/list",
        "counters",
        "cq/count",
        "device",
        "errors",
        "info",
        "lcore/list",
        "mr/count",
        "mw/count",
        "pd/count",
        "port/info",
        "port/list",
        "port/stats",
        "qp/info",
        "qp/list",
        "qp/stats",
        "runtime",
        "srq/count",
    ];
    assert_eq!(own.collect::<Vec<_>>(), expected, "{commands:?}");

    let info = ask(&socket, "/uroce/info");
    assert_eq!((&info["pid"], &info["devices"]), (&std::process::id().into(), &2.into()));
    assert_eq!(ask(&socket, "/uroce/device"), json!(["left", "right"]));
    let device = ask(&socket, "/uroce/device,left");
    assert_eq!((&device["qps_count"], &device["ports"]), (&1.into(), &1.into()), "{device}");
    assert_eq!(ask(&socket, "/uroce/port/list"), json!([0, 1]));
    let port = ask(&socket, "/uroce/port/info,1");
    assert_eq!((&port["device"], &port["number"]), (&"right".into(), &1.into()), "{port}");
    assert!(ask(&socket, "/uroce/port/stats,0")["tx_packets"].as_u64() >= Some(48));

    let lab = told.lab();
    let [left, right] = [&lab.left.qp, &lab.right.qp].map(|qp| qp.qpn().value());
    assert_eq!(ask(&socket, "/uroce/qp/list"), json!([left, right]));
    assert_eq!(ask(&socket, "/uroce/qp/list,1"), json!([right]));
    assert_eq!(ask(&socket, "/uroce/qp/list,right,0"), json!([right]));
    let qp = ask(&socket, &format!("/uroce/qp/info,left,{left}"));
    assert_eq!((&qp["dest_qpn"], &qp["device"]), (&right.into(), &"left".into()), "{qp}");
    let stats = ask(&socket, &format!("/uroce/qp/stats,right,{right:#x}"));
    assert!(stats["rx_bytes"].as_u64() > Some(3 << 16), "{stats}");
    assert_eq!(stats, ask(&socket, &format!("/uroce/qp/stats,right,{right}")));
    for (command, count) in [("pd", 1), ("cq", 1), ("mr", 1), ("mw", 0), ("srq", 0), ("ah", 0)] {
        let command = format!("/uroce/{command}/count");
        assert_eq!(ask(&socket, &command), json!({ "left": count, "right": count }));
        assert_eq!(ask(&socket, &format!("{command},right")), json!({ "right": count }));
    }
    assert_eq!(ask(&socket, "/uroce/cm/list"), json!([]));
    assert_eq!(ask(&socket, "/uroce/errors")["rx_unknown_qpn"], 0);
}

#[test]
fn counters_and_cycles_are_told_of_all_devices_and_of_one() {
    let mut told = Told::new();
    told.lab().write(3);
    let socket = told.connect();
    let counters = ask(&socket, "/uroce/counters,left");
    let own = told.lab().left.context.counters().expect("counters");
    assert_eq!(counters.as_object().expect("a dictionary").len(), own.len());
    assert!(counters["rdma_tx_packets"].as_u64() >= Some(48));
    let all = ask(&socket, "/uroce/counters");
    assert!(all["rdma_rx_packets"].as_u64() > counters["rdma_rx_packets"].as_u64(), "{all}");

    assert_eq!(ask(&socket, "/uroce/lcore/list"), json!([0, 1]));
    std::thread::sleep(Duration::from_millis(200));
    let runtime = ask(&socket, "/uroce/runtime,1");
    assert_eq!(runtime["device"], "right");
    assert!(runtime["turns"].as_u64() > Some(0), "{runtime}");
    assert!(runtime["receive_cycles"].is_number(), "{runtime}");
}

#[test]
fn both_sockets_of_a_process_tell_the_same_values() {
    let mut told = Told::new();
    told.lab().write(1);
    let listener = Listener::bind(&told.lab().left.context, "[::]:7471".parse().unwrap(), 3);
    let _listener = listener.expect("a free port");
    let socket = told.connect();
    let qpn = told.lab().left.qp.qpn().value();
    let same = |command: &str, line: &str, variant: &str| {
        let typed = serde_json::to_value(answer(line)).expect("JSON");
        let row = &typed[variant][0];
        let told = ask(&socket, command);
        let told = told.as_object().expect("a dictionary");
        let plain = row.as_object().expect("an object").iter();
        for (name, value) in plain.filter(|(_, value)| value.is_number() || value.is_string()) {
            assert_eq!(told.get(name), Some(value), "{command}: {name}");
        }
        row.clone()
    };
    same(&format!("/uroce/qp/info,left,{qpn}"), &format!("show qp {qpn}"), "qp_detail");
    same("/uroce/port/info,0", "show port info 0", "port_info");
    same("/uroce/device,left", "show device", "device");
    let id = ask(&socket, "/uroce/cm/list")[0].as_u64().expect("an id");
    let row = same(&format!("/uroce/cm/info,{id}"), &format!("show cm {id}"), "cm");
    assert_eq!(row["state"], "LISTEN", "{row}");
}

#[test]
fn wrong_questions_cost_only_their_own_answer() {
    let told = Told::new();
    let socket = told.connect();
    let long = format!("/uroce/qp/info,{}", "9".repeat(5000));
    let wrong = [
        "/uroce/qp/info",
        "/uroce/qp/info,",
        "/uroce/qp/info,1",
        "/uroce/qp/info,-1",
        "/uroce/qp/info,4294967296",
        "/uroce/qp/info,all",
        "/uroce/qp/info,left,",
        "/uroce/qp/info,other,1",
        "/uroce/qp/info,left,1,2",
        "/uroce/qp/list,x",
        "/uroce/port/info,x",
        "/uroce/port/info,7",
        "/uroce/port/stats",
        "/uroce/device,x",
        "/uroce/device,%s%n",
        "/uroce/device,\u{1b}[2J\"",
        "/uroce/info,1",
        "/uroce/runtime,2",
        "/uroce/cm/info,1",
        "/uroce/counters,x",
        "/uroce/nothing",
        "/uroce/",
        &long,
    ];
    for wrong in wrong {
        assert!(ask(&socket, wrong).is_null(), "{wrong}");
    }
    for bytes in [&b"/uroce/qp/info,\xff\xfe"[..], b"/uroce/device,a\0b"] {
        send(&socket, bytes, SendFlags::empty()).expect("sent");
        let answer = message(&socket).expect("an answer");
        assert!(answer.as_object().expect("an object").values().all(Value::is_null), "{answer}");
    }
    assert_eq!(ask(&socket, "/uroce/qp/list,4294967295"), json!([]));
    assert_eq!(ask(&socket, "/uroce/info")["devices"], 2);
}

/// More clients than DPDK serves ask while devices close and open. Clients keep their connections:
/// DPDK 22.11 divides messages with strtok, of which the state may be in the stack of the thread of
/// a client that has gone.
#[test]
fn devices_close_and_open_under_many_clients() {
    let mut told = Told::new();
    let path = told.directory().join(SOCKET);
    let (stop, answers) = (AtomicBool::new(false), AtomicUsize::new(0));
    let client = |lines: &[&str]| {
        let socket = connected(&path);
        // DPDK closes the connections of clients beyond its limit.
        if message(&socket).is_none() {
            return;
        }
        for line in lines.iter().cycle().take_while(|_| !stop.load(Ordering::Relaxed)) {
            send(&socket, line.as_bytes(), SendFlags::NOSIGNAL).expect("sent");
            let answer = message(&socket).expect("an answer");
            assert!(answer.is_object(), "{line}: {answer}");
            answers.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        for at in 0..16 {
            let lines: &[&str] = match at % 3 {
                0 => &["/uroce/counters", "/uroce/qp/list", "/uroce/device,left"],
                1 => &["/uroce/info", "/uroce/runtime,0", "/uroce/qp/stats,left,2"],
                _ => &["/uroce/errors", "/uroce/counters,right", "/uroce/cm/list"],
            };
            let client = &client;
            scope.spawn(move || client(lines));
        }
        let more_answers = || {
            let before = answers.load(Ordering::Relaxed);
            eventually("answers", || answers.load(Ordering::Relaxed) > before + 20);
        };
        for _ in 0..5 {
            more_answers();
            told.lab = None;
            more_answers();
            told.reopen();
        }
        stop.store(true, Ordering::Relaxed);
    });
    let socket = told.connect();
    assert_eq!(ask(&socket, "/uroce/device"), json!(["left", "right"]));
    let Side { context, .. } = told.lab.take().expect("a lab").right;
    assert_eq!(ask(&socket, "/uroce/device"), json!(["right"]));
    assert!(ask(&socket, "/uroce/device,left").is_null());
    drop(context);
    assert_eq!(ask(&socket, "/uroce/device"), json!([]));
    assert_eq!(ask(&socket, "/uroce/counters"), json!({}));
    assert_eq!(ask(&socket, "/uroce/info")["devices"], 0);
}

#[test]
fn clients_that_go_without_reading_raise_no_signal() {
    let told = Told::new();
    // Fewer than DPDK serves at a time.
    for _ in 0..5 {
        let socket = told.connect();
        send(&socket, b"/uroce/counters", SendFlags::empty()).expect("sent");
    }
    assert_eq!(ask(&told.connect(), "/uroce/info")["devices"], 2);
    let tasks = std::fs::read_dir("/proc/self/task").expect("threads").flatten();
    let status = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("status"));
    let statuses: Vec<String> = tasks.filter_map(|task| status(task).ok()).collect();
    let listener = statuses.iter().find(|status| status.contains("Name:\ttelemetry-v2"));
    let listener = listener.expect("DPDK's thread");
    let blocked = listener.lines().find_map(|line| line.strip_prefix("SigBlk:\t"));
    let blocked = u64::from_str_radix(blocked.expect("a mask"), 16).expect("a number");
    let pipe = 1 << (rustix::process::Signal::PIPE.as_raw() - 1);
    assert_ne!(blocked & pipe, 0, "threads of clients have this mask: {blocked:x}");
}

/// A process of `uroce` with a device of its own, and the directory of its EAL's files.
struct Own {
    child: Child,
    runtime: PathBuf,
}

impl Own {
    fn start(runtime: &Path, eal: &[&str]) -> Own {
        let arguments = [eal, &["--vdev=net_null0,no-rx=1", "--", "-i"]].concat();
        let mut command = uroce(&arguments);
        command.env(RUNTIME_DIRECTORY, runtime).env_remove("UROCE_CONTROL");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().expect("the program runs");
        Own { child, runtime: runtime.to_owned() }
    }

    fn opened(mut self) -> Own {
        eventually("the device", || {
            assert!(self.child.try_wait().expect("a state").is_none(), "it has ended");
            find_socket(self.child.id()).is_some()
        });
        self
    }

    /// Returns the names of EAL's files, of all its processes.
    fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.runtime.join("dpdk/uroce")).expect("a directory");
        let mut names: Vec<_> =
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into()).collect();
        names.sort();
        names
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // The end of its input ends it.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// A directory that is removed with all in it.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Directory {
        let path = std::env::temp_dir().join(format!("uroce-told-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn there_is_no_telemetry_socket_unless_it_is_asked_for() {
    let directory = Directory::new();
    for eal in [&[][..], &["--no-telemetry"]] {
        let own = Own::start(&directory.0, eal).opened();
        assert_eq!(own.files(), [""; 0], "{eal:?}");
    }
}

#[test]
fn processes_with_one_prefix_have_numbered_sockets() {
    let directory = Directory::new();
    let open = || Own::start(&directory.0, &["--telemetry"]).opened();
    let (first, second) = (open(), open());
    let names = [SOCKET.to_owned(), format!("{SOCKET}:1")];
    assert_eq!(first.files(), names);
    for (at, own) in [&first, &second].into_iter().enumerate() {
        let socket = greeted(&directory.0.join("dpdk/uroce").join(&names[at]));
        assert_eq!(ask(&socket, "/uroce/info")["pid"], own.child.id());
        let (pid, instance) = (own.child.id().to_string(), at.to_string());
        let arguments = ["-f", "uroce", "-i", &instance];
        let Some(output) = dpdks_program(&arguments, Some(&directory.0), "/uroce/info\nquit\n")
        else {
            continue;
        };
        let said = text(&output.stdout);
        assert!(said.contains(&pid) && said.contains("uroce"), "{said}");
    }
}

#[test]
fn without_the_control_socket_dpdk_has_its_own_commands_only() {
    let told = Told::of(|config| {
        config.devices.iter_mut().for_each(|device| device.control = false);
    });
    let socket = told.connect();
    let commands = ask(&socket, "/").to_string();
    assert!(commands.contains("/ethdev/list") && !commands.contains("/uroce/"), "{commands}");
    assert!(ask(&socket, "/uroce/info").is_null());
}

#[test]
fn a_socket_that_cannot_be_made_is_an_error_only_if_it_is_asked_for() {
    let directory = Directory::new();
    let long = directory.0.join("d".repeat(90));
    std::fs::create_dir(&long).expect("a directory");
    let _own = Own::start(&long, &[]).opened();
    let mut told = Own::start(&long, &["--telemetry"]);
    let status = told.child.wait().expect("an end");
    let mut errors = String::new();
    told.child.stderr.take().expect("a pipe").read_to_string(&mut errors).expect("text");
    assert_eq!(status.code(), Some(1), "{errors}");
    assert!(errors.contains("path too long") && errors.contains("RUNTIME_DIRECTORY"), "{errors}");
}

#[test]
fn dpdks_own_program_reads_it() {
    let told = Told::new();
    let lines = "/uroce/info\n/uroce/port/list\n/help,/uroce/errors\nquit\n";
    let Some(output) = dpdks_program(&["-f", &told.prefix], None, lines) else { return };
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}{errors}");
    let pid = std::process::id().to_string();
    for part in ["\"/uroce/info\"", &pid, "{\"/uroce/port/list\": [0, 1]}", "frames by reason"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

/// Runs `dpdk-telemetry.py` with this input, if it is installed.
fn dpdks_program(arguments: &[&str], runtime: Option<&Path>, input: &str) -> Option<Output> {
    let mut command = Command::new("dpdk-telemetry.py");
    command.args(arguments).envs(runtime.map(|path| (RUNTIME_DIRECTORY, path)));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            eprintln!("SKIP: dpdk-telemetry.py does not start: {error} (Debian: dpdk-dev)");
            return None;
        }
    };
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
    Some(child.wait_with_output().expect("its end"))
}
