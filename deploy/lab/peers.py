"""The two kinds of peer a session is held between: a guest's Soft-RoCE, and uroce.

Both speak ibv_rc_pingpong's TCP exchange, listen on PORT as a server, and are driven alike:
`begin` starts one end of a case, `wait` says how it ended.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass

import network
from failure import LabFailure

PORT = 18515
ROCE_PORT = 4791
LISTEN_SECONDS = 15
PINGPONG = "ibv_rc_pingpong"
COUNTERS = "/sys/class/infiniband/rxe0/ports/1/hw_counters"


@dataclass(frozen=True)
class Ending:
    """How one end of a session ended."""

    fault: str
    """What is wrong, empty if nothing."""
    retransmissions: int
    """Times this end sent again, from a timeout or a NAK. Soft-RoCE's timer runs on across
    acknowledgements, so it has a few of them without any loss."""
    lost: int
    """Packets this end dropped on purpose."""
    log: str
    """The command and all it wrote."""


class GuestPeer:
    """Stock ibv_rc_pingpong in a guest."""

    def __init__(self, name, guest, loses_packets=False):
        self.name = name
        self.guest = guest
        self.loses_packets = loses_packets
        self.host = guest.addresses.control

    def begin(self, case, server_host=None):
        """Starts the server, or with `server_host` the client."""
        if self.loses_packets:
            self.set_loss(case.loss)
        # Without a neighbour entry each session begins with ARP or neighbour discovery.
        self.guest.check("/bin/ip neigh flush dev eth0", 10)
        before = self.retransmissions()
        text = (f"exec {PINGPONG} -d rxe0 -g {self.guest.gid_indices[case.family]} -c "
                f"-s {case.size} -m {case.path_mtu} -n {case.iterations} -p {PORT}")
        if server_host:
            text += f" {server_host}"
        return GuestSession(self, case, self.guest.begin(text, case.seconds), before)

    def set_loss(self, share):
        """Loses SENDs on their way out of the guest; its peer guest does so the other way.

        Not their acknowledgements: ibv_rc_pingpong ends with its last message, and Soft-RoCE
        would retry for ever if that one's acknowledgement was lost.
        """
        text = "/bin/tc qdisc replace dev eth0 root handle 1: pfifo"
        if share:
            text = f"""set -e
                {text}
                /bin/tc qdisc replace dev eth0 root handle 2: prio
                /bin/tc qdisc add dev eth0 parent 2:3 netem limit 10000 loss {share * 100:g}%
                add="/bin/tc filter add dev eth0 parent 2:"
                $add protocol ip u32 match ip dport {ROCE_PORT} 0xffff \\
                    match u8 0 0xf8 at 28 flowid 2:3
                $add protocol ipv6 u32 match ip6 dport {ROCE_PORT} 0xffff \\
                    match u8 0 0xf8 at 48 flowid 2:3"""
        self.guest.check(text, 10)

    def lost(self):
        """Packets lost since `set_loss`."""
        if not self.loses_packets:
            return 0
        text = self.guest.check("/bin/tc -s qdisc show dev eth0", 10)
        netem = re.search(r"qdisc netem.*?dropped (\d+)", text, re.DOTALL)
        return int(netem[1]) if netem else 0

    def retransmissions(self):
        """Soft-RoCE's count of restarts of its requester; the kernel refreshes it every 12 ms."""
        return int(self.guest.check(f"usleep 20000; cat {COUNTERS}/completer_retry_err", 10))

    def listening(self):
        """True once the server would accept."""
        pattern = f":{PORT:04X} .* 0A "
        return self.guest.run(f"grep -q '{pattern}' /proc/net/tcp /proc/net/tcp6", 10).status == 0

    def clean_up(self):
        """Ends what a failed case may have left running."""
        self.guest.run(f"killall -9 {PINGPONG}", 10)


class GuestSession:
    """One end of a case, under way in a guest."""

    def __init__(self, peer, case, running, before):
        self.peer = peer
        self.case = case
        self.running = running
        self.before = before
        self.start = time.monotonic()

    def ended(self):
        """True once `wait` would return at once."""
        return self.running.ended()

    def wait(self):
        """Its ending; the guest kills it at the case's time limit."""
        output = self.running.wait()
        log = f"{self.peer.name}$ {self.running.text}\n{output.text}\nexit {output.status}\n"
        again = self.peer.retransmissions() - self.before
        return Ending(self.fault(output), again, self.peer.lost(), log)

    def fault(self, output):
        """ibv_rc_pingpong only prints what it found wrong in the data; its status tells no more
        than whether all messages completed."""
        if output.status == 128 + signal.SIGKILL:
            return killed(self.case, self.start)
        if output.status != 0:
            return f"status {output.status}: {complaint(output.text)}"
        if "invalid data" in output.text:
            return complaint(output.text)
        wanted = 2 * self.case.size * self.case.iterations
        if not re.search(rf"^{wanted} bytes in ", output.text, re.MULTILINE):
            return f"did not report {wanted} bytes"
        return ""


class UrocePeer:
    """uroce-perf rc_pingpong, on the host side of a guest's RoCE tap.

    Of the losses it is asked for it must spare ARP and neighbour discovery (Soft-RoCE waits one
    second for a neighbour, in which the kernel asks once) and the last message with its
    acknowledgement (ibv_rc_pingpong does not wait for its peer to have got it).
    """

    name = "uroce"
    host = network.CONTROL_HOST
    addresses = {4: "192.0.2.1/24", 6: "2001:db8::1/64"}

    def __init__(self, program, tap, folder):
        self.program = program
        self.tap = tap
        self.folder = folder
        self.session = None

    def command(self, case, server_host):
        """uroce-perf's command line."""
        vdev = (f"net_af_packet0,iface={self.tap},"
                "blocksz=65536,framesz=8192,framecnt=512,qpairs=1")
        words = [
            self.program, "rc_pingpong", "--vdev", vdev, "--ip", self.addresses[case.family],
            "-s", case.size, "-m", case.path_mtu, "-n", case.iterations, "-p", PORT,
            # 2.1 s until retries run out: an emulated guest on a busy machine stands still for
            # most of a second now and then, and is not dead.
            "-u", "16", "-c", "-g", "0", "--json",
        ]
        if case.loss:
            words += ["--loss-rx", case.loss, "--loss-tx", case.loss, "--seed", case.seed]
        if server_host:
            words.append(server_host)
        return [str(word) for word in words]

    def begin(self, case, server_host=None):
        """Starts the server, or with `server_host` the client."""
        command = self.command(case, server_host)
        self.session = UroceSession(command, self.folder, case)
        return self.session

    def listening(self):
        """True once the server would accept."""
        return network.listening(PORT)

    def clean_up(self):
        """Ends what a failed case may have left running."""
        if self.session is not None:
            self.session.kill()


class UroceSession:
    """One end of a case, under way in uroce-perf."""

    def __init__(self, command, folder, case):
        self.command = command
        self.output = folder / "uroce.out"
        self.complaints = folder / "uroce.err"
        self.case = case
        with open(self.output, "w") as output, open(self.complaints, "w") as complaints:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command], start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=output, stderr=complaints,
            )
        self.start = time.monotonic()

    def ended(self):
        """True once `wait` would return at once."""
        return self.process.poll() is not None

    def wait(self):
        """Its ending; killed at the case's time limit."""
        left = self.start + self.case.seconds - time.monotonic()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(max(0.1, left))
        self.kill()
        output, complaints = (
            path.read_text(errors="replace").rstrip("\n")
            for path in (self.output, self.complaints)
        )
        report = parse_report(last_line(output))
        status = self.process.returncode
        fault = ""
        if status == -signal.SIGKILL:
            fault = killed(self.case, self.start)
        elif status != 0:
            fault = f"status {status}: {last_line(complaints or output)}"
        elif report.get("verified") is not True:
            fault = f"not verified: {last_line(output)}"
        log = (f"uroce$ {' '.join(self.command)}\n{output}\n{complaints}\n"
               f"exit {status}\n")
        return Ending(
            fault, int(report.get("retransmissions", 0)), int(report.get("lost", 0)), log,
        )

    def kill(self):
        """Ends it and whatever it started."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def wait_until_listening(server, serving):
    """True once the server accepts; False if its session ends first, or too much time passes."""
    deadline = time.monotonic() + LISTEN_SECONDS
    while not serving.ended() and time.monotonic() < deadline:
        if server.listening():
            return True
        time.sleep(0.02)
    return False


def killed(case, start):
    """Why an end was killed: for its time limit, or since its peer had failed."""
    if time.monotonic() - start >= case.seconds:
        return f"not done after {case.seconds} s"
    return "broken off"


def parse_report(line):
    """uroce-perf's last line is a JSON object; anything else is an empty one."""
    try:
        report = json.loads(line)
    except ValueError:
        return {}
    return report if isinstance(report, dict) else {}


def last_line(text):
    """The end of what a program wrote."""
    return text.strip().rpartition("\n")[2]


def complaint(text):
    """What ibv_rc_pingpong found wrong: it says so in one or two lines before its addresses."""
    lines = [line for line in text.splitlines() if " address: " not in line]
    return ", ".join(lines)


def build_uroce(repository, say):
    """Builds uroce-perf, or takes the one UROCE_PERF names; its path."""
    given = os.environ.get("UROCE_PERF")
    if given:
        if not os.access(given, os.X_OK):
            raise LabFailure(f"UROCE_PERF names no program: {given}")
        return given
    say("building uroce-perf")
    command = ["cargo", "build", "--quiet", "--release", "--package", "uroce-bench",
               "--bin", "uroce-perf"]
    try:
        built = subprocess.run(command, cwd=repository, stdout=subprocess.DEVNULL)
    except FileNotFoundError:
        raise LabFailure("no cargo here: the laboratory builds uroce-perf with it") from None
    if built.returncode != 0:
        raise LabFailure("uroce-perf does not build")
    target = os.environ.get("CARGO_TARGET_DIR") or repository / "target"
    return str(repository / target / "release" / "uroce-perf")
