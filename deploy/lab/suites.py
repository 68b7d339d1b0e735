"""The suites: the guests and peers that each uses, and the cases that it runs."""

import contextlib
import dataclasses

from apps import suite as apps_suite
from cm import cases as cm_cases
from cm import suite as cm_suite
from dataplane import cases, session
from dataplane.peers import GuestPeer
from dataplane.uroce import UrocePeer
from engines import suite as engines_suite
from report.result import FAIL, PASS
from switch import cases as switch_cases
from switch import suite as switch_suite
from vm import image, network
from vm.guest import Guest
from vm.link import Mended, Sockets, Tap, VhostUser
from vm.recovery import Recovery

# Seconds for a suite: longer than it takes on a slow machine.
BUDGET_SECONDS = 1200
# Seconds for a suite with --full.
EVERYTHING_BUDGET_SECONDS = 4 * 3600


def dataplane(context, brief=False):
    """Runs uroce against Soft-RoCE, over each kind of link in turn."""
    table = chosen(context, cases.dataplane(context.everything, brief, context.kernel.places))
    results = []
    for link in (Tap(2), VhostUser(3, context.work), Sockets(4), Mended(5)):
        part = [case for case in table if case.link == link.name]
        if part:
            results += over(context, link, part)
    return results


def cm(context, brief=False):
    """Runs uroce's connection manager against the kernel's, over each kind of link in turn."""
    return cm_suite.run(context, guests, brief)


def apps(context, brief=False):
    """Runs unmodified programs over uroce, with each other and with Soft-RoCE."""
    return apps_suite.run(context, guests, brief)


def engines(context):
    """Runs distributed engines over uroce and over TCP."""
    return engines_suite.run(context)


def switch(context):
    """Runs unmodified programs and Soft-RoCE on one switch."""
    return switch_suite.run(context, guests)


def every(context):
    """Runs every suite: an eighth of the data plane's cases without loss, and of the others the
    short ones."""
    return [*dataplane(context, brief=True), *cm(context, brief=True), *apps(context, brief=True),
            *engines(context), *switch(context)]


def over(context, link, table):
    """Runs the cases of one link."""
    uroce = UrocePeer(context.uroce, link, context.work)
    with contextlib.ExitStack() as stack:
        with uroce.standing_by() if link.needs_peer_to_boot else contextlib.nullcontext():
            [guest] = stack.enter_context(guests(context, {link.number: link}))
        peers = {"rxe": GuestPeer("rxe", guest), "uroce": uroce}

        def boot():
            uroce.end()
            with uroce.standing_by() if link.needs_peer_to_boot else contextlib.nullcontext():
                guest.restart()

        return run(context, table, peers, guest, boot)


def selftest(context):
    """Tests the laboratory without uroce: Soft-RoCE against Soft-RoCE over a bridge of two guests.

    The last case loses every packet and must fail, with its capture kept, because a laboratory that
    passes everything would prove nothing.
    """
    with pair(context) as peers:
        guest = peers["guest1"].guest

        def boot():
            for peer in peers.values():
                peer.guest.restart()

        table = chosen(context, cases.selftest(context.kernel.places))
        results = run(context, table, peers, guest, boot)
        if context.only:
            return results
        blackout = dataclasses.replace(cases.selftest()[0], loss=1.0)
        results += session.run_all(
            [blackout], peers, guest, Recovery(boot, context.kept), context.work,
            context.work / "expected", BUDGET_SECONDS,
            lambda result: context.report.tell(expect_failure(result)),
        )
        return results


def expect_failure(result):
    """Turns the verdict of a case that must fail."""
    if result.verdict == FAIL and result.pcap:
        result.verdict, result.reason, result.pcap = PASS, "failed, as it must", None
    elif result.verdict == PASS:
        result.verdict, result.reason = FAIL, "passed although every packet was lost"
    return result


def list_cases(selection):
    """Prints the names of the selected cases and returns the exit status."""
    places = image.KERNELS[selection.kernel].places
    tables = {
        "selftest": lambda: cases.selftest(places), "switch": switch_cases.table,
        "dataplane": lambda: cases.dataplane(selection.everything, selection.suite == "all",
                                             places),
        "cm": lambda: cm_cases.table(brief=selection.suite == "all"),
        "apps": lambda: apps_suite.table(selection.everything, brief=selection.suite == "all"),
        "engines": lambda: engines_suite.table(selection.everything),
    }
    every_suite = ("dataplane", "cm", "apps", "engines", "switch")
    suites = every_suite if selection.suite == "all" else (selection.suite,)
    for case in chosen(selection, [case for suite in suites for case in tables[suite]()]):
        print(case.name)
    return 0


def chosen(context, table):
    """The cases that the command line selects."""
    return [case for case in table if all(word in case.name for word in context.only.split())]


def run(context, table, peers, guest, boot):
    """Runs cases between the peers over the guest's link. `boot` boots the guest again."""
    return session.run_all(table, peers, guest, Recovery(boot, context.kept), context.work,
                           context.kept, context.budget, context.report.tell)


@contextlib.contextmanager
def pair(context):
    """Two guests on a bridge, as peers that drop what they send if a case asks for loss."""
    network.add_bridge("roce", network.ROCE_MTU)
    with guests(context, {number: Tap(number, "roce") for number in (1, 2)}) as both:
        yield {guest.name: GuestPeer(guest.name, guest, loses_packets=True) for guest in both}


@contextlib.contextmanager
def guests(context, links):
    """Boots guests, all at once. `links` has a link for each guest's number."""
    with contextlib.ExitStack() as stack:
        booting = [
            stack.enter_context(Guest(context.image, number, context.work, link))
            for number, link in links.items()
        ]
        for guest in booting:
            guest.wait_until_ready()
        context.report.say(f"Debian's {context.image.release} with Soft-RoCE is up")
        yield booting
