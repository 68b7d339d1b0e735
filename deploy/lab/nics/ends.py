"""The two ends of a property: uroce in the guest, over its NICs, and uroce on this machine, over
af_packet on the taps of these NICs."""

import contextlib
import json
import subprocess
import time
from dataclasses import dataclass, field

from report.failure import LabFailure
from vm import network
from vm.guest import Output

# Seconds for a program in an emulated guest on a busy machine.
SECONDS = 90
# Seconds until the server of this machine listens.
LISTEN_SECONDS = 15
EXCHANGE_PORT = 18515
# 2.1 s until the retries are used up: an emulated guest may pause for most of a second.
PATIENCE = ["-u", "16"]
# Megabytes and packet buffers. An emulated IOMMU takes seconds to map what nothing uses.
MEMORY_MB = 128
MBUFS = 4095


@dataclass(frozen=True)
class Setting:
    """What both ends configure alike."""

    mtu: int = 1500
    path_mtu: int = 1024
    family: int = 4
    lcores: int = 1
    """Lcores of the guest's end."""
    vlan: int = None
    mac: str = None
    """Ethernet address that the guest's end takes instead of the NIC's own."""
    ports: int = 1


@dataclass
class Outcome:
    """What a run has shown."""

    fault: str = ""
    notes: str = ""
    log: str = field(default="", repr=False)


def addresses(end, port):
    """The addresses of an end's port. Each port is a network of its own."""
    return [f"192.0.{2 + port}.{end}/24", f"2001:db8:{port}::{end}/64"]


def config(end, devices, setting, memory=""):
    """A configuration file as text; `devices` are the values of `ethdev`."""
    lines = ["[eal]", f"memory_mb = {MEMORY_MB}", memory, "[[device]]", 'name = "nic"',
             f"lcores = {setting.lcores}", 'idle = "sleep"']
    for port, device in enumerate(devices):
        lines += ["[[device.port]]", f"ethdev = {device}", f"mtu = {setting.mtu}",
                  f"mbufs = {MBUFS}", f"ip = {json.dumps(addresses(end, port))}"]
        lines += [f"vlan = {setting.vlan}"] if setting.vlan else []
        lines += [f'mac = "{setting.mac}"'] if setting.mac else []
    return "\n".join([*filter(None, lines), ""])


class Ends:
    """The ends of one guest."""

    def __init__(self, guest, programs, work, huge=False):
        self.guest = guest
        self.perf, self.cli = programs
        self.work = work
        self.huge = huge

    def run(self, words, setting):
        """Runs a program of uroce-perf between both ends, the guest as client. Gives an Outcome."""
        self.write_config(setting)
        common = [*words, "--config"]
        begin = time.monotonic()
        with self.server([*common, self.host_config(setting)]):
            guest = self.guest.run(
                f"uroce-perf {' '.join(common)} /tmp/nic.toml {network.CONTROL_HOST}", SECONDS)
            fault = "" if guest.status == 0 else last_line(guest.text)
            if not fault and "--verify" in words and "verified:" not in guest.text:
                fault = "the bytes were not verified"
        again = [line.strip() for line in guest.text.splitlines() if "sent again" in line]
        log = f"$ uroce-perf {' '.join(words)}\n{guest.text}\n"
        return Outcome(fault, "; ".join(again), log + f"{time.monotonic() - begin:.1f} s\n")

    def write_config(self, setting):
        """Writes the guest's configuration."""
        devices = [f'{{ pci = "{pci}" }}' for pci in self.guest.pci[:setting.ports]]
        text = config(2, devices, setting, "huge = true" if self.huge else "")
        self.guest.check(f"cat >/tmp/nic.toml <<'END'\n{text}END", 10)

    def host_config(self, setting):
        """Writes the configuration of this machine's end, and returns its path."""
        devices = [f'{{ vdev = "net_af_packet{at},iface={name}" }}'
                   for at, name in enumerate(self.guest.link.interfaces[:setting.ports])]
        plain = Setting(setting.mtu, vlan=setting.vlan, ports=setting.ports)
        path = self.work / "host.toml"
        path.write_text(config(1, devices, plain))
        return str(path)

    @contextlib.contextmanager
    def server(self, words):
        """Runs the server of this machine for the time of the block."""
        output = self.work / "host.log"
        with open(output, "w") as log:
            server = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", self.perf, *words],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            self.wait_until_listening(server, output)
            yield server
        finally:
            server.kill()
            server.wait()

    def wait_until_listening(self, server, output):
        """Returns when the server listens."""
        deadline = time.monotonic() + LISTEN_SECONDS
        while time.monotonic() < deadline and server.poll() is None:
            if network.listening(EXCHANGE_PORT):
                return
            time.sleep(0.05)
        raise LabFailure(f"uroce on this machine does not listen: {last_line(output.read_text())}")

    @contextlib.contextmanager
    def device(self, setting):
        """Runs `uroce` in the guest with its NICs, for the time of the block. The value is a
        function that runs a command of the process and returns its answer."""
        self.write_config(setting)
        # Its stdin stays open, because it runs until Enter.
        running = self.guest.begin(
            "sleep 600 | uroce -- --config /tmp/nic.toml >/tmp/uroce.log 2>&1", 600)
        try:
            self.wait_for_device()
            yield self.ask
        finally:
            self.guest.run("killall uroce sleep; true", 10)
            with contextlib.suppress(LabFailure):
                running.wait()

    @contextlib.contextmanager
    def host_device(self, setting):
        """Runs `uroce` on this machine, as `device` does in the guest."""
        command = [self.cli, "--", "--config", self.host_config(setting)]
        running = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def ask(command):
            words = [self.cli, "-s", str(running.pid), *command.split()]
            done = subprocess.run(words, capture_output=True, text=True)
            return Output(done.returncode, done.stdout + done.stderr)

        try:
            deadline = time.monotonic() + LISTEN_SECONDS
            while ask("show device").status != 0:
                if time.monotonic() > deadline or running.poll() is not None:
                    raise LabFailure("uroce does not start on this machine")
                time.sleep(0.1)
            yield ask
        finally:
            running.kill()
            running.wait()

    def wait_for_device(self):
        """Returns when the process answers."""
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            if self.guest.run("uroce -s $(pidof uroce) show device", 20).status == 0:
                return
            time.sleep(0.3)
        said = self.guest.run("cat /tmp/uroce.log", 10).text
        raise LabFailure(f"uroce does not start in the guest: {last_line(said)}")

    def ask(self, command):
        """Runs a command of the process in the guest and returns its answer."""
        return self.guest.run(f"uroce -s $(pidof uroce) {command}", SECONDS)


def last_line(text):
    """The last line of a program's output."""
    return text.strip().rpartition("\n")[2]
