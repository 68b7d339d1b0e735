"""The guest's root folder for deploy/nics: the laboratory's, with uroce and DPDK added.

Added are `init`, this machine's programs with their libraries, and DPDK's drivers.
"""

import re
import shutil
import subprocess
from pathlib import Path

from report.failure import LabFailure
from vm import image

HERE = Path(__file__).resolve().parent
# Drivers that a guest may load. Each is copied with the libraries that it needs.
DRIVERS = ("net_e1000", "net_vmxnet3", "net_virtio", "net_ring", "bus_pci", "bus_vdev",
           "mempool_ring")


class Layered:
    """An image with an initramfs of two archives: the laboratory's, and one with the additions."""

    def __init__(self, base, programs, folder):
        self.base = base
        self.kernel = base.kernel
        self.release = base.release
        self.initramfs = folder / "initramfs.cpio"
        root = folder / "root"
        fill(root, programs)
        image.pack_over(base, root, self.initramfs)
        shutil.rmtree(root)


def fill(root, programs):
    """Fills a folder with the programs, stripped of their symbols, and the libraries that they
    load."""
    (root / "bin").mkdir(parents=True)
    libraries = root / image.MULTIARCH
    libraries.mkdir(parents=True)
    shutil.copy(HERE / "init", root / "init")
    objects = drivers()
    target = root / objects[0].parent.relative_to("/")
    target.mkdir(parents=True)
    for driver in objects:
        # A driver is also a library that others need. With two copies it would register twice.
        library = driver.name.rpartition(".")[0]
        shutil.copy(driver, libraries / library)
        (target / driver.name).symlink_to(f"/{image.MULTIARCH}/{library}")
    for program in programs:
        image.run(["strip", "-o", root / "bin" / Path(program).name, program])
    for item in [*programs, *objects]:
        copy_libraries(item, root, libraries)


def drivers():
    """Returns the files of the drivers in the folder where EAL looks for them. Their names have the
    whole version, as EAL requires."""
    libdir = image.run(["pkg-config", "--variable=libdir", "libdpdk"]).strip()
    found = [path for name in DRIVERS
             for path in Path(libdir).glob(f"dpdk/pmds-*/librte_{name}.so.*")
             if path.name.count(".") == 3]
    if len(found) != len(DRIVERS):
        raise LabFailure(f"DPDK's drivers are not all in {libdir}/dpdk: {', '.join(DRIVERS)}")
    return found


def copy_libraries(item, root, libraries):
    """Copies the libraries that this machine's loader finds for a program or library."""
    listing = subprocess.run(["ldd", item], capture_output=True, text=True).stdout
    if "not found" in listing:
        raise LabFailure(f"{item} needs a library that this machine lacks:\n{listing}")
    for path in re.findall(r"(/\S+) \(0x", listing):
        target = root / "lib64" if "ld-linux" in path else libraries
        target.mkdir(exist_ok=True)
        if not (target / Path(path).name).exists():
            shutil.copy(path, target / Path(path).name)
