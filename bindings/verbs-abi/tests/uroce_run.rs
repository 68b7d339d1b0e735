//! `uroce-run` with installed programs.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use uroce::local::Reservation;

/// A run directory for one test. It is removed when this is dropped.
struct Runtime(PathBuf);

impl Runtime {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(format!("/tmp/uroce-run-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// A command that runs `uroce-run` with these arguments.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_uroce-run"));
        command.args(args).env("XDG_RUNTIME_DIR", &self.0).env("LC_ALL", "C");
        for name in ["UROCE_CONFIG", "UROCE_NETDEV", "LD_PRELOAD"] {
            command.env_remove(name);
        }
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn prints(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The error message if `uroce-run` refuses to run the program.
    fn refuses(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(!output.status.success() && output.stdout.is_empty(), "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn ports(role: &str, address: &str) -> String {
    format!(
        "[[device]]\nname = \"left0\"\n[[device.port]]\nip = [\"{address}/24\"]\n\
         ethdev = {{ vdev = \"net_memif0,role={role},socket=/tmp/s,socket-abstract=no\" }}\n"
    )
}

const GID: &str = "/sys/class/infiniband/uroce0/ports/1/gids/0";

#[test]
fn a_program_lists_the_device_and_no_engine_starts() {
    let runtime = Runtime::new("devices");
    let list = runtime.prints(&["ibv_devices"]);
    assert!(list.contains("uroce0") && list.contains("007572fffe6f6301"), "{list}");
    // EAL would have made this directory.
    assert!(!runtime.0.join("dpdk").exists());
}

#[test]
fn the_tree_has_the_address_that_the_program_will_have() {
    let runtime = Runtime::new("tree");
    let one = "0000:0000:0000:0000:0000:ffff:c000:0201\n";
    assert_eq!(runtime.prints(&["cat", GID]), one);
    // While a process has the first number, the next one gets the second.
    let _holder = Reservation::take(&runtime.0.join("uroce/fabric"), None, None).unwrap();
    let two = "0000:0000:0000:0000:0000:ffff:c000:0202\n";
    assert_eq!(runtime.prints(&["cat", GID]), two);
}

#[test]
fn options_make_a_configuration_that_the_next_run_finds_again() {
    let runtime = Runtime::new("options");
    let args = ["--ip", "10.1.0.1/16", "--ip", "2001:db8:1::1/64", "--lcores", "2,3"];
    let run = |more: &[&str]| runtime.prints(&[&args[..], more].concat());
    assert_eq!(run(&["cat", GID]), "0000:0000:0000:0000:0000:ffff:0a01:0001\n");
    let named = run(&["printenv", "UROCE_CONFIG"]);
    assert_eq!(run(&["printenv", "UROCE_CONFIG"]), named);
    let text = std::fs::read_to_string(named.trim()).unwrap();
    assert!(text.contains("local = ") && text.contains("lcores = [2,3]"), "{text}");
    let vdev = ["--vdev", "net_af_packet0,iface=lo", "--mtu", "4200", "printenv", "UROCE_CONFIG"];
    let file = runtime.prints(&vdev);
    let text = std::fs::read_to_string(file.trim()).unwrap();
    assert!(text.contains("iface=lo") && text.contains("mtu = 4200"), "{text}");
    let file = runtime.prints(&["--udp", "lo", "printenv", "UROCE_CONFIG"]);
    let text = std::fs::read_to_string(file.trim()).unwrap();
    assert!(text.contains("udp = \"lo\"") && text.contains("idle = \"sleep\""), "{text}");
}

#[test]
fn a_port_on_a_switch_has_a_socket_and_an_address() {
    let runtime = Runtime::new("switch");
    let socket = runtime.0.join("p1");
    let switch = ["--switch", socket.to_str().unwrap()];
    let run = |more: &[&str]| {
        let more = ["--ip", "10.1.0.1/16"].iter().chain(more).chain(&["printenv", "UROCE_CONFIG"]);
        let file = runtime.prints(&switch.iter().chain(more).copied().collect::<Vec<_>>());
        std::fs::read_to_string(file.trim()).unwrap()
    };
    let text = run(&["--mtu", "9000"]);
    assert!(text.contains(&format!("net_virtio_user0,path={}\"", switch[1])), "{text}");
    assert!(text.contains("mtu = 9000") && text.contains("idle = \"sleep\""), "{text}");
    let huge = run(&["--huge"]);
    assert!(huge.contains("huge = true\nargs = [\"--single-file-segments\"]"), "{huge}");
    let said = runtime.refuses(&[&switch[..], &["true"]].concat());
    assert!(said.contains("needs an address: add --ip"), "{said}");
    let long = format!("/{}", "x".repeat(107));
    for (path, reason) in [("/a,b", "comma"), (long.as_str(), "longer than 107 bytes")] {
        let said = runtime.refuses(&["--switch", path, "--ip", "10.1.0.1/16", "true"]);
        assert!(said.contains(reason), "{said}");
    }
    // The engine looks for the switch when it starts.
    let gone = ["--switch", "/no/such/place/p1", "--ip", "10.1.0.1/16", "ibv_rc_pingpong"];
    let output = runtime.run(&gone);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("no switch at /no/such/place/p1: its directory is missing"), "{said}");
}

/// Starts the engine on a thread. Meanwhile it asks for an address.
const ASKS_DURING_START: &str = r#"
import ctypes, os, sys, threading, time
p, v = ctypes.c_void_p, ctypes.CDLL("libibverbs.so.1")
v.ibv_get_device_list.restype = ctypes.POINTER(p)
for f in ("open_device", "create_cq"):
    getattr(v, "ibv_" + f).restype = p
v.ibv_open_device.argtypes, v.ibv_create_cq.argtypes = [p], [p, ctypes.c_int, p, p, ctypes.c_int]
v.ibv_query_gid.argtypes = [p, ctypes.c_uint8, ctypes.c_int, p]
context = v.ibv_open_device(v.ibv_get_device_list(None)[0])
threading.Thread(target=v.ibv_create_cq, args=(context, 1, None, None, 0), daemon=True).start()
while not os.path.exists(sys.argv[1]): time.sleep(0.01)
raw, begin = ctypes.create_string_buffer(16), time.monotonic()
assert v.ibv_query_gid(context, 1, 0, raw) == 0
print(".".join(map(str, raw.raw[12:])), time.monotonic() - begin < 2, flush=True)
sys.stdin.readline()
os._exit(0)
"#;

#[test]
fn a_port_of_a_switch_has_one_program_and_the_next_is_told_which_at_once() {
    let (runtime, other) = (Runtime::new("one-port"), Runtime::new("other-user"));
    let socket = runtime.0.join("p1");
    let path = socket.to_str().unwrap();
    let args = ["--switch", path, "--ip", "10.1.0.1/16"];
    let mut first = runtime.command(&[&args[..], &["python3", "-c", ASKS_DURING_START]].concat());
    first.arg(path).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut first = first.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(first.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "10.1.0.1 True\n", "an address, though the engine waits for the switch");
    // Its address and run directory do not matter.
    let args = ["--switch", path, "--ip", "10.1.0.2/16", "ibv_rc_pingpong"];
    for (of, expected) in [
        (&runtime, format!("port {path} of a switch: python3 (process {})", first.id())),
        (&other, format!("{path} is in use by python3 (process {})", first.id())),
    ] {
        let begin = Instant::now();
        let output = of.command(&args).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(&expected) && said.contains("another port of the"), "{said}");
        assert!(begin.elapsed() < Duration::from_secs(5) && socket.exists(), "{said}");
    }
    assert!(first.try_wait().unwrap().is_none(), "the first program still waits");
    drop(first.stdin.take());
    assert!(first.wait().unwrap().success());
}

#[test]
fn configuration_files_are_alternatives_and_keep_the_devices_names() {
    let runtime = Runtime::new("files");
    let file = |name: &str, text: &str| {
        let path = runtime.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_string_lossy().into_owned()
    };
    let a = file("a.toml", &ports("server", "198.51.100.1"));
    let b = file("b.toml", &ports("client", "198.51.100.2"));
    let list = runtime.prints(&["--config", &a, "--config", &b, "ibv_devices"]);
    assert!(list.contains("left0") && list.contains("0000c6fffe336401"), "{list}");
    let other = file("c.toml", &ports("client", "198.51.100.2").replace("left0", "x"));
    let said = runtime.refuses(&["--config", &a, "--config", &other, "true"]);
    assert!(said.contains("not of the same names"), "{said}");
    let wrong = file("d.toml", "[[device]]\nnam = 1");
    let said = runtime.refuses(&["--config", &wrong, "true"]);
    assert!(said.contains("d.toml") && said.contains("nam"), "{said}");
    // Without `uroce-run` the library prints the error.
    let mut bare = runtime.command(&["ibv_devices"]);
    let output = bare.env("UROCE_CONFIG", &wrong).output().unwrap();
    assert!(!output.status.success());
}

#[test]
fn a_program_that_cannot_be_run_is_refused_with_advice() {
    let runtime = Runtime::new("refused");
    let copy = runtime.0.join("static");
    // A program without an interpreter: a copy of one with the type of its PT_INTERP header
    // changed.
    let mut bytes = std::fs::read("/bin/true").unwrap();
    let (table, count) = (64, usize::from(bytes[56]));
    for at in (0..count).map(|entry| table + entry * 56) {
        bytes[at] = if bytes[at] == 3 { 4 } else { bytes[at] };
    }
    std::fs::write(&copy, bytes).unwrap();
    std::fs::set_permissions(&copy, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let cases: [(&[&str], &str); 7] = [
        (&["no-such-program"], "perftest"),
        (&["/etc/passwd"], "not a program"),
        (&[&copy.to_string_lossy()], "statically linked"),
        (&["--vdev", "net_null0", "true"], "add --ip"),
        (&["--ip", "192.0.2.1", "true"], "not of the form"),
        (&["--lcores", "two", "true"], "number"),
        (&["--netdev", "none-such0", "true"], "no network interface"),
    ];
    for (args, words) in cases {
        let said = runtime.refuses(args);
        assert!(said.contains(words), "{args:?}: {said}");
    }
    let said = runtime.refuses(&["--config", "x.toml", "--mtu", "1500", "true"]);
    assert!(said.contains("cannot be used with"), "{said}");
}

#[test]
fn the_program_gets_its_arguments_its_name_and_its_exit_status() {
    let runtime = Runtime::new("arguments");
    let script = "echo \"$0|$1|$2\"; exit 7";
    let output = runtime.run(&["sh", "-c", script, "--ip", "-a", "b c"]);
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "--ip|-a|b c\n");
    let output = runtime.run(&["--", "printenv", "LD_LIBRARY_PATH"]);
    let list = String::from_utf8(output.stdout).unwrap();
    // The library's directory is the first one.
    let library = list.trim().split(':').next().unwrap();
    for name in ["libibverbs.so", "libibverbs.so.1", "librdmacm.so", "librdmacm.so.1"] {
        let link = Path::new(library).join(name);
        assert!(link.exists(), "{}", link.display());
    }
}

/// The loop of the vendors' script show_gids.
const SHOW_GIDS: &str = "\
    for port in /sys/class/infiniband/*/ports/*; do\n\
        for gid in \"$port\"/gids/*; do\n\
            index=${gid##*/} text=$(cat \"$gid\")\n\
            [ \"$text\" = 0000:0000:0000:0000:0000:0000:0000:0000 ] && continue\n\
            echo \"$index $text $(cat \"$port/gid_attrs/types/$index\")\" \\\n\
                \"$(cat \"$port/gid_attrs/ndevs/$index\")\"\n\
        done\n\
    done\n";

#[test]
fn scripts_find_addresses_with_their_types_and_interfaces() {
    let runtime = Runtime::new("gids");
    let list = runtime.prints(&["sh", "-c", SHOW_GIDS]);
    assert_eq!(
        list,
        "0 0000:0000:0000:0000:0000:ffff:c000:0201 RoCE v2 lo\n\
         1 2001:0db8:0000:0000:0000:0000:0000:0001 RoCE v2 lo\n"
    );
    // The attributes of an empty entry cannot be read.
    let types = "/sys/class/infiniband/uroce0/ports/1/gid_attrs/types";
    let output = runtime.run(&["cat", &format!("{types}/7")]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("Invalid argument"), "{said}");
}

/// Files that Prometheus' node_exporter, scripts like perfquery, and libibumad read.
#[test]
fn collectors_find_state_rate_and_counters_of_each_port() {
    let runtime = Runtime::new("collectors");
    let script = "cd /sys/class/infiniband/uroce0 && cat fw_ver hca_type board_id node_desc && \
                  cd ports/1 && cat state phys_state rate sm_lid sm_sl lid lid_mask_count cap_mask \
                  link_layer && ls -d counters hw_counters && cat counters/*";
    let version = env!("CARGO_PKG_VERSION");
    let text = runtime.prints(&["sh", "-c", script]);
    let expected = format!(
        "{version}\nuroce\nuroce\nuroce0\n4: ACTIVE\n5: LinkUp\n2.5 Gb/sec (1X SDR)\n0x0\n0\n\
         0x201\n0\n0x04010000\nEthernet\ncounters\nhw_counters\n{}",
        "0\n".repeat(6)
    );
    assert_eq!(text, expected);
}

#[test]
fn ibstat_and_ibstatus_show_the_port() {
    let runtime = Runtime::new("ibstat");
    if !["/usr/sbin/ibstat", "/usr/sbin/ibstatus"].iter().all(|path| Path::new(path).exists()) {
        println!("SKIP: infiniband-diags is not installed");
        return;
    }
    let text = runtime.prints(&["/usr/sbin/ibstat"]);
    for line in ["CA 'uroce0'", "State: Active", "Physical state: LinkUp", "Link layer: Ethernet"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let text = runtime.prints(&["/usr/sbin/ibstatus"]);
    for line in ["Infiniband device 'uroce0' port 1 status:", "4: ACTIVE", "2.5 Gb/sec (1X SDR)"] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn hugepages_are_an_option_and_no_default() {
    let runtime = Runtime::new("huge");
    let eal = |args: &[&str]| {
        let named = runtime.prints(&[args, &["printenv", "UROCE_CONFIG"]].concat());
        std::fs::read_to_string(named.trim().split(':').next().unwrap()).unwrap()
    };
    assert!(eal(&["--huge"]).contains("huge = true"));
    assert!(eal(&["--huge", "--vdev", "net_null0", "--ip", "10.1.0.1/24"]).contains("huge = true"));
    assert!(eal(&["--huge", "--udp", "lo"]).contains("huge = true"));
    assert!(!eal(&["--lcores", "1"]).contains("huge ="));
}

/// `dlopen` of a path, as frameworks do that search for the system's libraries.
#[test]
fn a_path_to_the_systems_library_opens_ours() {
    let runtime = Runtime::new("dlopen");
    let script = r#"
import ctypes, sys
p = ctypes.c_void_p
class Info(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("base", p), ("symbol", ctypes.c_char_p), ("at", p)]
c = ctypes.CDLL(None)
c.dlopen.restype = c.dlsym.restype = p
c.dlsym.argtypes, c.dladdr.argtypes = [p, ctypes.c_char_p], [p, p]
for path in sys.argv[1:]:
    handle, info = c.dlopen(path.encode(), 2), Info()
    symbol = c.dlsym(handle, b"ibv_get_device_list" if "ibverbs" in path else b"rdma_create_id")
    assert handle and symbol and c.dladdr(symbol, ctypes.byref(info)), path
    v = ctypes.CDLL(info.name.decode())
    print(info.name.decode().rsplit("/", 1)[0])
print(c.dlopen(b"/none/libfoo.so.1", 2), bool(c.dlopen(None, 2)), bool(c.dlopen(b"libm.so.6", 2)))
"#;
    let library = runtime.prints(&["printenv", "LD_LIBRARY_PATH"]);
    let library = library.trim().split(':').next().unwrap();
    let paths = ["/usr/lib/x86_64-linux-gnu/libibverbs.so.1", "/lib/librdmacm.so.1"];
    let more = ["/opt/none/libibverbs.so", "/usr/lib/libibverbs.so.1.14.44.0"];
    let printed = runtime.prints(&[&["python3", "-c", script], &paths[..], &more[..]].concat());
    assert_eq!(printed, format!("{library}\n").repeat(4) + "None True True\n");
}

/// Python's packages have an RDMA library of their own, under another name, beside a module that
/// finds it by its run path.
#[test]
fn a_library_that_a_program_brings_is_not_used() {
    let runtime = Runtime::new("brought");
    let run = &runtime.0;
    let brought = "struct ibv_device; struct ibv_device **ibv_get_device_list(int *n) { *n = 77; \
                   return 0; }\n";
    let module = "struct ibv_device; struct ibv_device **ibv_get_device_list(int *n);\n\
                  int devices(void) { int n = 0; ibv_get_device_list(&n); return n; }\n";
    std::fs::write(run.join("brought.c"), brought).unwrap();
    std::fs::write(run.join("module.c"), module).unwrap();
    let script = "printf 'IBVERBS_1.1 { global: ibv_get_device_list; };' >v.map
        gcc -shared -fPIC -Wl,--version-script=v.map -Wl,-soname,libibverbs-1de1263b.so.1.14.48 \
            -o libibverbs-1de1263b.so.1.14.48 brought.c &&
        gcc -shared -fPIC '-Wl,-rpath,$ORIGIN' -o module.so module.c \
            ./libibverbs-1de1263b.so.1.14.48";
    let built = Command::new("sh").args(["-c", script]).current_dir(run).status().unwrap();
    assert!(built.success());
    let load =
        format!("import ctypes; print(ctypes.CDLL('{}/module.so').devices())", run.display());
    assert_eq!(runtime.prints(&["python3", "-c", &load]), "1\n");
}

/// UCX asks the kernel for a route by the interface of a GID, which the local fabric has not.
#[test]
fn ucx_does_not_ask_for_a_route_unless_the_user_wants_it() {
    let runtime = Runtime::new("ucx");
    let name = "UCX_IB_ROCE_REACHABILITY_MODE";
    let script = format!(
        "import ctypes, os; c = ctypes.CDLL(None); c.getenv.restype = ctypes.c_char_p
print(c.getenv(b'{name}'), c.getenv(b'{name}S'), c.getenv(b'HOME2'), '{name}' in os.environ)"
    );
    // A variable of the environment that UCX does not know makes it warn.
    assert_eq!(runtime.prints(&["python3", "-c", &script]), "b'all' None None False\n");
    let mut command = runtime.command(&["python3", "-c", &script]);
    let output = command.env(name, "route").env("HOME2", "h").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "b'route' None b'h' True\n");
}

/// The interface that programs are shown exists, and the calls and the files name the same one.
#[test]
fn an_interface_is_shown_for_a_port_without_one() {
    let runtime = Runtime::new("interface");
    let script = r#"
import ctypes, socket
p = ctypes.c_void_p
v = ctypes.CDLL("libibverbs.so.1")
v.ibv_get_device_list.restype = ctypes.POINTER(p)
v.ibv_open_device.restype, v.ibv_open_device.argtypes = p, [p]
class Entry(ctypes.Structure):
    _fields_ = [("gid", ctypes.c_ubyte * 16), ("index", ctypes.c_uint32), ("port", ctypes.c_uint32),
                ("type", ctypes.c_uint32), ("interface", ctypes.c_uint32)]
context = p(v.ibv_open_device(v.ibv_get_device_list(None)[0]))
table, one = (Entry * 16)(), Entry()
count = v._ibv_query_gid_table(context, table, ctypes.c_size_t(16), 0, ctypes.c_size_t(32))
port = "/sys/class/infiniband/uroce0/ports/1/gid_attrs/ndevs/"
for entry in table[:count]:
    size = ctypes.c_size_t(32)
    assert v._ibv_query_gid_ex(context, 1, entry.index, ctypes.byref(one), 0, size) == 0
    assert one.interface == entry.interface
    name = socket.if_indextoname(entry.interface)
    assert open(port + str(entry.index)).read() == name + "\n"
    print(entry.index, name)
"#;
    assert_eq!(runtime.prints(&["python3", "-c", script]), "0 lo\n1 lo\n");
}

/// A launcher, such as a shell or mpirun, starts a program with a sanitizer.
#[test]
fn a_sanitizer_works_in_a_program_that_a_launcher_starts() {
    let runtime = Runtime::new("launched");
    let source = runtime.0.join("a.c");
    // Starts the engine, with its threads.
    let text = "#include <infiniband/verbs.h>\n#include <stdio.h>\nint main(void) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = ibv_open_device(list[0]);
    struct ibv_cq *cq = ibv_create_cq(context, 1, NULL, NULL, 0);
    puts(cq ? \"ran\" : \"no CQ\");
    ibv_destroy_cq(cq); ibv_close_device(context); ibv_free_device_list(list);
    return 0;
}\n";
    std::fs::write(&source, text).unwrap();
    // With more random bits, gcc 12's ThreadSanitizer ends every program at its start.
    let bits = std::fs::read_to_string("/proc/sys/vm/mmap_rnd_bits").unwrap();
    let thread = if bits.trim().parse::<u32>().unwrap() > 28 { "undefined" } else { "thread" };
    for sanitizer in ["address", thread, "undefined", "leak"] {
        let program = runtime.0.join(sanitizer);
        let built = Command::new("gcc")
            .args([&format!("-fsanitize={sanitizer}"), "-g", "-o"])
            .args([&program, &source])
            .arg("-libverbs")
            .output()
            .unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let program = program.to_string_lossy();
        for words in [&[&*program][..], &["sh", "-c", &program]] {
            let output = runtime.run(words);
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && output.stdout == b"ran\n", "{sanitizer}: {said}");
        }
    }
    // The user's options come last, and so override ours.
    let mut command = runtime.command(&["printenv", "ASAN_OPTIONS", "TSAN_OPTIONS"]);
    let output = command.env("ASAN_OPTIONS", "verify_asan_link_order=1").output().unwrap();
    let expected = "verify_asan_link_order=0:verify_asan_link_order=1\n\
                    ignore_noninstrumented_modules=1\n";
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}

/// DPDK's shared libraries would find DPDK's symbols in the program.
#[test]
fn a_program_that_exports_a_dpdk_of_its_own_is_refused() {
    let runtime = Runtime::new("static-dpdk");
    let source = runtime.0.join("a.c");
    let text = "int rte_eal_init(int n, char **words) { return words[n] != 0; }
int main(int n, char **words) { return rte_eal_init(n, words); }\n";
    std::fs::write(&source, text).unwrap();
    let build = |name: &str, more: &[&str]| {
        let program = runtime.0.join(name).to_string_lossy().into_owned();
        let mut gcc = Command::new("gcc");
        let built = gcc.args(["-o", &program]).arg(&source).args(more).status().unwrap();
        assert!(built.success());
        program
    };
    // The program has it for itself.
    assert_eq!(runtime.prints(&[&build("own", &[])]), "");
    let said = runtime.refuses(&[&build("exported", &["-Wl,--export-dynamic"])]);
    assert!(said.contains("exported has DPDK linked into it"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

/// Mooncake's workers spin, each on a processor of its own if there are enough.
#[test]
fn mooncake_has_one_worker_on_few_processors_unless_the_user_wants_more() {
    let runtime = Runtime::new("mooncake");
    let script = "import ctypes, os; c = ctypes.CDLL(None); c.getenv.restype = ctypes.c_char_p
os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:1]); print(c.getenv(b'MC_WORKERS_PER_CTX'))";
    assert_eq!(runtime.prints(&["python3", "-c", script]), "b'1'\n");
    let mut command = runtime.command(&["python3", "-c", script]);
    let output = command.env("MC_WORKERS_PER_CTX", "3").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "b'3'\n");
}

/// The run-time library of a sanitizer ends a program in which it is not the first library.
#[test]
fn a_sanitizer_stays_in_front() {
    let runtime = Runtime::new("sanitizer");
    let (source, program) = (runtime.0.join("a.c"), runtime.0.join("a"));
    std::fs::write(&source, "#include <stdio.h>\nint main(void) { puts(\"ran\"); return 0; }\n")
        .unwrap();
    let built = Command::new("gcc")
        .args(["-fsanitize=address", "-g", "-o"])
        .args([&program, &source])
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    assert_eq!(runtime.prints(&[&program.to_string_lossy()]), "ran\n");
    // A sanitizer that the user preloads, for a program without one.
    let asan = Command::new("gcc").arg("-print-file-name=libasan.so").output().unwrap();
    let asan = String::from_utf8(asan.stdout).unwrap();
    let mut command = runtime.command(&["printenv", "LD_PRELOAD"]);
    let before = format!("{}:libm.so.6", asan.trim());
    let output = command.env("LD_PRELOAD", &before).env("ASAN_OPTIONS", "detect_leaks=0").output();
    let output = output.unwrap();
    let list = String::from_utf8(output.stdout).unwrap();
    let names: Vec<&str> =
        list.trim().split(':').map(|path| path.rsplit('/').next().unwrap()).collect();
    let ours = ["libibverbs.so.1", "liburoce_shim.so"];
    assert_eq!(names, ["libasan.so", ours[0], ours[1], "libm.so.6"], "{list}");
}

#[test]
#[ignore = "needs root: becomes another user"]
fn a_program_that_becomes_another_user_goes_on_with_our_libraries() {
    let runtime = Runtime::new("su");
    let user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let command = [&user[..], &["sh", "-c", "env -u XDG_RUNTIME_DIR ibv_devices"]].concat();
    let output = runtime.run(&command);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said, "");
    assert!(String::from_utf8_lossy(&output.stdout).contains("uroce0"));
}

/// Copies `true` with another loader's path in it.
fn with_loader(copy: &Path, loader: &str) {
    let mut bytes = std::fs::read("/bin/true").unwrap();
    let own = b"/lib64/ld-linux-x86-64.so.2\0";
    let at = bytes.windows(own.len()).position(|window| window == own).unwrap();
    let path = &mut bytes[at..at + own.len()];
    path.fill(0);
    path[..loader.len()].copy_from_slice(loader.as_bytes());
    std::fs::write(copy, bytes).unwrap();
    std::fs::set_permissions(copy, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
}

#[test]
fn a_c_library_that_cannot_load_ours_is_named() {
    let runtime = Runtime::new("libc");
    let base = PathBuf::from(format!("/tmp/u{}", std::process::id()));
    std::fs::create_dir_all(&base).unwrap();
    let (program, script) = (base.join("program"), base.join("script"));
    std::fs::write(&script, format!("#!{} -x\n", program.display())).unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let loader = base.join("ld.so").display().to_string();
    std::fs::copy("/lib64/ld-linux-x86-64.so.2", &loader).unwrap();
    std::fs::write(base.join("libc.so.6"), b"\0GLIBC_2.31\0GLIBC_2.33\0").unwrap();
    let cases = [("/lib/ld-musl-x86_64.so.1", "musl"), (&loader, "too old")];
    for (loader, words) in cases {
        with_loader(&program, loader);
        for run in [&program, &script] {
            let said = runtime.refuses(&[&run.to_string_lossy()]);
            assert!(said.contains(words) && said.contains("GLIBC 2.34"), "{said}");
            assert_eq!(said.lines().count(), 1, "{said}");
        }
    }
    std::fs::remove_dir_all(&base).unwrap();
}
