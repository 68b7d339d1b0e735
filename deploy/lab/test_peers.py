"""Tests of what is said of a stock program that failed."""

import types
import unittest

from dataplane.peers import GuestSession
from vm.guest import Output

FAULT = "ibv_rc_pingpong[7]: segfault at 0 ip 00007f01 sp 00007f02 error 4 in libibverbs.so.1"


class Peer:
    """A guest whose kernel has seen a fault."""

    @staticmethod
    def last_message():
        return FAULT


class Ending(unittest.TestCase):
    def fault(self, status, text=""):
        case = types.SimpleNamespace(seconds=60)
        return GuestSession(Peer, case, None, 0, serving=True).fault(Output(status, text))

    def test_a_program_that_a_signal_ends_has_its_name_and_the_kernels_words(self):
        self.assertEqual(
            self.fault(139), f"Linux's program ended with: Segmentation fault; its kernel: {FAULT}")

    def test_a_program_that_the_laboratory_ends_is_broken_off(self):
        self.assertEqual(self.fault(137), "broken off")

    def test_a_program_that_ends_by_itself_has_its_own_words(self):
        self.assertEqual(self.fault(1, "Failed status 12"), "status 1: Failed status 12")


if __name__ == "__main__":
    unittest.main()
