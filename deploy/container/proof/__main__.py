"""deploy/container/test: builds the image and proves it under container engines.

  engine     podman and Docker, with storage of their own
  cases      what is proven of the image
  limits     what is proven of containers that lack something
  overlays   what is proven of the manifests
  speed      what containers cost, with --full
  monitoring metrics, read within the network of a container
  containerfile, services   what is proven of the Containerfile, and of services of systemd
  base       Debian 12 as an image
  tools      kubectl, helm and the schemas of Kubernetes

The cases run in two lanes beside each other, since most of them wait most of the time. Those of a
lane run in turn, and share names of containers.
"""

import argparse
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import application
import base
import cases
import containerfile
import limits
import overlays
import services
import speed
from engine import Failed, Podman, Skipped
from tools import Tools

REPOSITORY = Path(__file__).resolve().parents[3]
FAILURES = (Failed, application.BuildFailure, OSError, ValueError, subprocess.SubprocessError)
LANES = (
    (*cases.CASES, *limits.CASES, *overlays.CASES, *services.CASES),
    (*cases.BESIDE, *overlays.BESIDE, *containerfile.BESIDE, *services.BESIDE),
)
FULL = (*cases.FULL, *speed.CASES)
"""What takes long or needs a quiet machine: cases of --full."""


class Session:
    """The engines and files that the cases share. `manifests` is a copy to write to."""

    def __init__(self, work, arguments):
        self.work = work
        self.arguments = arguments
        self.cache = REPOSITORY / "target/container/cache"
        self.podman = Podman(work)
        self.made = {}
        self.debian = base.Debian(self.cache, work)
        self.manifests = shutil.copytree(cases.MANIFESTS, work / "kubernetes")
        self.background = ThreadPoolExecutor(1)
        self.has_ended = threading.Event()
        # Downloads while the image is built.
        self.coming = self.background.submit(Tools, self.cache)
        if not arguments.only:
            self.debian.begin()

    @property
    def tools(self):
        """kubectl, helm and the schemas. Raises Skipped if they cannot be had."""
        return self.coming.result()

    def prepare(self):
        """Has images of later cases made beside the next ones. Their packages are downloaded to
        where the builds have theirs, so this is not called beside a build."""
        self.application()
        with contextlib.suppress(Skipped):
            self.mpi()

    def application(self):
        """The file with the image of perftest."""
        return self.coming_image("application.tar", application.build)

    def mpi(self):
        """The file with the image of an MPI program. Raises Skipped without its compiler."""
        if not shutil.which("mpicc.openmpi"):
            raise Skipped("needs apt-get install openmpi-bin libopenmpi-dev")
        return self.coming_image("mpi.tar", application.build_mpi)

    def coming_image(self, name, build):
        """An image that is made in the background from the first call on."""
        if name not in self.made:
            self.made[name] = self.background.submit(build, self.work / name, self.cache)
        return self.made[name]

    def build(self, name, umask=0o022, options=(), environment=None):
        """Builds the image into a file, loads it, and returns its digest."""
        file = self.work / name
        command = [str(REPOSITORY / "deploy/container/build"), "--output", str(file), "--cache",
                   str(self.cache), *options]
        if self.arguments.binaries:
            command += ["--binaries", str(self.arguments.binaries)]
        done = subprocess.run(command, capture_output=True, text=True, umask=umask,
                              env=environment)
        print(done.stderr + done.stdout, end="", flush=True)
        built = re.search(r"sha256:(\w{64})", done.stdout)
        if done.returncode != 0 or not built:
            raise Failed("the image could not be built")
        loaded = self.podman.load(file).removeprefix("sha256:")
        if loaded != built[1]:
            raise Failed(f"podman calls the image {loaded}, its digest is {built[1]}")
        return loaded

    def binaries(self):
        """The directory of the programs that the image has."""
        target = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
        return self.arguments.binaries or target / "release"

    def volume(self, name):
        """The option that mounts a directory, which containers share, at /run/uroce."""
        directory = self.work / name
        directory.mkdir(exist_ok=True)
        directory.chmod(0o1777)
        return f"--volume={directory}:/run/uroce"

    def private(self):
        """A directory to which only root can write."""
        directory = self.work / "private"
        directory.mkdir(exist_ok=True)
        return directory

    def until_listens(self, name, seconds=30):
        """Waits until a member has joined the local fabric of a volume."""
        socket = self.work / name / "uroce/fabric/1.sock"
        end = time.monotonic() + seconds
        while not socket.exists():
            if time.monotonic() > end:
                raise Failed(f"no member has joined in {seconds} s")
            time.sleep(0.1)
        # The program listens a moment after its device has opened.
        time.sleep(1)

    def end(self):
        """Ends what runs, so that a case that is under way fails instead of going on."""
        self.has_ended.set()
        self.debian.close()
        self.podman.end()

    def close(self):
        """Removes everything."""
        self.end()
        self.background.shutdown(cancel_futures=True)
        self.podman.close()


def parse():
    """The command line."""
    parser = argparse.ArgumentParser(prog="deploy/container/test", description="Builds the image "
                                     "and proves it under container engines, as root.")
    parser.add_argument("--binaries", type=Path, metavar="DIR",
                        help="built programs and libraries, instead of a release build")
    parser.add_argument("--only", default="", metavar="CASES",
                        help="names of cases, separated by commas")
    parser.add_argument("--full", action="store_true",
                        help="also what takes long or needs a quiet machine: "
                        f"{', '.join(case.__name__ for case in FULL)}")
    return parser.parse_args()


def main():
    """Returns the exit status: 0 all passed, 1 some failed, 2 they could not run."""
    arguments = parse()
    if os.geteuid() != 0 or not shutil.which("podman"):
        print("SKIP: containers: need root and podman")
        return 2
    only = [name for name in arguments.only.split(",") if name]
    rows = [cases.FIRST, *LANES, FULL if arguments.full else ()]
    if unknown := {*only} - {case.__name__ for row in rows for case in row}:
        print(f"no case has the name {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    first, *lanes, last = [[case for case in row if not only or case.__name__ in only]
                           for row in rows]
    # As after an interrupt at the keyboard: containers, daemons and files are removed.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    with tempfile.TemporaryDirectory(prefix="uroce-containers-") as work:
        # Containers of another user find the volumes in it.
        os.chmod(work, 0o755)
        session = Session(Path(work), arguments)
        try:
            failures = run(first, session)
            if not only:
                session.prepare()
            failures += beside(lanes, session)
            # Figures want a quiet machine.
            failures += run(last, session)
        finally:
            session.close()
    return 1 if failures else 0


def beside(lanes, session):
    """Runs the cases of several lanes beside each other, and returns how many have failed."""
    with ThreadPoolExecutor(len(lanes)) as pool:
        running = [pool.submit(run, lane, session) for lane in lanes]
        try:
            return sum(lane.result() for lane in running)
        except BaseException:
            session.end()
            raise


def run(lane, session):
    """Runs cases in turn until the session ends, and returns how many have failed."""
    return sum(not passes(case, session) for case in lane if not session.has_ended.is_set())


def passes(case, session):
    """Runs a case and prints its verdict."""
    begin = time.monotonic()
    try:
        case(session)
        verdict = "ok"
    except Skipped as reason:
        print(f"SKIP: containers: {case.__name__}: {reason}", flush=True)
        return True
    except FAILURES as failure:
        verdict = f"FAILED: {failure}"
    words = case.__doc__.split("\n")[0]
    print(f"{case.__name__}: {words} {verdict}, {time.monotonic() - begin:.1f} s", flush=True)
    return verdict == "ok"


if __name__ == "__main__":
    sys.exit(main())
