"""Tests of the recovery from guests that hang."""

import tempfile
import types
import unittest
from pathlib import Path

from report.failure import LabFailure
from report.result import NOT_RUN, PASS, Result
from vm.recovery import MOST_BOOTS, Recovery

CASE = types.SimpleNamespace(name="ucx tag=8 rxe serves")


class HungGuest:
    """A guest that answers nothing."""

    @staticmethod
    def run(text, seconds):
        raise LabFailure("the guest did not end")

    @staticmethod
    def last_words():
        return "BUG: soft lockup"


class Recovering(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.kept = Path(folder.name)
        self.boots = 0

    def boot(self):
        self.boots += 1

    def results(self, *outcomes):
        """A case that ends like this, attempt by attempt."""
        left = iter(outcomes)
        return lambda: Result(CASE, *next(left))

    def test_a_case_runs_again_on_a_fresh_guest(self):
        recovery = Recovery(self.boot, self.kept)
        result = recovery.attempt(CASE, HungGuest, self.results((NOT_RUN, "it hung"), (PASS, "")))
        self.assertEqual(result.verdict, PASS)
        self.assertIn("it hung", result.reason)
        self.assertIn("soft lockup", Path(result.pcap).read_text())
        self.assertEqual(self.boots, 1)

    def test_a_case_that_passes_needs_no_boot(self):
        result = Recovery(self.boot, self.kept).attempt(CASE, HungGuest, self.results((PASS, "")))
        self.assertEqual((result.reason, self.boots), ("", 0))

    def test_a_guest_that_hangs_again_and_again_is_given_up(self):
        recovery = Recovery(self.boot, self.kept)
        for _ in range(MOST_BOOTS + 2):
            result = recovery.attempt(CASE, HungGuest, lambda: Result(CASE, reason="it hung"))
            self.assertEqual(result.verdict, NOT_RUN)
        self.assertEqual(self.boots, MOST_BOOTS)

    def test_a_guest_that_does_not_boot_again_is_told_of(self):
        def fail():
            raise LabFailure("no memory")

        result = Recovery(fail, self.kept).attempt(
            CASE, HungGuest, self.results((NOT_RUN, "it hung")))
        self.assertEqual(result.verdict, NOT_RUN)
        self.assertIn("it hung; the guest does not boot again: no memory", result.reason)


if __name__ == "__main__":
    unittest.main()
