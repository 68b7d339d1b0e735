"""deploy/kubernetes/node: runs the Pods under Debian's kubelet.

  source   kubelet, from Debian's source package
  node     containerd and kubelet, apart from this machine
  pods     what is proven
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(REPOSITORY / "deploy/container/proof"))

import application  # noqa: E402
import archive  # noqa: E402
import pods  # noqa: E402
import source  # noqa: E402
from node import PAUSE, Node, NodeFailure  # noqa: E402

PAGES = 64
"""Number of 2 MB pages that are added to this machine's while the node runs."""
FAILURES = (NodeFailure, source.Unavailable, application.BuildFailure, OSError,
            subprocess.SubprocessError)


def parse():
    """Parses the command line."""
    parser = argparse.ArgumentParser(prog="deploy/kubernetes/node", description="Builds kubelet "
                                     "from Debian's source package, once, and runs the Pods under "
                                     "it without an API server, as root. It takes a quarter of an "
                                     "hour or more the first time.")
    parser.add_argument("--binaries", type=Path, metavar="DIR",
                        help="built programs and libraries, instead of a release build")
    parser.add_argument("--kubelet", type=Path, metavar="FILE", help="a kubelet that is there, of "
                        "1.20 to 1.23, which know containerd 1.6 and control groups of version 1")
    parser.add_argument("--only", default="", metavar="CASES",
                        help=f"of {', '.join(case.__name__ for case in pods.CASES)}")
    return parser.parse_args()


def main():
    """Returns the exit status: 0 if all have passed, 1 if some have failed, 2 without root."""
    arguments = parse()
    if os.geteuid() != 0:
        print("node: needs root, for namespaces and control groups", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    cache = REPOSITORY / "target/container/cache"
    only = [name for name in arguments.only.split(",") if name]
    wanted = [case for case in pods.CASES if not only or case.__name__ in only]
    try:
        kubelet = arguments.kubelet or source.kubelet(cache)
        said = subprocess.run([kubelet, "--version"], capture_output=True, text=True, check=True)
        print(said.stdout.strip(), flush=True)
        with tempfile.TemporaryDirectory(prefix="uroce-node-") as work:
            os.chmod(work, 0o755)
            images = build(Path(work), cache, arguments.binaries)
            with Node(Path(work), kubelet.resolve(), PAGES) as node:
                for image in images:
                    node.load(image)
                # Each case runs, whatever became of the one before.
                return max([passes(case, node) for case in wanted], default=0)
    except FAILURES as failure:
        print(f"node: {failure}", file=sys.stderr)
        return 1


def build(work, cache, binaries):
    """Builds the images: the pause image, which holds a Pod's namespaces, uroce's and perftest's.
    Returns their files."""
    command = [str(REPOSITORY / "deploy/container/build"), "--output", str(work / "uroce.tar"),
               "--cache", str(cache)]
    subprocess.run([*command, *(["--binaries", str(binaries)] if binaries else [])], check=True)
    (work / "pause").mkdir()
    (work / "pause/catatonit").write_bytes(Path("/usr/bin/catatonit").read_bytes())
    (work / "pause/catatonit").chmod(0o755)
    archive.write(work / "pause.tar", work / "pause", PAUSE, 0, {}, ["/catatonit", "-P"])
    return work / "pause.tar", work / "uroce.tar", application.build(work / "perftest.tar", cache)


def passes(case, node):
    """Runs a case and prints its verdict. Returns 1 if it has failed."""
    begin = time.monotonic()
    try:
        case(node)
        verdict = "ok"
    except FAILURES as failure:
        verdict = f"FAILED: {failure}"
    words = case.__doc__.split("\n")[0]
    print(f"{case.__name__}: {words} {verdict}, {time.monotonic() - begin:.1f} s", flush=True)
    return int(verdict != "ok")


if __name__ == "__main__":
    sys.exit(main())
