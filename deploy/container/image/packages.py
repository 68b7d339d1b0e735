"""Debian's packages of the image, resolved and downloaded with apt, and unpacked as files.

apt resolves the packages as on an empty machine, with this machine's sources. Nothing is installed,
no maintainer script runs, and root is not needed.
"""

import os
import re
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

from failure import BuildFailure

DRIVERS = (
    # Memory and buses.
    "mempool-ring", "bus-pci", "bus-vdev",
    # Ports without a NIC: rings of a process, memif, vhost and virtio-user, kernel interfaces.
    "net-ring", "net-null", "net-memif", "net-vhost", "net-virtio", "net-af-packet", "net-af-xdp",
    "net-tap",
    # NICs of clouds and their virtual functions: Intel's, Amazon's, VMware's.
    "net-iavf", "net-i40e", "net-ice", "net-ixgbe", "net-e1000-", "net-ena", "net-vmxnet3-",
)
"""DPDK's drivers in the image, as in the names of Debian's packages. mlx5 is not among them: it
needs rdma-core's libibverbs.so.1, which has the name of ours."""

LIBRARIES = ("libgcc-s1", "libc6")
"""What Rust programs need."""

IDENTITY = "base-files"
"""Has os-release, by which scanners tell Debian. Only that file is taken."""

KEPT = re.compile(
    r"(?:usr/)?lib/x86_64-linux-gnu/(?:dpdk/pmds-[^/]+/)?[^/]+\.so(?:\.[^/]+)?$"
    r"|(?:usr/)?lib64/ld-linux-x86-64\.so\.2$"
    r"|usr/share/doc/[^/]+/copyright$"
)
OS_RELEASE = re.compile(r"usr/lib/os-release$")


@dataclass(frozen=True)
class Package:
    """A downloaded package."""

    file: Path
    name: str
    version: str
    control: str
    """Its fields, as in dpkg's status."""


def abi():
    """The number at the end of the names of DPDK's packages, such as 23: of those that are
    installed, otherwise of those that apt has."""
    listed = run(["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n"]).splitlines()
    installed = [line.split()[0] for line in listed if line.endswith(" installed")]
    numbers = abis(installed) or abis(run(["apt-cache", "pkgnames", "librte-eal"]).split())
    if not numbers:
        raise BuildFailure("apt has no DPDK: apt-get update; images are made of Debian 12's")
    return max(numbers, key=int)


def abis(names):
    """The numbers of DPDK's packages among these names."""
    found = [re.fullmatch(r"librte-eal(\d+)", name) for name in names]
    return [match[1] for match in found if match]


def wanted():
    """Names of the packages, without those that they depend on."""
    number = abi()
    return [f"librte-{driver}{number}" for driver in DRIVERS] + [*LIBRARIES]


def download(cache):
    """Downloads what is not in the cache, and returns all packages in order of their names."""
    (cache / "debs/partial").mkdir(parents=True, exist_ok=True)
    (cache / "status").touch()
    files = fetch(cache, wanted())
    identity = [name for name in fetch(cache, [IDENTITY]) if name.startswith(f"{IDENTITY}_")]
    return [read(cache / "debs" / name) for name in sorted({*files, *identity})]


def fetch(cache, names):
    """Downloads packages and what they depend on. Returns the names of the files."""
    apt = [
        "apt-get", "-qq", "-y", "-o", f"Dir::State::status={cache}/status",
        "-o", f"Dir::Cache::archives={cache}/debs", "-o", "APT::Install-Recommends=false",
        # What apt makes of its lists, which takes seconds, is kept for the next call.
        "-o", f"Dir::Cache::srcpkgcache={cache}/source.bin",
        "-o", f"Dir::Cache::pkgcache={cache}/package.bin",
        "-o", "Debug::NoLocking=true", "-o", "APT::Sandbox::User=root",
        "-o", "APT::Keep-Downloaded-Packages=true",
    ]
    plan = run([*apt, "--simulate", "install", *names])
    planned = re.findall(r"^Inst (\S+) \((\S+) .*\[(\S+)\]\)", plan, re.MULTILINE)
    if not planned:
        raise BuildFailure(f"apt has no plan to install {' '.join(names)}")
    files = [f"{name}_{version.replace(':', '%3a')}_{architecture}.deb"
             for name, version, architecture in planned]
    # apt gives a file its name when it has checked it.
    if missing(cache, files):
        run([*apt, "--download-only", "install", *names])
        if still := missing(cache, files):
            raise BuildFailure(f"apt has not downloaded {still[0]}")
    return files


def missing(cache, files):
    """The packages that are not in the cache."""
    return [file for file in files if not (cache / "debs" / file).exists()]


def read(file):
    """The package in a file."""
    control = run(["dpkg-deb", "--field", str(file)])
    fields = dict(re.findall(r"^(\w[\w-]*): (.*)$", control, re.MULTILINE))
    return Package(file, fields["Package"], fields["Version"], control)


def unpack(package, root):
    """Puts the package's shared libraries and its licence below `root`, all in /usr."""
    pattern = OS_RELEASE if package.name == IDENTITY else KEPT
    with subprocess.Popen(
        ["dpkg-deb", "--fsys-tarfile", str(package.file)], stdout=subprocess.PIPE
    ) as process, tarfile.open(fileobj=process.stdout, mode="r|") as archive:
        for member in archive:
            name = os.path.normpath(member.name)
            if not pattern.match(name) or not (member.isfile() or member.issym()):
                continue
            name = name if name.startswith("usr/") else f"usr/{name}"
            target = root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if member.issym():
                target.symlink_to(in_usr(member.linkname))
            else:
                target.write_bytes(archive.extractfile(member).read())
                target.chmod(0o755 if member.mode & 0o111 else 0o644)
    # The format of images without dpkg, which scanners read.
    status = root / "var/lib/dpkg/status.d" / package.name
    status.parent.mkdir(parents=True, exist_ok=True)
    status.write_text(package.control)


def in_usr(target):
    """The target of a link, in /usr if it is in one of the directories that belong there."""
    return f"/usr{target}" if target.startswith(("/lib/", "/lib64/")) else target


def run(command):
    """The standard output of a command that must succeed."""
    environment = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
    except FileNotFoundError:
        raise BuildFailure(f"there is no {command[0]} here: images are made from Debian's packages")
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["without a message"])[-1]
        raise BuildFailure(f"{' '.join(command[:2])} failed: {last}; try apt-get update")
    return done.stdout
