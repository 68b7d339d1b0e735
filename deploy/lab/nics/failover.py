"""Failover between two NICs: a connection with an alternate path migrates when its cable is cut.

The connection is made by commands, from `uroce` in the guest to `uroce` on this machine, each with
two ports. Empty WRITEs carry the migration bits by which both ends arm the path.
"""

import json
import time

from report.failure import LabFailure

from .ends import Outcome, Setting

SERVICE = 7471
# Longest time, in seconds, until both ends have armed the path, and again until the QP has
# migrated.
SOON = 30


def failover(ends):
    """Cuts the cable of the first NIC of a connection. Its WRITEs then go over the second NIC."""
    setting = Setting(ports=2)
    with ends.host_device(setting) as far, ends.device(setting) as near:
        expect(far(f"listen {SERVICE}"))
        made = json.loads(expect(near(f"-j connect 192.0.2.1 {SERVICE} alt 192.0.3.1")))
        qp, cq = made["connected"]["qpn"], made["connected"]["cq"]
        # A WRITE names local memory even if it carries no bytes.
        expect(near(f"reg mr pd {made['connected']['pd']} len 8"))

        def reaches(name, value):
            return until(lambda: touched(near, qp, cq) and attributes(near, qp)[name] == value)

        if not reaches("migration", "ARMED"):
            return Outcome("the alternate path is not armed")
        ends.guest.set_cable(0, False)
        try:
            begin = time.monotonic()
            moved = reaches("migrations", 1)
            taken = time.monotonic() - begin
        finally:
            ends.guest.set_cable(0, True)
    return Outcome("" if moved else "no migration", f"{taken:.1f} s with the commands")


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
    answer = json.loads(expect(near(f"-j query qp {qp}")))
    while not (isinstance(answer, dict) and "migrations" in answer):
        answer = answer[0] if isinstance(answer, list) else next(iter(answer.values()))
    return answer


def expect(answer):
    """Returns the text of an answer. Raises LabFailure if the command has failed."""
    if answer.status != 0:
        raise LabFailure(answer.text)
    return answer.text
