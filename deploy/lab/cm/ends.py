"""The two ends of a connection: Debian's program in the guest, and a program over uroce here.

Over uroce run Debian's programs too, over the drop-in library, with their port and its losses from
a configuration file. uroce-perf's programs, which use the Rust interface, run in place of Debian's
of the same name.

All get their options as words and report their ending as status and text, so a case is written once
for either end.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass

from report import dissect
from vm import network
from vm.guest import Output

from . import waiting

LISTEN_SECONDS = 15
PROGRAMS = ("rping", "ucmatose", "udaddy", "cmtime")
# Programs of uroce-perf.
OF_UROCE_PERF = ("rping", "connect")
# Counters of the packets that a port drops on purpose.
INJECTED_LOSS = ("rx_injected_loss", "tx_injected_loss")
# Addresses of the host's end of a guest's link.
OURS = {4: "192.0.2.1", 6: "2001:db8::1"}
PREFIXES = {4: 24, 6: 64}


class CaseFault(Exception):
    """A case cannot continue; the text describes the failure."""


def last_words(text):
    """The last part of a program's output, without the data of pings."""
    return "\n".join(line for line in text.splitlines() if "ping data" not in line)[-300:]


@dataclass(frozen=True)
class Loss:
    """Packets that uroce drops on purpose in each direction."""

    share: float = 0
    seed: int = 1

    def words(self):
        """The options for uroce-perf."""
        if not self.share:
            return []
        return ["--loss-rx", self.share, "--loss-tx", self.share, "--seed", self.seed]

    def setting(self):
        """The setting of a port in a configuration file."""
        return f"loss = {{ rx = {self.share:f}, tx = {self.share:f}, seed = {self.seed} }}\n"


def configuration(link, folder, more=""):
    """Writes the configuration of the host's end of a guest's link, with `more` settings of the
    port. Returns the file's path."""
    path = folder / f"{link.name}.toml"
    addresses = ", ".join(
        f'"{address}/{PREFIXES[family]}"' for family, address in OURS.items())
    path.write_text(f"""[[device]]
name = "uroce0"

[[device.port]]
ethdev = {{ vdev = "{link.vdev()}" }}
ip = [{addresses}]
mtu = {network.ROCE_MTU}
{more}""")
    return path


class Ends:
    """Starts programs at either end and keeps a log."""

    def __init__(self, guest, uroce_perf, uroce_run, link, work):
        self.guest = guest
        self.uroce_perf = uroce_perf
        self.uroce_run = uroce_run
        self.link = link
        self.work = work
        self.log, self.said, self.processes, self.runs = [], [], [], []
        self.loss = Loss()
        # Idle time of connections of Debian's programs over uroce; `None` is its default.
        self.keepalive_ms = None
        self.captured = None

    def begin(self):
        """Forgets the previous case."""
        self.log.clear()
        for folder in self.runs:
            shutil.rmtree(folder)
        self.runs.clear()
        self.loss = Loss()
        self.keepalive_ms = None

    def capture_file(self):
        """Writes the capture so far to a file."""
        path = self.work / "so-far.pcap"
        path.write_bytes(self.captured())
        return path

    def mads(self):
        """The MADs captured so far, dissected by tshark."""
        return dissect.mads(self.capture_file())

    def address(self, name, family):
        """The RoCE address of "uroce" or "rxe"."""
        here = self.guest.addresses
        return OURS[family] if name == "uroce" else (here.ipv4 if family == 4 else here.ipv6)

    def start(self, name, program, words, seconds):
        """Starts a program at one end. The result has `wait`, `kill` and `listening`."""
        words = [str(word) for word in words]
        if name == "uroce":
            process = self.ours(program, words, seconds)
        else:
            process = Stock(self, program, words, seconds)
        self.processes.append(process)
        return process

    def ours(self, program, words, seconds):
        """Starts a program over uroce."""
        if program not in OF_UROCE_PERF or self.keepalive_ms:
            return self.over_uroce(program, words, seconds)
        addresses = [word for family, address in OURS.items()
                     for word in ("--ip", f"{address}/{PREFIXES[family]}")]
        command = [self.uroce_perf, program, "--vdev", self.link.vdev(), *addresses,
                   "--port-mtu", network.ROCE_MTU, *self.loss.words(), "--json", *words]
        return Ours(self, [str(word) for word in command], seconds)

    def over_uroce(self, program, words, seconds):
        """Starts Debian's program over the drop-in library. Its counters go to a folder of its
        own."""
        folder = self.work / f"run{len(self.runs)}"
        folder.mkdir()
        path = configuration(self.link, folder, self.loss.setting() if self.loss.share else "")
        self.runs.append(folder)
        idle = [f"UROCE_KEEPALIVE_MS={self.keepalive_ms}"] if self.keepalive_ms else []
        command = ["env", f"XDG_RUNTIME_DIR={folder}", *idle, self.uroce_run, "--config", path,
                   "--", program, *words]
        return OverUroce(self, [str(word) for word in command], seconds)

    def lost(self):
        """Packets that Debian's programs over uroce have dropped on purpose in this case, by their
        files of counters. They are written once more when a program exits."""
        files = [path for folder in self.runs for name in INJECTED_LOSS
                 for path in folder.rglob(f"hw_counters/{name}")]
        return sum(int(path.read_text()) for path in files)

    def serve(self, name, program, words, seconds):
        """Starts a server and returns when it listens."""
        server = self.start(name, program, words, seconds)
        deadline = time.monotonic() + LISTEN_SECONDS
        while time.monotonic() < deadline and not server.ended():
            if server.listening():
                return server
            time.sleep(0.02)
        raise CaseFault(f"{name}'s {program} does not listen: {last_words(server.kill().text)}")

    def restart_guest(self):
        """Ends what a case has left running here, and boots the guest again."""
        for process in self.processes:
            if isinstance(process, Ours):
                process.kill()
        self.processes.clear()
        self.guest.restart()

    def clean_up(self):
        """Ends everything that a case may have left running."""
        for process in self.processes:
            if isinstance(process, Ours):
                process.kill()
        self.guest.run(f"killall -9 {' '.join(PROGRAMS)}", 10)
        self.processes.clear()


class Stock:
    """A program in the guest."""

    def __init__(self, ends, program, words, seconds):
        self.ends = ends
        self.program = program
        self.text = " ".join(["exec", program, *words])
        self.running = ends.guest.begin(self.text, seconds)

    def listening(self):
        """Whether the guest's kernel has a listener."""
        return self.ends.guest.run("rdma resource show cm_id | grep -q LISTEN", 5).status == 0

    def ended(self):
        """Whether the program has ended, so that `wait` returns at once."""
        return self.running.ended()

    def wait(self):
        """Waits until the program ends and returns status and output."""
        output = self.running.wait()
        self.ends.log.append(f"rxe$ {self.text}\n{output.text}\nexit {output.status}\n")
        return output

    def kill(self, number=9):
        """Kills every program of this name in the guest and returns the ending."""
        self.ends.guest.run(f"killall -{number} {self.program}", 10)
        return self.wait()


class Ours:
    """A program of uroce-perf."""

    count = 0

    def __init__(self, ends, command, seconds):
        Ours.count += 1
        self.ends = ends
        self.command = command
        self.output = ends.work / f"uroce{Ours.count}.out"
        with open(self.output, "w") as output:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command], start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            )
        self.deadline = time.monotonic() + seconds

    def text(self):
        """The output so far."""
        return self.output.read_text(errors="replace")

    def listening(self):
        """Whether the program has printed that it listens."""
        return "listening on " in self.text()

    def ended(self):
        """Whether the program has ended, so that `wait` returns at once."""
        return self.process.poll() is not None

    def wait(self):
        """Waits until the program ends, or kills it at its time limit; gives status and output."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(max(0.1, self.deadline - time.monotonic()))
        return self.kill()

    def kill(self, number=signal.SIGKILL):
        """Kills the program and returns the ending."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, number)
            self.process.wait()
        text, status = self.text().rstrip("\n"), self.process.returncode
        self.ends.log.append(f"uroce$ {' '.join(self.command)}\n{text}\nexit {status}\n")
        return Output(status, text)


class OverUroce(Ours):
    """A program over the drop-in library."""

    def is_listening(self, port):
        """Whether the program listens: on a TCP port, or without one, whether its first thread
        waits for an event or for another thread that waits for one.

        The event thread of rping waits before the first thread listens; the first thread then waits
        for a semaphore.
        """
        if port:
            return network.listening(port)
        processes = waiting.family(self.process.pid)
        return any(waiting.waits_to_be_called(process) for process in processes)

    def listening(self):
        """Whether the program listens with rdma_listen."""
        return self.is_listening(0)

    def kill(self, number=signal.SIGKILL):
        """Kills the program and its forked processes, which fio puts into other sessions. Returns
        the ending."""
        for process in waiting.family(self.process.pid)[1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)
        return super().kill(number)
