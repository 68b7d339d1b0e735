"""rdma-core's own tests of pyverbs, as Debian packages them, over uroce.

Each module of tests is a case and a process of its own. What every test says must be what
`pyverbs.txt` says: that it passes, or that it is skipped, and with which words.
"""

import gzip
import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import network
import session
from session import FAIL, PASS, Result

TESTS = Path("/usr/share/doc/rdma-core/tests")
LIST = Path(__file__).resolve().parent / "pyverbs.txt"
PYTHON = "/usr/bin/python3"
SECONDS = 240
# The tests look a netdev's address up and give it to the connection manager.
NETDEV = "rocedev"
ADDRESSES = {4: "192.0.2.1", 6: "2001:db8::1"}
GID_INDEX = "1"
# The module whose tests fork.
CONNECTIONS = "test_rdmacm"
# The names of those that are for one vendor's devices begin so; one process is enough for them.
VENDORS = ("test_mlx5", "test_efa", "test_cuda")

TEST = re.compile(r"^(test_\w+) \((?:tests\.)?([\w.]+)\)", re.MULTILINE)
VERDICT = re.compile(r"(?:^|\.\.\. )(ok|FAIL|ERROR|skipped (?:'.*'|\".*\"))$", re.MULTILINE)


@dataclass(frozen=True)
class Case:
    """A module of tests, or a vendor's modules."""

    module: str

    server, client = "uroce", "-"
    pairing = "pyverbs"

    @property
    def name(self):
        """In the table."""
        return f"pyverbs {self.module}"

    def fields(self):
        """What it is, for the report in JSON."""
        return {"program": "pyverbs", "module": self.module}


def table():
    """The modules of the list, in its order."""
    return [Case(module) for module in dict.fromkeys(map(module_of, expected()))]


def module_of(test):
    """The case a test belongs to."""
    module = test.partition(".")[0]
    return next((vendor for vendor in VENDORS if module.startswith(vendor)), module)


def expected():
    """What the list says of each test: verdicts, of which each is right."""
    found = {}
    for line in LIST.read_text().splitlines():
        if line and not line.startswith("#"):
            test, _, verdicts = line.partition(" ")
            found[test] = verdicts.strip().split(" | ")
    return found


def run(context, cases):
    """The cases, each told as it ends; then how many tests of each passed."""
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
            result.pcap = session.keep(context.kept, case.module, text, b"")
        result.seconds = time.monotonic() - start
        results.append(result)
        context.report.tell(result)
    for line in summary(counts):
        context.report.line(line)
    return results


def unpack(work):
    """The tests as they are imported: Debian compresses some."""
    folder = work / "tests"
    folder.mkdir()
    for path in TESTS.iterdir():
        if path.suffix == ".gz":
            (folder / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
        elif path.is_file():
            shutil.copy(path, folder)
    return folder


def netdev():
    """A netdev with the address of uroce's port, of which one end is enough."""
    network.ip("link", "add", NETDEV, "type", "veth", "peer", "name", f"{NETDEV}1")
    network.ip("address", "add", f"{ADDRESSES[4]}/24", "dev", NETDEV)
    network.bring_up(NETDEV, network.ROCE_MTU)


def twins(work):
    """The configurations of two processes with the same addresses: the tests of the connection
    manager fork both ends, and know one address."""
    macs = ["02:00:00:00:00:01", "02:00:00:00:00:02"]
    addresses = ", ".join(f'"{address}"' for address in (f"{ADDRESSES[4]}/24",
                                                         f"{ADDRESSES[6]}/64"))
    paths = []
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
        paths += ["--config", path]
    return paths


def attempt(context, case, folder):
    """What the tests of a module said, and all their output."""
    words = twins(context.work) if case.module == CONNECTIONS else []
    command = ["env", f"XDG_RUNTIME_DIR={context.work}", context.uroce_run, "--netdev", NETDEV,
               *words, "--",
               PYTHON, folder / "run_tests.py", "--dev", "uroce0", "--gid", GID_INDEX, "-v",
               "-k", f"tests.{case.module}*" if case.module in VENDORS else f"tests.{case.module}.*"]
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
    """What unittest says of each test: `pass`, `fail`, `error` or `skip` with the words."""
    begins = list(TEST.finditer(text))
    ends = [begin.start() for begin in begins[1:]] + [len(text)]
    found = {}
    for begin, end in zip(begins, ends):
        name = begin[2] if begin[2].endswith(begin[1]) else f"{begin[2]}.{begin[1]}"
        if name not in found:  # the tracebacks at the end name them again
            found[name] = verdict(text[begin.end():end].partition("\n====")[0])
    return found


def verdict(text):
    """The last verdict in what is said of a test, for the test may print."""
    words = VERDICT.findall(text)
    if not words:
        return "no verdict"
    if words[-1].startswith("skipped"):
        return "skip " + words[-1][len("skipped '"):-1]
    return {"ok": "pass", "FAIL": "fail", "ERROR": "error"}[words[-1]]


def fault(case, said):
    """What is not as the list has it."""
    wanted = {test: right for test, right in expected().items() if module_of(test) == case.module}
    wrong = [f"{test}: {said.get(test, 'not run')}" for test, right in wanted.items()
             if said.get(test) not in right]
    wrong += [f"{test}: {word}, not in the list" for test, word in said.items()
              if test not in wanted]
    return "; ".join(wrong)


def summary(counts):
    """How many tests of each module passed, were skipped, and else."""
    def row(name, said):
        words = [word.partition(" ")[0] for word in said]
        passed, skipped = words.count("pass"), words.count("skip")
        return f"{name:24} {passed:>5} {skipped:>8} {len(words) - passed - skipped:>5}"

    yield f"{'pyverbs':24} {'pass':>5} {'skipped':>8} {'else':>5}"
    for module, said in counts.items():
        yield row(module, said.values())
    yield row("all", [word for said in counts.values() for word in said.values()])
