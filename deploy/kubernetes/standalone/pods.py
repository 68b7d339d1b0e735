"""The cases that are run under kubelet, each as a function of the node."""

import contextlib
import os
import re
import signal
from pathlib import Path

from node import NodeFailure

MANIFESTS = Path(__file__).resolve().parents[1]
POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: {name}
spec:
  restartPolicy: {restart}
  securityContext:
    runAsUser: {user}
    runAsGroup: {user}
    fsGroup: {user}
    seccompProfile: {{type: RuntimeDefault}}
  containers:
    - name: uroce
      image: localhost/uroce:latest
      imagePullPolicy: IfNotPresent
      command: [{command}]
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {{drop: [ALL], add: [{added}]}}
      resources:
        limits: {{cpu: "1", memory: 256Mi{limit}}}
      volumeMounts:
        - {{name: run, mountPath: /run/uroce}}
  volumes:
    - {{name: run, emptyDir: {{}}}}
"""
IN_PROCESS = "uroce-perf, write_bw, --in-process, --verify, -n, '200'"
SERVER = "uroce-perf, rping, -s, -P, -V, --config, /etc/uroce/node1.toml"


def pair(node):
    """overlays/fabric, as it ships: ready by its probes, and again after the server is killed."""
    node.start("pair", (MANIFESTS / "overlays/fabric/pair.yaml").read_text())
    node.wait("ready Pod", lambda: node.are_ready("uroce-pair"))
    server = node.process_of("uroce-pair", "server")
    status = Path(f"/proc/{server}/status").read_text()
    for words in ("Uid:\t65534", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000",
                  "NoNewPrivs:\t1", "Seccomp:\t2"):
        if words not in status:
            raise NodeFailure(f"the server's process has not {words!r}")
    os.kill(server, signal.SIGKILL)
    node.wait("restart of both", lambda: node.are_ready("uroce-pair", 1))
    if "it disconnected after" not in (log := node.log("uroce-pair", "client")):
        raise NodeFailure(f"the client has not reported the server's end: {log[-600:]}")
    node.stop("pair")


def injection(node):
    """inject.yaml, as it ships: an init container, then Debian's perftest to its end."""
    node.start("inject", (MANIFESTS / "inject.yaml").read_text())
    node.wait("end of both programs", lambda: exits(node, "application") == [0, 0])
    for name in ("server", "client"):
        if not re.search(r"^\s*65536\s+\d+", node.log("application", name), re.MULTILINE):
            raise NodeFailure(f"{name} has no result")
    node.stop("inject")


def exclusive_cpu(node):
    """A Pod with a whole CPU: the static CPU manager gives one, and the lcore runs there."""
    node.start("exclusive", POD.format(name="exclusive", restart="Always", command=SERVER,
                                       limit="", user=65534, added=""))
    node.wait("lcore", lambda: node.are_ready("exclusive") and lcores(node, "exclusive"))
    found = lcores(node, "exclusive")
    given = (node.work / "kubelet/cpu_manager_state").read_text()
    if found != {"1"} or '"uroce":"1"' not in given:
        raise NodeFailure(f"the lcore may run on {found}; kubelet gave {given}")
    node.stop("exclusive")


def lcores(node, name):
    """Returns the CPUs on which the lcores of a Pod's container may run."""
    folder = Path(f"/proc/{node.process_of(name, 'uroce')}/task")
    found = set()
    for thread in folder.iterdir():
        # Other threads come and go while the program starts.
        with contextlib.suppress(FileNotFoundError):
            if "lcore" in (thread / "comm").read_text():
                status = (thread / "status").read_text()
                found.add(re.search(r"^Cpus_allowed_list:\s+(\S+)", status, re.MULTILINE)[1])
    return found


def hugepages(node):
    """A Pod with 96 MB of 2 MB pages and SYS_NICE runs in them; others are told what they lack."""
    node.needs_pages()
    for name, size, user, added, words in (
        ("pages", "96Mi", 0, "SYS_NICE", None),
        ("few", "32Mi", 0, "SYS_NICE", "resources.limits.hugepages-2Mi"),
        # RuntimeDefault refuses system calls of DPDK's then.
        ("denied", "96Mi", 65534, "", "capabilities.add: [SYS_NICE]"),
    ):
        node.start(name, POD.format(name=name, restart="Never", command=f"{IN_PROCESS}, --huge",
                                    limit=f", hugepages-2Mi: {size}", user=user, added=added))
        node.wait(f"end of {name}", lambda: exits(node, name))
        log = node.log(name, "uroce")
        if exits(node, name) != [2 if words else 0] or words and not is_said(words, log):
            raise NodeFailure(f"{name} ended with {exits(node, name)}: {log}")
        node.stop(name)


def is_said(words, log):
    """Tells whether the first line of uroce in a log has these words. Lines of DPDK and of libnuma
    may come before it."""
    own = [line for line in log.splitlines() if line.startswith("uroce-perf: ")]
    return bool(own) and words in own[0]


def exits(node, name):
    """Returns the exit codes of those containers of a Pod that have ended."""
    return [each["state"]["terminated"]["exitCode"] for each in node.containers(name).values()
            if "terminated" in each["state"]]


CASES = (pair, injection, exclusive_cpu, hugepages)
