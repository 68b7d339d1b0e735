"""The guest: a user-mode Linux that runs a plan of measurements and ends.

Its lines come from its console, each with the time at which this machine has read it. That clock
measures, because a guest's own clock could be wrong.
"""

import os
import select
import shutil
import subprocess
import time
from pathlib import Path

from report.failure import LabFailure
from vm import image, network

from . import bounded

INIT = Path(__file__).resolve().parent / "init"
MEMORY = "768M"
MARK = "uroce: "
# The guest's processes are processes of this machine that user-mode Linux traces. They would run on
# here without it, so they are in a namespace that ends with its first process.
ALONE = ("--pid", "--fork", "--kill-child=KILL")
# Lines that are shown of a console that breaks off.
LAST_LINES = 12


def lines(kernel, base, plan, silence, folder):
    """Boots, runs the plan, and gives (time, line) for each line of `init`. Raises LabFailure if
    the guest says nothing for `silence` seconds, or ends before the plan does."""
    root, initramfs = folder / "root", folder / "initramfs.cpio"
    root.mkdir()
    shutil.copy(INIT, root / "init")
    (root / "plan").write_text(plan)
    image.pack_over(base, root, initramfs)
    command = [*network.isolation(*ALONE), "sh", "-c", '"$@"; exit $?', "sh", kernel.program,
               f"mem={MEMORY}", f"initrd={initramfs}", f"uml_dir={folder}",
               "con=null", "con0=null,fd:1", "quiet", "panic=1"]
    with bounded.started(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as guest:
        shown = []
        for moment, line in arriving(guest.stdout.fileno(), silence):
            if not line.startswith(MARK):
                shown = [*shown, line][-LAST_LINES:]
                continue
            if line == f"{MARK}done":
                return
            yield moment, line.removeprefix(MARK)
        console = "\n".join(shown)
        raise LabFailure(f"user-mode Linux ended, or said nothing for {silence} s; its console "
                         f"ends:\n{console}")


def arriving(console, silence):
    """Gives (time, line) for each whole line of a console, up to its end or `silence` seconds
    without output."""
    rest = b""
    while select.select([console], [], [], silence)[0]:
        moment = time.monotonic()
        chunk = os.read(console, 65536)
        if not chunk:
            break
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield moment, line.decode(errors="replace").rstrip("\r")
