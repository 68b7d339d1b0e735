"""A session that looks into a running program: ib_write_bw over the local fabric."""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path

from terminal import PATIENCE, Terminal

# Seconds that the program runs by itself.
DURATION = 15


@contextlib.contextmanager
def running(build, work, *options):
    """Runs both ends of ib_write_bw for some seconds. Gives the processes of server and client."""
    variables = {**os.environ, "XDG_RUNTIME_DIR": str(work)}
    program = [build / "uroce-run", "ib_write_bw", "-D", str(DURATION), "-s", "4096", *options]
    with contextlib.ExitStack() as ends:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = str(free.getsockname()[1])

        def start(*words):
            process = subprocess.Popen([*program, "-p", port, *words], env=variables, text=True,
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            ends.callback(process.communicate)
            ends.callback(process.kill)
            return process

        server = start()
        listens = f"0100007F:{int(port):04X} |00000000:{int(port):04X} |{'0' * 32}:{int(port):04X} "
        eventually("the server", lambda: any(
            re.search(listens, Path("/proc/net", table).read_text()) for table in ("tcp", "tcp6")))
        client = start("localhost")
        yield server, client


def ask(build, work, *words):
    """The answer of a process to a command."""
    variables = {**os.environ, "XDG_RUNTIME_DIR": str(work)}
    output = subprocess.run([build / "uroce", "-j", *words], env=variables, capture_output=True,
                            text=True, timeout=PATIENCE, check=False)
    return json.loads(output.stdout) if output.returncode == 0 else None


def eventually(what, question):
    """The first answer that is not nothing."""
    end = time.monotonic() + PATIENCE
    while not (answer := question()):
        assert time.monotonic() < end, f"{what} did not come"
        time.sleep(0.1)
    return answer


def moving(build, work):
    """A running ib_write_bw: its QP sends, its port counts, and it does not notice"""
    with running(build, work) as (_, client):
        pid = str(client.pid)

        def rts():
            answer = ask(build, work, "-s", pid, "show", "qp")
            return [qp for qp in (answer or {}).get("qp", []) if qp["state"] == "RTS"]

        [first] = eventually("a QP in RTS", rts)
        qpn = f"{first['qpn']:#x}"
        assert any(process["pid"] == client.pid for process in ask(build, work, "ps"))
        before = ask(build, work, "-s", pid, "show", "port", "stats", "all")
        eventually("a send under way", lambda: any(
            qp["sends"] > 0 for qp in ask(build, work, "-s", pid, "show", "qp", qpn)["qp_detail"]))
        time.sleep(0.5)
        after = ask(build, work, "-s", pid, "show", "port", "stats", "all")
        sent = [stats["port_stats"][0]["tx_packets"] for stats in (before, after)]
        assert sent[1] > sent[0] + 100, sent
        with Terminal(work, str(build / "uroce"), "-s", pid, XDG_RUNTIME_DIR=str(work)) as terminal:
            terminal.says("uroce>")
            terminal.types("C-l", "show path", "Enter")
            terminal.shows("path")
            terminal.types("show qp 0x", "Tab", "Tab")
            terminal.says(f"{first['qpn']:#08x}")
            terminal.types("C-u", "quit", "Enter")
            terminal.says("ended with 0")
        said, _ = client.communicate(timeout=DURATION + PATIENCE)
        assert client.returncode == 0, said
        assert re.search(r"^ 4096 +\d+ ", said, re.MULTILINE), said


def changed(build, work):
    """A running ib_write_bw: captured, made to lose frames, migrated; and it does not notice"""
    # Both ways: the end that only receives stays in RTR, where no path is armed.
    with running(build, work, "-b") as ends:
        def does(end, line):
            answer = ask(build, work, "-s", str(end.pid), *line.split())
            assert answer is not None, line
            return answer

        def qp_of(end):
            answer = does(end, "show qp")
            return next(iter(answer["qp"] if "qp" in answer else []), {"state": "-"})

        def count(name):
            counters = does(ends[1], "show counters")["counters"]
            return sum(counter["value"] for counter in counters if counter["name"] == name)

        for end in ends:
            eventually("a process that answers", lambda end=end: ask(
                build, work, "-s", str(end.pid), "show", "process"))
            eventually("a QP in RTS", lambda end=end: qp_of(end)["state"] == "RTS")
        captured(work, lambda line: does(ends[1], line))

        before = count("retransmitted_packets")
        does(ends[1], "set fault port 0 tx loss 0.01 seed 1")
        eventually("retransmissions", lambda: count("retransmitted_packets") > before + 10)
        assert count("tx_injected_loss") > 0
        does(ends[1], "clear faults")

        for end in ends:
            qpn = qp_of(end)["qpn"]
            does(end, f"load alt path qp {qpn} port 1")
            does(end, f"rearm qp {qpn}")
        eventually("armed ends", lambda: all(qp_of(end)["migration"] == "ARMED" for end in ends))
        does(ends[1], f"migrate qp {qp_of(ends[1])['qpn']}")
        eventually("a migration of both", lambda: all(
            qp_of(end)["migrations"] == 1 for end in ends))
        said, _ = ends[1].communicate(timeout=DURATION + PATIENCE)
        assert ends[1].returncode == 0, said
        assert re.search(r"^ 4096 +\d+ ", said, re.MULTILINE), said


def captured(work, does):
    """Captures a thousand frames, and has them read by tshark if it is there."""
    file = work / "port.pcapng"
    does(f"capture start port 0 file {file} count 1000")
    eventually("the end of the capture", lambda: any(
        "1000" in (of.get("end") or "") for of in does("show capture").get("capture", [])))
    if shutil.which("tshark"):
        read = subprocess.run(
            ["tshark", "-r", file, "-T", "fields", "-e", "infiniband.bth.opcode",
             "-e", "_ws.malformed"],
            capture_output=True, text=True, timeout=PATIENCE, check=True)
        frames = read.stdout.splitlines()
        assert len(frames) == 1000, len(frames)
        assert not [frame for frame in frames if "Malformed" in frame]


SESSIONS = (moving, changed)
