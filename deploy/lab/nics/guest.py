"""A guest with NICs for DPDK: a q35 machine with an emulated IOMMU, and a tap for each NIC."""

from vm import guest, network

# First slot on the root bus that the chipset's devices leave free.
FIRST_SLOT = 4
MEMORY = "1100M"
# MTU of the taps in bytes.
TAP_MTU = 9000


class Taps:
    """The taps of a guest's NICs, and the guest's virtual machine."""

    needs_peer_to_boot = False

    def __init__(self, number, nic, ports, iommu=True):
        self.nic = nic
        self.iommu = iommu
        self.interfaces = [f"nic{number}p{port}" for port in range(ports)]

    def prepare(self):
        """Creates the taps, with a queue for each queue of the NIC, in place of a former
        guest's."""
        for interface in self.interfaces:
            if network.exists(interface):
                network.ip("link", "delete", interface)
            queues = ["multi_queue"] if self.nic.queues > 1 else []
            network.ip("tuntap", "add", "dev", interface, "mode", "tap", *queues)
            network.bring_up(interface, TAP_MTU)

    def machine(self):
        """Returns the options for the chipset, with its IOMMU, and for a processor that DPDK can
        use."""
        words = ["-m", MEMORY, "-cpu", "max"]
        if not self.iommu:
            return [*words, "-machine", "q35"]
        return [*words, "-machine", "q35,kernel-irqchip=split", "-device",
                "intel-iommu,intremap=on,caching-mode=on,device-iotlb=on"]


class NicGuest(guest.Guest):
    """A guest that gives the NICs of its link to DPDK."""

    # One processor for each of two lcores.
    processors = 2

    def __init__(self, image, number, folder, link, hugepages=0):
        super().__init__(image, number, folder, link)
        self.hugepages = hugepages

    @property
    def pci(self):
        """The PCI addresses of the NICs."""
        places = range(len(self.link.interfaces))
        if self.link.nic.is_express:
            # Each port has a bus of its own.
            return [f"0000:{1 + at:02x}:00.0" for at in places]
        return [f"0000:00:{FIRST_SLOT + at:02x}.0" for at in places]

    def kernel_line(self):
        """Returns the kernel's command line. It contains the variables of nics/init."""
        bind = "vfio-pci" if self.link.iommu else "uio_pci_generic"
        # On a busy machine the kernel would see its timer stand still, and panic.
        line = (f"console=ttyS0 quiet panic=-1 no_timer_check "
                f"NICS={','.join(self.pci)} BIND={bind} "
                f"CONTROL={self.addresses.control}/{network.CONTROL_PREFIX}")
        line += " intel_iommu=on" if self.link.iommu else ""
        return line + (f" HUGEPAGES={self.hugepages}" if self.hugepages else "")

    def roce_devices(self):
        """Returns the options for the NICs, each with its tap."""
        words = []
        nic = self.link.nic
        queues = f",queues={nic.queues}" if nic.queues > 1 else ""
        for at, interface in enumerate(self.link.interfaces):
            place = f"bus=pcie.0,addr={FIRST_SLOT + at:#x}"
            if nic.is_express:
                words += ["-device", f"pcie-root-port,id=slot{at},chassis={at + 1},slot={at + 1},"
                                     f"{place}"]
                place = f"bus=slot{at}"
            words += ["-netdev", f"tap,id=roce{at},ifname={interface},script=no,downscript=no,"
                                 f"vnet_hdr=off{queues}",
                      "-device", f"{nic.device},id=nic{at},netdev=roce{at},romfile=,{place},"
                                 f"mac={self.addresses.mac(at + 2)}"]
        return words

    def check_ready(self):
        """Returns if the guest runs commands; otherwise raises."""
        self.check("true", 5)

    def set_cable(self, port, up):
        """Mends the cable of a port if `up`, otherwise cuts it."""
        self.monitor("set_link", {"name": f"roce{port}", "up": up})

    def unplug(self, port):
        """Asks the guest to give up a NIC, as its user who presses the button of the slot."""
        self.monitor("device_del", {"id": f"nic{port}"})

    def has_nic(self, port):
        """Whether the guest's kernel has the NIC of a port."""
        return self.run(f"test -e /sys/bus/pci/devices/{self.pci[port]}", 10).status == 0
