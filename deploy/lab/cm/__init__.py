"""The suite `cm`: connections between uroce's connection manager and the kernel's."""
