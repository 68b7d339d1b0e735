"""A session that looks into a running program: ib_write_bw over the local fabric."""

import contextlib
import json
import os
import re
import socket
import subprocess
import time
from pathlib import Path

from terminal import PATIENCE, Terminal

# Seconds that the program runs by itself.
DURATION = 12


@contextlib.contextmanager
def running(build, work):
    """Runs both ends of ib_write_bw for some seconds. Gives the client's process."""
    variables = {**os.environ, "XDG_RUNTIME_DIR": str(work)}
    program = [build / "uroce-run", "ib_write_bw", "-D", str(DURATION), "-s", "4096"]
    with contextlib.ExitStack() as ends:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = str(free.getsockname()[1])

        def start(*words):
            process = subprocess.Popen([*program, "-p", port, *words], env=variables, text=True,
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            ends.callback(process.communicate)
            ends.callback(process.kill)
            return process

        start()
        listens = f"0100007F:{int(port):04X} |00000000:{int(port):04X} |{'0' * 32}:{int(port):04X} "
        eventually("the server", lambda: any(
            re.search(listens, Path("/proc/net", table).read_text()) for table in ("tcp", "tcp6")))
        client = start("localhost")
        yield client


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
    with running(build, work) as client:
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


SESSIONS = (moving,)
