"""An image that knows nothing of uroce: Debian's perftest and rdmacm-utils, as they are shipped."""

import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "image"))

import archive  # noqa: E402
import packages  # noqa: E402
from failure import BuildFailure  # noqa: E402, F401

TAG = "localhost/application:latest"
PROGRAMS = ("perftest", "rdmacm-utils", "ibverbs-utils")


def build(file, cache):
    """Makes the image from what apt would install on an empty machine. Returns the file."""
    with tempfile.TemporaryDirectory(prefix="uroce-application-") as scratch:
        root = Path(scratch) / "root"
        root.mkdir()
        for name in packages.fetch(cache, list(PROGRAMS)):
            subprocess.run(["dpkg-deb", "-x", str(cache / "debs" / name), str(root)], check=True)
        (root / "tmp").mkdir(exist_ok=True)
        (root / "tmp").chmod(0o1777)
        archive.write(file, root, TAG, 0, {})
    return file


def without_glibc(file):
    """Makes an image with the name of musl's loader and nothing else."""
    with tempfile.TemporaryDirectory(prefix="uroce-application-") as scratch:
        root = Path(scratch) / "root"
        (root / "lib").mkdir(parents=True)
        (root / "lib/ld-musl-x86_64.so.1").write_bytes(b"")
        archive.write(file, root, "localhost/musl:latest", 0, {})
