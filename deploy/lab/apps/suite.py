"""Runs the cases of unmodified applications and the tests of pyverbs. Keeps their outputs."""

import contextlib
import time

from cm.ends import CaseFault, last_words
from report.failure import LabFailure
from report.result import ATTEMPTS, FAIL, NOT_RUN, PASS, Result, keep
from vm import network
from vm.link import Tap
from vm.recovery import Recovery

from . import cases, ends, options, output, plain, pyverbs_suite
from .cases import ALONE, GUEST, NOBODY, ORACLE, PAIR, PAIRINGS
from .programs import MCKEY

# Seconds for the other end after one has ended, as its peer no longer answers.
SECOND_END_SECONDS = 10
# Seconds for the guest to read a counter.
QUERY_SECONDS = 10
# A session is repeated if the guest waited this long for a CPU. The shortest retries are those of
# ibv_*_pingpong, which end after half a second.
STARVED_SECONDS = 0.4
# Attempts of a perftest case with -R. The server listens again after the parameter exchange, and
# the client does not wait for that: it connects within one or two milliseconds, and gives up or
# crashes if it is refused. The same happens on Soft-RoCE.
MANAGED_ATTEMPTS = 30
# Datagrams that mckey sends, and attempts if Soft-RoCE sends fewer. That of Linux 6.12 often sends
# the first one only, also where there is no peer.
MCKEY_DATAGRAMS, MCKEY_ATTEMPTS = 10, 12
SENT = "/sys/class/infiniband/rxe0/ports/1/hw_counters/rdma_sends"
SERVER, CLIENT = "server", "client"
LOOPBACK = "127.0.0.1"


class Applications:
    """The places of the cases, and the programs' outputs over uroce."""

    def __init__(self, context):
        self.context = context
        self.link = Tap(2)
        self.ends = ends.Ends(None, context.uroce_run, self.link, context.work)
        self.said = {}
        """Outputs of both ends by session. None if the session failed."""

    def run(self, cases, guests):
        """Runs cases in order. Boots a guest before the first case that needs one."""
        results = []
        recovery = Recovery(self.ends.restart_guest, self.context.kept)
        with contextlib.ExitStack() as stack:
            for case in cases:
                if case.pairing in (GUEST, ORACLE) and self.ends.guest is None:
                    [self.ends.guest] = stack.enter_context(
                        guests(self.context, {self.link.number: self.link}))
                results.append(recovery.attempt(
                    case, self.ends.guest, lambda case=case: self.attempt(case)))
                self.context.report.tell(results[-1])
        return results

    def attempt(self, case):
        """Runs a case. Keeps log and capture if it fails."""
        result, start = Result(case), time.monotonic()
        path = self.context.work / f"{case.file_name}.pcap"
        ends = self.ends
        ends.begin()
        try:
            with self.capture(case, path) as captured:
                result.reason = self.fault(case)
                result.verdict = FAIL if result.reason else PASS
                if result.reason:
                    result.pcap = keep(self.context.kept, case.file_name,
                                               "\n".join([result.reason, *ends.log]), captured())
        except (LabFailure, OSError) as error:
            result.verdict, result.reason = NOT_RUN, str(error)
        finally:
            path.unlink(missing_ok=True)
        result.seconds = time.monotonic() - start
        return result

    def capture(self, case, path):
        """Captures the guest's link, if the case uses it."""
        if case.pairing == GUEST:
            return self.ends.guest.capture(path)
        return contextlib.nullcontext(lambda: b"")

    def fault(self, case):
        """Runs a case and returns what is wrong."""
        try:
            for _ in range(attempts(case)):
                waited, sent = self.guest_waited(), self.guest_sent(case)
                said, faults = self.said_and_faults(case)
                starved = self.guest_waited() - waited > STARVED_SECONDS
                ceased = 0 < self.guest_sent(case) - sent < MCKEY_DATAGRAMS
                if not faults or not (starved or ceased or is_of_perftest(case, said)):
                    break
            if case.pairing in (PAIR, ALONE):
                self.said[case.session] = None if faults else said
            if not faults and case.pairing == ORACLE:
                faults = self.differences(case, said)
            return "; ".join(faults)
        except CaseFault as failure:
            return str(failure)

    def guest_waited(self):
        """Seconds that the guest has waited for a CPU. 0 without a guest."""
        return self.ends.guest.waited() if self.ends.guest else 0

    def guest_sent(self, case):
        """SENDs of the guest in total, if mckey sends there. 0 otherwise."""
        return int(self.ends.guest.check(f"cat {SENT}", QUERY_SECONDS)) if is_to_group(case) else 0

    def said_and_faults(self, case):
        """Runs the session and returns the outputs by role, and what is wrong. Both ends have ended
        afterwards."""
        try:
            endings = self.hold(case)
        finally:
            self.ends.clean_up()
        faults = [f"the {role}: {fault}" for role, ending in endings.items()
                  if (fault := fault_of(case, ending, role == SERVER))]
        return {role: ending.text for role, ending in endings.items()}, faults

    def differences(self, case, stock):
        """Unexplained differences between the outputs over uroce and over Soft-RoCE."""
        if case.session not in self.said:
            self.fault(case.over_uroce())
        if self.said[case.session] is None:
            return ["it failed over uroce"]
        return output.differences(case.program.name, self.said[case.session], stock)

    def hold(self, case):
        """Runs the session and returns the endings by role."""
        here, there = self.places(case)
        program, ends = case.program, self.ends
        if case.client == NOBODY:
            words = [program.name, *program.words(case, here, there, True)]
            return {CLIENT: ends.begin_at(here, words, case).wait()}
        words = [program.of(True), *program.words(case, here, there, True)]
        server = ends.serve_at(here, words, case)
        words = [program.of(False), *program.words(case, there, here, False)]
        called = ends.begin_at(there, words, case).wait()
        if not program.serves_for_ever and called.status == program.status:
            wait_for(server, SECOND_END_SECONDS)
        return {CLIENT: called, SERVER: server.wait() if server.ended() else server.kill()}

    def places(self, case):
        """The places of the server and the client."""
        if case.pairing in (PAIR, ALONE):
            return ends.embedded(1), ends.embedded(2)
        guest = self.ends.guest
        if case.pairing == ORACLE:
            return ends.GuestPlace(guest, LOOPBACK), ends.GuestPlace(guest, LOOPBACK)
        places = {"uroce": ends.on_link(self.link, self.context.work),
                  "rxe": ends.GuestPlace(guest, guest.addresses.control)}
        return places[case.server], places[case.client]


def is_to_group(case):
    """Whether Soft-RoCE sends datagrams to a group."""
    return case.program is MCKEY and case.pairing == GUEST and case.client == "rxe"


def attempts(case):
    """Attempts of a case whose failure has a known reason other than uroce."""
    if is_to_group(case):
        return MCKEY_ATTEMPTS
    return MANAGED_ATTEMPTS if "-R" in case.options else ATTEMPTS


def is_of_perftest(case, said):
    """Whether a failure is a known fault of perftest itself."""
    refused = "-R" in case.options and "RDMA_CM_EVENT_REJECTED" in said[CLIENT]
    return refused or case.pairing == ORACLE


def wait_for(process, seconds):
    """Returns when the process has ended, or after `seconds`."""
    deadline = time.monotonic() + seconds
    while not process.ended() and time.monotonic() < deadline:
        time.sleep(0.02)


def fault_of(case, ending, serving):
    """Describes the failure of an end. Empty if it succeeded."""
    program = case.program
    killed = serving and program.serves_for_ever
    own = serving and program.server_status is not None
    wanted = program.server_status if own else program.status
    if ending.status != wanted and not killed:
        return f"status {ending.status}: {last_words(ending.text)}"
    return case.program.fault(case, ending.text, serving)


def run(context, guests, brief):
    """Runs the cases that the command line selects, without the long ones in a brief run. `guests`
    boots guests on links."""
    chosen = [case for case in table(context.everything, brief)
              if all(word in case.name for word in context.only.split())]
    loopback_addresses()
    of_pyverbs = [case for case in chosen if isinstance(case, pyverbs_suite.Case)]
    applications = Applications(context)
    if any(case.group == plain.GROUP for case in chosen if case not in of_pyverbs):
        applications.ends.search_first(plain.prepare(context.work))
    applications.ends.search_first(options.search(context.uroce))
    try:
        results = applications.run([case for case in chosen if case not in of_pyverbs], guests)
    finally:
        plain.clean_up()
    for line in summary(results):
        context.report.line(line)
    return results + pyverbs_suite.run(context, of_pyverbs)


def table(everything, brief):
    """All cases, or those of a brief run."""
    return [*cases.table(everything, brief), *pyverbs_suite.table()]


def loopback_addresses():
    """Adds loopback addresses: qperf connects by TCP and RDMA to the same address of its server."""
    for number in (1, 2):
        network.ip("address", "add", f"192.0.2.{number}/32", "dev", "lo")


def summary(results):
    """Number of passed cases of each program, by pairing."""
    if not results:
        return
    names = list(dict.fromkeys(result.case.program.name for result in results))
    yield f"{'program':20} " + " ".join(f"{pairing:>9}" for pairing in PAIRINGS)
    for name in names:
        cells = []
        for pairing in PAIRINGS:
            part = [result.verdict == PASS for result in results
                    if (result.case.program.name, result.case.pairing) == (name, pairing)]
            cells.append(f"{sum(part)}/{len(part)}" if part else "")
        yield f"{name:20} " + " ".join(f"{cell:>9}" for cell in cells)
