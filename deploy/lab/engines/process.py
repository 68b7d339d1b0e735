"""The processes of a session: starts them in order, awaits them, and leaves none behind."""

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass

from vm import network

LISTEN_SECONDS = 20
# Seconds for a launcher to end its ranks, and for a server after its client has ended.
FAREWELL_SECONDS = 5


@dataclass(frozen=True)
class End:
    """A process of a session, and all that it starts."""

    words: tuple
    environment: tuple = ()
    """Variables, as NAME=value."""
    listens: int = 0
    """TCP port at which the process listens. The next one starts when it does."""
    last_line: str = ""
    """Beginning of the last line. If set, the process counts as ended when it has printed that."""
    is_daemon: bool = False
    """Whether the process must be ended when the last one has ended."""


class Failed(Exception):
    """A process of the session has failed, hangs, or does not listen."""


def hold(ends, prefix, seconds, log):
    """Runs a session of at most `seconds`, each process with the words `prefix` before its own.
    Returns the output of the last one. `log` is the folder of the outputs."""
    deadline = time.monotonic() + seconds
    with contextlib.ExitStack() as stack:
        started = []
        for number, end in enumerate(ends):
            path = log / f"{number}.log"
            process = stack.enter_context(running(end, prefix, path))
            started.append((end, process, path))
            if end.listens:
                await_listening(end, process, path)
        for end, process, path in reversed(started):
            if end.is_daemon:
                continue
            await_end(end, process, path, deadline)
            # The servers of a client that has ended.
            deadline = min(deadline, time.monotonic() + FAREWELL_SECONDS)
        return started[-1][2].read_text(errors="replace")


@contextlib.contextmanager
def running(end, prefix, path):
    """Starts a process in a process group of its own, and ends the group afterwards."""
    environment = {**os.environ, **dict(word.split("=", 1) for word in end.environment)}
    words = [str(word) for word in (*prefix, *end.words)]
    with open(path, "wb") as output:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                   env=environment, start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            # A launcher ends its ranks, which may be in groups of their own.
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(FAREWELL_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def await_listening(end, process, path):
    """Returns when the process listens."""
    deadline = time.monotonic() + LISTEN_SECONDS
    while not network.listening(end.listens):
        if process.poll() is not None:
            raise Failed(f"{name(end)}: status {process.returncode}: {last_words(path)}")
        if time.monotonic() > deadline:
            raise Failed(f"{name(end)} does not listen at {end.listens}: {last_words(path)}")
        time.sleep(0.02)


def await_end(end, process, path, deadline):
    """Returns when the process has ended well."""
    while process.poll() is None:
        if end.last_line and f"\n{end.last_line}" in path.read_text(errors="replace"):
            return
        if time.monotonic() > deadline:
            raise Failed(f"{name(end)} has not ended: {last_words(path)}")
        time.sleep(0.02)
    if process.returncode != 0:
        raise Failed(f"{name(end)}: status {process.returncode}: {last_words(path)}")


def name(end):
    """The name of a process, for messages."""
    return os.path.basename(str(end.words[0]))


def last_words(path):
    """The end of an output, in one line."""
    lines = path.read_text(errors="replace").strip().splitlines()
    return " | ".join(line.strip() for line in lines[-4:])[-400:] or "no output"
