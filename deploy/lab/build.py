"""The programs of uroce that the laboratory builds."""

import os
import subprocess
from dataclasses import dataclass

from report.failure import LabFailure


@dataclass(frozen=True)
class Built:
    """A program that the laboratory builds. Its files are in the folder of the release build."""

    name: str
    variable: str
    """Environment variable that names a built program to use instead."""
    packages: tuple


PERF = Built("uroce-perf", "UROCE_PERF", ("uroce-bench",))
CLI = Built("uroce", "UROCE_CLI", ("uroce-cli",))
# uroce-run, with the drop-in library and the path shim.
RUN = Built("uroce-run", "UROCE_RUN", ("uroce-verbs-abi", "uroce-shim"))


def build(program, repository, say):
    """Builds a program, or takes the one in its variable, and returns the path."""
    given = os.environ.get(program.variable)
    if given:
        if not os.access(given, os.X_OK):
            raise LabFailure(f"{program.variable} names no program: {given}")
        return given
    say(f"building {program.name}")
    command = ["cargo", "build", "--quiet", "--release"]
    for package in program.packages:
        command += ["--package", package]
    try:
        built = subprocess.run(command, cwd=repository, stdout=subprocess.DEVNULL)
    except FileNotFoundError:
        raise LabFailure(f"no cargo here: the laboratory builds {program.name} with it") from None
    if built.returncode != 0:
        raise LabFailure(f"{program.name} does not build")
    target = os.environ.get("CARGO_TARGET_DIR") or repository / "target"
    return str(repository / target / "release" / program.name)
