"""Images that know nothing of uroce: Debian's perftest and rdmacm-utils, Debian's Open MPI, and
Mooncake's wheel with Debian's Python, as they are shipped."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "image"))

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "env"))

import archive  # noqa: E402
import packages  # noqa: E402
import pypi  # noqa: E402
from failure import BuildFailure  # noqa: E402, F401

TAG = "localhost/application:latest"
PROGRAMS = ("perftest", "rdmacm-utils", "ibverbs-utils")
MPI_TAG = "localhost/mpi:latest"
MPI_PROGRAMS = ("openmpi-bin", "dash", "coreutils")
ENGINES = Path(__file__).resolve().parents[2] / "lab/engines"
MPI_CHECK = ENGINES / "mpi_check.c"
MOONCAKE_TAG = "localhost/mooncake:latest"
MOONCAKE = ("mooncake-transfer-engine-non-cuda==0.3.13.post1",)
MOONCAKE_NEEDS = ("python3", "libcurl4", "libibverbs1", "libnuma1", "libstdc++6", "libgcc-s1")


def build(file, cache, tag=TAG, programs=PROGRAMS, finish=None):
    """Makes an image from what apt would install on an empty machine. `finish` is called with its
    root. Returns the file."""
    with tempfile.TemporaryDirectory(prefix="uroce-application-") as scratch:
        root = Path(scratch) / "root"
        root.mkdir()
        for name in packages.fetch(cache, list(programs)):
            subprocess.run(["dpkg-deb", "-x", str(cache / "debs" / name), str(root)], check=True)
        (root / "tmp").mkdir(exist_ok=True)
        (root / "tmp").chmod(0o1777)
        if finish:
            finish(root)
        archive.write(file, root, tag, 0, {})
    return file


def build_mpi(file, cache):
    """Makes the image of an MPI program: Open MPI, a shell, and mpi_check of the laboratory, which
    verifies every byte."""
    def finish(root):
        packages.run(["mpicc.openmpi", "-O2", "-o", str(root / "usr/bin/mpi_check"),
                      str(MPI_CHECK)])
        # As Debian merges it: the image's PATH is /usr/bin.
        for path in (root / "bin").iterdir():
            path.rename(root / "usr/bin" / path.name)
        (root / "bin").rmdir()
        (root / "bin").symlink_to("usr/bin")
        # mpirun looks its user up.
        (root / "etc").mkdir(exist_ok=True)
        (root / "etc/passwd").write_text("nobody:x:65534:65534::/:/bin/sh\n")
    return build(file, cache, MPI_TAG, MPI_PROGRAMS, finish)


def build_mooncake(file, cache):
    """Makes the image of Mooncake's transfer engine, with the laboratory's program, which verifies
    every byte. Raises pypi.Unavailable."""
    made = pypi.make(cache, "mooncake", MOONCAKE, ["--no-deps"])
    [installed] = made.glob("lib/python3*/site-packages")

    def finish(root):
        for folder in installed.glob("mooncake*"):
            shutil.copytree(folder, root / "usr/lib/python3/dist-packages" / folder.name)
        shutil.copy(ENGINES / "mooncake_nodes.py", root / "usr/share/mooncake_nodes.py")
    return build(file, cache, MOONCAKE_TAG, MOONCAKE_NEEDS, finish)


def of_files(file, tag, contents):
    """Makes an image of a few files, given by path, and nothing else."""
    with tempfile.TemporaryDirectory(prefix="uroce-application-") as scratch:
        root = Path(scratch) / "root"
        for path, content in contents.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(content)
        archive.write(file, root, tag, 0, {})
