"""What is proven of the manifests, each as a function of the session."""

import contextlib
from pathlib import Path

from cases import MANIFESTS, grows, rights
from link import Link

NET_RAW = 1 << 13


def manifests(session):
    """All manifests are valid for Kubernetes 1.31 and newer, as they are and by Kustomize."""
    tools = session.tools
    for file in MANIFESTS.glob("*.yaml"):
        tools.read("check", file.read_text())
    for overlay in overlays():
        tools.read("check", tools.run("kubectl", "kustomize", overlay))


def overlays():
    """The folders for Kustomize."""
    return sorted(file.parent for file in MANIFESTS.glob("overlays/*/kustomization.yaml"))


def af_packet(session):
    """overlays/af-packet as it is shipped: two Pods on a network of their own, NET_RAW alone."""
    # Pods have no DNS here.
    text = rendered(session, "af-packet").replace("- server\n", "- 192.0.2.1\n")
    with Link(session.podman) as link, pods(session, text, link.options):
        grows(session.podman, "client-uroce")
        for name in ("client-uroce", "server-uroce"):
            rights(session.podman.main_process(name), 0, NET_RAW)


def rendered(session, overlay):
    """The Pods and ConfigMaps of an overlay."""
    tools = session.tools
    return tools.read("pods", tools.run("kubectl", "kustomize", MANIFESTS / "overlays" / overlay))


@contextlib.contextmanager
def pods(session, text, options):
    """Runs a server and a client, each with the ConfigMaps, and with the engine's options that a
    function of their names returns."""
    documents = text.split("---\n")
    shared = [document for document in documents if "kind: ConfigMap\n" in document]
    with contextlib.ExitStack() as stack:
        for name in ("server", "client"):
            own = [document for document in documents if f"\n  name: {name}\n" in document]
            file = session.work / f"{name}.yaml"
            file.write_text("---\n".join([*shared, *own]))
            stack.enter_context(session.podman.played(file, options(name)))
        yield


CASES = (manifests, af_packet)
