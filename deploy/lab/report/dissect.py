"""The management datagrams of a capture, dissected by tshark.

tshark 4.0 misreads two fields of a REQ and a LAP: it reads fewer bytes of the word with flow label
and packet rate than it masks. It does not dissect SIDR_REQ and SIDR_REP.
"""

import json
import subprocess

from .failure import LabFailure

MISREAD = ("flowlabel", "pktrate")
SECONDS = 60
SIDR = ("0x0017", "0x0018")


def mads(path):
    """One dictionary per MAD of a capture, in order: the frame's number, source and destination,
    the fields of BTH and DETH, and the MAD's by tshark's names, with values as tshark writes
    them."""
    command = ["tshark", "-n", "-r", str(path), "-Y", "infiniband.mad",
               "-T", "json", "--no-duplicate-keys"]
    done = subprocess.run(command, capture_output=True, timeout=SECONDS)
    if done.returncode != 0:
        raise LabFailure(f"tshark: {done.stderr.decode(errors='replace').strip()}")
    return [row(packet["_source"]["layers"]) for packet in json.loads(done.stdout)]


def row(layers):
    """The fields of one packet."""
    network = layers.get("ip") or layers["ipv6"]
    family = "ip" if "ip" in layers else "ipv6"
    fields = {
        "frame.number": layers["frame"]["frame.number"],
        "src": network[f"{family}.src"], "dst": network[f"{family}.dst"],
    }
    inner = dict(leaves(layers["infiniband"]))
    fields |= {name: value for name, value in inner.items() if wanted(name)}
    if inner["infiniband.mad.attributeid"] in SIDR:
        fields["infiniband.mad.data"] = inner["infiniband.mad.data"]
    if "_ws.malformed" in layers:
        fields["malformed"] = "1"
    return fields


def leaves(tree):
    """All fields below a node, in whatever groups."""
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value)
        else:
            yield name, value


def wanted(name):
    """Whether tshark reads a field correctly and no other field has its value."""
    if name in ("infiniband.mad", "infiniband.mad.data", "infiniband.cm.req.ip_cm"):
        return False
    prefixes = ("infiniband.bth.", "infiniband.deth.", "infiniband.mad.", "infiniband.cm.")
    return name.startswith(prefixes) and not name.endswith(MISREAD) and "reserved" not in name
