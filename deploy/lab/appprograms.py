"""The programs that `apps` runs as Debian ships them: their words, and what success looks like.

The same words go to a program over uroce and over Soft-RoCE. A program says more of its success
than its status does: `ibv_*_pingpong` ends with status 0 whatever it found in the data.

Seen of Debian's programs on Soft-RoCE:
- perftest 4.5 refuses `-e` for WRITE, `-l`, `-b` and `-q` for latency, `--use-srq` for all but SEND,
  `-a` for atomics, and IPv6 with `-R`;
- UC and UD tests of several queue pairs with `--use-srq` send more than the shared queue has
  receives, and wait for what is lost;
- the client of a READ or ATOMIC latency test reports, its server does not;
- the server of `cmtime` and of `rping -P` ends only when it is killed.
"""

import re
from dataclasses import dataclass
from typing import Callable

import programs

PERFTEST_PORT, QPERF_PORT, UCX_PORT = 18515, 19765, 13337
# The group that mckey joins, by the family of its address.
GROUPS = {4: "224.0.1.5", 6: "ff0e::1:5"}
# Sizes that perftest's -a goes through: 2 B to 8 MiB, a datagram to the path MTU.
ALL_SIZES = [2 ** power for power in range(1, 24)]


@dataclass(frozen=True)
class Program:
    """One program, or two that belong together."""

    name: str
    """The server's, and the client's unless `client` says another."""
    words: Callable
    """The words of an end: called with the case, this end, the other one's and whether it serves."""
    fault: Callable
    """What is wrong with an end's output: called with the case, the text and whether it served."""
    port: int = 0
    """Where its server listens by TCP; 0 if it listens by rdma_listen alone."""
    client: str = ""
    serves_for_ever: bool = False
    """Its server is killed once the client is done."""
    ready_seconds: float = 0
    """How long its server needs, where nothing tells when it listens."""

    def of(self, serving):
        """The program that an end runs."""
        return self.name if serving or not self.client else self.client


def pingpong(case, here, there, serving):
    """Of ibv_*_pingpong."""
    words = [*here.device_words, "-g", here.gid_index(case.family), "-p", PERFTEST_PORT,
             *case.options]
    return words if serving else [*words, there.meeting]


def pingpong_fault(_, text, __):
    """It counts its bytes; it only prints what it found wrong in the data."""
    if "invalid data" in text:
        return programs.complaint(text)
    return "" if re.search(r"^\d+ bytes in ", text, re.MULTILINE) else "did not report its bytes"


def perftest(case, here, there, serving):
    """Of ib_*. The connection manager finds the GID itself, and over uroce so does perftest."""
    managed = "-R" in case.options
    words = ["-F", *here.device_words, "-p", PERFTEST_PORT, *case.options]
    if not managed:
        words += here.perftest_gid_words(case.family)
    if serving:
        return words
    return [*words, there.address(case.family) if managed else there.meeting]


def perftest_fault(case, text, served):
    """It reports a row for each size."""
    name = case.program.name
    if served and name in ("ib_read_lat", "ib_atomic_lat"):
        return ""
    # Only the client knows all sizes where the server's processor has no part.
    wanted = 1 if served and not name.startswith("ib_send") and "_bw" in name else sizes(case)
    found = len(programs.rows(text))
    return "" if found >= wanted else f"reported {found} rows instead of {wanted}"


def sizes(case):
    """How many sizes perftest goes through."""
    if "-a" not in case.options:
        return 1
    if "UD" not in case.options:
        return len(ALL_SIZES)
    mtu = int(case.options[case.options.index("-m") + 1]) if "-m" in case.options else 4096
    return sum(size <= mtu for size in ALL_SIZES)


def rping(case, here, there, serving):
    """Both ends say what they were sent."""
    address = (here if serving else there).address(case.family)
    return ["-s" if serving else "-c", "-a", address, "-v", *case.options]


def rping_fault(case, text, _):
    """Each ping, in order."""
    count = int(case.options[case.options.index("-C") + 1])
    pings = re.findall(r"ping data: rdma-ping-(\d+): ", text)
    return "" if pings == [str(number) for number in range(count)] else (
        f"saw the pings {' '.join(pings)}")


def bound(case, here, there, serving):
    """Of ucmatose, udaddy and cmtime: `-b` where to listen, `-s` whom to connect to."""
    words = ["-b", here.address(case.family)] if serving else ["-s", there.address(case.family)]
    return [*words, *case.options]


def status_fault(_, text, __):
    """What ucmatose, udaddy and mckey say last."""
    return "" if "return status 0" in text else "did not say: return status 0"


def cmtime_fault(_, text, served):
    """A line for each step."""
    return "" if served or re.search(r"^connect .*\d", text, re.MULTILINE) else (
        "did not report its times")


def mckey(case, here, _, serving):
    """The one who serves receives."""
    words = ["-m", GROUPS[case.family], "-b", here.address(case.family), *case.options]
    return words if serving else [*words, "-s"]


def endpoint(case, _, there, serving):
    """Of rdma_server, which listens at every address, and rdma_client."""
    return list(case.options) if serving else ["-s", there.address(4), *case.options]


def end_fault(_, text, __):
    """What rdma_server and rdma_client say last."""
    return "" if "end 0" in text else "did not say: end 0"


def qperf(case, _, there, serving):
    """The server needs no words. With -cm 1 the client connects to where it met the server by TCP."""
    return [] if serving else [there.address(4), "-t", "1", *case.options]


def qperf_fault(case, text, served):
    """A line of figures for each test; a verification says nothing but its name."""
    if served:
        return ""
    tests = [word for word in case.options if re.match(r"(rc|uc|ud|ver)_", word)]
    missing = [test for test in tests if f"{test}:" not in text]
    return f"no result of {', '.join(missing)}" if missing else ""


def fio(case, _, there, serving):
    """One job at each end. Who reads is the server, and waits, whatever the verb. Its peer's SENDs fail
    at the first RNR NAK (fio connects with an RNR retry count of 0), so it has a receive for each."""
    words = ["--ioengine=rdma", "--port=4711", "--name=job", "--thread=0",
             "--verify_state_save=0", *case.options]
    if serving:
        return [*words, "--rw=read", *(["--iodepth=64"] if "--verb=send" in words else [])]
    return [*words, "--rw=write", f"--hostname={there.address(4)}"]


def fio_fault(_, text, __):
    """It counts its errors."""
    errors = re.findall(r"err=\s*(\d+)", text)
    return "" if errors and set(errors) == {"0"} and "verify:" not in text else (
        programs.complaint(text)[-300:])


def ucx(case, _, there, serving):
    """The meeting is by TCP."""
    return ["-p", UCX_PORT, *case.options] if serving else [
        there.meeting, "-p", UCX_PORT, *case.options]


def ucx_fault(_, text, served):
    """The client reports its figures."""
    return "" if served or re.search(r"^Final: ", text, re.MULTILINE) else "no final figures"


def no_words(*_):
    """None."""
    return []


def devices_fault(_, text, __):
    """A line with a GUID."""
    return "" if re.search(r"^ +\w+ +\t[0-9a-f]{16}$", text, re.MULTILINE) else "named no device"


def verbose(*_):
    """All it knows."""
    return ["-v"]


def devinfo_fault(_, text, __):
    """A port that is up, with an address."""
    missing = [word for word in ("PORT_ACTIVE", "RoCE v2") if word not in text]
    return f"did not say {', '.join(missing)}" if missing else ""


def transports(*_):
    """Of ucx_info: devices and transports."""
    return ["-d"]


def transports_fault(_, text, __):
    """Both transports of verbs."""
    missing = [name for name in ("rc_verbs", "ud_verbs") if f"Transport: {name}" not in text]
    return f"has no {', '.join(missing)}" if missing else ""


DEVICES = Program("ibv_devices", no_words, devices_fault)
DEVINFO = Program("ibv_devinfo", verbose, devinfo_fault)
UCX_INFO = Program("ucx_info", transports, transports_fault)
PINGPONG = {kind: Program(f"ibv_{kind}_pingpong", pingpong, pingpong_fault, PERFTEST_PORT)
            for kind in ("rc", "uc", "ud", "srq")}
PERFTEST = {name: Program(f"ib_{name}", perftest, perftest_fault, PERFTEST_PORT)
            for name in ("send_bw", "write_bw", "read_bw", "atomic_bw",
                         "send_lat", "write_lat", "read_lat", "atomic_lat")}
RPING = Program("rping", rping, rping_fault)
UCMATOSE = Program("ucmatose", bound, status_fault)
UDADDY = Program("udaddy", bound, status_fault)
CMTIME = Program("cmtime", bound, cmtime_fault, serves_for_ever=True)
# The sender waits for three seconds once it has joined.
MCKEY = Program("mckey", mckey, status_fault, ready_seconds=1)
ENDPOINT = Program("rdma_server", endpoint, end_fault, client="rdma_client")
QPERF = Program("qperf", qperf, qperf_fault, QPERF_PORT, serves_for_ever=True)
FIO = Program("fio", fio, fio_fault)
UCX = Program("ucx_perftest", ucx, ucx_fault, UCX_PORT)
