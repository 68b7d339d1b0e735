"""NCCL's own transport for RDMA, between two processes.

Usage: nccl_transport.py ROUNDS. Every byte is verified. Prints "nccl ok" and the bandwidth.

ncclCommInitRank fails without CUDA's driver, before it looks for devices. The transport below it
needs none: it moves host memory too. It has no public functions, so the symbol table of the library
says where they are; the release is fixed in `wheels.py`.
"""

import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path

import nvidia.nccl

LIBRARY = Path(next(iter(nvidia.nccl.__path__))) / "lib" / "libnccl.so.2"
# First part of the names of the functions.
PREFIX = "ncclIb"
# An exported function, from which the place of all others follows.
KNOWN = "pncclGetUniqueId"
BYTES = 4 << 20
SECONDS = 30
HANDLE_BYTES, HOST_MEMORY, TAG = 128, 1, 7
# NCCL's settings of a communicator, each of them undefined.
SETTINGS, UNDEFINED = 16, -1 << 31

pointer = ctypes.c_void_p


class Transport:
    """The functions of the transport."""

    def __init__(self, offsets):
        self.offsets = offsets
        self.library = ctypes.CDLL(str(LIBRARY))
        known = ctypes.cast(getattr(self.library, KNOWN), pointer).value
        self.base = known - offsets[KNOWN]

    def call(self, name, *arguments):
        """Calls a function. An `int` is a 64-bit argument."""
        kinds = [ctypes.c_uint64 if isinstance(word, int) else pointer for word in arguments]
        function = ctypes.CFUNCTYPE(ctypes.c_int, *kinds)
        place = self.base + self.offsets[PREFIX + name]
        code = function(place)(*arguments)
        assert code == 0, f"{PREFIX}{name}: {code}"

    def until(self, place, name, *arguments):
        """Calls a function until it has written to `place`."""
        end = time.monotonic() + SECONDS
        while not place:
            self.call(name, *arguments)
            assert time.monotonic() < end, f"{PREFIX}{name} does not end"


def table():
    """Offsets of the library's functions by name."""
    listed = subprocess.run(["nm", "-C", LIBRARY], check=True, text=True, stdout=subprocess.PIPE)
    rows = (line.split(" ", 2) for line in listed.stdout.splitlines() if not line.startswith(" "))
    return {name.partition("(")[0]: int(offset, 16)
            for offset, kind, name in rows if kind in "tT" and "[clone" not in name}


def start(transport):
    """Initializes the transport and returns its context."""
    logger = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda _: None)
    context, settings = pointer(), (ctypes.c_int * SETTINGS)(*[UNDEFINED] * SETTINGS)
    transport.call("Init", ctypes.byref(context), 1, settings, ctypes.cast(logger, pointer), None)
    transport.logger = logger
    count = ctypes.c_int()
    transport.call("Devices", ctypes.byref(count))
    assert count.value > 0, "no device"
    return context


def run(transport, serves, pipe, rounds):
    """One of the two processes. The server receives."""
    context = start(transport)
    to_server = ctypes.create_string_buffer(HANDLE_BYTES)
    connection, device = pointer(), pointer()
    both = ctypes.byref(connection), ctypes.byref(device)
    if serves:
        listener = pointer()
        transport.call("Listen", context, 0, to_server, ctypes.byref(listener))
        os.write(pipe[1], to_server.raw)
        transport.until(connection, "Accept", listener, *both)
    else:
        to_server.raw = os.read(pipe[0], HANDLE_BYTES)
        transport.until(connection, "Connect", context, 0, to_server, *both)
    memory = ctypes.create_string_buffer(BYTES)
    key = pointer()
    transport.call("RegMr", connection, memory, BYTES, HOST_MEMORY, ctypes.byref(key))
    begin = time.monotonic()
    for number in range(rounds):
        content = bytes([number % 251]) * BYTES
        request = pointer()
        if serves:
            transport.until(request, "Irecv", connection, 1,
                            ctypes.byref(ctypes.cast(memory, pointer)),
                            ctypes.byref(ctypes.c_size_t(BYTES)), ctypes.byref(ctypes.c_int(TAG)),
                            ctypes.byref(key), None, ctypes.byref(request))
        else:
            ctypes.memmove(memory, content, BYTES)
            transport.until(request, "Isend", connection, memory, BYTES, TAG, key, None,
                            ctypes.byref(request))
        done, sizes = ctypes.c_int(), (ctypes.c_int * 8)()
        transport.until(done, "Test", request, ctypes.byref(done), sizes)
        assert not serves or memory.raw == content, "wrong bytes were received"
    return 8e-9 * BYTES * rounds / (time.monotonic() - begin)


def main():
    """Runs both processes."""
    rounds = int(sys.argv[1])
    offsets, pipe = table(), os.pipe()
    child = os.fork()
    gbps = run(Transport(offsets), child == 0, pipe, rounds)
    sys.stdout.flush()
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, "the other process failed"
    print(f"figure bandwidth_gbps {gbps:.2f}\nnccl ok")


if __name__ == "__main__":
    main()
