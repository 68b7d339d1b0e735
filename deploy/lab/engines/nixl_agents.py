"""NIXL: agents in processes of their own, each of which reads from the next one and writes to it.

Usage: nixl_agents.py AGENTS ROUNDS. Every byte is verified. Prints "nixl ok" and a figure.
"""

import multiprocessing
import sys
import time

import numpy
from nixl_cu12._api import nixl_agent, nixl_agent_config

BYTES = 4 << 20
SECONDS = 60


def pattern(number):
    """What the memory of an agent contains."""
    return (numpy.arange(BYTES, dtype=numpy.uint32) * 2654435761 + number * 97 >> 13).astype("u1")


def agent(number, agents, rounds, to_all, mine, barrier, gbps):
    """One agent."""
    own = nixl_agent(f"agent{number}", nixl_agent_config(backends=["UCX"]))
    read_from = pattern(number)
    written_to, place = numpy.zeros(BYTES, "u1"), numpy.zeros(BYTES, "u1")
    areas = [(memory.ctypes.data, BYTES, 0) for memory in (read_from, written_to, place)]
    registered = own.register_memory([(*area, "") for area in areas], "DRAM")
    shown = [own.get_serialized_descs(own.get_xfer_descs([area], "DRAM")) for area in areas]
    to_all[(number - 1) % agents].put((own.get_agent_metadata(), shown))
    metadata, theirs = mine.get(timeout=SECONDS)
    next_one = own.add_remote_agent(metadata)
    next_one = next_one.decode() if isinstance(next_one, bytes) else next_one
    source, target = (own.deserialize_descs(theirs[at]) for at in (0, 1))
    read = move(own, "READ", areas[2], source, next_one, rounds)
    assert (place == pattern((number + 1) % agents)).all(), "wrong bytes were read"
    move(own, "WRITE", areas[0], target, next_one, 1)
    barrier.wait(SECONDS)
    assert (written_to == pattern((number - 1) % agents)).all(), "wrong bytes were written"
    gbps[number] = read
    barrier.wait(SECONDS)
    own.remove_remote_agent(next_one)
    own.deregister_memory(registered)


def move(own, operation, area, remote, name, rounds):
    """Moves the memory several times and returns gigabits per second."""
    local = own.get_xfer_descs([area], "DRAM")
    handle = own.initialize_xfer(operation, local, remote, name)
    seconds = 0
    for _ in range(rounds):
        start = time.monotonic()
        state = own.transfer(handle)
        while state == "PROC":
            assert time.monotonic() < start + SECONDS, f"{operation} does not end"
            state = own.check_xfer_state(handle)
        assert state == "DONE", f"{operation}: {state}"
        seconds += time.monotonic() - start
    own.release_xfer_handle(handle)
    return 8e-9 * BYTES * rounds / seconds


def main():
    """Starts the agents and returns the exit status."""
    agents, rounds = int(sys.argv[1]), int(sys.argv[2])
    spawn = multiprocessing.get_context("spawn")
    to_all, barrier = [spawn.Queue() for _ in range(agents)], spawn.Barrier(agents)
    gbps = spawn.Array("d", agents)
    running = [spawn.Process(target=agent, args=(number, agents, rounds, to_all, to_all[number],
                                                 barrier, gbps), daemon=True)
               for number in range(agents)]
    for process in running:
        process.start()
    for process in running:
        process.join(SECONDS)
    if any(process.exitcode != 0 for process in running):
        print("ended with", *(process.exitcode for process in running))
        return 1
    print("nixl ok")
    print(f"figure read_gbps {sum(gbps):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
