"""Sessions of uroce at a terminal: python3 deploy/lab/cli BUILD, where BUILD has the programs.

Each session types keys in tmux and compares the screen with a golden one (`screens/`), or attaches
to a program that runs over uroce. Exit status 0 if all of them pass.
"""

import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

import attach
import commands
import prompt
import shells
from terminal import Mismatch


def main():
    if len(sys.argv) != 2 or not Path(sys.argv[1], "uroce").exists():
        print(__doc__.splitlines()[0], file=sys.stderr)
        return 2
    build = Path(sys.argv[1]).resolve()
    failed = 0
    for session in (*prompt.SESSIONS, *shells.SESSIONS, *commands.SESSIONS, *attach.SESSIONS):
        begin, work = time.monotonic(), Path(tempfile.mkdtemp(prefix="uroce-cli."))
        try:
            session(build, work)
            verdict = "ok"
        except (Mismatch, AssertionError, OSError, TypeError, ValueError,
                subprocess.SubprocessError) as error:
            traceback.print_exception(error)
            verdict, failed = "FAILED", failed + 1
        finally:
            shutil.rmtree(work)
        about = session.__doc__.splitlines()[0]
        print(f"{verdict:<6} {time.monotonic() - begin:5.1f} s  {about}", flush=True)
    return 1 if failed else 0


sys.exit(main())
