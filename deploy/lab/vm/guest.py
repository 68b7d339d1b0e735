"""A guest: Debian's kernel under QEMU without KVM, and its commands.

Commands go over TCP to a shell on the guest's control interface (`agent`), one connection each, so
several may run at once. A `link` carries the frames of the guest's RoCE interface.

Invariant: the guest ends with the thread that booted it, however that ends (PDEATHSIG).
"""

import base64
import contextlib
import json
import re
import socket
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from . import network
from report.failure import LabFailure

AGENT_PORT = 7
BOOT_SECONDS = 60
# Seconds after the guest's own time limit at which the host closes a command's connection.
GRACE_SECONDS = 5
# Seconds for fetching a file of a few megabytes from a guest.
FETCH_SECONDS = 30
VIRTIO = "virtio-net-pci,romfile="
# The last line of a command's output, which `agent` adds.
LAST_LINE = re.compile(rb"\nexit (\d+)\n\Z")


@dataclass(frozen=True)
class Addresses:
    """The addresses of a guest, by its number. The IPv4 and IPv6 prefixes are those for
    documentation."""

    number: int

    @property
    def ipv4(self):
        """IPv4 address of the RoCE interface."""
        return f"192.0.2.{self.number}"

    @property
    def ipv6(self):
        """IPv6 address of the RoCE interface."""
        return f"2001:db8::{self.number}"

    @property
    def control(self):
        """IPv4 address of the control interface."""
        return f"198.51.100.{self.number}"

    def mac(self, interface):
        """A locally administered Ethernet address; `interface` is 0 for RoCE, 1 for control."""
        return f"02:00:00:00:{interface:02x}:{self.number:02x}"


@dataclass(frozen=True)
class Output:
    """The output of a command in the guest (both streams) and its exit status."""

    status: int
    text: str


class Guest:
    """A guest. `boot` starts it, `stop` ends it, and a context manager does both."""

    processors = 1

    def __init__(self, image, number, folder, link):
        self.image = image
        self.addresses = Addresses(number)
        self.name = f"guest{number}"
        self.link = link
        self.console = folder / f"{self.name}.console"
        self.monitor_path = folder / f"{self.name}.qmp"
        self.process = None
        self.gid_indices = {}

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        """Starts QEMU. Use `wait_until_ready` before the first command."""
        self.link.prepare()
        network.add_tap(f"ctl{self.addresses.number}", 1500, "control")
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *self.command()], start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )

    def restart(self):
        """Boots again, with an empty console. Returns when it is ready."""
        self.stop()
        self.start()
        self.wait_until_ready()

    def command(self):
        """QEMU's command line."""
        here = self.addresses
        words = [
            "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none",
            "-no-reboot", "-accel", "tcg", "-smp", str(self.processors), *self.link.machine(),
            "-kernel", str(self.image.kernel), "-initrd", str(self.image.initramfs),
            "-append", self.kernel_line(), "-serial", f"file:{self.console}",
            "-qmp", f"unix:{self.monitor_path},server=on,wait=off",
        ]
        control = f"tap,id=control,ifname=ctl{here.number},script=no,downscript=no,vnet_hdr=off"
        return words + [
            *self.roce_devices(),
            "-netdev", control, "-device", f"{VIRTIO},netdev=control,mac={here.mac(1)}",
        ]

    def kernel_line(self):
        """The kernel's command line, with the variables of `init`."""
        here = self.addresses
        return (f"console=ttyS0 quiet panic=-1 "
                f"ROCE4={here.ipv4}/24 ROCE6={here.ipv6}/64 "
                f"CONTROL={here.control}/{network.CONTROL_PREFIX}")

    def roce_devices(self):
        """QEMU's options for the devices that carry RoCE, before that of the control interface."""
        mac = self.addresses.mac(0)
        return [*self.link.netdev("roce"),
                "-device", f"{VIRTIO},netdev=roce,mac={mac}{self.link.device_options()}"]

    def waited(self):
        """Seconds that its threads, those of the processor and of the devices, have waited for a
        CPU of this machine, in total."""
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[1]) for task in tasks) / 1e9

    def wait_until_ready(self):
        """Returns when the guest is ready. Raises LabFailure if that fails."""
        deadline = time.monotonic() + BOOT_SECONDS
        reason = ""
        while self.process.poll() is None and time.monotonic() < deadline:
            try:
                self.check_ready()
                return
            except (OSError, LabFailure) as error:
                reason = error
            time.sleep(0.1)
        raise LabFailure(f"{self.name} did not boot: {reason}\n{self.last_words()}")

    def check_ready(self):
        """Succeeds when commands run and Soft-RoCE has its addresses."""
        self.find_gids()

    def find_gids(self):
        """Reads the indices of the addresses in Soft-RoCE's GID table."""
        listing = self.run("cd /sys/class/infiniband/rxe0/ports/1/gids && grep . *", 5)
        table = {}
        for line in listing.text.splitlines():
            index, _, gid = line.partition(":")
            table[gid] = index
        for family, address in ((4, self.addresses.ipv4), (6, self.addresses.ipv6)):
            gid = exploded_gid(family, address)
            if gid not in table:
                raise LabFailure(f"{self.name}: Soft-RoCE has no GID for {address}")
            self.gid_indices[family] = table[gid]

    def begin(self, text, seconds):
        """Starts a shell text in the guest, which kills it after `seconds`."""
        address = (self.addresses.control, AGENT_PORT)
        connection = socket.create_connection(address, timeout=GRACE_SECONDS)
        connection.sendall(f"{seconds}\n{text}".encode())
        connection.shutdown(socket.SHUT_WR)
        return Running(connection, text, seconds)

    def run(self, text, seconds):
        """Runs a shell text and waits for its end."""
        return self.begin(text, seconds).wait()

    def check(self, text, seconds):
        """Runs a shell text that must succeed, and returns its output."""
        output = self.run(text, seconds)
        if output.status != 0:
            raise LabFailure(f"{self.name}: {text}: status {output.status}\n{output.text}")
        return output.text

    def fetch(self, path):
        """Reads a file of the guest."""
        return base64.b64decode(self.check(f"base64 {path}", FETCH_SECONDS))

    def capture(self, path):
        """A context in which the frames of the RoCE interface are captured. Its value is a function
        that returns the pcap file's content so far, for use inside the context."""
        return self.link.capture(self, path)

    def monitor(self, command, arguments):
        """Runs one command of QEMU's monitor protocol."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(GRACE_SECONDS)
            connection.connect(str(self.monitor_path))
            replies = connection.makefile()
            for request in ({"execute": "qmp_capabilities"},
                            {"execute": command, "arguments": arguments}):
                connection.sendall(json.dumps(request).encode() + b"\n")
                reply = next(reply for reply in map(json.loads, replies)
                             if "return" in reply or "error" in reply)
                if "error" in reply:
                    raise LabFailure(f"QEMU: {command}: {reply['error']['desc']}")

    def last_words(self):
        """The end of the console, and QEMU's error output."""
        console = self.console.read_text(errors="replace") if self.console.exists() else ""
        complaint = self.process.stderr.read() if self.process.poll() is not None else ""
        return "\n".join([*console.splitlines()[-20:], complaint])

    def stop(self):
        """Ends QEMU. There is no disk to flush."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process.stderr.close()


class Running:
    """A running command in a guest. Its output is read as it arrives, because a program that fills
    the connection's buffer would stop."""

    def __init__(self, connection, text, seconds):
        self.text = text
        self.seconds = seconds + GRACE_SECONDS
        self.deadline = time.monotonic() + self.seconds
        self.received = bytearray()
        self.reader = threading.Thread(target=self.read, args=[connection], daemon=True)
        self.reader.start()

    def read(self, connection):
        """Keeps what arrives until the guest closes the connection or ends."""
        with connection, contextlib.suppress(OSError):
            connection.settimeout(self.seconds)
            while chunk := connection.recv(65536):
                self.received += chunk

    def ended(self):
        """Whether the program has ended, so that `wait` returns at once."""
        return not self.reader.is_alive()

    def wait(self):
        """Waits until the program ends and gives output and status.

        Raises LabFailure if the guest does not answer."""
        self.reader.join(max(0, self.deadline - time.monotonic()))
        if not self.ended():
            raise LabFailure(f"the guest did not end: {self.text}")
        last = LAST_LINE.search(self.received)
        end = last.start() if last else None
        text = self.received[:end].decode(errors="replace").rstrip("\n")
        if last is None:
            raise LabFailure(f"the guest broke off: {self.text}\n{text}")
        return Output(int(last[1]), text)


def exploded_gid(family, address):
    """A GID as sysfs writes it: eight groups of four digits, with IPv4 mapped into IPv6."""
    text = f"::ffff:{address}" if family == 4 else address
    raw = socket.inet_pton(socket.AF_INET6, text)
    return ":".join(raw[at:at + 2].hex() for at in range(0, 16, 2))
