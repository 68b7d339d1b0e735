"""Writes deploy/NICS.md: what each NIC was seen to do, and remedies where something is missing."""

from report.result import FAIL, NOT_RUN, PASS

from .drivers import NICS, WAYS, remedy
from .properties import PROPERTIES

HEAD = """# NICs

Written by `deploy/nics --write`. QEMU emulated each NIC in a guest with Debian's kernel {release}
and DPDK {dpdk}, uroce drove it there, and a second uroce on the machine was its peer, or where
Soft-RoCE is named, Linux in a second guest. Whether a driver starts and what it can do shows here;
its speed does not. A failure may be QEMU's.

QEMU 7.2 also emulates rtl8139 and i82557b, for which DPDK has no driver; igb it emulates from
release 8. NICs that QEMU does not emulate are in the last table.
"""

WORD = {PASS: "yes", FAIL: "**no**", NOT_RUN: "not run"}

# The usual NICs that DPDK 22.11 has a driver for and QEMU 7.2 does not emulate.
NOT_EMULATED = (
    ("mlx5", "NVIDIA ConnectX-4 Lx and newer, BlueField",
     "stays with the kernel's driver; needs libibverbs of the vendor's provider"),
    ("ice, i40e, ixgbe", "Intel 800, 700, 500", "bind to vfio-pci"),
    ("igb, igc", "Intel I350, I210, I225", "bind to vfio-pci; QEMU emulates igb from release 8"),
    ("iavf, ixgbevf", "virtual functions of these", "bind to vfio-pci"),
    ("ena", "Amazon EC2",
     "bind to vfio-pci; without an IOMMU to igb_uio or uio_pci_generic, with hugepages"),
    ("gve", "Google Compute Engine", "bind to vfio-pci"),
    ("netvsc", "Microsoft Azure", "bind to uio_hv_generic"),
    ("mana", "Microsoft Azure Network Adapter",
     "stays with the kernel's driver, of Linux 6.2 or newer, as mlx5 does"),
    ("mlx4", "NVIDIA ConnectX-3", "stays with the kernel's driver, as mlx5 does"),
    ("bnxt", "Broadcom NetXtreme-C and -E", "bind to vfio-pci"),
    ("others", "sfc, qede, cxgbe, enic, hns3, hinic, atlantic, axgbe, ionic, nfp, txgbe",
     "see DPDK's guide of the driver; most bind to vfio-pci"),
)


def text(results, release, dpdk):
    """Returns the text of the page. `results` are those of the whole matrix."""
    by_cell = {(each["property"], each["nic"], each["way"]): each for each in results}
    lines = [HEAD.format(release=release, dpdk=dpdk), "## Properties", "",
             f"The guest has an IOMMU and no hugepages ({WAYS[0].name}).", ""]
    lines += row("", *(nic.name for nic in NICS)) + row("---", *("---" for _ in NICS))
    for prop in PROPERTIES:
        cells = [by_cell[prop.name, nic.name, WAYS[0].name] for nic in NICS]
        lines += row(f"{prop.name}: {prop.what}", *map(word, cells))
    lines += ["", "## Ways to give a NIC to DPDK", "", "Start and MTU 1500.", ""]
    lines += row("", *(nic.name for nic in NICS)) + row("---", *("---" for _ in NICS))
    for way in WAYS:
        cells = [by_cell[PROPERTIES[0].name, nic.name, way.name] for nic in NICS]
        lines += row(f"{way.name}: {way.what}", *map(word, cells))
    lines += ["", "## The NICs", ""]
    for nic in NICS:
        lines.append(f"- {nic.name}: {nic.what}; DPDK's driver {nic.driver}.")
    lines += missing(results)
    needs = ("What these drivers need in general; uroce was not run on them. "
             "`uroce-perf nic-check --pci ADDR` at\none machine and the same with the first one's "
             "address at another, or `--loop-pci ADDR` for the\nother end of a cable, finds in at "
             "most five minutes which of these properties a NIC has; `--only cable`\nasks for the "
             "cable to be pulled and put back. Failover and unplugging are left to its user. Send "
             "its\nreport (`--out-json-file`) with an issue.")
    lines += ["", "## Not run here", "", needs, ""]
    lines += row("driver", "NICs", "what it needs") + row("---", "---", "---")
    for driver, nics, needs in NOT_EMULATED:
        lines += row(driver, nics, needs)
    return "\n".join(lines) + "\n"


def word(cell):
    """A verdict, with a mark where it is that of a second run."""
    return WORD[cell["verdict"]] + " (at the second try)" * cell["again"]


def row(*cells):
    """Returns a row of a table, as a list of one line."""
    return ["| " + " | ".join(cells) + " |"]


def missing(results):
    """Returns lines about the properties that do not hold, with reason and remedy."""
    lines = []
    for each in results:
        if each["verdict"] == PASS:
            continue
        lines.append(f"- {each['nic']}, {each['way']}, {each['property']}: {each['reason']}. "
                     f"{remedy(each)}".rstrip())
    return ["", "## What is missing", "", *(lines or ["Nothing."])]
