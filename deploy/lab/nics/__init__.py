"""deploy/nics: runs uroce over each NIC that QEMU emulates and DPDK drives."""
