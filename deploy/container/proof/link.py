"""A network of its own for Pods, as a network plugin makes it: a bridge, and eth0 in each Pod."""

import json
import os
import subprocess

NAME = "uroce"
ADDRESSES = {"server": "192.0.2.1", "client": "192.0.2.2"}


class Link:
    """The network of podman, while a block runs. Nothing else reaches it: the bridge has no
    address, and no packet filter is touched."""

    def __init__(self, podman):
        self.podman = podman
        self.bridge = f"uroce{os.getpid()}"

    def __enter__(self):
        addresses = {"type": "host-local", "dataDir": str(self.podman.work / "addresses"),
                     "ranges": [[{"subnet": "192.0.2.0/24", "gateway": "192.0.2.254"}]]}
        bridge = {"type": "bridge", "bridge": self.bridge, "isGateway": False, "ipam": addresses}
        configuration = {"cniVersion": "0.4.0", "name": NAME, "plugins": [bridge]}
        self.podman.networks.mkdir(exist_ok=True)
        (self.podman.networks / f"{NAME}.conflist").write_text(json.dumps(configuration))
        return self

    def __exit__(self, *_):
        subprocess.run(["ip", "link", "del", self.bridge], capture_output=True)

    @staticmethod
    def options(pod):
        """The engine's options for a Pod of this name."""
        return [f"--network={NAME}", f"--ip={ADDRESSES[pod]}"]
