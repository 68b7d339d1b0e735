"""rdma-core's tests of pyverbs, as Debian packages them, over uroce.

Each module of tests is a case and a process of its own. The verdict of every test must be the one
in `pyverbs.txt`: passed, skipped with this reason, or an error that is explained there.
"""

import gzip
import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from vm import network
from report.result import FAIL, PASS, Result, keep

TESTS = Path("/usr/share/doc/rdma-core/tests")
LIST = Path(__file__).resolve().parent / "pyverbs.txt"
PYTHON = "/usr/bin/python3"
SECONDS = 240
# The interface with the address that the tests of the connection manager use.
NETDEV = "rocedev"
ADDRESSES = {4: "192.0.2.1", 6: "2001:db8::1"}
GID_INDEX = "1"
# The module with tests that fork.
CONNECTIONS = "test_rdmacm"
# Name prefixes of modules for one vendor's devices; one process runs all modules of a vendor.
VENDORS = ("test_mlx5", "test_efa", "test_cuda")

TEST = re.compile(r"^(test_\w+) \((?:tests\.)?([\w.]+)\)", re.MULTILINE)
VERDICT = re.compile(r"(?:^|\.\.\. )(ok|FAIL|ERROR|skipped (?:'.*'|\".*\"))$", re.MULTILINE)


@dataclass(frozen=True)
class Case:
    """A module of tests, or the modules of a vendor."""

    module: str

    server, client = "uroce", "-"
    pairing = "pyverbs"

    @property
    def name(self):
        """The name in the table."""
        return f"pyverbs {self.module}"

    def fields(self):
        """Fields for the JSON report."""
        return {"program": "pyverbs", "module": self.module}


def table():
    """The modules of the list, in its order."""
    return [Case(module) for module in dict.fromkeys(map(module_of, expected()))]


def module_of(test):
    """The case that a test belongs to."""
    module = test.partition(".")[0]
    return next((vendor for vendor in VENDORS if module.startswith(vendor)), module)


def expected():
    """The list's verdicts of each test. Any of them is right."""
    found = {}
    for line in LIST.read_text().splitlines():
        if line and not line.startswith("#"):
            test, _, verdicts = line.partition(" ")
            found[test] = verdicts.strip().split(" | ")
    return found


def run(context, cases):
    """Runs the cases and reports each as it ends, then the numbers of tests that passed."""
    if not cases:
        return []
    folder = unpack(context.work)
    netdev()
    results, counts = [], {}
    for case in cases:
        start = time.monotonic()
        said, text = attempt(context, case, folder)
        counts[case.module] = said
        reason = fault(case, said)
        result = Result(case, FAIL if reason else PASS, reason)
        if reason:
            result.pcap = keep(context.kept, case.module, text, b"")
        result.seconds = time.monotonic() - start
        results.append(result)
        context.report.tell(result)
    for line in summary(counts):
        context.report.line(line)
    return results


def unpack(work):
    """Unpacks the tests for import, as Debian compresses some."""
    folder = work / "tests"
    folder.mkdir()
    for path in TESTS.iterdir():
        if path.suffix == ".gz":
            (folder / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
        elif path.is_file():
            shutil.copy(path, folder)
    return folder


def netdev():
    """Adds a network interface with the address of uroce's port. One end of the pair is enough."""
    network.ip("link", "add", NETDEV, "type", "veth", "peer", "name", f"{NETDEV}1")
    network.ip("address", "add", f"{ADDRESSES[4]}/24", "dev", NETDEV)
    network.bring_up(NETDEV, network.ROCE_MTU)


def connected(work):
    """Options for the tests of the connection manager: they look up the address of a network
    interface, fork both ends, and give both this address. So there are configurations of two
    processes with the same addresses."""
    macs = ["02:00:00:00:00:01", "02:00:00:00:00:02"]
    addresses = ", ".join(f'"{address}"' for address in (f"{ADDRESSES[4]}/24",
                                                         f"{ADDRESSES[6]}/64"))
    words = ["--netdev", NETDEV]
    for role, mac, twin in (("server", *macs), ("client", *reversed(macs))):
        vdev = (f"net_memif0,role={role},socket={work}/twins.sock,socket-abstract=no,bsize=8192,"
                f"rsize=10,mac={mac}")
        path = work / f"{role}.toml"
        path.write_text(f"""[[device]]
name = "uroce0"

[[device.port]]
ethdev = {{ vdev = "{vdev}" }}
ip = [{addresses}]
mtu = {network.ROCE_MTU}
mac = "{mac}"
twin = "{twin}"
""")
        words += ["--config", path]
    return words


def attempt(context, case, folder):
    """Runs the tests of a module and returns their verdicts and all output."""
    words = connected(context.work) if case.module == CONNECTIONS else []
    tests = f"tests.{case.module}*" if case.module in VENDORS else f"tests.{case.module}.*"
    command = ["env", f"XDG_RUNTIME_DIR={context.work}", context.uroce_run, *words, "--",
               PYTHON, folder / "run_tests.py", "--dev", "uroce0", "--gid", GID_INDEX, "-v",
               "-k", tests]
    command = [str(word) for word in command]
    try:
        done = subprocess.run(
            ["setpriv", "--pdeathsig", "KILL", *command], cwd=folder, timeout=SECONDS, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        text, status = done.stdout, done.returncode
    except subprocess.TimeoutExpired as late:
        text, status = (late.stdout or b"").decode(errors="replace"), "late"
    return verdicts(text), f"{' '.join(command)}\n{text}\nexit {status}\n"


def verdicts(text):
    """The verdict of each test in unittest's output: `pass`, `fail`, `error`, or `skip` with the
    reason."""
    begins = list(TEST.finditer(text))
    ends = [begin.start() for begin in begins[1:]] + [len(text)]
    found = {}
    for begin, end in zip(begins, ends):
        name = begin[2] if begin[2].endswith(begin[1]) else f"{begin[2]}.{begin[1]}"
        if name not in found:  # the tracebacks at the end repeat the names
            found[name] = verdict(text[begin.end():end].partition("\n====")[0])
    return found


def verdict(text):
    """The last verdict in the output of a test, as the test may print too."""
    words = VERDICT.findall(text)
    if not words:
        return "no verdict"
    if words[-1].startswith("skipped"):
        return "skip " + words[-1][len("skipped '"):-1]
    return {"ok": "pass", "FAIL": "fail", "ERROR": "error"}[words[-1]]


def fault(case, said):
    """The tests with another verdict than the list's."""
    wanted = {test: right for test, right in expected().items() if module_of(test) == case.module}
    wrong = [f"{test}: {said.get(test, 'not run')}" for test, right in wanted.items()
             if said.get(test) not in right]
    wrong += [f"{test}: {word}, not in the list" for test, word in said.items()
              if test not in wanted]
    return "; ".join(wrong)


def summary(counts):
    """Numbers of tests of each module that passed, were skipped, and the rest."""
    def row(name, said):
        words = [word.partition(" ")[0] for word in said]
        passed, skipped = words.count("pass"), words.count("skip")
        return f"{name:24} {passed:>5} {skipped:>8} {len(words) - passed - skipped:>5}"

    yield f"{'pyverbs':24} {'pass':>5} {'skipped':>8} {'else':>5}"
    for module, said in counts.items():
        yield row(module, said.values())
    yield row("all", [word for said in counts.values() for word in said.values()])
