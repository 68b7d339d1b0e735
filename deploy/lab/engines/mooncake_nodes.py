"""Mooncake's transfer engine: nodes in processes of their own, each of which writes to every other
one and reads it back.

Usage: mooncake_nodes.py NODES MIB ROUNDS PROTOCOL, which is rdma or tcp. Every byte is verified.
Prints "mooncake ok" and figures: writes of MIB mebibytes, writes of 64 bytes one at a time, and
batches of 256 writes of 4 KiB.
"""

import contextlib
import ctypes
import multiprocessing
import sys
import time

from mooncake.engine import TransferEngine

SHORT_BYTES, SHORT_WRITES = 64, 200
SMALL_BYTES, BATCH = 4096, 256
SECONDS = 60
HOST = "127.0.0.1"


def node(number, sizes, protocol, to_all, barrier, totals):
    """One node. Its memory has an area for each other node to write to, and one to read into. Two
    nodes write one after the other, and more all at once."""
    nodes, length, rounds = sizes
    engine = TransferEngine()
    assert engine.initialize(HOST, "P2PHANDSHAKE", protocol, "") == 0, "initialize failed"
    memory = ctypes.create_string_buffer(length * (nodes + 2))
    base = ctypes.addressof(memory)
    assert engine.register_memory(base, len(memory)) == 0, "register_memory failed"
    for queue in to_all:
        queue.put((number, f"{HOST}:{engine.get_rpc_port()}", base))
    names = dict((at, (name, there)) for at, name, there in
                 (to_all[number].get(timeout=SECONDS) for _ in range(nodes)))
    own = base + length * nodes
    ctypes.memmove(own, pattern(number, length), length)
    for writers in ([0], [1]) if nodes == 2 else (range(nodes),):
        barrier.wait(SECONDS)
        for other, (name, there) in names.items() if number in writers else ():
            if other != number:
                place = there + length * number
                add(totals, transfer(engine, name, own, place, length, rounds))
    barrier.wait(SECONDS)
    for other in names:
        if other != number:
            written = ctypes.string_at(base + length * other, length)
            assert written == pattern(other, length), "wrong bytes were written"
    barrier.wait(SECONDS)


def transfer(engine, name, own, place, length, rounds):
    """Writes from `own` to another node's `place`, and reads it back behind `own`. Returns seconds:
    of large writes, short writes, and batches."""
    times = []
    with timed(times):
        for _ in range(rounds):
            assert engine.transfer_sync_write(name, own, place, length) == 0, "a write failed"
    back = own + length
    assert engine.transfer_sync_read(name, back, place, length) == 0, "a read failed"
    assert ctypes.string_at(back, length) == ctypes.string_at(own, length), "wrong bytes were read"
    with timed(times):
        for _ in range(SHORT_WRITES):
            moved = engine.transfer_sync_write(name, own, place, SHORT_BYTES)
            assert moved == 0, "a short write failed"
    offsets = range(0, SMALL_BYTES * BATCH, SMALL_BYTES)
    with timed(times):
        for _ in range(rounds):
            moved = engine.batch_transfer_sync_write(
                name, [own + at for at in offsets], [place + at for at in offsets],
                [SMALL_BYTES] * BATCH)
            assert moved == 0, "a batch failed"
    return times


@contextlib.contextmanager
def timed(times):
    """Appends the time that the block takes, in seconds."""
    start = time.monotonic()
    yield
    times.append(time.monotonic() - start)


def add(totals, times):
    """Adds a node's times to those of all."""
    with totals.get_lock():
        for at, seconds in enumerate(times):
            totals[at] += seconds


def pattern(number, length):
    """What a node writes."""
    line = bytes((at * 7 + number * 31) % 251 for at in range(1021))
    return (line * (length // len(line) + 1))[:length]


def main():
    """Starts the nodes and returns the exit status."""
    nodes, mebibytes, rounds = map(int, sys.argv[1:4])
    sizes, protocol = (nodes, mebibytes << 20, rounds), sys.argv[4]
    spawn = multiprocessing.get_context("spawn")
    to_all, barrier = [spawn.Queue() for _ in range(nodes)], spawn.Barrier(nodes)
    totals = spawn.Array("d", 3)
    running = [spawn.Process(target=node, daemon=True,
                             args=(number, sizes, protocol, to_all, barrier, totals))
               for number in range(nodes)]
    for process in running:
        process.start()
    for process in running:
        process.join(SECONDS)
    if any(process.exitcode != 0 for process in running):
        print("ended with", *(process.exitcode for process in running))
        return 1
    print("mooncake ok")
    pairs = nodes * (nodes - 1)
    large, short, batches = totals
    print(f"figure large_gbps {8e-9 * sizes[1] * rounds * pairs / large:.2f}")
    print(f"figure short_us {1e6 * short / SHORT_WRITES / pairs:.1f}")
    print(f"figure batches_gbps {8e-9 * SMALL_BYTES * BATCH * rounds * pairs / batches:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
