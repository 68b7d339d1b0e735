"""The tables of dataplane cases: program, messages, link, roles and loss.

Without `--full` the cases of a program are a covering of its axes: each pair of values of axes that
may interact (`TOGETHER`) is in at least one case. A few cases do that instead of hundreds.
"""

import collections
import itertools
from dataclasses import dataclass
from functools import partial

from . import programs
from .programs import RC, UD

PATH_MTUS = (256, 512, 1024, 2048, 4096)
FAMILIES = (4, 6)
KIB = 1024
MIB = 1024 * KIB
LOSS = 0.02
# Shares lost each way, with a path MTU and an index of the sizes at which some packets are lost.
LOSSES = ((0.001, 1024, -1), (0.01, 1024, -2), (0.05, 4096, -2))
# Programs that meet each of these: every kind of RC's requests and responses that has many packets.
LOSSY = ("rc_pingpong", "send_bw", "write_bw", "read_bw")
UROCE_SERVES, RXE_SERVES = ("uroce", "rxe"), ("rxe", "uroce")
# Axes of which every pair of values is in a case.
TOGETHER = (
    ("roles", "family"), ("roles", "path_mtu"), ("roles", "size"), ("roles", "queue_pairs"),
    ("family", "path_mtu"), ("family", "size"),
)
# Other programs send the same packets, so these only run with --full.
SELDOM = ("write_lat", "read_lat")


@dataclass(frozen=True)
class Case:
    """One session of two peers."""

    program: programs.Program
    """The program at both ends."""
    server: str
    """Name of the peer that serves."""
    client: str
    """Name of the other peer."""
    family: int = 4
    """IP version of the RoCE packets."""
    path_mtu: int = 4096
    """Bytes of payload per packet."""
    size: int = 1
    """Bytes per message."""
    iterations: int = 0
    """Messages per queue pair."""
    duration: int = 0
    """Seconds to send instead of a number of messages. 0 if `iterations` applies."""
    queue_pairs: int = 1
    """Queue pairs at each end."""
    bidirectional: bool = False
    """Whether both ends send in a bandwidth test."""
    loss: float = 0
    """Share of packets lost in each direction, 0 to 1."""
    seed: int = 1
    """Seed of the losses."""
    link: str = "tap"
    """The kind of link to the guest."""

    port = 18515

    @property
    def name(self):
        """The name, usable as a file name and in a table."""
        words = [self.program.label, f"v{self.family}", f"mtu{self.path_mtu}",
                 f"{self.message_bytes}B"]
        words += [f"q{self.queue_pairs}"] * (self.queue_pairs > 1)
        words += ["both-ways"] * self.bidirectional
        words += [f"loss{self.loss * 100:g}"] * (self.loss > 0)
        words += [self.link] * (self.link != "tap")
        return "-".join([*words, self.server, "serves"])

    def fields(self):
        """Fields for the JSON report."""
        return {
            "program": self.program.name, "service": self.program.service, "family": self.family,
            "path_mtu": self.path_mtu, "size": self.message_bytes,
            "iterations": self.iterations, "duration": self.duration,
            "queue_pairs": self.queue_pairs, "bidirectional": self.bidirectional,
            "link": self.link, "loss": self.loss, "seed": self.seed,
        }

    @property
    def message_bytes(self):
        """Bytes per message as the program sends them."""
        return programs.ATOMIC_BYTES if self.program.atomic else self.size

    @property
    def messages(self):
        """Messages of all queue pairs of one end."""
        return self.iterations * self.queue_pairs

    @property
    def seconds(self):
        """Time limit. Each loss of a message's last packet costs an ACK timeout of up to 0.3 s. If
        all packets are lost there is nothing to wait for."""
        if self.loss == 1:
            return 5
        return 60 if self.loss else 30


def dataplane(everything, brief=False, places=False):
    """Cases of uroce against Soft-RoCE, with both roles. `brief` leaves out seven of eight
    cases without loss, most of those over UDP sockets, and one of three shares of loss. `places`
    adds those for a kernel with ATOMIC WRITE and FLUSH."""
    chosen = [program for program in programs.ALL if everything or program.name not in SELDOM]
    tables = (partial(clean, everything, brief), partial(special, brief), over_vhost,
              partial(over_udp, brief))
    cases = [case for table in tables for program in chosen for case in table(program)]
    return cases + (placement() if places else [])


def placement():
    """Cases of ATOMIC WRITE and FLUSH, which the client requests. FLUSHes are over a link that
    mends their CRC, which Soft-RoCE computes wrongly (vm/mender.py)."""
    cases = []
    for roles, family in ((UROCE_SERVES, 4), (RXE_SERVES, 6)):
        other = 10 - family
        plain, misaligned, flushed, *refused = (
            partial(case_of, program, roles)
            for program in (*programs.ATOMIC_WRITES, *programs.FLUSHES))
        cases += [plain(family, 4096, 0), plain(other, 256, 1), misaligned(other, 1024, 2),
                  plain(other, 1024, 2, loss=LOSS)]
        cases += [plain(family, 1024, 2, link=link) for link in ("vhost", "udp")]
        flushed = partial(flushed, link="mended")
        cases += [flushed(family, 4096, 0), flushed(other, 256, 1), flushed(other, 1024, 2),
                  flushed(family, 4096, 3), flushed(family, 1024, 2, loss=LOSS),
                  flushed(other, 4096, -2, loss=LOSS)]
        cases += [make(family, 1024, 2, link="mended") for make in refused]
    return cases


def clean(everything, brief, program):
    """Cases of a program without loss."""
    axes = {
        "roles": (UROCE_SERVES, RXE_SERVES), "family": FAMILIES,
        "path_mtu": PATH_MTUS[-1:] if program.atomic else PATH_MTUS,
        "size": range(len(sizes(program, PATH_MTUS[0]))),
        "queue_pairs": (1,) if program.pingpong or program.latency else (1, 3),
    }
    together = TOGETHER + (("path_mtu", "size"),) * (program.name == "rc_pingpong")
    rows = product(axes) if everything else covering(axes, together)
    # Rows 0, 15, 16, 31 and so on: the values of an axis may alternate.
    return [case_of(program, **row) for at, row in enumerate(rows)
            if not brief or at % 16 in (0, 15)]


def special(brief, program):
    """Cases with loss in each direction, and cases with both ends sending, with both roles and
    alternating IP versions. `brief` leaves out the middle share of LOSSES."""
    losses = LOSSES[::2] if brief else LOSSES
    cases = []
    for (roles, family) in ((UROCE_SERVES, 4), (RXE_SERVES, 6)):
        if program.service == RC:
            cases.append(case_of(program, roles, family, 1024, 0, loss=LOSS))
            cases.append(case_of(program, roles, 10 - family, 4096, -2, loss=LOSS))
        elif program.name.endswith("_bw"):
            # Soft-RoCE's end would wait for ever for a number of messages.
            cases.append(case_of(program, roles, family, 1024, 2, loss=LOSS, duration=1))
        if program.service == RC and program.name in LOSSY:
            cases += [case_of(program, roles, family, path_mtu, size, loss=share)
                      for share, path_mtu, size in losses]
        if program.name in ("send_bw", "write_bw", "read_bw"):
            cases.append(case_of(program, roles, family, 1024, 1, 2, bidirectional=True))
    return cases


def over_vhost(program):
    """Cases over vhost-user with both roles, alternating IP versions, and the second longest
    messages."""
    return [
        case_of(program, roles, family, mtu, -2, link="vhost")
        for roles, family, mtu in ((UROCE_SERVES, 6, 1024), (RXE_SERVES, 4, 4096))
    ]


def over_udp(brief, program):
    """Cases over the kernel's UDP sockets with both roles and both IP versions: RC with loss in
    each direction and without, the other services with loss. `brief` has WRITE and UD alone."""
    if program.name not in LOSSY or brief and (program.name, program.service) not in (
            ("write_bw", RC), ("send_bw", UD)):
        return []
    if program.service != RC:
        # A tap drops what its queue has no room for, and Soft-RoCE's end would wait for ever for a
        # number of messages.
        return [case_of(program, roles, family, 1024, 2, link="udp", loss=LOSS, duration=1)
                for roles, family in ((UROCE_SERVES, 6), (RXE_SERVES, 4))]
    whole = ((UROCE_SERVES, 6, 4096, 0), (RXE_SERVES, 4, 4096, 0))
    lossy = [(roles, family, 1024, LOSS)
             for roles in (UROCE_SERVES, RXE_SERVES) for family in FAMILIES]
    return [case_of(program, roles, family, mtu, -2, link="udp", loss=loss)
            for roles, family, mtu, loss in (*lossy, *whole)]


def selftest(places=False):
    """Cases of two guests, each program once, which test the laboratory and not Soft-RoCE."""
    roles = ("guest1", "guest2")
    every = programs.ALL + (programs.ATOMIC_WRITES + programs.FLUSHES if places else [])
    cases = [case_of(program, roles, family, 1024, -1)
             for program, family in zip(every, itertools.cycle(FAMILIES))]
    return cases + [case_of(programs.PINGPONGS[0], roles, family, 1024, 2, loss=LOSS)
                    for family in FAMILIES]


def case_of(program, roles, family, path_mtu, size, queue_pairs=1, **rest):
    """Makes a case; `size` is an index of the program's `sizes`."""
    choices = sizes(program, path_mtu)
    length = choices[max(-len(choices), min(size, len(choices) - 1))]
    count = 0 if rest.get("duration") else iterations(length, program, rest.get("loss"))
    seed = 1 + PATH_MTUS.index(path_mtu) + 10 * family
    return Case(program, *roles, family, path_mtu, length, count, queue_pairs=queue_pairs,
                seed=seed, **rest)


def sizes(program, path_mtu):
    """Sizes for which headers, padding or the number of packets differ."""
    if program.atomic:
        return (programs.ATOMIC_BYTES,)
    if program.service == UD:
        return (1, path_mtu // 2 + 1, path_mtu)
    if program.latency:
        return (1, path_mtu, path_mtu + 1, 16 * KIB)
    return (1, path_mtu, path_mtu + 1, 64 * KIB, MIB)


def iterations(size, program, loss):
    """Enough packets that some are lost at 2 %, and few enough for an emulated guest. UC and UD
    never send more than the peer has receive requests."""
    if size >= MIB:
        return 5
    if size >= 16 * KIB:
        return 20
    if program.pingpong or program.latency:
        return 100
    return 500 if loss else 200


def product(axes):
    """Every combination, as a dictionary each."""
    return [dict(zip(axes, values)) for values in itertools.product(*axes.values())]


def covering(axes, together):
    """Combinations in which each pair of values of two axes in `together` occurs. Of several
    candidates the one with the least used values is taken."""
    missing = {
        (one, first, other, second) for one, other in together
        for first in axes[one] for second in axes[other]
    }
    rows, used = [], collections.Counter()
    while missing:
        best = max(product(axes), key=lambda row: (
            len(met(row, missing)), -sum(used[item] for item in row.items())))
        missing -= met(best, missing)
        used.update(best.items())
        rows.append(best)
    return rows


def met(row, pairs):
    """The pairs that a combination has."""
    return {pair for pair in pairs if row[pair[0]] == pair[1] and row[pair[2]] == pair[3]}
