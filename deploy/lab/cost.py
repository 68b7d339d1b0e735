"""Counts what a message costs, in instructions and cache misses: figures without noise.

Each row is one fixed amount of work, done once, and then once more three times as large, with both
ends in one process under callgrind. The figures are the difference of the two counts, divided by
the messages, packets or calls that the larger one had more. So neither start-up nor turns without
work are in them.

The caches are simulated, with the same sizes on any machine: 32 KiB of first level for instructions
and 32 KiB for data, 1 MiB of last level. callgrind shows the program a processor without AVX-512
and VPCLMULQDQ, so the code paths for those are not what is counted.

A message row counts the one thread that posts, drives both lcores and polls. Two runs of one binary
give the same number of instructions with one queue pair, and differ by less than 0.1 % with 1,000,
whose numbers are random. How far the timer wheel walks is left out, since that depends on the time.

"Modify QP" counts the calling thread and what the control-plane thread does for its requests, the
lcore's part included. "Connection" counts the calling thread and what both control-plane threads do
for requests, messages of the connection manager and events. What threads do to wait for and wake
each other, clocks and the allocator are left out. Two runs differ by less than 1 %.

Run from anywhere; what is missing of Debian's packages (valgrind) and the release build come first.
"""

import argparse
import concurrent.futures
import datetime
import fnmatch
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
# What the control-plane thread does when it is called for, not what it does each millisecond.
REQUESTS = ("*Thread>::run_job",)
MESSAGES = ("*Thread>::take_mads", "*Thread>::take_notices")
# How far the timer wheel walks depends on the time that passes.
LEFT_OUT = re.compile(r"TimerWheel::walk$")
# What one thread does for another depends on which of them sleeps, and so do clocks and the
# allocator.
LEFT_OUT_OF_SEVERAL = re.compile(
    r"TimerWheel::walk$|std::sync::(mpmc|mpsc|poison)|std::thread::.*park|[Ff]utex|^syscall$"
    r"|Tokens::add$|fcntl|Timespec|clock_gettime"
    r"|^(_int_|unlink_chunk|tcache_|sysmalloc|alloc_perturb|malloc|calloc|realloc|free$)"
)
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
    # Functions that count on whatever thread runs them, as callgrind's patterns.
    beside: tuple = ()


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
    Row("atomic-write8", "ATOMIC WRITE 8 B, message", "atomic-write8"),
    Row("ud64", "UD SEND 64 B, message", "ud64"),
    Row("list8", "SEND 8 B in lists, message", "list8"),
    Row("paced8", "the same by the generator of loads", "paced8"),
    Row("modify", "Modify QP, call", "modify", beside=REQUESTS),
    Row("connect", "connection set up and ended", "connect", beside=REQUESTS + MESSAGES),
]


def counts(text, left_out_names=LEFT_OUT):
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
            elif left_out_names.search(name):
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
    out.mkdir()
    command = [
        "valgrind", "--tool=callgrind", "--instr-atstart=no", "--cache-sim=yes",
        *CACHES, "--fair-sched=try", f"--callgrind-out-file={out / 'profile'}",
        *(f"--toggle-collect={function}" for function in (MEASURED, *row.beside)),
        f"--dump-after={MEASURED}", perf, "cost", row.case, "-q", str(row.qps),
    ]  # fmt: skip
    # The same environment always: it lies on the stack, so it shifts addresses.
    environment = {"PATH": os.environ.get("PATH", os.defpath), "XDG_RUNTIME_DIR": str(out)}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, env=environment
    )
    if done.returncode:
        raise RuntimeError(f"{row.name}: exit status {done.returncode}\n{done.stderr[-2000:]}")
    units = [int(line.split()[2]) for line in done.stdout.splitlines() if line.startswith(row.case)]
    left_out = LEFT_OUT_OF_SEVERAL if row.beside else LEFT_OUT
    texts = [(out / f"profile.{number}").read_text() for number in (1, 2)]
    missing = uncounted(texts[1], row.beside)
    if missing:
        raise RuntimeError(
            f"{row.name}: the program has no function {missing}, so its work would not be counted;"
            " is it inlined or renamed? See MESSAGES and REQUESTS in deploy/lab/cost.py"
        )
    return per_unit([counts(text, left_out) for text in texts], units)


def uncounted(text, patterns):
    """The first of callgrind's patterns that no function of a profile matches; none: None."""
    names = re.findall(r"^c?fn=\(\d+\) (.+)$", text, re.MULTILINE)
    return next((one for one in patterns if not fnmatch.filter(names, one)), None)


def result(row, cost):
    """A row as it is printed."""
    return {
        "case": row.name,
        "what": row.what,
        "instructions": round(cost["Ir"]),
        "first_level_misses": misses(cost, FIRST_LEVEL),
        "last_level_misses": misses(cost, LAST_LEVEL),
    }


def misses(cost, events):
    """Misses per unit. The smaller amount of work comes first and may have a few more by itself."""
    return max(0.0, round(sum(cost[event] for event in events), 1))


def provenance():
    """What the figures depend on: the commit, and the machine as far as it matters."""
    return {
        "commit": said_by("git", "-C", str(ROOT), "describe", "--always", "--dirty"),
        "date": datetime.date.today().isoformat(),
        "cpu": cpu_model(Path("/proc/cpuinfo").read_text()),
        "valgrind": said_by("valgrind", "--version"),
        "rustc": said_by("rustc", "--version"),
    }


def said_by(*command):
    """A command's output in one line, or "unknown" where it cannot be run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def cpu_model(cpuinfo):
    """The processor's name."""
    found = re.search(r"^model name\s*: (.*)$", cpuinfo, re.MULTILINE)
    return found[1] if found else "unknown"


def table(results):
    """The table for people, which is also Markdown."""
    lines = [
        "| work | instructions | first-level misses | last-level misses |",
        "| --- | ---: | ---: | ---: |",
    ]
    for row in results:
        misses = f"{row['first_level_misses']:.1f} | {row['last_level_misses']:.1f}"
        lines.append(f"| {row['what']} (`{row['case']}`) | {row['instructions']:,} | {misses} |")
    return "\n".join(lines)


def arguments(words):
    """The command line; ends the program where it is wrong."""
    parser = argparse.ArgumentParser(prog="deploy/cost", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--check", action="store_true", help=argparse.SUPPRESS)
    names = [row.name for row in ROWS]
    parser.add_argument("case", nargs="*", metavar="CASE",
                        help=f"rows to measure (default: all): {', '.join(names)}")  # fmt: skip
    options = parser.parse_args(words)
    for case in options.case:
        if case not in names:
            parser.error(f"no case {case!r}; there are {', '.join(names)}")
    return options


def main():
    """The command."""
    options = arguments(sys.argv[1:])
    if options.check:
        return
    rows = [row for row in ROWS if not options.case or row.name in options.case]
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    perf = str(target / "release" / "uroce-perf")
    with tempfile.TemporaryDirectory(prefix="uroce-cost.") as folder:
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            costs = list(pool.map(lambda row: profile(row, perf, Path(folder)), rows))
    results = [result(row, cost) for row, cost in zip(rows, costs)]
    origin = provenance()
    if options.json:
        print(json.dumps({**origin, "rows": results}, indent=2))
    else:
        print(", ".join(f"{key} {value}" for key, value in origin.items()), end="\n\n")
        print(table(results))


if __name__ == "__main__":
    try:
        main()
    except (RuntimeError, ValueError, OSError, subprocess.TimeoutExpired) as error:
        sys.exit(f"cost: {error}")
