"""Runs the cases of engines, each over uroce and then over TCP, and prints figures and ratios."""

import os
import statistics
import subprocess
import time
from pathlib import Path

from report.failure import LabFailure
from report.result import FAIL, NOT_RUN, PASS, Result, keep

from . import cases, process

HERE = os.path.dirname(os.path.abspath(__file__))
NAME_WIDTH = 32
# mpi_check's compiler and the name of the program, by implementation of MPI.
COMPILERS = {"mpicc.openmpi": "check.openmpi", "mpicc.mpich": "check.mpich"}


def run(context):
    """Runs the cases that the command line selects."""
    compile_programs(context.work, Path(context.python).parent)
    chosen = [case for case in cases.table(context.everything, context.work, context.python)
              if all(word in case.name for word in context.only.split())]
    header = f"{'engine':{NAME_WIDTH}} {'result':7} {'seconds':>7}   figure: uroce, TCP, ratio"
    context.report.line(header)
    return [attempt(context, case) for case in chosen]


def table(everything):
    """The cases, for a list of them."""
    return cases.table(everything, Path(), "")


def compile_programs(folder, of_pypi):
    """Compiles the programs of this laboratory. `of_pypi` is the folder of the compiler of PyPI."""
    for compiler, program in {**COMPILERS, of_pypi / "mpicc": "check.pypi"}.items():
        words = [compiler, "-O2", "-Wall", "-Werror", "-o", folder / program, f"{HERE}/mpi_check.c"]
        built = subprocess.run(words, stderr=subprocess.PIPE, text=True)
        if built.returncode != 0:
            raise LabFailure(f"{compiler} does not compile mpi_check.c: {built.stderr[-300:]}")


def attempt(context, case):
    """Runs a case over both transports, in turn if it runs several times, and prints its line."""
    result = Result(case, PASS)
    ours, theirs = [], []
    ends = [("uroce", [context.uroce_run], ours, FAIL)]
    if case.is_compared:
        # Without its TCP an engine is not compared.
        beside = [context.uroce_run] if case.needs_uroce_run else []
        ends.append(("tcp", beside, theirs, NOT_RUN))
    for run in range(context.runs):
        for transport, prefix, found, verdict in ends:
            start = time.monotonic()
            try:
                found.append(session(context, case, transport, prefix, run))
            except process.Failed as failure:
                result.verdict, result.reason = verdict, f"over {transport}: {failure}"
                result.pcap = keep(context.kept, case.name.replace(" ", "_"),
                                   outputs(context, case), b"")
                break
            if found is ours:
                result.seconds += (time.monotonic() - start) / context.runs
        if result.reason:
            break
    tell(context.report, result, medians(ours), medians(theirs))
    return result


def medians(runs):
    """The median of each figure."""
    names = runs[0] if runs else ()
    return {name: statistics.median(run[name] for run in runs) for name in names}


def session(context, case, transport, prefix, run):
    """Runs one session and returns its figures. Raises `process.Failed`."""
    log = folder(context, case, transport) / str(run)
    log.mkdir(parents=True)
    text = process.hold(case.over(transport), prefix, case.seconds, log)
    if fault := cases.fault(case, text):
        raise process.Failed(fault)
    return cases.figures(case, text)


def folder(context, case, transport):
    """The folder of a session's outputs."""
    return context.work / "engines" / case.name.replace(" ", "_") / transport


def outputs(context, case):
    """All outputs of a case, for its log."""
    logs = sorted(folder(context, case, "").rglob("*.log"))
    root = folder(context, case, "")
    return "\n".join(f"== {log.relative_to(root)}\n{log.read_text(errors='replace')}"
                     for log in logs)


def tell(report, result, ours, theirs):
    """Prints the line of one case."""
    compared = []
    for name, value in ours.items():
        if beside := theirs.get(name):
            ratio = cases.ratio(name, value, beside)
            compared.append(f"{name} {value:g}, {beside:g}, x {ratio:.2f}")
    report.line(f"{result.case.name:{NAME_WIDTH}} {result.verdict:7} {result.seconds:7.1f}   "
                f"{'; '.join(compared)}")
    if result.reason:
        report.line(f"    {result.reason}")
    if result.pcap:
        report.line(f"    kept {result.pcap}")
