"""The laboratory's network: a namespace of its own, in it taps and, between guests, bridges.

The program re-executes itself inside a fresh network namespace, so nothing of this machine's
network is touched and everything is gone with the last process. As root `unshare --net` does it;
others get a user namespace around it, where the kernel allows that.

A guest has two taps. Its RoCE tap has no address on the host side: uroce, behind an af_packet
socket, answers ARP and neighbour discovery itself, and a kernel with an address there would
answer UDP 4791 too. Its control tap is a port of the bridge `control`, on which the host has
CONTROL_HOST: commands to the guests and ibv_*_pingpong's TCP exchange run there.
"""

import json
import os
import subprocess

from failure import LabFailure

CONTROL_HOST = "198.51.100.254"
CONTROL_PREFIX = 24
# Room for a path MTU of 4096 and every header.
ROCE_MTU = 4200


def enter_namespace(arguments):
    """Replaces this process by `arguments` in a new network namespace."""
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        raise LabFailure("the laboratory needs /dev/net/tun, to join the guests to this machine")
    for isolate in (["unshare", "--net"], ["unshare", "--user", "--map-root-user", "--net"]):
        if subprocess.run([*isolate, "true"], stderr=subprocess.DEVNULL).returncode == 0:
            os.execvp(isolate[0], [*isolate, *arguments])
    raise LabFailure("this machine allows no new network namespace: run the laboratory as root, "
                     "or allow user namespaces")


def prepare():
    """The loopback interface and the control bridge of the fresh namespace."""
    ip("link", "set", "lo", "up")
    add_bridge("control", 1500)
    ip("address", "add", f"{CONTROL_HOST}/{CONTROL_PREFIX}", "dev", "control")


def add_bridge(name, mtu):
    """A bridge that passes everything at once: no spanning tree, no multicast filter."""
    ip("link", "add", name, "type", "bridge", "stp_state", "0", "mcast_snooping", "0")
    bring_up(name, mtu)


def add_tap(name, mtu, bridge=None, queue=1000):
    """A tap that holds `queue` frames for the guest, joined to a bridge if one is named. It takes
    the place of one that a former suite's guest has left."""
    ip("tuntap", "del", "dev", name, "mode", "tap")
    ip("tuntap", "add", "dev", name, "mode", "tap")
    ip("link", "set", name, "txqueuelen", str(queue))
    bring_up(name, mtu)
    if bridge:
        ip("link", "set", name, "master", bridge)


def add_veth(name, other, mtu, bridge):
    """A pair of interfaces, the other one joined to a bridge."""
    ip("link", "add", name, "type", "veth", "peer", "name", other)
    bring_up(name, mtu)
    bring_up(other, mtu)
    ip("link", "set", other, "master", bridge)


def bring_up(name, mtu):
    """Up, and without the IPv6 address a kernel would invent."""
    ip("link", "set", name, "addrgenmode", "none", "mtu", str(mtu), "up")


def statistic(interface, name):
    """One of the kernel's counters of an interface."""
    shown = json.loads(ip("-json", "-statistics", "link", "show", interface))
    direction, field = name.split("_")
    return shown[0]["stats64"][direction][field]


def address(interface):
    """An interface's Ethernet address."""
    return json.loads(ip("-json", "link", "show", interface))[0]["address"]


def listening(port):
    """True if a TCP socket of this namespace listens on the port, whatever its address."""
    return any(is_listening_line(line, port) for name in ("tcp", "tcp6") for line in table(name))


def table(name):
    """The lines of one of the kernel's socket tables."""
    try:
        with open(f"/proc/net/{name}") as lines:
            return lines.read().splitlines()
    except FileNotFoundError:
        return []


def is_listening_line(line, port):
    """A socket table's line says address:port in hex, the peer's, then 0A for a listener."""
    fields = line.split()
    return len(fields) > 3 and fields[1].endswith(f":{port:04X}") and fields[3] == "0A"


def ip(*words):
    """Runs ip(8); what it printed."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise LabFailure(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout
