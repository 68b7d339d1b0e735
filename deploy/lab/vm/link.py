"""The links from uroce to a guest's RoCE interface: a tap, a bridge, UDP sockets, vhost-user, and a
tap with a program between.

A link makes what it needs on the host side. It has the options for QEMU and for uroce's port,
captures frames, and counts the frames that it lost itself.

Over the tap frames go through this machine's kernel (af_packet here, virtio-net emulated by QEMU in
the guest). Over vhost-user uroce's lcore and the guest share memory, and QEMU sees no frame.
"""

import contextlib
import subprocess
import sys
from pathlib import Path

from . import network

# Memory of a guest, which vhost-user shares with uroce.
GUEST_MEMORY = "512M"
# UC and UD are not paced, so a tap must hold everything that a case sends at once: 5 messages of 1
# MiB in packets of 256 B.
TAP_QUEUE = 32768
# 32 MiB, for frames that arrive while the machine runs other processes.
RING_FRAMES = 4096
# Seconds until the guest's capture has started, and until it is written.
DUMP_SECONDS = 10
# The guest's kernel passes frames to tcpdump in blocks, each up to a second after its first frame.
# Frames that were not passed on are lost when tcpdump ends.
BLOCK_SECONDS = 1.5
# Bytes captured of each frame, for all headers; capture buffer in KiB, for the guest's slow
# processor.
DUMP_BYTES = 160
DUMP_BUFFER = 8192
MENDER = Path(__file__).resolve().parent / "mender.py"


class Tap:
    """A tap in the laboratory's namespace, optionally on a bridge."""

    name = "tap"
    needs_peer_to_boot = False

    def __init__(self, number, bridge=None):
        self.number = number
        self.interface = f"roce{number}"
        self.bridge = bridge

    def prepare(self):
        """Makes the tap."""
        network.add_tap(self.interface, network.ROCE_MTU, self.bridge, TAP_QUEUE)

    def machine(self):
        """QEMU's options for the whole guest."""
        return ["-m", GUEST_MEMORY]

    def netdev(self, name):
        """QEMU's options for the host's side of the interface."""
        # Without the virtio header on the tap every frame is complete, with its checksums.
        return ["-netdev", f"tap,id={name},ifname={self.interface},script=no,downscript=no,"
                           "vnet_hdr=off"]

    def device_options(self):
        """Further options of the guest's virtio-net device."""
        return ""

    def port_words(self):
        """Options of uroce-perf for its port."""
        return ["--vdev", self.vdev()]

    def vdev(self):
        """The device arguments of uroce's port."""
        return (f"net_af_packet0,iface={self.interface},"
                f"blocksz=65536,framesz=8192,framecnt={RING_FRAMES},qpairs=1")

    def dropped(self):
        """Frames dropped so far because the tap's queue was full."""
        return network.statistic(self.interface, "tx_dropped")

    @contextlib.contextmanager
    def capture(self, guest, path):
        """Captures with QEMU, which gets every frame and starts and ends a file between two
        frames."""
        guest.monitor("object-add", {
            "qom-type": "filter-dump", "id": "capture", "netdev": "roce", "file": str(path),
        })
        try:
            yield lambda: path.read_bytes()
        finally:
            guest.monitor("object-del", {"id": "capture"})


class Sockets(Tap):
    """The tap with addresses of the host's kernel, over whose UDP sockets uroce speaks."""

    name = "udp"
    ADDRESSES = ("192.0.2.1/24", "2001:db8::1/64")

    def prepare(self):
        """Makes the tap and gives it addresses."""
        super().prepare()
        for address in self.ADDRESSES:
            network.add_address(self.interface, address)

    def port_words(self):
        """Options of uroce-perf for its port."""
        return ["--udp", self.interface]


class Bridged(Tap):
    """The tap and uroce's veth on a bridge, with another port for an attacker."""

    name = "bridge"
    PORT, ATTACKER = "uroce", "attacker"

    def __init__(self, number):
        super().__init__(number, "roce")

    def prepare(self):
        """Makes the bridge, the tap and the veth. Frames sent into the attacker's end arrive at
        uroce's."""
        network.add_bridge(self.bridge, network.ROCE_MTU)
        super().prepare()
        network.add_veth(self.PORT, self.ATTACKER, network.ROCE_MTU, self.bridge)

    def vdev(self):
        """The device arguments of uroce's port."""
        return super().vdev().replace(self.interface, self.PORT)

    def mac(self):
        """Ethernet address of uroce's port."""
        return network.address(self.PORT)


class Mended(Tap):
    """The tap and uroce's veth, with mender.py between them, which makes FLUSHes of Soft-RoCE and
    uroce readable for each other. It runs as long as the thread that has prepared the link."""

    name = "mended"

    def __init__(self, number):
        super().__init__(number)
        self.port, self.inner = f"uroce{number}", f"mender{number}"
        self.mender = None

    def prepare(self):
        """Makes the tap and the veth, and starts the program between them."""
        if self.mender is not None:
            self.mender.kill()
            self.mender.wait()
        super().prepare()
        if not network.exists(self.port):
            network.add_veth(self.port, self.inner, network.ROCE_MTU)
        self.mender = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", sys.executable, "-B", MENDER, self.interface,
             self.inner], stdin=subprocess.DEVNULL)

    def vdev(self):
        """The device arguments of uroce's port."""
        return super().vdev().replace(self.interface, self.port)


class VhostUser:
    """Shared rings. QEMU makes the socket, because uroce starts and ends with every case."""

    name = "vhost"
    needs_peer_to_boot = True

    def __init__(self, number, folder, dump_bytes=DUMP_BYTES):
        self.number = number
        self.socket = folder / f"roce{number}.vhost"
        self.dump_bytes = dump_bytes

    def prepare(self):
        """Nothing to do, as QEMU makes the socket."""

    def machine(self):
        """Options for memory that another process can map."""
        return ["-m", GUEST_MEMORY, "-numa", "node,memdev=memory", "-object",
                f"memory-backend-memfd,id=memory,size={GUEST_MEMORY},share=on"]

    def netdev(self, name):
        """QEMU waits for the first peer before it boots the guest."""
        return ["-chardev", f"socket,id=vhost,path={self.socket},server=on,wait=off",
                "-netdev", f"vhost-user,id={name},chardev=vhost"]

    def device_options(self):
        """No offloads, because uroce needs complete frames with checksums. No MSI-X, because
        without KVM QEMU 7.2 crashes when it passes an interrupt vector to vhost."""
        off = ("csum", "guest_csum", "gso", "host_tso4", "host_tso6", "host_ufo", "host_ecn",
               "guest_tso4", "guest_tso6", "guest_ufo", "guest_ecn")
        return "".join(f",{option}=off" for option in off) + (
            f",vectors=0,host_mtu={network.ROCE_MTU}")

    def port_words(self):
        """Options of uroce-perf for its port."""
        return ["--vdev", self.vdev()]

    def vdev(self):
        """The device arguments of uroce's port."""
        return f"net_vhost0,iface={self.socket},queues=1,client=1"

    def dropped(self):
        """0, as dropped frames are not counted."""
        return 0

    @contextlib.contextmanager
    def capture(self, guest, path):
        """Captures in the guest, headers only, because its processor is slow."""
        dump = f"/tmp/{path.name}"
        guest.check(f"tcpdump -i eth0 -s {self.dump_bytes} -B {DUMP_BUFFER} -w {dump} "
                    ">/tmp/tcpdump 2>&1 & "
                    "until grep -q listening /tmp/tcpdump; do usleep 10000; done", DUMP_SECONDS)
        end = "killall tcpdump; while pidof tcpdump; do usleep 10000; done >/dev/null"

        def read():
            guest.run(f"sleep {BLOCK_SECONDS}; {end}", DUMP_SECONDS)
            return guest.fetch(dump)

        try:
            yield read
        finally:
            guest.run(f"{end}; rm -f {dump}", DUMP_SECONDS)
