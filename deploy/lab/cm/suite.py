"""Runs the cases of connection management with a capture each, and checks every MAD that uroce
sent."""

import contextlib
import time

from report.failure import LabFailure
from report.result import FAIL, NOT_RUN, PASS, Result, keep
from vm.link import Bridged, Tap, VhostUser
from vm.recovery import Recovery

from . import cases, madcheck
from .ends import OURS, CaseFault, Ends

# Longer than the boot of a guest.
STAND_BY_SECONDS = 120
# A whole MAD with its headers.
DUMP_BYTES = 400


def run(context, guests, brief):
    """Runs all cases that the command line selects, without the long ones in a brief run. `guests`
    boots guests on links."""
    table = [case for case in cases.table(brief)
             if all(word in case.name for word in context.only.split())]
    results = []
    links = (Tap(2), VhostUser(3, context.work, DUMP_BYTES), Bridged(4))
    for link in links:
        part = [case for case in table if case.link == link.name]
        if part:
            results += over(context, guests, link, part)
    return results


def over(context, guests, link, table):
    """Runs the cases of one kind of link."""
    with contextlib.ExitStack() as stack:
        ends = Ends(None, context.uroce, context.uroce_run, link, context.work)
        with standing_by(ends) if link.needs_peer_to_boot else contextlib.nullcontext():
            [ends.guest] = stack.enter_context(guests(context, {link.number: link}))

        def boot():
            with standing_by(ends) if link.needs_peer_to_boot else contextlib.nullcontext():
                ends.restart_guest()

        recovery = Recovery(boot, context.kept)
        deadline = time.monotonic() + context.budget
        results, obstacle = [], ""
        for case in table:
            if time.monotonic() > deadline:
                obstacle = obstacle or "the suite's time was used up"
            result = (Result(case, reason=obstacle) if obstacle else recovery.attempt(
                case, ends.guest, lambda case=case: attempt(case, ends, context)))
            if result.verdict not in (PASS, FAIL) and not obstacle:
                obstacle = result.reason
            results.append(result)
            context.report.tell(result)
            for line in ends.said:
                context.report.line(f"    {line}")
            ends.said.clear()
        return results


@contextlib.contextmanager
def standing_by(ends):
    """Keeps the port open while the block runs, with a server that gets no client."""
    server = ends.ours("rping", ["-s"], seconds=STAND_BY_SECONDS)
    try:
        yield
    finally:
        server.kill()


def attempt(case, ends, context):
    """Runs a case. Keeps log and capture if it fails."""
    result, start = Result(case), time.monotonic()
    path = context.work / f"{case.name}.pcap"
    ends.begin()
    try:
        with ends.guest.capture(path) as captured:
            ends.captured = captured
            result.reason = fault(case, ends)
            result.verdict = FAIL if result.reason else PASS
            if result.reason:
                result.pcap = keep(context.kept, case.name,
                                           "\n".join([result.reason, *ends.log]), ends.captured())
    except (LabFailure, OSError) as error:
        result.verdict, result.reason = NOT_RUN, str(error)
    finally:
        path.unlink(missing_ok=True)
    result.seconds = time.monotonic() - start
    return result


def fault(case, ends):
    """Checks the programs' outputs, then the MADs that uroce sent. Both ends have ended
    afterwards."""
    try:
        what = case.run(ends)
    except CaseFault as failure:
        what = str(failure)
    ends.clean_up()
    # The guest's capture does not contain the attacker's requests.
    return what or madcheck.fault(ends.capture_file(), OURS.values(), case.mads,
                                  all_heard=case.link != Bridged.name)
