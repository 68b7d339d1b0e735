"""deploy/interop: parses arguments, checks requirements, enters the namespace, cleans up.

  suites      the suites: their guests, peers and cases
  dataplane   messages between uroce and Soft-RoCE; golden vectors
  cm          connections
  apps        unmodified programs
  engines     distributed engines
  switch      Open vSwitch with DPDK, with several programs and a guest at its ports
  vm          the guest, its image and links, the namespace
  report      verdicts, the table of them, tshark's reading of captures
  build       the programs of uroce that the laboratory builds
  packages    Debian packages on this machine

`unmodified.py` (deploy/unmodified) and `cost.py` (deploy/cost) are programs of their own.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import build
import packages
import suites
from dataplane import vectors
from engines import wheels
from report.failure import LabFailure
from report.table import Report
from vm import image, network

LAB = Path(__file__).resolve().parent
REPOSITORY = LAB.parent.parent
SUITES = {
    "dataplane": suites.dataplane, "cm": suites.cm, "apps": suites.apps,
    "engines": suites.engines, "switch": suites.switch, "all": suites.every,
    "selftest": suites.selftest,
}
# Suites that need no guest.
GUESTLESS = ("engines",)


@dataclass
class Context:
    """Everything that a suite needs."""

    image: image.Image
    uroce: str
    """Path of uroce-perf."""
    uroce_run: str
    python: str
    """Python with the engines of PyPI."""
    kernel: image.Kernel
    """The kernel of the image."""
    only: str
    everything: bool
    runs: int
    work: Path
    kept: Path
    report: Report

    @property
    def budget(self):
        """Seconds that a suite may take."""
        return suites.EVERYTHING_BUDGET_SECONDS if self.everything else suites.BUDGET_SECONDS


def main():
    """Returns the exit status: 0 all cases passed, 1 some failed, 2 some could not run."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda number, _: sys.exit(128 + number))
    arguments = parse()
    report = Report(arguments.suite, arguments.json)
    start = time.monotonic()
    try:
        if arguments.list:
            return suites.list_cases(arguments)
        if not arguments.inside:
            prepare(arguments, report)
        return run(arguments, report, start)
    except LabFailure as failure:
        return report.finish([], time.monotonic() - start, error=str(failure))


def parse():
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        prog="deploy/interop",
        description="uroce against the Linux kernel's Soft-RoCE, in a guest under QEMU.",
        epilog="Exit status: 0 all cases passed, 1 some failed, 2 some could not run. "
               "UROCE_PERF and UROCE_RUN name a built uroce-perf and uroce-run to use instead of "
               "building them.",
    )
    parser.add_argument(
        "suite", nargs="?", default="all",
        choices=["dataplane", "cm", "apps", "engines", "switch", "all", "selftest", "vectors"],
        help="all: every suite, dataplane with an eighth of its cases without loss, apps without "
             "-D, the slow cases of -a, Soft-RoCE alone and one of the two roles beside it "
             "(default); selftest: the laboratory without uroce; cm: "
             "connection management; apps: Debian's programs, unmodified, over uroce, and the "
             "tests of pyverbs; engines: MPI, UCX, libfabric, Mooncake and NIXL, each beside its "
             "own TCP; switch: several programs and Soft-RoCE on Open vSwitch with DPDK; vectors: "
             "record golden captures of Soft-RoCE",
    )
    parser.add_argument("--kernel", choices=image.KERNELS, default=image.STOCK,
                        help="the guest's kernel: Debian's stock one, or its Linux 6.12, whose "
                             "Soft-RoCE also has ATOMIC WRITE and FLUSH, for which dataplane has "
                             "cases of its own (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--only", default="", metavar="TEXT",
                        help="only cases with all words of TEXT in their names, e.g. v6-mtu1024 "
                             "or 'send_bw loss uroce-serves'")
    parser.add_argument("--full", dest="everything", action="store_true",
                        help="dataplane, apps: all combinations instead of a covering of them "
                             "(dataplane: hours); engines: the long form")
    parser.add_argument("--list", action="store_true",
                        help="print the names of the cases instead of running them")
    parser.add_argument("--runs", type=int, default=1, metavar="N",
                        help="engines: run each case N times over uroce and over TCP, in turn, and "
                             "print medians (default: %(default)s)")
    parser.add_argument(
        "--folder", type=Path, default=REPOSITORY / "dataplane/wire/tests/vectors",
        help="folder to which `vectors` writes (default: %(default)s)",
    )
    # Starts the second half of the program, in the namespace: image folder, uroce-perf, uroce-run
    # and the Python of the engines.
    parser.add_argument("--inside", nargs=4, help=argparse.SUPPRESS)
    return parser.parse_args()


def prepare(arguments, report):
    """Does everything that needs the machine's own network, then re-executes in the namespace."""
    engines = ""
    if arguments.suite in ("cm", "apps", "switch", "all"):
        packages.need("apps")
    if arguments.suite in ("apps", "all"):
        # For the programs in C.
        packages.need("build")
    if arguments.suite in ("engines", "all"):
        packages.need("engines")
        engines = wheels.python(report.say, arguments.everything)
    network.enter_namespace([
        sys.executable, "-B", str(LAB), *sys.argv[1:], "--inside",
        "" if arguments.suite in GUESTLESS else guest_image(arguments, report),
        program(build.PERF, arguments.suite in ("dataplane", "cm", "apps", "all"), report),
        program(build.RUN, arguments.suite in ("cm", "apps", "engines", "switch", "all"), report),
        engines,
    ], arguments.suite not in GUESTLESS)


def guest_image(arguments, report):
    """Builds the guest's image and returns its folder."""
    packages.need("interop")
    if arguments.suite in ("vectors", "cm", "switch", "all"):
        packages.need("golden")
    if arguments.suite in ("switch", "all"):
        packages.need("switch")
    if image.KERNELS[arguments.kernel].places:
        # For the guest's program in C.
        packages.need("build")
    return str(packages.guest_image(report.say, arguments.kernel).folder)


def program(wanted, needed, report):
    """Builds a program and returns its path. Empty if the suite does not need it."""
    if not needed:
        return ""
    if wanted.variable not in os.environ:
        packages.need("build")
    return build.build(wanted, REPOSITORY, report.say)


def run(arguments, report, start):
    """Runs the suite in the namespace, in a temporary folder that is removed afterwards."""
    work = Path(tempfile.mkdtemp(prefix="uroce-interop-"))
    try:
        folder, uroce_perf, uroce_run, python = arguments.inside
        kept = Path(os.environ.get("CARGO_TARGET_DIR") or REPOSITORY / "target") / "interop"
        context = Context(image.Image(folder), uroce_perf, uroce_run, python,
                          image.KERNELS[arguments.kernel], arguments.only, arguments.everything,
                          arguments.runs, work, kept, report)
        network.prepare()
        if arguments.suite == "vectors":
            vectors.record(context, arguments.folder)
            return 0
        shutil.rmtree(kept, ignore_errors=True)
        results = SUITES[arguments.suite](context)
        if not results:
            raise LabFailure(f"no case has {context.only!r} in its name; see --list")
        kernel = context.image.release if folder else None
        return report.finish(results, time.monotonic() - start, kernel)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
