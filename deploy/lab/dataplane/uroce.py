"""Peers of a session that run uroce-perf on the host side of a guest's link."""

import contextlib
import json
import os
import signal
import subprocess
import time

from vm import network

from .cases import Case
from .peers import LISTEN_SECONDS, Ending, killed
from .programs import PINGPONGS


class UrocePeer:
    """A program of uroce-perf, at the host's end of a guest's link.

    The losses that a case asks for must not affect ARP and neighbour discovery, because Soft-RoCE
    waits one second for a neighbour and the kernel asks once in that time. They must not affect the
    last message of a ping-pong and its acknowledgement, because the stock program does not wait
    until its peer has received it.
    """

    name = "uroce"
    host = network.CONTROL_HOST
    addresses = {4: "192.0.2.1/24", 6: "2001:db8::1/64"}

    def __init__(self, uroce_perf, link, folder):
        self.uroce_perf = uroce_perf
        self.link = link
        self.makes_link = link.needs_peer_to_boot
        self.folder = folder
        self.session = None

    def command(self, case, server_host):
        """uroce-perf's command line."""
        port = [*self.link.port_words(), "--ip", self.addresses[case.family]]
        return [str(self.uroce_perf), *words(case, port, 0, self.report, server_host)]

    @property
    def report(self):
        """The file for perftest's JSON."""
        return self.folder / "uroce.json"

    def begin(self, case, server_host=None):
        """Starts the server, or with `server_host` the client."""
        self.report.unlink(missing_ok=True)
        self.session = UroceSession(
            self.command(case, server_host), self.folder, case, self.report, not server_host)
        return self.session

    @contextlib.contextmanager
    def standing_by(self):
        """Keeps the port open while the block runs, with a server that gets no client."""
        try:
            yield self.begin(Case(PINGPONGS[0], self.name, self.name, iterations=1))
        finally:
            self.session.kill()

    def wait_until_listening(self, port, serving):
        """Waits until the server listens. False if its session ends first or the time is over."""
        deadline = time.monotonic() + LISTEN_SECONDS
        while not serving.ended() and time.monotonic() < deadline:
            if network.listening(port):
                return True
            time.sleep(0.02)
        return False

    def clean_up(self, _):
        """Ends everything that a failed case may have left running."""
        self.end()

    def end(self):
        """Ends the last session's program, if it runs."""
        if self.session is not None:
            self.session.kill()


class Session:
    """One end of a case that runs in uroce-perf, wherever that is."""

    def __init__(self, case, serving):
        self.case = case
        self.serving = serving
        self.start = time.monotonic()

    def ending(self, was_killed, status, complaint, report, log):
        """The ending of a program. `report` is its report as an object."""
        if was_killed:
            fault = killed(self.case, self.start)
        elif status != 0:
            fault = f"status {status}: {complaint}"
        else:
            fault = self.fault(report)
        counts = report.get("uroce", report)
        return Ending(
            fault, int(counts.get("retransmissions", 0)), int(counts.get("lost", 0)), log,
        )

    def fault(self, report):
        """Describes the error in the report of a program that ended with status 0. Empty if there
        is none."""
        if self.case.program.verifies:
            return "" if report.get("verified") is True else f"not verified: {json.dumps(report)}"
        row = report.get("results") or {}
        if "n_iterations" not in row:
            return f"reported no messages: {json.dumps(report)}"
        if row.get("MsgSize") != self.case.message_bytes:
            return f"reported messages of {row.get('MsgSize')} bytes"
        # The server of a latency test measures from its first answer to its last.
        first = 1 if self.case.program.latency and self.serving else 0
        return self.case.program.count_fault(self.case, row["n_iterations"] + first)


class UroceSession(Session):
    """One end of a case that runs in uroce-perf on this machine."""

    def __init__(self, command, folder, case, report, serving):
        self.command = command
        self.output = folder / "uroce.out"
        self.complaints = folder / "uroce.err"
        self.report = report
        with open(self.output, "w") as output, open(self.complaints, "w") as complaints:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command], start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=output, stderr=complaints,
            )
        super().__init__(case, serving)

    def ended(self):
        """Whether the program has ended, so that `wait` returns at once."""
        return self.process.poll() is not None

    def wait(self):
        """Waits until the program ends and returns the ending. Kills the program at the case's time
        limit."""
        left = self.start + self.case.seconds - time.monotonic()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(max(0.1, left))
        self.kill()
        output, complaints = (
            path.read_text(errors="replace").rstrip("\n")
            for path in (self.output, self.complaints)
        )
        report = self.read_report(output)
        status = self.process.returncode
        log = (f"uroce$ {' '.join(self.command)}\n{output}\n{complaints}\n{json.dumps(report)}\n"
               f"exit {status}\n")
        return self.ending(status == -signal.SIGKILL, status, last_line(complaints or output),
                           report, log)

    def read_report(self, output):
        """The report, which a program that verifies prints and others write to a file. Empty if
        there is none."""
        if self.case.program.verifies:
            return parsed(self.case.program, output)
        with contextlib.suppress(OSError):
            return parsed(self.case.program, self.report.read_text())
        return {}

    def kill(self):
        """Kills the program and the processes that it has started."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def words(case, port, gid, report, server_host):
    """uroce-perf's arguments for one end of a case. `port` has the options for its port, of whose
    addresses `gid` is the index; `report` is the file for perftest's JSON. The server has no
    `server_host`."""
    program = case.program
    found = [
        program.name, *port, program.gid_option, gid, *program.options(case, stock=False),
        # 2.1 s until the retries are used up, because an emulated guest on a busy machine may
        # pause for most of a second.
        "-u", "16",
    ]
    found += ["--json"] if program.verifies else ["--out_json_file", report]
    if case.loss:
        found += program.loss_options(case, serving=not server_host)
    if server_host:
        found += [*program.client_options(), server_host]
    return [str(word) for word in found]


def parsed(program, text):
    """The JSON object of a report, which a program that verifies prints last. Empty if there is
    none."""
    with contextlib.suppress(ValueError):
        report = json.loads(last_line(text) if program.verifies else text)
        if isinstance(report, dict):
            return report
    return {}


def last_line(text):
    """The last line of a program's output."""
    return text.strip().rpartition("\n")[2]
