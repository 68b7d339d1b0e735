"""Linux's Soft-RoCE as the peer of a guest's NIC: the guest that deploy/interop boots.

    guest with the NIC ── its tap ── bridge ── tap ── guest with Soft-RoCE

The programs of both guests exchange their addresses over the control network. uroce on this machine
takes no part.
"""

import collections
import contextlib
import shlex
import signal

from dataplane import session, uroce
from dataplane.cases import RXE_SERVES, UROCE_SERVES, Case
from dataplane.peers import GuestPeer
from dataplane.programs import ALL
from vm import network
from vm.guest import Guest
from vm.link import Tap

from .ends import CONFIG, SECONDS, Outcome, Setting

# Number of the guest with Soft-RoCE. The numbers 1 and 2 are in the addresses of uroce's ends.
NUMBER = 3
BRIDGE = "roce"
# The report of a program in the guest with the NIC.
REPORT = "/tmp/report.json"


class NicCase(Case):
    """A case at an end of which a program first starts a NIC."""

    seconds = SECONDS


# Every byte of a ping-pong is checked, at both ends; of perftest's programs the messages are
# counted.
PROGRAMS = ("rc_pingpong", "send_bw-rc", "write_bw-rc")
CASES = [NicCase(program, *roles, path_mtu=1024, size=16384, iterations=30)
         for program in ALL if program.label in PROGRAMS for roles in (UROCE_SERVES, RXE_SERVES)]


class NicPeer(GuestPeer):
    """uroce-perf in the guest with the NIC."""

    listen_seconds = SECONDS

    def __init__(self, guest):
        super().__init__("uroce", guest)

    def begin(self, case, server_host=None):
        """Starts the server, or with `server_host` the client."""
        words = uroce.words(case, ["--config", CONFIG], 0, REPORT, server_host)
        text = f"rm -f {REPORT}; exec uroce-perf {shlex.join(words)}"
        if case.program.verifies:
            text += f" >{REPORT}"
        return NicSession(self, case, self.guest.begin(text, case.seconds), not server_host)

    def clean_up(self, _):
        """Ends what a failed case may have left running, which would keep the NIC."""
        self.guest.run("killall -9 uroce-perf", 10)


class NicSession(uroce.Session):
    """One end of a case that runs in the guest with the NIC."""

    def __init__(self, peer, case, running, serving):
        super().__init__(case, serving)
        self.peer = peer
        self.running = running

    def ended(self):
        """Whether the program has ended, so that `wait` returns at once."""
        return self.running.ended()

    def wait(self):
        """Waits until the program ends and returns the ending. The guest kills the program at the
        case's time limit."""
        output = self.running.wait()
        said = self.peer.guest.run(f"cat {REPORT}", 10).text
        log = (f"{self.peer.name}$ {self.running.text}\n{output.text}\n{said}\n"
               f"exit {output.status}\n")
        return self.ending(output.status == 128 + signal.SIGKILL, output.status,
                           uroce.last_line(output.text), uroce.parsed(self.case.program, said), log)


def soft_roce(ends):
    """Checks that the guest's programs and those of Debian over Linux's Soft-RoCE exchange
    messages."""
    ends.write_config(Setting())
    near = NicPeer(ends.guest)
    try:
        with linux(ends.guest, ends.work) as far:
            return exchange(near, far)
    finally:
        near.clean_up(None)


@contextlib.contextmanager
def linux(beside, work):
    """Boots a guest with Soft-RoCE on a bridge with the first NIC of another guest, as long as the
    block runs. The block gets its peer."""
    network.add_bridge(BRIDGE, network.ROCE_MTU)
    try:
        network.ip("link", "set", beside.link.interfaces[0], "master", BRIDGE)
        with Guest(beside.image.base, NUMBER, work, Tap(NUMBER, BRIDGE)) as guest:
            guest.wait_until_ready()
            yield GuestPeer("rxe", guest)
    finally:
        network.ip("link", "delete", BRIDGE)


def exchange(near, far):
    """Runs the cases up to the first that fails. Returns an Outcome."""
    peers, again, log = {peer.name: peer for peer in (near, far)}, collections.Counter(), []
    for case in CASES:
        endings = session.hold(case, peers[case.server], peers[case.client])
        log += [ending.log for ending in endings.values()]
        again.update({name: ending.retransmissions for name, ending in endings.items()})
        fault = session.judge(case, endings)
        if fault:
            return Outcome(f"{case.name}: {fault}", log="\n".join(log))
    told = [f"{count} by {name}" for name, count in sorted(again.items()) if count]
    return Outcome(notes="retransmissions: " + ", ".join(told) if told else "")
