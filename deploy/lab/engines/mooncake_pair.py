"""Mooncake's transfer engine: one of two nodes, of which one writes to the other and reads back.

Usage: mooncake_pair.py server PORT, and in another process mooncake_pair.py client PORT SECONDS.
The server has the memory, and names it to the client over TCP at this port of localhost. Each
round has bytes of its own, and every byte is verified. Both print "mooncake ok".
"""

import ctypes
import json
import socket
import sys
import time

from mooncake.engine import TransferEngine

HOST = "127.0.0.1"
LENGTH = 4 << 20


def engine_with(memory):
    """A transfer engine over RDMA with this memory."""
    engine = TransferEngine()
    assert engine.initialize(HOST, "P2PHANDSHAKE", "rdma", "") == 0, "initialize failed"
    registered = engine.register_memory(ctypes.addressof(memory), len(memory))
    assert registered == 0, "register_memory failed"
    return engine


def serve(port):
    """Waits until the client is done."""
    memory = ctypes.create_string_buffer(LENGTH)
    engine = engine_with(memory)
    with socket.create_server(("", port)) as listener:
        client = listener.accept()[0]
    with client:
        name = f"{HOST}:{engine.get_rpc_port()}"
        client.sendall(json.dumps([name, ctypes.addressof(memory)]).encode() + b"\n")
        assert client.recv(2) == b"\n", "the client did not come to its end"


def write(port, seconds):
    """Writes and reads back for this time."""
    memory = ctypes.create_string_buffer(2 * LENGTH)
    engine = engine_with(memory)
    own = ctypes.addressof(memory)
    back = own + LENGTH
    with socket.create_connection((HOST, port)) as server, server.makefile() as said:
        name, there = json.loads(said.readline())
        end, rounds = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            sent = bytes((at * 7 + rounds) % 251 for at in range(1021)) * (LENGTH // 1021 + 1)
            ctypes.memmove(own, sent, LENGTH)
            assert engine.transfer_sync_write(name, own, there, LENGTH) == 0, "a write has failed"
            assert engine.transfer_sync_read(name, back, there, LENGTH) == 0, "a read has failed"
            assert ctypes.string_at(back, LENGTH) == sent[:LENGTH], "wrong bytes were read"
            rounds += 1
        assert rounds > 0, "no round in time"
        server.sendall(b"\n")


if __name__ == "__main__":
    if sys.argv[1] == "server":
        serve(int(sys.argv[2]))
    else:
        write(int(sys.argv[2]), float(sys.argv[3]))
    print("mooncake ok", flush=True)
