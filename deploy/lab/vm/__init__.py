"""The guest under QEMU: its image, its links and the namespace of the laboratory."""
