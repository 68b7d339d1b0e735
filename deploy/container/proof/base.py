"""Debian 12 with systemd, made with mmdebstrap: what a registry would give."""

import os
import subprocess
from pathlib import Path

from engine import Failed

IMAGE = "localhost/debian:latest"
PACKAGES = "python3,binutils,systemd"
"""What the Containerfile asks of its first image, and of the machine with services."""
SOURCES = Path("/etc/apt")
SECONDS_MAX = 600


class Debian:
    """The file system, made beside the first cases unless the cache has it, and its image."""

    def __init__(self, cache, work):
        self.file = cache / "debian-12.tar"
        # Two sessions at once do not write to one file.
        self.partial = cache / f"debian-12.{os.getpid()}.tar"
        self.log = work / "mmdebstrap.log"
        self.process = None
        self.is_loaded = False

    def begin(self):
        """Begins to make the file, unless it is there."""
        if self.process or self.file.exists():
            return
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                # However this program ends, mmdebstrap ends with it, and removes what it has made.
                ["setpriv", "--pdeathsig", "TERM", "mmdebstrap", "--mode=root", "--variant=apt",
                 f"--include={PACKAGES}", "bookworm", str(self.partial), *sources()],
                stdout=log, stderr=subprocess.STDOUT,
            )

    def made(self):
        """The file, once it is complete. Raises Failed."""
        self.begin()
        if self.process:
            try:
                status = self.process.wait(SECONDS_MAX)
            except subprocess.TimeoutExpired:
                raise Failed(f"mmdebstrap has not ended in {SECONDS_MAX} s")
            if status != 0:
                raise Failed(f"mmdebstrap: {self.log.read_text().strip()[-600:]}")
            self.partial.rename(self.file)
            self.process = None
        return self.file

    def image(self, podman):
        """The name of the image, which podman has from the first call on. Raises Failed."""
        if not self.is_loaded:
            podman.ask("import", "--quiet", str(self.made()), IMAGE, timeout=300)
            self.is_loaded = True
        return IMAGE

    def close(self):
        """Ends what still runs."""
        if self.process:
            self.process.terminate()
            self.process.wait(60)
            self.partial.unlink(missing_ok=True)


def sources():
    """The files in which this machine names its sources of packages: mmdebstrap takes the same."""
    files = [SOURCES / "sources.list", *sorted(SOURCES.glob("sources.list.d/*.list")),
             *sorted(SOURCES.glob("sources.list.d/*.sources"))]
    return [str(file) for file in files if file.exists() and names_packages(file.read_text())]


def names_packages(text):
    """Tells whether a file of apt's names a source of packages, in either of its two formats."""
    return any(line.startswith(("deb ", "deb\t", "deb[", "Types:")) for line in text.splitlines())
