"""The outcome of a case, and the files that are kept of a failed one."""

from dataclasses import dataclass, field

PASS, FAIL, NOT_RUN = "pass", "FAIL", "not run"
# Most attempts of a session.
ATTEMPTS = 3


@dataclass
class Result:
    """The outcome of a case."""

    case: object
    verdict: str = NOT_RUN
    reason: str = ""
    endings: dict = field(default_factory=dict)
    """Endings by peer name."""
    seconds: float = 0.0
    pcap: str = None
    """The capture that was kept if the case failed."""


def keep(folder, name, text, capture):
    """Writes the log of a failed case, and its capture if there is one. Returns the path with the
    most information."""
    folder.mkdir(parents=True, exist_ok=True)
    log, pcap = folder / f"{name}.log", folder / f"{name}.pcap"
    log.write_text(text)
    if not capture:
        return str(log)
    pcap.write_bytes(capture)
    return str(pcap)
