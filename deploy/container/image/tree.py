"""The image's files: Debian's packages, the programs, and the tree that `install` copies.

  /usr/bin/                    uroce, uroce-perf, install
  /etc/uroce/                  configurations, from ../etc
  /usr/lib/x86_64-linux-gnu/   Debian's libraries, DPDK's drivers in dpdk/pmds-*
  /usr/lib/uroce/uroce-run     what `install` copies; /usr/bin/uroce-run is a link to it. It starts
                               bin/uroce-run if the image's C library suits the libraries
  /usr/lib/uroce/lib/          libibverbs.so.1, librdmacm.so.1, the path shim
  /usr/lib/uroce/lib/dpdk/     DPDK and what it needs except the C library; its drivers in pmds/
"""

import os
import re
import shutil
import stat
from pathlib import Path

import packages
from failure import BuildFailure

CONFIGURATIONS = Path(__file__).resolve().parents[1] / "etc"
LIBRARIES = Path("usr/lib/x86_64-linux-gnu")
INJECTED = Path("usr/lib/uroce")
LAUNCHER = "uroce-launch"
"""Name of the launcher among given programs."""
USER = 65534
"""User and group of the image's processes: Debian's nobody and nogroup."""
C_LIBRARY = re.compile(
    r"(?:ld-linux-x86-64|lib(?:c|m|dl|rt|pthread|resolv|util|anl|mvec|gcc_s|BrokenLocale|crypt"
    r"|nsl|thread_db|c_malloc_debug|memusage|pcprofile|nss_\w+))\.so"
)
"""Libraries that every image with glibc has, in the release that its programs want."""
NEWEST_NODE = (2, 34)
"""The glibc that injected libraries may need: `OLDEST` of uroce-run."""


def make(root, downloaded, binaries, epoch):
    """Makes the tree below `root`, an empty directory."""
    for package in downloaded:
        packages.unpack(package, root)
    for link in ("lib", "lib64", "bin"):
        (root / "usr" / link).mkdir(parents=True, exist_ok=True)
        (root / link).symlink_to(f"usr/{link}")
    (root / "etc").mkdir()
    (root / "etc/os-release").symlink_to("../usr/lib/os-release")
    write(root, "etc/passwd", f"root:x:0:0::/:\nnobody:x:{USER}:{USER}::/:\n")
    write(root, "etc/group", f"root:x:0:\nnogroup:x:{USER}:\n")
    write(root, "etc/nsswitch.conf", "hosts: files dns\n")
    for directory in ("tmp", "run/uroce"):
        # Sticky: a volume that is new takes the mode of this directory over.
        (root / directory).mkdir(parents=True)
        (root / directory).chmod(0o1777)
    for directory in ("dev", "proc", "sys"):
        (root / directory).mkdir()
    shutil.copytree(CONFIGURATIONS, root / "etc/uroce")
    programs(root, binaries)
    injected(root, binaries)
    for path in [root, *root.rglob("*")]:
        settle(path, epoch)


def write(root, name, text):
    """Writes a file of the image."""
    (root / name).write_text(text)


def programs(root, binaries):
    """Puts the programs into /usr/bin."""
    bin = root / "usr/bin"
    for built, name in (("uroce", "uroce"), ("uroce-perf", "uroce-perf"),
                        ("uroce-install", "install")):
        put(binaries / built, bin / name)
    (bin / "uroce-run").symlink_to("../lib/uroce/uroce-run")


def injected(root, binaries):
    """Makes the tree that `install` copies; DPDK's files are hard links."""
    lib = root / INJECTED / "lib"
    dpdk = lib / "dpdk"
    (dpdk / "pmds").mkdir(parents=True)
    launcher(root / INJECTED / "uroce-run", binaries / LAUNCHER)
    put(binaries / "uroce-run", root / INJECTED / "bin/uroce-run")
    # Where uroce-run expects its libraries, seen from bin.
    (lib / "uroce").symlink_to(".")
    put(binaries / "liburoce_verbs_abi.so", lib / "libibverbs.so.1")
    put(binaries / "liburoce_shim.so", lib / "liburoce_shim.so")
    (lib / "librdmacm.so.1").symlink_to("libibverbs.so.1")
    for path in sorted((root / LIBRARIES).glob("*.so.*")):
        if not C_LIBRARY.match(path.name) and re.search(r"\.so\.\d+$", path.name):
            os.link(path.resolve(), dpdk / path.name)
    for path in (root / LIBRARIES).glob("dpdk/pmds-*/*.so.*"):
        # Links, so that a driver that another one needs is not loaded twice.
        if (dpdk / path.name).exists():
            (dpdk / "pmds" / path.name).symlink_to(f"../{path.name}")
    check_imports([*lib.glob("*.so*"), *dpdk.rglob("*.so*")])


def launcher(target, built):
    """Makes the program that starts in any image, unless it has been built already."""
    if built.exists():
        shutil.copyfile(built, target)
        target.chmod(0o755)
        return
    source = Path(__file__).resolve().parents[1] / "launch.rs"
    packages.run([
        "rustc", "--edition=2024", "-O", "-C", "target-feature=+crt-static", "-C", "strip=symbols",
        "-o", str(target), str(source),
    ])


def put(source, target):
    """Copies a program or library without its debugging information."""
    if not source.exists():
        raise BuildFailure(f"{source} is missing: build it, or give --binaries DIR")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    packages.run(["strip", "--strip-debug", str(target)])
    target.chmod(0o755)


def check_imports(libraries):
    """Raises if a library imports symbols of a newer glibc than uroce-run tells users."""
    for library in libraries:
        symbols = packages.run(["objdump", "-T", str(library)])
        nodes = re.findall(r"\(GLIBC_(\d+)\.(\d+)[.\d]*\)", symbols)
        newest = max(((int(major), int(minor)) for major, minor in nodes), default=(0, 0))
        if newest > NEWEST_NODE:
            needs = ".".join(map(str, newest))
            raise BuildFailure(f"{library.name} needs glibc {needs}; uroce-run says 2.34")


def settle(path, epoch):
    """Gives a file its time and its mode. Modes do not follow the umask, neither this process's nor
    that with which the checkout was made, and nothing is setuid."""
    found = path.lstat().st_mode
    if not stat.S_ISLNK(found):
        is_open = stat.S_ISDIR(found) or found & 0o111
        path.chmod(0o1777 if found & stat.S_ISVTX else 0o755 if is_open else 0o644)
    os.utime(path, (epoch, epoch), follow_symlinks=False)


def size(root):
    """Bytes of the files; hard links count once."""
    seen = {}
    for path in root.rglob("*"):
        status = path.lstat()
        seen[status.st_ino] = status.st_size if path.is_file() and not path.is_symlink() else 0
    return sum(seen.values())
