"""Mends the invariant CRC of FLUSHes between a guest and uroce: `mender.py GUEST_SIDE UROCE_SIDE`.

The Soft-RoCE of Linux 6.12 computes it over BTH, FETH and RETH twice. Its table of opcodes does not
say where the payload of a FLUSH begins, so it takes the whole transport packet for payload, and the
CRC covers the headers and then the payload. It sends FLUSHes with that CRC and drops those with the
right one. Two such kernels agree with each other, and with no implementation of the standard; the
captures `rxe-rc-placement-*.pcap` of the golden vectors are evidence.

A frame that the mender does not understand, or with a CRC that its side does not make, passes
unchanged. All other frames do, too.
"""

import select
import socket
import sys
import zlib

ETHERNET_BYTES = 14
IPV4, IPV6 = b"\x08\x00", b"\x86\xdd"
UDP, ROCE_PORT = 17, 4791
UDP_BYTES, BTH_BYTES, CRC_BYTES = 8, 12, 4
FLUSH = 0x1c
ALL_PROTOCOLS = 3
BUFFER = 16 << 20
FRAME_MAX = 65536


def mended(frame, from_guest):
    """The frame with the CRC that its receiver computes."""
    packet = packet_of(frame)
    if packet is None:
        return frame
    ip, bth = packet
    if ip[bth] != FLUSH:
        return frame
    right, twice = crc(ip, bth), crc(ip, bth, ip[bth:-CRC_BYTES])
    made, wanted = (twice, right) if from_guest else (right, twice)
    if bytes(ip[-CRC_BYTES:]) != made:
        return frame
    end = ETHERNET_BYTES + len(ip)
    return frame[:end - CRC_BYTES] + wanted + frame[end:]


def packet_of(frame):
    """The IP packet of a RoCE frame, without what Ethernet has added to it, and the place of its
    BTH. None if it is another frame."""
    kind, ip = frame[12:14], frame[ETHERNET_BYTES:]
    if kind == IPV4 and len(ip) >= 20 and ip[0] == 0x45 and ip[9] == UDP:
        at, end = 20, int.from_bytes(ip[2:4], "big")
    elif kind == IPV6 and len(ip) >= 40 and ip[6] == UDP:
        at, end = 40, 40 + int.from_bytes(ip[4:6], "big")
    else:
        return None
    bth = at + UDP_BYTES
    to_port = int.from_bytes(ip[at + 2:at + 4], "big")
    if to_port != ROCE_PORT or not bth + BTH_BYTES + CRC_BYTES <= end <= len(ip):
        return None
    return ip[:end], bth


def crc(ip, bth, again=b""):
    """The invariant CRC of an IP packet, whose changing fields count as ones, and of more bytes
    after it."""
    masked = bytearray(ip[:-CRC_BYTES])
    if bth == 28:
        ones = (1, 8, 10, 11)
    else:
        ones = (1, 2, 3, 7)
        masked[0] |= 0x0f
    # The UDP checksum, and the byte of the BTH with FECN and BECN.
    for at in (*ones, bth - 2, bth - 1, bth + 4):
        masked[at] = 0xff
    return zlib.crc32(b"\xff" * 8 + masked + again).to_bytes(CRC_BYTES, "little")


def opened(interface):
    """A socket for all frames of an interface."""
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS))
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
    end.bind((interface, ALL_PROTOCOLS))
    return end


def relay(guest, uroce):
    """Passes frames on in both directions, without an end."""
    while True:
        for end in select.select([guest, uroce], [], [])[0]:
            frame, (_, _, kind, *_) = end.recvfrom(FRAME_MAX)
            if kind == socket.PACKET_OUTGOING:
                continue
            other = uroce if end is guest else guest
            try:
                other.send(mended(frame, end is guest))
            except OSError:
                # The other side has no room, or is down: the frame is lost, as on a wire.
                continue


if __name__ == "__main__":
    relay(opened(sys.argv[1]), opened(sys.argv[2]))
