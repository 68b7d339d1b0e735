"""The laboratory's output: a line per case as it ends and a summary, or one JSON object."""

import json
import sys

from .result import FAIL, NOT_RUN, PASS

NAME_WIDTH = 46
# Lines of a reason that are printed. What a program says of its failure may not be its first line.
REASON_LINES = 6


class Report:
    """Writes to stdout. With JSON only the object goes there, and the table goes to stderr."""

    def __init__(self, suite, as_json):
        self.suite = suite
        self.as_json = as_json
        self.table = sys.stderr if as_json else sys.stdout
        self.header_written = False

    def say(self, text):
        """Prints a line about progress."""
        print(f"interop: {text}", file=sys.stderr, flush=True)

    def tell(self, result):
        """Prints the line of one case."""
        if not self.header_written:
            self.row("case", "server", "client", "result", "lost", "again", "seconds")
            self.header_written = True
        case = result.case
        ends = [result.endings.get(name) for name in (case.server, case.client)]
        lost = "+".join(str(end.lost) if end else "-" for end in ends)
        again = "+".join(str(end.retransmissions) if end else "-" for end in ends)
        name = case.name.removesuffix(f"-{case.server}-serves")
        self.row(name, case.server, case.client, result.verdict, lost, again,
                 f"{result.seconds:.2f}")
        for line in result.reason.strip().splitlines()[:REASON_LINES] if result.reason else ():
            self.line(f"    {line}")
        if result.pcap:
            self.line(f"    kept {result.pcap}")

    def row(self, name, server, client, verdict, lost, again, seconds):
        """Prints a row. `lost` packets on purpose and retransmissions (`again`): the server's count
        and the client's."""
        self.line(f"{name:{NAME_WIDTH}} {server:7} {client:7} {verdict:7} "
                  f"{lost:>9} {again:>9} {seconds:>8}")

    def line(self, text):
        """Prints one line of the table."""
        print(text, file=self.table, flush=True)

    def finish(self, results, seconds, kernel=None, error=None):
        """Prints the summary and returns the exit status."""
        count = {verdict: sum(result.verdict == verdict for result in results)
                 for verdict in (PASS, FAIL, NOT_RUN)}
        if error:
            self.say(error)
        else:
            self.line(f"{self.suite}: {count[PASS]} passed, {count[FAIL]} failed, "
                      f"{count[NOT_RUN]} not run, {seconds:.0f} s")
        if self.as_json:
            print(json.dumps({
                "suite": self.suite, "kernel": kernel, "error": error,
                "passed": count[PASS], "failed": count[FAIL], "not_run": count[NOT_RUN],
                "seconds": round(seconds, 1), "cases": [as_object(result) for result in results],
            }))
        if error or count[NOT_RUN] or not results:
            return 2
        return 1 if count[FAIL] else 0


def as_object(result):
    """A result as JSON: the case's fields and its outcome."""
    return {
        "case": result.case.name, **result.case.fields(),
        "server": result.case.server, "client": result.case.client,
        "result": result.verdict.lower(), "reason": result.reason or None,
        "lost": {name: end.lost for name, end in result.endings.items()},
        "retransmissions": {name: end.retransmissions for name, end in result.endings.items()},
        "seconds": round(result.seconds, 3),
        "pcap": result.pcap,
    }
