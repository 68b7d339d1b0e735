"""The NICs of the matrix: what QEMU emulates and DPDK drives."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Nic:
    """A NIC that QEMU emulates."""

    name: str
    """As the command line and the page name it."""
    device: str
    """QEMU's device, with its options."""
    driver: str
    """DPDK's driver."""
    what: str
    queues: int = 1
    """Queue pairs that QEMU gives it."""


@dataclass(frozen=True)
class Way:
    """How the guest gives a NIC to DPDK, and the memory that DPDK has."""

    name: str
    iommu: bool
    hugepages: int
    """Pages of 2 MiB that the guest reserves."""
    what: str


# The first is the plain one, with all properties.
WAYS = (
    Way("vfio-pci", True, 0, "behind an IOMMU, without hugepages"),
    Way("vfio-huge", True, 128, "behind an IOMMU, with hugepages"),
    Way("uio-huge", False, 128, "without an IOMMU, by uio_pci_generic; needs hugepages"),
)

NICS = (
    Nic("e1000", "e1000", "net_e1000_em", "Intel 82540EM"),
    Nic("e1000e", "e1000e", "net_e1000_em", "Intel 82574L"),
    Nic("vmxnet3", "vmxnet3", "net_vmxnet3", "VMware paravirtual Ethernet"),
    Nic("virtio-net", "virtio-net-pci,iommu_platform=on,ats=on,disable-legacy=on,"
        "host_mtu=9000,mq=on,rss=on,vectors=6", "net_virtio", "virtio 1.1 network device", 2),
)

# What to do where a property is missing, by NIC, way and property.
ONE_LCORE = ("The driver reports more queues than the device serves: use `lcores = 1`. The device "
             "is QEMU's; another of its kind may differ.")
BEHIND_AN_IOMMU = "The driver ends the process: bind the NIC to vfio-pci, behind an IOMMU."
REMEDIES = {
    ("vmxnet3", "vfio-pci", "two lcores"): ONE_LCORE,
    ("vmxnet3", "uio-huge", "start, MTU 1500"): BEHIND_AN_IOMMU,
}


def remedy(nic, way, prop):
    """What to do where a property of a NIC is missing. Empty if nothing is known."""
    return REMEDIES.get((nic, way, prop), "")
