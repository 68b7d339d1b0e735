"""Tests of the mender of FLUSHes with the golden captures of two Linux 6.12 kernels."""

import pathlib
import struct
import unittest

from vm import mender

VECTORS = pathlib.Path(__file__).resolve().parents[2] / "dataplane/wire/tests/vectors"
FLUSH = 0x1c


def frames(name):
    """The frames of a golden capture."""
    capture, at = (VECTORS / f"{name}.pcap").read_bytes(), 24
    while at < len(capture):
        [length] = struct.unpack("<I", capture[at + 8:at + 12])
        yield capture[at + 16:at + 16 + length]
        at += 16 + length


def packets(name):
    """The RoCE frames of a capture with their IP packet, the place of its BTH, and its opcode."""
    for frame in frames(name):
        found = mender.packet_of(frame)
        if found:
            yield frame, *found, found[0][found[1]]


class Mending(unittest.TestCase):
    def each(self):
        """The packets of both IP versions."""
        for name in ("rxe-rc-placement-v4", "rxe-rc-placement-v6"):
            yield from packets(name)

    def test_soft_roce_computes_all_but_a_flush_as_the_standard_has_it(self):
        opcodes = set()
        for _, ip, bth, opcode in self.each():
            opcodes.add(opcode)
            self.assertEqual(mender.crc(ip, bth) == ip[-4:], opcode != FLUSH, hex(opcode))
        # WRITE Last and ATOMIC WRITE, a response and an acknowledgement.
        self.assertLessEqual({0x08, FLUSH, 0x1d, 0x10, 0x11}, opcodes)

    def test_a_flush_has_the_right_crc_for_uroce_and_its_own_for_the_guest(self):
        flushes = [(frame, ip, bth) for frame, ip, bth, opcode in self.each() if opcode == FLUSH]
        self.assertEqual(len(flushes), 8)
        for frame, ip, bth in flushes:
            right = mender.mended(frame, from_guest=True)
            self.assertEqual(right[:-4], frame[:-4])
            self.assertEqual(right[-4:], mender.crc(ip, bth))
            self.assertEqual(mender.mended(right, from_guest=False), frame)

    def test_what_ethernet_has_added_stays_behind_the_crc(self):
        frame = next(frame for frame, *_, opcode in self.each() if opcode == FLUSH)
        padded = mender.mended(frame + b"pad", from_guest=True)
        self.assertEqual(padded, mender.mended(frame, from_guest=True) + b"pad")

    def test_everything_else_passes_unchanged(self):
        every = list(frames("rxe-rc-placement-v4")) + list(frames("rxe-cm-rping-v6"))
        others = [frame for frame in every
                  if not (found := mender.packet_of(frame)) or found[0][found[1]] != FLUSH]
        flush = next(frame for frame, *_, opcode in self.each() if opcode == FLUSH)
        corrupt = bytes([*flush[:-1], flush[-1] ^ 1])
        cut = [flush[:length] for length in range(len(flush))]
        for frame in [*others, corrupt, *cut, b"", bytes(60)]:
            for from_guest in (True, False):
                self.assertEqual(mender.mended(frame, from_guest), frame)


if __name__ == "__main__":
    unittest.main()
