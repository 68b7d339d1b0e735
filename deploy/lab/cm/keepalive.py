"""Cases of connections in which nothing happens: keepalives of uroce to Soft-RoCE.

Each is a function of the ends that returns what is wrong, or nothing. Debian's rping runs at both
ends, over uroce with the drop-in library. The guest's program is stopped, so that neither end sends
anything; its kernel still answers.
"""

import time
from functools import partial

from .ends import last_words
from .faults import FOR_EVER, PORT, SECONDS, pinging, wait_for_traffic

# Idle time of uroce's connections in these cases.
IDLE_MS = 200
# Time without traffic, and the keepalives that it must have at least.
IDLE_SECONDS, LEAST = 3, 6
# Soft-RoCE's counters that a keepalive must leave alone.
UNCHANGED = ("out_of_seq_request", "rcvd_seq_err", "rcvd_rnr_err", "retry_exceeded_err",
             "completer_retry_err", "send_err")
# Least size of a second's pings in the capture.
PING_BYTES = 5000
RXE_COUNTERS = "/sys/class/infiniband/rxe0/ports/1/hw_counters"


def table(case):
    """All cases of this file."""
    cases = []
    for server, client in (("uroce", "rxe"), ("rxe", "uroce")):
        for name, run in (("idle", idle), ("vanished", vanished)):
            # A server sends one MAD, the REP, before its peer vanishes; a client REQ and RTU.
            mads = 1 if (name, server) == ("vanished", "uroce") else 2
            cases.append(case(f"rping-{name}-{server}-serves", server, client,
                              partial(run, server=server, client=client), mads))
    return cases


def idle(ends, server, client):
    """An idle connection is asked for signs of life, and goes on as if nothing had happened."""
    programs = begin(ends, server, client)
    stop(ends)
    before = counters(ends)
    time.sleep(IDLE_SECONDS)
    after = counters(ends)
    ends.guest.check("killall -CONT rping", 10)
    captured = len(ends.captured())
    time.sleep(1)
    for name, program in programs.items():
        if program.ended():
            return f"{name}'s rping ended: {last_words(program.wait().text)}"
    if len(ends.captured()) < captured + PING_BYTES:
        return "no more pings after the idle time"
    programs["rxe"].kill()
    ending = programs["uroce"].wait()
    if "DISCONNECT EVENT" not in ending.text:
        return f"uroce does not say that it was disconnected: {last_words(ending.text)}"
    changed = [name for name in UNCHANGED if after[name] != before[name]]
    if changed:
        return f"Soft-RoCE's {', '.join(changed)} changed while nothing happened"
    answered = after["duplicate_request"] - before["duplicate_request"]
    ends.said.append(f"{answered} keepalives in {IDLE_SECONDS} s")
    if not LEAST <= answered <= 1000 * IDLE_SECONDS / IDLE_MS + 1:
        return f"Soft-RoCE has seen {answered} duplicate requests in {IDLE_SECONDS} s"
    return ""


def vanished(ends, server, client):
    """The guest stops to answer and says nothing: uroce's end is disconnected after its retries."""
    programs = begin(ends, server, client)
    stop(ends)
    start = time.monotonic()
    ends.guest.check("/bin/tc qdisc replace dev eth0 root netem loss 100%", 10)
    try:
        ending = programs["uroce"].wait()
    finally:
        ends.guest.check("/bin/tc qdisc del dev eth0 root", 10)
    seconds = time.monotonic() - start
    programs["rxe"].kill()
    if "DISCONNECT EVENT" not in ending.text or seconds > SECONDS - 5:
        return f"uroce has noticed nothing in {seconds:.0f} s: {last_words(ending.text)}"
    ends.said.append(f"disconnected after {seconds:.1f} s")
    return ""


def begin(ends, server, client):
    """Starts pings without an end. Returns the programs by end."""
    ends.keepalive_ms = IDLE_MS
    address = ends.address(server, 4)
    words = ["-s", "-a", address, "-p", PORT]
    programs = {server: ends.serve(server, "rping", words, SECONDS)}
    programs[client] = ends.start(client, "rping", pinging(address, FOR_EVER), SECONDS)
    wait_for_traffic(ends)
    return programs


def stop(ends):
    """Stops the guest's program. What was on the way arrives before this returns."""
    ends.guest.check("killall -STOP rping; sleep 0.5", 10)


def counters(ends):
    """Soft-RoCE's counters."""
    text = ends.guest.check(f"cd {RXE_COUNTERS} && grep . *", 10)
    return {name: int(value) for name, value in (row.split(":", 1) for row in text.splitlines())}
