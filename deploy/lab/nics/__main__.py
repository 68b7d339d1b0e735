"""deploy/nics: parses arguments, builds what the guests load, runs the matrix in a namespace.

  drivers     the NICs
  image       the guest's root folder
  guest       the guest with its NICs, and their taps
  ends        uroce at both ends
  connected   connections that live through changes of their NICs
  soft_roce   Linux's Soft-RoCE in a second guest
  properties  what is run for each NIC
  page        deploy/NICS.md
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import build
import packages
from report.failure import LabFailure
from report.result import FAIL, NOT_RUN, PASS
from vm import image, network

from . import page
from .drivers import NICS, WAYS, known, remedy
from .ends import Ends
from .guest import NicGuest, Taps
from .image import Layered
from .properties import PROPERTIES, measure

DEPLOY = Path(__file__).resolve().parents[2]
REPOSITORY = DEPLOY.parent
SHORT_NICS = ("e1000e",)


def main():
    """Returns the exit status: 0 if all properties hold but those that are known not to, 1 if some
    do not, 2 if some could not run."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda number, _: sys.exit(128 + number))
    arguments = parse()
    try:
        if not arguments.inside:
            prepare()
        return run(arguments)
    except LabFailure as failure:
        print(f"nics: {failure}", file=sys.stderr)
        return 2


def parse():
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        prog="deploy/nics",
        description="uroce over each NIC that QEMU emulates and DPDK drives: a guest with the NIC, "
                    "an IOMMU and uroce, and as its peers uroce on this machine and Linux's "
                    "Soft-RoCE in a second guest.",
        epilog="Exit status: 0 all properties hold that can hold here, 1 some do not, 2 some could "
               "not be run. deploy/NICS.md names those that cannot hold here, and the reasons. "
               "UROCE_PERF and UROCE_CLI name built programs to use instead of building them.",
    )
    parser.add_argument("driver", nargs="*", metavar="DRIVER",
                        help=f"NICs, of {', '.join(nic.name for nic in NICS)} (default: all)")
    parser.add_argument("--short", action="store_true",
                        help=f"only {', '.join(SHORT_NICS)}, behind an IOMMU, and few properties")
    parser.add_argument("--only", default="", metavar="TEXT",
                        help="only properties with TEXT in their names")
    parser.add_argument("--write", action="store_true", help="write deploy/NICS.md")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--list", action="store_true", help="print NICs and properties")
    # Starts the second half of the program, in the namespace: image's folder, uroce-perf, uroce.
    parser.add_argument("--inside", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    names = [nic.name for nic in NICS]
    wrong = [name for name in arguments.driver if name not in names]
    if wrong:
        parser.error(f"no NIC {', '.join(wrong)}; there are {', '.join(names)}")
    if arguments.write and (arguments.driver or arguments.short or arguments.only):
        parser.error("--write needs all NICs and all properties")
    if arguments.list:
        for item in (*NICS, *PROPERTIES):
            print(f"{item.name:18} {item.what}")
        sys.exit(0)
    return arguments


def prepare():
    """Does all that needs the machine's own network, then starts this program in the namespace."""
    packages.need("interop", "build", "image")
    base = packages.guest_image(say)
    programs = [build.build(wanted, REPOSITORY, say) for wanted in (build.PERF, build.CLI)]
    # The package is found from the laboratory's folder, which is in PYTHONPATH.
    network.enter_namespace([sys.executable, "-B", "-m", "nics", *sys.argv[1:], "--inside",
                             str(base.folder), *programs])


def say(text):
    """Prints a line about progress."""
    print(f"nics: {text}", file=sys.stderr, flush=True)


def run(arguments):
    """Runs the matrix; called in the namespace. Returns the exit status."""
    folder, *programs = arguments.inside
    work = Path(tempfile.mkdtemp(prefix="uroce-nics-"))
    kept = Path(os.environ.get("CARGO_TARGET_DIR") or REPOSITORY / "target") / "nics"
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    results = []
    try:
        network.prepare()
        layered = Layered(image.Image(folder), programs, work)
        for nic, way in chosen(arguments):
            results += over(nic, way, arguments, layered, programs, work, kept)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if arguments.write:
        (DEPLOY / "NICS.md").write_text(page.text(results, layered.release, dpdk()))
    return finish(results, arguments)


def dpdk():
    """Returns the release of DPDK."""
    return image.run(["pkg-config", "--modversion", "libdpdk"]).strip()


def chosen(arguments):
    """Returns the chosen NICs, each with each way in which the guest gives it to DPDK."""
    names = arguments.driver or (SHORT_NICS if arguments.short else [nic.name for nic in NICS])
    ways = WAYS[:1] if arguments.short else WAYS
    return [(nic, way) for nic in NICS if nic.name in names for way in ways]


def over(nic, way, arguments, layered, programs, work, kept):
    """Boots a guest with the NIC and runs the properties. Returns their results."""
    selected = [prop for prop in PROPERTIES
                if arguments.only in prop.name and (prop.short or not arguments.short)
                and (way is WAYS[0] or prop.every_way)]
    results = []
    if not selected:
        return results
    with contextlib.ExitStack() as stack:
        taps = Taps(1, nic, 2, iommu=way.iommu)
        guest = NicGuest(layered, 1, work, taps, way.hugepages)
        begin = time.monotonic()
        obstacle = None
        try:
            stack.enter_context(guest)
            guest.wait_until_ready()
            say(f"{nic.name}, {way.name}: the guest is up after {time.monotonic() - begin:.0f} s")
        except (LabFailure, OSError) as failure:
            obstacle = str(failure).splitlines()[0]
        ends = Ends(guest, programs, work, way.hugepages > 0)
        for prop in selected:
            result = verdict(prop, nic, way, ends, obstacle, kept)
            print(f"{nic.name:12} {way.name:10} {prop.name:18} {result['verdict']:8} "
                  f"{result['seconds']:6.1f} s  {result['reason']}",
                  file=sys.stderr if arguments.json else sys.stdout, flush=True)
            results.append(result)
    return results


def verdict(prop, nic, way, ends, obstacle, kept):
    """Runs one property and returns its result as an object."""
    result = {"nic": nic.name, "way": way.name, "property": prop.name, "verdict": NOT_RUN,
              "reason": obstacle or "", "seconds": 0.0, "again": False}
    if obstacle:
        return result
    begin = time.monotonic()
    try:
        outcome = measure(prop, ends)
        if outcome.fault and "retry" in outcome.fault:
            # An emulated guest on a busy machine may pause for longer than all retries take.
            first, outcome = outcome.fault, measure(prop, ends)
            outcome.notes = f"the first time: {first}"
            result["again"] = True
        result["verdict"] = FAIL if outcome.fault else PASS
        result["reason"] = outcome.fault or outcome.notes
        if outcome.fault:
            name = f"{nic.name}-{way.name}-{prop.name}".replace(" ", "-")
            (kept / f"{name}.log").write_text(outcome.log)
    except (LabFailure, OSError) as failure:
        result["reason"] = str(failure).splitlines()[0]
    result["seconds"] = round(time.monotonic() - begin, 1)
    return result


def finish(results, arguments):
    """Prints the summary and returns the exit status."""
    count = {verdict: sum(result["verdict"] == verdict for result in results)
             for verdict in (PASS, FAIL, NOT_RUN)}
    expected = sum(result["verdict"] == FAIL and remedy(result) != "" for result in results)
    summary = (f"nics: {count[PASS]} hold, {count[FAIL]} do not, {expected} of which cannot hold "
               f"here, {count[NOT_RUN]} not run")
    for result in results:
        if result["verdict"] == PASS and any(known(result)):
            say(f"{result['nic']}, {result['way']}, {result['property']}: holds now; take it out "
                "of drivers.KNOWN")
    if arguments.json:
        print(json.dumps({"results": results, **count}))
    print(summary, file=sys.stderr if arguments.json else sys.stdout)
    if count[NOT_RUN] or not results:
        return 2
    return 1 if count[FAIL] > expected else 0


if __name__ == "__main__":
    sys.exit(main())
