#!/usr/bin/python3
"""Writes neighbour.hex: frames of the neighbour protocols as scapy builds them.

Debian package python3-scapy. Each line is a name and a frame in hexadecimal. Our port is
02:00:00:00:00:01 with 192.0.2.1/24, 2001:db8::1/64; the peer is 02:00:00:00:00:02 with .2, ::2.
"""
from pathlib import Path

from scapy.contrib.igmp import IGMP
from scapy.layers.inet import ICMP, IP, IPOption_Router_Alert
from scapy.layers.inet6 import (ICMPv6EchoReply, ICMPv6EchoRequest, ICMPv6MLDMultAddrRec,
                                ICMPv6MLQuery2, ICMPv6MLReport2, ICMPv6NDOptDstLLAddr,
                                ICMPv6NDOptSrcLLAddr, ICMPv6ND_NA, ICMPv6ND_NS, IPv6,
                                IPv6ExtHdrHopByHop, RouterAlert)
from scapy.layers.l2 import ARP, Dot1Q, Ether

OUR, PEER, ALL = "02:00:00:00:00:01", "02:00:00:00:00:02", "ff:ff:ff:ff:ff:ff"
OUR4, PEER4, OUR6, PEER6 = "192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2"
ALL_NODES, ALL_NODES_MAC = "ff02::1", "33:33:00:00:00:01"
OUR_GROUP, OUR_GROUP_MAC = "ff02::1:ff00:1", "33:33:ff:00:00:01"
PEER_GROUP, PEER_GROUP_MAC = "ff02::1:ff00:2", "33:33:ff:00:00:02"
DATA = bytes(range(56))
LL = {"OUR": ICMPv6NDOptDstLLAddr(lladdr=OUR), "PEER": ICMPv6NDOptDstLLAddr(lladdr=PEER)}


def arp(op, src, dst, hwsrc, psrc, hwdst, pdst):
    return Ether(src=src, dst=dst) / ARP(op=op, hwsrc=hwsrc, psrc=psrc, hwdst=hwdst, pdst=pdst)


def nd(src, dst, ipsrc, ipdst, message, option):
    packet = Ether(src=src, dst=dst) / IPv6(src=ipsrc, dst=ipdst, hlim=255) / message
    return packet / option if option is not None else packet


def ns(target):
    return ICMPv6ND_NS(tgt=target)


def na(target, solicited, override):
    return ICMPv6ND_NA(tgt=target, R=0, S=solicited, O=override)


def echo4(src, dst, ipsrc, ipdst, kind):
    ip = IP(src=ipsrc, dst=ipdst, id=0, flags="DF", ttl=64)
    return Ether(src=src, dst=dst) / ip / ICMP(type=kind, id=7, seq=9) / DATA


def echo6(src, dst, ipsrc, ipdst, message):
    ip = IPv6(src=ipsrc, dst=ipdst, hlim=64)
    return Ether(src=src, dst=dst) / ip / message(id=7, seq=9, data=DATA)


def igmp(src, ipsrc, group, message):
    mac = "01:00:5e:" + ":".join(f"{int(part):02x}" for part in group.split(".")[1:])
    ip = IP(src=ipsrc, dst=group, id=0, flags="DF", ttl=1, options=[IPOption_Router_Alert()])
    return Ether(src=src, dst=mac) / ip / message


def mld(src, mac, ipsrc, ipdst, message):
    alert = IPv6ExtHdrHopByHop(options=[RouterAlert(value=0)])
    return Ether(src=src, dst=mac) / IPv6(src=ipsrc, dst=ipdst, hlim=1) / alert / message


def mld_report(ipsrc, kind):
    record = ICMPv6MLDMultAddrRec(rtype=kind, dst="ff0e::1:2:3")
    message = ICMPv6MLReport2(records=[record])
    return mld(OUR, "33:33:00:00:00:16", ipsrc, "ff02::16", message)


ZERO = "00:00:00:00:00:00"
FRAMES = {
    "arp_request_of_peer": arp(1, PEER, ALL, PEER, PEER4, ZERO, OUR4),
    "arp_reply_of_ours": arp(2, OUR, PEER, OUR, OUR4, PEER, PEER4),
    "arp_request_of_ours": arp(1, OUR, ALL, OUR, OUR4, ZERO, PEER4),
    "arp_confirm_of_ours": arp(1, OUR, PEER, OUR, OUR4, ZERO, PEER4),
    "arp_reply_of_peer": arp(2, PEER, OUR, PEER, PEER4, OUR, OUR4),
    "arp_probe_of_peer": arp(1, PEER, ALL, PEER, "0.0.0.0", ZERO, OUR4),
    "arp_probe_reply_of_ours": arp(2, OUR, PEER, OUR, OUR4, PEER, "0.0.0.0"),
    "arp_announcement_of_ours": arp(1, OUR, ALL, OUR, OUR4, ZERO, OUR4),
    "arp_conflict": arp(1, PEER, ALL, PEER, OUR4, ZERO, OUR4),
    "ns_of_peer": nd(PEER, OUR_GROUP_MAC, PEER6, OUR_GROUP, ns(OUR6),
                     ICMPv6NDOptSrcLLAddr(lladdr=PEER)),
    "na_of_ours": nd(OUR, PEER, OUR6, PEER6, na(OUR6, 1, 1), LL["OUR"]),
    "ns_of_ours": nd(OUR, PEER_GROUP_MAC, OUR6, PEER_GROUP, ns(PEER6),
                     ICMPv6NDOptSrcLLAddr(lladdr=OUR)),
    "ns_confirm_of_ours": nd(OUR, PEER, OUR6, PEER6, ns(PEER6), ICMPv6NDOptSrcLLAddr(lladdr=OUR)),
    "na_of_peer": nd(PEER, OUR, PEER6, OUR6, na(PEER6, 1, 1), LL["PEER"]),
    "na_unsolicited_of_peer": nd(PEER, ALL_NODES_MAC, PEER6, ALL_NODES, na(PEER6, 0, 1),
                                 LL["PEER"]),
    "ns_probe_of_peer": nd(PEER, OUR_GROUP_MAC, "::", OUR_GROUP, ns(OUR6), None),
    "na_probe_of_ours": nd(OUR, ALL_NODES_MAC, OUR6, ALL_NODES, na(OUR6, 0, 1), LL["OUR"]),
    "echo4_request": echo4(PEER, OUR, PEER4, OUR4, 8),
    "echo4_reply": echo4(OUR, PEER, OUR4, PEER4, 0),
    "echo6_request": echo6(PEER, OUR, PEER6, OUR6, ICMPv6EchoRequest),
    "echo6_reply": echo6(OUR, PEER, OUR6, PEER6, ICMPv6EchoReply),
    "igmp_report": igmp(OUR, OUR4, "239.1.2.3", IGMP(type=0x16, mrcode=0, gaddr="239.1.2.3")),
    "igmp_leave": igmp(OUR, OUR4, "224.0.0.2", IGMP(type=0x17, mrcode=0, gaddr="239.1.2.3")),
    "igmp_query": igmp(PEER, PEER4, "224.0.0.1", IGMP(type=0x11, mrcode=100, gaddr="0.0.0.0")),
    "igmp_query_of_group": igmp(PEER, PEER4, "239.1.2.3",
                                IGMP(type=0x11, mrcode=10, gaddr="239.1.2.3")),
    "mld_join": mld_report("::", 4),
    "mld_report": mld_report("::", 2),
    "mld_leave": mld_report("::", 3),
    "mld_query": mld(PEER, ALL_NODES_MAC, "fe80::2", ALL_NODES, ICMPv6MLQuery2(mrd=10000)),
    "mld_query_of_group": mld(PEER, "33:33:00:02:00:03", "fe80::2", "ff0e::1:2:3",
                              ICMPv6MLQuery2(mrd=1000, mladdr="ff0e::1:2:3")),
    "tagged_arp_request_of_peer":
        Ether(src=PEER, dst=ALL) / Dot1Q(vlan=100)
        / ARP(op=1, hwsrc=PEER, psrc=PEER4, hwdst=ZERO, pdst=OUR4),
    "tagged_arp_reply_of_ours":
        Ether(src=OUR, dst=PEER) / Dot1Q(vlan=100)
        / ARP(op=2, hwsrc=OUR, psrc=OUR4, hwdst=PEER, pdst=PEER4),
}

lines = [f"{name} {bytes(frame).ljust(60, bytes(1)).hex()}\n" for name, frame in FRAMES.items()]
Path(__file__).with_name("neighbour.hex").write_text("".join(lines))
