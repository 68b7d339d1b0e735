"""The engines that come from PyPI: wheels for machines without a GPU, in a virtual environment.

They are installed once, to the cache of the laboratory, without what they depend on: that would be
frameworks of gigabytes, which these sessions do not use.
"""

import sys
from pathlib import Path

from report.failure import LabFailure
from vm import image

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "env"))

import pypi  # noqa: E402

WHEELS = ("mooncake-transfer-engine-non-cuda==0.3.13.post1", "nixl-cu12==1.5.1", "numpy==2.3.5",
          "mpich==5.0.2")
# Engines of the long form.
LARGE = ("nvidia-nccl-cu12==2.32.3",)


def python(say, everything):
    """The Python that has the engines, with those of the long form if `everything`. Installs them
    if the cache has not. Raises LabFailure."""
    wheels = (*WHEELS, *LARGE) if everything else WHEELS
    cache = image.cache_folder()
    if not pypi.folder(cache, "engines", wheels).exists():
        say(f"installing from PyPI: {' '.join(wheels)}")
    try:
        return str(pypi.make(cache, "engines", wheels, ["--no-deps"]) / "bin" / "python3")
    except pypi.Unavailable as failure:
        raise LabFailure(f"the engines from PyPI are missing: {failure}")
