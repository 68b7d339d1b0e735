"""podman whose containers have a limit of hugepages, as Kubernetes' runtimes set it.

podman has no option for it, so a hook puts the limit into the container's specification of the OCI
runtime. Where control groups of version 1 lack the controller, it is mounted for podman alone.
"""

import json
import shutil
import subprocess
import sys

from engine import GROUPS, Podman, Skipped

FOLDER = GROUPS / "hugetlb"
HOOK = """\
import json, sys
specification = json.load(sys.stdin)
limits = json.load(open(sys.argv[1]))
specification["linux"]["resources"]["hugepageLimits"] = [
    {"pageSize": size, "limit": limit} for size, limit in limits.items()]
json.dump(specification, sys.stdout)
"""
MOUNTED = 'mount -t cgroup -o hugetlb none "$0" && exec "$@"'
PARENT = "libpod_parent"
"""podman's group, above those of its containers. While it is there, so is the hierarchy, mounted or
not."""

OWN = ("unshare", "--mount", "sh", "-c", MOUNTED, str(FOLDER))
"""Before a command: runs it where the controller is mounted."""


class Hugepages(Podman):
    """podman with the images of the session's, while a block runs."""

    def __init__(self, session):
        self.session = session
        self.work = session.work / "hugepages"
        self.limits = self.work / "limits"
        self.environment = session.podman.environment
        self.is_folder_made = self.is_mounted = False
        self.prefix = [*session.podman.prefix, "--hooks-dir", str(self.work)]

    def __enter__(self):
        self.work.mkdir()
        (self.work / "hook.py").write_text(HOOK)
        command = {"path": sys.executable,
                   "args": ["python3", str(self.work / "hook.py"), str(self.limits)]}
        hook = {"version": "1.0.0", "hook": command, "when": {"always": True},
                "stages": ["precreate"]}
        (self.work / "limit.json").write_text(json.dumps(hook))
        self.limits.write_text("{}")
        if not (FOLDER.is_mount() or is_unified()):
            self.mount()
        return self

    def mount(self):
        """Has podman mount the controller in a namespace of its own, each time that it runs."""
        if not FOLDER.exists():
            FOLDER.mkdir()
            self.is_folder_made = True
        self.is_mounted = True
        self.prefix = [*OWN, *self.prefix]
        if self.run("version").returncode != 0:
            self.__exit__()
            raise Skipped("the controller of hugepages cannot be mounted")

    def limit(self, limits):
        """Sets the limits of the next containers, in bytes by size."""
        self.limits.write_text(json.dumps(limits))

    def __exit__(self, *_):
        if self.is_mounted:
            # Groups are removed as empty folders; one with a process stays.
            subprocess.run([*OWN, "find", str(FOLDER / PARENT), "-depth", "-type", "d", "-exec",
                            "rmdir", "{}", ";"], capture_output=True)
        if self.is_folder_made and not FOLDER.is_mount():
            # Another podman, which takes the folder for a controller's, makes files in it.
            shutil.rmtree(FOLDER, ignore_errors=True)


def is_unified():
    """Tells whether control groups of version 2 have the controller where containers find it."""
    controllers = GROUPS / "cgroup.controllers"
    return controllers.exists() and "hugetlb" in controllers.read_text().split()
