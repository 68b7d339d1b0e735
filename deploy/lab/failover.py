"""Cuts links under unmodified programs: two processes with two links between them.

Each process has two ports, the ends of two memif links, and `failover = "auto"`; nothing else is
set. While a program runs, the link that it uses is cut: once by taking it down, as an administrator
would, and once silently, by losing all frames. In between the first link comes back, so that the
second cut has somewhere to go. The program must end with status 0 and say what it says otherwise,
and both processes must have left each link.
"""

import argparse
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from report.failure import LabFailure

LAB = Path(__file__).resolve().parent
ROOT = LAB.parents[1]
# Seconds for anything that is waited for.
PATIENCE = 60
# Seconds for a process to end when it is told to.
FAREWELL = 5
# Seconds of traffic before the first cut and after the last.
PAUSE = 0.5
# Address of the first port of each end, the server's first.
ADDRESSES = ("192.0.2.1", "192.0.2.2")

CONFIG = """[eal]
memory_mb = 128

[[device]]
name = "uroce0"
driver = "poller"
idle = "sleep"
failover = "auto"

[[device.port]]
ethdev = {{ vdev = "net_memif0,role={role},socket={work}/first.sock,socket-abstract=no,rsize=10" }}
ip = ["192.0.2.{host}/24"]

[[device.port]]
ethdev = {{ vdev = "net_memif1,role={role},socket={work}/second.sock,socket-abstract=no,rsize=10" }}
ip = ["198.51.100.{host}/24"]
"""


class NotSurvived(Exception):
    """What has gone wrong."""


@dataclass(frozen=True)
class Program:
    """A program of which two processes exchange data until they are told to end, or for a time."""

    server: tuple
    client: tuple
    result: str
    """Expression that the client's output must have; empty for a program that does not end."""
    launcher: tuple = ()
    """Words before those of the two processes, if one program starts both."""
    listens: int = 0
    """TCP port at which the server waits for the client."""
    fault: str = r"(?i)error|fail|mismatch|Completion with|vendor_err|lost"
    """Expression that neither output may have."""


def mpi_check(work):
    """Compiles the laboratory's MPI program, which verifies every byte. Returns its path."""
    program = work / "mpi_check"
    subprocess.run(["mpicc.openmpi", "-O2", "-o", program, LAB / "engines/mpi_check.c"], check=True)
    return program


def mpi(seconds, _port, work):
    """Open MPI over UCX. The number of rounds is for this time on a slow machine."""
    rank = (mpi_check(work), str(300 * seconds))
    launcher = ("mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-x", "UCX_TLS=rc,self",
                "--mca", "pml", "ucx", "--mca", "osc", "ucx",
                # Else Open MPI takes UCX only with NICs of one maker.
                "--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices", "any")
    return Program(rank, rank, r"^figure bandwidth", launcher)


def mooncake(seconds, port, _work):
    """Mooncake's transfer engine, from PyPI."""
    from engines import wheels
    python = wheels.python(print, everything=False)
    node = (python, "-B", LAB / "engines/mooncake_pair.py")
    return Program((*node, "server", str(port)), (*node, "client", str(port), str(seconds)),
                   "^mooncake ok", listens=port)


def perftest(name):
    """One of perftest's bandwidth tests."""
    def program(seconds, port, _work):
        words = (name, "-D", str(seconds), "-s", "65536", "-F", "-p", str(port))
        return Program(words, (*words, "localhost"), r"^ 65536 +\d+ ", listens=port)
    return program


def rping(_seconds, port, _work):
    """rping, which runs until it is ended."""
    words = ("rping", "-V", "-S", "4096", "-p", str(port), "-a", ADDRESSES[0])
    return Program((*words, "-s"), (*words, "-c"), "")


# The programs by name: functions of the seconds for which they run, a TCP port and a folder.
PROGRAMS = {
    "ib_write_bw": perftest("ib_write_bw"),
    "ib_read_bw": perftest("ib_read_bw"),
    "rping": rping,
    "open_mpi": mpi,
    "mooncake": mooncake,
}


class Ends:
    """Two running processes of a program."""

    def __init__(self, build, work):
        self.build, self.work = build, work
        self.variables = {**os.environ, "XDG_RUNTIME_DIR": str(work)}
        self.started = {}
        """What was started, by role: both processes, or a launcher, which is the client's."""

    def command(self, words, role, host):
        """The command of a process, which leaves its number in a file."""
        file = self.work / f"{role}.toml"
        file.write_text(CONFIG.format(role=role, host=host, work=self.work), encoding="utf-8")
        return ("sh", "-c", 'echo $$ >"$0"; exec "$@"', self.work / f"{role}.pid",
                self.build / "uroce-run", "--config", file, *words)

    def start(self, role, command):
        with (self.work / f"{role}.out").open("w", encoding="utf-8") as said:
            self.started[role] = subprocess.Popen(
                command, env=self.variables, stdout=said, stderr=subprocess.STDOUT)

    def numbers(self):
        """The process numbers of server and client."""
        end = time.monotonic() + PATIENCE
        files = [self.work / f"{role}.pid" for role in ("server", "client")]
        while not all(file.exists() and file.read_text().endswith("\n") for file in files):
            if time.monotonic() > end:
                raise NotSurvived("a process does not start")
            time.sleep(0.02)
        return [int(file.read_text()) for file in files]

    def said(self, role):
        """What a process has printed. A launcher prints what both do."""
        if role not in self.started:
            return ""
        return (self.work / f"{role}.out").read_text(encoding="utf-8", errors="replace")

    def ask(self, process, line):
        """The answer of a process to a command; None if it does not answer."""
        done = subprocess.run(
            [self.build / "uroce", "-j", "-s", str(process), *line.split()],
            env=self.variables, capture_output=True, text=True, timeout=PATIENCE, check=False)
        if done.returncode:
            return None
        return json.loads(done.stdout) if done.stdout.strip() else {}

    def do(self, process, line):
        if self.ask(process, line) is None:
            raise NotSurvived(f"`{line}` was refused")

    def count(self, process, name):
        answer = self.ask(process, "show counters") or {}
        return sum(of["value"] for of in answer.get("counters", []) if of["name"] == name)

    def counts(self, name):
        """A counter of the server and of the client."""
        return [self.count(process, name) for process in self.numbers()]

    def until_more(self, what, name, before, more=1):
        """Waits until a counter has grown by that at both processes."""
        end = time.monotonic() + PATIENCE
        while any(now < then + more for now, then in zip(self.counts(name), before, strict=True)):
            self.go_on(what, f"{name} was {before} and is {self.counts(name)}", end)
            time.sleep(0.02)

    def until_armed(self):
        """Waits until all connections of both processes have an alternate path."""
        self.until_all("an alternate path", lambda qp: qp["migration"] == "ARMED")

    def until_on(self, port):
        """Waits until all connections of both processes use that port."""
        self.until_all(f"the migration to port {port}", lambda qp: qp["port"] == port)

    def until_all(self, what, holds):
        """Waits until it holds for all connections of both processes."""
        end = time.monotonic() + PATIENCE
        for process in self.numbers():
            while True:
                known = (self.ask(process, "show qp") or {}).get("qp", [])
                ours = [qp for qp in known if qp["auto"]]
                if ours and all(holds(qp) for qp in ours):
                    break
                paths = [(qp["port"], qp["migration"]) for qp in ours]
                self.go_on(what, f"ports and states of the paths are {paths}", end)
                time.sleep(0.02)

    def go_on(self, what, reason, end):
        """Raises NotSurvived if what is waited for will not come."""
        ended = [role for role, process in self.started.items() if process.poll() is not None]
        if ended:
            raise NotSurvived(f"{what} did not come: it has ended\n{self.said(ended[0])}")
        if time.monotonic() > end:
            raise NotSurvived(f"{what} did not come: {reason}")

    def end(self):
        """Ends what still runs."""
        for process in self.started.values():
            if process.poll() is None:
                # A launcher ends the processes that it has started.
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(FAREWELL)
                process.kill()
            process.wait()


def listens(port):
    """Whether a process listens at a TCP port of this machine."""
    line = re.compile(rf": 0{{8,32}}:{port:04X} 0{{8,32}}:0000 0A ", re.MULTILINE)
    return any(line.search(Path("/proc/net", table).read_text(encoding="ascii"))
               for table in ("tcp", "tcp6"))


def await_server(port):
    """Waits until the server listens; a server without a TCP port gets a second."""
    end = time.monotonic() + PATIENCE
    if not port:
        time.sleep(1)
    while port and not listens(port):
        if time.monotonic() > end:
            raise NotSurvived("the server does not listen")
        time.sleep(0.05)


def cut_under(ends, program):
    """Runs a program and cuts its links. Returns the lines that tell what has happened."""
    commands = {"server": ends.command(program.server, "server", 1),
                "client": ends.command(program.client, "client", 2)}
    if program.launcher:
        one = ("-n", "1")
        both = (*one, *commands["server"], ":", *one, *commands["client"])
        ends.start("client", (*program.launcher, *both))
    else:
        ends.start("server", commands["server"])
        await_server(program.listens)
        ends.start("client", commands["client"])
    server, client = ends.numbers()
    ends.until_armed()
    time.sleep(PAUSE)
    ends.do(client, "set link-down port 0")
    ends.until_on(2)
    ends.do(client, "set link-up port 0")
    ends.until_armed()
    before = ends.counts("failover_migrated")
    # Both ends lose all frames of the second link, so that none passes in either direction.
    for process in (server, client):
        ends.do(process, "set fault port 1 loss 1")
    # Those that send something leave it.
    ends.until_more("the second migration", "failover_migrated", before)
    for process in (server, client):
        ends.do(process, "clear faults")
    migrations = ends.counts("failover_migrated")
    outcome = f"a link taken down and a silent one survived; migrations of both ends: {migrations}"
    if not program.result:
        sent = ends.counts("rdma_sends")
        ends.until_more("messages after the cuts", "rdma_sends", sent, 100)
        for role in ("server", "client"):
            if found := re.search(program.fault, ends.said(role)):
                raise NotSurvived(f"the {role} has noticed: {found[0]!r}\n{ends.said(role)}")
        return outcome
    for role, process in ends.started.items():
        try:
            status = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise NotSurvived(f"the {role} does not end") from None
        said = ends.said(role)
        if status or (found := re.search(program.fault, said)):
            reason = f"status {status}" if status else f"it said {found[0]!r}"
            raise NotSurvived(f"the {role} has noticed: {reason}\n{said}")
    if not re.search(program.result, ends.said("client"), re.MULTILINE):
        raise NotSurvived(f"the client has no result\n{ends.said('client')}")
    return outcome


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", type=Path, default=ROOT / "target/release",
                        help="directory of uroce-run and uroce")
    parser.add_argument("--seconds", type=int, default=8, help="time for which a program runs")
    parser.add_argument("programs", nargs="*", help="programs (default: all)")
    options = parser.parse_args()
    with socket.create_server(("", 0)) as free:
        port = free.getsockname()[1]
    if unknown := [name for name in options.programs if name not in PROGRAMS]:
        parser.error(f"no program {unknown[0]}: there are {', '.join(PROGRAMS)}")
    # What was started is ended by SIGTERM too.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    failed = False
    for name in options.programs or PROGRAMS:
        begin = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="uroce-failover-") as work, \
                contextlib.ExitStack() as running:
            ends = Ends(options.build, Path(work))
            running.callback(ends.end)
            try:
                program = PROGRAMS[name](options.seconds, port, ends.work)
                outcome = cut_under(ends, program)
            except (NotSurvived, LabFailure, OSError, subprocess.SubprocessError) as error:
                failed, outcome = True, f"FAILED: {error}"
        print(f"{name}: {outcome} ({time.monotonic() - begin:.1f} s)", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
