"""What a message costs, in instructions and cache misses: counts that do not move with the machine.

`uroce-perf cost` does a fixed number of messages twice, once with three times as many, both ends in one
process. callgrind counts both; their difference is the messages' alone, without start-up. A message
case counts the one thread that drives both ends; a control case counts every thread.

The caches are simulated and always of the same sizes, and callgrind shows programs a processor without
AVX-512 and VPCLMULQDQ, so that the same binary gives the same counts on any machine. How far the timer
wheel walks depends on the time that passes, and valgrind makes everything some fifty times slower: what
that walk costs is left out.
"""

import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Seconds that one row may take.
PATIENCE = 600
MEASURED = "uroce_bench::cost::measured"
# Its cost is that of the time that passes.
LEFT_OUT = re.compile(r"TimerWheel::walk$")
# 32 KiB of first level; of last level 1 MiB, what a core has for itself.
CACHES = ["--I1=32768,8,64", "--D1=32768,8,64", "--LL=1048576,16,64"]
FIRST_LEVEL = ("I1mr", "D1mr", "D1mw")
LAST_LEVEL = ("ILmr", "DLmr", "DLmw")


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    what: str
    case: str
    qps: int = 1
    # Modify QP and connections are the work of several threads.
    every_thread: bool = False


def message_rows():
    """Each kind of message with one queue pair and with a thousand."""
    for case, what in [
        ("send8", "SEND 8 B, message"),
        ("write8", "WRITE 8 B, message"),
        ("write64k", "WRITE 64 KiB, packet"),
        ("read64k", "READ 64 KiB, packet"),
    ]:
        yield Row(case, what, case)
        yield Row(f"{case}-1000", f"{what}, 1,000 QPs", case, 1000)


ROWS = [
    *message_rows(),
    Row("ud64", "UD SEND 64 B, message", "ud64"),
    Row("modify", "Modify QP, call", "modify", every_thread=True),
    Row("connect", "connection set up and ended", "connect", every_thread=True),
]


def counts(text):
    """The events of a profile that callgrind has written, without what is left out."""
    events, total, left_out = [], [], []
    name, names, skip = "", {}, False
    for line in text.splitlines():
        if line.startswith("events:"):
            events = line.split()[1:]
            left_out = [0] * len(events)
        elif line.startswith("totals:"):
            total = [int(word) for word in line.split()[1:]]
        elif line.startswith(("fn=", "cfn=")):
            key, _, rest = line.partition("=")
            number, _, text_of_name = rest.partition(" ")
            if text_of_name:
                names[number] = text_of_name
            if key == "fn":
                name = names.get(number, number)
        elif line.startswith("calls="):
            # The next line has what the called function cost; that is counted at the function.
            skip = True
        elif line and (line[0].isdigit() or line[0] in "+-*"):
            if skip:
                skip = False
            elif LEFT_OUT.search(name):
                for index, word in enumerate(line.split()[1:]):
                    left_out[index] += int(word)
    if not events or not total:
        raise ValueError("a profile without events or totals")
    total += [0] * (len(events) - len(total))
    return {event: total[i] - left_out[i] for i, event in enumerate(events)}


def per_unit(profiles, units):
    """Events per unit, from the profiles of two amounts of work."""
    (few, many), (fewer, more) = profiles, units
    return {event: (many[event] - few[event]) / (more - fewer) for event in few}


def profile(row, perf, folder):
    """Runs a row under callgrind; what one unit of it costs."""
    out = folder / row.name
    toggles = [f"--dump-before={MEASURED}"] if row.every_thread else [f"--toggle-collect={MEASURED}"]
    command = [
        "valgrind", "--tool=callgrind", "--instr-atstart=no", "--cache-sim=yes",
        *CACHES, "--fair-sched=try",
        f"--callgrind-out-file={out}", *toggles, f"--dump-after={MEASURED}",
        perf, "cost", row.case, "-q", str(row.qps),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode:
        raise RuntimeError(f"{row.name}: exit status {done.returncode}\n{done.stderr[-2000:]}")
    units = [int(line.split()[2]) for line in done.stdout.splitlines() if line.startswith(row.case)]
    # With a profile before each call too, those of the calls are every second one.
    numbers = (2, 4) if row.every_thread else (1, 2)
    profiles = [counts(Path(f"{out}.{number}").read_text()) for number in numbers]
    return per_unit(profiles, units)


def result(row, cost):
    """A row as it is printed."""
    return {
        "case": row.name,
        "what": row.what,
        "instructions": round(cost["Ir"]),
        "first_level_misses": round(sum(cost[event] for event in FIRST_LEVEL), 1),
        "last_level_misses": round(sum(cost[event] for event in LAST_LEVEL), 1),
    }


def table(results):
    """The table for people, which is also Markdown."""
    lines = [
        "| work | instructions | first-level misses | last-level misses |",
        "| --- | --- | --- | --- |",
    ]
    for row in results:
        misses = f"{row['first_level_misses']:.1f} | {row['last_level_misses']:.1f}"
        lines.append(f"| {row['what']} (`{row['case']}`) | {row['instructions']:,} | {misses} |")
    return "\n".join(lines)


def main():
    """The command."""
    parser = argparse.ArgumentParser(prog="deploy/cost", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    names = [row.name for row in ROWS]
    parser.add_argument("case", nargs="*", metavar="CASE",
                        help=f"rows to measure (default: all): {', '.join(names)}")  # fmt: skip
    options = parser.parse_args()
    for case in options.case:
        if case not in names:
            parser.error(f"no case {case!r}; there are {', '.join(names)}")
    rows = [row for row in ROWS if not options.case or row.name in options.case]
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    perf = str(target / "release" / "uroce-perf")
    with tempfile.TemporaryDirectory(prefix="uroce-cost.") as folder:
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            costs = list(pool.map(lambda row: profile(row, perf, Path(folder)), rows))
    results = [result(row, cost) for row, cost in zip(rows, costs)]
    print(json.dumps({"rows": results}, indent=2) if options.json else table(results))


if __name__ == "__main__":
    try:
        main()
    except (RuntimeError, ValueError, OSError, subprocess.TimeoutExpired) as error:
        sys.exit(f"cost: {error}")
