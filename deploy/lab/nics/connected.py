"""Connections that live through changes of their NICs: reset, failover, unplugging.

Connections are made by commands, from `uroce` in the guest to `uroce` on this machine. Empty WRITEs
carry the migration bits by which both ends arm an alternate path.
"""

import contextlib
import json
import time

from report.failure import LabFailure

from .ends import Outcome, Setting

SERVICE = 7471
# Longest time, in seconds, until both ends have armed the path, and again until the QP has
# migrated.
SOON = 30


class Connection:
    """A connection between both ends, seen from the guest."""

    def __init__(self, near, made):
        self.near, self.qp, self.cq = near, made["qpn"], made["cq"]

    def reaches(self, name, value):
        """Returns whether an attribute of the QP gets this value while WRITEs pass."""
        return until(lambda: touched(self.near, self.qp, self.cq)
                     and attributes(self.near, self.qp)[name] == value)


@contextlib.contextmanager
def connection(ends, ports):
    """Connects both ends by their first ports. With two ports, the second ones are the alternate
    path."""
    setting = Setting(ports=ports)
    with ends.host_device(setting) as far, ends.device(setting) as near:
        expect(far(f"listen {SERVICE}"))
        alternate = " alt 192.0.3.1" if ports == 2 else ""
        made = json.loads(expect(near(f"-j connect 192.0.2.1 {SERVICE}{alternate}")))["connected"]
        # A WRITE names local memory even if it carries no bytes.
        expect(near(f"reg mr pd {made['pd']} len 8"))
        yield Connection(near, made)


def failover(ends):
    """Cuts the cable of the first NIC of a connection. Its WRITEs then go over the second NIC."""
    with connection(ends, 2) as over:
        if not over.reaches("migration", "ARMED"):
            return Outcome("the alternate path is not armed")
        ends.guest.set_cable(0, False)
        try:
            begin = time.monotonic()
            moved = over.reaches("migrations", 1)
            taken = time.monotonic() - begin
        finally:
            ends.guest.set_cable(0, True)
    return Outcome("" if moved else "no migration", f"{taken:.1f} s with the commands")


def reset(ends):
    """Resets the NIC under a connection, three times, then closes and opens it again. Its WRITEs go
    on each time."""
    with connection(ends, 1) as over:
        for time_of in range(1, 4):
            if not touched(over.near, over.qp, over.cq):
                return Outcome(f"no WRITE passes before reset {time_of}")
            expect(over.near("port reset 0 --force"))
            expect(over.near("wait link 0 up timeout 10000"))
        if not touched(over.near, over.qp, over.cq):
            return Outcome("no WRITE passes after the last reset")
        nic = having(json.loads(expect(over.near("-j show port info 0"))), "name")["name"]
        expect(over.near("port detach 0 --force"))
        expect(over.near(f"port attach {nic}"))
        expect(over.near("wait link 0 up timeout 10000"))
        if not touched(over.near, over.qp, over.cq):
            return Outcome("no WRITE passes over the NIC that was opened again")
        told = expect(over.near("show events"))
        if told.count("PortErr") != 4:
            return Outcome("not four times down", log=told)
    return Outcome()


def unplug(ends):
    """Unplugs the first NIC of a connection. Its WRITEs then go over the second NIC, the machine
    gets the first one back, and the process goes on."""
    if not ends.guest.link.nic.is_express:
        return Outcome("has no slot of its own")
    with connection(ends, 2) as over:
        if not over.reaches("migration", "ARMED"):
            return Outcome("the alternate path is not armed")
        ends.guest.unplug(0)
        if not over.reaches("migrations", 1):
            return Outcome("no migration")
        if not until(lambda: not ends.guest.has_nic(0)):
            said = ends.guest.run("cat /tmp/uroce.log; dmesg | tail -n 20", 10).text
            return Outcome("the machine does not get the NIC back", log=said)
        if not touched(over.near, over.qp, over.cq):
            return Outcome("no WRITE passes over the second NIC")
        told = expect(over.near("show events"))
        if "PortErr" not in told or "DeviceFatal" in told:
            return Outcome("wrong events", log=told)
    return Outcome()


def until(check):
    """Returns whether `check` succeeds within SOON seconds."""
    deadline = time.monotonic() + SOON
    while time.monotonic() < deadline:
        if check():
            return True
    return False


def touched(near, qp, cq):
    """Posts a WRITE of no bytes. Returns whether it completes."""
    expect(near(f"post write qp {qp} len 0 rkey 0 addr 0"))
    return "success" in near(f"poll cq {cq} timeout 20000").text


def attributes(near, qp):
    """Returns the attributes of a QP."""
    return having(json.loads(expect(near(f"-j query qp {qp}"))), "migrations")


def having(answer, key):
    """Returns the first object with this key that an answer has."""
    while not (isinstance(answer, dict) and key in answer):
        answer = answer[0] if isinstance(answer, list) else next(iter(answer.values()))
    return answer


def expect(answer):
    """Returns the text of an answer. Raises LabFailure if the command has failed."""
    if answer.status != 0:
        raise LabFailure(answer.text)
    return answer.text
