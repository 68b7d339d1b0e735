"""Peers of a session that run stock programs on a guest's Soft-RoCE.

All kinds of peers have the same interface: `begin` starts one end of a case, `wait` returns how it
ended. `programs` has the programs, their options and the meaning of their output.
"""

import re
import signal
import time
from dataclasses import dataclass

from . import programs

ROCE_PORT = 4791
LISTEN_SECONDS = 15
# Added by a shell to the number of the signal that ended a program.
SIGNALED = 128
UNTIL_LINK_IS_UP = "until grep -q 1 /sys/class/net/eth0/carrier; do usleep 10000; done"
COUNTERS = "/sys/class/infiniband/rxe0/ports/1/hw_counters"


@dataclass(frozen=True)
class Ending:
    """The result of one end of a session."""

    fault: str
    """Description of the failure. Empty if the end succeeded."""
    retransmissions: int
    """Number of retransmissions of this end, after a timeout or a NAK. Soft-RoCE's timer is not
    restarted by acknowledgements, so it has a few even without loss."""
    lost: int
    """Packets that this end dropped on purpose."""
    log: str
    """The command and its output."""


class GuestPeer:
    """Stock programs in a guest."""

    makes_link = False
    listen_seconds = LISTEN_SECONDS
    """Longest time until a server listens."""

    def __init__(self, name, guest, loses_packets=False):
        self.name = name
        self.guest = guest
        self.loses_packets = loses_packets
        self.host = guest.addresses.control

    def begin(self, case, server_host=None):
        """Starts the server, or with `server_host` the client."""
        if self.loses_packets:
            self.set_loss(case.loss)
        # Without a neighbour entry, so that each session begins with ARP or neighbour discovery.
        before = self.retransmissions(f"{UNTIL_LINK_IS_UP}; /bin/ip neigh flush dev eth0")
        program = case.program
        words = ["exec", program.stock, "-d", "rxe0", program.gid_option,
                 self.guest.gid_indices[case.family], *program.options(case, stock=True)]
        words += [*program.client_options(), server_host] if server_host else []
        text = " ".join(words)
        running = self.guest.begin(text, case.seconds)
        return GuestSession(self, case, running, before, serving=not server_host)

    def set_loss(self, share):
        """Drops SENDs on their way out of the guest. The peer guest does so in the other direction.

        Acknowledgements are not dropped: ibv_rc_pingpong ends with its last message, and Soft-RoCE
        would retry for ever if the acknowledgement of that message was lost.
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
        """Packets dropped since `set_loss`."""
        if not self.loses_packets:
            return 0
        text = self.guest.check("/bin/tc -s qdisc show dev eth0", 10)
        netem = re.search(r"qdisc netem.*?dropped (\d+)", text, re.DOTALL)
        return int(netem[1]) if netem else 0

    def retransmissions(self, first="true"):
        """Soft-RoCE's counter of requester restarts, which the kernel updates every 12 ms. `first`
        is run in the guest before."""
        text = f"set -e; {first}; usleep 20000; cat {COUNTERS}/completer_retry_err"
        return int(self.guest.check(text, 10))

    def wait_until_listening(self, port, serving):
        """Waits until the server listens. False if its session ends first or the time is over. The
        guest does the waiting, because each command from outside costs it a process."""
        pattern = f":{port:04X} .* 0A "
        look = f"grep -q '{pattern}' /proc/net/tcp /proc/net/tcp6"
        text = f"for i in $(seq 20); do {look} && exit 0; usleep 20000; done; exit 1"
        deadline = time.monotonic() + self.listen_seconds
        while not serving.ended() and time.monotonic() < deadline:
            if self.guest.run(text, 10).status == 0:
                return True
        return False

    def clean_up(self, case):
        """Ends everything that a failed case may have left running."""
        self.guest.run(f"killall -9 {case.program.stock}", 10)

    def last_message(self):
        """The kernel's last message. After a fault of a program it says where that was."""
        return self.guest.run("dmesg | tail -n 1", 10).text


class GuestSession:
    """One end of a case that runs in a guest."""

    def __init__(self, peer, case, running, before, serving):
        self.peer = peer
        self.case = case
        self.running = running
        self.before = before
        self.serving = serving
        self.start = time.monotonic()

    def ended(self):
        """Whether the program has ended, so that `wait` returns at once."""
        return self.running.ended()

    def wait(self):
        """Waits until the program ends and returns the ending. The guest kills the program at the
        case's time limit."""
        output = self.running.wait()
        log = f"{self.peer.name}$ {self.running.text}\n{output.text}\nexit {output.status}\n"
        again = self.peer.retransmissions() - self.before
        return Ending(self.fault(output), again, self.peer.lost(), log)

    def fault(self, output):
        """Describes the failure. Empty if the program succeeded. Status 0 only means that all
        messages completed, so the output is checked too."""
        if output.status == SIGNALED + signal.SIGKILL:
            return killed(self.case, self.start)
        if output.status > SIGNALED:
            name = signal.strsignal(output.status - SIGNALED)
            return f"Linux's program ended with: {name}; its kernel: {self.peer.last_message()}"
        if output.status != 0:
            return f"status {output.status}: {programs.complaint(output.text)}"
        return self.case.program.fault(self.case, output.text, self.serving)


def killed(case, start):
    """The reason why an end was killed: its time limit, or the failure of its peer."""
    if time.monotonic() - start >= case.seconds:
        return f"not done after {case.seconds} s"
    return "broken off"
