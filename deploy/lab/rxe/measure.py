"""From what the guest says to figures.

Throughput and the mean latency come from the packets that Soft-RoCE has counted between two
moments in the middle of a run, and from the time between them. perftest's own figures stand beside
them.
"""

import math
import re
from dataclasses import dataclass, field

from report.failure import LabFailure

# Without write_lat and send_lat: both their ends poll, and with one CPU each waits for the other's
# time slice of 10 ms. In read_lat the server's process has no part.
TESTS = ("write_bw", "read_bw", "send_bw", "read_lat")
PATH_MTUS = (4096, 2048, 1024, 512, 256)
# Bytes of headers that Soft-RoCE sets aside in the MTU of an interface.
HEADERS = 80
MTU_MIN = PATH_MTUS[-1] + HEADERS
SIZE_MAX = 1 << 23
# Devices, by the part that they have in a run.
SERVER, CLIENT = 0, 1
# Counters of Soft-RoCE that move when something was lost, late or sent again.
REPAIRS = ("out_of_seq_request", "duplicate_request", "rcvd_rnr_err", "send_rnr_err",
           "rcvd_seq_err", "completer_retry_err", "retry_exceeded_err", "retry_rnr_exceeded_err",
           "send_err")
# The name of a column of perftest, as "#bytes", "BW average[MB/sec]" or "99.9% percentile[usec]".
COLUMN = re.compile(r"[\w#.%]+(?: (?:peak|average|percentile))?(?:\[[^]]*\])?")


def path_mtu(mtu):
    """The largest path MTU over interfaces of an MTU."""
    return next(bytes for bytes in PATH_MTUS if bytes + HEADERS <= mtu)


def plan(tests, sizes, mtus, seconds):
    """The text that `init` runs."""
    calls = []
    for mtu in mtus:
        calls.append(f"mtu {mtu}")
        calls += [f"measure {test} {size} {path_mtu(mtu)} {seconds}"
                  for test in tests for size in sizes]
    return "\n".join(calls) + "\n"


@dataclass
class Run:
    """What the guest has said of one measurement."""

    test: str
    size: int
    path_mtu: int
    late: bool = False
    """Whether perftest had ended at the second sample."""
    samples: list = field(default_factory=list)
    """(time, packets sent by the server's device, by the client's), twice."""
    counters: dict = field(default_factory=dict)
    """By "before" or "after", device and name."""
    status: dict = field(default_factory=dict)
    """Exit status by part of the measurement and end."""
    output: dict = field(default_factory=dict)
    """Lines of perftest by part and end."""

    @property
    def name(self):
        """The run in messages."""
        return f"ib_{self.test} of {self.size} bytes, path MTU {self.path_mtu}"


class Reader:
    """Makes figures of the guest's lines."""

    def __init__(self):
        self.kernel = None
        self.cpus = None
        self.run = None

    def take(self, moment, line):
        """Takes one line; returns figures if that line completes some. Raises LabFailure."""
        try:
            return self.understood(moment, *line.split(" "))
        except ValueError:
            raise LabFailure(f"a line of the guest cannot be read: {line}") from None

    def understood(self, moment, word, *rest):
        """Takes one line as words. Raises ValueError if it has too few, or no number."""
        if word == "ready":
            self.kernel, cpus = rest
            self.cpus = int(cpus)
        elif word == "begin":
            test, size, path_mtu = rest
            self.run = Run(test, int(size), int(path_mtu))
        elif word == "sample":
            server, client = map(int, rest)
            self.run.samples.append((moment, server, client))
        elif word == "late":
            self.run.late = True
        elif word == "counter":
            when, device, name, value = rest
            self.run.counters[when, device, name] = int(value)
        elif word == "status":
            part, end, status = rest
            self.run.status[part, end] = int(status)
        elif word == "output":
            part, end, *words = rest
            self.run.output.setdefault((part, end), []).append(" ".join(words))
        elif word == "failed":
            raise LabFailure(f"in the guest: {' '.join(rest)}")
        elif word == "end":
            return figures(self.run)
        return None


def figures(run):
    """The figures of a run as an object, or in place of them an error."""
    point = {"test": run.test, "size": run.size, "path_mtu": run.path_mtu}
    if any(run.status.values()) or len(run.samples) != 2:
        said = [line.strip() for lines in run.output.values() for line in lines if line.strip()]
        return point | {"error": f"{run.name} failed in the guest: {' | '.join(said[-6:])}"}
    if run.late:
        return point | {"error": f"{run.name}: perftest ended before the second sample; this "
                                 f"machine is too busy to measure on"}
    sender = SERVER if run.test.startswith("read") else CLIENT
    (begin, *first), (end, *last) = run.samples
    packets, seconds = last[sender] - first[sender], end - begin
    if packets == 0:
        return point | {"error": f"{run.name}: no packet in {seconds:.1f} s"}
    of_message = math.ceil(run.size / run.path_mtu)
    own = table(run.output.get(("run", "client"), []))
    point["seconds"] = round(seconds, 4)
    if run.test.endswith("_lat"):
        # The whole turn, as perftest has it for a READ.
        point["usec"] = seconds * 1e6 / (packets / of_message)
        point["perftest_usec"] = own.get("t_avg[usec]")
        point |= distribution(table(run.output.get(("turns", "client"), [])))
    else:
        messages = packets / of_message / seconds
        point |= {"messages_per_second": messages, "gbps": messages * run.size * 8 / 1e9,
                  "perftest_gbps": own.get("BW average[Gb/sec]")}
    return point | {"repairs": repairs(run.counters)}


def distribution(columns):
    """perftest's percentiles of a latency."""
    names = {"p50_usec": "t_typical[usec]", "p99_usec": "99% percentile[usec]",
             "p999_usec": "99.9% percentile[usec]", "max_usec": "t_max[usec]"}
    return {name: columns.get(column) for name, column in names.items()}


def table(lines):
    """The columns of perftest's last row by their names. Empty if it has none, or no time."""
    names, found = [], {}
    for line in lines:
        if line.startswith("Correlation coefficient"):
            # Its clock was not steady enough on a busy machine: its times are 0 or inf.
            return {}
        if line.lstrip().startswith("#bytes"):
            names = COLUMN.findall(line)
        elif names and re.fullmatch(r"[\s\d.]+", line) and len(line.split()) == len(names):
            found = dict(zip(names, map(float, line.split())))
    return found


def repairs(counters):
    """How often each counter in REPAIRS moved in a run, at both ends together."""
    moved = {}
    for name in REPAIRS:
        total = sum(value - counters.get(("before", device, name), 0)
                    for (when, device, counted), value in counters.items()
                    if when == "after" and counted == name)
        if total:
            moved[name] = total
    return moved
