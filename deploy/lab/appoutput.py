"""What a program says over uroce against what it says over Soft-RoCE.

Figures, addresses and numbers that are drawn are replaced by what they are; then every line must be
in both, in the same order, but for differences that are explained here, each with its reason.
"""

import difflib
import re

# What is replaced by what it is, in this order.
FIGURES = (
    (r"GID: [0-9:]+", "GID: N"),
    (r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b", "MAC"),
    (r"(QPN|PSN|RKey|VAddr|LID|UID|SRQn|OUT) (?:0x)?[0-9a-f]+", r"\1 N"),
    (r"::ffff:\d+\.\d+\.\d+\.\d+|\b\d+\.\d+\.\d+\.\d+\b|\b(2001:db8|fe80):[0-9a-f:]+",
     "ADDRESS"),
    (r"GID\[ *\d+\]", "GID[N]"),
    (r"\b(?:rxe|uroce)0", "DEVICE"),
    (r"\b[0-9a-f]{4}(?::[0-9a-f]{4}){3}\b|\b[0-9a-f]{16}\b", "GUID"),
    (r"\d+\.\d+|-?\b(?:inf|nan)\b", "F"),
    (r"GID index +: \d+", "GID index : N"),
    (r"[ \t]+", " "),
)
# Lines that one of them may lack, or say otherwise: program, pattern, why.
EXPLAINED = (
    ("ib_", r"ibv_wr\* API : (ON|OFF)", "Soft-RoCE's library has no extended queue pairs"),
    ("ib_", r"Device not recognized to implement inline feature", "Soft-RoCE's vendor is unknown"),
    ("ib_", r"PCIe relax order", "relaxed ordering is asked for where the library knows it"),
    ("ib_", r"Max inline data", "each device has its own"),
    ("ib_", r"Outstand reads", "each device has its own"),
    ("ib_", r"^Correlation coefficient|^Conflicting CPU frequency",
     "the processor's clock, measured on a busy machine"),
    ("ibv_devices", r".*", "one line for each device of another name"),
    ("rping", r"DISCONNECT EVENT", "seen if the peer's answer comes before the program ends"),
)
# ibv_devinfo tells what a device is: only what must be alike is compared. Addresses differ in number:
# Linux has a link-local one always.
SAME_OF_A_DEVICE = re.compile(
    r"(hca_id|transport|phys_port_cnt|port|state|max_mtu|active_mtu|link_layer|phys_state|GID\[N\]):")
# Of a line, and of a role, that much is told.
TOLD_CHARACTERS, TOLD_LINES = 100, 4


def differences(program, ours, stock):
    """What nothing explains, by role."""
    found = []
    for role in stock:
        lines = [compared(program, said[role]) for said in (ours, stock)]
        found += [f"the {role} said {line[:TOLD_CHARACTERS]!r}"
                  for line in difference(*lines)[:TOLD_LINES]]
    return found


def compared(program, text):
    """The lines of an output that must be alike, in their normal form."""
    lines = [normal(line) for line in text.splitlines()]
    if program == "ibv_devinfo":
        lines = list(dict.fromkeys(line for line in lines if SAME_OF_A_DEVICE.match(line)))
    return [line for line in lines if line and not explained(program, line)]


def normal(line):
    """A line without its figures."""
    for pattern, name in FIGURES:
        line = re.sub(pattern, name, line)
    return line.strip()


def explained(program, line):
    """Whether a line may differ."""
    return any(program.startswith(name) and re.search(pattern, line)
               for name, pattern, _ in EXPLAINED)


def difference(ours, stock):
    """The lines that only one has, ours with a plus."""
    return [line for line in difflib.ndiff(stock, ours) if line.startswith(("+ ", "- "))]
