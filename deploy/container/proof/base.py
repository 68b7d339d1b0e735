"""An image of Debian 12 with systemd, made with mmdebstrap: what a registry would give."""

import subprocess

from engine import Failed

PACKAGES = "python3,binutils,systemd"
"""What the Containerfile asks of its first image, and of the machine with services."""


def make(cache):
    """Makes the file system, unless the cache has it. Returns the file."""
    file = cache / "debian-12.tar"
    if not file.exists():
        cache.mkdir(parents=True, exist_ok=True)
        made = cache / "debian-12.partial.tar"
        done = subprocess.run(
            ["mmdebstrap", "--mode=root", "--variant=apt", f"--include={PACKAGES}", "bookworm",
             str(made)], capture_output=True, text=True, timeout=600,
        )
        if done.returncode != 0:
            raise Failed(f"mmdebstrap: {done.stderr.strip()[-600:]}")
        made.rename(file)
    return file
