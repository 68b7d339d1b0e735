"""The properties of a NIC: the check of each, and the verdict.

Each check starts a process in the guest. So the NIC starts and stops once for each property.
"""

from dataclasses import dataclass

from .ends import PATIENCE, Outcome, Setting
from .connected import failover, reset, unplug
from .soft_roce import soft_roce

# Longest time, in seconds, until a change of the link is seen. The control plane looks four times a
# second.
LINK_SECONDS = 10
OTHER_MAC = "02:00:00:77:00:01"
BYTES = 65536


@dataclass(frozen=True)
class Property:
    """A property of a NIC, with its check."""

    name: str
    what: str
    """Meaning, as in the table of the page."""
    check: object
    """A function that gets both ends and returns an Outcome."""
    short: bool = False
    """Whether `--short` runs it."""
    every_way: bool = False
    """Whether it runs in every way of giving the NIC to DPDK, and not only in the first."""


def traffic(program, setting, count=100, size=BYTES, *more):
    """Returns a check that a program's messages arrive, each byte as it was sent."""
    gid = "1" if setting.family == 6 else "0"
    size = [] if program == "atomic_bw" else ["-s", str(size)]

    def check(ends):
        return ends.run([program, "-n", str(count), *size, "-m", str(setting.path_mtu), "-x", gid,
                         "--verify", *PATIENCE, *more], setting)
    return check


def link(ends):
    """Checks that the link goes down when the cable is cut, and up when it is mended, twice."""
    with ends.device(Setting()) as ask:
        for up in (True, False, True, False, True):
            ends.guest.set_cable(0, up)
            state = "up" if up else "down"
            answer = ask(f"wait link 0 {state} timeout {LINK_SECONDS * 1000}")
            if answer.status != 0:
                done = "mended" if up else "cut"
                return Outcome(f"{state} is not seen when the cable is {done}", log=answer.text)
    return Outcome()


def restart(ends):
    """Checks that the NIC works after its process was killed with frames in flight."""
    check = traffic("write_bw", Setting(), 50)
    ends.kill_amid_traffic(["write_bw", "-D", "60", "-s", str(BYTES), "-m", "1024", *PATIENCE],
                           Setting())
    return check(ends)


def two_lcores(ends):
    """Checks that eight QPs on two lcores send and receive acknowledgements."""
    setting = Setting(lcores=2)
    return ends.run(["write_bw", "-n", "20", "-s", str(BYTES), "-m", "1024", "-q", "8",
                     "--lcore-thread", "--verify", *PATIENCE], setting)


def nic_check(ends):
    """Checks that `uroce-perf nic-check` finds properties that were seen without it."""
    return ends.nic_check(["start", "multicast", "vlan", "reset", "cable"])


PROPERTIES = (
    Property("start, MTU 1500", "starts; WRITE with path MTU 1024, verified",
             traffic("write_bw", Setting()), short=True, every_way=True),
    Property("MTU 4200", "READ with path MTU 4096, verified",
             traffic("read_bw", Setting(4200, 4096))),
    Property("MTU 9000", "SEND with path MTU 4096, verified",
             traffic("send_bw", Setting(9000, 4096)), short=True),
    Property("atomics", "FETCH_ADD, verified", traffic("atomic_bw", Setting())),
    Property("multicast", "IPv6: neighbours are found by their multicast groups",
             traffic("send_bw", Setting(family=6), 50), short=True),
    Property("promiscuous", "an Ethernet address that is not the NIC's own",
             traffic("write_bw", Setting(mac=OTHER_MAC), 50)),
    Property("VLAN", "frames with a VLAN tag, MTU 4200",
             traffic("write_bw", Setting(4200, 4096, vlan=77), 50)),
    Property("two lcores", "eight QPs of two lcores, verified", two_lcores),
    Property("nic-check", "`uroce-perf nic-check`: start, multicast, VLAN, reset, cable",
             nic_check),
    Property("link", "cable cut and mended, twice", link, short=True),
    Property("failover", "the cable of the first of two NICs is cut under a connection", failover),
    Property("reset", "`port reset` under a connection, three times", reset, short=True),
    Property("Soft-RoCE", "verified ping-pong and perftest's SEND and WRITE with Linux in a second "
             "guest, each end once the server", soft_roce),
    Property("restart", "process killed amid traffic, then started again", restart),
    # The last one: the guest has one NIC less from then on.
    Property("unplugged", "one of two NICs is removed under a connection", unplug),
)


def measure(prop, ends):
    """Runs the check of a property. Returns its outcome."""
    return prop.check(ends)
