"""Runs one case: a server, a client, a capture beside them, and a judgement of both endings."""

import time
from dataclasses import dataclass, field

import peers
from failure import LabFailure

PASS, FAIL, NOT_RUN = "pass", "FAIL", "not run"


@dataclass
class Result:
    """What became of a case."""

    case: object
    verdict: str = NOT_RUN
    reason: str = ""
    endings: dict = field(default_factory=dict)
    """By peer name."""
    seconds: float = 0.0
    pcap: str = None
    """The capture that was kept, of a failed case."""


def run(case, ends, capturing_guest, work, kept):
    """Runs a case in the folder `work`; leaves the evidence of a failure in the folder `kept`."""
    result = Result(case)
    server, client = ends[case.server], ends[case.client]
    pcap = work / f"{case.name}.pcap"
    start = time.monotonic()
    with capturing_guest.capture(pcap):
        result.endings = hold(case, server, client)
    result.seconds = time.monotonic() - start
    result.reason = judge(case, result.endings)
    result.verdict = FAIL if result.reason else PASS
    if result.verdict == FAIL:
        kept.mkdir(parents=True, exist_ok=True)
        result.pcap = str(kept / pcap.name)
        (kept / pcap.name).write_bytes(pcap.read_bytes())
        log = f"{case}\n{result.reason}\n\n" + "\n".join(end.log for end in result.endings.values())
        (kept / f"{case.name}.log").write_text(log)
        for peer in (server, client):
            peer.clean_up()
    pcap.unlink()
    return result


def hold(case, server, client):
    """Holds the session; the endings by peer name. Both ends are over when it returns."""
    serving = server.begin(case)
    if not peers.wait_until_listening(server, serving):
        server.clean_up()
        return {server.name: serving.wait()}
    sessions = {client: client.begin(case, server.host), server: serving}
    first, second = order_of_ending(case, sessions)
    endings = {first.name: sessions[first].wait()}
    if endings[first.name].fault:
        # Left alone the other one would wait for ever: Soft-RoCE takes seven retries for no limit.
        second.clean_up()
    endings[second.name] = sessions[second].wait()
    return endings


def order_of_ending(case, sessions):
    """The peers, the one whose session ended first before the other."""
    deadline = time.monotonic() + case.seconds
    while time.monotonic() < deadline and not any(each.ended() for each in sessions.values()):
        time.sleep(0.02)
    return sorted(sessions, key=lambda peer: not sessions[peer].ended())


def judge(case, endings):
    """What is wrong, empty if nothing."""
    faults = [f"{name}: {ending.fault}" for name, ending in endings.items() if ending.fault]
    if not faults and len(endings) < 2:
        faults = ["the server ended before its client came"]
    if not faults and case.loss and not any(ending.lost for ending in endings.values()):
        faults = ["no packet was lost, so the case proves nothing"]
    return "; ".join(faults)


def run_all(cases, ends, capturing_guest, work, kept, budget_seconds, tell):
    """Runs cases one after the other and tells each result; a broken laboratory, or the end of
    the budget, leaves the rest not run."""
    deadline = time.monotonic() + budget_seconds
    obstacle = ""
    results = []
    for case in cases:
        if not obstacle and time.monotonic() > deadline:
            obstacle = f"the suite's {budget_seconds} s were used up"
        try:
            result = (Result(case, reason=obstacle) if obstacle
                      else run(case, ends, capturing_guest, work, kept))
        except (LabFailure, OSError) as error:
            obstacle = str(error)
            result = Result(case, reason=obstacle)
        results.append(result)
        tell(result)
    return results
