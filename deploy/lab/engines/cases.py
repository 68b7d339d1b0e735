"""The cases of engines: each one session over uroce, and one over the engine's own TCP.

The engines run on one machine, where each would take shared memory of its own. The options that
turn it off, or name the transport, are the engines' and not uroce's: a user gives them where ranks
are on several hosts. uroce itself gets neither option nor variable.
"""

import re
from dataclasses import dataclass
from typing import Callable

from .process import End

SECONDS = 60
SHORT_ROUNDS, LONG_ROUNDS = 20, 200


@dataclass(frozen=True)
class Case:
    """One session of an engine. `over` returns its processes for a transport, "uroce" or "tcp"."""

    name: str
    over: Callable
    wanted: tuple
    """Lines that the last process must print."""
    is_brief: bool = True
    """Whether the case is part of the short form."""
    seconds: int = SECONDS

    server = client = "uroce"

    def fields(self):
        """Fields for the JSON report."""
        return {}


def fault(case, text):
    """What an output lacks. Empty if it is whole."""
    lines = [line.strip() for line in text.splitlines()]
    missing = [line for line in case.wanted if line not in lines]
    return f"did not say: {', '.join(missing)}" if missing else ""


def figures(text):
    """The figures of an output by name. The name ends in a unit: _us and _ms are better if they are
    smaller."""
    found = re.findall(r"^figure (\w+) ([\d.]+)$", text, re.MULTILINE)
    return {name: float(value) for name, value in found}


def ratio(name, ours, theirs):
    """How many times better a figure is than another one."""
    first, second = (theirs, ours) if name.endswith(("_us", "_ms")) else (ours, theirs)
    return first / second


def table(everything, folder):
    """All cases, or those of the short form. `folder` has the programs of this laboratory."""
    return [case for case in (*open_mpi(everything, folder), *mpich(everything, folder))
            if everything or case.is_brief]


MPI_STEPS = ("ring ok", "allreduce ok", "alltoall ok", "one-sided ok")
MPI_RANKS = (2, 4, 8)


def open_mpi(everything, folder):
    """Open MPI over UCX."""
    rounds = LONG_ROUNDS if everything else SHORT_ROUNDS
    for ranks in MPI_RANKS:
        def over(transport, ranks=ranks):
            words = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", ranks,
                     "--mca", "pml", "ucx", "--mca", "osc", "ucx",
                     # Else Open MPI takes UCX only with NICs of one maker.
                     "--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices", "any"]
            return [End((*words, folder / "check.openmpi", rounds), (ucx(transport),))]
        yield Case(f"Open MPI, UCX, {ranks} ranks", over, MPI_STEPS)


def mpich(everything, folder):
    """MPICH over UCX."""
    rounds = LONG_ROUNDS if everything else SHORT_ROUNDS
    for ranks in MPI_RANKS:
        def over(transport, ranks=ranks):
            words = ("mpirun.mpich", "-localhost", "localhost", "-n", ranks,
                     folder / "check.mpich", rounds)
            # Over UCX's TCP, MPICH may hang in MPI_Finalize.
            last_line = "figure alltoall_ms" if transport == "tcp" and ranks > 2 else ""
            return [End(words, (ucx(transport), "MPIR_CVAR_NOLOCAL=1"), last_line=last_line)]
        yield Case(f"MPICH, UCX, {ranks} ranks", over, MPI_STEPS)


def ucx(transport):
    """The variable with UCX's transports."""
    return f"UCX_TLS={'rc,self' if transport == 'uroce' else 'tcp,self'}"
