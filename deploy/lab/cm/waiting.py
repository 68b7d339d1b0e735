"""What the threads of a program wait for, from /proc: whether a server without TCP listens."""

import os
from pathlib import Path

# Name prefixes of threads that belong to the library.
THREADS = ("uroce", "dpdk", "eal", "rte", "telemetry", "lcore")
# System calls of x86-64 that wait for an event: read, poll, select, epoll_wait, pselect6, ppoll,
# epoll_pwait. The value is the index of the argument with the descriptor.
WAITS_FOR_EVENT = {0: 1, 7: 0, 23: 0, 232: 1, 270: 0, 271: 0, 281: 1}
# The futex call, and the operation that sem_wait uses: FUTEX_WAIT_BITSET, private, with the
# realtime clock. The library waits with another clock, and joins threads with a futex that is not
# private.
FUTEX, SEM_WAIT = 202, 9 | 128 | 256


def family(pid):
    """A process and its descendants."""
    found = [pid]
    for process in found:
        for task in Path(f"/proc/{process}/task").glob("*"):
            found += [int(child) for child in read(task / "children").split()]
    return found


def tasks(pid):
    """Threads of a process, without those of the library."""
    return [task for task in Path(f"/proc/{pid}/task").glob("*")
            if not read(task / "comm").startswith(THREADS)]


def waits_to_be_called(process):
    """Whether the first thread of a process waits for an event, or for a semaphore while another
    thread waits for an event."""
    first = Path(f"/proc/{process}/task/{process}")
    return waits_for_event(first) or (
        waits_for_semaphore(first) and any(waits_for_event(task) for task in tasks(process)))


def waits_for_semaphore(task):
    """Whether a thread is in sem_wait."""
    words = read(task / "syscall").split()
    return len(words) > 2 and words[0] == str(FUTEX) and int(words[2], 16) == SEM_WAIT


def waits_for_event(task):
    """Whether a thread waits in a system call for an event descriptor."""
    words = read(task / "syscall").split()
    if len(words) < 2 or not words[0].isdigit() or int(words[0]) not in WAITS_FOR_EVENT:
        return False
    if not WAITS_FOR_EVENT[int(words[0])]:
        return True
    try:
        return "eventfd" in os.readlink(task / f"fd/{int(words[1], 16)}")
    except OSError:
        return False


def read(path):
    """Reads a file of a process that may have ended. Empty in that case."""
    try:
        return path.read_text()
    except OSError:
        return ""
