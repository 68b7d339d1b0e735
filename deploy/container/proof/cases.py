"""What is proven of the image, each as a function of the session."""

import contextlib
import os
import re
import signal
import stat
import time
from pathlib import Path

import application
import monitoring
import packages
import pypi
import tools
from engine import LEAST_RIGHTS, Buildah, Docker, Failed, Skipped

MANIFESTS = Path(__file__).resolve().parents[2] / "kubernetes"
HEALTH = ("uroce", "-s", "1", "show", "port", "info", "all")
IMAGE = "localhost/uroce:latest"
PROGRAMS = {"uroce", "uroce-perf", "uroce-run", "install"}
INJECTED_MAX = 64 << 20
"""Bytes of the volume for `install` in the manifests."""
UNFIT = {
    "musl": {"lib/ld-musl-x86_64.so.1": b""},
    "no glibc": {"etc/hostname": b""},
    "too old": {"lib64/ld-linux-x86-64.so.2": b"", "lib64/libc.so.6": b"\0GLIBC_2.33\0"},
}
"""Files of images whose C library does not do, by words of the reason."""
BUILD_SECONDS_MAX = 180
"""Most seconds of a build of given programs, with its packages in the cache."""
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
    """The image is reproducible, whatever the umask, and made fast; buildah has it as podman."""
    one, buildah = session.build("one.tar"), Buildah(session.work)
    begin = time.monotonic()
    try:
        other = session.build("other.tar", 0o077, ("--engine", "buildah"), buildah.environment)
        # Its packages are in the cache.
        if (seconds := time.monotonic() - begin) > BUILD_SECONDS_MAX:
            raise Failed(f"the second build takes {seconds:.0f} s")
        loaded = buildah.digests()
    finally:
        buildah.close()
    if not one == other == "".join(loaded):
        raise Failed(f"two builds differ: {one}, {other}; buildah has {loaded}")


def contents(session):
    """Nothing is in the image that is not needed: no shell, no compiler, no setuid program."""
    podman = session.podman
    for program in ("uroce", "uroce-perf", "uroce-run"):
        if not (said := podman.container(IMAGE, program, "--version")).startswith(f"{program} "):
            raise Failed(f"{program} --version printed {said!r}")
    sbom = podman.inspect(IMAGE, '{{index .Labels "io.uroce.sbom"}}').lstrip("/")
    with podman.mounted(IMAGE) as root:
        if (found := {path.name for path in (root / "usr/bin").iterdir()}) != PROGRAMS:
            raise Failed(f"the image's programs are {found}")
        risen = [str(path.relative_to(root)) for path in root.rglob("*")
                 if path.lstat().st_mode & (stat.S_ISUID | stat.S_ISGID) or path.lstat().st_uid]
        if risen:
            raise Failed(f"not root's, or run as another user than who starts them: {risen}")
        named = [file.name for file in (root / sbom).iterdir()
                 if re.search(f"^Package: {re.escape(file.name)}$", file.read_text(), re.MULTILINE)]
        if not {"libc6", "base-files"} < {*named} or len(named) < len(packages.DRIVERS):
            raise Failed(f"the list of packages has {named}")


def local_fabric(session):
    """Two containers without any right exchange verified pings through a shared volume."""
    podman, volume = session.podman, session.volume("fabric")
    with podman.started("server", "listening", volume, IMAGE, *SERVER):
        rights(podman.main_process("server"))
        podman.container(volume, IMAGE, *CLIENT, "-C", "2000")


def death_and_restart(session):
    """The server is killed: the client reports it, both start again, and traffic goes on."""
    podman, volume = session.podman, session.volume("restart")
    again = ("--restart=on-failure", volume, IMAGE)
    with (podman.started("one", "listening", *again, *SERVER),
          podman.started("two", "", *again, *CLIENT, "-C", "1000000000")):
        grows(podman, "two")
        os.kill(podman.main_process("one"), signal.SIGKILL)
        podman.wait_for("two", "it disconnected after")
        grows(podman, "two")


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
        # podman before 4.4 would run a probe by a shell, fail, and start the container again.
        if (probe := podman.inspect(server, "{{json .Config.Healthcheck}}")) != "null":
            raise Failed(f"podman has taken a probe: {probe}")
        for name in (server, client):
            podman.ask("exec", name, *HEALTH)
        os.kill(podman.main_process(server), signal.SIGKILL)
        podman.wait_for(client, "it disconnected after")
        grows(podman, client)


def injection(session):
    """A Pod of Debian's perftest, which knows nothing of uroce, runs over the injected library."""
    podman = session.podman
    load_application(session)
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
    load_application(session)
    options = (injected(session), fabric, "--env=LD_LIBRARY_PATH=/uroce/lib",
               "--env=XDG_RUNTIME_DIR=/run/uroce", application.TAG)
    if "uroce0" not in (listed := podman.container(*options, "ibv_devinfo")):
        raise Failed(f"ibv_devinfo: {listed}")
    with podman.started("server", "", *options, "rping", "-s", "-V", "-C", "100", "-v"):
        session.until_listens("injected-run")
        podman.container(*options, "rping", "-c", "-a", "192.0.2.1", "-V", "-C", "100")


def load_application(session):
    """Has podman load the image of perftest."""
    session.podman.load(session.application().result())


def injected(session):
    """The option that mounts what `install` copies at /uroce. It fits into the manifests' volume,
    and a second time, as of a Pod that starts again, changes nothing."""
    directory = session.work / "injected"
    if not directory.exists():
        directory.mkdir()
        directory.chmod(0o777)
        sizes = []
        for _ in range(2):
            session.podman.container(f"--volume={directory}:/uroce", IMAGE, "install", "/uroce")
            blocks = [path.lstat().st_blocks * 512 for path in directory.rglob("*")]
            sizes.append((len(blocks), sum(blocks)))
        if sizes[0] != sizes[1] or sizes[0][1] > INJECTED_MAX:
            raise Failed(f"install has copied (files, bytes) {sizes[0]}, and then {sizes[1]}")
    return f"--volume={directory}:/uroce:ro"


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
    said = podman.container(injected(session), fabric, "--memory=2g",
                            "--env=XDG_RUNTIME_DIR=/run/uroce", application.MOONCAKE_TAG,
                            "/uroce/uroce-run", "python3", "-B", "/usr/share/mooncake_nodes.py",
                            "2", "8", "2", "rdma", timeout=90)
    # Without an RDMA device it takes TCP instead.
    if "mooncake ok" not in said.splitlines() or "TcpTransport" in said or "uroce0" not in said:
        raise Failed(f"Mooncake printed: {said[-900:]}")


def refusals(session):
    """What cannot work ends with a line that names it: no volume, a read-only one, no new glibc."""
    podman = session.podman
    expect(podman, 2, "readOnly", IMAGE, "install", "/uroce")
    expect(podman, 2, "usage", IMAGE, "install")
    expect(podman, 2, "securityContext", f"--volume={session.private()}:/uroce", IMAGE,
           "install", "/uroce")
    for words, files in UNFIT.items():
        file, tag = session.work / "unfit.tar", "localhost/unfit:latest"
        application.of_files(file, tag, files)
        podman.load(file)
        expect(podman, 127, words, injected(session), tag, "/uroce/uroce-run", "/bin/true")


def another_user(session):
    """Another user with the same volume can neither join nor listen nor see a process of it."""
    podman, volume = session.podman, session.volume("shared")
    other = ("--user=4711:4711", volume, IMAGE)
    with podman.started("server", "listening", volume, IMAGE, *SERVER):
        for command in (CLIENT, SERVER):
            expect(podman, 2, "Permission denied", *other, *command)
        for user, number in (("--user=65534", 1), ("--user=4711", 0)):
            seen = podman.container(volume, user, IMAGE, "uroce", "ps").count("uroce-perf")
            if seen != number:
                raise Failed(f"{user} sees {seen} processes, not {number}")
        podman.container(volume, IMAGE, *CLIENT, "-C", "200")


def expect(podman, code, words, *arguments, rights=LEAST_RIGHTS):
    """Runs a container that must end with this code and a log with these words in its first line,
    which names the cause and the manifest's field."""
    done = podman.run("run", "--rm", "--no-healthcheck", *rights, *arguments)
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
