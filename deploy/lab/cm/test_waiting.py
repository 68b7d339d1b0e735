"""Tests that a program's state of listening is derived from what its threads wait for."""

import subprocess
import sys
import time
import unittest
from pathlib import Path

from cm import waiting

SECONDS = 20
SEMAPHORE = "import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()"
# Another thread waits for events, as in rping, while the first does something else or has ended.
EVENTS = ("import os, threading; event = os.eventfd(0); "
          "threading.Thread(target=os.eventfd_read, args=(event,), daemon=True).start(); ")
BUSY = "import time; time.sleep(60)"


class Waiting(unittest.TestCase):
    def waits(self, text):
        """Whether a program with this text waits for an event within a second."""
        program = subprocess.Popen([sys.executable, "-c", text])
        try:
            deadline = time.monotonic() + SECONDS
            while len(list(Path(f"/proc/{program.pid}/task").glob("*"))) < 1 + ("Thread(" in text):
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.01)
            return any(self.looks(program) for _ in range(100))
        finally:
            program.kill()
            program.wait()

    @staticmethod
    def looks(program):
        time.sleep(0.01)
        return waiting.waits_to_be_called(program.pid)

    def test_the_first_thread_may_wait_for_the_event(self):
        self.assertTrue(self.waits("import os; os.eventfd_read(os.eventfd(0))"))

    def test_the_first_thread_may_wait_for_another_that_does(self):
        self.assertTrue(self.waits(EVENTS + SEMAPHORE))

    def test_while_the_first_thread_does_something_else_it_does_not_listen_yet(self):
        self.assertFalse(self.waits(EVENTS + BUSY))

    def test_a_semaphore_without_a_poster_is_no_event(self):
        self.assertFalse(self.waits(SEMAPHORE))


if __name__ == "__main__":
    unittest.main()
