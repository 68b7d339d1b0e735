"""Compares Debian's perftest over the drop-in library with uroce-perf on the same port.

Both use the same two configurations, the ends of a memif link. uroce-perf adopts its lcore;
perftest does not know lcores, and drives them by polling.

A hypervisor may move two busy virtual processors apart, to where a cache line takes five times as
long between them, and together again. So each run of perftest is compared with the adjacent run of
uroce-perf, and the median of these comparisons counts, not the comparison of the medians. Meanwhile
a process with the lowest priority keeps each processor busy, so that the hypervisor's decisions
change rarely and not with the start and end of each run.

Two more measurements: the time to register a gigabyte, and the number of system calls of the thread
that posts and polls, at two numbers of messages. Two kinds of calls are not part of that number,
since the slow steps of a tracer bring them about: wakes of a peer that has fallen asleep (the peer
polls here), and `sched_yield`, by which a thread leaves its processor to the tracer.
"""

import argparse
import contextlib
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from vm import network

ROOT = Path(__file__).resolve().parents[2]
# Seconds that one run may take.
PATIENCE = 120
MESSAGES = (1600, 80_000)
# Seconds that registering 1 GiB of memory in use may take: 262,144 pages are touched.
REGISTRATION_MAX = 20e-3

CONFIG = """[eal]
memory_mb = 128

[[device]]
name = "uroce0"
driver = "poller"
idle = "{idle}"

[[device.port]]
ethdev = {{ vdev = "net_memif0,role={role},socket={socket},socket-abstract=no,bsize=8192,rsize=10" }}
ip = ["192.0.2.{host}/24"]
mtu = 4200
"""

# Registers memory that is already present. The least of several times counts.
REGISTER = """
import mmap, time
from pyverbs.device import Context
from pyverbs.pd import PD
from pyverbs.mr import MR
import pyverbs.enums as e
import ctypes
size = 1 << 30
memory = mmap.mmap(-1, size)
memory.madvise(mmap.MADV_HUGEPAGE)
for at in range(0, size, 4096):
    memory[at] = 1
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
with Context(name="uroce0") as context, PD(context) as pd:
    times = []
    for _ in range(20):
        begin = time.perf_counter()
        mr = MR(pd, size, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE, address=address)
        times.append(time.perf_counter() - begin)
        mr.close()
    print("seconds", min(times))
"""


@dataclass(frozen=True)
class Test:
    """A test that both programs have with the same options."""

    name: str
    words: tuple
    column: int
    """Column of the figure in perftest's row."""
    unit: str
    bound: float
    """For bandwidths the least ratio, for latencies the most additional microseconds."""

    @property
    def is_latency(self):
        return self.name.endswith("_lat")

    def compare(self, perftest, ours):
        """By how much perftest's latency is longer, or the ratio of its bandwidth."""
        return perftest - ours if self.is_latency else perftest / ours

    def passes(self, compared):
        """Whether perftest is near enough to uroce-perf."""
        return compared <= self.bound if self.is_latency else compared >= self.bound


TESTS = (
    Test("write_bw", ("-s", "65536", "-n", "60000"), 3, "MiB/s", 0.8),
    Test("send_bw", ("-s", "8", "-l", "16", "-n", "3200000"), 4, "M/s", 0.8),
    # The typical latency, which is perftest's median.
    Test("write_lat", ("-s", "8", "-n", "300000"), 4, "us", 0.5),
)


class Bench:
    """Runs programs at both ends of a link."""

    def __init__(self, directory, build, verbose):
        self.directory, self.build, self.verbose = Path(directory), Path(build), verbose
        ends = (("server", 1), ("client", 2))
        self.configs = [self.directory / f"{role}.toml" for role, _ in ends]
        # For the peer of a traced program.
        self.polling = self.directory / "polling.toml"
        link = self.directory / "memif.sock"
        for config, (role, host) in zip(self.configs, ends):
            text = CONFIG.format(role=role, socket=link, host=host, idle="sleep")
            config.write_text(text, encoding="utf-8")
        text = CONFIG.format(role="server", socket=link, host=1, idle="poll")
        self.polling.write_text(text, encoding="utf-8")
        self.environment = dict(os.environ, XDG_RUNTIME_DIR=str(self.directory))

    def uroce_perf(self, end, words):
        """The command of uroce-perf at an end."""
        return [self.build / "uroce-perf", *words, "--config", self.configs[end]]

    def unmodified(self, config, words):
        """The command of a program over the library with a configuration."""
        return [self.build / "uroce-run", "--config", config, "--", *words]

    def start(self, words):
        """Starts a program, which is killed when this one ends."""
        words = ["setpriv", "--pdeathsig", "KILL", *map(str, words)]
        if self.verbose:
            print("+", *words, file=sys.stderr)
        return subprocess.Popen(words, env=self.environment, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)

    def pair(self, port, server, client):
        """Runs a server and a client and returns what the client printed. The server listens on a
        TCP port."""
        serving = self.start(server)
        try:
            await_listening(serving, port)
            asking = self.start(client)
            try:
                text = asking.communicate(timeout=PATIENCE)[0]
            finally:
                asking.kill()
            if asking.returncode:
                raise RuntimeError(f"{client[-1]}: status {asking.returncode}\n{text}")
            said = serving.communicate(timeout=PATIENCE)[0]
            if serving.returncode:
                raise RuntimeError(f"the server ended with status {serving.returncode}\n{said}")
        finally:
            serving.kill()
            serving.wait()
        return text

    def figure(self, test, is_perftest):
        """Runs one program once and returns its figure."""
        port = free_port()
        if is_perftest:
            words = (f"ib_{test.name}", "-F", *test.words, "-p", str(port))
            ends = [self.unmodified(config, words) for config in self.configs]
        else:
            words = (test.name, *test.words, "-p", str(port))
            ends = [self.uroce_perf(end, words) for end in (0, 1)]
        text = self.pair(port, ends[0], [*ends[1], "127.0.0.1"])
        for line in text.splitlines():
            if re.match(r"\s*\d+\s+\d+\s+[\d.]+", line):
                return float(line.split()[test.column])
        raise RuntimeError(f"no figure of {test.name} in\n{text}")

    def system_calls(self, test, messages):
        """Number of system calls of the thread that posts and polls."""
        port = free_port()
        size = [word for word in test.words[:test.words.index("-n")]]
        words = (f"ib_{test.name}", "-F", *size, "-n", str(messages), "-p", str(port))
        log = self.directory / "strace.log"
        # A filter keeps the calls that are not counted as fast as they are; strace offers it only
        # together with following all threads.
        strace = ["strace", "--seccomp-bpf", "-f", "-e", "trace=!sched_yield", "-o", log]
        self.pair(port, self.unmodified(self.polling, words),
                  [*strace, *self.unmodified(self.configs[1], words), "127.0.0.1"])
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        poster = lines[0].split()[0]
        # A call that ends after one of another thread has a second line.
        return sum(re.match(rf"{poster} +[a-z]", line) is not None for line in lines)

    def registration(self):
        """Seconds to register a gigabyte."""
        program = self.start(self.unmodified(self.configs[0], ["/usr/bin/python3", "-c", REGISTER]))
        text = program.communicate(timeout=PATIENCE)[0]
        found = re.search(r"^seconds (\S+)$", text, re.MULTILINE)
        if not found:
            raise RuntimeError(f"no registration:\n{text}")
        return float(found[1])


def await_listening(server, port):
    """Returns when a server listens on a TCP port."""
    deadline = time.monotonic() + PATIENCE
    while not network.listening(port):
        if server.poll() is not None:
            raise RuntimeError(f"the server ended with status {server.returncode}\n"
                               f"{server.stdout.read()}")
        if time.monotonic() > deadline:
            raise RuntimeError(f"the server does not listen at TCP port {port}")
        time.sleep(0.02)


def free_port():
    """A free TCP port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def busy_processors():
    """Keeps all processors busy with processes that yield to all others."""
    def give_way(processor):
        os.sched_setaffinity(0, {processor})
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    # The processes end with this program, however it ends.
    spin = ("setpriv", "--pdeathsig", "KILL", sys.executable, "-c", "while True: pass")
    spinning = [subprocess.Popen(spin, preexec_fn=lambda at=at: give_way(at))
                for at in os.sched_getaffinity(0)]
    try:
        # The time in which a hypervisor reacts.
        time.sleep(3)
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def compare(bench, test, runs):
    """One row: the median of the comparisons of several pairs of runs."""
    ours, perftest = [], []
    for turn in range(runs):
        # The order alternates, so that a slow change of the machine favours neither.
        for figures, is_perftest in ((ours, False), (perftest, True))[::1 if turn % 2 else -1]:
            figures.append(bench.figure(test, is_perftest))
    compared = statistics.median(map(test.compare, perftest, ours))
    return {"test": " ".join((test.name, *test.words)), "unit": test.unit,
            "uroce_perf": statistics.median(ours), "perftest": statistics.median(perftest),
            "difference" if test.is_latency else "ratio": round(compared, 3),
            "passes": test.passes(compared), "runs": {"uroce_perf": ours, "perftest": perftest}}


def kernel_entries(bench, test):
    """The additional system calls for many times the messages."""
    # At the start the poster looks for its peer again and again, so the fewest of some runs count.
    few, many = (min(bench.system_calls(test, messages) for _ in range(3)) for messages in MESSAGES)
    # The start and end of a run may differ by one or two waits.
    return {"test": test.name, "messages": MESSAGES, "system_calls": [few, many],
            "passes": many - few < (MESSAGES[1] - MESSAGES[0]) / 1000}


def main():
    """Runs all measurements and returns the exit status."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    parser = argparse.ArgumentParser(prog="deploy/unmodified", description=(
        "Debian's perftest, unmodified over uroce's libibverbs.so.1, beside uroce-perf on the same "
        "port in the same run; the time that registering 1 GiB takes; and whether posting and "
        "polling enter the kernel. Exit status 1 if a result is worse than its bound."))
    parser.add_argument("--runs", type=int, default=9, help="pairs of runs; the median counts (9)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--verbose", action="store_true", help="print the commands that are run")
    options = parser.parse_args()
    build = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
    with tempfile.TemporaryDirectory(prefix="uroce-unmodified-") as directory:
        bench = Bench(directory, build, options.verbose)
        with busy_processors():
            rows = [compare(bench, test, options.runs) for test in TESTS]
        entries = [kernel_entries(bench, test) for test in TESTS]
        seconds = bench.registration()
    report = {"figures": rows, "kernel": entries,
              "registration_1gib": {"seconds": seconds, "passes": seconds < REGISTRATION_MAX}}
    print(json.dumps(report, indent=1) if options.json else table(report))
    verdicts = [*rows, *entries, report["registration_1gib"]]
    return 0 if all(verdict["passes"] for verdict in verdicts) else 1


def table(report):
    """The report as a table."""
    lines = [f"{'test':<34} {'uroce-perf':>12} {'perftest':>12}        of pairs"]
    for row in report["figures"]:
        mark = "" if row["passes"] else "  too far"
        pairs = f"x {row['ratio']:.2f}" if "ratio" in row else f"{row['difference']:+.2f}"
        lines.append(f"{row['test']:<34} {row['uroce_perf']:>12.2f} {row['perftest']:>12.2f} "
                     f"{row['unit']:<5} {pairs:>10}{mark}")
    for entry in report["kernel"]:
        (few, many), (calls, more) = entry["messages"], entry["system_calls"]
        mark = "" if entry["passes"] else "  too many"
        lines.append(f"ib_{entry['test']}: system calls of the posting thread: {calls} at {few} "
                     f"messages, {more} at {many}{mark}")
    registration = report["registration_1gib"]
    mark = "" if registration["passes"] else "  too slow"
    lines.append(f"registering 1 GiB: {registration['seconds'] * 1e6:.0f} us{mark}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
