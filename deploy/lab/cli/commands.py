"""Every command of the tree, both ways in: at the prompt of a process with its own device, and from
outside into a process that runs."""

import contextlib
import json
import os
import re
import subprocess
import threading

from terminal import PATIENCE

CONFIG = """[eal]
memory_mb = 64

[[device]]
name = "here"

[[device.port]]
ethdev = {{ local = "{work}/fabric" }}
ip = ["192.0.2.1/24"]
mtu = 4200

[[device.port]]
ethdev = {{ vdev = "net_null0,no-rx=1" }}
ip = ["198.51.100.1/24"]
"""

# Each command with what its answer has. `{name}` is what an earlier answer had as group `name`; the
# files are in the session's folder. Together the rows have each command of the tree.
ROWS = (
    ("version", r"^uroce \d"),
    ("help show port stats", r"Frames and bytes"),
    ("sleep 1", r"^$"),
    ("show process", r"uroce"),
    ("show device detail", r"max_qp"),
    ("show gid", r"192\.0\.2\.1 "),
    ("show port info 1", r"Driver name: net_null"),
    ("show port summary all", r"Number of available ports: 2"),
    ("show port stats 1", r"NIC statistics for port 1"),
    ("show port xstats 1", r"rx_good_packets|port 1"),
    ("show port cap 0", r"(?i)port 0"),
    ("show port rss reta 1", r"128 entries"),
    ("show rxq info 1 0", r"Number of RXDs: 1024"),
    ("show txq info 1 0", r"Number of TXDs: 512"),
    ("show config cores", r"(?i)lcore"),
    ("show config roce", r"(?i)here"),
    ("show config rxtx", r"rx_descriptors: 1024"),
    ("show config fwd", r"forwarding: stopped"),
    ("show config file", r"net_null0"),
    ("save config {work}/saved.toml", r""),

    # Objects, and a connection of the device with itself.
    ("create pd", r"^PD (?P<pd>\d+) of here"),
    ("create cq depth 64", r"^CQ (?P<cq>\d+) of here"),
    ("create srq pd {pd} depth 16", r"^SRQ (?P<srq>\d+) of here"),
    ("create rdd", r"^RDD (?P<rdd>\d+) of here"),
    ("reg mr pd {pd} len 64 access local_write,remote_write,remote_read,remote_atomic pattern 7",
     r"^MR (?P<key>0x[0-9a-f]+) of here, address (?P<addr>0x[0-9a-f]+), 64 bytes"),
    ("listen 7471 pd {pd} cq {cq}", r"^CM (?P<listener>\d+) of here"),
    ("connect 192.0.2.1 7471 pd {pd} cq {cq}", r"^CM (?P<cm>\d+) of here.*QP (?P<qp>0x[0-9a-f]+)"),
    ("wait cm {cm} established", r""),
    ("wait qp {qp} state RTS", r""),
    ("create qp type RC pd {pd} scq {cq} rcq {cq} srq {srq}",
     r"^QP (?P<other>0x[0-9a-f]+) of here"),
    ("modify qp {other} state INIT port 1 pkey 0 access remote_write", r""),
    ("query qp {other}", r"state: +INIT"),
    ("show qp {qp}", r"RTS"),
    ("show path {qp}", r"192\.0\.2\.1"),
    ("show migration {qp}", r"MIGRATED"),
    ("show rate {qp}", r"(?i){qp}"),
    ("show cm listen", r"LISTEN"),
    ("show mcast", r""),
    *((f"show {kind}", r"here") for kind in ("pd", "cq", "mr", "mw", "srq", "ah")),
    ("show neigh", r"(?i)address"),
    ("show route", r"192\.0\.2\.0/24"),

    # Traffic.
    ("trace qp {qp} packets 4", r""),
    ("post write qp {qp} mr {key} len 8 rkey {key} addr {addr}", r""),
    ("post read qp {qp} mr {key} len 8 rkey {key} addr {addr}", r""),
    ("post cmp_swap qp {qp} mr {key} rkey {key} addr {addr} compare 0 swap 1", r""),
    ("post fetch_add qp {qp} mr {key} rkey {key} addr {addr} add 1", r""),
    ("poll cq {cq} max 4 timeout 5000", r"success"),
    ("post recv qp {qp} mr {key} len 8", r""),
    ("post send qp {qp} mr {key} len 8", r""),
    ("query mr {key}", r"0000"),
    ("show trace", r"(?i)write"),
    ("clear trace", r""),
    ("capture start port 0 file {work}/frames.pcapng", r""),
    ("show capture", r"frames\.pcapng"),
    ("capture stop", r""),
    ("show latency qp {qp}", r"(?i){qp}"),
    ("show latency distribution", r"99\.9 %"),
    ("clear latency", r""),
    ("show counters qp {qp}", r"(?i)packets"),
    ("show errors", r"rx_unknown_qpn"),
    ("show runtime", r"(?i)lcore"),
    ("ping 192.0.2.1 count 1", r"(?i)time|answer"),
    ("monitor port 0 interval 100 count 1", r""),
    ("monitor qp {qp} interval 100 count 1", r""),
    ("show events", r"(?i)event"),
    *((f"clear {what}", r"") for what in ("port stats all", "port xstats all", "counters", "errors",
                                         "runtime", "events", "fwd stats all")),
    *((f"dump {what}", r"\S") for what in ("mempool", "memzone", "physmem", "ring", "lcores",
                                         "log_types", "socket_mem")),

    # Path migration. The QP at the other end has no second path.
    ("load alt path qp {qp} port 1 dgid ::ffff:192.0.2.1", r""),
    ("rearm qp {qp}", r""),
    ("migrate port 1", r""),
    ("migrate qp {qp} force", r"the peer did not arm .*\(ETIMEDOUT\)"),
    ("cm lap {cm} alt 192.0.2.1 timeout 5000", r"APR status 5 \(ECONNREFUSED\)"),

    # Settings.
    ("set qp {qp} rate 1", r""),
    ("set port 0 rate off", r""),
    ("set fault port 1 tx loss 0.5 seed 1", r""),
    ("show fault", r"0\.5"),
    ("clear faults", r""),
    ("set xstats-hide-zero on", r""),
    ("set stats-period 0", r""),
    ("set verbose 0", r""),
    ("set log global warn", r""),
    ("set link-down port 1", r""),
    ("wait link 1 down", r""),
    ("set link-up port 1", r""),
    ("wait link 1 up", r""),
    ("ip add 1 203.0.113.1/24", r""),
    ("route add 1 198.18.0.0/15 via 203.0.113.9", r""),
    ("neigh add 1 203.0.113.9 02:00:00:00:00:09", r""),
    ("neigh del 1 203.0.113.9", r""),
    ("route del 1 198.18.0.0/15 via 203.0.113.9", r""),
    ("ip del 1 203.0.113.1/24 force", r""),

    # The end of it all.
    ("disconnect {cm} force", r""),
    ("disconnect {listener} force", r""),
    ("destroy qp {other}", r""),
    ("destroy srq {srq}", r""),
    ("destroy rdd {rdd}", r""),
    ("dereg mr {key}", r""),
    ("reg mr pd {pd} len 8", r"^MR (?P<key>0x[0-9a-f]+) of here"),
    ("destroy mr {key}", r""),
    ("destroy cq {cq}", r""),
    ("destroy pd {pd}", r""),

    # Forwarding, and ports.
    ("set fwd rxonly", r""),
    ("start force", r"(?i)forward"),
    ("show fwd stats all", r"(?i)forward"),
    ("stop", r"Accumulated forward statistics"),
    ("port stop 1 force", r"Stopping ports"),
    ("port start 1", r"Done"),
    ("port reset 1 force", r"Resetting ports"),
    ("port close 1 force", r"Closing ports"),
    ("port detach 1 force", r"is gone.*\(ENODEV\)"),
    ("port attach net_null9,no-rx=1", r"Port 1 is attached\. Now total ports is 2"),
    ("wait link 1 up", r""),
    ("port attach net_null8", r"no port is without a device.*\(EOPNOTSUPP\)"),
)

# Commands that the program itself carries out, at either prompt, and one that waits for an event:
# their sessions are in `prompt` and in the tests of the program.
OF_THE_PROMPT = ("load", "load_echo", "quit", "monitor events")


def commands(build):
    """The words of all commands."""
    tree = subprocess.run([build / "uroce", "-d"], capture_output=True, check=True, text=True)
    return [" ".join(command["words"])
            for section in json.loads(tree.stdout)["sections"] for command in section["commands"]]


def environment(work):
    return {**os.environ, "XDG_RUNTIME_DIR": str(work), "XDG_STATE_HOME": str(work),
            "NO_COLOR": "1"}


@contextlib.contextmanager
def own_device(build, work):
    """A process with a device. Gives it, and a function that asks at its prompt."""
    (work / "config.toml").write_text(CONFIG.format(work=work))
    with subprocess.Popen([build / "uroce", "--", "-i", "--config", work / "config.toml"],
                          env=environment(work), text=True, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        def ask(line):
            # An answer has no mark at its end, so that of `version` is one.
            process.stdin.write(f"{line}\nversion\n")
            process.stdin.flush()
            said, marks = [], 2 if line == "version" else 1
            timer = threading.Timer(PATIENCE, process.kill)
            timer.start()
            try:
                for answer in process.stdout:
                    marks -= re.match(r"uroce \d", answer) is not None
                    if marks == 0:
                        return "".join(said)
                    said.append(answer)
            finally:
                timer.cancel()
            raise AssertionError(f"{line}: no end of the answer: {said}")

        try:
            yield process, ask
        finally:
            process.kill()


def every_command(ask, work):
    """Asks all rows."""
    known = {"work": str(work)}
    for template, pattern in ROWS:
        line = template.format_map(known)
        said = ask(line)
        found = re.search(pattern.format_map(known) if "{qp}" in pattern else pattern, said,
                          re.MULTILINE | re.DOTALL)
        assert found, f"{line}: {said}"
        # A refusal ends with the name of an error, and a wrong line with a mark.
        is_refused = re.search(r"\(E[A-Z]+\)|^Bad arguments|\^\^", said)
        assert not is_refused or r"\(E" in pattern, f"{line}: {said}"
        known.update(found.groupdict())


def at_the_prompt(build, work):
    """Every command at the prompt of a process with its own device"""
    untold = [command for command in commands(build)
              if command not in OF_THE_PROMPT and not command.startswith("bench ")
              and not any(f"{row} ".startswith(f"{command} ") for row, _ in ROWS)]
    assert not untold, f"no row for {untold}"
    with own_device(build, work) as (_, ask):
        every_command(ask, work)


def from_outside(build, work):
    """Every command from outside, into a process that runs"""
    with own_device(build, work) as (process, ask_own):
        ask_own("show gid")

        def ask(line):
            words = [build / "uroce", "-s", str(process.pid), *line.split()]
            return subprocess.run(words, env=environment(work), text=True, timeout=PATIENCE,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  check=False).stdout

        every_command(ask, work)


SESSIONS = (at_the_prompt, from_outside)
