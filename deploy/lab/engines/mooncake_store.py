"""Mooncake's store: a master, and three nodes of which one is killed. Each object has two copies.

Usage: mooncake_store.py OBJECTS PROTOCOL, which is rdma or tcp. Every byte is verified. Prints
"store ok" and figures.
"""

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import mooncake
from mooncake.store import MooncakeDistributedStore, ReplicateConfig

BYTES = 1 << 20
SEGMENT, BUFFER = 128 << 20, 64 << 20
NODES = 3
# Seconds after which the master forgets a node that is silent.
FORGOTTEN_SECONDS = 3
SECONDS = 60
HOST = "127.0.0.1"
# Ports of the master, below those that Linux gives to programs which ask for none (32768 to 60999).
PORT, METRICS_PORT = 15061, 15062


def joined(protocol):
    """A store with a part of the memory."""
    store = MooncakeDistributedStore()
    assert store.setup(HOST, "P2PHANDSHAKE", SEGMENT, BUFFER, protocol, "", f"{HOST}:{PORT}") == 0
    return store


def node(protocol, ready):
    """A node that only gives memory, until it is killed."""
    store = joined(protocol)
    ready.set()
    time.sleep(SECONDS * 2)
    store.close()


def content(number):
    """The bytes of an object."""
    return bytes((at * 3 + number * 17) % 253 for at in range(1013)) * (BYTES // 1013)


def fill(store, first, objects, copies):
    """Puts objects and returns gigabits per second."""
    config = ReplicateConfig()
    config.replica_num = copies
    start = time.monotonic()
    for number in range(first, first + objects):
        assert store.put(f"object{number}", content(number), config) == 0, f"put of {number} failed"
    return 8e-9 * BYTES * objects * copies / (time.monotonic() - start)


def verify(store, first, objects):
    """Gets objects and returns gigabits per second."""
    start = time.monotonic()
    for number in range(first, first + objects):
        assert store.get(f"object{number}") == content(number), f"object {number} is wrong"
    return 8e-9 * BYTES * objects / (time.monotonic() - start)


def run(objects, protocol, nodes):
    """Uses the store, kills a node and uses the store again."""
    store = joined(protocol)
    put, get = fill(store, 0, objects, 2), verify(store, 0, objects)
    os.kill(nodes[0].pid, signal.SIGKILL)
    # Each object has a copy left, and the store takes new ones.
    time.sleep(FORGOTTEN_SECONDS + 2)
    verify(store, 0, objects)
    fill(store, objects, objects, 1)
    verify(store, objects, objects)
    store.close()
    return put, get


def await_master(master):
    """Returns when the master listens."""
    for _ in range(SECONDS * 10):
        assert master.poll() is None, f"the master ended with {master.returncode}"
        with socket.socket() as probe:
            if probe.connect_ex((HOST, PORT)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError("the master does not listen")


def main():
    """Starts the master and the nodes, and returns the exit status."""
    objects, protocol = int(sys.argv[1]), sys.argv[2]
    program = Path(mooncake.__file__).parent / "mooncake_master"
    words = [program, f"--rpc_port={PORT}", f"--client_ttl={FORGOTTEN_SECONDS}",
             f"--metrics_port={METRICS_PORT}"]
    master = subprocess.Popen(list(map(str, words)))
    spawn = multiprocessing.get_context("spawn")
    ready = [spawn.Event() for _ in range(NODES - 1)]
    nodes = [spawn.Process(target=node, args=(protocol, each), daemon=True) for each in ready]
    try:
        await_master(master)
        for process, each in zip(nodes, ready):
            process.start()
            assert each.wait(SECONDS), "a node does not join"
        put, get = run(objects, protocol, nodes)
    finally:
        for process in nodes:
            if process.pid:
                process.kill()
        master.kill()
        master.wait()
    print("store ok")
    print(f"figure put_gbps {put:.2f}\nfigure get_gbps {get:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
