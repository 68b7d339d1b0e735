"""A node of Kubernetes on this machine: kubelet without an API server, over containerd. The node
has namespaces and control groups of its own, which end with it."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
HUGETLB = GROUPS / "hugetlb"
HUGEPAGES = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
COMPACT = Path("/proc/sys/vm/compact_memory")
INSIDE = Path(__file__).with_name("inside")
EMPTIED = '''mount -t cgroup -o hugetlb none "$0" &&
    find "$0/$1" -depth -type d -exec rmdir {} ";"'''
PODS = "http://127.0.0.1:10255/pods"
PAUSE = "localhost/pause:latest"
READ = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=5).read().decode())"
CONTAINERD = """\
version = 2
root = "{work}/containerd"
state = "{work}/state"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
address = "{work}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
restrict_oom_score_adj = true
disable_apparmor = true
disable_hugetlb_controller = false
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{work}/networks"
"""
KUBELET = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
staticPodPath: {work}/pods
authentication: {{anonymous: {{enabled: true}}, webhook: {{enabled: false}}}}
authorization: {{mode: AlwaysAllow}}
readOnlyPort: 10255
cgroupDriver: cgroupfs
cgroupRoot: /{group}
cpuManagerPolicy: static
reservedSystemCPUs: "0"
failSwapOn: false
makeIPTablesUtilChains: false
oomScoreAdj: 0
fileCheckFrequency: 1s
evictionHard: {{nodefs.available: 1%, imagefs.available: 1%}}
"""
NETWORK = {
    "cniVersion": "0.4.0", "name": "pods",
    "plugins": [{"type": "bridge", "bridge": "pods0", "isGateway": True, "ipam": {
        "type": "host-local", "ranges": [[{"subnet": "192.0.2.0/24"}]]}}],
}


class NodeFailure(Exception):
    """The node or a Pod does not do what a case expects; the text says what."""


class Node:
    """A node that runs as long as a `with` block."""

    def __init__(self, work, kubelet, pages):
        self.work, self.kubelet, self.pages = work, kubelet, pages
        self.group = f"uroce-node-{os.getpid()}"
        self.pages_before = self.process = None
        self.is_folder_made = False

    def __enter__(self):
        try:
            self.begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def begin(self):
        """Makes control groups and hugepages, and starts containerd and kubelet."""
        for name in ("pods", "networks"):
            (self.work / name).mkdir()
        (self.work / "networks/pods.conflist").write_text(json.dumps(NETWORK))
        values = {"work": self.work, "pause": PAUSE, "group": self.group}
        (self.work / "containerd.toml").write_text(CONTAINERD.format(**values))
        (self.work / "kubelet.yaml").write_text(KUBELET.format(**values))
        if not HUGETLB.exists():
            HUGETLB.mkdir()
            self.is_folder_made = True
        for controller in self.controllers():
            (controller / self.group).mkdir()
        copy_cpus(GROUPS / "cpuset", GROUPS / "cpuset" / self.group)
        self.pages_before = HUGEPAGES.read_text()
        # Makes free memory contiguous, so that pages of 2 MB can be taken from it.
        COMPACT.write_text("1")
        HUGEPAGES.write_text(str(int(self.pages_before) + self.pages))
        with (self.work / "inside.log").open("w") as log:
            self.process = subprocess.Popen(
                # unshare ignores SIGTERM, so the signal is KILL.
                ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--net", "--pid", "--fork",
                 "--kill-child", "--mount-proc", str(INSIDE), str(self.work), str(self.kubelet),
                 self.group], stdout=log, stderr=subprocess.STDOUT)
        self.wait("containerd", lambda: self.ctr("version").returncode == 0)

    def needs_pages(self):
        """Raises NodeFailure unless this machine had enough memory for the hugepages."""
        found = int(HUGEPAGES.read_text()) - int(self.pages_before)
        if found < self.pages:
            raise NodeFailure(f"this machine has had memory for {found} pages of 2 MB, not "
                              f"{self.pages}")

    def controllers(self):
        """Returns the folders of the control-group hierarchies in which kubelet makes groups."""
        return [folder for folder in GROUPS.iterdir()
                if folder.is_mount() and (folder / "tasks").exists()]

    def ctr(self, *arguments):
        """Runs containerd's client `ctr`."""
        return subprocess.run(["ctr", "--address", str(self.work / "containerd.sock"),
                               "--namespace", "k8s.io", *arguments], capture_output=True, text=True,
                              timeout=120)

    def load(self, file):
        """Loads an image from a file."""
        done = self.ctr("images", "import", str(file))
        if done.returncode != 0:
            raise NodeFailure(f"{file.name}: {done.stderr.strip()[-300:]} {self.last_words()}")

    def start(self, name, text):
        """Starts a Pod: gives kubelet its manifest."""
        (self.work / f"pods/{name}.yaml").write_text(text)

    def stop(self, name):
        """Stops a Pod: removes its manifest, and waits until the Pod is gone."""
        (self.work / f"pods/{name}.yaml").unlink()
        self.wait(f"the end of {name}", lambda: not self.pod(name))

    def pod(self, name):
        """Returns what kubelet reports about a Pod; None if it reports none."""
        done = subprocess.run(["nsenter", "-n", "-t", self.inner(), "python3", "-c", READ, PODS],
                              capture_output=True, text=True, timeout=20)
        if done.returncode != 0:
            return None
        found = [pod for pod in json.loads(done.stdout)["items"] or []
                 if pod["metadata"]["name"] == f"{name}-node"]
        return found[0] if found else None

    def containers(self, name):
        """Returns the states of a Pod's containers, by name."""
        status = (self.pod(name) or {}).get("status", {})
        return {each["name"]: each for each in status.get("containerStatuses", [])}

    def are_ready(self, name, restarts=0):
        """Tells whether all containers of a Pod are ready and were restarted `restarts` times or
        more."""
        found = self.containers(name).values()
        return bool(found) and all(each["ready"] and each["restartCount"] >= restarts
                                   for each in found)

    def process_of(self, name, container):
        """Returns the number that a container's first process has on this machine."""
        identity = self.containers(name)[container]["containerID"].split("//")[1]
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                groups, status = (folder / "cgroup").read_text(), (folder / "status").read_text()
            except OSError:
                continue
            # The last number of NSpid is the one within the container.
            if identity in groups and re.search(r"^NSpid:.*\t1$", status, re.MULTILINE):
                return int(folder.name)
        raise NodeFailure(f"{container} of {name} has no process")

    def log(self, name, container):
        """Returns all that a container has printed, before and after its restarts."""
        files = sorted(self.work.glob(f"var/log/pods/*_{name}-node_*/{container}/*.log"))
        return "\n".join(line.split(" ", 3)[3] for file in files
                         for line in file.read_text().splitlines())

    def inner(self):
        """Returns the number of the first process in the node's namespaces."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        if self.process.poll() is not None or not (children := path.read_text().split()):
            raise NodeFailure(f"the node has ended: {self.last_words()}")
        return children[0]

    def wait(self, what, is_so, seconds=120):
        """Waits until `is_so()` is true. After `seconds`, raises NodeFailure with the text
        `what`."""
        end = time.monotonic() + seconds
        while not is_so():
            if self.process.poll() is not None or time.monotonic() > end:
                raise NodeFailure(f"no {what} in {seconds} s: {self.last_words()}")
            time.sleep(0.3)

    def last_words(self):
        """Returns the last lines of the logs; of kubelet's log, only errors."""
        logs = [(self.work / name).read_text().splitlines() if (self.work / name).exists() else []
                for name in ("inside.log", "containerd.log", "kubelet.log")]
        errors = [line for line in logs[2] if line.startswith(("E", "F"))]
        return "\n".join([*logs[0][-3:], *logs[1][-3:], *errors[-8:]])

    def __exit__(self, *_):
        if self.process:
            with contextlib.suppress(NodeFailure):
                # With the first process of their namespace all end.
                os.kill(int(self.inner()), signal.SIGKILL)
            self.process.wait(30)
        if self.pages_before:
            HUGEPAGES.write_text(self.pages_before)
        # Also that of version 2 beside them, which the runtime makes.
        for group in GROUPS.glob(f"*/{self.group}"):
            remove(group)
        subprocess.run(["unshare", "--mount", "sh", "-c", EMPTIED, str(HUGETLB), self.group],
                       capture_output=True)
        if self.is_folder_made and not HUGETLB.is_mount():
            # podman, which takes the folder for a controller's, makes files in it.
            shutil.rmtree(HUGETLB, ignore_errors=True)


def copy_cpus(parent, group):
    """Gives a control group its parent's CPUs and memory: in version 1 a new group has none."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        (group / name).write_text((parent / name).read_text())


def remove(group):
    """Removes a control group and all groups below it. Their processes have ended."""
    end = time.monotonic() + 10
    for folder in [*sorted(group.rglob("*/"), reverse=True), group]:
        while folder.is_dir():
            try:
                folder.rmdir()
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)
