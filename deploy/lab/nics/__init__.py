"""deploy/nics: uroce over each NIC that QEMU emulates and DPDK drives, each really started."""
