"""The programs that `apps` runs as Debian ships them: their options, and how success is recognised.

A program gets the same options over uroce and over Soft-RoCE. The exit status does not show every
failure: `ibv_*_pingpong` returns 0 even if the data was wrong.

Observed with Debian's programs on Soft-RoCE:
- perftest 4.5 refuses `-e` for WRITE, `-l`, `-b` and `-q` for latency, `--use-srq` for all but
  SEND, `-a` for atomics, and IPv6 with `-R`;
- UC and UD tests with several queue pairs and `--use-srq` send more messages than the shared queue
  has receives, and wait for the lost ones;
- it has no XRC and no raw packets;
- raw_ethernet_burst_lat refuses the rate limiter that it sets itself. With `--rate_limit_type=HW`
  it asks for the rate in the path of its queue pair, and a raw packet queue pair has none; with PP,
  which `raw_ethernet_bw` uses too, it writes over its own memory;
- of a READ or ATOMIC latency test only the client prints a result, not the server;
- the server of `cmtime` and of `rping -P` runs until it is killed.
"""

import re
from dataclasses import dataclass
from typing import Callable

from dataplane import programs

PERFTEST_PORT, QPERF_PORT, UCX_PORT = 18515, 19765, 13337
# The group that mckey joins, by IP version.
GROUPS = {4: "224.0.1.5", 6: "ff0e::1:5"}
# Sizes that perftest's -a sends: 2 B to 8 MiB; a datagram at most the path MTU.
ALL_SIZES = [2 ** power for power in range(1, 24)]


@dataclass(frozen=True)
class Program:
    """A program, or a server program and its client program."""

    name: str
    """Name of the server program, and of the client unless `client` names another."""
    words: Callable
    """Function that returns the options of an end. Arguments: case, this end, the other end,
    whether it serves."""
    fault: Callable
    """Function that describes the error in an end's output. Empty if there is none. Arguments:
    case, text, whether the end is the server."""
    port: int = 0
    """TCP port of the program's server. 0 if the server listens only with rdma_listen."""
    client: str = ""
    serves_for_ever: bool = False
    """Whether the program's server must be killed when the client has ended."""
    ready_seconds: float = 0
    """Seconds until the program's server listens, if that cannot be detected."""
    status: int = 0
    """Exit status of the program, or of its client, in a case that it is to refuse."""
    server_status: int | None = None
    """Exit status of the server, if it is not that of the client."""

    def of(self, serving):
        """The program of an end."""
        return self.name if serving or not self.client else self.client


def pingpong(case, here, there, serving):
    """Options of ibv_*_pingpong."""
    words = [*here.device_words, "-g", here.gid_index(case.family), "-p", PERFTEST_PORT,
             *case.options]
    return words if serving else [*words, there.meeting]


def pingpong_fault(_, text, __):
    """Checks the result. The program prints wrong data but does not fail."""
    if "invalid data" in text:
        return programs.complaint(text)
    return "" if re.search(r"^\d+ bytes in ", text, re.MULTILINE) else "did not report its bytes"


def xsrq_pingpong_fault(_, text, __):
    """Checks the last line. The program reports no bytes."""
    return "" if re.search(r"^success$", text, re.MULTILINE) else "did not say: success"


def perftest(case, here, there, serving):
    """Options of ib_*. The connection manager finds the GID itself, and over uroce perftest does
    too."""
    managed = "-R" in case.options
    words = ["-F", *here.device_words, "-p", PERFTEST_PORT, *case.options]
    if not managed:
        words += here.perftest_gid_words(case.family)
    if serving:
        return words
    return [*words, there.address(case.family) if managed else there.meeting]


def raw_ethernet(case, here, there, serving):
    """Options of raw_ethernet_*. The ends do not meet: both are given both Ethernet addresses, and
    the client sends when the server waits for it."""
    return ["-F", "--server" if serving else "--client", "-B", here.mac, "-E", there.mac,
            *case.options]


def raw_ethernet_fault(_, text, __):
    """Checks that there is a row."""
    timed = re.search(r"^ *\d+ +\d+ +[\d.]+", text, re.MULTILINE)
    return "" if programs.rows(text) or timed else "printed no row"


def limiter_fault(_, text, __):
    """Checks that raw_ethernet_burst_lat refuses its own rate limiter, and so says nothing of
    uroce."""
    return "" if "rate_limit type is forced to SW" in text else "did not refuse its rate limiter"


def perftest_fault(case, text, served):
    """Checks that there is a row for each size."""
    name = case.program.name
    if served and name in ("ib_read_lat", "ib_atomic_lat"):
        return ""
    # If the server's processor is not involved, only the client knows all sizes.
    wanted = 1 if served and not name.startswith("ib_send") and "_bw" in name else sizes(case)
    found = len(programs.rows(text))
    return "" if found >= wanted else f"reported {found} rows instead of {wanted}"


def sizes(case):
    """Number of sizes that perftest sends."""
    if "-a" not in case.options:
        return 1
    if "UD" not in case.options:
        return len(ALL_SIZES)
    mtu = int(case.options[case.options.index("-m") + 1]) if "-m" in case.options else 4096
    return sum(size <= mtu for size in ALL_SIZES)


def rping(case, here, there, serving):
    """Options of rping. Both ends print what they received."""
    address = (here if serving else there).address(case.family)
    return ["-s" if serving else "-c", "-a", address, "-v", *case.options]


def rping_fault(case, text, _):
    """Checks that all pings arrived in order."""
    count = int(case.options[case.options.index("-C") + 1])
    pings = re.findall(r"ping data: rdma-ping-(\d+): ", text)
    return "" if pings == [str(number) for number in range(count)] else (
        f"saw the pings {' '.join(pings)}")


def bound(case, here, there, serving):
    """Options of ucmatose, udaddy and cmtime: `-b` is the address to listen at, `-s` the one to
    connect to."""
    words = ["-b", here.address(case.family)] if serving else ["-s", there.address(case.family)]
    return [*words, *case.options]


def status_fault(_, text, __):
    """Checks the last line of ucmatose, udaddy and mckey."""
    return "" if "return status 0" in text else "did not say: return status 0"


def cmtime_fault(_, text, served):
    """Checks that the client prints a line for each step."""
    return "" if served or re.search(r"^connect .*\d", text, re.MULTILINE) else (
        "did not report its times")


def mckey(case, here, _, serving):
    """Options of mckey. The server is the receiver."""
    words = ["-m", GROUPS[case.family], "-b", here.address(case.family), *case.options]
    return words if serving else [*words, "-s"]


def endpoint(case, _, there, serving):
    """Options of rdma_server, which listens at every address, and rdma_client."""
    return list(case.options) if serving else ["-s", there.address(4), *case.options]


def end_fault(_, text, __):
    """Checks the last line of rdma_server and rdma_client."""
    return "" if "end 0" in text else "did not say: end 0"


def qperf(case, _, there, serving):
    """Options of qperf. The server needs none. With -cm 1 the client connects RDMA to the server's
    TCP address."""
    return [] if serving else [there.address(4), "-t", "1", *case.options]


def qperf_fault(case, text, served):
    """Checks that each test has a line of figures; a verification test only prints its name."""
    if served:
        return ""
    tests = [word for word in case.options if re.match(r"(rc|uc|ud|ver)_", word)]
    missing = [test for test in tests if f"{test}:" not in text]
    return f"no result of {', '.join(missing)}" if missing else ""


def fio(case, _, there, serving):
    """Options of fio, one job at each end. The reader is the server and waits, for every verb. Its
    peer's SENDs fail at the first RNR NAK, as fio connects with an RNR retry count of 0, so the
    server has a receive for each."""
    words = ["--ioengine=rdma", "--port=4711", "--name=job", "--thread=0",
             "--verify_state_save=0", *case.options]
    if serving:
        return [*words, "--rw=read", *(["--iodepth=64"] if "--verb=send" in words else [])]
    return [*words, "--rw=write", f"--hostname={there.address(4)}"]


def fio_fault(_, text, __):
    """Checks that fio counted no errors."""
    errors = re.findall(r"err=\s*(\d+)", text)
    return "" if errors and set(errors) == {"0"} and "verify:" not in text else (
        programs.complaint(text)[-300:])


def ucx(case, _, there, serving):
    """Options of ucx_perftest. The ends meet by TCP."""
    return ["-p", UCX_PORT, *case.options] if serving else [
        there.meeting, "-p", UCX_PORT, *case.options]


def ucx_fault(_, text, served):
    """Checks that the client prints its final figures."""
    return "" if served or re.search(r"^Final: ", text, re.MULTILINE) else "no final figures"


def no_words(*_):
    """No options."""
    return []


def devices_fault(_, text, __):
    """Checks that a device with its GUID is listed."""
    return "" if re.search(r"^ +\w+ +\t[0-9a-f]{16}$", text, re.MULTILINE) else "named no device"


def verbose(*_):
    """Option for all details."""
    return ["-v"]


def devinfo_fault(_, text, __):
    """Checks that a port is active and has an address."""
    missing = [word for word in ("PORT_ACTIVE", "RoCE v2") if word not in text]
    return f"did not say {', '.join(missing)}" if missing else ""


def transports(*_):
    """Options of ucx_info, for devices and transports."""
    return ["-d"]


def transports_fault(_, text, __):
    """Checks that both verbs transports are listed."""
    missing = [name for name in ("rc_verbs", "ud_verbs") if f"Transport: {name}" not in text]
    return f"has no {', '.join(missing)}" if missing else ""


DEVICES = Program("ibv_devices", no_words, devices_fault)
DEVINFO = Program("ibv_devinfo", verbose, devinfo_fault)
UCX_INFO = Program("ucx_info", transports, transports_fault)
PINGPONG = {kind: Program(f"ibv_{kind}_pingpong", pingpong, pingpong_fault, PERFTEST_PORT)
            for kind in ("rc", "uc", "ud", "srq")}
PINGPONG["xsrq"] = Program("ibv_xsrq_pingpong", pingpong, xsrq_pingpong_fault, PERFTEST_PORT)
PERFTEST = {name: Program(f"ib_{name}", perftest, perftest_fault, PERFTEST_PORT)
            for name in ("send_bw", "write_bw", "read_bw", "atomic_bw",
                         "send_lat", "write_lat", "read_lat", "atomic_lat")}
# Seconds until a server has made its flow.
RAW_READY = 3
RAW_ETHERNET = {name: Program(f"raw_ethernet_{name}", raw_ethernet, raw_ethernet_fault,
                              ready_seconds=RAW_READY)
                for name in ("bw", "lat")}
RAW_BURST = Program("raw_ethernet_burst_lat", raw_ethernet, limiter_fault, status=1)
RPING = Program("rping", rping, rping_fault)
UCMATOSE = Program("ucmatose", bound, status_fault)
UDADDY = Program("udaddy", bound, status_fault)
CMTIME = Program("cmtime", bound, cmtime_fault, serves_for_ever=True)
# The sender waits for three seconds after it has joined.
MCKEY = Program("mckey", mckey, status_fault, ready_seconds=1)
ENDPOINT = Program("rdma_server", endpoint, end_fault, client="rdma_client")
EXTENDED = Program("rdma_xserver", endpoint, end_fault, client="rdma_xclient")
QPERF = Program("qperf", qperf, qperf_fault, QPERF_PORT, serves_for_ever=True)
FIO = Program("fio", fio, fio_fault)
UCX = Program("ucx_perftest", ucx, ucx_fault, UCX_PORT)
