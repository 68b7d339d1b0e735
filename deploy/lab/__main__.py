"""deploy/interop: arguments, what must be there before, the namespace, the clean-up."""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import image
import network
import suites
import uroce
import vectors
from failure import LabFailure, StaleLists
from report import Report

LAB = Path(__file__).resolve().parent
REPOSITORY = LAB.parent.parent
SUITES = {
    "dataplane": suites.dataplane, "cm": suites.cm, "apps": suites.apps, "all": suites.every,
    "selftest": suites.selftest,
}


@dataclass
class Context:
    """What every suite needs."""

    image: image.Image
    uroce: str
    """uroce-perf."""
    uroce_run: str
    only: str
    everything: bool
    work: Path
    kept: Path
    report: Report

    @property
    def budget(self):
        """Seconds that a suite may take."""
        return suites.EVERYTHING_BUDGET_SECONDS if self.everything else suites.BUDGET_SECONDS


def main():
    """Returns the exit status: 0 all passed, 1 some failed, 2 some could not run."""
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
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="deploy/interop",
        description="uroce against the Linux kernel's Soft-RoCE, in a guest under QEMU.",
        epilog="Exit status: 0 all cases passed, 1 some failed, 2 some could not run. "
               "UROCE_PERF and UROCE_RUN name a built uroce-perf and uroce-run to use instead of "
               "building them.",
    )
    parser.add_argument(
        "suite", nargs="?", default="all",
        choices=["dataplane", "cm", "apps", "all", "selftest", "vectors"],
        help="all: every suite there is, of apps without -D and without -a where that takes long "
             "(default); selftest: the laboratory without uroce; cm: connection management; apps: "
             "Debian's programs, unmodified, over uroce, and the tests of pyverbs; vectors: record "
             "golden captures of Soft-RoCE",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--only", default="", metavar="TEXT",
                        help="only cases whose name has all the words of TEXT, e.g. v6-mtu1024, "
                             "or 'send_bw loss uroce-serves'")
    parser.add_argument("--full", dest="everything", action="store_true",
                        help="dataplane, apps: all combinations instead of a covering of them "
                             "(dataplane: hours)")
    parser.add_argument("--list", action="store_true",
                        help="name the cases instead of running them")
    parser.add_argument(
        "--folder", type=Path, default=REPOSITORY / "dataplane/wire/tests/vectors",
        help="where `vectors` writes (default: %(default)s)",
    )
    # The second half of the program, in the namespace: image folder, uroce-perf and uroce-run.
    parser.add_argument("--inside", nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args()


def prepare(arguments, report):
    """All that needs the machine's own network; then starts anew in the namespace."""
    packages("packages_need interop")
    if arguments.suite in ("vectors", "cm", "all"):
        packages("packages_need golden")
    try:
        built = image.build(report.say)
    except StaleLists:
        packages("packages_update")
        built = image.build(report.say)
    if arguments.suite in ("apps", "all"):
        packages("packages_need apps")
    network.enter_namespace([
        sys.executable, "-B", str(LAB), *sys.argv[1:], "--inside", str(built.folder),
        program(uroce.PERF, arguments.suite in ("dataplane", "cm", "all"), report),
        program(uroce.RUN, arguments.suite in ("apps", "all"), report),
    ])


def program(wanted, needed, report):
    """The path of a program that is built now, empty if the suite needs none."""
    if not needed:
        return ""
    if wanted.variable not in os.environ:
        packages("packages_need build")
    return uroce.build(wanted, REPOSITORY, report.say)


def packages(command):
    """One call of the shell library that installs Debian packages."""
    script = f'source "{LAB.parent}/env/packages.sh" && {command}'
    if subprocess.run(["bash", "-c", script], stdout=sys.stderr).returncode != 0:
        raise LabFailure("packages are missing, see above")


def run(arguments, report, start):
    """In the namespace: the suite, in a folder of its own that is gone afterwards."""
    work = Path(tempfile.mkdtemp(prefix="uroce-interop-"))
    try:
        folder, uroce_perf, uroce_run = arguments.inside
        kept = Path(os.environ.get("CARGO_TARGET_DIR") or REPOSITORY / "target") / "interop"
        context = Context(image.Image(folder), uroce_perf, uroce_run, arguments.only,
                          arguments.everything, work, kept, report)
        network.prepare()
        if arguments.suite == "vectors":
            vectors.record(context, arguments.folder)
            return 0
        shutil.rmtree(kept, ignore_errors=True)
        results = SUITES[arguments.suite](context)
        if not results:
            raise LabFailure(f"no case has {context.only!r} in its name; --list names them")
        return report.finish(results, time.monotonic() - start, context.image.release)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
