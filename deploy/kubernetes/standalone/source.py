"""Builds kubelet once from Debian's source package of Kubernetes, which needs no other source."""

import os
import re
import shutil
import subprocess
from pathlib import Path

PACKAGE = "kubernetes"
IMPORT = Path("src/k8s.io/kubernetes")
"""Place of the source below GOPATH, as in Debian's build."""
VERSION = "k8s.io/kubernetes/vendor/k8s.io/component-base/version.git"
SOURCES = Path("/etc/apt")


class Unavailable(Exception):
    """kubelet cannot be built; the text says why."""


def kubelet(cache):
    """Returns the file of kubelet. Builds it if it is not in the cache. Raises Unavailable."""
    program = cache / "kubelet"
    if not program.exists():
        folder = cache / "kubernetes-source"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        build(folder, unpack(folder)).rename(program)
        shutil.rmtree(folder)
    return program


def unpack(folder):
    """Downloads the source package with apt, which verifies it, and unpacks it. Returns the release
    of Kubernetes."""
    (folder / "lists/partial").mkdir(parents=True)
    found = [text for file in sources() if (text := source_of(file.read_text()))]
    if not found:
        raise Unavailable("apt has no sources of packages on this machine")
    for at, text in enumerate(found):
        kind = "sources" if "Types:" in text else "list"
        (folder / f"parts/{at}.{kind}").parent.mkdir(exist_ok=True)
        (folder / f"parts/{at}.{kind}").write_text(text)
    apt = ["apt-get", "-qq", "-o", "Dir::Etc::sourcelist=/dev/null", "-o",
           f"Dir::Etc::sourceparts={folder}/parts", "-o", f"Dir::State::Lists={folder}/lists",
           "-o", "APT::Sandbox::User=root"]
    run([*apt, "update"], folder)
    run([*apt, "source", "--download-only", PACKAGE], folder)
    [described] = folder.glob("*.dsc")
    target = folder / "go" / IMPORT
    target.parent.mkdir(parents=True)
    run(["dpkg-source", "--no-check", "--extract", described.name, str(target)], folder)
    # 1.20.5+really1.20.2-1.1 is 1.20.2.
    return re.search(r"(\d+\.\d+\.\d+)(?:\.orig|-)", described.name.split("really")[-1])[1]


def sources():
    """Returns the files with this machine's package sources."""
    files = [SOURCES / "sources.list", *SOURCES.glob("sources.list.d/*.list"),
             *SOURCES.glob("sources.list.d/*.sources")]
    return [file for file in files if file.exists()]


def source_of(text):
    """Returns the package sources in `text` as sources of source packages; empty if it has none."""
    lines = [re.sub(r"^(deb)(?=[ \t\[])", "deb-src", line) for line in text.splitlines()]
    lines = [re.sub(r"^Types:.*", "Types: deb-src", line) for line in lines]
    has = any(line.startswith(("deb-src", "Types:")) for line in lines)
    return "\n".join(lines) + "\n" if has else ""


def build(folder, release):
    """Compiles kubelet, which takes a quarter of an hour on two cores. Returns its file."""
    print(f"kubelet {release}: compiling, once", flush=True)
    major, minor, _ = release.split(".")
    values = {"Version": f"v{release}", "Major": major, "Minor": minor}
    named = " ".join(f"-X {VERSION}{name}={value}" for name, value in values.items())
    environment = {
        **os.environ, "GOPATH": str(folder / "go"), "GOCACHE": str(folder / "objects"),
        "GO111MODULE": "off", "GOFLAGS": "", "GOPROXY": "off", "CGO_ENABLED": "0",
        "PWD": str(folder / "go" / IMPORT),
    }
    run(["go", "build", "-trimpath", "-ldflags", f"-s -w {named}", "-o", str(folder / "kubelet"),
         "./cmd/kubelet"], folder / "go" / IMPORT, environment)
    return folder / "kubelet"


def run(command, folder, environment=None):
    """Runs a command in a folder. Raises Unavailable if it fails."""
    try:
        done = subprocess.run(command, cwd=folder, env=environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except FileNotFoundError:
        raise Unavailable(f"there is no {command[0]} here")
    if done.returncode != 0:
        raise Unavailable(f"{' '.join(command[:2])}: {done.stdout.strip()[-600:]}")
