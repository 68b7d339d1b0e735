"""The NICs of the matrix: those that QEMU emulates and DPDK drives."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Nic:
    """A NIC that QEMU emulates."""

    name: str
    """Name on the command line and in deploy/NICS.md."""
    device: str
    """QEMU's name for the device, with its options."""
    driver: str
    """Name of DPDK's driver."""
    what: str
    queues: int = 1
    """Number of queue pairs that QEMU gives the NIC."""
    is_express: bool = True
    """Whether it is a PCI Express device, behind a port of its own, and can be unplugged."""


@dataclass(frozen=True)
class Way:
    """How the guest gives a NIC to DPDK, and which memory DPDK has."""

    name: str
    iommu: bool
    hugepages: int
    """Number of 2 MiB pages that the guest reserves."""
    what: str


# All properties run in the first way only; the others run a few.
WAYS = (
    Way("vfio-pci", True, 0, "behind an IOMMU, without hugepages"),
    Way("vfio-huge", True, 128, "behind an IOMMU, with hugepages"),
    Way("uio-huge", False, 128, "without an IOMMU, by uio_pci_generic; needs hugepages"),
)

NICS = (
    Nic("e1000", "e1000", "net_e1000_em", "Intel 82540EM", is_express=False),
    Nic("e1000e", "e1000e", "net_e1000_em", "Intel 82574L"),
    Nic("vmxnet3", "vmxnet3", "net_vmxnet3", "VMware paravirtual Ethernet"),
    Nic("virtio-net", "virtio-net-pci,iommu_platform=on,ats=on,disable-legacy=on,"
        "host_mtu=9000,mq=on,rss=on,vectors=6", "net_virtio", "virtio 1.1 network device", 2),
)

# Properties that cannot hold here, by NIC, way and property, with the failure that is expected and
# the remedy, or why there is none.
KNOWN = {
    ("e1000", "vfio-pci", "unplugged"): (
        "has no slot of its own", "A conventional PCI device of QEMU's cannot be unplugged."),
    ("vmxnet3", "uio-huge", "start, MTU 1500"): (
        "Segmentation fault",
        "The driver ends the process: bind the NIC to vfio-pci, behind an IOMMU."),
}


def known(result):
    """Returns the expected failure of a result's property and its remedy; empty for most."""
    return KNOWN.get((result["nic"], result["way"], result["property"]), ("", ""))


def remedy(result):
    """Returns the remedy for a failure that is expected here; empty for all others."""
    failure, advice = known(result)
    return advice if failure in result["reason"] else ""
