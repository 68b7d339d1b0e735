//! Several processes that start engines at once: their identities, and what remains when they end.
//!
//! Each is a Python program that calls the library and is started by `uroce-run`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use uroce::config::PortConfig;
use uroce::local::Reservation;

/// The first lines of each program: `start` starts the engine, `gid` asks for an address.
const PRELUDE: &str = r#"
import ctypes, os, sys, time
v, c = ctypes.CDLL("libibverbs.so.1", use_errno=True), ctypes.CDLL(None)
p = ctypes.c_void_p
v.ibv_get_device_list.restype = ctypes.POINTER(p)
for f, arguments in [("open_device", [p]), ("alloc_pd", [p]), ("reg_mr", [p, p, ctypes.c_size_t, ctypes.c_int])]:
    f = getattr(v, "ibv_" + f); f.restype = p; f.argtypes = arguments
v.ibv_query_gid.argtypes = [p, ctypes.c_uint8, ctypes.c_int, p]
context = v.ibv_open_device(v.ibv_get_device_list(None)[0])
page = ctypes.create_string_buffer(4096)
def say(*words): print(*words, flush=True)
def gid():
    raw = ctypes.create_string_buffer(16)
    assert v.ibv_query_gid(context, 1, 0, raw) == 0
    return ".".join(map(str, raw.raw[12:]))
def start():
    pd = v.ibv_alloc_pd(context)
    mr = v.ibv_reg_mr(pd, page, 4096, 1) if pd else None
    return "started" if mr else os.strerror(ctypes.get_errno())
def wait(): sys.stdin.readline()
"#;

/// The first lines of programs that connect: an id, and an address with a port.
const CONNECTS: &str = r#"
import struct
m = ctypes.CDLL('librdmacm.so.1', use_errno=True)
m.rdma_create_event_channel.restype = p
channel, cm = p(m.rdma_create_event_channel()), p()
assert m.rdma_create_id(channel, ctypes.byref(cm), None, 0x106) == 0
address = struct.pack('=H', 2) + bytes([0x1d, 0x2f, 192, 0, 2, 1]) + bytes(8)
"#;

/// A run directory for one test. It is removed when this is dropped.
struct Runtime(PathBuf);

impl Runtime {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(format!("/tmp/uroce-p-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn command(&self, before: &[&str], script: &str) -> Command {
        let launcher = env!("CARGO_BIN_EXE_uroce-run");
        let all = [before, &[launcher, "python3", "-c"]].concat();
        let mut command = Command::new(all[0]);
        command.args(&all[1..]).arg(format!("{PRELUDE}{script}"));
        command.env("XDG_RUNTIME_DIR", &self.0).env("LC_ALL", "C").stdin(Stdio::piped());
        for name in ["UROCE_CONFIG", "UROCE_NETDEV", "LD_PRELOAD"] {
            command.env_remove(name);
        }
        command
    }

    fn run(&self, script: &str) -> Output {
        self.command(&[], script).output().unwrap()
    }

    fn prints(&self, script: &str) -> String {
        let output = self.run(script);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Starts a program and waits for its first line.
    fn start(&self, script: &str) -> Running {
        Running::of(self.command(&[], script))
    }

    /// A command of which two can run at once: the local fabric has two members to choose from.
    fn one_of_two(&self, script: &str) -> Command {
        let config = |member: u8| {
            let path = self.0.join(format!("{member}.toml"));
            let fabric = self.0.join("uroce/fabric");
            let port =
                format!("ethdev = {{ local = \"{}\" }}\nmember = {member}", fabric.display());
            let device = "[[device]]\nname = \"uroce0\"\n[[device.port]]\n";
            std::fs::write(&path, format!("{device}{port}\n")).unwrap();
            path
        };
        let mut command = self.command(&[], script);
        command.env("UROCE_CONFIG", std::env::join_paths([config(1), config(2)]).unwrap());
        command
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A program that waits for a line of input. It is killed when this is dropped.
struct Running {
    child: Child,
    lines: BufReader<ChildStdout>,
    first: String,
}

impl Running {
    fn of(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut first = String::new();
        lines.read_line(&mut first).unwrap();
        Self { child, lines, first }
    }

    fn rest(mut self) -> String {
        drop(self.child.stdin.take());
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success());
        rest
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both calls fail for a program that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn two_processes_have_two_identities_and_a_third_gets_a_list_of_the_holders() {
    let runtime = Runtime::new("three");
    let script = "say(gid(), start()); wait()";
    let start = || Running::of(runtime.one_of_two(script));
    let (one, two) = (start(), start());
    assert_eq!((&*one.first, &*two.first), ("192.0.2.1 started\n", "192.0.2.2 started\n"));

    let third = runtime.one_of_two("say(start(), start())").output().unwrap();
    let said = String::from_utf8(third.stderr).unwrap();
    let busy = "Device or resource busy";
    assert_eq!(String::from_utf8(third.stdout).unwrap(), format!("{busy} {busy}\n"));
    for holder in [&one, &two] {
        assert!(said.contains(&format!("python3 (process {})", holder.child.id())), "{said}");
    }
    assert_eq!(said.matches("in use").count(), 1, "{said}");
    // A program that only queries still sees a device.
    let query = runtime.one_of_two("say(gid())").output().unwrap();
    assert_eq!(query.stdout, b"192.0.2.1\n");

    drop(one);
    assert_eq!(start().first, "192.0.2.1 started\n");
    assert_eq!(two.rest(), "");
}

#[test]
fn every_process_of_a_machine_has_an_address_of_its_own() {
    let runtime = Runtime::new("many");
    let running: Vec<_> = (0..5).map(|_| runtime.start("say(gid(), start()); wait()")).collect();
    for (at, process) in (1..).zip(&running) {
        assert_eq!(process.first, format!("192.0.2.{at} started\n"));
    }
    drop(running);
    assert_eq!(runtime.prints("say(gid(), start())"), "192.0.2.1 started\n");
}

/// The numbers of programs in C and in Rust are one set.
#[test]
fn a_member_in_rust_and_programs_in_c_share_the_numbers_and_the_65th_is_told_the_members() {
    let runtime = Runtime::new("full");
    let fabric = runtime.0.join("uroce/fabric");
    let take = || Reservation::take(&fabric, None, None).unwrap();
    let first = take();
    let second = runtime.start("say(gid(), start()); wait()");
    assert_eq!(second.first, "192.0.2.2 started\n");
    let mut others: Vec<_> = (3..=64).map(|_| take()).collect();
    let numbers: Vec<_> = others.iter().map(Reservation::number).collect();
    assert_eq!((first.number(), numbers), (1, (3..=64).collect()));

    let ask = "say(v.ibv_query_gid(context, 1, 0, ctypes.create_string_buffer(16)) != 0)";
    let late = runtime.run(&format!("{ask}\nsay(start(), start())"));
    let said = String::from_utf8(late.stderr).unwrap();
    let busy = "Device or resource busy";
    assert_eq!(String::from_utf8(late.stdout).unwrap(), format!("True\n{busy} {busy}\n"), "{said}");
    let own = format!("(process {})", std::process::id());
    assert_eq!((said.matches("in use").count(), said.matches(&own).count()), (1, 63), "{said}");
    let other = format!("192.0.2.2, 2001:db8::2: python3 (process {})", second.child.id());
    assert!(said.contains(&other), "{said}");

    drop(others.remove(20));
    assert_eq!(runtime.prints("say(gid(), start(), gid())"), "192.0.2.23 started 192.0.2.23\n");
    assert!(!runtime.0.join("uroce/claims").exists(), "the fabric's locks are its own");
}

#[test]
fn a_daemon_has_the_number_that_its_parent_has_told() {
    let runtime = Runtime::new("told");
    let script = "
end, other = os.pipe()
parent = os.fork()
if parent:
    os.close(other); say(os.read(end, 100).decode()); sys.exit(0)
before = gid()
assert c.daemon(0, 0) == 0
os.write(other, f'{before} {start()} {gid()}'.encode())
";
    assert_eq!(runtime.prints(script), "192.0.2.1 started 192.0.2.1\n");
}

#[test]
fn a_program_that_closes_all_files_after_it_has_told_its_address_keeps_the_address() {
    let runtime = Runtime::new("told-closed");
    let script = "
say(gid())
os.closerange(3, 200)
own = [os.open(os.environ['XDG_RUNTIME_DIR'] + '/own', os.O_RDWR | os.O_CREAT) for _ in range(100)]
say(start(), gid())
for file in own: os.fstat(file)
os._exit(0)
";
    assert_eq!(runtime.prints(script), "192.0.2.1\nstarted 192.0.2.1\n");
    assert_eq!(std::fs::read(runtime.0.join("own")).unwrap(), b"");
}

/// Both ends of a link have one address, for programs that connect to their own address.
#[test]
fn twins_bind_the_address_that_they_share_and_a_third_gets_a_list_of_the_holders() {
    let runtime = Runtime::new("twins");
    let macs = ["02:00:00:00:00:01", "02:00:00:00:00:02"];
    let mut configs = Vec::new();
    for (role, mac, twin) in [("server", macs[0], macs[1]), ("client", macs[1], macs[0])] {
        let (run, path) = (runtime.0.display(), runtime.0.join(format!("{role}.toml")));
        let vdev =
            format!("net_memif0,role={role},socket={run}/m.sock,socket-abstract=no,mac={mac}");
        let port = format!("ip = [\"192.0.2.1/24\"]\nmac = \"{mac}\"\ntwin = \"{twin}\"\n");
        let device = "[[device]]\nname = \"uroce0\"\n[[device.port]]\n";
        let text = format!("{device}ethdev = {{ vdev = \"{vdev}\" }}\n{port}");
        std::fs::write(&path, text).unwrap();
        configs.push(path);
    }
    let script = "
bound = m.rdma_bind_addr(cm, ctypes.create_string_buffer(address))
say('bound' if bound == 0 else os.strerror(ctypes.get_errno()))
wait()
";
    let start = || {
        let mut command = runtime.command(&[], &format!("{CONNECTS}{script}"));
        command.env("UROCE_CONFIG", std::env::join_paths(&configs).unwrap());
        Running::of(command)
    };
    let (one, two) = (start(), start());
    assert_eq!((&*one.first, &*two.first), ("bound\n", "bound\n"));
    assert_eq!(start().first, "Address already in use\n");
}

#[test]
fn a_start_waits_for_a_process_that_is_about_to_end() {
    let runtime = Runtime::new("dying");
    let start = |script| Running::of(runtime.one_of_two(script));
    let (one, two) = (start("say(start()); wait()"), start("say(start()); wait()"));
    let third = start("say(gid()); say(start())");
    assert_eq!(third.first, "192.0.2.1\n");
    std::thread::sleep(Duration::from_millis(200));
    drop(one);
    assert_eq!(third.rest(), "started\n");
    drop(two);
}

#[test]
fn the_next_process_starts_after_any_end_of_the_last_one() {
    let runtime = Runtime::new("ends");
    let exits = [
        "sys.exit(0)",
        "os._exit(0)",
        "os.kill(os.getpid(), 9)",
        "import threading; threading.Thread(target=c.exit, args=(0,)).start(); time.sleep(60)",
        "handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda number: c.exit(0)); \
         c.signal(10, handler); c.kill(os.getpid(), 10); time.sleep(60)",
    ];
    for exit in exits {
        let begin = Instant::now();
        let output = runtime.run(&format!("say(gid(), start()); {exit}"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.stdout, b"192.0.2.1 started\n", "{exit}: {said}");
        assert!(begin.elapsed() < Duration::from_secs(30), "{exit}");
    }
    // A process that ends in order removes its socket.
    runtime.prints("start()");
    let left = std::fs::read_dir(runtime.0.join("uroce/fabric")).unwrap();
    assert!(left.flatten().all(|entry| entry.path().extension().is_none()));
}

/// `rping` ends like this: its event thread may ask for the next event only after `main` has
/// destroyed the channel and returned, and exits with an error if there is none.
#[test]
fn waiting_for_an_event_during_the_exit_gives_no_error() {
    let runtime = Runtime::new("asks");
    let script = "
import threading
m = ctypes.CDLL('librdmacm.so.1')
m.rdma_create_event_channel.restype = p
channel = p(m.rdma_create_event_channel())
say(start())
m.rdma_destroy_event_channel(channel)
exits = threading.Event()
def events():
    exits.wait()
    time.sleep(0.005)
    m.rdma_get_cm_event(channel, ctypes.byref(p()))
    os._exit(255)
threading.Thread(target=events, daemon=True).start()
exits.set()
c.exit(0)
";
    assert_eq!(runtime.prints(script), "started\n");
}

/// With a kernel device the kernel sends the last messages of a process that has ended.
#[test]
fn the_last_message_of_a_process_arrives_even_if_it_exits_at_once() {
    let runtime = Runtime::new("last");
    let event = "
param = struct.pack('=Q7BxI', 0, 0, 1, 1, 0, 7, 7, 0, 77) + bytes(4)
def event():
    e = ctypes.POINTER(p)()
    assert m.rdma_get_cm_event(channel, ctypes.byref(e)) == 0
    return p(e[0]), ctypes.cast(e, ctypes.POINTER(ctypes.c_int))[4]
";
    // Both processes share one CPU, so that the sender has to wait for it.
    let run = |script: &str| {
        let mut command =
            runtime.command(&["taskset", "-c", "0"], &format!("{CONNECTS}{event}{script}"));
        command.stderr(Stdio::inherit());
        Running::of(command)
    };
    for _ in 0..8 {
        let server = run("
assert m.rdma_bind_addr(cm, address) == 0 and m.rdma_listen(cm, 4) == 0
say('listens')
asks, what = event()
m.rdma_reject(asks, None, 0)
os._exit(0)
");
        assert_eq!(server.first, "listens\n");
        let client = run("
assert m.rdma_resolve_addr(cm, None, address, 2000) == 0 and event()[1] == 0
assert m.rdma_resolve_route(cm, 2000) == 0 and event()[1] == 2
assert m.rdma_connect(cm, param) == 0
say(event()[1])
");
        assert_eq!(client.first, "8\n", "RDMA_CM_EVENT_REJECTED");
    }
}

/// Prints the last event of a connection to an address that is the first argument, and its time.
const ASKS: &str = r#"
param = struct.pack('=Q7BxI', 0, 0, 1, 1, 0, 7, 7, 0, 77) + bytes(4)
def event():
    e = ctypes.POINTER(p)()
    assert m.rdma_get_cm_event(channel, ctypes.byref(e)) == 0
    global last; last = e
    return p(e[0]), ctypes.cast(e, ctypes.POINTER(ctypes.c_int))[4]
def ask(ip, port):
    at = struct.pack('=H', 2) + struct.pack('>H', port) + bytes(map(int, ip.split('.'))) + bytes(8)
    cm, begin = p(), time.time()
    assert m.rdma_create_id(channel, ctypes.byref(cm), None, 0x106) == 0
    assert m.rdma_resolve_addr(cm, None, at, 2000) == 0
    if event()[1] != 0: return 'no address'
    assert m.rdma_resolve_route(cm, 2000) == 0 and event()[1] == 2
    assert m.rdma_connect(cm, param) == 0
    return f'{event()[1]} {"at once" if time.time() - begin < 3 else "late"}'
def serve(address):
    assert m.rdma_bind_addr(cm, address) == 0, os.strerror(ctypes.get_errno())
    assert m.rdma_listen(cm, 4) == 0
    say('listens')
    m.rdma_reject(event()[0], b'here', 4)
    wait()
"#;

/// The first address of an interface other than the loopback one, unless a member of the fabric can
/// have it.
fn own_interface() -> Option<String> {
    let output = Command::new("hostname").arg("-I").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let is_it =
        |ip: &&str| ip.parse().is_ok_and(|ip: Ipv4Addr| PortConfig::member_at(ip.into()).is_none());
    text.split(' ').find(is_it).map(str::to_owned)
}

/// Binds an id to an address and says what has become of it.
const BINDS: &str = r#"
def at(ip, port):
    ip = bytes(map(int, ip.split('.')))
    return struct.pack('=H', 2) + struct.pack('>H', port) + ip + bytes(8)
def bind(address):
    cm = p()
    assert m.rdma_create_id(channel, ctypes.byref(cm), None, 0x106) == 0
    ok = m.rdma_bind_addr(cm, address) == 0
    error = ctypes.get_errno()
    if not ok: m.rdma_destroy_id(cm)
    return 'bound' if ok else os.strerror(error)
"#;

/// The processes of a machine are one host: a port at any of its addresses has one id, as on Linux,
/// which also has two errors for that.
#[test]
fn a_port_that_an_id_of_another_process_has_is_in_use() {
    let runtime = Runtime::new("in-use");
    let program = format!("{CONNECTS}{ASKS}{BINDS}");
    let ip = own_interface().unwrap_or("127.0.0.1".to_owned());
    let servers = [("0.0.0.0", 7003), (&*ip, 7005)].map(|(ip, port)| {
        let server = runtime.start(&format!("{program}serve(at('{ip}', {port}))"));
        assert_eq!(server.first, "listens\n");
        server
    });
    // An id that is bound, and does not listen, has its port too.
    let bound = runtime.start(&format!("{program}say(bind(at('{ip}', 7006))); wait()"));
    assert_eq!(bound.first, "bound\n");
    let script = format!(
        "{program}
say(bind(at('0.0.0.0', 7003))); say(bind(at('127.0.0.1', 7003))); say(bind(at('{ip}', 7003)))
say(bind(at('0.0.0.0', 7005))); say(bind(at('{ip}', 7005))); say(bind(at('{ip}', 7006)))
# An address of its own is another, and so is a port.
say(bind(at(gid(), 7003)), bind(at('0.0.0.0', 7004)), bind(at('{ip}', 0)))
"
    );
    let wide = "Cannot assign requested address\n";
    let used = if ip == "127.0.0.1" { wide } else { "Address already in use\n" };
    let expected = format!("{wide}{wide}{wide}{wide}{used}{used}bound bound bound\n");
    assert_eq!(runtime.prints(&script), expected);
    drop((servers, bound));
    assert_eq!(runtime.start(&format!("{program}serve(at('0.0.0.0', 7003))")).first, "listens\n");
}

#[test]
fn processes_that_bind_at_once_never_share_a_port() {
    const PROCESSES: usize = 4;
    let runtime = Runtime::new("race");
    let script = format!(
        "{CONNECTS}{BINDS}
assert bind(at('127.0.0.1', 0)) == 'bound'
say('ready')
wait()
print(*[port for port in range(7100, 7140) if bind(at('0.0.0.0', port)) == 'bound'])
sys.stdout.flush()
sys.stdin.readline()
"
    );
    let mut all: Vec<Running> = (0..PROCESSES).map(|_| runtime.start(&script)).collect();
    for one in &mut all {
        assert_eq!(one.first, "ready\n");
        one.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }
    let mut ports = Vec::new();
    for one in &mut all {
        let mut line = String::new();
        one.lines.read_line(&mut line).unwrap();
        ports.extend(line.split_whitespace().map(|port| port.parse::<u16>().unwrap()));
    }
    ports.sort_unstable();
    assert_eq!(ports, (7100..7140).collect::<Vec<u16>>());
}

/// The addresses of this machine mean what they mean where all its processes share one device.
#[test]
fn an_address_of_the_host_leads_to_the_process_that_listens_and_is_refused_where_none_does() {
    let runtime = Runtime::new("host");
    let Some(ip) = own_interface() else {
        eprintln!("skipped: this machine has no interface but the loopback one");
        return;
    };
    let program = format!("{CONNECTS}{ASKS}");
    let by_number = |port: u16| format!("struct.pack('=H', 2) + struct.pack('>H', {port})");
    let bytes = ip.replace('.', ",");
    for (port, bound) in [(7001, "0,0,0,0"), (7002, &*bytes)] {
        let address = format!("{} + bytes([{bound}]) + bytes(8)", by_number(port));
        let server = runtime.start(&format!("{program}serve({address})"));
        assert_eq!(server.first, "listens\n");
        let script = format!("{program}say(ask('{ip}', {port})); say(ask('{ip}', 7009))");
        // RDMA_CM_EVENT_REJECTED, by the program that listens and for want of one.
        assert_eq!(runtime.prints(&script), "8 at once\n8 at once\n", "bound to {bound}");
        let own = format!(
            "{program}
import socket
try: name = socket.gethostbyname(socket.gethostname())
except OSError: name = '{ip}'
say(ask(name, 7009))"
        );
        assert_eq!(runtime.prints(&own), "8 at once\n");
        assert_eq!(server.rest(), "");
    }
}

/// qperf tells its client the port before it listens, and a busy machine makes that a long time.
#[test]
fn a_connection_to_a_port_that_is_bound_waits_for_its_process_to_listen() {
    let runtime = Runtime::new("soon");
    let program = format!("{CONNECTS}{ASKS}{BINDS}");
    let script = format!(
        "{program}
assert m.rdma_bind_addr(cm, at('0.0.0.0', 7010)) == 0
print(gid(), flush=True)
sys.stdin.readline(); time.sleep(0.1)
m.rdma_listen(cm, 4)
m.rdma_reject(event()[0], b'here', 4)
"
    );
    for to_member in [false, true] {
        let mut server = runtime.start(&script);
        let to = if to_member { server.first.trim() } else { "127.0.0.1" };
        let ask = format!(
            "{program}
asked = ask('{to}', 7010)
# The status is the reason of the server's program.
say(asked, ctypes.cast(last, ctypes.POINTER(ctypes.c_int))[5])"
        );
        server.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        assert_eq!(runtime.prints(&ask), "8 at once 28\n", "{to}");
    }
    // A process that does not come to listen refuses, later.
    let bound = runtime.start(&format!("{program}say(bind(at('0.0.0.0', 7011))); wait()"));
    let ask = format!(
        "{program}
asked = ask('127.0.0.1', 7011)
say(asked, ctypes.cast(last, ctypes.POINTER(ctypes.c_int))[5])"
    );
    assert_eq!(runtime.prints(&ask), "8 at once 8\n");
    drop(bound);
}

/// Each child of Python's multiprocessing becomes a member at its first call.
#[test]
fn spawned_children_are_members_of_their_own() {
    let runtime = Runtime::new("spawn");
    let worker = format!("{PRELUDE}\ndef work(): say(gid(), start())\n");
    std::fs::write(runtime.0.join("worker.py"), worker).unwrap();
    let script = "
import multiprocessing
sys.path.insert(0, os.environ['XDG_RUNTIME_DIR'])
import worker
say(gid(), start())
for _ in range(2):
    child = multiprocessing.get_context('spawn').Process(target=worker.work)
    child.start(); child.join()
    assert child.exitcode == 0
";
    let expected = "192.0.2.1 started\n192.0.2.2 started\n192.0.2.2 started\n";
    assert_eq!(runtime.prints(script), expected);
}

#[test]
fn children_forked_before_the_start_have_engines_of_their_own() {
    let runtime = Runtime::new("fork");
    let script = "
say(gid())
def child(number):
    pid, go = os.fork(), None
    if pid == 0:
        say(number, start(), gid()); time.sleep(1.5); sys.exit(0)
    return pid
one = child(1); time.sleep(0.7); two = child(2)
for pid in (one, two): assert os.waitpid(pid, 0)[1] == 0
say(start(), gid())
";
    let said = runtime.prints(script);
    let expected = "192.0.2.1\n1 started 192.0.2.2\n2 started 192.0.2.3\nstarted 192.0.2.1\n";
    assert_eq!(said, expected);
}

#[test]
fn a_child_forked_after_the_start_is_refused_and_does_not_disturb_its_parent() {
    let runtime = Runtime::new("late");
    let script = "
say(start(), gid())
pid = os.fork()
if pid == 0:
    say(start(), start()); sys.exit(3)
assert os.waitpid(pid, 0)[1] >> 8 == 3
assert os.system('true') == 0
say(start())
";
    let output = runtime.run(script);
    let refused = "Operation not supported";
    let expected = format!("started 192.0.2.1\n{refused} {refused}\nstarted\n");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.matches("forked").count(), 1, "{said}");
}

/// A thread of the parent waits meanwhile for a device that other processes have.
#[test]
fn a_child_forked_before_a_device_opens_has_a_start_of_its_own() {
    let runtime = Runtime::new("waits");
    let run = |script| Running::of(runtime.one_of_two(script));
    let others = [0; 2].map(|_| run("say(start()); wait()"));
    let waits = run("
import threading
gid()
thread = threading.Thread(target=lambda: say('parent', start()))
thread.start(); time.sleep(0.3)
pid = os.fork()
if pid == 0:
    c.alarm(20); say('child', start()); os._exit(0)
thread.join()
say(os.waitpid(pid, 0)[1])
");
    assert_eq!(waits.first, "parent Device or resource busy\n");
    assert_eq!(waits.rest(), "child Device or resource busy\n0\n");
    drop(others);
}

#[test]
fn a_child_does_not_wait_for_its_parents_engine() {
    let runtime = Runtime::new("orphan");
    let script = r#"
say(start())
import struct
for name, arguments in [("create_cq", [p, ctypes.c_int, p, p, ctypes.c_int]), ("create_qp", [p, p])]:
    f = getattr(v, "ibv_" + name); f.restype = p; f.argtypes = arguments
v.ibv_modify_qp.argtypes = [p, p, ctypes.c_int]
v.ibv_query_qp.argtypes = [p, p, ctypes.c_int, p]
v.ibv_attach_mcast.argtypes = [p, p, ctypes.c_uint16]
v.ibv_resize_cq.argtypes = [p, ctypes.c_int]
v.ibv_destroy_qp.argtypes = [p]
pd = v.ibv_alloc_pd(context)
cq = v.ibv_create_cq(context, 8, None, None, 0)
# A UD queue pair.
init = struct.pack("PPPP5Iii", 0, cq, cq, 0, 4, 4, 1, 1, 0, 4, 0)
qp = v.ibv_create_qp(pd, ctypes.create_string_buffer(init))
attr = ctypes.create_string_buffer(struct.pack("I140x", 6))
pid = os.fork()
if pid == 0:
    c.alarm(20)
    assert v.ibv_modify_qp(qp, attr, 1) == 95
    assert v.ibv_query_qp(qp, attr, 1, ctypes.create_string_buffer(100)) == 95
    assert v.ibv_attach_mcast(qp, ctypes.create_string_buffer(b"\xff" * 16), 0) == 95
    assert v.ibv_resize_cq(cq, 16) == 95
    assert v.ibv_destroy_qp(qp) == 0
    sys.exit(3)
say(os.waitpid(pid, 0)[1] >> 8, v.ibv_query_qp(qp, attr, 1, ctypes.create_string_buffer(100)))
say(v.ibv_destroy_qp(qp))
"#;
    assert_eq!(runtime.prints(script), "started\n3 0\n0\n");
}

#[test]
fn files_that_a_program_has_closed_and_opened_are_its_own() {
    let runtime = Runtime::new("closed");
    let script = "
say(start())
end = time.time() + 2.5
while time.time() < end:
    os.closerange(3, 200)
    for number in range(100):
        os.open(os.environ['XDG_RUNTIME_DIR'] + '/own', os.O_RDWR | os.O_CREAT)
";
    assert_eq!(runtime.prints(script), "started\n");
    assert_eq!(std::fs::read(runtime.0.join("own")).unwrap(), b"");
}

#[test]
fn the_engine_keeps_off_the_one_cpu_of_a_program_and_takes_no_signals() {
    let script = "
def status(task, key):
    text = open(f'/proc/self/task/{task}/status').read()
    return text.split(key + ':')[1].split()[0]
before = (status(os.getpid(), 'SigBlk'), os.sched_getaffinity(0))
say(start())
assert (status(os.getpid(), 'SigBlk'), os.sched_getaffinity(0)) == before
for task in os.listdir('/proc/self/task'):
    name = open(f'/proc/self/task/{task}/comm').read().strip()
    if task != str(os.getpid()):
        # All signals that can be blocked, except SIGBUS and SIGSEGV: an lcore's copy may
        # raise them.
        blocked = int(status(task, 'SigBlk'), 16) & 0x7fffffff
        assert blocked | 0x440 == 0x7ffbfeff, name
    if name.startswith('uroce-lcore'):
        assert blocked & 0x440 == 0, name
        say(status(task, 'Cpus_allowed_list'))
";
    let runtime = Runtime::new("cpu");
    let output = runtime.command(&["taskset", "-c", "0"], script).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let cpus = std::thread::available_parallelism().unwrap().get();
    let lcore = said.strip_prefix("started\n").unwrap_or_else(|| panic!("{said}{errors}"));
    assert_eq!(lcore == "0\n", cpus == 1, "{said}{errors}");
    assert!(output.status.success(), "{errors}");
}

#[test]
fn a_refusal_of_the_system_is_reported_with_advice() {
    let runtime = Runtime::new("limits");
    let limits = [
        ("ulimit -n 12", "Too many open files", "ulimit -n"),
        ("ulimit -n 20", "Too many open files", "ulimit -n"),
        ("ulimit -v 300000", "Cannot allocate memory", "memory_mb"),
    ];
    for (limit, errno, help) in limits {
        let shell = format!("{limit}; exec \"$@\"");
        let mut command = runtime.command(&["bash", "-c", &shell, "sh"], "say(start())");
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{errno}\n"), "{said}");
        assert!(said.contains(help), "{said}");
    }
    // A start that was not attempted can be repeated.
    let script = "
import resource
old = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (20, old[1]))
say(start())
resource.setrlimit(resource.RLIMIT_NOFILE, old)
say(start())
";
    assert_eq!(runtime.prints(script), "Too many open files\nstarted\n");
}

/// DPDK of the program itself, under the library's name in the development package.
const OWN_DPDK: &str = r#"
eal = ctypes.CDLL("librte_eal.so", mode=ctypes.RTLD_GLOBAL)
def own(*more):
    words = ["prog", "--no-huge", "-m", "64", "--no-pci", "-l", "0", "--no-shconf", *more]
    array = (ctypes.c_char_p * (len(words) + 1))(*[word.encode() for word in words])
    return eal.rte_eal_init(len(words), array)
"#;

#[test]
fn an_eal_that_the_program_has_started_is_shared() {
    let runtime = Runtime::new("eal-first");
    let said = runtime.prints(&format!("{OWN_DPDK}\nsay(own() >= 0, start(), gid())"));
    assert!(said.ends_with("True started 192.0.2.1\n"), "{said}");
}

#[test]
fn a_program_that_starts_dpdk_too_late_gets_advice() {
    let runtime = Runtime::new("eal-last");
    let output = runtime.run(&format!("{OWN_DPDK}\nsay(start(), own()); say(start())"));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "started -1\nstarted\n");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("before its first RDMA object"), "{said}");
}

/// A program is refused an address and does not use the device.
#[test]
fn an_address_of_another_process_is_named_at_the_exit_if_no_engine_has_started() {
    let runtime = Runtime::new("refused");
    let one = runtime.start("say(start(), gid()); wait()");
    assert_eq!(one.first, "started 192.0.2.1\n");
    let bind = format!(
        "{CONNECTS}
assert m.rdma_bind_addr(cm, ctypes.create_string_buffer(address)) == -1
assert ctypes.get_errno() == 98
"
    );
    let went_on = runtime.run(&format!("{bind}say(start())"));
    let said = String::from_utf8_lossy(&went_on.stderr);
    assert_eq!((&*went_on.stdout, &*said), (&b"started\n"[..], ""));
    let gave_up = runtime.run(&bind);
    let said = String::from_utf8_lossy(&gave_up.stderr);
    assert!(said.contains("192.0.2.1, 2001:db8::1 is the address of python3"), "{said}");
}

#[test]
fn a_daemon_keeps_the_device_that_it_has_opened() {
    let runtime = Runtime::new("daemon");
    let script = "
end, other = os.pipe()
parent = os.fork()
if parent:
    os.close(other); say(os.read(end, 100).decode()); sys.exit(0)
assert c.daemon(0, 0) == 0
os.write(other, f'{start()} {gid()}'.encode())
";
    assert_eq!(runtime.prints(script), "started 192.0.2.1\n\n".trim_end().to_owned() + "\n");
}

/// Time that all threads of some processes have run, and how often one was put on a processor.
fn ran(processes: &[&Running]) -> (Duration, u64) {
    let tasks = processes.iter().flat_map(|process| {
        std::fs::read_dir(format!("/proc/{}/task", process.child.id())).unwrap()
    });
    tasks.fold((Duration::ZERO, 0), |(time, turns), task| {
        let stat = std::fs::read_to_string(task.unwrap().path().join("schedstat")).unwrap();
        let [ran, _, count] = [0, 1, 2].map(|at| stat.split_whitespace().nth(at).unwrap());
        (time + Duration::from_nanos(ran.parse().unwrap()), turns + count.parse::<u64>().unwrap())
    })
}

/// Tells whether processes that wait come to rest: in one of several looks of 2 s each wakes thirty
/// times a second at most, and what it does then takes little. What a wake-up costs, the machine
/// says: 40 to 500 µs in a virtual one.
fn come_to_rest(processes: &[&Running]) -> bool {
    let look = Duration::from_secs(2);
    let count = processes.len() as u32;
    (0..5).any(|_| {
        std::thread::sleep(Duration::from_secs(1));
        let (time, turns) = ran(processes);
        std::thread::sleep(look);
        let (later, more) = ran(processes);
        let (time, turns) = (later - time, more - turns);
        eprintln!("{count} ran {time:?} of {look:?}, in {turns} turns");
        turns <= u64::from(60 * count) && time <= look / 40 * count
    })
}

#[test]
fn processes_that_wait_take_no_processor_time() {
    let runtime = Runtime::new("idle");
    let script = "say(gid(), start()); wait()";
    let one = runtime.start(script);
    assert!(come_to_rest(&[&one]), "alone");
    let two = runtime.start(script);
    assert!(come_to_rest(&[&one, &two]), "joined by their link");
}

/// Tests that need root.
mod privileged {
    use super::{CONNECTS, Runtime};

    /// Devices are opened as root and used as another user or with another root directory.
    #[test]
    #[ignore = "needs root: programs give it up"]
    fn a_device_is_usable_after_its_program_has_given_up_privileges() {
        let runtime = Runtime::new("drops");
        let drops = [
            "os.setgroups([]); os.setgid(65534); os.setuid(65534)",
            "os.setresuid(65534, 65534, 0)",
            "assert c.chroot(b'/var/empty' if os.path.isdir('/var/empty') else b'/proc') == 0",
            "os.chroot('/proc'); os.setgid(65534); os.setuid(65534)",
            "assert c.unshare(0x40000000) == 0",
        ];
        for drop in drops {
            assert_eq!(runtime.prints(&format!("{drop}\nsay(start())")), "started\n", "{drop}");
        }
        // A failing call keeps its own error number, whatever else was done.
        let fails = "assert c.chroot(b'/none') == -1; say(ctypes.get_errno())";
        let fails = format!("c = ctypes.CDLL(None, use_errno=True)\n{fails}\nsay(start())");
        assert_eq!(runtime.prints(&fails), "2\nstarted\n");
        let channel = format!("{CONNECTS}os.setuid(65534)\nsay(start())");
        assert_eq!(runtime.prints(&channel), "started\n");
    }

    /// A client finds a server that has changed its user.
    #[test]
    #[ignore = "needs root: programs give it up"]
    fn two_processes_talk_after_one_has_given_up_its_privileges() {
        let runtime = Runtime::new("dropped");
        let up = "
attr = ctypes.create_string_buffer(64)
v.ibv_query_port.argtypes = [p, ctypes.c_uint8, p]
def active():
    end = time.time() + 20
    while time.time() < end:
        assert v.ibv_query_port(context, 1, attr) == 0
        if attr.raw[0] == 4: return 'active'
        time.sleep(0.01)
    return 'down'
";
        let server =
            runtime.start(&format!("{up}os.setuid(65534)\nsay(start()); wait(); say(active())"));
        assert_eq!(server.first, "started\n");
        let client = runtime.start(&format!("{up}say(start(), active()); wait()"));
        assert_eq!(client.first, "started active\n");
        drop(server);
    }

    #[test]
    #[ignore = "needs root: fills file systems"]
    fn a_small_or_full_run_directory_ends_no_process() {
        let runtime = Runtime::new("small");
        let script = "
size=$1; full=$2; shift 2
mount -t tmpfs -o size=$size,mode=755 tmpfs \"$XDG_RUNTIME_DIR\" || exit 9
[ \"$full\" = 0 ] || head -c \"$full\" /dev/zero > \"$XDG_RUNTIME_DIR/fill\"
\"$@\"; echo \"status $?\"
";
        let run = |size: &str, full: &str| {
            let before = ["unshare", "--mount", "sh", "-c", script, "sh", size, full];
            let output = runtime.command(&before, "say(start(), gid())").output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            (String::from_utf8(output.stdout).unwrap(), said)
        };
        let small = run("1m", "0");
        assert_eq!(small.0, "started 192.0.2.1\nstatus 0\n", "{}", small.1);
        // The launcher has no room for a link or a lock, and prints this.
        let (printed, said) = run("64k", "64k");
        assert!(printed.contains("started") || said.contains("no room"), "{printed}{said}");
        assert!(!printed.contains("status 13"), "{printed}{said}");
    }

    #[test]
    #[ignore = "needs root: mounts file systems"]
    fn a_read_only_run_directory_is_passed_over() {
        let runtime = Runtime::new("read-only");
        let script = "
mount -t tmpfs tmpfs /run && mount -t tmpfs -o mode=755 tmpfs \"$XDG_RUNTIME_DIR\" || exit 9
mkdir -m 700 \"$XDG_RUNTIME_DIR/uroce\" && mount -o remount,ro \"$XDG_RUNTIME_DIR\" || exit 9
exec \"$@\"
";
        let before = ["unshare", "--mount", "sh", "-c", script, "sh"];
        let output = runtime.command(&before, "say(start(), gid())").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "started 192.0.2.1\n", "{said}");
    }

    /// A listener at one of the host's addresses receives what is sent to that one.
    #[test]
    #[ignore = "needs root: makes network interfaces"]
    fn listeners_at_two_addresses_of_the_host_do_not_receive_each_others_requests() {
        let runtime = Runtime::new("addresses");
        let script = "
ip link add eth0 type veth peer name other || exit 9
for at in 10.99.0.1 10.99.1.1 10.99.2.1; do ip addr add $at/24 dev eth0; done
ip link set eth0 up; ip link set other up
exec \"$@\"
";
        let program = format!("{CONNECTS}{}{}", super::ASKS, super::BINDS);
        let run = |script_of_it: &str| {
            let before = ["unshare", "--net", "sh", "-c", script, "sh"];
            super::Running::of(runtime.command(&before, &format!("{program}{script_of_it}")))
        };
        let server = run("serve(at('10.99.0.1', 7000))");
        assert_eq!(server.first, "listens\n");
        // 8 is RDMA_CM_EVENT_REJECTED, 4 a request to the program itself.
        let client = run("
assert m.rdma_bind_addr(cm, at('10.99.1.1', 7000)) == 0 and m.rdma_listen(cm, 4) == 0
say(*(ask(ip, 7000) for ip in ('10.99.0.1', '10.99.2.1', '127.0.0.1', '10.99.1.1')))
");
        assert_eq!(client.first, "8 at once 8 at once 8 at once 4 at once\n");
        assert_eq!((client.rest(), server.rest()), (String::new(), String::new()));
    }

    /// The fabric is where the directory is, whatever the network namespace.
    #[test]
    #[ignore = "needs root: makes network namespaces"]
    fn members_in_two_network_namespaces_have_numbers_of_their_own_and_reach_each_other() {
        let runtime = Runtime::new("netns-fabric");
        let program = format!("{CONNECTS}{}", super::ASKS);
        let run = |script: &str| {
            let before = ["unshare", "--net"];
            super::Running::of(runtime.command(&before, &format!("{program}{script}")))
        };
        let server = run("serve(address)");
        assert_eq!(server.first, "listens\n");
        let client = run("say(ask('192.0.2.1', 0x1d2f), gid())");
        assert_eq!(client.first, "8 at once 192.0.2.2\n");
        assert_eq!((client.rest(), server.rest()), (String::new(), String::new()));
    }

    #[test]
    #[ignore = "needs root: makes network interfaces"]
    fn processes_of_two_network_namespaces_with_one_run_directory_are_two() {
        let runtime = Runtime::new("netns");
        let script = "
ip link add eth0 type veth peer name other || exit 9
ip addr add 10.99.0.$1/24 dev eth0; ip link set eth0 up; ip link set other up
shift; exec \"$@\"
";
        let launcher = env!("CARGO_BIN_EXE_uroce-run");
        let start = |number: &str| {
            let program = [launcher, "--vdev", "net_af_packet0,iface=eth0", "python3", "-c"];
            let before = ["unshare", "--net", "sh", "-c", script, "sh", number];
            let mut command = std::process::Command::new(before[0]);
            command.args(&before[1..]).args(program);
            command.arg(format!("{}say(start(), gid()); wait()", super::PRELUDE));
            command.env("XDG_RUNTIME_DIR", &runtime.0).env("LC_ALL", "C");
            command.stdin(std::process::Stdio::piped());
            super::Running::of(command)
        };
        let (one, two) = (start("1"), start("2"));
        assert_eq!((&*one.first, &*two.first), ("started 10.99.0.1\n", "started 10.99.0.2\n"));
    }

    /// The local fabric has no claim to the address of an interface that another device uses.
    #[test]
    #[ignore = "needs root: makes network interfaces"]
    fn an_address_of_another_device_is_bound_there_and_not_in_the_local_fabric() {
        let runtime = Runtime::new("two-devices");
        let config = runtime.0.join("two.toml");
        let fabric = runtime.0.join("fabric");
        let text = format!(
            "[[device]]
name = \"uroce0\"
[[device.port]]
ethdev = {{ local = \"{}\" }}
[[device]]
name = \"uroce1\"
[[device.port]]
ethdev = {{ vdev = \"net_af_packet0,iface=eth0\" }}
ip = [\"10.99.0.1/24\"]
",
            fabric.display()
        );
        std::fs::write(&config, text).unwrap();
        let script = "
ip link add eth0 type veth peer name other || exit 9
for at in 10.99.0.1 10.99.1.1; do ip addr add $at/24 dev eth0; done
ip link set eth0 up; ip link set other up
exec \"$@\"
";
        let program = format!(
            "{CONNECTS}
v.ibv_get_device_name.restype = ctypes.c_char_p
v.ibv_get_device_name.argtypes = [p]
def device(*ip):
    cm = p()
    assert m.rdma_create_id(channel, ctypes.byref(cm), None, 0x106) == 0
    at = struct.pack('=H', 2) + bytes([0x1d, 0x30, *ip]) + bytes(8)
    assert m.rdma_bind_addr(cm, at) == 0, os.strerror(ctypes.get_errno())
    first = lambda at: ctypes.cast(at, ctypes.POINTER(p))[0]
    return v.ibv_get_device_name(first(first(cm))).decode()
say(device(10, 99, 0, 1), device(10, 99, 1, 1))
"
        );
        let mut command =
            runtime.command(&["unshare", "--net", "sh", "-c", script, "sh"], &program);
        let output = command.env("UROCE_CONFIG", &config).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "uroce1 uroce0\n", "{errors}");
    }
}

#[test]
fn a_forked_child_neither_removes_nor_serves_the_socket_of_its_parent() {
    let script = "
import socket
say(start())
directory = os.environ['XDG_RUNTIME_DIR'] + '/uroce/control/'
[name] = os.listdir(directory)
assert name.split('-')[0] == str(os.getpid())
child = os.fork()
if child == 0:
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
assert os.listdir(directory) == [name]
client = socket.socket(socket.AF_UNIX)
client.settimeout(10)
client.connect(directory + name)
text = b'{\"show\":\"process\"}'
client.sendall(len(text).to_bytes(4, 'big') + text)
say(b'\"pid\":%d,' % os.getpid() in client.recv(4096))
";
    let runtime = Runtime::new("fork-control");
    assert_eq!(runtime.prints(script), "started\nTrue\n");
    let left = std::fs::read_dir(runtime.0.join("uroce/control")).unwrap().count();
    assert_eq!(left, 0, "the parent removes its socket when it exits");
}
