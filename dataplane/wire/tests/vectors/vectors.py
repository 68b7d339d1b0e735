#!/usr/bin/env python3
"""Makes and reads RoCEv2 packets with scapy and tshark, to compare uroce-wire with them.

    vectors.py make DIR        scapy builds a packet of every opcode, in four encapsulations,
                               into DIR/*.pcap; what tshark and scapy read in them goes into
                               DIR/*.json
    vectors.py read FILE.pcap  prints what tshark and scapy read in FILE, as JSON

One JSON object per packet: tshark's fields by tshark's names (absent where the packet has none),
scapy's FECN and BECN, which tshark does not show, and the invariant CRC that scapy (IPv4) or
zlib by the rules below (IPv6, which scapy lacks) computes. Needs tshark and scapy >= 2.5.
"""

import json
import logging
import subprocess
import sys
import zlib
from pathlib import Path
from struct import pack

logging.getLogger("scapy").setLevel(logging.ERROR)

from scapy.contrib.roce import AETH, BTH  # noqa: E402
from scapy.layers.inet import IP, UDP  # noqa: E402
from scapy.layers.inet6 import IPv6  # noqa: E402
from scapy.layers.l2 import Dot1Q, Ether  # noqa: E402
from scapy.packet import Raw  # noqa: E402
from scapy.utils import rdpcap, wrpcap  # noqa: E402

FIELDS = """
    eth.dst eth.src vlan.id vlan.priority
    ip.src ip.dst ip.dsfield ip.ttl ip.id ip.flags.df ip.checksum.status
    ipv6.src ipv6.dst ipv6.tclass ipv6.flow ipv6.hlim
    udp.srcport udp.dstport udp.length udp.checksum
    infiniband.bth.opcode infiniband.bth.se infiniband.bth.m infiniband.bth.padcnt
    infiniband.bth.tver infiniband.bth.p_key infiniband.bth.destqp infiniband.bth.a
    infiniband.bth.psn
""".split()
INNER_FIELDS = """
    infiniband.deth.q_key infiniband.deth.srcqp
    infiniband.reth.va infiniband.reth.r_key infiniband.reth.dmalen
    infiniband.atomiceth.swapdt infiniband.atomiceth.cmpdt
    infiniband.aeth.syndrome infiniband.aeth.msn infiniband.atomicacketh.origremdt
    infiniband.immdt infiniband.ieth infiniband.invariant.crc data.len
""".split()

# Upper-layer dissectors that would take a payload of counting bytes for their own.
UPPER_LAYERS = """
    smc smb_direct rpcordma nvme-rdma lnet iser infiniband.eoib infiniband_sdp fcoib
""".split()

RC, UC, RD, UD, CNP, XRC = 0x00, 0x20, 0x40, 0x60, 0x81, 0xA0
# tshark 4.0 reads RDETH eight bytes too far, and shows nothing after the BTH of XRC and CNP.
UNREADABLE = {RD, XRC, CNP & 0xE0}


def main(args):
    match args:
        case ["make", directory]:
            for name, wrap in ENCAPSULATIONS.items():
                path = Path(directory) / f"{name}.pcap"
                packets = [build(wrap, opcode) for opcode in OPCODES]
                for seconds, packet in enumerate(packets):
                    packet.time = seconds
                wrpcap(str(path), packets)
                lines = ",\n".join(json.dumps(row) for row in read(path))
                path.with_suffix(".json").write_text(f"[\n{lines}\n]\n")
        case ["read", path]:
            json.dump(read(path), sys.stdout)
        case _:
            sys.exit(__doc__)


# --- reading with tshark and scapy --------------------------------------------------------------


def read(path):
    """One dictionary per packet of the capture."""
    command = ["tshark", "-n", "-r", str(path), "-T", "json", "-o", "ip.check_checksum:TRUE"]
    command += [arg for name in UPPER_LAYERS for arg in ("--disable-protocol", name)]
    command += [arg for name in FIELDS + INNER_FIELDS for arg in ("-e", name)]
    run = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    rows = []
    for packet, dissected in zip(rdpcap(str(path)), json.loads(run.stdout), strict=True):
        layers = dissected["_source"]["layers"]
        known = FIELDS if packet[BTH].opcode & 0xE0 in UNREADABLE else FIELDS + INNER_FIELDS
        row = {name: value(name, layers[name][0]) for name in known if name in layers}
        row |= {"scapy.fecn": packet[BTH].fecn, "scapy.becn": packet[BTH].becn}
        row["icrc"] = computed_icrc(packet).hex()
        rows.append(row)
    return rows


def value(name, text):
    """A number where tshark prints one, in any base; hexadecimal text for byte strings."""
    if name in ("infiniband.immdt", "infiniband.ieth"):
        return text.replace(":", "")
    if text in ("True", "False"):
        return int(text == "True")
    try:
        return int(text, 0)
    except ValueError:
        return text


def computed_icrc(packet):
    """The invariant CRC that a packet should have, computed here, and for IPv4 by scapy too."""
    if IPv6 in packet:
        return icrc(bytes(packet[IPv6])[:-4])
    by_scapy = packet[BTH].compute_icrc(None)
    assert by_scapy == icrc(bytes(packet[IP])[:-4]), "scapy's rules are not ours"
    return by_scapy


def icrc(l3):
    """CRC-32 of eight bytes of ones and the packet, with ones for fields that may change."""
    masked = bytearray(l3)
    if l3[0] >> 4 == 4:
        udp, ones = 20, [1, 8, 10, 11]
    else:
        udp, ones = 40, [1, 2, 3, 7]
        masked[0] |= 0x0F
    for at in ones + [udp + 6, udp + 7, udp + 8 + 4]:
        masked[at] = 0xFF
    return pack("<I", zlib.crc32(b"\xff" * 8 + masked))


# --- building with scapy ------------------------------------------------------------------------


def ip4(**fields):
    return IP(src="192.0.2.1", dst="198.51.100.2", id=0, flags="DF", tos=0x6A, ttl=63, **fields)


def ip6(**fields):
    addresses = {"src": "2001:db8::1", "dst": "2001:db8:ffff::abcd"}
    return IPv6(**addresses, tc=0x6A, fl=0x12345, hlim=62, **fields)


ETHER = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
TAG = Dot1Q(vlan=0x123, prio=5)
ENCAPSULATIONS = {
    "ipv4": lambda: ETHER / ip4(),
    "ipv4-vlan": lambda: ETHER / TAG / ip4(),
    "ipv6": lambda: ETHER / ip6(),
    "ipv6-vlan": lambda: ETHER / TAG / ip6(),
}

# The five low bits of opcodes, by extended headers, direction and payload.
RETH_OPS, IMMEDIATE_OPS, INVALIDATE_OPS = {6, 10, 11, 12}, {3, 5, 9, 11}, {22, 23}
AETH_OPS, ATOMIC_OPS, RESPONSES = {13, 15, 16, 17, 18}, {19, 20}, range(13, 19)
FULL_OPS, LAST_OPS, EMPTY_OPS = {0, 1, 6, 7, 13, 14}, {2, 3, 8, 9, 15, 22}, {12, 17, 18, 19, 20, 21}
OPCODES = (
    [RC + op for op in range(24) if op != 21]
    + [UC + op for op in range(12)]
    + [RD + op for op in range(22)]
    + [UD + 4, UD + 5, CNP]
    + [XRC + op for op in range(24) if op != 21]
)


def extended_headers(opcode):
    """The bytes between BTH and payload; each value identifies its field and its opcode."""
    service, op = opcode & 0xE0, opcode & 0x1F
    response = op in RESPONSES
    out = b""
    if service == RD:
        out += pack(">I", 0x0E_EC_00 + opcode)
    if service == UD or service == RD and not response:
        out += pack(">II", 0x11_22_33_00 + opcode, 0x0D_E7_00 + opcode)
    if service == XRC and not response:
        out += pack(">I", 0x05_49_00 + opcode)
    if op in RETH_OPS:
        out += pack(">QII", 0x0123_4567_89AB_CD00 + opcode, 0x4E79_0000 + opcode, 0x1000 + opcode)
    if op in ATOMIC_OPS:
        out += pack(">QI", 0xFEDC_BA98_7654_3200 + opcode * 8, 0x4E80_0000 + opcode)
        out += pack(">QQ", 0x5A5A_0000_0000_0000 + opcode, 0xC0C0_0000_0000_0000 + opcode)
    if op in AETH_OPS:
        out += bytes(AETH(syndrome=(0x1F, 0x2E, 0x61, 0x00)[opcode % 4], msn=0x05_6E00 + opcode))
    if op == 18:
        out += pack(">Q", 0x0A0B_0000_0000_0000 + opcode)
    if op in IMMEDIATE_OPS:
        out += pack(">I", 0x1337_0000 + opcode)
    if op in INVALIDATE_OPS:
        out += pack(">I", 0x1417_0000 + opcode)
    return out


def payload(opcode):
    """The payload: counting bytes of a full packet, sixteen zeros, none, or a few with any pad."""
    op = opcode & 0x1F
    if opcode == CNP:
        return bytes(16)
    if op in EMPTY_OPS:
        return b""
    length = 256 if op in FULL_OPS else opcode % 13 + (op in LAST_OPS)
    return bytes((opcode + i) & 0xFF for i in range(length))


def build(wrap, opcode):
    """One packet: scapy's layers around these bytes, with the flags set in turn."""
    inside = extended_headers(opcode) + payload(opcode)
    pad = -len(inside) % 4
    bth = BTH(
        opcode=opcode,
        solicited=opcode & 1,
        migreq=opcode >> 1 & 1,
        padcount=pad,
        pkey=0x8000 + opcode,
        fecn=opcode >> 2 & 1,
        becn=1 if opcode == CNP else opcode >> 3 & 1,
        dqpn=0xD0_1200 + opcode,
        ackreq=opcode >> 4 & 1,
        psn=0xFF_FF00 + opcode,
    )
    # With IPv6 scapy warns and fills in zeros, which the real CRC then replaces.
    udp = UDP(sport=0xC000 + opcode * 0x21, dport=4791, chksum=0)
    frame = bytes(wrap() / udp / bth / Raw(inside + bytes(pad)))
    packet = Ether(frame)
    return Ether(frame[:-4] + computed_icrc(packet))


if __name__ == "__main__":
    main(sys.argv[1:])
