"""The suites: which guests and peers stand in the laboratory, and which cases they run."""

import contextlib
import dataclasses

import cases
import network
import session
from failure import LabFailure
from guest import Guest
from peers import GuestPeer, UrocePeer

# Longer than a suite takes where everything is slow, shorter than anybody waits.
BUDGET_SECONDS = 1200


def dataplane(context):
    """uroce against Soft-RoCE, over the tap of one guest."""
    with guests(context, {2: None}) as [guest]:
        peers = {
            "rxe": GuestPeer("rxe", guest),
            "uroce": UrocePeer(context.uroce, guest.roce_tap, context.work),
        }
        return run(context, cases.dataplane(), peers, guest)


def selftest(context):
    """The laboratory without uroce: Soft-RoCE against Soft-RoCE over a bridge of two guests.

    The last case loses every packet and must fail, with its capture kept: a laboratory that
    passes everything would prove nothing.
    """
    with pair(context) as peers:
        guest = peers["guest1"].guest
        results = run(context, cases.selftest(), peers, guest)
        if context.only:
            return results
        blackout = dataclasses.replace(cases.selftest()[0], loss=1.0)
        results += session.run_all(
            [blackout], peers, guest, context.work, context.work / "expected",
            BUDGET_SECONDS, lambda result: context.report.tell(expect_failure(result)),
        )
        return results


def expect_failure(result):
    """Turns the verdict of a case that must fail."""
    if result.verdict == session.FAIL and result.pcap:
        result.verdict, result.reason, result.pcap = session.PASS, "failed, as it must", None
    elif result.verdict == session.PASS:
        result.verdict, result.reason = session.FAIL, "passed although every packet was lost"
    return result


def run(context, table, peers, guest):
    """Runs the cases the command line selects."""
    chosen = [case for case in table if context.only in case.name]
    if not chosen:
        raise LabFailure(f"no case has {context.only!r} in its name, as in {table[0].name}")
    return session.run_all(chosen, peers, guest, context.work, context.kept, BUDGET_SECONDS,
                           context.report.tell)


@contextlib.contextmanager
def pair(context):
    """Two guests on a bridge, as peers that lose what they send where a case says so."""
    network.add_bridge("roce", network.ROCE_MTU)
    with guests(context, {1: "roce", 2: "roce"}) as both:
        names = ("guest1", "guest2")
        yield {name: GuestPeer(name, guest, loses_packets=True)
               for name, guest in zip(names, both)}


@contextlib.contextmanager
def guests(context, bridges):
    """Boots guests, all at once; `bridges` names by number the bridge of each RoCE tap, if any."""
    with contextlib.ExitStack() as stack:
        booting = [
            stack.enter_context(Guest(context.image, number, context.work, bridge))
            for number, bridge in bridges.items()
        ]
        for guest in booting:
            guest.wait_until_ready()
        context.report.say(f"Debian's {context.image.release} with Soft-RoCE is up")
        yield booting
