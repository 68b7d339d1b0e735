"""Invalid management datagrams, made with scapy and sent to a uroce that serves. It must drop or
reject each, count it, and continue to serve.

As a program, `hostile.py INTERFACE TARGET.json` sends all of them. TARGET.json has the addresses
and the ids of an established connection. It prints the number of datagrams by kind.
"""

import collections
import json
import logging
import random
import struct
import sys

logging.getLogger("scapy").setLevel(logging.ERROR)

from scapy.contrib.roce import BTH  # noqa: E402
from scapy.layers.inet import IP, UDP  # noqa: E402
from scapy.layers.l2 import Ether  # noqa: E402
from scapy.packet import Raw  # noqa: E402
from scapy.config import conf  # noqa: E402

ROCE_PORT = 4791
MAD_BYTES = 256
HEADER_BYTES = 24
GSI_QKEY = 0x80010000
CM_CLASS, CM_VERSION, SEND = 7, 2, 3
REQ, MRA, REJ, REP, RTU, DREQ, DREP, SIDR_REQ, SIDR_REP, LAP, APR = range(0x10, 0x1B)
TCP_PORT_SPACE, UDP_PORT_SPACE = 0x0106, 0x0111
SEED = 7
PSN = 0x123456
ALTERNATE_BYTES = 44
# A port without a listener.
NOBODY = 7000
# Number of requests for a service that does not exist, from addresses that do not exist.
FLOOD = 500


class Target:
    """The attacked node, the attacker, and the connection between the node and its peer."""

    def __init__(self, path):
        with open(path) as text:
            known = json.load(text)
        self.mac, self.ip = known["mac"], known["ip"]
        self.peer_mac, self.peer_ip = known["peer_mac"], known["peer_ip"]
        self.port = known["port"]
        # Communication ids and QPNs of a connection between the two.
        self.id, self.peer_id = known["id"], known["peer_id"]
        self.qpn, self.peer_qpn = known["qpn"], known["peer_qpn"]

    def frame(self, mad, source=None, qkey=GSI_QKEY, pkey=0xFFFF, opcode=100, spoil=b""):
        """A frame to QP 1 with a valid ICRC, unless `spoil` follows it."""
        deth = struct.pack(">II", qkey, 1)
        return (Ether(src=self.peer_mac, dst=self.mac)
                / IP(src=source or self.peer_ip, dst=self.ip, flags="DF", ttl=64, id=1)
                / UDP(sport=0xC123, dport=ROCE_PORT, chksum=0)
                / BTH(opcode=opcode, pkey=pkey, dqpn=1, psn=random.getrandbits(24))
                / Raw(deth + mad + spoil))


def mad(attribute, body=b"", version=1, mgmt=CM_CLASS, classes=CM_VERSION, method=SEND, status=0):
    """A MAD of 256 bytes."""
    head = struct.pack(">BBBBHHQHHI", version, mgmt, classes, method, status, 0,
                       random.getrandbits(64), attribute, 0, 0)
    return (head + body).ljust(MAD_BYTES, b"\0")


def request(target, **changed):
    """The body of a REQ. Keywords replace fields with wrong values."""
    known = {
        "id": random.getrandbits(32), "space": TCP_PORT_SPACE, "port": target.port,
        "guid": 0x1234, "qpn": 0x77, "depths": (1, 1), "service": 0, "pkey": 0xFFFF, "mtu": 5,
        "gid": None, "version": 0x40, "source": target.peer_ip, "hops": 64, **changed,
    }
    source = gid(known["source"])
    responder, initiator = known["depths"]
    return b"".join((
        struct.pack(">IIQQII", known["id"], 0, known["space"] << 16 | known["port"],
                    known["guid"], 0, 0),
        struct.pack(">III", known["qpn"] << 8 | responder, initiator, 0xA0 | known["service"] << 1),
        struct.pack(">IHBB", PSN << 8 | 0xA7, known["pkey"], known["mtu"] << 4 | 7, 0xF0),
        struct.pack(">HH", 0xFFFF, 0xFFFF), known["gid"] or source, gid(target.ip),
        struct.pack(">IBBBB", 0, 0, known["hops"], 0, 0x98), bytes(ALTERNATE_BYTES),
        struct.pack(">BBH", 0, known["version"], 40000),
        source[-4:].rjust(16, b"\0"), gid(target.ip)[-4:].rjust(16, b"\0"),
    ))


def gid(address):
    """An IPv4 address as a GID."""
    return bytes(10) + b"\xff\xff" + bytes(map(int, address.split(".")))


def frames(target):
    """All frames, as pairs of kind and frame."""
    yield from malformed(target)
    yield from unknown(target)
    yield from forged(target)
    yield from wrong_requests(target)
    for number in range(FLOOD):
        source = f"192.0.2.{100 + number % 100}"
        body = request(target, port=NOBODY, source=source)
        yield "flood", target.frame(mad(REQ, body), source=source)


def malformed(target):
    """Datagrams that are not MADs, or not of a supported class."""
    whole = mad(REQ, request(target, port=NOBODY))
    for size in (0, 1, 8, HEADER_BYTES - 1, HEADER_BYTES, 100, 252, MAD_BYTES - 1):
        yield "truncated", target.frame(whole[:size])
    for size in (1, 4, 256, 1792, 3840):
        yield "too long", target.frame(whole, spoil=bytes(size))
    for kind, field, values in (
            ("base version", "version", (0, 2)), ("class", "mgmt", (1, 3, 0x81)),
            ("class version", "classes", (1, 3)), ("method", "method", (0x81, 0x12))):
        for value in values:
            yield kind, target.frame(mad(REQ, request(target, port=NOBODY), **{field: value}))
    for attribute in (0, 1, 0x0F, 0x1B, 0x1000, 0xFFFF):
        yield "attribute", target.frame(mad(attribute, request(target, port=NOBODY)))
    for qkey in (0, 0x01234567, 0x80010001):
        yield "Q_Key", target.frame(whole, qkey=qkey)
    yield "P_Key", target.frame(whole, pkey=0x1234)
    for opcode in (101, 4, 36, 0x81):
        yield "opcode", target.frame(whole, opcode=opcode)
    broken = bytearray(bytes(target.frame(whole)))
    broken[-1] ^= 1
    yield "ICRC", Raw(bytes(broken))


def unknown(target):
    """Messages of connections that do not exist."""
    for attribute in (MRA, REJ, REP, RTU, DREQ, DREP, LAP, APR, SIDR_REP):
        for _ in range(3):
            yield "unknown id", target.frame(mad(attribute, random.randbytes(232)))


def forged(target):
    """Messages of the existing connection with a wrong field."""
    ids = struct.pack(">II", target.peer_id, target.id)
    other_id = struct.pack(">II", target.peer_id ^ 1, target.id)
    qpn = struct.pack(">I", target.qpn << 8)
    wrong_qpn = struct.pack(">I", (target.qpn ^ 1) << 8)
    yield "forged DREQ", target.frame(mad(DREQ, ids + wrong_qpn))
    yield "forged DREQ", target.frame(mad(DREQ, other_id + qpn))
    yield "forged DREQ", target.frame(mad(DREQ, ids + bytes(4)))
    yield "forged DREP", target.frame(mad(DREP, ids))
    yield "forged APR", target.frame(mad(APR, ids))
    here, there = gid(target.ip), gid(target.peer_ip)
    for local, remote, number in ((there, here, target.qpn ^ 1), (gid("192.0.2.99"), here,
                                  target.qpn ^ 1), (bytes(16), bytes(16), target.qpn)):
        body = ids + bytes(4) + struct.pack(">I", number << 8 | 0xA0) + bytes(4)
        body += struct.pack(">HH", 0xFFFF, 0xFFFF) + local + remote + bytes(8)
        yield "forged LAP", target.frame(mad(LAP, body))


def wrong_requests(target):
    """REQs that must be rejected, and SIDR_REQs for a port without a listener."""
    for wrong in ({"port": NOBODY}, {"space": 0x0107}, {"space": 0}, {"qpn": 0}, {"service": 3},
                  {"mtu": 0}, {"mtu": 7}, {"version": 0x50}, {"gid": bytes(16)},
                  {"gid": b"\xff" * 16}, {"pkey": 0x1234}):
        yield "wrong REQ", target.frame(mad(REQ, request(target, **wrong)))
    for space, port in ((UDP_PORT_SPACE, 1), (TCP_PORT_SPACE, target.port), (0, 0)):
        body = struct.pack(">IHHQ", random.getrandbits(32), 0xFFFF, 0, space << 16 | port)
        yield "wrong SIDR_REQ", target.frame(mad(SIDR_REQ, body))


def main(interface, path):
    """Sends all frames and prints their numbers by kind."""
    random.seed(SEED)
    count = collections.Counter()
    link = conf.L2socket(iface=interface)
    for kind, frame in frames(Target(path)):
        link.send(bytes(frame))
        count[kind] += 1
    print(json.dumps(count))


if __name__ == "__main__":
    main(*sys.argv[1:])
