"""Compares a program's output over uroce with that over Soft-RoCE.

Figures, addresses and random numbers are replaced by placeholders. Then both outputs must have the
same lines in the same order, except for the differences listed here with their reasons.
"""

import difflib
import re

# Patterns and their placeholders, in the order of replacement.
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
# Lines that one output may lack or have in another form: program, pattern, reason.
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
# The lines of ibv_devinfo that are compared. The number of addresses differs, as Linux always has a
# link-local one.
SAME_OF_A_DEVICE = re.compile(
    r"(hca_id|transport|phys_port_cnt|port|state|max_mtu|active_mtu|link_layer|phys_state|GID\[N\]):")
# Most characters of a line and most lines of a role that are reported.
TOLD_CHARACTERS, TOLD_LINES = 100, 4


def differences(program, ours, stock):
    """Unexplained differences, by role."""
    found = []
    for role in stock:
        lines = [compared(program, said[role]) for said in (ours, stock)]
        found += [f"the {role} said {line[:TOLD_CHARACTERS]!r}"
                  for line in difference(*lines)[:TOLD_LINES]]
    return found


def compared(program, text):
    """The lines of an output that are compared, with placeholders."""
    lines = [normal(line) for line in text.splitlines()]
    if program == "ibv_devinfo":
        lines = list(dict.fromkeys(line for line in lines if SAME_OF_A_DEVICE.match(line)))
    return [line for line in lines if line and not explained(program, line)]


def normal(line):
    """A line with its figures replaced by placeholders."""
    for pattern, name in FIGURES:
        line = re.sub(pattern, name, line)
    return line.strip()


def explained(program, line):
    """Whether a line may differ between uroce and Soft-RoCE."""
    return any(program.startswith(name) and re.search(pattern, line)
               for name, pattern, _ in EXPLAINED)


def difference(ours, stock):
    """The lines that only one output has, those over uroce with a plus."""
    return [line for line in difflib.ndiff(stock, ours) if line.startswith(("+ ", "- "))]
