"""The programs a case runs: a stock one in the guest and uroce-perf's of the same name here.

Both take the same options (uroce-perf has perftest's and ibverbs-utils' names), so a case's options
are written once. What a stock program says of its success is read here too: `ibv_*_pingpong` ends
with status 0 whatever it found in the data, perftest with a row of sizes and counts.

What is peculiar to Debian's perftest 4.5 on Soft-RoCE, seen between two guests:
- its ends wait for ever for messages that UC or UD lost, unless they run for a time (-D);
- it refuses to start while the port is down, which it is over vhost-user without a peer;
- a client of ib_write_bw says nothing for its first second, and all pause for 0.2 to 0.6 s around
  the traffic to measure the processor's clock; the rates of an emulated guest mean nothing;
- the server of a one-way WRITE, READ or ATOMIC test reports uninitialised memory to its client,
  and prints the client's row; a server of a READ or ATOMIC latency test prints none;
- Soft-RoCE sends again now and then though nothing was lost: its timer runs on across
  acknowledgements.
"""

import re
from dataclasses import dataclass

RC, UC, UD = "RC", "UC", "UD"
# The GRH area does not count: a UD message is one packet.
ATOMIC_BYTES = 8


@dataclass(frozen=True)
class Program:
    """A test that both sides have."""

    name: str
    """uroce-perf's name of it."""
    service: str
    """RC, UC or UD."""
    extra: tuple = ()
    """Options beside those every case gives."""
    suffix: str = ""
    """What tells it from a program of the same name and service."""

    @property
    def pingpong(self):
        """Of ibverbs-utils; all others are perftest's."""
        return self.name.endswith("_pingpong")

    @property
    def latency(self):
        """Messages one by one, each answered."""
        return self.name.endswith("_lat")

    @property
    def atomic(self):
        """Its messages are eight bytes whatever is asked for."""
        return self.name.startswith("atomic")

    @property
    def label(self):
        """Fit for a file name."""
        name = self.name if self.pingpong else f"{self.name}-{self.service.lower()}"
        return name + self.suffix

    @property
    def stock(self):
        """The name of the guest's program."""
        return ("ibv_" if self.pingpong else "ib_") + self.name

    @property
    def gid_option(self):
        """ibverbs-utils call the GID index g, perftest x."""
        return "-g" if self.pingpong else "-x"

    def options(self, case, stock):
        """What an end is given, the stock program's or uroce-perf's, as words."""
        words = ["-p", case.port]
        if not self.atomic:
            words += ["-s", case.size]
        # A stock ud_pingpong takes the port's.
        if not (stock and self.name == "ud_pingpong"):
            words += ["-m", case.path_mtu]
        words += ["-D", case.duration] if case.duration else ["-n", case.iterations]
        if self.pingpong:
            return [str(word) for word in [*words, "-c", *self.extra]]
        words += ["-F", "-c", self.service]
        if case.queue_pairs > 1:
            words += ["-q", case.queue_pairs]
        if case.bidirectional:
            words += ["-b"]
        return [str(word) for word in [*words, *self.extra]]

    def fault(self, case, text, serving):
        """What a stock program that ended with status 0 found wrong; empty if nothing."""
        if self.pingpong:
            return self.pingpong_fault(case, text)
        # The server of a READ or ATOMIC latency test has nothing to count.
        if serving and self.latency and self.name.split("_")[0] in ("read", "atomic"):
            return ""
        reported = rows(text)
        if not reported:
            return "did not report a row"
        size, count = reported[-1]
        if size != case.message_bytes:
            return f"reported messages of {size} bytes"
        return self.count_fault(case, count)

    def pingpong_fault(self, case, text):
        """It only prints what it found wrong in the data."""
        if "invalid data" in text:
            return complaint(text)
        wanted = 2 * case.size * case.iterations
        if not re.search(rf"^{wanted} bytes in ", text, re.MULTILINE):
            return f"did not report {wanted} bytes"
        return ""

    @staticmethod
    def count_fault(case, count):
        """Whether a number of messages is the one the case asks for."""
        if case.duration:
            return "" if count else "no message within the time"
        return "" if count == case.messages else f"{count} messages instead of {case.messages}"


def rows(text):
    """The rows that perftest printed: sizes and counts. Times are infinite where the machine was too
    busy for it to tell how fast its clock goes; what it counts is right."""
    found = re.findall(r"^ +(\d+) +(\d+) +(?:\d|inf\b)", text, re.MULTILINE)
    return [(int(size), int(count)) for size, count in found]


def complaint(text):
    """What ibv_*_pingpong found wrong: it says so in one or two lines before its addresses."""
    lines = [line for line in text.splitlines() if " address: " not in line]
    return ", ".join(lines)


PINGPONGS = [Program("rc_pingpong", RC), Program("uc_pingpong", UC), Program("ud_pingpong", UD)]
PERFTESTS = [
    Program("send_bw", RC), Program("send_bw", UC), Program("send_bw", UD),
    Program("write_bw", RC), Program("write_bw", UC), Program("read_bw", RC),
    Program("atomic_bw", RC, ("-A", "FETCH_AND_ADD"), "-fadd"),
    Program("atomic_bw", RC, ("-A", "CMP_AND_SWAP"), "-cas"),
    Program("send_lat", RC), Program("send_lat", UC), Program("send_lat", UD),
    Program("write_lat", RC), Program("read_lat", RC),
]
ALL = PINGPONGS + PERFTESTS
