"""The engines that come from PyPI: wheels for machines without a GPU, in a virtual environment.

They are installed once, to the cache of the laboratory, without what they depend on: that would be
frameworks of gigabytes, which these sessions do not use.
"""

import hashlib
import os
import shutil
import subprocess
import sys

from report.failure import LabFailure
from vm import image

WHEELS = ("mooncake-transfer-engine-non-cuda==0.3.13.post1", "nixl-cu12==1.5.1", "numpy==2.3.5")


def python(say):
    """The Python that has the engines. Installs them if the cache has not. Raises LabFailure."""
    digest = hashlib.sha256(" ".join((*WHEELS, sys.version)).encode()).hexdigest()[:12]
    folder = image.cache_folder() / f"engines-{digest}"
    program = folder / "bin" / "python3"
    if program.exists():
        return str(program)
    say(f"installing from PyPI: {' '.join(WHEELS)}")
    # Programs of an environment name its folder, so it cannot be made elsewhere and moved.
    shutil.rmtree(folder, ignore_errors=True)
    try:
        for words in ([sys.executable, "-m", "venv", folder],
                      [program, "-m", "pip", "install", "--quiet", "--no-deps",
                       "--disable-pip-version-check", *WHEELS]):
            done = subprocess.run([str(word) for word in words], stdout=sys.stderr,
                                  env={**os.environ, "PYTHONPATH": ""})
            if done.returncode != 0:
                raise LabFailure("the engines from PyPI are missing, see above")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return str(program)
