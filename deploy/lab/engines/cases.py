"""The cases of engines: each one session over uroce, and one over the engine's own TCP.

The engines run on one machine, where each would take shared memory of its own. The options that
turn it off, or name the transport, are the engines' and not uroce's: a user gives them where ranks
are on several hosts. uroce itself gets neither option nor variable.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from vm.network import CONTROL_HOST

from .process import End

HERE = os.path.dirname(os.path.abspath(__file__))
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
    needs_uroce_run: bool = False
    """Whether the session over TCP runs under `uroce-run` as well."""
    is_compared: bool = True
    """Whether there is a session over TCP."""
    finds: tuple = ()
    """Names of figures that the engine prints, each with its regular expression."""

    server = client = "uroce"

    def fields(self):
        """Fields for the JSON report."""
        return {}


def fault(case, text):
    """What an output lacks. Empty if it is whole."""
    lines = [line.strip() for line in text.splitlines()]
    missing = [line for line in case.wanted if line not in lines]
    if missing:
        return f"did not say: {', '.join(missing)}"
    return "" if figures(case, text) else "printed no figure"


def figures(case, text):
    """The figures of an output by name. The name ends in a unit: _us and _ms are better if they are
    smaller."""
    found = re.findall(r"^figure (\w+) ([\d.]+)$", text, re.MULTILINE)
    found += [(name, match[1]) for name, expression in case.finds
              if (match := re.search(expression, text, re.MULTILINE))]
    return {name: float(value) for name, value in found}


def ratio(name, ours, theirs):
    """How many times better a figure is than another one."""
    first, second = (theirs, ours) if name.endswith(("_us", "_ms")) else (ours, theirs)
    return first / second


def table(everything, folder, python):
    """All cases, or those of the short form. `folder` has the programs of this laboratory, and
    `python` the engines of PyPI."""
    cases = (*open_mpi(everything, folder), *open_mpi_fabric(everything, folder),
             *mpich(everything, folder), *mpich_fabric(everything, folder, python),
             *ucx_perftest(everything), *pingpong(everything), *mooncake(everything, python),
             *nixl(everything, python), *nccl(python))
    return [case for case in cases if everything or case.is_brief]


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


def open_mpi_fabric(everything, folder):
    """Open MPI over libfabric."""
    rounds = LONG_ROUNDS if everything else SHORT_ROUNDS
    for ranks in MPI_RANKS:
        def over(transport, ranks=ranks):
            provider = "verbs;ofi_rxm" if transport == "uroce" else "tcp;ofi_rxm"
            words = ("mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", ranks,
                     "--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "osc", "^ucx,sm",
                     "--mca", "mtl_ofi_provider_include", provider)
            return [End((*words, folder / "check.openmpi", rounds))]
        # The short form has Open MPI over UCX, and libfabric's own test.
        yield Case(f"Open MPI, libfabric, {ranks} ranks", over, MPI_STEPS, is_brief=False)


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


def mpich_fabric(everything, folder, python):
    """MPICH of PyPI over libfabric. Debian's has UCX alone."""
    rounds = LONG_ROUNDS if everything else SHORT_ROUNDS
    for ranks in MPI_RANKS:
        def over(transport, ranks=ranks):
            provider = "verbs;ofi_rxm" if transport == "uroce" else "tcp;ofi_rxm"
            words = (Path(python).parent / "mpiexec", "-localhost", "localhost", "-n", ranks,
                     folder / "check.pypi", rounds)
            return [End(words, ("MPIR_CVAR_CH4_NETMOD=ofi", "MPIR_CVAR_NOLOCAL=1",
                                f"FI_PROVIDER={provider}"))]
        yield Case(f"MPICH, libfabric, {ranks} ranks", over, MPI_STEPS, is_brief=ranks == 2)


def ucx(transport):
    """The variable with UCX's transports."""
    return f"UCX_TLS={'rc,self' if transport == 'uroce' else 'tcp,self'}"


# Tests of ucx_perftest: name, options, the figure and its column in the last line, whether brief.
UCX_TESTS = (
    ("tag_lat", "-s 8", "latency_us", 2, True),
    ("tag_bw", "-s 65536", "mbytes", 4, True),
    ("ucp_put_lat", "-s 8", "latency_us", 2, False),
    ("ucp_put_bw", "-s 65536", "mbytes", 4, True),
    ("ucp_get", "-s 65536", "latency_us", 2, True),
    ("ucp_am_lat", "-s 8", "latency_us", 2, False),
    ("ucp_am_bw", "-s 65536", "mbytes", 4, True),
    ("ucp_add", "-s 8", "latency_us", 2, False),
    ("ucp_fadd", "-s 8", "latency_us", 2, True),
    ("ucp_swap", "-s 8", "latency_us", 2, False),
    ("ucp_cswap", "-s 8", "latency_us", 2, True),
)
UCX_PORT, FABRIC_PORT = 13337, 13338


def ucx_perftest(everything):
    """UCX's own tests: tags, put, get, active messages, atomics."""
    messages = 20000 if everything else 1000
    for test, size, figure, column, is_brief in UCX_TESTS:
        def over(transport, test=test, size=size):
            words = ("ucx_perftest", "-p", UCX_PORT, "-n", messages, "-w", 50, "-t", test,
                     *size.split())
            variables = (ucx(transport),)
            return [End(words, variables, UCX_PORT), End((*words, "127.0.0.1"), variables)]
        line = r"^Final:" + r" +[\d.]+" * column + r" +([\d.]+)"
        yield Case(f"UCX {test} {size}", over, (), is_brief, finds=((figure, line),))


def pingpong(everything):
    """libfabric's pingpong: messages, and reliable datagrams over them."""
    rounds = 2000 if everything else 200
    for provider, beside, kind in (("verbs", "tcp", "msg"),
                                   ("verbs;ofi_rxm", "tcp;ofi_rxm", "rdm")):
        def over(transport, provider=provider, beside=beside, kind=kind):
            words = ("fi_pingpong", "-p", provider if transport == "uroce" else beside, "-e", kind,
                     "-I", rounds, "-S", 65536, "-c")
            return [End((*words, "-B", FABRIC_PORT), (), FABRIC_PORT),
                    End((*words, "-P", FABRIC_PORT, CONTROL_HOST))]
        line = r"^64k .* ([\d.]+) +[\d.]+$"
        yield Case(f"libfabric {provider}", over, (), finds=(("transfer_us", line),))


def mooncake(everything, python):
    """Mooncake's transfer engine."""
    for nodes, mebibytes, rounds in ((2, 64, 10 if everything else 3),
                                     (3, 8, 50 if everything else 3)):
        def over(transport, sizes=(nodes, mebibytes, rounds)):
            protocol = "rdma" if transport == "uroce" else "tcp"
            return [End((python, "-B", f"{HERE}/mooncake_nodes.py", *sizes, protocol))]
        yield Case(f"Mooncake, {nodes} nodes", over, ("mooncake ok",))

    def store(transport):
        protocol = "rdma" if transport == "uroce" else "tcp"
        return [End((python, "-B", f"{HERE}/mooncake_store.py", 8, protocol))]
    yield Case("Mooncake's store, a node killed", store, ("store ok",))


def nccl(python):
    """NCCL's transport for RDMA. It is long, as the library is half a gigabyte, which a brief run
    does not install. Its TCP needs CUDA."""
    def over(_):
        return [End((python, "-B", f"{HERE}/nccl_transport.py", 50))]
    yield Case("NCCL, its transport", over, ("nccl ok",), is_brief=False, is_compared=False)


def nixl(everything, python):
    """NIXL with its own UCX. Without an RDMA device its libraries crash, so its TCP runs under
    `uroce-run` as well."""
    rounds = 50 if everything else 5

    def over(transport):
        return [End((python, "-B", f"{HERE}/nixl_agents.py", 4, rounds), (ucx(transport),))]
    yield Case("NIXL, UCX, 4 agents", over, ("nixl ok",), needs_uroce_run=True)
