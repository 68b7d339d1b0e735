"""The cases of the switch. Each is a function of `Hosts` that returns what is wrong, or nothing.

rping with -V and ibv_rc_pingpong with -c compare what they receive with what was sent.
"""

import subprocess
import time
from dataclasses import dataclass, field
from typing import Callable

from report.failure import LabFailure

from .hosts import GUEST, PINGS, PORTS, address, last_words

# Seconds for a program that has nothing to wait for.
SECONDS = 30
# Exponent of a timeout of 1.07 s for each of eight attempts, longer than a restart of the switch.
LONG_TIMEOUT = 18
# Frames that the switch has forwarded when a transfer is certainly on its way, and long before it
# is done.
MANY_FRAMES = 20000
# Bytes of a ping.
SIZE = 3000
# rping's count for pings without end.
FOR_EVER = 0
# Seconds until the guest, which is slow, has taken the copies from its tap.
COPY_SECONDS = 10
TCP_PORT = 18600
LOOPBACK = "127.0.0.1"
RETRY_EXCEEDED = "transport retry counter exceeded"


@dataclass(frozen=True)
class Case:
    """A case with its fields for the report."""

    name: str
    """The name, usable as a file name."""
    run: Callable = field(repr=False, compare=False)
    needs_guest: bool = False
    server: str = "uroce"
    client: str = "uroce"

    def fields(self):
        """Fields for the JSON report."""
        return {"link": "switch"}


def table():
    """All cases."""
    return [
        Case("four-processes", four_processes),
        Case("containers", containers),
        Case("a-killed-process", killed),
        Case("a-killed-switch", restarted),
        Case("mtu-9000", jumbo),
        Case("frames-longer-than-the-port", too_long),
        Case("four-processes-and-linux", linux, True, server="rxe"),
        Case("linux-calls", linux_calls, True, client="rxe"),
        Case("vlans", vlans, True),
    ]


def four_processes(hosts):
    """Two pairs at once with the connection manager, then two others by hand."""
    for server in (1, 3):
        serve(hosts, server)
    fault = hosts.fault([ping(hosts, 2, 1), ping(hosts, 4, 3)])
    hosts.clean_up()
    return fault or hosts.fault([*pingpong(hosts, 1, 3), *pingpong(hosts, 2, 4)])


def containers(hosts):
    """A server and its client that share only the directory of the switch's sockets."""
    serve(hosts, 1, container=True)
    return hosts.fault([ping(hosts, 2, 1, container=True)])


def killed(hosts):
    """A server is killed. Its client ends, another pair goes on, and the next program at that port
    is reached."""
    server = serve(hosts, 1)
    serve(hosts, 3)
    bereft, others = ping(hosts, 2, 1, FOR_EVER), ping(hosts, 4, 3, FOR_EVER)
    for call in (bereft, others):
        if not hosts.proceeds(call):
            return f"no pings: {last_words(call.text())}"
    server.kill()
    bereft.wait()
    if "DISCONNECT EVENT" not in bereft.text():
        return f"the client of a killed server was not told: {last_words(bereft.text())}"
    if not hosts.proceeds(others):
        return f"the other pair stopped: {last_words(others.text())}"
    others.kill()
    serve(hosts, 1)
    return hosts.fault([ping(hosts, 2, 1)])


def restarted(hosts):
    """The switch is killed and started again under a connection that is in use. That connection
    goes on, as its retries last longer, and a server that is there since before is reached."""
    standing = serve(hosts, 3)
    words = ["ib_send_bw", "-F", "-p", TCP_PORT, "-s", 1 << 16, "-n", 50000, "-u", LONG_TIMEOUT]
    busy = [hosts.serve(1, *words, port=TCP_PORT), hosts.start(2, *words, LOOPBACK, seconds=90)]
    hosts.wait_until_forwarded(MANY_FRAMES)
    if any(process.ended() for process in [standing, *busy]):
        return "a program ended before the switch was killed"
    hosts.switch.crash()
    hosts.switch.resume()
    return hosts.fault(busy) or hosts.fault([ping(hosts, 4, 3)])


def jumbo(hosts):
    """Ports with MTU 9000."""
    with hosts.ports(9000, "j1", "j2"):
        return hosts.fault(pingpong(hosts, "j1", "j2"))


def too_long(hosts):
    """Packets that do not fit the switch's ports are lost there, and no counter shows them: the
    request fails after its retries. A path MTU that fits passes."""
    with hosts.ports(1500, "s1", "s2"):
        _, client = pingpong(hosts, "s1", "s2", options=["-n", 2])
        ended = client.wait()
        if ended.status == 0 or RETRY_EXCEEDED not in ended.text:
            return f"frames of 4200 bytes passed: {last_words(ended.text)}"
        hosts.clean_up()
        return hosts.fault(pingpong(hosts, "s1", "s2", path_mtu=1024))


def linux(hosts):
    """Four processes at once call Linux's Soft-RoCE through the switch, each its own server."""
    ports = {number: 7200 + number for number in PORTS}
    servers = [hosts.in_guest("rping", "-s", "-V", "-a", GUEST.ipv4, "-p", port, "-S", SIZE,
                              "-C", PINGS) for port in ports.values()]
    hosts.wait_until_guest_listens(len(servers))
    return hosts.fault([hosts.start(number, *client(GUEST.ipv4), "-p", port, "-C", PINGS)
                        for number, port in ports.items()])


def linux_calls(hosts):
    """Linux's Soft-RoCE calls a process through the switch."""
    serve(hosts, 1)
    return hosts.fault([hosts.in_guest(*client(address(1)), "-C", PINGS)])


def vlans(hosts):
    """A VLAN for ports 1 and 2 and the guest, another one for port 3. The copy that the guest's
    tap gets of all frames shows the tag."""
    switch, tap = hosts.switch, hosts.guest.link.interface
    with switch.on_vlan("p1", 10), switch.on_vlan("p2", 10), switch.on_vlan("p3", 20):
        serve(hosts, 1)
        with switch.on_vlan(tap, 10):
            fault = hosts.fault([hosts.in_guest(*client(address(1)), "-C", PINGS)])
        if fault:
            return f"Linux in the same VLAN: {fault}"
        path = hosts.work / "vlans.pcap"
        with switch.mirrored(tap), hosts.guest.capture(path) as captured:
            fault = hosts.fault([ping(hosts, 2, 1)]) or untagged(hosts, captured)
        if fault:
            return f"a process in the same VLAN: {fault}"
        if ping(hosts, 3, 1).wait().status == 0:
            return "a process in another VLAN was answered"
    return hosts.fault([ping(hosts, 3, 1)])


def serve(hosts, number, **options):
    """Starts rping as a server for one client after the other. For several at once its connections
    are mixed up by itself."""
    return hosts.serve(number, "rping", "-s", "-P", "-a", address(number), "-S", SIZE,
                       **options)


def ping(hosts, number, server, count=PINGS, **options):
    """Starts rping as a client of the server at a port."""
    return hosts.start(number, *client(address(server)), "-C", count, **options)


def client(server):
    """The words of rping as a client that prints every ping."""
    return ["rping", "-c", "-v", "-V", "-a", server, "-S", SIZE]


def pingpong(hosts, server, client, path_mtu=4096, options=("-n", 200)):
    """Starts ibv_rc_pingpong at both ports, with messages of 64 KiB. Returns server and client."""
    port = TCP_PORT + hosts.number(server)
    words = ["ibv_rc_pingpong", "-c", "-g", 0, "-p", port, "-s", 1 << 16, "-m", path_mtu, *options]
    return [hosts.serve(server, *words, port=port), hosts.start(client, *words, LOOPBACK)]


def untagged(hosts, captured):
    """Waits until the tap has passed the copies of the RoCE packets, and says if they lack the tag
    of VLAN 10."""
    path, deadline, tagged = hosts.work / "copies.pcap", time.monotonic() + COPY_SECONDS, 0
    while tagged < PINGS and time.monotonic() < deadline:
        path.write_bytes(captured())
        tagged = packets(path, "vlan.id == 10 && infiniband")
    return "" if tagged >= PINGS else f"{tagged} RoCE packets have the tag of VLAN 10"


def packets(path, which):
    """Number of packets in a capture that pass a display filter of tshark."""
    done = subprocess.run(["tshark", "-n", "-r", str(path), "-Y", which, "-T", "fields", "-e",
                           "frame.number"], capture_output=True, text=True, timeout=SECONDS)
    if done.returncode != 0:
        raise LabFailure(f"tshark: {done.stderr.strip()}")
    return len(done.stdout.split())
