"""Programs that are given to `uroce-run` without an option or a variable: what it finds out itself.

Programs with libraries of their own, with sanitizers, with privileges, with a DPDK of their own; a
program that changes its user; names and addresses of the host. Programs in C are in `plain/`.

The addresses of the host that a case names lead to the process that listens, and are refused at
once where none does.
"""

import os
import re
import shutil
import socket
import subprocess
from pathlib import Path

from report.failure import LabFailure
from vm import network

from .programs import Program, end_fault, status_fault

# First word of the names of these cases.
GROUP = "plain"
HERE = Path(__file__).resolve().parent / "plain"
LIBRARY = "/usr/lib/x86_64-linux-gnu/libibverbs.so.1"
# A user that exists nowhere, with a run directory of its own.
USER = 63999
USER_RUN_DIR = Path(f"/tmp/uroce-{USER}")
# Exit status of `uroce-run` that refuses a program.
REFUSED = 127
# Seconds in which a connection is refused. Without an answer it takes rdma_cm a minute.
AT_ONCE_SECONDS = 5
# What rping and ucmatose say of a rejection, and rdma_client, which waits for the result.
REJECTION = r"RDMA_CM_EVENT_REJECTED|^rdma_connect: Connection refused$"
SANITIZERS = ("address", "thread", "undefined", "leak")
# Most bits of address randomization with which gcc 12's ThreadSanitizer runs.
RANDOM_BITS_MAX = 28
# The parts of a static DPDK that EAL needs. pkg-config names all drivers, with their libraries.
DPDK_PARTS = ("eal", "kvargs", "telemetry", "ring")


def says(*lines):
    """A check that these lines are in the output, as expressions."""
    def fault(_, text, __):
        missing = [line for line in lines if not re.search(f"^{line}$", text, re.MULTILINE)]
        return f"did not say: {', '.join(missing)}" if missing else ""
    return fault


def alone(name, fault, status=0):
    """A program whose options are the case's."""
    return Program(name, lambda case, *_: list(case.options), fault, status=status)


def named(name, serves, calls, fault, client="", status=0):
    """A server with the options `serves`, and a client with `calls` and the case's name of the
    host."""
    def words(case, _, __, serving):
        return list(serves) if serving else [*calls, case.options[-1]]
    return Program(name, words, fault, client=client, status=status)


USES_DEVICE = says("interface lo", "made a CQ")
DEVICE = {kind: alone(f"device-{kind}", USES_DEVICE)
          for kind in ("plain", "runpath", "rpath", *SANITIZERS)}
# The shell is what is given to uroce-run, and starts the program.
LAUNCHED = Program("sh", lambda case, *_: ["-c", case.options[0]], USES_DEVICE)
STATIC = alone("static", says(".*static is statically linked.*"), REFUSED)
SET_USER = alone("set-user", says(".*set-user runs with privileges.*"), REFUSED)
EAL = {linked: alone(f"eal-{linked}", says("EAL runs", "made a CQ"))
       for linked in ("shared", "static")}
# Shared DPDK is one EAL, which the engine has started.
EAL_LATE = alone("eal-shared", says("made a CQ", "uroce: DPDK already runs .*", "EAL is refused"))
EAL_EXPORTED = alone("eal-exported", says(".*eal-exported has DPDK linked into it.*"), REFUSED)
CHANGES_USER = alone("user", says(f"runs in {USER_RUN_DIR}", "made a CQ"))


def rping_fault(_, text, __):
    """Checks that both pings arrived."""
    return "" if text.count("ping data: rdma-ping-") == 2 else "did not see two pings"


def refused_fault(_, text, __):
    """Checks that the connection was rejected, not only that it failed."""
    return "" if re.search(REJECTION, text, re.MULTILINE) else "was not rejected"


PINGS = ("-v", "-C", "2")
AS_USER = ("--reuid", USER, "--regid", USER, "--clear-groups", "rping")


def rping(case, _, __, serving):
    """Options of rping. The case's options are the server's address and the client's."""
    return ["-s" if serving else "-c", *PINGS, "-a", case.options[0 if serving else 1]]


RPING = Program("rping", rping, rping_fault)
RPING_USER = named("setpriv", (*AS_USER, "-s", *PINGS), (*AS_USER, "-c", *PINGS, "-a"), rping_fault)
UCMATOSE = named("ucmatose", (), ("-s",), status_fault)
ENDPOINT = named("rdma_server", (), ("-s",), end_fault, client="rdma_client")
UNHEARD = (alone("rping", refused_fault, 255), alone("ucmatose", refused_fault, 8),
           alone("rdma_client", refused_fault, 255))


def own_name():
    """The host's name, and its IPv4 address. None if it has no address."""
    try:
        return socket.gethostname(), socket.gethostbyname(socket.gethostname())
    except OSError:
        return None


def has_users():
    """Whether this is root that can become any user. It cannot in a user namespace of its own."""
    numbers = [line.split() for line in Path("/proc/self/uid_map").read_text().splitlines()]
    return os.geteuid() == 0 and any(int(first) <= USER < int(first) + int(count)
                                     for first, _, count in numbers)


def random_bits():
    """Bits of an address that the kernel makes random for a program."""
    return int(Path("/proc/sys/vm/mmap_rnd_bits").read_text())


def names():
    """Names and addresses of the host for IPv4."""
    own = own_name()
    return ("localhost", "127.0.0.1", "0.0.0.0", *([own[0]] if own else []))


def table(case):
    """The cases. `case` makes one of program, options, whether it has a peer, and seconds."""
    for kind in ("plain", "runpath", "rpath"):
        yield case(DEVICE[kind], (), False)
    yield case(DEVICE["plain"], (LIBRARY,), False)
    for kind in SANITIZERS:
        if kind != "thread" or random_bits() <= RANDOM_BITS_MAX:
            yield case(DEVICE[kind], (), False)
    yield case(LAUNCHED, ("device-address",), False)
    for program in (STATIC, EAL_EXPORTED, *([SET_USER] if has_users() else [])):
        yield case(program, (), False)
    for program in EAL.values():
        yield case(program, ("first",), False)
    yield case(EAL["static"], ("last",), False)
    yield case(EAL_LATE, ("last",), False)
    if has_users():
        yield case(CHANGES_USER, (), False)
        yield case(RPING_USER, ("localhost",), True)
    yield from connections(case)


def connections(case):
    """Cases of names and addresses of the host."""
    for name in names():
        yield case(RPING, ("0.0.0.0", name), True)
        yield case(UCMATOSE, (name,), True)
    yield case(ENDPOINT, ("localhost",), True)
    # A listener of IPv4 does not get IPv6.
    for bound in ("::", "::1"):
        yield case(RPING, (bound, "::1"), True)
    yield case(RPING, ("127.0.0.1", "localhost"), True)
    for name in (*names(), "::1"):
        yield case(UNHEARD[0], ("-c", "-a", name), False, AT_ONCE_SECONDS)
    for program in UNHEARD[1:]:
        yield case(program, ("-s", "localhost"), False, AT_ONCE_SECONDS)


def prepare(work):
    """Makes the programs, and the address of the host's name. Returns the programs' folder."""
    folder = work / "plain"
    folder.mkdir(exist_ok=True)
    flags = packages("--cflags", "libdpdk")
    shared = packages("--libs", "libdpdk")
    parts = [f"-l:librte_{part}.a" for part in DPDK_PARTS]
    static = ["-Wl,--whole-archive", *parts, "-Wl,--no-whole-archive", "-lnuma", "-lbsd", "-lm"]
    directory = os.path.dirname(LIBRARY)
    builds = {
        "device-plain": ("device.c", ["-libverbs"]),
        "device-runpath": ("device.c", ["-libverbs", f"-Wl,-rpath,{directory}"]),
        "device-rpath": ("device.c", ["-libverbs", "-Wl,--disable-new-dtags",
                                      f"-Wl,-rpath,{directory}"]),
        "static": ("static.c", ["-static"]),
        "set-user": ("static.c", []),
        "eal-shared": ("eal.c", [*flags, *shared, "-libverbs"]),
        "eal-static": ("eal.c", [*flags, *static, "-libverbs"]),
        "eal-exported": ("eal.c", [*flags, *static, "-Wl,--export-dynamic", "-libverbs"]),
        "user": ("user.c", ["-libverbs"]),
        **{f"device-{sanitizer}": ("device.c", [f"-fsanitize={sanitizer}", "-libverbs"])
           for sanitizer in SANITIZERS},
    }
    for name, (source, options) in builds.items():
        compile_program(folder / name, HERE / source, options)
    if has_users():
        program = folder / "set-user"
        os.chown(program, USER, USER)
        program.chmod(0o4755)
    if own := own_name():
        local(own[1])
    return folder


def packages(*words):
    """Compiler options of a library."""
    return subprocess.run(["pkg-config", *words], check=True, text=True,
                          stdout=subprocess.PIPE).stdout.split()


def compile_program(program, source, options):
    """Compiles a program. Raises LabFailure."""
    words = ["gcc", "-O1", "-g", "-Wall", "-Werror", f"-DUSER={USER}", "-o", program, source,
             *options]
    built = subprocess.run([str(word) for word in words], stderr=subprocess.PIPE, text=True)
    if built.returncode != 0:
        raise LabFailure(f"gcc does not compile {source.name}: {built.stderr[-300:]}")


def local(address):
    """Makes an address one of this network namespace."""
    if not address.startswith("127."):
        network.ip("address", "replace", f"{address}/32", "dev", "lo")


def clean_up():
    """Removes the other user's run directory."""
    shutil.rmtree(USER_RUN_DIR, ignore_errors=True)
