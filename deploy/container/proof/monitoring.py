"""Reads the metrics of containers, within their network."""

import contextlib
import json
import shutil
import subprocess
import sys
import time
from urllib.parse import quote

from engine import Failed, Skipped

CONFIGURATION = "prometheus.yaml"
GET = """\
import sys, urllib.request
print(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())
"""
METRICS = "http://127.0.0.1:9749/metrics"
QUERY = "http://127.0.0.1:9090/api/v1/query?query="


def metrics(process, processes=1, seconds=30):
    """Waits until an exporter, a process of this machine, tells of so many other processes, or
    more."""
    end = time.monotonic() + seconds
    while True:
        done = get(process, METRICS)
        answer = [line for line in done.stdout.splitlines()
                  if line.startswith("roce_process_up") and line.endswith(" 1")]
        if len(answer) >= processes and "roce_rx_" in done.stdout:
            return
        if time.monotonic() > end:
            raise Failed(f"{len(answer)} processes have metrics in {seconds} s: "
                         f"{(done.stdout + done.stderr)[-600:]}")
        time.sleep(0.5)


def prometheus(session, folder, process, processes):
    """Prometheus of Debian, with the configuration of a folder that ships, beside an exporter.
    Raises Skipped if it is not here."""
    if not shutil.which("prometheus"):
        raise Skipped("the monitoring of compose.yaml: needs apt-get install prometheus")
    file = folder / CONFIGURATION
    checked = subprocess.run(["promtool", "check", "config", str(file)], capture_output=True,
                             text=True)
    if checked.returncode != 0:
        raise Failed(f"promtool: {(checked.stdout + checked.stderr)[-600:]}")
    command = ["nsenter", "-n", "-t", str(process), "prometheus", f"--config.file={file}",
               f"--storage.tsdb.path={session.work}/prometheus",
               "--web.listen-address=127.0.0.1:9090"]
    with ended(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)):
        until_stored(process, "roce_process_up==1", processes)
        until_stored(process, "rate(roce_port_packets_received_total[30s])>0", processes)


def until_stored(process, expression, number, seconds=30):
    """Waits until Prometheus has so many series of an expression."""
    end = time.monotonic() + seconds
    while True:
        done = get(process, QUERY + quote(expression))
        if done.returncode == 0:
            found = json.loads(done.stdout)["data"]["result"]
            if len(found) == number:
                return
        if time.monotonic() > end:
            raise Failed(f"Prometheus has not {number} of {expression} in {seconds} s: "
                         f"{(done.stdout + done.stderr)[-600:]}")
        time.sleep(0.5)


def get(process, address):
    """Gets an address in the network of a process."""
    return subprocess.run(["nsenter", "-n", "-t", str(process), sys.executable, "-c", GET, address],
                          capture_output=True, text=True, timeout=30)


@contextlib.contextmanager
def ended(process):
    """Ends a program with the block."""
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)
