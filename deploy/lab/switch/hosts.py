"""The programs at the switch's ports: over uroce by `uroce-run --switch`, and in the guest."""

import contextlib
import time

from cm import ends
from cm.ends import CaseFault, last_words
from vm.guest import Addresses
from vm.network import ROCE_MTU

LISTEN_SECONDS = 15
SECONDS = 30
# Pings of a client of rping.
PINGS = 100
# Lines of a program's output that count as progress.
PROGRESS = 50
# The guest's number. Ports of programs follow it in their addresses.
GUEST = Addresses(5)
PORTS = (1, 2, 3, 4)
# Runs a program in namespaces of its own.
CONTAINER = ("unshare", "--net", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc")


def address(number):
    """IPv4 address of the program at a port."""
    return f"192.0.2.{10 + number}"


class Hosts(ends.Ends):
    """Starts programs at the ports of a switch and keeps a log."""

    def __init__(self, switch, uroce_run, work):
        super().__init__(None, "", uroce_run, None, work)
        self.switch = switch
        self.mtus = {}
        """MTU of the programs by port, where it is not the usual one."""

    @contextlib.contextmanager
    def ports(self, mtu, *names):
        """Adds ports while the block runs. Their programs have the port's MTU, but at least the
        usual one."""
        for name in names:
            self.switch.add(name, mtu)
            self.mtus[name] = max(mtu, ROCE_MTU)
        try:
            yield
        finally:
            self.clean_up()
            self.switch.remove(*names)

    @staticmethod
    def number(where):
        """A number for a port: its own, or the last digit of its name and 5."""
        return where if isinstance(where, int) else 5 + int(where[-1])

    def start(self, where, *words, seconds=SECONDS, container=False):
        """Starts a program at a port of the switch. In a container it has a network, processes and
        a run directory of its own, and shares only the directory of the sockets."""
        name = f"p{where}" if isinstance(where, int) else where
        run = self.work / f"run-{name}" if container else self.work
        run.mkdir(exist_ok=True)
        within = CONTAINER if container else ()
        command = ["env", f"XDG_RUNTIME_DIR={run}", *within, self.uroce_run,
                   "--switch", self.switch.path(name), "--ip", f"{address(self.number(where))}/24",
                   "--mtu", self.mtus.get(name, ROCE_MTU), "--", *words]
        process = ends.OverUroce(self, [str(word) for word in command], seconds)
        self.processes.append(process)
        return process

    def serve(self, where, *words, port=0, **options):
        """Starts a server at a port of the switch, and returns when it listens: on the TCP port
        `port`, or with the connection manager."""
        server = self.start(where, *words, **options)
        deadline = time.monotonic() + LISTEN_SECONDS
        while time.monotonic() < deadline and not server.ended():
            if server.is_listening(port):
                return server
            time.sleep(0.02)
        raise CaseFault(f"port {where}'s {words[0]} does not listen: "
                        f"{last_words(server.kill().text)}")

    def in_guest(self, program, *words):
        """Starts a program in the guest."""
        process = ends.Stock(self, program, [str(word) for word in words], SECONDS)
        self.processes.append(process)
        return process

    def wait_until_guest_listens(self, count):
        """Waits until the guest's kernel has this number of listeners."""
        look = f"[ $(rdma resource show cm_id | grep -c LISTEN) -ge {count} ]"
        text = f"for i in $(seq 250); do {look} && exit 0; usleep 20000; done; exit 1"
        if self.guest.run(text, LISTEN_SECONDS).status != 0:
            raise CaseFault("Linux's servers do not listen")

    def wait_until_forwarded(self, frames):
        """Waits until the switch has forwarded this number of further frames."""
        wanted, deadline = self.switch.forwarded() + frames, time.monotonic() + SECONDS
        while self.switch.forwarded() < wanted:
            if time.monotonic() > deadline:
                raise CaseFault(f"the switch does not forward {frames} frames in {SECONDS} s")
            time.sleep(0.1)

    @staticmethod
    def fault(processes):
        """Waits for programs, and says which failed. A client of rping that is disconnected early
        has status 0, so its pings are counted."""
        for process, output in [(process, process.wait()) for process in processes]:
            is_stock = isinstance(process, ends.Stock)
            what = process.text if is_stock else " ".join(process.command)
            if output.status != 0:
                return f"{what}: status {output.status}: {last_words(output.text)}"
            if "rping -c" in what and output.text.count("ping data") < PINGS:
                return f"{what}: broken off: {last_words(output.text)}"
        return ""

    @staticmethod
    def proceeds(process):
        """Whether a program goes on printing lines."""
        wanted, deadline = process.text().count("\n") + PROGRESS, time.monotonic() + SECONDS
        while time.monotonic() < deadline and not process.ended():
            if process.text().count("\n") >= wanted:
                return True
            time.sleep(0.05)
        return False

    def clean_up(self):
        """Ends everything that a case may have left running."""
        if self.guest is not None:
            return super().clean_up()
        for process in self.processes:
            process.kill()
        self.processes.clear()
        return None
