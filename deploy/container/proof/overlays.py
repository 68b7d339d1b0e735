"""What is proven of the manifests, each as a function of the session.

  manifests      all of them against Kubernetes' schemas
  the overlays   those that this machine can run, as they are shipped
"""

import contextlib
import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path

import application
import monitoring
from cases import MANIFESTS, grows, injected, load_application, rights
from engine import CONFINED, Failed, Skipped
from link import NAME, Link

NET_RAW = 1 << 13
USER = 65534
SWITCH_FOLDER = "/run/uroce-switch"
WAYS = ("udp", "af-packet", "af-xdp", "sriov-vfio", "sriov-dra", "vhost-user")
PLAYED = ("fabric", "udp", "af-packet", "vhost-user")
"""Overlays whose Pods this test runs."""
OWN_INTERFACE = ("udp", "af-packet")
"""Ways by the Pod's own interface, to which a network policy applies."""
RIGHTS = f"[] {USER}:{USER}"
"""No capability, and the image's user, as podman prints them."""
FAULTY = {
    "way=nonsense": "way", "way=fabric,monitoring=true": "no network to serve",
    "way=af-xdp,networkPolicy=true": "pass no network plugin",
}
"""Values that the chart refuses, and words of the reason."""
TOGETHER = """\
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [{overlay}]
components: [{components}]
"""


def comments(_):
    """Manifests say first what they need of the cluster, overlays their rights and what has run."""
    for file in MANIFESTS.rglob("*.yaml"):
        if not file.read_text().startswith(("# Needs of the c", "{{- /* Needs of the c")):
            raise Failed(f"the first comment of {file} does not say what it needs of the cluster")
    table = (MANIFESTS.parent / "container/README.md").read_text()
    for folder in (MANIFESTS / "overlays").iterdir():
        name, lines = folder.name, (folder / "kustomization.yaml").read_text().splitlines()
        said = " ".join(line.removeprefix("# ") for line in lines if line.startswith("#"))
        if "Least rights: " not in said or f"[overlays/{name}](" not in table:
            raise Failed(f"the rights of overlays/{name} are not stated")
        if ("Not run here: " in said) == (name in PLAYED):
            raise Failed(f"overlays/{name} says the wrong thing of whether it is run here")


def manifests(session):
    """All manifests are valid for Kubernetes 1.31 and newer, as they are and by Kustomize."""
    tools = session.tools
    texts = [file.read_text() for file in MANIFESTS.glob("*.yaml")]
    for folder in [*MANIFESTS.glob("overlays/*"), MANIFESTS / "benchmark", MANIFESTS / "mpi"]:
        texts.append(tools.run("kubectl", "kustomize", folder))
    texts.append(with_components(session, "udp", "monitoring", "network-policy"))
    # Together, since the schemas are large.
    tools.read("check", "\n---\n".join(texts))


def chart(session):
    """The Helm chart has no fault, is valid, and gives all manifests of overlays and components."""
    tools, folder, texts, pairs = session.tools, MANIFESTS / "chart", [], []
    tools.run("helm", "lint", "--strict", folder)
    for way in WAYS:
        possible = [(), ("monitoring",)]
        if way in OWN_INTERFACE:
            possible += [("network-policy",), ("monitoring", "network-policy")]
        for components in possible:
            chosen = [f"monitoring={json.dumps('monitoring' in components)}",
                      f"networkPolicy={json.dumps('network-policy' in components)}", f"way={way}"]
            made = tools.run("helm", "template", "uroce", folder, "--set", ",".join(chosen))
            overlay = with_components(session, way, *components)
            pairs += [made, "other", overlay, "end"]
        # The last has everything that a way can have.
        texts.append(made)
    texts.append(tools.run("helm", "template", "uroce", folder, "--set", "way=fabric"))
    pairs += [texts[-1], "other", with_components(session, "fabric"), "end"]
    tools.read("same", "\n---\n".join(pairs))
    tools.read("check", "\n---\n".join(texts))
    for faulty, words in FAULTY.items():
        refused(words, lambda: tools.run("helm", "template", "uroce", folder, "--set", faulty))
    refused("1.34 or newer", lambda: tools.run(
        "helm", "template", "uroce", folder, "--set", "way=sriov-dra", "--kube-version", "1.33.0"))


def refused(words, call):
    """Raises unless a call fails with these words."""
    try:
        call()
    except Failed as failure:
        if words in str(failure):
            return
        raise
    raise Failed(f"accepted, though {words!r}")


def udp(session):
    """overlays/udp: two Pods on a network of their own, no capability, user 65534, with metrics."""
    own_interface(session, "udp", USER, 0)


def af_packet(session):
    """overlays/af-packet: two Pods on a network of their own, NET_RAW alone, with metrics."""
    own_interface(session, "af-packet", 0, NET_RAW)


def own_interface(session, overlay, user, capabilities):
    """Runs an overlay whose Pods meet by their own interfaces, and checks their rights."""
    text = with_components(session, overlay, "monitoring")
    # Pods have no DNS here, and this podman would publish the port on this machine.
    text = session.tools.read("pods", text).replace("- server\n", "- 192.0.2.1\n")
    text = re.sub(r"\n +ports:\n +- containerPort: 9749\n +name: metrics", "", text)
    podman = session.podman
    with Link(podman) as link, pods(session, text, link.options):
        grows(podman, "client-uroce")
        for name in ("client-uroce", "server-uroce"):
            rights(podman.main_process(name), user, capabilities)
        exporter = podman.main_process("client-export")
        rights(exporter, user)
        monitoring.metrics(exporter)


def injected_udp(session):
    """Pods of an image without uroce meet by their own interfaces, with no capability."""
    podman = session.podman
    load_application(session)
    program = (injected(session), application.TAG, "/uroce/uroce-run", "--udp", "eth0",
               "ib_write_bw", "-D", "1", "-u", "18")
    with Link(podman) as link:
        with podman.started("server", "", *link.options("server"), *program, rights=CONFINED):
            process = podman.main_process("server")
            rights(process)
            until_listens(process, 18515)
            said = podman.container(*link.options("client"), *program, "192.0.2.1", rights=CONFINED)
    if not re.search(r"^\s*65536\s+\d+\s+\S+\s+[1-9]", said, re.MULTILINE):
        raise Failed(f"ib_write_bw: {said[-900:]}")


def until_listens(process, port, seconds=30):
    """Waits until a process's network has a TCP socket that listens at a port."""
    listens = re.compile(rf":{port:04X} \S+ 0A ")
    end = time.monotonic() + seconds
    while not any(listens.search(Path(f"/proc/{process}/net/{table}").read_text())
                  for table in ("tcp", "tcp6")):
        if time.monotonic() > end:
            raise Failed(f"nothing listens at port {port} in {seconds} s")
        time.sleep(0.1)


def benchmark(session):
    """benchmark: the Pods of its Jobs leave a report in the volume of the claim."""
    text = rendered(session, "benchmark").replace("- server\n", "- 192.0.2.1\n")
    text = text.replace("- '10'\n", "- '1'\n")
    podman = session.podman
    with Link(podman) as link, pods(session, text, link.options):
        podman.wait_for("client-uroce", "BW average", 30)
        podman.wait_until("client-uroce", "{{.State.Status}} {{.State.ExitCode}}", "exited 0")
        held = podman.inspect("client-uroce", "{{.EffectiveCaps}} {{.Config.User}}")
        if held != RIGHTS:
            raise Failed(f"capabilities and user are {held}, not {RIGHTS}")
        volume = podman.ask("volume", "inspect", "--format", "{{.Mountpoint}}", "report").strip()
        report = json.loads((Path(volume) / "write_bw.json").read_text())
        if not report:
            raise Failed("the report is empty")


def mpi(session):
    """mpi: the Pods of the indexed Job are ranks of Debian's Open MPI, injected, without ssh."""
    podman, fabric = session.podman, session.work / "mpi"
    podman.load(session.mpi().result())
    fabric.mkdir(mode=0o700)
    os.chown(fabric, USER, USER)
    text = rendered(session, "mpi").replace("/run/uroce-fabric", str(fabric))
    names = ("mpi-0", "mpi-1")
    with Link(podman), pods(session, text, lambda _: [f"--network={NAME}"], names):
        for step in ("ring", "allreduce", "alltoall", "one-sided"):
            podman.wait_for("mpi-0-rank", f"{step} ok", 30)
        for name in names:
            podman.wait_until(f"{name}-rank", "{{.State.Status}} {{.State.ExitCode}}", "exited 0")


def vhost_user(session):
    """overlays/vhost-user: two Pods at ports of Open vSwitch with DPDK, with no capability."""
    text = rendered(session, "overlays/vhost-user")
    sockets = session.work / "switch"
    text = text.replace(SWITCH_FOLDER, str(sockets))
    podman = session.podman
    with switch(session.work) as running:
        for name in ("server", "client"):
            (sockets / name).mkdir(parents=True)
            os.chown(sockets / name, USER, USER)
            running.add(name, 1500, socket=str(sockets / name / "uroce.sock"))
        with pods(session, text, lambda _: ["--network=none"]):
            grows(podman, "client-uroce")
            for name in ("client-uroce", "server-uroce"):
                rights(podman.main_process(name))


@contextlib.contextmanager
def switch(work):
    """Open vSwitch in a network of its own, from the laboratory."""
    sys.path.insert(0, str(MANIFESTS.parent / "lab"))
    from report.failure import LabFailure
    from switch import ovs

    class Apart(ovs.Switch):
        """The bridge's own interface is not in this machine's network."""

        def start(self, command):
            return super().start(["unshare", "--net", *command])

    if not Path(ovs.DAEMON).exists():
        raise Skipped("needs Open vSwitch with DPDK: apt-get install openvswitch-switch-dpdk")
    try:
        with Apart(work) as running:
            yield running
    except LabFailure as failure:
        raise Failed(str(failure))


def rendered(session, folder):
    """The Pods of a folder, and what they mount."""
    return session.tools.read("pods", session.tools.run("kubectl", "kustomize", MANIFESTS / folder))


def with_components(session, overlay, *components):
    """An overlay with components, by Kustomize."""
    # Kustomize takes no folder outside of one that contains all of them, nor a link.
    own = Path(tempfile.mkdtemp(dir=session.manifests))
    names = ", ".join(f"../components/{name}" for name in components)
    text = TOGETHER.format(overlay=f"../overlays/{overlay}", components=names)
    (own / "kustomization.yaml").write_text(text)
    return session.tools.run("kubectl", "kustomize", own)


@contextlib.contextmanager
def pods(session, text, options, names=("server", "client")):
    """Runs Pods of these names, each with what it mounts, and with the engine's options that a
    function of their names returns."""
    named = {re.search(r"^  name: (\S+)$", document, re.MULTILINE)[1]: document
             for document in text.split("---\n")}
    with contextlib.ExitStack() as stack:
        for name in names:
            pod = named[name]
            mounted = [document for other, document in named.items()
                       if "\nkind: Pod\n" not in document and f" {other}\n" in pod]
            file = session.work / f"{name}.yaml"
            file.write_text("---\n".join([*mounted, pod]))
            stack.enter_context(session.podman.played(file, options(name)))
        yield


CASES = (udp, af_packet, injected_udp, benchmark, mpi, vhost_user)
BESIDE = (comments, manifests, chart)
