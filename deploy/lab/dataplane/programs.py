"""The programs of a case: a stock one in the guest and uroce-perf's of the same name here. For
Placement the laboratory brings the guest's program.

Both have the same options (uroce-perf uses the names of perftest and ibverbs-utils), so the options
of a case are written once. The success of a stock program is judged here too: `ibv_*_pingpong`
returns 0 even if the data was wrong, perftest prints a row of sizes and counts.

Peculiarities of Debian's perftest 4.5 on Soft-RoCE, observed between two guests:
- its ends wait for ever for messages that UC or UD lost, unless they run for a time (-D);
- it refuses to start while the port is down, which it is over vhost-user without a peer;
- a client of ib_write_bw prints nothing for its first second, and all programs pause for 0.2 to 0.6
  s around the traffic to measure the processor's clock; the rates of an emulated guest mean
  nothing;
- the server of a one-way WRITE, READ or ATOMIC test reports uninitialised memory to its client, and
  prints the client's row; a server of a READ or ATOMIC latency test prints none;
- Soft-RoCE sometimes retransmits though nothing was lost, because acknowledgements do not restart
  its timer.
"""

import re
from dataclasses import dataclass

RC, UC, UD = "RC", "UC", "UD"
# Without the GRH area, as a UD message is one packet.
ATOMIC_BYTES = 8


@dataclass(frozen=True)
class Program:
    """A test that both sides have."""

    name: str
    """The name in uroce-perf."""
    service: str
    """RC, UC or UD."""
    extra: tuple = ()
    """Options besides those of every case."""
    suffix: str = ""
    """Distinguishes the program from others of its name and service."""

    @property
    def pingpong(self):
        """Whether the program is from ibverbs-utils; all others are from perftest."""
        return self.name.endswith("_pingpong")

    @property
    def verifies(self):
        """Whether uroce-perf checks every byte, and reports that instead of perftest's row."""
        return self.pingpong

    @property
    def latency(self):
        """Whether the program measures latency: it waits for an answer to each message."""
        return self.name.endswith("_lat")

    @property
    def atomic(self):
        """Whether the program sends atomic operations, which always have eight bytes."""
        return self.name.startswith("atomic")

    @property
    def label(self):
        """The name, usable as a file name."""
        name = self.name if self.pingpong else f"{self.name}-{self.service.lower()}"
        return name + self.suffix

    @property
    def stock(self):
        """The name of the guest's program."""
        return ("ibv_" if self.pingpong else "ib_") + self.name

    @property
    def gid_option(self):
        """The option for the GID index: -g in ibverbs-utils, -x in perftest."""
        return "-g" if self.pingpong else "-x"

    def options(self, case, stock):
        """The options of an end, for the stock program or uroce-perf."""
        words = ["-p", case.port]
        if not self.atomic:
            words += ["-s", case.size]
        # A stock ud_pingpong uses the port's MTU.
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

    def client_options(self):
        """The options of a client alone."""
        return []

    def loss_options(self, case, serving):
        """uroce-perf's options for the losses of a case, in both directions."""
        return ["--loss-rx", case.loss, "--loss-tx", case.loss, "--seed", case.seed]

    def fault(self, case, text, serving):
        """Describes the error in the output of a stock program that ended with status 0. Empty if
        there is none."""
        if self.pingpong:
            return self.pingpong_fault(case, text)
        # The server of a READ or ATOMIC latency test counts nothing.
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
        """Describes the error in a ping-pong's output. Empty if there is none. The program ends
        with status 0 even if it has printed that data is wrong."""
        if "invalid data" in text:
            return complaint(text)
        wanted = 2 * case.size * case.iterations
        if not re.search(rf"^{wanted} bytes in ", text, re.MULTILINE):
            return f"did not report {wanted} bytes"
        return ""

    @staticmethod
    def count_fault(case, count):
        """Checks that the number of messages is that of the case."""
        if case.duration:
            return "" if count else "no message within the time"
        return "" if count == case.messages else f"{count} messages instead of {case.messages}"


@dataclass(frozen=True)
class Placement(Program):
    """WRITE, FLUSH and ATOMIC WRITE by the client. Debian has no program for it, so the guest's is
    rxe_placement.c."""

    wrong: str = ""
    """What is wrong with the last request, which the server must refuse. Empty if nothing is."""
    flushed: bool = True
    """Whether the rounds have a FLUSH."""

    verifies = True
    stock = "rxe_placement"
    gid_option = "-g"

    @property
    def label(self):
        """The name, usable as a file name."""
        name = "flush" if self.flushed else "atomic_write"
        return "-".join([name, "rc", *filter(None, [self.wrong])])

    def options(self, case, stock):
        """The options of an end, for the guest's program or uroce-perf."""
        words = ["-p", case.port, "-s", case.size, "-m", case.path_mtu, "-n", case.iterations]
        return [str(word) for word in words]

    def client_options(self):
        """The options of a client alone."""
        return ["-U"] * (not self.flushed) + (["-w", self.wrong] if self.wrong else [])

    def loss_options(self, case, serving):
        """uroce-perf's options for the losses of a case: it loses what it receives only if it
        requests ATOMIC WRITEs without FLUSHes, because Linux 6.12 repairs no other loss.

        Its requester repeats an ATOMIC WRITE and a FLUSH with the address 0, which a server that
        has not seen the first one must refuse. One that has does not look at the address. Its
        responder does not answer a repeated FLUSH that it has answered before."""
        both = super().loss_options(case, serving)
        return both[2:] if serving or self.flushed else both

    def fault(self, case, text, serving):
        """Describes the error in the output of the guest's program that ended with status 0. Empty
        if there is none."""
        wanted = f"{case.iterations} rounds checked"
        return "" if wanted in text.splitlines() else f"did not report {wanted}"


def rows(text):
    """The rows that perftest printed: sizes and counts. Times are infinite if the machine was too
    busy to measure its clock, but the counts are right."""
    found = re.findall(r"^ +(\d+) +(\d+) +(?:\d|inf\b)", text, re.MULTILINE)
    return [(int(size), int(count)) for size, count in found]


def complaint(text):
    """The errors that ibv_*_pingpong has printed: all lines except those with addresses."""
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
# What is refused: an ATOMIC WRITE to an address that is not a multiple of 8, a FLUSH of more than
# the region, and one of a placement type that the region does not grant.
ATOMIC_WRITES = [Placement("placement", RC, wrong=wrong, flushed=False)
                 for wrong in ("", "address")]
FLUSHES = [Placement("placement", RC, wrong=wrong) for wrong in ("", "range", "rights")]
