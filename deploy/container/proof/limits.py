"""What is proven of limits: a container that lacks something says so, with the field of the
manifest that mends it, and ends with exit code 2."""

import errno
import json
import os
import re
import time
from pathlib import Path

from cases import IMAGE, expect
from engine import CONFINED, LEAST_RIGHTS, Failed, Skipped
from hugepages import Hugepages
from link import Link

CONFIGURATION = """\
[eal]
memory_mb = 128
{eal}

[[device]]
name = "uroce0"
{device}

[[device.port]]
ethdev = {{ {ethdev} }}
ip = ["192.0.2.1/24"]
"""
NULL = 'vdev = "net_null0,no-rx=1"'
PERF = ("uroce-perf", "write_bw")
TICKS = 100
"""Ticks of the clock in a second, in /proc/PID/stat."""


def memory_and_files(session):
    """Too little memory and no directory to meet in are refused; little else is needed."""
    podman, volume = session.podman, session.volume("limits")
    expect(podman, 2, "resources.limits.memory", volume, "--memory=64m", IMAGE, *PERF)
    expect(podman, 2, "memory_mb = 68 or less", volume, "--memory=100m", IMAGE, *PERF, "--config",
           "/etc/uroce/fabric.toml")
    expect(podman, 2, "volumeMounts", IMAGE, *PERF, "--config", "/etc/uroce/fabric.toml")
    # Small file systems, few files, no HOME and a root that cannot be written to are enough.
    few = ("--ulimit=nofile=64:64", "--ulimit=nproc=1000:1000")
    # Without a configuration, DPDK's memory is what the container's limit leaves.
    for limit in ("512m", "256m"):
        podman.container(f"--memory={limit}", *few, "--shm-size=64k", "--unsetenv=HOME",
                         IMAGE, *PERF, "--in-process", "--verify", "-n", "200")


def rights_and_nics(session):
    """A missing right, a missing NIC and a wrong NIC are refused."""
    podman = session.podman
    packets = configuration(session, "packets", ethdev='vdev = "net_af_packet0,iface=lo"')
    expect(podman, 2, "capabilities.add", packets, IMAGE, *PERF, "--config", "/etc/packets.toml")
    nic = configuration(session, "nic", ethdev='pci = "auto"')
    command = (nic, IMAGE, *PERF, "--config", "/etc/nic.toml")
    expect(podman, 2, "resources.limits", *command)
    expect(podman, 2, "ffff:ff:1f.7", "--env=PCIDEVICE_INTEL_COM_SRIOV_VFIO=ffff:ff:1f.7", *command)
    expect(podman, 2, "ffff:ff:1f.7", "--env=PCIDEVICE_X=ffff:ff:1f.7", IMAGE, *PERF,
           "--pci", "auto", "--ip", "192.0.2.1/24")
    two = ("--env=PCIDEVICE_A=ffff:ff:1f.6", "--env=PCIDEVICE_INTEL_COM_FAST=ffff:ff:1f.7")
    expect(podman, 2, "ffff:ff:1f.7", *two, IMAGE, *PERF, "--pci", "auto:intel.com/fast",
           "--ip", "192.0.2.1/24")


def own_interface(session):
    """An interface that is missing, or whose UDP port another process of the Pod has, is named."""
    podman, port = session.podman, ("--udp", "eth0")
    expect(podman, 2, '"eth0"', IMAGE, *PERF, *port)
    with Link(podman) as link:
        server = (*link.options("server"), IMAGE, *PERF, *port)
        with podman.started("server", "Waiting", *server, rights=CONFINED):
            expect(podman, 2, "4791 of 192.0.2.1 is taken", "--network=container:server", IMAGE,
                   *PERF, *port, "-p", "18516", rights=CONFINED)


def seccomp(session):
    """A seccomp profile that refuses a call of the engine's is named, with the manifest's field."""
    podman, volume = session.podman, session.volume("seccomp")
    for call in ("eventfd2", "memfd_create", "sched_setaffinity"):
        file = session.work / f"without-{call}.json"
        file.write_text(json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
            {"names": [call], "action": "SCMP_ACT_ERRNO", "errnoRet": errno.EPERM}]}))
        expect(podman, 2, "securityContext.seccompProfile", f"--security-opt=seccomp={file}",
               volume, IMAGE, *PERF, "--config", "/etc/uroce/node1.toml")


def cpu_set(session):
    """Lcores by number run where CPU 0 is missing, listed ones on their CPUs and nowhere else."""
    podman = session.podman
    if not {0, 1} <= os.sched_getaffinity(0):
        raise Skipped("needs the CPUs 0 and 1")
    listed = configuration(session, "listed", device="lcores = [1]")
    command = (listed, IMAGE, *PERF, "--config", "/etc/listed.toml")
    expect(podman, 2, "cpuset", "--cpuset-cpus=0", *command)
    with podman.started("listed", "", "--cpuset-cpus=0,1", *command):
        # The kernel allows 0-1; one CPU is what the program has chosen itself.
        allowed = {allowed_cpus(thread) for thread in lcores(podman, "listed")}
        if allowed != {"1"}:
            raise Failed(f"the lcore of CPU 1 may run on {allowed}")
    # A program that takes CPU 0 for granted does not start here.
    without = "--cpuset-cpus=1"
    with podman.started("number", "", without, configuration(session, "number"), IMAGE, *PERF,
                        "--config", "/etc/number.toml"):
        lcores(podman, "number")
    podman.container(without, IMAGE, *PERF, "--in-process", "--verify", "-n", "200")


def hugepages(session):
    """A limit of hugepages, as Kubernetes sets it, that is too low for the memory is refused."""
    with Hugepages(session) as podman:
        huge = (IMAGE, *PERF, "--in-process", "--huge")
        podman.limit({"2MB": 32 << 20, "1GB": 0})
        expect(podman, 2, "resources.limits.hugepages-2Mi", *huge)
        # Memory that is not of hugepages does not count.
        podman.container(IMAGE, *PERF, "--in-process", "--verify", "-n", "200")
        podman.limit({"2MB": 96 << 20, "1GB": 0})
        memory = configuration(session, "huge", eal="huge = true")
        expect(podman, 2, "memory_mb = 96 or less", memory, IMAGE, *PERF, "--config",
               "/etc/huge.toml")
        # One size without a limit is enough.
        podman.limit({"2MB": 32 << 20})
        done = podman.run("run", "--rm", "--no-healthcheck", *LEAST_RIGHTS, *huge)
        # The machine may have no hugepages, which is another refusal, by DPDK.
        if done.returncode != 0 and "nr_hugepages" not in done.stdout:
            raise Failed(f"refused though 1 GB pages have no limit: {done.stdout[-600:]}")


def cpu_quota(session):
    """With half a CPU an lcore sleeps when it is idle, and is warned of if it may not."""
    podman, half = session.podman, "--cpus=0.5"
    with podman.started("idle", "", half, configuration(session, "auto"), IMAGE, *PERF, "--config",
                        "/etc/auto.toml"):
        lcores(podman, "idle")
        before, begin = ticks(podman, "idle"), time.monotonic()
        time.sleep(1.5)
        share = (ticks(podman, "idle") - before) / TICKS / (time.monotonic() - begin)
    if share > 0.25:
        raise Failed(f"an idle lcore takes {share:.0%} of a CPU")
    polls = configuration(session, "poll", device='idle = "poll"')
    with podman.started("poll", "resources.limits.cpu", half, polls, IMAGE, *PERF, "--config",
                        "/etc/poll.toml"):
        pass


def configuration(session, name, device="", ethdev=NULL, eal=""):
    """The option that mounts a configuration as /etc/NAME.toml."""
    file = session.work / f"{name}.toml"
    file.write_text(CONFIGURATION.format(device=device, ethdev=ethdev, eal=eal))
    file.chmod(0o644)
    return f"--volume={file}:/etc/{name}.toml:ro"


def lcores(podman, name, seconds=15):
    """The folders of the threads that are a container's lcores, once there are any."""
    folder = Path(f"/proc/{podman.main_process(name)}/task")
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := [thread for thread in folder.glob("*") if is_lcore(thread)]:
            return found
        time.sleep(0.1)
    raise Failed(f"{name} has no lcore: {podman.logs(name)[-600:]}")


def is_lcore(thread):
    """Tells whether a thread is an lcore's."""
    try:
        return "lcore" in (thread / "comm").read_text()
    except FileNotFoundError:
        # Other threads come and go while the program starts.
        return False


def allowed_cpus(thread):
    """The CPUs on which a thread may run."""
    status = (thread / "status").read_text()
    return re.search(r"^Cpus_allowed_list:\s+(\S+)", status, re.MULTILINE)[1]


def ticks(podman, name):
    """Ticks of processor time that a container's process has used."""
    fields = Path(f"/proc/{podman.main_process(name)}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


CASES = (memory_and_files, rights_and_nics, own_interface, seccomp, cpu_set, cpu_quota, hugepages)
