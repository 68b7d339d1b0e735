"""Repeats a case on a guest that was booted again, after the first one stopped answering.

A program in the guest may hang in the kernel, where SIGKILL does not end it (Soft-RoCE waits there
for references to a QP). Without a new guest, all further cases of the suite would be lost too.
"""

import contextlib
import re

from report.failure import LabFailure
from report.result import NOT_RUN, keep

# Most boots of one suite. A guest that hangs more often has a fault that must be looked at.
MOST_BOOTS = 3
# Seconds for the guest to say where its programs hang.
QUESTION_SECONDS = 10
# Tasks in an uninterruptible wait with their kernel stacks, and the kernel's last messages.
WHERE_IT_HANGS = """for task in /proc/[0-9]*/task/[0-9]*; do
    grep -q '^State:.D' $task/status 2>/dev/null || continue
    echo "$task $(cat $task/comm)"; cat $task/stack
done; dmesg | tail -40"""


class Recovery:
    """Boots the guest of one suite again when a case could not run."""

    def __init__(self, boot, kept):
        """`boot` ends what the case has left running and boots the guest again. `kept` is the
        folder for the hung guest's state."""
        self.boot = boot
        self.kept = kept
        self.boots = 0

    def attempt(self, case, guest, run):
        """The result of `run`. Repeats it once with a fresh guest if the laboratory failed."""
        first = run()
        if first.verdict != NOT_RUN or guest is None or self.boots == MOST_BOOTS:
            return first
        self.boots += 1
        name = re.sub(r"\W+", "-", case.name)
        first.pcap = keep(self.kept, f"{name}-guest", where_it_hangs(guest), b"")
        try:
            self.boot()
        except (LabFailure, OSError) as error:
            first.reason += f"; the guest does not boot again: {error}"
            return first
        second = run()
        second.reason = "; ".join(filter(None, [
            second.reason, f"with a fresh guest, after: {first.reason}"]))
        second.pcap = second.pcap or first.pcap
        return second


def where_it_hangs(guest):
    """The hung tasks of the guest and its last messages, as far as it still answers."""
    answer = "the guest does not answer"
    with contextlib.suppress(LabFailure, OSError):
        answer = guest.run(WHERE_IT_HANGS, QUESTION_SECONDS).text
    return f"{answer}\n\nconsole:\n{guest.last_words()}\n"
