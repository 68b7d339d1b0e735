"""The guest's image: Debian's stock kernel and an initramfs made of Debian's packages.

Nothing is installed on this machine and nothing is committed. apt-get downloads the packages to a
cache, where they are unpacked side by side. Only the programs named here, the libraries that they
load and the modules that they need go into the initramfs. An image is named by a hash of its
inputs, so it is built again only when a package or a script has changed. The cache keeps one image
for each kernel of KERNELS.

Not here: booting it (guest.py).
"""

import fcntl
import hashlib
import lzma
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from report.failure import LabFailure, StaleLists

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Kernel:
    """A kernel that a guest can boot."""

    package: str
    """The package that depends on the newest of its kind."""
    places: bool
    """Whether its Soft-RoCE has ATOMIC WRITE and FLUSH, as of Linux 6.2. The image then has a
    program for them."""


# By the name in `--kernel`. Debian builds its kernels for clouds without Soft-RoCE.
STOCK = "stock"
KERNELS = {
    STOCK: Kernel("linux-image-amd64", places=False),
    "6.12": Kernel("linux-image-6.12-amd64", places=True),
}
PACKAGES = ["busybox-static", "ibverbs-providers", "ibverbs-utils", "iproute2", "perftest",
            "rdmacm-utils", "tcpdump"]
PROGRAMS = [
    "ip", "rdma", "tc", "tcpdump",
    "ibv_devices", "ibv_devinfo",
    "ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong",
    "ib_send_bw", "ib_write_bw", "ib_read_bw", "ib_atomic_bw",
    "ib_send_lat", "ib_write_lat", "ib_read_lat", "ib_atomic_lat",
    "rping", "ucmatose", "udaddy", "cmtime", "mckey", "rdma_client", "rdma_server",
    "rdma_xclient", "rdma_xserver",
]
# A guest loses packets with sch_prio, cls_u32 and sch_netem. CRC modules are found by name at run
# time, so no module names them as a dependency.
MODULES = ["virtio_pci", "virtio_net", "ib_uverbs", "rdma_rxe", "rdma_ucm",
           "sch_prio", "cls_u32", "sch_netem"]
# Give an emulated NIC to DPDK, behind an IOMMU or without one (deploy/nics).
MODULES += ["vfio_iommu_type1", "vfio_pci", "uio_pci_generic"]
MODULES_WHERE_BUILT = ["crc32_generic", "crc32c_generic"]
# A program for ATOMIC WRITE and FLUSH, which none of Debian's has.
PLACEMENT = HERE.parent / "dataplane/rxe_placement.c"
MULTIARCH = "lib/x86_64-linux-gnu"


class Image:
    """A kernel and its initramfs, as files in the cache."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.kernel = self.folder / "vmlinuz"
        self.initramfs = self.folder / "initramfs.cpio"

    @property
    def release(self):
        """The kernel's version, as Debian names it."""
        return (self.folder / "release").read_text().strip()


def build(say, kernel=STOCK):
    """The image of a kernel and the present packages, built if the cache does not have it. Raises
    LabFailure."""
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        packages = resolve(KERNELS[kernel])
        image = Image(cache / f"image-{kernel}-{fingerprint(packages)}")
        if not image.folder.exists():
            say(f"building the guest image from {len(packages)} Debian packages in {cache}")
            download(packages, cache / "packages")
            assemble(packages, cache, image, KERNELS[kernel])
            remove_others(cache, kernel, image)
        return image


def cached():
    """The stock kernel's image that was built last, or None. Asks neither apt nor the network."""
    folders = sorted(cache_folder().glob(f"image-{STOCK}-*"), key=lambda path: path.stat().st_mtime)
    return Image(folders[-1]) if folders else None


def cache_folder():
    """The folder that keeps downloads and images between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "uroce" / "interop"


def resolve(wanted):
    """The packages that apt would install on an empty machine, as `name=version`, the wanted kernel
    first."""
    if run(["dpkg", "--print-architecture"]).strip() != "amd64":
        raise LabFailure("the laboratory's guest is Debian amd64; this machine is not")
    depends = ask_apt(["apt-cache", "depends", "--important", wanted.package])
    kernel = re.search(r"Depends: (linux-image-\d\S+)", depends)
    if kernel is None:
        raise StaleLists(f"no package {wanted.package} in apt; the laboratory needs Debian's "
                         "package lists")
    policy = ask_apt(["apt-cache", "policy", kernel[1]])
    version = re.search(r"Candidate: (\S+)", policy)[1]
    plan = ask_apt([
        "apt-get", "install", "--simulate", "--no-install-recommends",
        "-o", "Dir::State::status=/dev/null", *PACKAGES,
    ])
    closure = re.findall(r"^Inst (\S+) \((\S+) ", plan, re.MULTILINE)
    return [f"{kernel[1]}={version}"] + [f"{name}={version}" for name, version in sorted(closure)]


def ask_apt(command):
    """Runs a command that apt answers from its lists."""
    try:
        return run(command)
    except LabFailure as failure:
        raise StaleLists(str(failure)) from None


def fingerprint(packages):
    """A hash of everything that goes into an image."""
    digest = hashlib.sha256("\n".join(packages).encode())
    for source in (HERE / "image.py", HERE / "init", HERE / "agent", PLACEMENT):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def archive_of(package, folder):
    """The file that apt-get makes for `name=version`, or None if it was not downloaded."""
    name, version = package.split("=", 1)
    return next(folder.glob(f"{name}_{version.replace(':', '%3a')}_*.deb"), None)


def download(packages, folder):
    """Downloads the packages that the cache lacks. Raises StaleLists if the archive is newer than
    the lists."""
    folder.mkdir(exist_ok=True)
    missing = [package for package in packages if archive_of(package, folder) is None]
    if not missing:
        return
    command = ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", *missing]
    if subprocess.run(command, cwd=folder, stdout=sys.stderr).returncode == 0:
        return
    raise StaleLists("apt-get could not download the guest's packages")


def assemble(packages, cache, image, kernel):
    """Unpacks, selects and packs. The finished image gets its name at once."""
    for abandoned in cache.glob("building-*"):
        shutil.rmtree(abandoned)
    with tempfile.TemporaryDirectory(dir=cache, prefix="building-") as work:
        work = Path(work)
        stage, root, done = work / "stage", work / "root", work / "image"
        for folder in (stage, root, done):
            folder.mkdir()
        for package in packages:
            run(["dpkg-deb", "-x", archive_of(package, cache / "packages"), stage])
        [code] = stage.glob("boot/vmlinuz-*")
        release = code.name.removeprefix("vmlinuz-")
        populate(stage, root, release, kernel)
        shutil.copy(code, done / "vmlinuz")
        pack(root, done / "initramfs.cpio")
        (done / "release").write_text(release + "\n")
        (done / "packages").write_text("\n".join(packages) + "\n")
        done.rename(image.folder)


def populate(stage, root, release, kernel):
    """Fills the guest's root folder from the unpacked packages."""
    for folder in ("bin", "dev", "proc", "sys", "tmp", "modules", MULTIARCH, "lib64"):
        (root / folder).mkdir(parents=True)
    for script in ("init", "agent"):
        shutil.copy(HERE / script, root / script)
    busybox = find_program(stage, "busybox")
    shutil.copy(busybox, root / "bin/busybox")
    for applet in set(run([busybox, "--list"]).split()) - {"busybox", *PROGRAMS}:
        (root / "bin" / applet).symlink_to("busybox")
    for name in PROGRAMS:
        shutil.copy(find_program(stage, name), root / "bin" / name)
    programs = [root / "bin" / name for name in PROGRAMS]
    if kernel.places:
        programs.append(root / "bin" / PLACEMENT.stem)
        run(["gcc", "-O1", "-Wall", "-Werror", "-o", programs[-1], PLACEMENT, "-libverbs"])
    # libibverbs finds its providers through these files and loads them from a built-in folder.
    providers = sorted(stage.glob("usr/lib/*/libibverbs/librxe-*.so"))
    for provider in providers:
        copy_into(root, provider.relative_to(stage), provider)
    copy_into(root, Path("etc/libibverbs.d/rxe.driver"), stage / "etc/libibverbs.d/rxe.driver")
    copy_libraries(stage, root, programs + providers)
    # The C library loads it when a thread is cancelled; no object names it.
    [unwinder] = stage.glob("**/libgcc_s.so.1")
    shutil.copy(unwinder, root / MULTIARCH / unwinder.name)
    # tcpdump changes to the user with its name; here that user is root.
    (root / "etc/passwd").write_text("tcpdump:x:0:0::/:/bin/sh\n")
    (root / "etc/group").write_text("tcpdump:x:0:\n")
    copy_modules(stage, root, release)


def find_program(stage, name):
    """Finds a program in the packages. `/sbin` and `/usr/bin` change places between releases."""
    for folder in ("bin", "sbin", "usr/bin", "usr/sbin"):
        if (stage / folder / name).exists():
            return stage / folder / name
    raise LabFailure(f"none of the guest's packages has the program {name}")


def copy_into(root, path, source):
    """Copies one file to a path below the guest's root."""
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, root / path)


def copy_libraries(stage, root, objects):
    """Copies the libraries that objects need, as the loader of the unpacked libc lists them."""
    loader = next(path for path in (
        stage / MULTIARCH / "ld-linux-x86-64.so.2",
        stage / "usr" / MULTIARCH / "ld-linux-x86-64.so.2",
    ) if path.exists())
    search = f"{stage / MULTIARCH}:{stage / 'usr' / MULTIARCH}"
    shutil.copy(loader, root / "lib64/ld-linux-x86-64.so.2")
    for item in objects:
        listing = run([loader, "--library-path", search, "--list", item])
        if "not found" in listing:
            raise LabFailure(f"{item.name} needs a library no package brought:\n{listing}")
        for name, path in re.findall(r"(\S+) => (/\S+)", listing):
            if not (root / MULTIARCH / name).exists():
                shutil.copy(path, root / MULTIARCH / name)


def copy_modules(stage, root, release):
    """Copies each module after its dependencies, numbered in that order."""
    available = {module_name(path.name): path
                 for path in stage.glob(f"**/modules/{release}/kernel/**/*.ko*")}
    order = []

    def visit(name):
        if name in order or name not in available:
            return  # a dependency without a file is built in
        code = module_code(available[name])
        depends = re.search(rb"\0depends=([^\0]*)\0", code)
        for dependency in filter(None, depends[1].decode().split(",")):
            visit(dependency.replace("-", "_"))
        target = root / "modules" / f"{len(order):02}-{name}.ko"
        target.write_bytes(code)
        order.append(name)

    [listed] = stage.glob(f"**/modules/{release}/modules.builtin")
    built_in = {module_name(path) for path in listed.read_text().split()}
    absent = [name for name in MODULES if name not in available and name not in built_in]
    if absent:
        raise LabFailure(f"Debian's kernel {release} has no module {', '.join(absent)}")
    for name in MODULES_WHERE_BUILT + MODULES:
        visit(name)


def module_name(path):
    """A module's name from its file's."""
    return path.rpartition("/")[2].split(".ko")[0].replace("-", "_")


def module_code(path):
    """A module's bytes. Debian compresses modules since release 13."""
    return lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()


def pack(root, archive):
    """Writes an uncompressed cpio archive, because unpacking costs an emulated processor more than
    reading."""
    names = sorted(str(path.relative_to(root)) for path in root.rglob("*"))
    with open(archive, "wb") as output:
        subprocess.run(
            ["cpio", "--quiet", "--null", "--create", "--format=newc", "--owner=0:0"],
            cwd=root, input="\0".join(names).encode(), stdout=output, check=True,
        )


def pack_over(base, root, target):
    """Writes an initramfs of an image's files and those of a folder.

    The kernel unpacks an initramfs of several archives in their order, and a later file replaces an
    earlier one with the same name."""
    shutil.copy(base.initramfs, target)
    over = target.with_suffix(".over")
    pack(root, over)
    with open(target, "ab") as output:
        # Each archive must begin at a multiple of four bytes.
        output.write(bytes(-output.tell() % 4))
        output.write(over.read_bytes())
    over.unlink()


def remove_others(cache, kernel, image):
    """Removes the kernel's former images from the cache, and the packages that no image is made
    of."""
    for folder in cache.glob("image-*"):
        # Images without a list of their packages are older than the choice of a kernel.
        former = folder.name.startswith(f"image-{kernel}-") and folder != image.folder
        if former or not (folder / "packages").exists():
            shutil.rmtree(folder)
    wanted = {archive_of(package, cache / "packages") for folder in cache.glob("image-*")
              for package in (folder / "packages").read_text().split()}
    for path in (cache / "packages").glob("*.deb"):
        if path not in wanted:
            path.unlink()


def run(command):
    """Runs a command and returns its output. Raises LabFailure if it fails."""
    done = subprocess.run(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"},
    )
    if done.returncode != 0:
        raise LabFailure(f"{command[0]} failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout
