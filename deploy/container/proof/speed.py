"""What containers cost: measured on request alone, since figures need a machine that does nothing
else."""

import os
import re
import statistics
import subprocess
import time
from pathlib import Path

from cases import CLIENT, IMAGE, SERVER
from engine import CONFINED, LEAST_RIGHTS, Failed

# Those of the image, at /run/uroce.
CONFIGURATIONS = Path(__file__).resolve().parents[1] / "etc"
ROUNDS, STARTS = 9, 5
LEAST_RATIO, START_SECONDS_MAX = 0.95, 2.0
WRITES = ("write_bw", "-D", "1")


def speed(session):
    """Two containers write at 95 % or more of the rate outside, and start within 2 s."""
    inside, outside = [], []
    for _ in range(ROUNDS):
        # In turn, so that whatever else the machine does meets both.
        inside.append(rate_inside(session))
        outside.append(rate_outside(session))
    ratios = [one / other for one, other in zip(inside, outside)]
    ratio = statistics.median(ratios)
    seconds = [first_byte(session) for _ in range(STARTS)]
    start = statistics.median(seconds)
    print(f"WRITE 64 KiB, MiB/s: inside {statistics.median(inside):.0f}, outside "
          f"{statistics.median(outside):.0f}, median of {ROUNDS} ratios {ratio:.3f} "
          f"({min(ratios):.3f} to {max(ratios):.3f})")
    print(f"start of a container to its first verified byte: median of {STARTS} {start:.2f} s "
          f"({min(seconds):.2f} to {max(seconds):.2f})", flush=True)
    if ratio < LEAST_RATIO:
        raise Failed(f"inside is {ratio:.1%} of outside")
    if start > START_SECONDS_MAX:
        raise Failed(f"a container takes {start:.2f} s to its first verified byte")


def rate_inside(session):
    """The rate of WRITE between two containers of a pod, which has no network, in MiB/s."""
    podman, volume = session.podman, session.volume("speed")
    with podman.started("server", "Waiting", volume, IMAGE, "uroce-perf", *WRITES, "--config",
                        "/etc/uroce/node1.toml"):
        return rate(podman.container("--network=container:server", volume, IMAGE, "uroce-perf",
                                     *WRITES, "--config", "/etc/uroce/node2.toml", "127.0.0.1",
                                     rights=CONFINED))


def rate_outside(session):
    """The rate of the same programs and configurations as processes of this machine, in MiB/s."""
    folder = session.work / "outside"
    folder.mkdir(exist_ok=True, mode=0o700)
    program = session.binaries() / "uroce-perf"
    commands = []
    for member in (1, 2):
        file = folder / f"node{member}.toml"
        of_image = (CONFIGURATIONS / file.name).read_text()
        file.write_text(of_image.replace("/run/uroce/", f"{folder}/"))
        commands.append([str(program), *WRITES, "--config", str(file)])
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder)}
    with subprocess.Popen(commands[0], env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True) as server:
        try:
            until(server, "Waiting")
            done = subprocess.run([*commands[1], "127.0.0.1"], env=environment, timeout=30,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        finally:
            server.terminate()
    return rate(done.stdout)


def first_byte(session):
    """Seconds from the start of a client's container to its first verified byte."""
    podman, volume = session.podman, session.volume("speed")
    with podman.started("server", "listening", volume, IMAGE, *SERVER):
        command = [*podman.prefix, "run", "--rm", *podman.unwatched(), *LEAST_RIGHTS, volume, IMAGE,
                   *CLIENT, "-v", "-C", "1"]
        begin = time.monotonic()
        with subprocess.Popen(command, env=podman.environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True) as client:
            until(client, "ping data")
            return time.monotonic() - begin


def until(process, words):
    """Reads what a process prints up to a line with these words."""
    for line in process.stdout:
        if words in line:
            return
    raise Failed(f"{' '.join(process.args[:2])} has not printed {words!r}")


def rate(output):
    """The average rate that the client has printed."""
    found = re.search(r"^\s*65536\s+\d+\s+\S+\s+(\S+)", output, re.MULTILINE)
    if not found:
        raise Failed(f"no rate: {output[-600:]}")
    return float(found[1])


CASES = (speed,)
