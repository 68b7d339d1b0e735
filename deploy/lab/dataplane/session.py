"""Runs one case with a server, a client and a capture, and judges both endings."""

import time

from report.failure import LabFailure
from report.result import ATTEMPTS, FAIL, NOT_RUN, PASS, Result, keep

from .programs import RC

def run(case, ends, guest, work, kept):
    """Runs a case in the folder `work`. Keeps log and capture in the folder `kept` if it fails."""
    pcap = work / f"{case.name}.pcap"
    with guest.capture(pcap) as captured:
        result = attempt(case, ends, guest)
        if result.verdict == FAIL:
            logs = "\n".join(end.log for end in result.endings.values())
            result.pcap = keep(kept, case.name, f"{case}\n{result.reason}\n\n{logs}", captured())
    pcap.unlink(missing_ok=True)
    return result


def attempt(case, ends, guest):
    """Runs the session and judges it. Repeats a session in which the link lost frames."""
    result = Result(case)
    for _ in range(ATTEMPTS):
        before, start = guest.link.dropped(), time.monotonic()
        result.endings = hold(case, ends[case.server], ends[case.client])
        result.seconds = time.monotonic() - start
        result.reason = judge(case, result.endings)
        if not result.reason:
            result.verdict = PASS
            return result
        for name in (case.server, case.client):
            ends[name].clean_up(case)
        dropped = guest.link.dropped() - before
        if not dropped or case.program.service == RC:
            break
        # UC and UD do not send lost packets again, so the result shows nothing about the peers.
        result.reason += f"; the link itself dropped {dropped} frames"
    result.verdict = FAIL
    return result


def hold(case, server, client):
    """Runs the session and returns the endings by peer name. Both ends have ended afterwards."""
    if client.makes_link:
        # Without the client the server's port is down. The client retries until the server is
        # there.
        sessions = {client: client.begin(case, server.host), server: server.begin(case)}
    else:
        serving = server.begin(case)
        if not server.wait_until_listening(case.port, serving):
            server.clean_up(case)
            return {server.name: serving.wait()}
        sessions = {client: client.begin(case, server.host), server: serving}
    first, second = order_of_ending(case, sessions)
    endings = {first.name: sessions[first].wait()}
    if endings[first.name].fault:
        # The other end would wait for ever, because Soft-RoCE takes seven retries for no limit.
        second.clean_up(case)
    endings[second.name] = sessions[second].wait()
    return endings


def order_of_ending(case, sessions):
    """The peers, in the order in which their sessions ended."""
    deadline = time.monotonic() + case.seconds
    while time.monotonic() < deadline and not any(each.ended() for each in sessions.values()):
        time.sleep(0.02)
    return sorted(sessions, key=lambda peer: not sessions[peer].ended())


def judge(case, endings):
    """Describes the failure of a case. Empty if it passed."""
    faults = [f"{name}: {ending.fault}" for name, ending in endings.items() if ending.fault]
    if not faults and len(endings) < 2:
        faults = ["the server ended before its client came"]
    if not faults and case.loss and not any(ending.lost for ending in endings.values()):
        faults = ["no packet was lost, so the case proves nothing"]
    return "; ".join(faults)


def run_all(cases, ends, guest, recovery, work, kept, budget_seconds, tell):
    """Runs cases one after the other and reports each result. If the laboratory fails for good or
    the time is over, the rest is reported as not run."""
    deadline = time.monotonic() + budget_seconds
    obstacle = ""
    results = []
    for case in cases:
        if not obstacle and time.monotonic() > deadline:
            obstacle = f"the suite's {budget_seconds} s were used up"
        if obstacle:
            result = Result(case, reason=obstacle)
        else:
            result = recovery.attempt(
                case, guest, lambda case=case: verdict(case, ends, guest, work, kept))
            obstacle = result.reason if result.verdict == NOT_RUN else ""
        results.append(result)
        tell(result)
    return results


def verdict(case, ends, guest, work, kept):
    """Runs a case. Its result is "not run" if the laboratory failed; ends may go on running."""
    try:
        return run(case, ends, guest, work, kept)
    except (LabFailure, OSError) as error:
        return Result(case, reason=str(error))
