"""The laboratory's network: its own namespace with taps and, between guests, bridges.

The program re-executes itself in a new network namespace, so this machine's network is not changed,
and everything is gone with the last process. As root it uses `unshare --net`; other users need a
user namespace around it, if the kernel allows that.

A guest has two taps. The RoCE tap has no address on the host side: uroce answers ARP and neighbour
discovery through an af_packet socket, and a kernel with an address there would answer UDP port 4791
too. Only the tap of the cases over UDP sockets has addresses there. The control tap is a port of
the bridge `control`, on which the host has the address CONTROL_HOST. It carries commands to the
guests and the TCP exchange of ibv_*_pingpong.
"""

import json
import os
import subprocess

from report.failure import LabFailure

CONTROL_HOST = "198.51.100.254"
CONTROL_PREFIX = 24
# Enough for a path MTU of 4096 with all headers.
ROCE_MTU = 4200


def enter_namespace(arguments, with_taps=True):
    """Replaces this process by `arguments` in a new network namespace."""
    if with_taps and not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        raise LabFailure("the laboratory needs /dev/net/tun to connect the guests to this machine")
    isolate = isolation("--net")
    os.execvp(isolate[0], [*isolate, *arguments])


def isolation(*kinds):
    """The command that runs another one in new namespaces of these kinds, options of unshare(1).
    Raises LabFailure if this machine allows none."""
    for isolate in (["unshare", *kinds], ["unshare", "--user", "--map-root-user", *kinds]):
        if subprocess.run([*isolate, "true"], stderr=subprocess.DEVNULL).returncode == 0:
            return isolate
    raise LabFailure("this machine allows no new namespace: run the laboratory as root, or allow "
                     "user namespaces")


def prepare():
    """Sets up the loopback interface and the control bridge of the new namespace."""
    ip("link", "set", "lo", "up")
    add_bridge("control", 1500)
    ip("address", "add", f"{CONTROL_HOST}/{CONTROL_PREFIX}", "dev", "control")


def add_bridge(name, mtu):
    """Adds a bridge that forwards at once: without spanning tree and multicast filter."""
    ip("link", "add", name, "type", "bridge", "stp_state", "0", "mcast_snooping", "0")
    bring_up(name, mtu)


def add_tap(name, mtu, bridge=None, queue=1000):
    """Adds a tap with a queue of `queue` frames for the guest, optionally on a bridge. Replaces a
    tap that a guest of a former suite has left."""
    ip("tuntap", "del", "dev", name, "mode", "tap")
    ip("tuntap", "add", "dev", name, "mode", "tap")
    ip("link", "set", name, "txqueuelen", str(queue))
    bring_up(name, mtu)
    if bridge:
        ip("link", "set", name, "master", bridge)


def add_address(name, address):
    """Gives an interface an IP address, which it has at once: without a search for another owner of
    it."""
    ip("address", "add", address, "dev", name, *(["nodad"] if ":" in address else []))


def add_veth(name, other, mtu, bridge=None):
    """Adds a pair of interfaces, the second one optionally on a bridge."""
    ip("link", "add", name, "type", "veth", "peer", "name", other)
    bring_up(name, mtu)
    bring_up(other, mtu)
    if bridge:
        ip("link", "set", other, "master", bridge)


def bring_up(name, mtu):
    """Sets an interface up, without a link-local IPv6 address."""
    ip("link", "set", name, "addrgenmode", "none", "mtu", str(mtu), "up")


def exists(name):
    """Whether there is an interface of this name."""
    return os.path.isdir(f"/proc/sys/net/ipv4/conf/{name}")


def statistic(interface, name):
    """Reads a counter that the kernel has for an interface."""
    shown = json.loads(ip("-json", "-statistics", "link", "show", interface))
    direction, field = name.split("_")
    return shown[0]["stats64"][direction][field]


def address(interface):
    """Ethernet address of an interface."""
    return json.loads(ip("-json", "link", "show", interface))[0]["address"]


def listening(port):
    """Whether a TCP socket of this namespace listens on the port, at any address."""
    return any(is_listening_line(line, port) for name in ("tcp", "tcp6") for line in table(name))


def table(name):
    """The lines of a socket table of the kernel."""
    try:
        with open(f"/proc/net/{name}") as lines:
            return lines.read().splitlines()
    except FileNotFoundError:
        return []


def is_listening_line(line, port):
    """Whether a line of a socket table is a listener on the port: local address:port in hex, the
    peer's, then 0A."""
    fields = line.split()
    return len(fields) > 3 and fields[1].endswith(f":{port:04X}") and fields[3] == "0A"


def ip(*words):
    """Runs ip(8) and returns its output."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise LabFailure(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout
