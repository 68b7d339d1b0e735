"""Tests of results.py: what passed before."""

import tempfile
import unittest
from pathlib import Path

import results
from results import Test

LOG = """
    Starting 3 tests across 2 binaries
        PASS [   0.006s] (  1/903) uroce-cm agreement::tests::an_offer
        FAIL [   0.482s] (125/903) uroce-local::members one_link
        SLOW [> 30.000s] (126/903) uroce-shared slow
        PASS [  31.000s] (127/903) uroce-shared slow
  stdout: PASS [ 1s] (1/2) not a-line-of-nextest really
"""


class PassedBefore(unittest.TestCase):
    """passed_before"""

    def test_what_passed_is_read_from_the_log_and_nothing_else(self):
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder, "unit-tests.log")
            log.write_text(LOG)
            found = results.passed_before([log])
        self.assertEqual(found, {Test("uroce-cm", "agreement::tests::an_offer"),
                                 Test("uroce-shared", "slow")})
        self.assertEqual(results.passed_before([]), set())


if __name__ == "__main__":
    unittest.main()
