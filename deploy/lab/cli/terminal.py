"""A terminal of 100 columns and 30 rows in a tmux server of its own."""

import contextlib
import itertools
import os
import re
import subprocess
import time
from pathlib import Path

# Runs a program and says how it has ended. tmux itself now and then does not learn it.
LAST_WORDS = 'sh', "-c", '"$@"; echo "ended with $?"; exec cat', "sh"
# A server that ends still answers at its socket for a moment, so each has its own.
NUMBERS = itertools.count()
# Seconds for a screen to come, on a machine under load.
PATIENCE = 30
# Seconds between a screen and keys, as a person needs.
PAUSE = 0.2
SCREENS = Path(__file__).parent / "screens"


class Mismatch(Exception):
    """The screen is not the golden one."""


class Terminal:
    """A program at a terminal. To be used with `with`."""

    def __init__(self, work, *command, **environment):
        self.socket = str(work / f"tmux{next(NUMBERS)}")
        variables = {**os.environ, "TERM": "screen", "NO_COLOR": "1", "XDG_STATE_HOME": str(work),
                     **environment}
        variables.pop("TMUX", None)
        self.tmux = lambda *words: subprocess.run(
            ["tmux", "-S", self.socket, "-f", "/dev/null", *words],
            env=variables, check=True, capture_output=True, text=True,
        ).stdout
        self.command = command

    def __enter__(self):
        self.tmux("new-session", "-d", "-x", "100", "-y", "30", *LAST_WORDS, *self.command)
        return self

    def __exit__(self, *_error):
        with contextlib.suppress(subprocess.CalledProcessError):
            self.tmux("kill-server")

    def types(self, *keys):
        """Types text, or keys by tmux's names: Tab, Enter, C-r, Up."""
        # A prompt is shown shortly before keys are read, and what comes before is lost.
        time.sleep(PAUSE)
        for key in keys:
            literal = [] if re.fullmatch(r"Tab|Enter|Space|Up|C-.", key) else ["-l"]
            self.tmux("send-keys", *literal, "--", key)

    def screen(self):
        """The lines of the screen, without blanks at their ends and empty lines at the end."""
        return [line.rstrip() for line in self.tmux("capture-pane", "-p").rstrip().splitlines()]

    def shows(self, golden):
        """Waits until the screen fits the golden one of this name, in which `…` stands for any
        text, and alone in a line for any lines."""
        pattern = (SCREENS / f"{golden}.txt").read_text(encoding="utf-8").rstrip().splitlines()
        self.until(lambda screen: fits(screen, pattern), f"screens/{golden}.txt")

    def says(self, text):
        """Waits until a line of the screen contains the text."""
        self.until(lambda screen: any(text in line for line in screen), repr(text))

    def until(self, check, what):
        """Waits until the screen passes the check."""
        end = time.monotonic() + PATIENCE
        while not check(screen := self.screen()):
            if time.monotonic() > end:
                raise Mismatch("the screen is not " + what + ":\n" + "\n".join(screen))
            time.sleep(0.05)


def fits(lines, pattern):
    """Whether lines are those of a pattern."""
    if not pattern:
        return not lines
    if pattern[0] == "…":
        return any(fits(lines[skipped:], pattern[1:]) for skipped in range(len(lines) + 1))
    if not lines:
        return False
    parts = ".*".join(re.escape(part) for part in pattern[0].split("…"))
    return bool(re.fullmatch(parts, lines[0])) and fits(lines[1:], pattern[1:])
