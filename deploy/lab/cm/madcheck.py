"""Checks every MAD that uroce sends, as tshark reads it; SIDR messages from their bytes."""

from report import dissect

COMMON = {
    "infiniband.bth.opcode": 100, "infiniband.bth.padcnt": 0, "infiniband.bth.tver": 0,
    "infiniband.bth.p_key": 0xFFFF, "infiniband.bth.destqp": 1,
    "infiniband.deth.q_key": 0x80010000, "infiniband.deth.srcqp": 1,
    "infiniband.mad.baseversion": 1, "infiniband.mad.mgmtclass": 7,
    "infiniband.mad.classversion": 2, "infiniband.mad.method": 3, "infiniband.mad.status": 0,
    "infiniband.mad.attributemodifier": 0,
}
REQ, MRA, REJ, REP, RTU, DREQ, DREP, SIDR_REQ, SIDR_REP, LAP, APR = range(0x10, 0x1B)
UDP_SERVICE, UDP_QKEY = bytes.fromhex("000000000111"), bytes.fromhex("01234567")
ANSWERS = {REP: REQ, REJ: REQ, MRA: REQ, DREP: DREQ, SIDR_REP: SIDR_REQ}


def fault(path, ours, least, all_heard=True):
    """Describes the first error in the MADs from the addresses `ours` in a capture. Empty if there
    is none and the capture has at least `least` MADs. `all_heard` means that the capture has all
    requests to uroce, so that each answer must have its request."""
    rows = dissect.mads(path)
    sent = [row for row in rows if row["src"] in ours]
    if len(sent) < least:
        return f"{len(sent)} MADs of uroce in the capture instead of {least}"
    heard = {(attribute(row), row["infiniband.mad.transactionid"])
             for row in rows if row["src"] not in ours}
    for row in sent:
        what = common(row) or specific(row) or (answers(row, heard) if all_heard else "")
        if what:
            return f"frame {row['frame.number']}: {what}"
    return ""


def common(row):
    """Checks the fields that all MADs have."""
    for name, value in COMMON.items():
        if number(row[name]) != value:
            return f"{name} is {row[name]}"
    if not REQ <= attribute(row) <= APR:
        return f"attribute {row['infiniband.mad.attributeid']}"
    return "" if "malformed" not in row else "malformed"


def specific(row):
    """Checks the fields of one kind of MAD."""
    kind = attribute(row)
    if kind == REQ:
        return request(row)
    if kind in (SIDR_REQ, SIDR_REP):
        return datagram(row)
    if kind == REP and not number(row["infiniband.cm.rep.localqpn"]):
        return "a REP without a QP"
    local = {RTU: "rtu.localcommid", REP: "rep", DREQ: "dreq.localcommid",
             DREP: "drsp.localcommid"}.get(kind)
    if local and not number(row[f"infiniband.cm.{local}"]):
        return "a communication id of 0"
    return ""


def request(row):
    """Checks a REQ: the service's address, and that GIDs and the RDMA-CM header agree with the IP
    header."""
    wanted = {
        "serviceid.prefix": 1, "serviceid.protocol": 6, "pkey": 0xFFFF, "transpsvctype": 0,
        "prim_locallid": 0xFFFF, "prim_remotelid": 0xFFFF, "ip_cm.majv": 0, "ip_cm.minv": 0,
    }
    for name, value in wanted.items():
        if number(row[f"infiniband.cm.req.{name}"]) != value:
            return f"{name} is {row[f'infiniband.cm.req.{name}']}"
    for name in ("localqpn", "localcaguid", "maxcmretr", "prim_localacktout", "prim_hoplim"):
        if not number(row[f"infiniband.cm.req.{name}"]):
            return f"{name} is 0"
    version = number(row["infiniband.cm.req.ip_cm.ipv"])
    if version != (6 if ":" in row["src"] else 4):
        return f"RDMA-CM's header says IPv{version}"
    if version == 4:
        pairs = (("prim_localgid_ipv4", "src"), ("prim_remotegid_ipv4", "dst"),
                 ("ip_cm.sip4", "src"), ("ip_cm.dip4", "dst"))
    else:
        pairs = (("ip_cm.sip6", "src"), ("ip_cm.dip6", "dst"))
    for name, end in pairs:
        if row[f"infiniband.cm.req.{name}"] != row[end]:
            return f"{name} is {row[f'infiniband.cm.req.{name}']}"
    return ""


def datagram(row):
    """Checks SIDR_REQ and SIDR_REP: the service's address, QPN and Q_Key."""
    data = bytes.fromhex(row["infiniband.mad.data"].replace(":", ""))
    if attribute(row) == SIDR_REQ:
        pkey, service, version = data[4:6], data[8:16], data[17] >> 4
        wanted = b"\xff\xff", UDP_SERVICE, 6 if ":" in row["src"] else 4
        got = pkey, service[:6], version
        return "" if got == wanted else f"P_Key, service and IP version are {got}"
    status, qpn, service, qkey = data[4], data[8:11], data[12:20], data[20:24]
    if status:
        return ""
    if not any(qpn) or qkey != UDP_QKEY or service[:6] != UDP_SERVICE:
        return f"a SIDR_REP of QPN {qpn.hex()}, Q_Key {qkey.hex()}, service {service.hex()}"
    return ""


def answers(row, heard):
    """Checks that an answer has the transaction of a received request."""
    question = ANSWERS.get(attribute(row))
    transaction = row["infiniband.mad.transactionid"]
    if question and (question, transaction) not in heard and (REP, transaction) not in heard:
        return f"attribute {row['infiniband.mad.attributeid']} answers no question of {transaction}"
    return ""


def attribute(row):
    """The attribute ID, which is the kind of message."""
    return number(row["infiniband.mad.attributeid"])


def number(text):
    """A number as tshark writes it; the first of several values; bytes with colons as one
    number."""
    text = text[0] if isinstance(text, list) else text
    return int(text.replace(":", ""), 16) if ":" in text or text.startswith("0x") else int(text)
