"""Open vSwitch with DPDK, from Debian's binaries, with everything it makes in one folder.

Its data path needs no kernel module and here no hugepages: the memory is a file without a name,
which vhost-user peers can map as well.

    uroce ── p1 ─┐                     vhost-user client ports: uroce listens on FOLDER/p1
    uroce ── p2 ─┼─ bridge br0 ── tap ── guest
    uroce ── p3 ─┘
"""

import contextlib
import os
import re
import signal
import subprocess
import time
from pathlib import Path

from report.failure import LabFailure
from vm import network
from vm.link import Tap

DAEMON = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk"
SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"
BRIDGE = "br0"
# Seconds for a command. The daemon zeroes a pool of mbufs before it answers.
COMMAND_SECONDS = 20
# Two processors have to be enough for the switch, the guest and the programs, so the polling thread
# sleeps while there is little to do.
SETTINGS = {
    "dpdk-init": "true",
    # With --in-memory, which it would add, --no-huge is refused.
    "dpdk-extra": "--no-huge --legacy-mem --no-shconf --no-pci --no-telemetry -m 2048",
    # A pool for each port has some 20,000 mbufs; the pool of all ports would have 262,144.
    "per-port-memory": "true",
    "pmd-cpu-mask": "0x1",
    "pmd-maxsleep": "100",
}


class Switch:
    """A bridge with a database of its own. A context manager starts and ends it."""

    def __init__(self, folder):
        self.folder = folder / "ovs"
        self.database = None
        self.daemon = None

    def __enter__(self):
        self.folder.mkdir()
        self.run("ovsdb-tool", "create", self.path("conf.db"), SCHEMA)
        self.database = self.start([
            "ovsdb-server", self.path("conf.db"), f"--remote=punix:{self.path('db.sock')}",
            f"--unixctl={self.path('db.ctl')}", f"--log-file={self.path('db.log')}",
            "--no-chdir"])
        self.wait_for("db.sock", self.database)
        settings = [f'other_config:{name}="{value}"' for name, value in SETTINGS.items()]
        self.vsctl("--no-wait", "--", "init", "--", "set", "Open_vSwitch", ".", *settings)
        self.resume()
        self.vsctl("add-br", BRIDGE, "--", "set", "Bridge", BRIDGE, "datapath_type=netdev")
        return self

    def __exit__(self, *_):
        for process in (self.daemon, self.database):
            if process is not None:
                process.kill()
                process.wait()

    def resume(self):
        """Starts the daemon that forwards. It reads bridge and ports from the database."""
        self.daemon = self.start([
            DAEMON, f"unix:{self.path('db.sock')}", f"--unixctl={self.path('vs.ctl')}",
            f"--log-file={self.path('vs.log')}", "--no-chdir"])
        self.wait_for("vs.ctl", self.daemon)

    def crash(self):
        """Kills the daemon that forwards."""
        self.daemon.send_signal(signal.SIGKILL)
        self.daemon.wait()
        (self.folder / "vs.ctl").unlink()

    def add(self, name, mtu=network.ROCE_MTU, vlan=None, socket=None):
        """Adds a vhost-user client port, on an access VLAN if one is given. Returns its socket,
        on which the program at the port listens: the given one, or one in the switch's folder."""
        socket = socket or self.path(name)
        self.vsctl("add-port", BRIDGE, name, *tag(vlan), "--", "set", "Interface", name,
                   "type=dpdkvhostuserclient", f"options:vhost-server-path={socket}",
                   f"mtu_request={mtu}")
        return socket

    def add_interface(self, name, mtu):
        """Adds an interface of the kernel, in place of one of that name that is gone."""
        self.vsctl("--if-exists", "del-port", BRIDGE, name, "--", "add-port", BRIDGE, name,
                   "--", "set", "Interface", name, f"mtu_request={mtu}")

    def remove(self, *names):
        """Removes ports."""
        for name in names:
            self.vsctl("del-port", BRIDGE, name)

    @contextlib.contextmanager
    def on_vlan(self, name, vlan):
        """Makes a port one of an access VLAN while the block runs."""
        self.vsctl("set", "Port", name, *tag(vlan))
        try:
            yield
        finally:
            self.vsctl("clear", "Port", name, "tag")

    @contextlib.contextmanager
    def mirrored(self, name):
        """Sends a copy of every frame to a port while the block runs, with its VLAN tag."""
        self.vsctl("--", "--id=@port", "get", "Port", name, "--", "--id=@mirror", "create",
                   "Mirror", "name=all", "select-all=true", "output-port=@port", "--",
                   "set", "Bridge", BRIDGE, "mirrors=@mirror")
        try:
            yield
        finally:
            self.vsctl("clear", "Bridge", BRIDGE, "mirrors")

    def forwarded(self):
        """Number of frames that the daemon has forwarded by a flow that it knew."""
        shown = self.run("ovs-appctl", "-t", self.path("vs.ctl"), "dpctl/show")
        return int(re.search(r"lookups: hit:(\d+)", shown)[1])

    def waited(self):
        """Seconds that the daemon's threads have waited for a CPU, in total. After `crash` they
        begin anew."""
        waited = 0
        for task in Path(f"/proc/{self.daemon.pid}/task").glob("*/schedstat"):
            # A thread may have ended.
            with contextlib.suppress(OSError):
                waited += int(task.read_text().split()[1])
        return waited / 1e9

    def log(self):
        """What the daemon has logged."""
        return (self.folder / "vs.log").read_text(errors="replace")

    def path(self, name):
        """A file of the switch."""
        return str(self.folder / name)

    def vsctl(self, *words):
        """Changes the database and waits until the daemon has followed."""
        return self.run("ovs-vsctl", f"--db=unix:{self.path('db.sock')}",
                        f"--timeout={COMMAND_SECONDS}", *words)

    def environment(self):
        """Keeps Open vSwitch and DPDK out of the machine's own folders."""
        ours = dict.fromkeys(["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "RUNTIME_DIRECTORY"],
                             str(self.folder))
        return os.environ | ours

    def start(self, command):
        """Starts a daemon, which ends with the laboratory."""
        return subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command], env=self.environment(),
            start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def wait_for(self, name, process):
        """Waits until a daemon has made its socket."""
        deadline = time.monotonic() + COMMAND_SECONDS
        while not Path(self.path(name)).exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise LabFailure(f"Open vSwitch does not start: {self.last_words()}")
            time.sleep(0.02)

    def last_words(self):
        """The last lines that the daemons have logged."""
        logs = [self.folder / name for name in ("db.log", "vs.log")]
        lines = [line for log in logs if log.exists()
                 for line in log.read_text(errors="replace").splitlines()[-5:]]
        return "\n".join(lines)

    def run(self, *words):
        """Runs a command of Open vSwitch and returns its output."""
        done = subprocess.run(words, capture_output=True, text=True, env=self.environment(),
                              timeout=2 * COMMAND_SECONDS)
        if done.returncode != 0:
            raise LabFailure(f"{' '.join(words)}: {done.stderr.strip()}")
        return done.stdout


class Plugged(Tap):
    """A guest's tap as a port of the switch."""

    name = "switch"

    def __init__(self, number, switch):
        super().__init__(number)
        self.switch = switch

    def prepare(self):
        """Makes the tap and adds it to the switch."""
        super().prepare()
        self.switch.add_interface(self.interface, network.ROCE_MTU)


def tag(vlan):
    """The setting of a port's access VLAN."""
    return [f"tag={vlan}"] if vlan else []
