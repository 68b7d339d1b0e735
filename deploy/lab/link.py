"""The ways from uroce to a guest's RoCE interface: a tap, a bridge, and vhost-user.

A way makes what it needs on the host side, and knows QEMU's words for it, uroce's port, how
its frames are captured and how many of them it lost itself.

Over the tap frames go through this machine's kernel (af_packet here, virtio-net emulated by QEMU
there); over vhost-user uroce's lcore and the guest share memory, and QEMU sees no frame.
"""

import contextlib

import network

# The memory of a guest, which vhost-user shares with uroce.
GUEST_MEMORY = "512M"
# Nobody paces UC and UD: a tap must hold all that a case sends at once, 5 messages of 1 MiB in
# packets of 256 B.
TAP_QUEUE = 32768
# 32 MiB: what arrives while the machine runs something else.
RING_FRAMES = 4096
# Seconds until the guest's dump has begun, and has been written.
DUMP_SECONDS = 10
# The guest's kernel hands frames to tcpdump in blocks, each a second after its first frame; what
# has not been handed over is lost when tcpdump ends.
BLOCK_SECONDS = 1.5
# Of each frame, all headers; KiB that wait for the guest's slow processor.
DUMP_BYTES = 160
DUMP_BUFFER = 8192


class Tap:
    """A tap in the laboratory's namespace, on a bridge if one is named."""

    name = "tap"
    needs_peer_to_boot = False

    def __init__(self, number, bridge=None):
        self.number = number
        self.interface = f"roce{number}"
        self.bridge = bridge

    def prepare(self):
        """The tap."""
        network.add_tap(self.interface, network.ROCE_MTU, self.bridge, TAP_QUEUE)

    def machine(self):
        """QEMU's words for the whole guest."""
        return ["-m", GUEST_MEMORY]

    def netdev(self, name):
        """QEMU's words for the host's side of the interface."""
        # Without the virtio header on the tap every frame is whole, checksums included.
        return ["-netdev", f"tap,id={name},ifname={self.interface},script=no,downscript=no,"
                           "vnet_hdr=off"]

    def device_options(self):
        """More options of the guest's virtio-net device."""
        return ""

    def vdev(self):
        """uroce's port."""
        return (f"net_af_packet0,iface={self.interface},"
                f"blocksz=65536,framesz=8192,framecnt={RING_FRAMES},qpairs=1")

    def dropped(self):
        """Frames that found the tap's queue full so far."""
        return network.statistic(self.interface, "tx_dropped")

    @contextlib.contextmanager
    def capture(self, guest, path):
        """QEMU itself writes the file: it sees every frame, and starts and ends a file between
        two frames."""
        guest.monitor("object-add", {
            "qom-type": "filter-dump", "id": "capture", "netdev": "roce", "file": str(path),
        })
        try:
            yield lambda: path.read_bytes()
        finally:
            guest.monitor("object-del", {"id": "capture"})


class Bridged(Tap):
    """The tap and uroce's veth on a bridge, with room for a third who sends what uroce must bear."""

    name = "bridge"
    PORT, ATTACKER = "uroce", "attacker"

    def __init__(self, number):
        super().__init__(number, "roce")

    def prepare(self):
        """The bridge, the tap and the veth. What goes into the attacker's end comes out at
        uroce's."""
        network.add_bridge(self.bridge, network.ROCE_MTU)
        super().prepare()
        network.add_veth(self.PORT, self.ATTACKER, network.ROCE_MTU, self.bridge)

    def vdev(self):
        """uroce's port."""
        return super().vdev().replace(self.interface, self.PORT)

    def mac(self):
        """uroce's Ethernet address."""
        return network.address(self.PORT)


class VhostUser:
    """Shared rings. QEMU listens, since uroce comes and goes with every case and finds it there."""

    name = "vhost"
    needs_peer_to_boot = True

    def __init__(self, number, folder, dump_bytes=DUMP_BYTES):
        self.number = number
        self.socket = folder / f"roce{number}.vhost"
        self.dump_bytes = dump_bytes

    def prepare(self):
        """QEMU makes the socket."""

    def machine(self):
        """Memory that another process can map."""
        return ["-m", GUEST_MEMORY, "-numa", "node,memdev=memory", "-object",
                f"memory-backend-memfd,id=memory,size={GUEST_MEMORY},share=on"]

    def netdev(self, name):
        """QEMU waits for the first peer before it boots the guest."""
        return ["-chardev", f"socket,id=vhost,path={self.socket},server=on,wait=off",
                "-netdev", f"vhost-user,id={name},chardev=vhost"]

    def device_options(self):
        """No offloads: uroce takes whole frames with whole checksums. No MSI-X: without KVM QEMU
        7.2 crashes where it hands an interrupt vector to vhost."""
        off = ("csum", "guest_csum", "gso", "host_tso4", "host_tso6", "host_ufo", "host_ecn",
               "guest_tso4", "guest_tso6", "guest_ufo", "guest_ecn")
        return "".join(f",{option}=off" for option in off) + (
            f",vectors=0,host_mtu={network.ROCE_MTU}")

    def vdev(self):
        """uroce's port."""
        return f"net_vhost0,iface={self.socket},queues=1,client=1"

    def dropped(self):
        """Nothing counts them."""
        return 0

    @contextlib.contextmanager
    def capture(self, guest, path):
        """The guest's own kernel captures: headers only, its processor is slow."""
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
