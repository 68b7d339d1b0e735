"""The two ends of a property: uroce in the guest, over the guest's NICs, and uroce on this machine,
over af_packet on the taps of these NICs."""

import contextlib
import json
import subprocess
import time
from dataclasses import dataclass, field

from report.failure import LabFailure
from vm import network
from vm.guest import Output

# Longest time, in seconds, of a program in an emulated guest on a busy machine.
SECONDS = 90
# Longest time, in seconds, until the server on this machine listens.
LISTEN_SECONDS = 15
EXCHANGE_PORT = 18515
# The configuration file in the guest.
CONFIG = "/tmp/nic.toml"
# ACK timeout with which all retries last 2.1 s: an emulated guest may pause for most of a second.
PATIENCE = ["-u", "16"]
# Megabytes of an lcore, beside as many for EAL, and packet buffers of an lcore: few, since an
# emulated IOMMU takes seconds to map memory that is not used.
MEMORY_MB = 64
MBUFS = 4096


@dataclass(frozen=True)
class Setting:
    """Settings of both ends. The comments name those of one end."""

    mtu: int = 1500
    path_mtu: int = 1024
    family: int = 4
    lcores: int = 1
    """Lcores at the guest's end."""
    vlan: int = None
    mac: str = None
    """Ethernet address at the guest's end; None for that of the NIC."""
    ports: int = 1


@dataclass
class Outcome:
    """Result of a run. It is good if there is no fault."""

    fault: str = ""
    notes: str = ""
    log: str = field(default="", repr=False)


def addresses(end, port):
    """Returns the addresses of an end's port. Each port has networks of its own."""
    return [f"192.0.{2 + port}.{end}/24", f"2001:db8:{port}::{end}/64"]


def config(end, devices, setting, memory=""):
    """Returns a configuration file as text; `devices` are the values of `ethdev`."""
    memory_mb, mbufs = MEMORY_MB * (setting.lcores + 1), MBUFS * setting.lcores - 1
    lines = ["[eal]", f"memory_mb = {memory_mb}", memory, "[[device]]", 'name = "nic"',
             f"lcores = {setting.lcores}", 'idle = "sleep"']
    for port, device in enumerate(devices):
        lines += ["[[device.port]]", f"ethdev = {device}", f"mtu = {setting.mtu}",
                  f"mbufs = {mbufs}", f"ip = {json.dumps(addresses(end, port))}"]
        lines += [f"vlan = {setting.vlan}"] if setting.vlan else []
        lines += [f'mac = "{setting.mac}"'] if setting.mac else []
    return "\n".join([*filter(None, lines), ""])


class Ends:
    """Both ends of one guest's NICs."""

    def __init__(self, guest, programs, work, huge=False):
        self.guest = guest
        self.perf, self.cli = programs
        self.work = work
        self.huge = huge

    def run(self, words, setting):
        """Runs a program of uroce-perf between both ends; the guest is the client. Returns an
        Outcome."""
        self.write_config(setting)
        common = [*words, "--config"]
        begin = time.monotonic()
        with self.server([*common, self.host_config(setting)]):
            guest = self.guest.run(
                f"uroce-perf {' '.join(common)} {CONFIG} {network.CONTROL_HOST}", SECONDS)
            fault = "" if guest.status == 0 else last_line(guest.text)
            if not fault and "--verify" in words and "verified:" not in guest.text:
                fault = "the bytes were not verified"
        notes = [line.strip() for line in guest.text.splitlines()
                 if "sent again" in line or "handed over" in line]
        log = f"$ uroce-perf {' '.join(words)}\n{guest.text}\n"
        return Outcome(fault, "; ".join(notes), log + f"{time.monotonic() - begin:.1f} s\n")

    def nic_check(self, names):
        """Runs these checks of `uroce-perf nic-check`, as its user does. Returns an Outcome."""
        common = ["nic-check", "-p", str(EXCHANGE_PORT)]
        far = f"net_af_packet0,iface={self.guest.link.interfaces[0]}"
        near = ["--pci", self.guest.pci[0], *(["--huge"] if self.huge else [])]
        words = [*common, *near, "--json", "--only", ",".join(names), network.CONTROL_HOST]
        # The first look at it may come before the shell has made it anew.
        self.guest.run("rm -f /tmp/nic-check.log", 10)
        with self.server([*common, "--vdev", far]):
            running = self.guest.begin(
                f"uroce-perf {' '.join(words)} 2>/tmp/nic-check.log", 3 * SECONDS)
            self.pull_and_put_back(running)
            said = running.wait()
            log = self.guest.run("cat /tmp/nic-check.log", 10).text
        log = f"$ uroce-perf {' '.join(words)}\n{said.text}\n{log}"
        try:
            report = json.loads(said.text)
        except ValueError:
            return Outcome(f"no report: {last_line(log)}", log=log)
        missing = [f"{check['name']}: {check['verdict']}, {check.get('note')}"
                   for check in report["checks"] if check["verdict"] != "yes"]
        fault = report.get("port_fault") or "; ".join(missing)
        if not fault and [check["name"] for check in report["checks"]] != list(names):
            fault = "other checks than asked for"
        return Outcome(fault, log=log)

    def pull_and_put_back(self, running):
        """Cuts and mends the first NIC's cable when a running `nic-check` asks for it."""
        try:
            for request, up in (("PULL THE CABLE", False), ("PUT THE CABLE BACK", True)):
                while self.guest.run(f"grep -q '{request}' /tmp/nic-check.log", 10).status != 0:
                    if running.ended():
                        return
                    time.sleep(0.5)
                self.guest.set_cable(0, up)
        finally:
            self.guest.set_cable(0, True)

    def kill_amid_traffic(self, words, setting):
        """Runs a program as `run` does, and kills it in the guest once it sends messages."""
        self.write_config(setting)
        common = [*words, "--config"]
        with self.server([*common, self.host_config(setting)]):
            running = self.guest.begin(
                f"uroce-perf {' '.join(common)} {CONFIG} {network.CONTROL_HOST} "
                ">/tmp/perf.log 2>&1", SECONDS)
            deadline = time.monotonic() + SECONDS
            try:
                # Its last line before the messages is the table's head.
                while self.guest.run("grep -q '#bytes' /tmp/perf.log", 10).status != 0:
                    if time.monotonic() > deadline:
                        said = self.guest.run("cat /tmp/perf.log", 10).text
                        raise LabFailure(f"no traffic to be killed in: {last_line(said)}")
                    time.sleep(0.2)
                time.sleep(1)
            finally:
                # Otherwise it would keep the NIC from the programs that follow.
                self.guest.run("killall -9 uroce-perf", 10)
                with contextlib.suppress(LabFailure):
                    running.wait()

    def write_config(self, setting):
        """Writes the guest's configuration."""
        devices = [f'{{ pci = "{pci}" }}' for pci in self.guest.pci[:setting.ports]]
        text = config(2, devices, setting, "huge = true" if self.huge else "")
        self.guest.check(f"cat >{CONFIG} <<'END'\n{text}END", 10)

    def host_config(self, setting):
        """Writes the configuration of this machine's end. Returns its path."""
        devices = [f'{{ vdev = "net_af_packet{at},iface={name}" }}'
                   for at, name in enumerate(self.guest.link.interfaces[:setting.ports])]
        plain = Setting(setting.mtu, vlan=setting.vlan, ports=setting.ports)
        path = self.work / "host.toml"
        path.write_text(config(1, devices, plain))
        return str(path)

    @contextlib.contextmanager
    def server(self, words):
        """Runs a server on this machine as long as the block runs."""
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
        """Waits until the server listens."""
        deadline = time.monotonic() + LISTEN_SECONDS
        while time.monotonic() < deadline and server.poll() is None:
            if network.listening(EXCHANGE_PORT):
                return
            time.sleep(0.05)
        raise LabFailure(f"uroce on this machine does not listen: {last_line(output.read_text())}")

    @contextlib.contextmanager
    def device(self, setting):
        """Runs `uroce` in the guest, with its NICs, as long as the block runs. The block gets a
        function that runs a command in this process and returns its answer."""
        self.write_config(setting)
        # The pipe keeps its stdin open: `uroce` runs until Enter is pressed.
        running = self.guest.begin(
            f"sleep 600 | uroce -- --config {CONFIG} >/tmp/uroce.log 2>&1", 600)
        try:
            self.wait_for_device()
            yield self.ask
        finally:
            self.guest.run("killall uroce sleep; true", 10)
            with contextlib.suppress(LabFailure):
                running.wait()

    @contextlib.contextmanager
    def host_device(self, setting):
        """Runs `uroce` on this machine; otherwise like `device`."""
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
        """Waits until the process in the guest answers."""
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            if self.guest.run("uroce -s $(pidof uroce) show device", 20).status == 0:
                return
            time.sleep(0.3)
        said = self.guest.run("cat /tmp/uroce.log", 10).text
        raise LabFailure(f"uroce does not start in the guest: {last_line(said)}")

    def ask(self, command):
        """Runs a command in the process of the guest. Returns its answer."""
        return self.guest.run(f"uroce -s $(pidof uroce) {command}", SECONDS)


def last_line(text):
    """Returns the last line of a program's output."""
    return text.strip().rpartition("\n")[2]
