"""Cases of connections that fail: no listener, rejects, killed ends, crossing disconnects.

Each is a function of the ends that returns what is wrong, or nothing.
"""

import json
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from report.failure import LabFailure
from vm.link import Bridged
from .ends import last_words
from .madcheck import DREP, DREQ, REJ, REP, REQ, SIDR_REP, attribute, number

SECONDS = 30
PORT = 7174
NO_PORT = 7000
# Reason codes of REJ.
NO_LISTENER, CONSUMER = 8, 28
# Options of a session that runs until it is ended, and of one that checks that all is well.
FOR_EVER, FEW = ("-C", 0), ("-C", 5, "-v", "-V")
# Kinds of bad datagrams, with the counters that must add up to their number.
COUNTED = (
    (("truncated", "too long"), ("gsi_malformed", "gsi_bad_length", "rx_malformed")),
    (("base version",), ("gsi_bad_version",)),
    (("class",), ("gsi_unknown_class",)),
    (("class version",), ("cm_class_version",)),
    (("method",), ("gsi_unknown_method",)),
    (("Q_Key",), ("gsi_qkey_viol",)),
    (("P_Key",), ("gsi_bad_pkey",)),
    (("ICRC",), ("rx_icrc_errors",)),
    (("unknown id", "attribute"), ("cm_unknown_id", "cm_malformed")),
    (("forged DREQ", "forged LAP", "forged DREP", "forged APR"),
     ("cm_forged", "cm_unknown_id", "cm_unexpected", "cm_malformed", "cm_alternate_refused")),
    (("wrong REQ", "wrong SIDR_REQ", "flood"),
     ("cm_refused", "cm_requests_refused", "cm_malformed")),
)
# Delay of every frame out of the guest, in seconds, so that the ends' disconnects cross.
DELAY = 0.4
ATTEMPTS = 3


def table(case):
    """All cases of this file."""
    def one(name, server, client, run, mads=1, link="tap"):
        return case(f"{name}-{server}-serves", server, client, run, mads, link)

    cases = []
    for server, client in (("uroce", "rxe"), ("rxe", "uroce")):
        for program in ("rping", "udaddy"):
            cases.append(one(f"{program}-no-listener", server, client,
                             partial(no_listener, server=server, client=client,
                                     program=program)))
        cases.append(one("ucmatose-reject", server, client,
                         partial(reject, server=server, client=client)))
        cases.append(one("rping-client-killed", server, client,
                         partial(client_killed, server=server, client=client), 2))
    cases.append(one("rping-server-killed", "uroce", "rxe", server_killed))
    cases.append(one("rping-crossing", "rxe", "uroce", crossing, 3))
    cases.append(one("rping-hostile-mads", "uroce", "rxe", hostile, 4, "bridge"))
    return cases


def no_listener(ends, server, client, program):
    """The client connects to a port without a listener, and must be rejected at once."""
    address = ends.address(server, 4)
    if server == "uroce":
        # A process must run the device.
        ends.serve("uroce", "rping", ["-s", "-p", NO_PORT], SECONDS)
    words = (["-c", "-a", address, "-p", PORT, "-C", 1] if program == "rping"
             else ["-s", address, "-C", 1])
    start = time.monotonic()
    ending = ends.start(client, program, words, SECONDS).wait()
    if time.monotonic() - start > SECONDS / 2:
        return f"{client} took {time.monotonic() - start:.0f} s to report that there is no listener"
    # Stock rping returns 0 even if its connection failed.
    if ending.status == 0 and not (client == "rxe" and "REJECTED" in ending.text):
        return f"{client} does not say that it was rejected: {last_words(ending.text)}"
    if program == "udaddy":
        answers = [row for row in ends.mads() if attribute(row) == SIDR_REP]
        return "" if answers else "no SIDR_REP"
    return rejected(ends, server, NO_LISTENER)


def reject(ends, server, client):
    """The client asks for two connections of a server that accepts one. If the second request comes
    after the server has made its one connection and ended, there is no listener, and the client
    tries again."""
    address = ends.address(server, 4)
    fault = ""
    for _ in range(ATTEMPTS):
        serving = ends.serve(server, "ucmatose", ["-b", address, "-p", PORT, "-c", 1, "-C", 0],
                             SECONDS)
        ending = ends.start(client, "ucmatose", ["-s", address, "-p", PORT, "-c", 2, "-C", 0],
                            SECONDS).wait()
        serving.wait()
        if client == "uroce" and "REJECTED" not in ending.text:
            return f"uroce does not say that it was rejected: {last_words(ending.text)}"
        fault = rejected(ends, server, CONSUMER)
        if not fault:
            break
    return fault


def rejected(ends, by, reason):
    """Checks that one end has sent a REJ with this reason. Returns a description if not."""
    reasons = [number(row["infiniband.cm.rej.reason"]) for row in ends.mads()
               if attribute(row) == REJ and row["src"] == ends.address(by, 4)]
    return "" if reason in reasons else f"{by} sent REJs of reasons {reasons}, not {reason}"


def client_killed(ends, server, client):
    """A client is killed while it pings; the server must continue."""
    address = ends.address(server, 4)
    words = ["-s", "-a", address, "-p", PORT, "-P"]
    words += ["--clients", 2 if client == "rxe" else 1] if server == "uroce" else []
    serving = ends.serve(server, "rping", words, SECONDS)
    first = ends.start(client, "rping", pinging(address, FOR_EVER), SECONDS)
    wait_for_traffic(ends)
    first.kill()
    fault = pings(ends, client, address)
    if server == "uroce" and not fault:
        ending = serving.wait()
        if ending.status != 0:
            return f"uroce's server: status {ending.status}: {last_words(ending.text)}"
    return fault


def server_killed(ends):
    """Our server is killed while a client pings; another one takes its place."""
    address = ends.address("uroce", 4)
    words = ["-s", "-a", address, "-p", PORT, "-V"]
    serving = ends.serve("uroce", "rping", words, SECONDS)
    first = ends.start("rxe", "rping", pinging(address, FOR_EVER), SECONDS)
    wait_for_traffic(ends)
    serving.kill()
    # The new server gets messages of a connection that it does not have.
    second = ends.serve("uroce", "rping", words, SECONDS)
    first.kill()
    fault = pings(ends, "rxe", address)
    ending = second.wait()
    if not fault and ending.status != 0:
        return f"uroce's server: status {ending.status}: {last_words(ending.text)}"
    return fault


def crossing(ends):
    """Both ends disconnect before either has received the other's DREQ. A busy machine may miss the
    moment, so this is tried several times."""
    for _ in range(ATTEMPTS):
        before = len(ends.mads())
        ending = cross(ends)
        sent = {(row["src"], attribute(row)) for row in ends.mads()[before:]}
        ours, theirs = ends.address("uroce", 4), ends.address("rxe", 4)
        missing = {(ours, DREQ), (theirs, DREQ), (ours, DREP)} - sent
        if ending.status == 0 and not missing:
            return ""
    if ending.status != 0:
        return f"uroce: status {ending.status}: {last_words(ending.text)}"
    return f"did not cross: no {missing}"


def cross(ends):
    """Our client sends one ping, and its server is ended while its last message is on the way."""
    address = ends.address("rxe", 4)
    guest = ends.guest
    guest.check(f"/bin/tc qdisc replace dev eth0 root netem delay {DELAY * 1000:.0f}ms", 10)
    try:
        serving = ends.serve("rxe", "rping", ["-s", "-a", address, "-p", PORT, "-P"], SECONDS)
        # The server's last message is on the way between the 4th and the 5th delay.
        killer = guest.begin("until rdma resource show cm_id | grep -q CONNECT; do usleep 10000; "
                             f"done; sleep {4.5 * DELAY}; killall rping", SECONDS)
        ending = ends.start("uroce", "rping", pinging(address, ("-C", 1, "-V")), SECONDS).wait()
        killer.wait()
        serving.wait()
    finally:
        guest.check("/bin/tc qdisc del dev eth0 root", 10)
    return ending


def hostile(ends):
    """Sends invalid MADs before, during and after connections of clients, which must not be
    affected."""
    address = ends.address("uroce", 4)
    words = ["-s", "-a", address, "-p", PORT, "-P", "--clients", 3, "-V"]
    serving = ends.serve("uroce", "rping", words, SECONDS)
    fault = pings(ends, "rxe", address)
    under_way = ends.start("rxe", "rping", pinging(address, FOR_EVER), SECONDS)
    wait_for_traffic(ends)
    target = ends.work / "target.json"
    target.write_text(json.dumps(attacked(ends)))
    program = Path(__file__).with_name("hostile.py")
    done = subprocess.run([sys.executable, "-B", program, Bridged.ATTACKER, target],
                          capture_output=True, text=True)
    ends.log.append(done.stdout + done.stderr)
    if done.returncode != 0:
        raise LabFailure(f"hostile.py: {done.stderr[-300:]}")
    if under_way.ended():
        return f"the client under way ended: {last_words(under_way.wait().text)}"
    under_way.kill()
    fault = fault or pings(ends, "rxe", address)
    ending = serving.wait()
    if ending.status != 0:
        return f"uroce's server: status {ending.status}: {last_words(ending.text)}"
    return fault or uncounted(json.loads(done.stdout), json.loads(ending.text.splitlines()[-1]))


def attacked(ends):
    """The properties of the newest connection in the capture that the attacker is given."""
    rows = ends.mads()
    request = [row for row in rows if attribute(row) == REQ][-1]
    reply = [row for row in rows if attribute(row) == REP][-1]
    return {
        "mac": ends.link.mac(), "ip": request["dst"],
        "peer_mac": ends.guest.addresses.mac(0), "peer_ip": request["src"], "port": PORT,
        "id": number(reply["infiniband.cm.rep"]), "peer_id": number(request["infiniband.cm.req"]),
        "qpn": number(reply["infiniband.cm.rep.localqpn"]),
        "peer_qpn": number(request["infiniband.cm.req.localqpn"]),
    }


def uncounted(sent, report):
    """The kinds of bad datagrams that the server has not counted."""
    counters = report["counters"]
    for kinds, names in COUNTED:
        wanted, got = (sum(table.get(key, 0) for key in keys)
                       for table, keys in ((sent, kinds), (counters, names)))
        if got < wanted:
            return f"of {', '.join(kinds)}: {wanted} sent, {got} counted as {', '.join(names)}"
    return ""


def pings(ends, client, address):
    """Checks that a few pings succeed."""
    ending = ends.start(client, "rping", pinging(address, FEW), SECONDS).wait()
    if ending.status != 0 or "ping data: rdma-ping-4: " not in ending.text:
        return f"afterwards {client}: status {ending.status}: {last_words(ending.text)}"
    return ""


def pinging(address, options):
    """Options of a pinging client."""
    return ["-c", "-a", address, "-p", PORT, *options]


def wait_for_traffic(ends):
    """Returns when a connection is established, after a short delay."""
    ends.guest.check("until rdma resource show cm_id | grep -q 'state CONNECT'; "
                     "do usleep 20000; done; sleep 0.3", SECONDS)
