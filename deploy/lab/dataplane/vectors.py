"""Records golden vectors: small captures of the packets that Debian's Soft-RoCE sends.

Each recording is one session of a stock program between two guests. Payload lengths are odd, to
test padding, and longer than the path MTU, to have first, middle and last packets. The sessions of
`rdmacm-utils` record connection management: if the name begins with `rxe-cm`, a text beside the
capture has tshark's reading of each MAD. Only a kernel with ATOMIC WRITE and FLUSH records these,
and nothing else, so that the other captures stay those of the stock kernel.
"""

import json
from dataclasses import dataclass

from report import dissect
import suites
from report.failure import LabFailure

# Port of the programs' TCP exchange.
PORT = 18515
# Port of sessions with the connection manager.
CM_PORT = 7174
SECONDS = 30
UNTIL_LISTENING = "until rdma resource show cm_id | grep -q LISTEN; do usleep 20000; done"
# Largest capture that may be a golden vector.
MAX_BYTES = 100_000


@dataclass(frozen=True)
class Recording:
    """One session of ibverbs-utils, perftest or the laboratory's program: the program with its
    options, without addresses."""

    name: str
    family: int
    program: str
    options: str
    loss: float = 0

    def command(self, guest, server_host):
        """The guest's command line. perftest calls the GID index x, the others g."""
        index = guest.gid_indices[self.family]
        gid = f"-F -x {index}" if self.program.startswith("ib_") else f"-g {index}"
        return f"exec {self.program} -d rxe0 {gid} {self.options} {server_host}"

    def hold(self, server, client):
        """Runs the session. Raises LabFailure unless both ends succeed."""
        serving = server.guest.begin(self.command(server.guest, ""), SECONDS)
        if server.wait_until_listening(PORT, serving):
            client.guest.check(self.command(client.guest, server.host), SECONDS)
        ending = serving.wait()
        if ending.status != 0:
            raise LabFailure(f"{self.name}: {ending.text}")


@dataclass(frozen=True)
class CmRecording:
    """One session that the kernels' connection managers establish and end."""

    name: str
    family: int
    server: str
    """The server's command with `{here}` for its own address. Empty if there is no listener."""
    client: str
    """The client's command with `{there}` for the server's address."""
    may_fail: bool = False
    """Whether the programs may end with an error, for example if a connection is rejected."""
    deaf: int = 0
    """Seconds for which the server is stopped when the client connects."""
    loss = 0

    def hold(self, server, client):
        """Runs the session. Raises LabFailure unless both ends succeed or may fail."""
        here = server.guest.addresses
        address = here.ipv4 if self.family == 4 else here.ipv6
        endings = []
        if self.server:
            serving = server.guest.begin(
                f"exec {self.server.format(here=address, port=CM_PORT)}", SECONDS)
            server.guest.check(UNTIL_LISTENING, SECONDS)
        name = self.server.split()[0] if self.server else ""
        if self.deaf:
            server.guest.check(f"killall -STOP {name}", SECONDS)
            resume = server.guest.begin(f"sleep {self.deaf}; killall -CONT {name}", SECONDS)
        command = f"exec {self.client.format(there=address, port=CM_PORT)}"
        endings.append(client.guest.run(command, SECONDS))
        if self.deaf:
            endings.append(resume.wait())
        if self.server:
            endings.append(serving.wait())
        failed = [ending.text for ending in endings if ending.status != 0]
        if failed and not self.may_fail:
            raise LabFailure(f"{self.name}: {failed[0]}")


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
PLACEMENT_RECORDINGS = [
    Recording(f"rxe-rc-placement-v{family}", family, "rxe_placement", "-m 1024 -s 1025 -n 4")
    for family in (4, 6)
]
CM_RECORDINGS = [
    CmRecording(f"rxe-cm-rping-v{family}", family, "rping -s -a {here} -p {port} -C 2 -S 40 -v -V",
                "rping -c -a {there} -p {port} -C 2 -S 40 -v -V") for family in (4, 6)
] + [
    CmRecording("rxe-cm-no-listener-v4", 4, "", "rping -c -a {there} -p {port} -C 1",
                may_fail=True),
    CmRecording("rxe-cm-ucmatose-v4", 4, "ucmatose -b {here} -p {port} -C 2 -S 100 -c 2",
                "ucmatose -s {there} -p {port} -C 2 -S 100 -c 2"),
    # One connection more than the server accepts.
    CmRecording("rxe-cm-reject-v4", 4, "ucmatose -b {here} -p {port} -C 0 -c 1",
                "ucmatose -s {there} -p {port} -C 0 -c 2", may_fail=True),
    CmRecording("rxe-cm-udaddy-v4", 4, "udaddy -b {here} -C 2 -S 100 -c 2",
                "udaddy -s {there} -C 2 -S 100 -c 2"),
    CmRecording("rxe-cm-udaddy-v6", 6, "udaddy -b {here} -C 1 -S 100 -c 1",
                "udaddy -s {there} -C 1 -S 100 -c 1"),
    CmRecording("rxe-cm-udaddy-no-listener-v4", 4, "",
                "udaddy -s {there} -C 1 -S 100 -c 1", may_fail=True),
    # The client repeats its request after about 6 s; the server's kernel answers with an MRA.
    CmRecording("rxe-cm-mra-v4", 4, "rping -s -a {here} -p {port} -C 1 -S 40",
                "rping -c -a {there} -p {port} -C 1 -S 40", deaf=12),
]


def record(context, folder):
    """Records everything to `folder`. Raises LabFailure if a recording fails."""
    every = PLACEMENT_RECORDINGS if context.kernel.places else RECORDINGS + CM_RECORDINGS
    chosen = [each for each in every
              if all(word in each.name for word in context.only.split())]
    folder.mkdir(parents=True, exist_ok=True)
    with suites.pair(context) as ends:
        server, client = ends["guest1"], ends["guest2"]
        for recording in chosen:
            path = folder / f"{recording.name}.pcap"
            for end in (server, client):
                end.set_loss(recording.loss)
            with server.guest.capture(path):
                recording.hold(server, client)
            context.report.say(f"{path.name}: {path.stat().st_size} bytes")
            if path.stat().st_size > MAX_BYTES:
                raise LabFailure(f"{path} is too large for a golden vector")
            if isinstance(recording, CmRecording):
                rows = dissect.mads(path)
                path.with_suffix(".json").write_text(json.dumps(rows, indent=1) + "\n")
