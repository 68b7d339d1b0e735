"""The ends of an application case: a program over uroce on this machine, or a stock one in the
guest.

Over uroce a program is started by `uroce-run`, as a user would do it. A `Place` is either the
built-in configuration (members of the local fabric) or a configuration file for the guest's link.
"""

import os
import time

from cm import ends
from vm import network

LISTEN_SECONDS = 20
OURS = ends.OURS


class Place:
    """A place where an end runs: its addresses, and the words that tell a program there about
    them."""

    name = "uroce"
    device_words = ()

    def __init__(self, addresses, meeting, words=(), mac=""):
        self.addresses = addresses
        self.mac = mac
        """Ethernet address, where raw programs run."""
        self.meeting = meeting
        """Address for TCP connections to this place."""
        self.words = list(words)
        """Options for uroce-run."""

    def address(self, family):
        """The RoCE address of an IP version."""
        return self.addresses[family]

    @staticmethod
    def gid_index(family):
        """Index of the address in the GID table. The IPv4 address is the first one."""
        return {4: 0, 6: 1}[family]

    @staticmethod
    def perftest_gid_words(family):
        """Options with which perftest finds the GID of an IP version."""
        return ["--ipv6"] if family == 6 else []


class GuestPlace(Place):
    """A place in the guest, on Soft-RoCE. The peer may be there too."""

    name = "rxe"
    device_words = ("-d", "rxe0")

    def __init__(self, guest, meeting):
        super().__init__({4: guest.addresses.ipv4, 6: guest.addresses.ipv6}, meeting)
        self.guest = guest

    def gid_index(self, family):
        """Index of the address in the GID table, as read in the guest."""
        return self.guest.gid_indices[family]

    def perftest_gid_words(self, family):
        """Options with which perftest finds the GID. Soft-RoCE's first GID is link-local, and
        perftest would take it for an IPv6 address."""
        return ["-x", self.gid_index(family)]


def embedded(number):
    """A place of the built-in configuration. The first process gets number 1, the second number
    2."""
    return Place({4: f"192.0.2.{number}", 6: f"2001:db8::{number}"}, "127.0.0.1",
                 mac=f"02:75:72:6f:63:{number:02x}")


def on_link(link, folder):
    """The host's end of a guest's link. The guest reaches it by TCP over the control network."""
    path = ends.configuration(link, folder)
    return Place(OURS, network.CONTROL_HOST, ["--config", path])


class Ends(ends.Ends):
    """Starts programs at places. Programs learn their place only from the environment."""

    def __init__(self, guest, uroce_run, link, work):
        super().__init__(guest, "", uroce_run, link, work)
        self.environment = [f"XDG_RUNTIME_DIR={work}"]
        self.path = os.environ["PATH"]

    def search_first(self, folder):
        """Makes programs over uroce come from this folder before all others."""
        self.path = f"{folder}:{self.path}"
        self.environment.append(f"PATH={self.path}")

    def begin_at(self, place, words, case):
        """Starts a program at a place."""
        words = [str(word) for word in words]
        if isinstance(place, GuestPlace):
            process = Stock(self, words[0], words[1:], case.seconds)
        else:
            command = ["env", *self.environment, *case.environment, self.uroce_run, *place.words,
                       "--", *words]
            process = ends.OverUroce(self, [str(word) for word in command], case.seconds)
        self.processes.append(process)
        return process

    def serve_at(self, place, words, case):
        """Starts a server at a place and returns when it listens."""
        server = self.begin_at(place, words, case)
        if case.program.ready_seconds:
            time.sleep(case.program.ready_seconds)
            return server
        deadline = time.monotonic() + LISTEN_SECONDS
        while not server.ended():
            if server.is_listening(case.port):
                return server
            if time.monotonic() > deadline:
                text = ends.last_words(server.kill().text)
                raise ends.CaseFault(f"{words[0]} at {place.name} does not listen: {text}")
            time.sleep(0.02)
        ending = server.wait()
        raise ends.CaseFault(f"{words[0]} at {place.name} ended at once, status "
                               f"{ending.status}: {ends.last_words(ending.text)}")

    def clean_up(self):
        """Ends everything that a case may have left running."""
        stock = {process.program for process in self.processes if isinstance(process, Stock)}
        for process in self.processes:
            if isinstance(process, ends.Ours):
                process.kill()
        if stock:
            self.guest.run(f"killall -9 {' '.join(stock)}", 10)
        self.processes.clear()


class Stock(ends.Stock):
    """A program in the guest."""

    def is_listening(self, port):
        """Whether the program listens: on a TCP port, or without one, with a listener of the
        kernel's connection manager."""
        if not port:
            return self.listening()
        look = f"grep -q ':{port:04X} .* 0A ' /proc/net/tcp /proc/net/tcp6"
        return self.ends.guest.run(look, 5).status == 0
