"""The cases of connection management: the program of each end, and the expected result.

A case is a function of `Ends` that returns what is wrong, or nothing. A session is a program's
server at one end and its client at the other.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Callable

from . import faults, keepalive
from .ends import Loss, last_words

SECONDS = 30
# A lost message of the connection manager costs the peer's response timeout, some seconds.
LOSSY_SECONDS = 120
IN_A_ROW = 1000
SERVES = (("uroce", "rxe"), ("rxe", "uroce"))
FAMILIES = (4, 6)
# The default port of the stock programs.
PORT = 7174


@dataclass(frozen=True)
class Case:
    """A case with its fields for the report."""

    name: str
    """The name, usable as a file name."""
    server: str
    client: str
    run: Callable = field(repr=False, compare=False)
    """Function that runs the case with the ends and returns what is wrong."""
    mads: int = 1
    """Least number of MADs that uroce sends in the case."""
    link: str = "tap"
    """The kind of link to the guest."""

    def fields(self):
        """Fields for the JSON report."""
        return {"link": self.link}


@dataclass(frozen=True)
class Session:
    """A program at both ends; called with the ends."""

    program: str
    server: str
    client: str
    family: int = 4
    size: int = 100
    count: int = 10
    connections: int = 1
    loss: float = 0
    seed: int = 1

    def __call__(self, ends):
        """Runs the session and returns what is wrong."""
        ends.loss = Loss(self.loss, self.seed)
        seconds = LOSSY_SECONDS if self.loss else SECONDS
        address = ends.address(self.server, self.family)
        server = ends.serve(self.server, self.program, self.words(self.server, address, True),
                            seconds)
        client = ends.start(self.client, self.program, self.words(self.client, address, False),
                            seconds)
        outputs = {self.client: client.wait()}
        # The server of cmtime runs until it is killed.
        for_ever = self.program == "cmtime" and not server.ended()
        outputs[self.server] = server.kill() if for_ever else server.wait()
        for name, output in outputs.items():
            killed = for_ever and name == self.server
            if not (output.status == 0 or killed or name == "rxe" and self.is_late(output)):
                return f"{name}: status {output.status}: {last_words(output.text)}"
        if self.loss and self.program != "rping" and not ends.lost():
            return "no packet was lost, so the case proves nothing"
        return self.judge(outputs, ends)

    def is_late(self, output):
        """Whether a stock rping failed only after it was disconnected. Its event thread may ask for
        another event after the main thread has closed the channel, and then ends the program."""
        return (self.program == "rping" and output.status == 255
                and "wait for RDMA_READ_ADV state 10" in output.text)

    def words(self, name, address, serving):
        """Options of one end."""
        if self.program == "rping":
            words = ["-s" if serving else "-c", "-a", address, "-p", PORT, "-C", self.count,
                     "-S", self.size, "-v", "-V"]
        else:
            words = ["-b" if serving else "-s", address, "-c", self.connections]
            if self.program != "cmtime":
                words += ["-C", self.count, "-S", self.size]
            if self.program == "ucmatose":
                words += ["-p", PORT]
        return words

    def judge(self, outputs, ends):
        """Describes what is missing in the programs' outputs. Empty if nothing is."""
        if self.program == "rping":
            pings = re.findall(r"ping data: rdma-ping-(\d+): ", outputs["rxe"].text)
            if [int(number) for number in pings] != list(range(self.count)):
                return f"rxe saw the pings {' '.join(pings)}"
        elif self.program in ("ucmatose", "udaddy"):
            for name, output in outputs.items():
                if "return status 0" not in output.text:
                    return f"{name}: {last_words(output.text)}"
        elif self.program == "cmtime":
            said = times(outputs[self.client].text)
            ends.said.append(f"a connection of {self.client}'s, of {self.connections}: {said}")
            return "" if said else f"{self.client}: {last_words(outputs[self.client].text)}"
        return ""


def table(brief=False):
    """All cases. `brief` leaves out those that make 1,000 connections, or wait for a keepalive."""
    every = [*sessions(), *faults.table(Case), *keepalive.table(Case)]
    waits = "rping-vanished-uroce-serves"
    return [case for case in every
            if not brief or case.mads < IN_A_ROW and case.name != waits]


def sessions():
    """Each program with both roles, over IPv4 and IPv6, and over each kind of link."""
    cases = []
    for server, client in SERVES:
        both = {"server": server, "client": client}
        for family, size in ((4, 64), (6, 23), (4, 65535), (6, 4097)):
            cases.append(session("rping", f"v{family}-{size}B", both, family=family, size=size))
        for family in FAMILIES:
            cases.append(session("ucmatose", f"v{family}", both, family=family, connections=3))
            cases.append(session("udaddy", f"v{family}", both, family=family, connections=3))
        cases.append(session("rping", "v4-1000B-vhost", both, link="vhost", size=1000))
        # A stock server rejects some of 1,000 simultaneous requests.
        count = 1000 if server == "uroce" else 200
        cases.append(session("cmtime", f"v4-{count}", both, connections=count))
        # With 16 connections some lose messages of the connection manager in each direction.
        cases.append(session("ucmatose", "v4-loss2", both, loss=0.02, connections=16, seed=1))
        cases.append(session("rping", "v6-loss2", both, family=6, loss=0.02, count=60, size=9000,
                             seed=3))
    cases.append(Case("connect-v4-1000-in-a-row-rxe-serves", "rxe", "uroce", in_a_row, IN_A_ROW))
    return cases


def in_a_row(ends):
    """Makes connections one after the other. The server is a stock rping that gets no ping, because
    a stock cmtime cannot create another QP after a connection has ended."""
    address = ends.address("rxe", 4)
    server = ends.serve("rxe", "rping", ["-s", "-P", "-a", address, "-p", PORT], LOSSY_SECONDS)
    words = ["-n", 1, "--rounds", IN_A_ROW, "-j", 1, f"{address}:{PORT}"]
    ending = ends.start("uroce", "connect", words, LOSSY_SECONDS).wait()
    server.kill()
    if ending.status != 0:
        return f"uroce: status {ending.status}: {last_words(ending.text)}"
    report = json.loads(ending.text.splitlines()[-1])
    said = ", ".join(f"{step} {1e6 / report[rate]:.0f} us" for step, rate in (
        ("connect", "setups_per_s"), ("disconnect", "disconnects_per_s")))
    ends.said.append(f"a connection of uroce's, of {IN_A_ROW}: {said}")
    return ""


def session(program, what, roles, link="tap", **rest):
    """Makes the case of a session."""
    run = Session(program, **roles, **rest)
    return Case(f"{program}-{what}-{roles['server']}-serves", **roles, run=run, link=link,
                mads=run.connections)


def times(text):
    """The times of connecting and disconnecting that a client of `cmtime` prints."""
    rows = re.findall(r"^(connect|disconnect) *: .* (\d+\.\d+)$", text, re.MULTILINE)
    return ", ".join(f"{step} {each} us" for step, each in rows)
