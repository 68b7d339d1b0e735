"""The case table: which messages are exchanged, over what, who serves, and with what loss."""

from dataclasses import dataclass

PATH_MTUS = (1024, 4096)
FAMILIES = (4, 6)
KIB = 1024
MIB = 1024 * KIB
LOSS = 0.01


@dataclass(frozen=True)
class Case:
    """One ping-pong session of two peers."""

    family: int
    """IP version of the RoCE packets."""
    path_mtu: int
    """Bytes of payload per packet."""
    size: int
    """Bytes per message."""
    iterations: int
    """Messages each way."""
    loss: float
    """Share of packets lost, each way; 0 to 1."""
    server: str
    """Name of the peer that waits for the other one."""
    client: str
    """Name of the other one."""
    seed: int
    """Of the losses."""

    @property
    def name(self):
        """Fit for a file name as well as for a table."""
        loss = f"-loss{self.loss * 100:g}" if self.loss else ""
        return f"v{self.family}-mtu{self.path_mtu}-{self.size}B{loss}-{self.server}-serves"

    @property
    def seconds(self):
        """Time limit. Each lost last packet of a message costs an ACK timeout of 67 ms; if all
        are lost there is nothing to wait for."""
        if self.loss == 1:
            return 5
        return 60 if self.loss else 30


def dataplane():
    """uroce against Soft-RoCE, both ways round; all of it first without loss, then with."""
    roles = (("uroce", "rxe"), ("rxe", "uroce"))
    clean = table(lambda mtu: (1, 64, 1000, mtu, mtu + 1, 16 * KIB, 64 * KIB, MIB), 0, roles)
    return clean + table(lambda mtu: (1, mtu + 1, 64 * KIB, MIB), LOSS, roles)


def selftest():
    """Two guests among themselves: less of everything, to judge the laboratory, not Soft-RoCE."""
    roles = (("guest1", "guest2"),)
    return (table(lambda mtu: (1, mtu + 1, MIB), 0, roles)
            + table(lambda mtu: (64 * KIB,), LOSS, roles))


def table(sizes, loss, roles):
    """Every family, MTU, size (`sizes` depends on the MTU) and assignment of roles."""
    cells = [
        (family, mtu, size, server, client)
        for family in FAMILIES for mtu in PATH_MTUS for size in sizes(mtu)
        for server, client in roles
    ]
    return [
        Case(family, mtu, size, iterations(size, loss), loss, server, client, seed)
        for seed, (family, mtu, size, server, client) in enumerate(cells, start=1)
    ]


def iterations(size, loss):
    """Enough packets that 1 % of them is never none of them, and an emulated guest is done soon."""
    if size >= MIB:
        return 5
    if size >= 16 * KIB:
        return 30
    return 500 if loss else 200
