"""Programs from PyPI, in virtual environments that are made once and kept in a cache.

An environment is made under a temporary name and gets its own at the end, so one that exists is
complete, however an earlier attempt has ended.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys

RETRIES = ("--retries", "1", "--timeout", "15")
"""A machine without a way to PyPI finds out within seconds."""


class Unavailable(Exception):
    """Packages could not be installed; the text is pip's last line."""


def folder(cache, name, wheels):
    """The folder of an environment with these wheels for this Python."""
    digest = hashlib.sha256(" ".join((name, *wheels, sys.version)).encode()).hexdigest()[:12]
    return cache / f"{name}-{digest}"


def make(cache, name, wheels, options=(), finish=None):
    """Makes the environment if the cache has not got it, and returns its folder.

    `options` are for `pip install`. `finish` is called with the folder before it gets its name.
    Raises Unavailable.
    """
    made = folder(cache, name, wheels)
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / f"{name}.lock", "w") as lock:
        # Two sessions at once do not make it twice.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if made.exists():
            return made
        unfinished = cache / f"{name}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        try:
            run([sys.executable, "-m", "venv", unfinished])
            run([unfinished / "bin/python3", "-m", "pip", "install", "--quiet",
                 "--disable-pip-version-check", *RETRIES, *options, *wheels])
            if finish:
                finish(unfinished)
            name_folder(unfinished, made)
            unfinished.rename(made)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return made


def name_folder(unfinished, made):
    """Makes the scripts in `bin`, which name the folder of their environment, name its last one."""
    for script in (unfinished / "bin").iterdir():
        text = script.read_bytes() if not script.is_symlink() else b""
        if text.startswith(b"#!") or script.name.startswith("activate"):
            script.write_bytes(text.replace(bytes(unfinished), bytes(made)))


def run(command):
    """Runs a command that must succeed. Raises Unavailable."""
    done = subprocess.run([str(word) for word in command], env={**os.environ, "PYTHONPATH": ""},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        lines = [line for line in done.stdout.splitlines() if line.strip()]
        raise Unavailable(lines[-1] if lines else f"exit status {done.returncode}")
