"""Records golden vectors: small captures of what Debian's Soft-RoCE really sends.

Each recording is one session of a stock program between two guests. Payload lengths are odd on
purpose (padding), and longer than the path MTU (first, middle and last packets).
"""

from dataclasses import dataclass

import suites
from failure import LabFailure

# Of the programs' TCP exchange.
PORT = 18515
# Above this a capture is not a golden vector any more.
MAX_BYTES = 100_000


@dataclass(frozen=True)
class Recording:
    """One session: the program with its options, without addresses."""

    name: str
    family: int
    program: str
    options: str
    loss: float = 0

    def command(self, guest):
        """The guest's command line; perftest calls the GID index x, ibverbs-utils g."""
        index = guest.gid_indices[self.family]
        gid = f"-g {index}" if self.program.startswith("ibv_") else f"-F -x {index}"
        return f"exec {self.program} -d rxe0 {gid} {self.options}"


RECORDINGS = [
    Recording("rxe-rc-send-v4", 4, "ibv_rc_pingpong", "-c -m 1024 -s 3001 -n 3"),
    Recording("rxe-rc-send-v6", 6, "ibv_rc_pingpong", "-c -m 4096 -s 9002 -n 2"),
    Recording("rxe-rc-send-lossy-v4", 4, "ibv_rc_pingpong", "-c -m 256 -s 1500 -n 8", 0.1),
    Recording("rxe-uc-send-v4", 4, "ibv_uc_pingpong", "-c -m 1024 -s 3001 -n 3"),
    Recording("rxe-ud-send-v6", 6, "ibv_ud_pingpong", "-c -s 1001 -n 3"),
    Recording("rxe-rc-write-v4", 4, "ib_write_bw", "-m 1024 -s 3003 -n 5"),
    Recording("rxe-rc-read-v6", 6, "ib_read_bw", "-m 1024 -s 3001 -n 5"),
    Recording("rxe-rc-fetch-add-v4", 4, "ib_atomic_bw", "-A FETCH_AND_ADD -n 5"),
    Recording("rxe-rc-cmp-swap-v6", 6, "ib_atomic_bw", "-A CMP_AND_SWAP -n 5"),
]


def record(context, folder):
    """Writes every recording to `folder`; raises LabFailure if one cannot be made."""
    folder.mkdir(parents=True, exist_ok=True)
    with suites.pair(context) as ends:
        server, client = ends["guest1"], ends["guest2"]
        for recording in RECORDINGS:
            path = folder / f"{recording.name}.pcap"
            for end in (server, client):
                end.set_loss(recording.loss)
            with server.guest.capture(path):
                hold(recording, server, client)
            context.report.say(f"{path.name}: {path.stat().st_size} bytes")
            if path.stat().st_size > MAX_BYTES:
                raise LabFailure(f"{path} is too large for a golden vector")


def hold(recording, server, client):
    """One session; raises LabFailure unless both ends succeed."""
    serving = server.guest.begin(recording.command(server.guest), 30)
    if server.wait_until_listening(PORT, serving):
        client.guest.check(f"{recording.command(client.guest)} {server.host}", 30)
    ending = serving.wait()
    if ending.status != 0:
        raise LabFailure(f"{recording.name}: {ending.text}")
