"""Mooncake's transfer engine: nodes in processes of their own, each of which writes to every other
one and reads it back.

Usage: mooncake_nodes.py NODES ROUNDS PROTOCOL, which is rdma or tcp. Every byte is verified. Prints
"mooncake ok" and figures: a large write, and a batch of small ones.
"""

import ctypes
import multiprocessing
import sys
import time

from mooncake.engine import TransferEngine

BYTES = 8 << 20
SMALL_BYTES, BATCH = 4096, 256
SECONDS = 60
HOST = "127.0.0.1"


def node(number, nodes, rounds, protocol, to_all, barrier, gbps):
    """One node. Its memory has an area for each other node to write to, and one to read into."""
    engine = TransferEngine()
    assert engine.initialize(HOST, "P2PHANDSHAKE", protocol, "") == 0, "initialize failed"
    memory = ctypes.create_string_buffer(BYTES * (nodes + 2))
    base = ctypes.addressof(memory)
    assert engine.register_memory(base, len(memory)) == 0, "register_memory failed"
    for queue in to_all:
        queue.put((number, f"{HOST}:{engine.get_rpc_port()}", base))
    names = dict((at, (name, there)) for at, name, there in
                 (to_all[number].get(timeout=SECONDS) for _ in range(nodes)))
    out, back = base + BYTES * nodes, base + BYTES * (nodes + 1)
    content = pattern(number)
    ctypes.memmove(out, content, BYTES)
    barrier.wait(SECONDS)
    for other, (name, there) in names.items():
        if other == number:
            continue
        start = time.monotonic()
        for _ in range(rounds):
            moved = engine.transfer_sync_write(name, out, there + BYTES * number, BYTES)
            assert moved == 0, "transfer_sync_write failed"
        gbps[0] += 8e-9 * BYTES * rounds / (time.monotonic() - start) / (nodes - 1)
        moved = engine.transfer_sync_read(name, back, there + BYTES * number, BYTES)
        assert moved == 0, "transfer_sync_read failed"
        assert ctypes.string_at(back, BYTES) == content, "wrong bytes were read"
        places = range(0, SMALL_BYTES * BATCH, SMALL_BYTES)
        start = time.monotonic()
        for _ in range(rounds):
            moved = engine.batch_transfer_sync_write(
                name, [out + at for at in places], [there + BYTES * number + at for at in places],
                [SMALL_BYTES] * BATCH)
            assert moved == 0, "batch_transfer_sync_write failed"
        gbps[1] += 8e-9 * SMALL_BYTES * BATCH * rounds / (time.monotonic() - start) / (nodes - 1)
    barrier.wait(SECONDS)
    for other in names:
        if other != number:
            written = ctypes.string_at(base + BYTES * other, BYTES)
            assert written == pattern(other), "wrong bytes were written"
    barrier.wait(SECONDS)


def pattern(number):
    """What a node writes."""
    line = bytes((at * 7 + number * 31) % 251 for at in range(1021))
    return (line * (BYTES // len(line) + 1))[:BYTES]


def main():
    """Starts the nodes and returns the exit status."""
    nodes, rounds, protocol = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    spawn = multiprocessing.get_context("spawn")
    to_all, barrier = [spawn.Queue() for _ in range(nodes)], spawn.Barrier(nodes)
    gbps = spawn.Array("d", 2)
    running = [spawn.Process(target=node, args=(number, nodes, rounds, protocol, to_all, barrier,
                                                gbps), daemon=True) for number in range(nodes)]
    for process in running:
        process.start()
    for process in running:
        process.join(SECONDS)
    if any(process.exitcode != 0 for process in running):
        print("ended with", *(process.exitcode for process in running))
        return 1
    print("mooncake ok")
    print(f"figure large_gbps {gbps[0]:.2f}\nfigure batches_gbps {gbps[1]:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
