"""The cases of unmodified applications: program, options and peers.

The cases of a program are a covering: each of its options is in at least one case, for each
service. With `--full` there is also a case for each single option.
"""

import dataclasses
import itertools
import re
from dataclasses import dataclass, field

from dataplane.programs import RC, UC, UD

from . import options, plain
from . import programs as apps

# Two processes over uroce; one over uroce and one over Soft-RoCE; two over Soft-RoCE, to compare
# their output with that over uroce; a program without a peer.
PAIRINGS = PAIR, GUEST, ORACLE, ALONE = "pair", "guest", "oracle", "alone"
NOBODY = "-"
# perftest's name of the service that Soft-RoCE does not have.
XRC = "XRC"
SERVES = (("uroce", "rxe"), ("rxe", "uroce"))
SECONDS = 40
# perftest measures the processor's clock again for each size.
ALL_SIZES_SECONDS = 120
DEVICE = "uroce0"


@dataclass(frozen=True)
class Case:
    """One session of two programs, or one program alone."""

    program: apps.Program = field(repr=False)
    options: tuple
    pairing: str
    server: str = "uroce"
    client: str = "uroce"
    family: int = 4
    seconds: int = SECONDS
    stock: bool = True
    """Whether Soft-RoCE supports the session and the guest has the program."""
    compared: bool = True
    """Whether the case is also run over Soft-RoCE alone, to compare the output."""
    environment: tuple = ()
    """Variables for the environment of both ends, as NAME=value."""

    group: str = ""
    """First word of the name, for cases that are not a covering of a program's options."""

    link = "tap"

    @property
    def name(self):
        """The name, usable as a file name and in a table."""
        options = "".join(f"{'' if word.startswith('-') else '='}{word}" for word in self.options)
        transport = "".join(word.removeprefix("UCX_TLS=") for word in self.environment[:1])
        words = [self.group, self.program.client or self.program.name, transport, options,
                 "v6" if self.family == 6 else "", self.pairing,
                 f"{self.server}-serves" if self.pairing == GUEST else ""]
        return " ".join(word for word in words if word)

    @property
    def file_name(self):
        """The name without characters that are special to shells and file systems."""
        return re.sub("[^A-Za-z0-9_.-]", "", self.name.replace(" ", "_"))

    @property
    def session(self):
        """The part of the case that does not depend on the place."""
        return self.program.name, self.options, self.family, self.environment

    @property
    def port(self):
        """TCP port of the server. 0 if the server listens with rdma_listen."""
        return 0 if "-R" in self.options else self.program.port

    @property
    def is_brief(self):
        """Whether a brief run includes the case. It does not if the case runs for a fixed time,
        sends messages of all sizes one by one, to the guest, by UC or over IPv6, is of one of
        perftest's options without uroce-perf as the server, of the rarer kinds of raw frames, or
        only tells what Soft-RoCE prints."""
        slow_sizes = (self.pairing == GUEST or self.program.name.endswith("_lat")
                      or "-c" in self.options or self.family == 6)
        more_frames = self.program.name == "raw_ethernet_bw" and bool(
            {"-l", "--tcp", "--promiscuous"} & set(self.options))
        other_ends = self.group.startswith(options.GROUP) and self.program.name != options.OURS
        return ("-D" not in self.options and not ("-a" in self.options and slow_sizes)
                and not other_ends and not more_frames and self.pairing != ORACLE)

    def over_uroce(self):
        """The case with its session between processes over uroce."""
        pairing = ALONE if self.client == NOBODY else PAIR
        return again(self, pairing, "uroce", "uroce" if pairing == PAIR else NOBODY)

    def fields(self):
        """Fields for the JSON report."""
        return {"program": self.program.name, "options": list(self.options),
                "family": self.family, "pairing": self.pairing}


def table(everything=False, brief=False):
    """All cases, or those of a brief run, grouped by place, the quickest place first."""
    pairs = [*between_two(everything)]
    oracle = [again(case, ORACLE, "rxe", "rxe" if case.client == "uroce" else NOBODY)
              for case in pairs if case.stock and case.compared]
    every = [*pairs, *with_guest(everything, brief), *oracle]
    return [case for case in every if case.is_brief or not brief]


def again(case, pairing, server, client):
    """The case with its session at other places."""
    return dataclasses.replace(case, pairing=pairing, server=server, client=client)


def between_two(everything):
    """Cases of two processes over uroce."""
    yield from alone()
    yield from pingpongs(PAIR)
    yield from perftests(PAIR, everything)
    yield from raw_ethernets()
    yield from managed(PAIR)
    yield from others()
    yield from plain.table(plain_case)
    yield from options.table(option_case)


def plain_case(program, options, has_peer, seconds=SECONDS):
    """A case of a program that `uroce-run` gets without an option."""
    pairing, client = (PAIR, "uroce") if has_peer else (ALONE, NOBODY)
    return Case(program, options, pairing, client=client, seconds=seconds, stock=False,
                group=plain.GROUP)


def option_case(program, words):
    """A case of one of perftest's options. The names of both programs are in its name."""
    return Case(program, words, PAIR, stock=False, group=f"{options.GROUP} {program.name}")


def alone():
    """Cases that need no peer."""
    for program in (apps.DEVICES, apps.DEVINFO, apps.UCX_INFO):
        yield Case(program, (), ALONE, client=NOBODY, stock=program is not apps.UCX_INFO)


def pingpongs(pairing):
    """Cases of ibverbs-utils' programs, with each of their options."""
    def case(kind, options, family=4, stock=True):
        return Case(apps.PINGPONG[kind], tuple(options.split()), pairing, family=family,
                    stock=stock)

    yield case("rc", "-n 20 -c")
    yield case("rc", "-n 20 -e -m 4096", 6)
    yield case("rc", "-n 20 -N -c -m 1024")
    # Soft-RoCE does not support timestamps.
    yield case("rc", "-n 20 -t", stock=False)
    yield case("uc", "-n 20 -c")
    yield case("uc", "-n 20 -e", 6)
    yield case("ud", "-n 20 -c")
    yield case("ud", "-n 20 -e", 6)
    yield case("srq", "-n 20")
    yield case("srq", "-n 20 -e", 6)
    # Soft-RoCE does not support XRC.
    yield case("xsrq", "-n 20", stock=False)
    yield case("xsrq", "-n 20 -e -m 4096", 6, stock=False)


# For each program and service, a covering of its options: -a and IPv6, several queue pairs and
# lists, both directions, events, the connection manager, shared receive queues, durations, the old
# post_send, path MTUs.
SENDS = ("-n 16 -a", "-n 32 -b -q 8 -l 16 -m 1024", "-n 20 -e --use-srq -m 4096",
         "-D 2 --use_old_post_send", "-n 20 -q 8 --use-srq")
ONE_SIDED = ("-n 16 -a", "-n 32 -b -q 8 -l 16 -m 1024", "-D 2 --use_old_post_send -m 4096",
             "-n 20 -R")
PERFTESTS = (
    ("send_bw", RC, (*SENDS, "-n 20 -R")), ("send_bw", UC, SENDS[:4]), ("send_bw", UD, SENDS[:4]),
    ("write_bw", RC, ONE_SIDED), ("write_bw", UC, ONE_SIDED[:3]),
    ("read_bw", RC, (*ONE_SIDED, "-n 20 -e")),
    ("atomic_bw", RC, ("-n 32 -b -q 8 -l 16 -m 1024", "-D 2 --use_old_post_send", "-n 20 -R -e",
                       "-n 20 -A CMP_AND_SWAP")),
    ("send_lat", RC, ("-n 16 -a", "-n 20 -e --use-srq -m 4096", "-D 2 --use_old_post_send",
                      "-n 20 -R -m 1024")),
    ("send_lat", UC, ("-n 16 -a", "-n 20 -e -m 1024")),
    ("send_lat", UD, ("-n 16 -a", "-n 20 -e --use-srq -m 1024")),
    ("write_lat", RC, ("-n 16 -a -m 1024", "-D 2 --use_old_post_send", "-n 20 -R")),
    ("write_lat", UC, ("-n 16 -a", "-n 20")),
    ("read_lat", RC, ("-n 16 -a -m 1024", "-D 2 --use_old_post_send", "-n 20 -R")),
    ("atomic_lat", RC, ("-n 20 -e -m 1024", "-D 2 --use_old_post_send", "-n 20 -R")),
    ("send_bw", XRC, ("-n 16 -a", "-n 32 -b -q 8 -l 16 -m 1024", "-n 20 -e -m 4096",
                      "-D 2 --use_old_post_send")),
    ("write_bw", XRC, ("-n 16 -a", "-n 32 -b -q 8 -l 16 -m 1024", "-D 2 --use_old_post_send")),
    ("read_bw", XRC, ("-n 32 -b -q 8 -m 1024", "-n 20 -e")),
    ("atomic_bw", XRC, ("-n 32 -q 8 -m 1024", "-n 20 -A CMP_AND_SWAP")),
    ("send_lat", XRC, ("-n 16 -a", "-n 20 -e -m 1024")),
    ("write_lat", XRC, ("-n 16 -a", "-n 20 -m 1024")),
    ("read_lat", XRC, ("-n 16 -a", "-n 20 -m 1024")),
    ("atomic_lat", XRC, ("-n 20 -e -m 1024",)),
)
TAKES_VALUE = {"-n", "-q", "-l", "-m", "-D", "-A"}


def perftests(pairing, everything=False):
    """Cases of perftest's programs. Every other case uses IPv6 if the program can."""
    families = itertools.cycle((4, 6))
    for name, service, covering in PERFTESTS:
        options = [tuple(text.split()) for text in covering]
        if everything:
            options += [alone for alone in singles(options) if alone not in options]
        for words in options:
            family = next(families) if "-R" not in words else 4
            given = words if service == RC else ("-c", service, *words)
            # Soft-RoCE drops packets that arrive faster than it works, and UC and UD do not send
            # them again.
            compared = service == RC and "-D" not in words and "-a" not in words
            yield Case(apps.PERFTEST[name], given, pairing, family=family, compared=compared,
                       stock=service != XRC,
                       seconds=ALL_SIZES_SECONDS if "-a" in words else SECONDS)


def singles(coverings):
    """Each option of these lists alone, with a number of messages."""
    found = []
    for words in coverings:
        for at, word in enumerate(words):
            if word.startswith("-") and word != "-n":
                option = words[at:at + 2] if word in TAKES_VALUE else (word,)
                found.append(option if word == "-D" else ("-n", "20", *option))
    return dict.fromkeys(found)


# Frames that the server does not receive in time are lost, and it waits for all of them, so there
# are fewer than its receives. Options: frames only, headers of UDP and of TCP, lists, a rate limit.
RAW_HEADERS = "-J 198.51.100.1 -j 198.51.100.2 -K 7000 -k 7001"
RAW_ETHERNETS = (
    ("bw", ("-n 300 -s 1000", f"-n 300 -s 64 {RAW_HEADERS}", f"-n 300 -s 200 --tcp {RAW_HEADERS}",
            "-n 300 -s 1000 -l 10", "-n 300 -s 1000 --promiscuous",
            "-n 300 -s 1000 --rate_limit_type=PP --rate_units=M --rate_limit=100")),
    ("lat", ("-n 200 -s 64", f"-n 200 -s 1000 {RAW_HEADERS}")),
)


def raw_ethernets():
    """Cases of perftest's programs for raw frames, which Soft-RoCE does not have."""
    for name, coverings in RAW_ETHERNETS:
        for options in coverings:
            yield Case(apps.RAW_ETHERNET[name], tuple(options.split()), PAIR, stock=False)
    yield Case(apps.RAW_BURST, (), ALONE, client=NOBODY, stock=False)


def managed(pairing):
    """Cases of rdmacm-utils' programs."""
    def case(program, options, family=4, **rest):
        return Case(program, tuple(options.split()), pairing, family=family, **rest)

    yield case(apps.RPING, "-C 5 -S 64 -V")
    # Long lines are written in pieces, which mix with the output of another thread.
    yield case(apps.RPING, "-C 5 -S 65535 -V", 6, compared=False)
    yield case(apps.UCMATOSE, "-c 3")
    yield case(apps.UCMATOSE, "-c 2 -m", 6)
    yield case(apps.UDADDY, "-c 2")
    yield case(apps.UDADDY, "-c 1", 6)
    yield case(apps.CMTIME, "-c 20", compared=False)
    yield case(apps.MCKEY, "")
    # Linux only joins IPv4 groups: cma_igmp_send returns ENOTSUPP for others.
    yield case(apps.MCKEY, "", 6, stock=False)
    yield case(apps.ENDPOINT, "")
    yield case(apps.EXTENDED, "-c r")
    yield case(apps.EXTENDED, "-c x", stock=False)


UCX_TESTS = ("tag_lat", "tag_bw -s 65536", "ucp_put_lat", "ucp_put_bw -s 65536", "ucp_get -s 4096",
             "ucp_add", "ucp_fadd", "ucp_swap", "ucp_cswap", "ucp_am_lat", "ucp_am_bw -s 1024")


def others():
    """Cases of programs that the guest does not have."""
    def case(program, options, **rest):
        return Case(program, tuple(options.split()), PAIR, stock=False, **rest)

    yield case(apps.QPERF, "rc_bw rc_lat rc_rdma_write_bw rc_rdma_read_lat")
    yield case(apps.QPERF, "-cm 1 rc_bw rc_lat rc_bi_bw rc_rdma_read_bw rc_rdma_write_lat")
    yield case(apps.QPERF, "uc_bw uc_lat uc_rdma_write_bw")
    yield case(apps.QPERF, "ud_bw ud_lat")
    yield case(apps.QPERF, "-cm 1 rc_compare_swap_mr rc_fetch_add_mr ver_rc_compare_swap "
                           "ver_rc_fetch_add")
    for verb in ("write", "read", "send"):
        yield case(apps.FIO, f"--verb={verb} --bs=64k --size=4m --iodepth=4 --verify=crc32c")
    # rc_v also tests the datagrams with which UCX connects.
    for transport in ("rc_v", "ud_v"):
        for test in UCX_TESTS:
            yield case(apps.UCX, f"-n 200 -w 10 -t {test}", environment=(
                f"UCX_TLS={transport},self", f"UCX_NET_DEVICES={DEVICE}:1", "UCX_IB_GID_INDEX=0"))


def with_guest(everything, brief):
    """Cases against Soft-RoCE with each end as the server, in a brief run with one of them. The
    guest's processor is slow, so they send few messages and no long ones."""
    # With fewer messages some cases are equal.
    measured = dict.fromkeys(slow(perftests(GUEST, everything)))
    cases = [case for case in (*pingpongs(GUEST), *measured, *managed(GUEST)) if case.stock]
    for at, case in enumerate(cases):
        # The IP versions alternate, so every two cases have the same server.
        for server, client in SERVES if not brief else [SERVES[at // 2 % 2]]:
            yield again(case, GUEST, server, client)


def slow(cases):
    """Shortens cases for an emulated processor: few messages with -a; short messages for both
    directions over several queue pairs. The guest may pause for a second, so the ACK timeout is
    longer than perftest's default (-u 16)."""
    for case in cases:
        words = case.options
        if "-a" in words:
            words = ("-n", "5", *words[words.index("-n") + 2:], *words[:words.index("-n")])
        if "-b" in words and "UD" not in words and "atomic" not in case.program.name:
            words = (*words, "-s", "4096")
        if "-c" not in words:
            words = (*words, "-u", "16")
        yield dataclasses.replace(case, options=words)
