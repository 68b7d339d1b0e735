"""Linux as a program: Debian's kernel source, built for user-mode Linux with Soft-RoCE in it.

The program is built once for each version of the source package and each configuration, and kept.
Source and objects are removed once it is built. A build that was interrupted goes on where it was.

Not here: starting it (guest.py).
"""

import fcntl
import hashlib
import os
import re
import shutil
from pathlib import Path

from report.failure import LabFailure
from vm import image

from . import bounded

PACKAGE = "linux-source-6.1"
ARCHIVE = Path(f"/usr/src/{PACKAGE}.tar.xz")
CONFIG = Path(__file__).resolve().parent / "config"
# A third of the source, of which nothing is compiled.
NOT_COMPILED = "*/drivers/gpu/*.[ch]"
# Bytes of source and objects together, with a reserve.
SPACE = 3_000_000_000
UNPACK_SECONDS = 600
CONFIGURE_SECONDS = 300
COMPILE_SECONDS = 3600


class Kernel:
    """A built kernel, as files in its folder."""

    def __init__(self, folder):
        self.folder = folder
        self.program = folder / "linux"

    @property
    def version(self):
        """Version of the package that the kernel was built from."""
        return (self.folder / "version").read_text().strip()


def find(target):
    """The kernel that was built last, or None. Needs no package."""
    finished = sorted(target.glob("kernel-*/linux"), key=lambda path: path.stat().st_mtime)
    wanted = [path.parent for path in finished if path.parent.name.endswith(config_hash())]
    return Kernel(wanted[-1]) if wanted else None


def build(target, say):
    """The kernel of the installed source package, built if the target folder does not have it.
    Raises LabFailure."""
    target.mkdir(parents=True, exist_ok=True)
    with open(target / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        version = image.run(["dpkg-query", "-W", "-f=${Version}", PACKAGE]).strip()
        name = f"{version}-{config_hash()}"
        kernel = Kernel(target / f"kernel-{name}")
        if not kernel.folder.exists():
            source, work = target / f"source-{version}", target / f"building-{name}"
            remove_others(target, source, work)
            work.mkdir(exist_ok=True)
            make(source, work, kernel, version, say)
            remove_others(target, kernel.folder)
        return kernel


def config_hash():
    """Eight digits that change with the options."""
    return hashlib.sha256(CONFIG.read_bytes()).hexdigest()[:8]


def remove_others(target, *kept):
    """Removes all kernels, sources and unfinished builds but some."""
    for pattern in ("kernel-*", "source-*", "building-*"):
        for path in target.glob(pattern):
            if path not in kept:
                shutil.rmtree(path)


def make(source, work, kernel, version, say):
    """Unpacks, configures and compiles in a folder. The finished kernel gets its name at once."""
    objects, log = work / "objects", work / "log"
    if not source.exists():
        check_space(work)
        say(f"unpacking {ARCHIVE}")
        unpack(source, log)
    objects.mkdir(exist_ok=True)
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("MAKE", "KBUILD", "KCONFIG"))}
    environment |= {"LC_ALL": "C", "KBUILD_BUILD_USER": "uroce", "KBUILD_BUILD_HOST": "uroce"}
    command = ["nice", "-n", "10", "make", "-C", source, "ARCH=um", f"O={objects}"]
    say("configuring the kernel")
    bounded.run([*command, "defconfig"], CONFIGURE_SECONDS, log, "make defconfig", environment)
    with open(objects / ".config", "a") as config:
        config.write(CONFIG.read_text())
    bounded.run([*command, "olddefconfig"], CONFIGURE_SECONDS, log, "make olddefconfig",
                environment)
    check(CONFIG.read_text(), (objects / ".config").read_text())
    say(f"compiling Linux {version} as user-mode Linux: some minutes, this once")
    bounded.run([*command, f"-j{os.cpu_count()}", "linux"], COMPILE_SECONDS, log,
                "compiling the kernel", environment)
    done = work / "done"
    shutil.rmtree(done, ignore_errors=True)
    done.mkdir()
    image.run(["strip", "-o", done / "linux", objects / "linux"])
    shutil.copy(objects / ".config", done / "config")
    (done / "version").write_text(version + "\n")
    done.rename(kernel.folder)


def check_space(folder):
    """Raises LabFailure if the build would not fit."""
    free = shutil.disk_usage(folder).free
    if free < SPACE:
        raise LabFailure(f"building the kernel needs {SPACE / 1e9:.0f} GB in {folder}, which has "
                         f"{free / 1e9:.1f}: free some, or name a folder on another disk in "
                         f"CARGO_TARGET_DIR")


def unpack(source, log):
    """Unpacks the archive of the package. The folder gets its name when it is complete."""
    if not ARCHIVE.exists():
        raise LabFailure(f"{PACKAGE} is installed without {ARCHIVE}; "
                         f"apt-get install --reinstall {PACKAGE}")
    partial = source.with_name(f"{source.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    bounded.run(["tar", "--extract", "--xz", "--file", ARCHIVE, "--directory", partial,
                 "--strip-components=1", "--no-same-owner", f"--exclude={NOT_COMPILED}"],
                UNPACK_SECONDS, log, "unpacking")
    partial.rename(source)


def check(wanted, got):
    """Compares a configuration with the options that were asked for. Raises LabFailure with those
    that the kernel's own rules have changed."""
    options = settings(got)
    lost = [f"{name}={value} (it has {options.get(name, 'n')})"
            for name, value in settings(wanted).items() if options.get(name, "n") != value]
    if lost:
        raise LabFailure(f"this kernel source cannot have {', '.join(lost)}: something that they "
                         f"depend on has changed; see the options' Kconfig and {CONFIG}")


def settings(text):
    """The options of a configuration with their values. One that is not set is `n`."""
    found = dict(re.findall(r"^(CONFIG_\w+)=(.*)$", text, re.MULTILINE))
    unset = re.findall(r"^# (CONFIG_\w+) is not set$", text, re.MULTILINE)
    return dict.fromkeys(unset, "n") | found
