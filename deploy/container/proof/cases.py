"""What is proven of the image, each as a function of the session."""

import contextlib
import os
import re
import signal
import time
from pathlib import Path

import application
import monitoring
import pypi
import tools
from engine import LEAST_RIGHTS, Buildah, Docker, Failed, Skipped

MANIFESTS = Path(__file__).resolve().parents[2] / "kubernetes"
HEALTH = ("uroce", "-s", "1", "show", "port", "info", "all")
IMAGE = "localhost/uroce:latest"
SERVER = ("uroce-perf", "rping", "-s", "-P", "-V", "--config", "/etc/uroce/node1.toml")
CLIENT = ("uroce-perf", "rping", "-c", "-a", "192.0.2.1", "-V", "--config",
          "/etc/uroce/node2.toml")
ALONE = """\
version: "3.9"
services:
  export:
    network_mode: none
"""
"""Takes a service of compose.yaml off the engine's network, which this test leaves alone."""


def two_builds_one_digest(session):
    """The image is reproducible, whatever the umask, and small; buildah has it as podman does."""
    one, buildah = session.build("one.tar"), Buildah(session.work)
    try:
        other = session.build("other.tar", 0o077, ("--engine", "buildah"), buildah.environment)
        loaded = buildah.digests()
    finally:
        buildah.close()
    if not one == other == "".join(loaded):
        raise Failed(f"two builds differ: {one}, {other}; buildah has {loaded}")


def contents(session):
    """Nothing is in the image that is not needed: no shell, no compiler, no setuid program."""
    listed = session.podman.ask("run", "--rm", "--no-healthcheck", "--entrypoint=/usr/bin/uroce",
                                IMAGE, "--version")
    if not listed.startswith("uroce "):
        raise Failed(f"uroce --version printed {listed!r}")
    shell = session.podman.run("run", "--rm", "--no-healthcheck", IMAGE, "sh", "-c", "true")
    if shell.returncode == 0:
        raise Failed("the image has a shell")


def local_fabric(session):
    """Two containers without any right exchange verified pings through a shared volume."""
    podman, volume = session.podman, session.volume("fabric")
    podman.start("server", volume, IMAGE, *SERVER)
    podman.wait_for("server", "listening")
    rights(podman.main_process("server"))
    podman.container(volume, IMAGE, *CLIENT, "-C", "2000")
    podman.ask("rm", "--force", "--time", "0", "server")


def death_and_restart(session):
    """The server is killed: the client reports it, both start again, and traffic goes on."""
    podman, volume = session.podman, session.volume("restart")
    again = ("--restart=on-failure", volume, IMAGE)
    podman.start("one", *again, *SERVER)
    podman.wait_for("one", "listening")
    podman.start("two", *again, *CLIENT, "-C", "1000000000")
    grows(podman, "two")
    os.kill(podman.main_process("one"), signal.SIGKILL)
    podman.wait_for("two", "it disconnected after")
    grows(podman, "two")
    for name in ("one", "two"):
        podman.ask("rm", "--force", "--time", "0", name)


def grows(podman, name, seconds=30):
    """Waits until the port of a container's process has received more packets."""
    first, end = None, time.monotonic() + seconds
    while True:
        said = podman.run("exec", name, "uroce", "-j", "-s", "1", "show", "port", "stats", "all")
        found = re.search(r'"rx_packets":\s*(\d+)', said.stdout)
        received = int(found[1]) if found else None
        if None not in (first, received) and received > first:
            return
        first = received
        if time.monotonic() > end:
            raise Failed(f"{name} receives nothing in {seconds} s: {said.stdout[-300:]}, "
                         f"{podman.logs(name)[-600:]}")
        time.sleep(0.2)


def pod(session):
    """The Pod of overlays/fabric runs under podman as it is shipped, with the health command."""
    podman = session.podman
    with podman.played(MANIFESTS / "overlays/fabric/pair.yaml"):
        server, client = "uroce-pair-server", "uroce-pair-client"
        grows(podman, client)
        rights(podman.main_process(server))
        health = podman.inspect(server, "{{json .Config.Healthcheck.Test}}")
        if not health:
            raise Failed("the container has no health command")
        podman.ask("exec", client, *HEALTH)
        os.kill(podman.main_process(server), signal.SIGKILL)
        podman.wait_for(client, "it disconnected after")
        grows(podman, client)


def injection(session):
    """A Pod of Debian's perftest, which knows nothing of uroce, runs over the injected library."""
    podman = session.podman
    podman.load(session.application().result())
    with podman.played(MANIFESTS / "inject.yaml"):
        for name in ("application-server", "application-client"):
            podman.wait_for(name, "BW average", 60)
            row = r"^\s*65536\s+(\d+)\s+\S+\s+(\S+)"
            rows = re.findall(row, podman.logs(name), re.MULTILINE)
            if not rows or float(rows[0][1]) <= 0:
                raise Failed(f"{name} has no result: {podman.logs(name)[-900:]}")


def one_variable(session):
    """LD_LIBRARY_PATH alone injects the library: rping of rdmacm-utils, and ibv_devinfo."""
    podman, fabric = session.podman, session.volume("injected-run")
    directory = session.work / "injected"
    directory.mkdir()
    directory.chmod(0o777)
    podman.container(f"--volume={directory}:/uroce", IMAGE, "install", "/uroce")
    podman.container(f"--volume={directory}:/uroce", IMAGE, "install", "/uroce")
    options = (f"--volume={directory}:/uroce:ro", fabric, "--env=LD_LIBRARY_PATH=/uroce/lib",
               "--env=XDG_RUNTIME_DIR=/run/uroce", application.TAG)
    if "uroce0" not in (listed := podman.container(*options, "ibv_devinfo")):
        raise Failed(f"ibv_devinfo: {listed}")
    podman.start("server", *options, "rping", "-s", "-V", "-C", "100", "-v")
    session.until_listens("injected-run")
    podman.container(*options, "rping", "-c", "-a", "192.0.2.1", "-V", "-C", "100")
    podman.ask("rm", "--force", "--time", "0", "server")


def mooncake(session):
    """Mooncake's transfer engine, of an image without uroce, runs over the injected library."""
    podman, fabric = session.podman, session.volume("mooncake-run")
    file = session.work / "mooncake.tar"
    try:
        application.build_mooncake(file, session.cache)
    except pypi.Unavailable as failure:
        raise Skipped(f"Mooncake cannot be had from PyPI: {failure}")
    podman.load(file)
    file.unlink()
    directory = session.work / "mooncake"
    directory.mkdir()
    directory.chmod(0o777)
    podman.container(f"--volume={directory}:/uroce", IMAGE, "install", "/uroce")
    said = podman.container(f"--volume={directory}:/uroce:ro", fabric, "--memory=2g",
                            "--env=XDG_RUNTIME_DIR=/run/uroce", application.MOONCAKE_TAG,
                            "/uroce/uroce-run", "python3", "-B", "/usr/share/mooncake_nodes.py",
                            "2", "8", "2", "rdma", timeout=90)
    # Without an RDMA device it takes TCP instead.
    if "mooncake ok" not in said.splitlines() or "TcpTransport" in said or "uroce0" not in said:
        raise Failed(f"Mooncake printed: {said[-900:]}")


def refusals(session):
    """What cannot work ends with a line that names it: no volume, a read-only one, musl."""
    podman, directory = session.podman, session.work / "injected"
    expect(podman, 2, "readOnly", IMAGE, "install", "/uroce")
    expect(podman, 2, "usage", IMAGE, "install")
    expect(podman, 2, "securityContext", f"--volume={session.private()}:/uroce", IMAGE,
           "install", "/uroce")
    file = session.work / "musl.tar"
    application.without_glibc(file)
    podman.load(file)
    expect(podman, 127, "musl", f"--volume={directory}:/uroce:ro", "localhost/musl:latest",
           "/uroce/uroce-run", "/bin/true")


def another_user(session):
    """Another user with the same volume reaches nothing of it, and has a fabric of its own."""
    podman, volume = session.podman, session.volume("shared")
    podman.start("server", volume, IMAGE, *SERVER)
    podman.wait_for("server", "listening")
    other = ("--user=4711:4711", volume, IMAGE)
    said = podman.run("run", "--rm", "--no-healthcheck", *LEAST_RIGHTS, *other, *CLIENT, "-C", "1")
    if said.returncode == 0 or "Permission denied" not in said.stdout:
        raise Failed(f"{said.returncode}: {said.stdout}")
    podman.ask("rm", "--force", "--time", "0", "server")


def expect(podman, code, words, *arguments):
    """Runs a container that must end with this code and a log with these words in its first line,
    which names the cause and the manifest's field."""
    done = podman.run("run", "--rm", "--no-healthcheck", *LEAST_RIGHTS, *arguments)
    lines = [line for line in done.stdout.splitlines() if "level=" not in line]
    if done.returncode != code or not lines or words not in lines[0]:
        raise Failed(f"{arguments[-2:]}: {done.returncode}, not {code} with {words!r}: {lines}")


def compose(session):
    """compose.yaml under Docker: traffic, health, a killed server that comes back, Prometheus."""
    docker = Docker(session.work)
    try:
        docker.load(session.work / "one.tar")
        with composed(session, docker) as (server, client, exporter):
            rights(docker.main_process(exporter))
            docker.wait_until(server, "{{.State.Health.Status}}", "healthy")
            os.kill(docker.main_process(server), signal.SIGKILL)
            docker.wait_for(client, "it disconnected after")
            grows(docker, client)
            process = docker.main_process(exporter)
            monitoring.prometheus(session, MANIFESTS.parent / "grafana", process, 2)
    finally:
        docker.close()


def podman_compose(session):
    """compose.yaml under podman-compose: traffic, and the metrics of both nodes."""
    session.podman.composer = tools.podman_compose(session.cache)
    with composed(session, session.podman):
        pass


@contextlib.contextmanager
def composed(session, engine):
    """Runs the nodes and the exporter of compose.yaml while the block runs, and yields the names of
    their containers. The exporter has no network but its own loopback."""
    alone = session.work / "alone.yaml"
    alone.write_text(ALONE)
    files = (MANIFESTS.parent / "compose.yaml", alone)
    names = "server", "client", "export"
    try:
        engine.compose(files, "up", "--detach", *names)
        server, client, exporter = (f"uroce_{name}_1" for name in names)
        grows(engine, client)
        rights(engine.main_process(server))
        monitoring.metrics(engine.main_process(exporter), 2)
        yield server, client, exporter
    finally:
        engine.compose(files, "down", "--volumes", "--timeout", "2")


def rights(pid, user=65534, capabilities=0):
    """Raises unless a process has these capabilities and no other, cannot gain one, and runs under
    seccomp."""
    status = Path(f"/proc/{pid}/status").read_text()
    held = f"{capabilities:016x}"
    expected = {
        "Uid": str(user), "CapPrm": held, "CapEff": held, "CapBnd": held, "NoNewPrivs": "1",
        "Seccomp": "2",
    }
    for name, value in expected.items():
        found = re.search(rf"^{name}:\s+(\S+)", status, re.MULTILINE)[1]
        if found != value:
            raise Failed(f"{name} of the container's process is {found}, not {value}")


FIRST = (two_builds_one_digest,)
CASES = (
    contents, local_fabric, death_and_restart, another_user, pod, injection, one_variable, refusals,
)
BESIDE = (compose, podman_compose)
FULL = (mooncake,)
