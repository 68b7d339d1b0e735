"""The suite `switch`: programs over uroce and a guest on Open vSwitch with DPDK."""
