"""deploy/peer-rxe: parses arguments, prepares kernel and root folder, prints the figures.

  kernel    Debian's kernel source, built as user-mode Linux
  config    the options of that kernel
  guest     the guest and its console
  init      the guest's first process, which runs perftest at both ends
  measure   figures from what the guest says
  bounded   programs with a time limit
"""

import argparse
import json
import os
import re
import signal
import sys
import tempfile
from pathlib import Path

import packages
from report.failure import LabFailure
from vm import image

from . import guest, kernel, measure

REPOSITORY = Path(__file__).resolve().parents[3]
# Seconds of silence after which a guest is given up, beside the time of a measurement.
SILENCE_SECONDS = 60
HOW = ("both ends in one user-mode Linux with one CPU, joined by a veth pair; perftest, one queue "
       "pair; packets that Soft-RoCE counted, over the wall time of this machine")
CAVEAT = ("A system call costs more in user-mode Linux than in a kernel on hardware, and "
          "its CRC is plain C: on hardware Soft-RoCE should be faster.")


def main():
    """Returns the exit status: 0 all was measured, 1 some was not, 2 it cannot be measured here."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda number, _: sys.exit(128 + number))
    arguments = parse()
    try:
        built, base = prepare(arguments)
    except LabFailure as failure:
        say(failure)
        return 2
    if arguments.build:
        say(f"ready: {built.program}")
        return 0
    report = run(arguments, built, base)
    if arguments.json:
        print(json.dumps(report))
    return 1 if report["errors"] else 0


def parse():
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        prog="deploy/peer-rxe",
        description="Measures the Linux kernel's Soft-RoCE at native speed: Debian's linux-source, "
                    "built as user-mode Linux, with both ends of perftest in it. The first run "
                    "compiles the kernel, which takes some minutes and 3 GB; the program that is "
                    "kept, in target/peer-rxe, has 10 MB.",
        epilog="Exit status: 0 all was measured, 1 some was not (the JSON object has the reasons "
               "in \"errors\"), 2 it cannot be measured on this machine, as one line on stderr "
               f"says. {CAVEAT}",
    )
    parser.add_argument("--sizes", type=numbers(1, measure.SIZE_MAX), default=[64, 4096, 65536],
                        metavar="N,...", help="bytes of a message (default: 64,4096,65536)")
    parser.add_argument("--tests", type=tests, default=list(measure.TESTS), metavar="TEST,...",
                        help=f"of {', '.join(measure.TESTS)} (default: all); without write_lat "
                        "and send_lat, whose ends both poll: one CPU gives each a time slice")
    parser.add_argument("--mtu", type=numbers(measure.MTU_MIN, 65535), default=[4200, 1500],
                        metavar="N,...", help="MTUs of the interfaces; the path MTU is the largest "
                        "that fits (default: 4200,1500, so path MTUs of 4096 and 1024)")
    parser.add_argument("--seconds", type=int, default=2, choices=range(1, 61), metavar="N",
                        help="seconds of a measurement, 1 to 60 (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--build", action="store_true",
                        help="only prepare: install the packages, compile the kernel")
    parser.add_argument("--no-build", action="store_true",
                        help="measure with what an earlier run has prepared, or fail at once; "
                             "needs neither network nor package")
    arguments = parser.parse_args()
    if arguments.build and arguments.no_build:
        parser.error("--build and --no-build exclude each other")
    return arguments


def numbers(low, high):
    """A parser of numbers with commas between them."""
    def parsed(text):
        values = [int(word) if word.isdecimal() else -1 for word in text.split(",")]
        if not all(low <= value <= high for value in values):
            raise argparse.ArgumentTypeError(f"{text} is not a list of numbers from {low} to "
                                             f"{high}, with commas between them")
        return values
    return parsed


def tests(text):
    """A parser of tests with commas between them."""
    wrong = [word for word in text.split(",") if word not in measure.TESTS]
    if wrong:
        raise argparse.ArgumentTypeError(f"no test {wrong[0]!r}; there are "
                                         f"{', '.join(measure.TESTS)}")
    return text.split(",")


def prepare(arguments):
    """The kernel and the guest's image. Raises LabFailure if this machine cannot have them."""
    target = Path(os.environ.get("CARGO_TARGET_DIR") or REPOSITORY / "target") / "peer-rxe"
    if not arguments.no_build:
        packages.need("rxe")
        return kernel.build(REPOSITORY / target, say), packages.guest_image(say)
    built, base = kernel.find(REPOSITORY / target), image.cached()
    if built is None or base is None:
        raise LabFailure("nothing is prepared here: run deploy/peer-rxe --build once")
    return built, base


def say(text):
    """Prints a line about progress."""
    print(f"peer-rxe: {text}", file=sys.stderr, flush=True)


def run(arguments, built, base):
    """Measures, and returns the report. What failed is in its errors."""
    plan = measure.plan(arguments.tests, arguments.sizes, arguments.mtu, arguments.seconds)
    report = {
        "stack": "Soft-RoCE (rxe) in user-mode Linux", "package": f"{kernel.PACKAGE} "
        f"{built.version}", "kernel": None, "cpus": None, "host_cpu": host_cpu(),
        "how": HOW, "caveat": CAVEAT, "results": [], "errors": [],
    }
    reader = measure.Reader()
    table = Table(sys.stderr if arguments.json else sys.stdout)
    with tempfile.TemporaryDirectory(prefix="uroce-peer-rxe-") as work:
        try:
            for moment, line in guest.lines(built, base, plan,
                                            SILENCE_SECONDS + arguments.seconds, Path(work)):
                figures = reader.take(moment, line)
                if line.startswith("ready"):
                    report |= {"kernel": reader.kernel, "cpus": reader.cpus}
                    table.begin(report)
                if figures:
                    report["results"].append(figures)
                    table.row(figures)
        except LabFailure as failure:
            say(failure)
            report["errors"].append(str(failure))
    report["errors"] += [figures["error"] for figures in report["results"] if "error" in figures]
    return report


def host_cpu():
    """The model of this machine's processor."""
    found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else None


class Table:
    """The figures as rows that are printed when they are known."""

    def __init__(self, output):
        self.output = output

    def print(self, text):
        """Prints a line at once."""
        print(text, file=self.output, flush=True)

    def begin(self, report):
        """Prints what is measured and how, and the names of the columns."""
        self.print(f"Soft-RoCE of Linux {report['kernel']} ({report['package']}), "
                   f"{report['cpus']} CPU of {report['host_cpu']}")
        self.print(f"{report['how']}. {report['caveat']}")
        self.print(f"{'test':10} {'bytes':>8} {'path MTU':>8} {'Gb/s':>8} {'messages/s':>11} "
                   f"{'µs':>8} {'p50':>8} {'p99':>8} {'perftest':>9}  sent again")

    def row(self, figures):
        """Prints the figures of one measurement."""
        def shown(name, form, width):
            value = figures.get(name)
            return f"{'' if value is None else format(value, form):>{width}}"

        begin = f"{figures['test']:10} {figures['size']:8} {figures['path_mtu']:8}"
        if "error" in figures:
            self.print(f"{begin} {figures['error']}")
            return
        own = "perftest_gbps" if "gbps" in figures else "perftest_usec"
        again = ", ".join(f"{name} {count}" for name, count in figures["repairs"].items())
        self.print(" ".join([
            begin, shown("gbps", ".3f", 8), shown("messages_per_second", ".0f", 11),
            shown("usec", ".1f", 8), shown("p50_usec", ".1f", 8), shown("p99_usec", ".1f", 8),
            shown(own, ".3f", 9), f" {again or 'nothing'}",
        ]))


if __name__ == "__main__":
    sys.exit(main())
