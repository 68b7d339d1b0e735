"""Runs the cases of the switch, without the guest first. Keeps the log of a failed case."""

import contextlib
import time

from cm.ends import CaseFault
from report.failure import LabFailure
from report.result import ATTEMPTS, FAIL, NOT_RUN, PASS, Result, keep
from vm.recovery import Recovery

from . import cases
from .hosts import GUEST, PORTS, Hosts
from .ovs import Plugged, Switch

# A case is repeated if the switch waited this long for a CPU. The shortest retries, those of
# ibv_rc_pingpong, end after half a second.
STARVED_SECONDS = 0.4


def run(context, guests):
    """Runs the cases that the command line selects. `guests` boots guests on links."""
    table = [case for case in cases.table()
             if all(word in case.name for word in context.only.split())]
    results = []
    with contextlib.ExitStack() as stack:
        switch = stack.enter_context(Switch(context.work)) if table else None
        hosts = Hosts(switch, context.uroce_run, context.work)
        recovery = Recovery(hosts.restart_guest, context.kept)
        for number in PORTS if table else ():
            switch.add(f"p{number}")
        for case in table:
            if case.needs_guest and hosts.guest is None:
                link = {GUEST.number: Plugged(GUEST.number, switch)}
                [hosts.guest] = stack.enter_context(guests(context, link))
            results.append(recovery.attempt(
                case, hosts.guest, lambda case=case: attempt(case, hosts, context)))
            context.report.tell(results[-1])
    return results


def attempt(case, hosts, context):
    """Runs a case. All its programs have ended afterwards."""
    result, start = Result(case), time.monotonic()
    try:
        for _ in range(ATTEMPTS):
            hosts.begin()
            waited = hosts.switch.waited()
            result.reason = fault(case, hosts)
            if not result.reason or hosts.switch.waited() - waited < STARVED_SECONDS:
                break
        result.verdict = FAIL if result.reason else PASS
        if result.reason:
            text = "\n".join([result.reason, *hosts.log, hosts.switch.log()])
            result.pcap = keep(context.kept, case.name, text, b"")
    except (LabFailure, OSError) as error:
        result.verdict, result.reason = NOT_RUN, str(error)
    result.seconds = time.monotonic() - start
    return result


def fault(case, hosts):
    """Runs a case and returns what is wrong."""
    try:
        return case.run(hosts)
    except CaseFault as failure:
        return str(failure)
    finally:
        hosts.clean_up()
