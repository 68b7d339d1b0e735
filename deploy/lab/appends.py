"""The ends of an application case: a program over uroce on this machine, or a stock one in the
guest.

Over uroce a program is started by `uroce-run`, as a user would do it. A `Place` is either the
built-in configuration (two processes joined by memif) or a configuration file for the guest's link.
"""

import contextlib
import os
import signal
import time
from pathlib import Path

import cmends
import network

LISTEN_SECONDS = 20
OURS = cmends.OURS
# Name prefixes of threads that belong to the library.
THREADS = ("uroce", "dpdk", "eal", "rte", "telemetry", "lcore")
# System calls of x86-64 that wait for an event: read, poll, select, epoll_wait, pselect6, ppoll,
# epoll_pwait. The value is the index of the argument with the descriptor.
WAITS_FOR_EVENT = {0: 1, 7: 0, 23: 0, 232: 1, 270: 0, 271: 0, 281: 1}
# The futex call, and the operation that sem_wait uses: FUTEX_WAIT_BITSET, private, with the
# realtime clock. The library waits with another clock, and joins threads with a futex that is not
# private.
FUTEX, SEM_WAIT = 202, 9 | 128 | 256


class Place:
    """A place where an end runs: its addresses, and the words that tell a program there about
    them."""

    name = "uroce"
    device_words = ()

    def __init__(self, addresses, meeting, words=()):
        self.addresses = addresses
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
    return Place({4: f"192.0.2.{number}", 6: f"2001:db8::{number}"}, "127.0.0.1")


def on_link(link, folder):
    """The host's end of a guest's link. The guest reaches it by TCP over the control network."""
    path = folder / f"{link.name}.toml"
    addresses = ", ".join(
        f'"{address}/{cmends.PREFIXES[family]}"' for family, address in OURS.items())
    path.write_text(f"""[[device]]
name = "uroce0"

[[device.port]]
ethdev = {{ vdev = "{link.vdev()}" }}
ip = [{addresses}]
mtu = {network.ROCE_MTU}
""")
    return Place(OURS, network.CONTROL_HOST, ["--config", path])


class Ends(cmends.Ends):
    """Starts programs at places. Programs learn their place only from the environment."""

    def __init__(self, guest, uroce_run, link, work):
        super().__init__(guest, uroce_run, link, work)
        self.environment = [f"XDG_RUNTIME_DIR={work}"]

    def begin_at(self, place, words, case):
        """Starts a program at a place."""
        words = [str(word) for word in words]
        if isinstance(place, GuestPlace):
            process = Stock(self, words[0], words[1:], case.seconds)
        else:
            command = ["env", *self.environment, *case.environment, self.uroce_perf, *place.words,
                       "--", *words]
            process = Ours(self, [str(word) for word in command], case.seconds)
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
                text = cmends.last_words(server.kill().text)
                raise cmends.CaseFault(f"{words[0]} at {place.name} does not listen: {text}")
            time.sleep(0.02)
        ending = server.wait()
        raise cmends.CaseFault(f"{words[0]} at {place.name} ended at once, status "
                               f"{ending.status}: {cmends.last_words(ending.text)}")

    def clean_up(self):
        """Ends everything that a case may have left running."""
        stock = {process.program for process in self.processes if isinstance(process, Stock)}
        for process in self.processes:
            if isinstance(process, Ours):
                process.kill()
        if stock:
            self.guest.run(f"killall -9 {' '.join(stock)}", 10)
        self.processes.clear()


class Stock(cmends.Stock):
    """A program in the guest."""

    def is_listening(self, port):
        """Whether the program listens: on a TCP port, or without one, with a listener of the
        kernel's connection manager."""
        if not port:
            return self.listening()
        look = f"grep -q ':{port:04X} .* 0A ' /proc/net/tcp /proc/net/tcp6"
        return self.ends.guest.run(look, 5).status == 0


class Ours(cmends.Ours):
    """A program over uroce."""

    def is_listening(self, port):
        """Whether the program listens: on a TCP port, or without one, whether its first thread
        waits for an event or for another thread that waits for one.

        The event thread of rping waits before the first thread listens; the first thread then waits
        for a semaphore.
        """
        if port:
            return network.listening(port)
        return any(waits_to_be_called(process) for process in family(self.process.pid))

    def kill(self, number=signal.SIGKILL):
        """Kills the program and its forked processes, which fio puts into other sessions. Returns
        the ending."""
        for process in family(self.process.pid)[1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)
        return super().kill(number)


def family(pid):
    """A process and its descendants."""
    found = [pid]
    for process in found:
        for task in Path(f"/proc/{process}/task").glob("*"):
            found += [int(child) for child in read(task / "children").split()]
    return found


def tasks(pid):
    """Threads of a process, without those of the library."""
    return [task for task in Path(f"/proc/{pid}/task").glob("*")
            if not read(task / "comm").startswith(THREADS)]


def waits_to_be_called(process):
    """Whether the first thread of a process waits for an event, or for a semaphore while another
    thread waits for an event."""
    first = Path(f"/proc/{process}/task/{process}")
    return waits_for_event(first) or (
        waits_for_semaphore(first) and any(waits_for_event(task) for task in tasks(process)))


def waits_for_semaphore(task):
    """Whether a thread is in sem_wait."""
    words = read(task / "syscall").split()
    return len(words) > 2 and words[0] == str(FUTEX) and int(words[2], 16) == SEM_WAIT


def waits_for_event(task):
    """Whether a thread waits in a system call for an event descriptor."""
    words = read(task / "syscall").split()
    if len(words) < 2 or not words[0].isdigit() or int(words[0]) not in WAITS_FOR_EVENT:
        return False
    if not WAITS_FOR_EVENT[int(words[0])]:
        return True
    try:
        return "eventfd" in os.readlink(task / f"fd/{int(words[1], 16)}")
    except OSError:
        return False


def read(path):
    """Reads a file of a process that may have ended. Empty in that case."""
    try:
        return path.read_text()
    except OSError:
        return ""
