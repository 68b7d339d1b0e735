"""deploy/container/build: makes the image from Debian's packages and this checkout.

  packages   Debian's packages: resolved, downloaded, unpacked
  tree       the image's files
  archive    the image as a file
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import archive
import packages
import tree
from failure import BuildFailure

REPOSITORY = Path(__file__).resolve().parents[3]
ENGINES = {
    "podman": ["podman", "load", "--quiet", "--input"],
    "docker": ["docker", "load", "--quiet", "--input"],
    "buildah": ["buildah", "pull", "--quiet"],
}
SIZE_MAX = 100_000_000
"""Most bytes of the image's files."""
BUILT = ("uroce-verbs-abi", "uroce-shim", "uroce-cli", "uroce-bench")


def parse():
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="deploy/container/build",
        description="Makes uroce's image from Debian's packages and this checkout, without a "
        "registry, and loads it into an engine. SOURCE_DATE_EPOCH sets the time of its files; "
        "without it, that of the last commit is taken. The same packages and programs give the "
        "same digest.",
    )
    parser.add_argument("--engine", choices=sorted(ENGINES), help="engine to load the image into")
    parser.add_argument("--tag", default="localhost/uroce:latest", help="default: %(default)s")
    parser.add_argument("--binaries", type=Path, metavar="DIR",
                        help="built programs and libraries, instead of a release build: "
                        "target/release, or target/debug")
    parser.add_argument("--output", type=Path, metavar="FILE",
                        default=REPOSITORY / "target/container/uroce.tar",
                        help="the image, in the format of `docker save`; default: %(default)s")
    parser.add_argument("--tree", type=Path, metavar="DIR",
                        help="make a directory of the image's files there, as the Containerfile "
                        "wants, and no image")
    parser.add_argument("--cache", type=Path, metavar="DIR",
                        default=REPOSITORY / "target/container/cache",
                        help="downloaded packages; default: %(default)s")
    return parser.parse_args()


def main():
    """Builds the image. Returns the exit status."""
    arguments = parse()
    try:
        if arguments.engine and not shutil.which(arguments.engine):
            raise BuildFailure(f"there is no {arguments.engine} here: install it, or leave "
                               "--engine out and load the file elsewhere")
        build(arguments)
    except BuildFailure as failure:
        print(f"build: {failure}", file=sys.stderr)
        return 1
    return 0


def build(arguments):
    """Builds the image and loads it."""
    binaries = arguments.binaries or compile()
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or git("log", "-1", "--format=%ct") or 0)
    downloaded = packages.download(arguments.cache.resolve())
    if arguments.tree:
        arguments.tree.mkdir(parents=True)
        make(arguments.tree, downloaded, binaries, epoch)
        return
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="uroce-image-") as scratch:
        root = Path(scratch) / "root"
        root.mkdir()
        size = make(root, downloaded, binaries, epoch)
        digest = archive.write(arguments.output, root, arguments.tag, epoch, labels(downloaded))
    print(f"{arguments.output}: {arguments.tag}, {size / 1e6:.1f} MB, {digest}")
    if arguments.engine:
        load(arguments)


def make(root, downloaded, binaries, epoch):
    """Makes the files of the image, and returns their bytes."""
    tree.make(root, downloaded, binaries, epoch)
    size = tree.size(root)
    if size > SIZE_MAX:
        raise BuildFailure(f"{size} bytes are more than {SIZE_MAX}")
    return size


def compile():
    """Builds the programs, and returns the directory with them."""
    cargo(["build", "--release", "--quiet", *(f"--package={name}" for name in BUILT)])
    target = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
    return target / "release"


def cargo(arguments):
    """Runs cargo in the checkout."""
    done = subprocess.run(["cargo", *arguments], cwd=REPOSITORY)
    if done.returncode != 0:
        raise BuildFailure(f"cargo {arguments[0]} failed")


def labels(downloaded):
    """The labels that registries and scanners read."""
    dpdk = next(package for package in downloaded if package.name.startswith("librte-eal"))
    manifest = (REPOSITORY / "Cargo.toml").read_text()
    version = manifest.split("[workspace.package]")[1].split('version = "')[1].split('"')[0]
    found = {
        "org.opencontainers.image.title": "uroce",
        "org.opencontainers.image.description": "User-space RoCEv2 on DPDK: programs, and "
        "libraries for other images (install DIR)",
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
        # Without the Debian revision, which the packages' list has: the Containerfile has it, too.
        "io.uroce.dpdk": ".".join(dpdk.version.split(".")[:2]),
        "io.uroce.sbom": "/var/lib/dpkg/status.d",
    }
    if revision := git("rev-parse", "HEAD"):
        found["org.opencontainers.image.revision"] = revision
    return found


def git(*arguments):
    """What git prints, or nothing if this is no checkout of git."""
    try:
        done = subprocess.run(["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def load(arguments):
    """Loads the image into the engine."""
    file = str(arguments.output)
    source = f"docker-archive:{file}" if arguments.engine == "buildah" else file
    done = subprocess.run([*ENGINES[arguments.engine], source], stdout=subprocess.DEVNULL)
    if done.returncode != 0:
        raise BuildFailure(f"{arguments.engine} has not loaded {file}")


if __name__ == "__main__":
    sys.exit(main())
