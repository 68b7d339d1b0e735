"""Programs with an end: each has a time limit and ends, with its children, when this one does."""

import contextlib
import os
import signal
import subprocess

from report.failure import LabFailure

# A process group that is told to end outlives this program if that is killed; PDEATHSIG reaches at
# least its first process then.
ENDS_WITH_THIS = ("setpriv", "--pdeathsig", "KILL")


@contextlib.contextmanager
def started(command, **options):
    """A context with a running program, whose process group is killed at its end."""
    process = subprocess.Popen([*ENDS_WITH_THIS, *(str(word) for word in command)],
                               stdin=subprocess.DEVNULL, start_new_session=True, **options)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run(command, seconds, log, what, environment=None):
    """Runs a program with its output in a file. Raises LabFailure if it fails or takes longer than
    `seconds`."""
    with open(log, "w") as output, started(command, stdout=output, stderr=subprocess.STDOUT,
                                           env=environment) as process:
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise LabFailure(f"{what} took longer than {seconds} s; its output is in {log}") \
                from None
    if status != 0:
        raise LabFailure(f"{what} failed with status {status}; all output is in {log}\n"
                         f"{blame(log.read_text(errors='replace'))}")


def blame(text):
    """The lines of a log that tell of an error, or its last lines."""
    lines = text.splitlines()
    errors = [line for line in lines if "error" in line.lower() or "No space" in line]
    return "\n".join((errors or lines)[-8:])
