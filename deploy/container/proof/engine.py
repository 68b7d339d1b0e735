"""Container engines with storage of their own, which is removed at the end."""

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import time
from pathlib import Path

CONFINED = (
    "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--memory=512m",
    "--tmpfs=/tmp:size=1m",
)
"""No capability, no privilege to gain, nothing to write to; user 65534 is the image's."""
LEAST_RIGHTS = (*CONFINED, "--network=none")
"""The same without a network."""

GROUPS = Path("/sys/fs/cgroup")
PODMAN_CONFIGURATION = """\
[containers]
# A machine without CAP_SYS_RESOURCE may not raise its limits.
default_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
tmp_dir = "{temporary}"
[network]
network_backend = "cni"
network_config_dir = "{networks}"
"""


class Failed(Exception):
    """A case has failed."""


class Skipped(Exception):
    """A case cannot run here; the text says why."""


class Podman:
    """podman without a daemon. Images and containers are below `work`."""

    name = "podman"

    def __init__(self, work):
        self.work = work / "podman"
        self.work.mkdir()
        configuration = self.work / "containers.conf"
        self.networks = self.work / "networks"
        configuration.write_text(PODMAN_CONFIGURATION.format(
            networks=self.networks, temporary=self.work / "temporary"))
        self.environment = {**os.environ, "CONTAINERS_CONF": str(configuration)}
        self.prefix = [
            "podman", "--root", str(self.work / "root"), "--runroot", str(self.work / "run"),
            "--storage-driver", "overlay",
        ]

    def load(self, file):
        """Loads an image from a file, and returns its digest."""
        said = self.ask("load", "--quiet", "--input", str(file)).strip()
        return self.ask("image", "inspect", "--format", "{{.Id}}", said.split(": ")[-1]).strip()

    def run(self, *arguments, timeout=60):
        """Runs the engine with these arguments."""
        return subprocess.run(
            [*self.prefix, *arguments], env=self.environment, text=True, timeout=timeout,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )

    def ask(self, *arguments, timeout=60):
        """The output of a command that must succeed."""
        done = self.run(*arguments, timeout=timeout)
        if done.returncode != 0:
            command = " ".join(arguments)[:200]
            raise Failed(f"{self.name} {command}: {done.returncode}: {done.stdout.strip()[-900:]}")
        return done.stdout

    @contextlib.contextmanager
    def played(self, manifest, options=("--network=none",)):
        """Runs the Pods of a manifest while the block runs."""
        said = ""
        try:
            said = self.ask("kube", "play", *options, str(manifest))
            yield
        finally:
            self.run("kube", "down", str(manifest))
            for identity in re.findall(r"^[0-9a-f]{64}$", said, re.MULTILINE):
                remove_groups(identity)

    def container(self, *arguments, rights=LEAST_RIGHTS, **options):
        """Runs a container with the least rights to its end, and returns its output."""
        return self.ask("run", "--rm", *self.unwatched(), *rights, *arguments, **options)

    @contextlib.contextmanager
    def started(self, name, words, *arguments, rights=LEAST_RIGHTS):
        """Runs a container with the least rights while the block runs, from when it has printed
        these words on. However the block ends, the name is free for the next case."""
        try:
            self.ask("run", "--detach", f"--name={name}", *self.unwatched(), *rights, *arguments)
            self.wait_for(name, words)
            yield
        finally:
            self.remove(name)

    def remove(self, name):
        """Ends a container and removes it."""
        self.run("rm", "--force", "--time", "0", name)

    @contextlib.contextmanager
    def mounted(self, image):
        """Gives the folder with an image's files while the block runs."""
        root = Path(self.ask("image", "mount", image).strip())
        try:
            yield root
        finally:
            self.run("image", "umount", image)

    def compose(self, files, *arguments):
        """Runs docker-compose or podman-compose with the services of these files, also those of the
        profile "monitoring"."""
        chosen = [word for file in files for word in ("-f", str(file))]
        command = [*self.compose_command(), "-p", "uroce", *chosen, "--profile", "monitoring",
                   *arguments]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True,
                              timeout=90)
        if done.returncode != 0:
            raise Failed(f"{command[0]} {arguments[0]}: {(done.stdout + done.stderr)[-900:]}")

    def compose_command(self):
        """podman-compose of PyPI, and a program by which it finds this storage. Debian 12's gives a
        container two networks if its service has none."""
        program = self.work / "podman"
        program.write_text(f'#!/bin/sh\nexec {shlex.join(self.prefix)} "$@"\n')
        program.chmod(0o755)
        return [str(self.composer), "--podman-path", str(program)]

    def unwatched(self):
        """Options against health checks by systemd, which may not be there."""
        return ("--no-healthcheck",)

    def logs(self, name):
        """What a container has printed."""
        return self.run("logs", name).stdout

    def wait_for(self, name, words, seconds=30):
        """Waits until a container has printed these words."""
        end = time.monotonic() + seconds
        while words not in (logs := self.logs(name)):
            if time.monotonic() > end:
                raise Failed(f"{name} has not printed {words!r} in {seconds} s, but: {logs[-900:]}")
            time.sleep(0.1)

    def wait_until(self, name, template, value, seconds=30):
        """Waits until a field of a container has this value."""
        end = time.monotonic() + seconds
        while (found := self.inspect(name, template)) != value:
            if time.monotonic() > end:
                raise Failed(f"{template} of {name} is {found}, not {value}, after {seconds} s")
            time.sleep(0.2)

    def main_process(self, name):
        """The number of a container's first process on this machine."""
        process = int(self.inspect(name, "{{.State.Pid}}"))
        if process <= 1:
            raise Failed(f"{name} does not run")
        return process

    def inspect(self, name, template):
        """A field of a container's state or configuration."""
        return self.ask("inspect", "--format", template, name).strip()

    def end(self):
        """Ends all containers."""
        self.run("pod", "rm", "--all", "--force", "--time", "0")
        self.run("rm", "--all", "--force", "--time", "0")

    def close(self):
        """Removes the storage of containers that have ended."""
        self.run("rmi", "--all", "--force")
        subprocess.run(["umount", "--lazy", str(self.work / "root/overlay")], capture_output=True)
        shutil.rmtree(self.work, ignore_errors=True)


def remove_groups(identity):
    """Removes the control groups of a Pod that has ended: of those of version 1 podman leaves some,
    with nothing in them."""
    for group in GROUPS.glob(f"*/libpod_parent/{identity}"):
        for folder in [*sorted(group.rglob("*/"), reverse=True), group]:
            with contextlib.suppress(OSError):
                folder.rmdir()


class Buildah:
    """buildah's storage, for an image that deploy/container/build loads."""

    def __init__(self, work):
        self.work = work / "buildah"
        self.work.mkdir()
        configuration = self.work / "storage.conf"
        configuration.write_text(f'[storage]\ndriver = "overlay"\ngraphroot = "{self.work}/root"\n'
                                 f'runroot = "{self.work}/run"\n')
        self.environment = {**os.environ, "CONTAINERS_STORAGE_CONF": str(configuration)}

    def digests(self):
        """The digests of all images."""
        command = ["buildah", "images", "--no-trunc", "--quiet"]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        return done.stdout.replace("sha256:", "").split()

    def close(self):
        """Removes the storage."""
        subprocess.run(["umount", "--lazy", str(self.work / "root/overlay")], capture_output=True)
        shutil.rmtree(self.work, ignore_errors=True)


class Docker(Podman):
    """Docker, with a daemon of its own while this lives."""

    name = "docker"

    def __init__(self, work):
        self.work = work / "docker"
        self.work.mkdir()
        host = f"unix://{self.work}/docker.sock"
        self.prefix = ["docker"]
        self.environment = {**os.environ, "DOCKER_HOST": host}
        self.log = (self.work / "log").open("w")
        self.daemon = subprocess.Popen(
            # However this program ends, the daemon ends with it, and with that its containers.
            ["setpriv", "--pdeathsig", "TERM", "dockerd", "--host", host,
             "--data-root", str(self.work / "data"), "--exec-root",
             str(self.work / "exec"), "--pidfile", str(self.work / "pid"), "--iptables=false",
             "--ip6tables=false", "--bridge=none"],
            stdout=self.log, stderr=subprocess.STDOUT,
        )
        end = time.monotonic() + 30
        while self.run("version").returncode != 0:
            if self.daemon.poll() is not None or time.monotonic() > end:
                last = (self.work / "log").read_text()[-600:]
                self.close()
                raise Failed(f"dockerd does not start: {last}")
            time.sleep(0.2)

    def load(self, file):
        """Loads an image from a file."""
        self.ask("load", "--quiet", "--input", str(file))

    def compose_command(self):
        """docker-compose."""
        return ["docker-compose"]

    def close(self):
        """Ends the daemon and what it runs."""
        for name in self.run("ps", "--all", "--quiet").stdout.split():
            self.run("rm", "--force", name)
        self.daemon.terminate()
        try:
            self.daemon.wait(30)
        except subprocess.TimeoutExpired:
            self.daemon.kill()
            self.daemon.wait()
        self.log.close()
        shutil.rmtree(self.work, ignore_errors=True)
