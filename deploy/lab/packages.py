"""Debian packages on this machine, and the guest's image, which is made of more of them."""

import subprocess
import sys
from pathlib import Path

from report.failure import LabFailure, StaleLists
from vm import image

LIBRARY = Path(__file__).resolve().parent.parent / "env/packages.sh"


def need(*purposes):
    """Installs the packages of purposes that env/packages.sh names. Raises LabFailure."""
    call("packages_need", *purposes)


def guest_image(say, kernel=image.STOCK):
    """The guest's image, with one of image.KERNELS. apt's lists are updated if they are older than
    the archive."""
    try:
        return image.build(say, kernel)
    except StaleLists:
        call("packages_update")
        return image.build(say, kernel)


def call(*words):
    """Runs a function of env/packages.sh, the shell library that installs Debian packages."""
    script = f'source "{LIBRARY}" && {" ".join(words)}'
    if subprocess.run(["bash", "-c", script], stdout=sys.stderr).returncode != 0:
        raise LabFailure("packages are missing, see above")
