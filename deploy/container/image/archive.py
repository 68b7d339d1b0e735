"""The image as a file that every engine loads: the format of `docker save`.

Everything in it follows from the tree and the time, so two builds give one digest.
"""

import hashlib
import io
import json
import tarfile
import time

USER = "65534:65534"
HEALTH = ["CMD", "uroce", "-s", "1", "show", "port", "info", "all"]
"""Asks the container's first process: it answers if its control-plane thread works."""

HELP = ["uroce", "--help"]
"""The command of a container that is given none."""


def write(file, root, tag, epoch, labels, command=HELP):
    """Writes the image, and returns its digest: that of its configuration."""
    layer = file.with_suffix(".layer")
    try:
        pack(layer, root, epoch)
        digest = digest_of(layer)
        configuration = json.dumps(config(digest, epoch, labels, command), sort_keys=True).encode()
        identity = hashlib.sha256(configuration).hexdigest()
        manifest = [{"Config": f"{identity}.json", "RepoTags": [tag], "Layers": ["layer.tar"]}]
        with tarfile.open(file, "w", format=tarfile.GNU_FORMAT) as archive:
            add(archive, f"{identity}.json", configuration, epoch)
            add(archive, "manifest.json", json.dumps(manifest).encode(), epoch)
            entry = tarfile.TarInfo("layer.tar")
            entry.size, entry.mtime, entry.mode = layer.stat().st_size, epoch, 0o644
            with layer.open("rb") as content:
                archive.addfile(entry, content)
    finally:
        layer.unlink(missing_ok=True)
    return f"sha256:{identity}"


def pack(file, root, epoch):
    """Packs the tree, sorted by name, owned by root."""
    def normal(entry):
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime = epoch
        return entry

    with tarfile.open(file, "w", format=tarfile.GNU_FORMAT) as archive:
        for path in sorted(root.rglob("*")):
            archive.add(path, path.relative_to(root), recursive=False, filter=normal)


def config(layer, epoch, labels, command):
    """The configuration of the image."""
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch))
    return {
        "architecture": "amd64",
        "os": "linux",
        "created": created,
        "config": {
            "User": USER,
            "Env": ["PATH=/usr/bin", "XDG_RUNTIME_DIR=/run/uroce"],
            "Cmd": command,
            "Healthcheck": {"Test": HEALTH, "Interval": 5_000_000_000, "Timeout": 3_000_000_000,
                            "StartPeriod": 3_000_000_000, "Retries": 3},
            "Labels": labels,
            "StopSignal": "SIGTERM",
            "WorkingDir": "/",
        },
        "rootfs": {"type": "layers", "diff_ids": [layer]},
        "history": [{"created": created, "created_by": "deploy/container/build"}],
    }


def add(archive, name, content, epoch):
    """Adds a small file."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime, entry.mode = len(content), epoch, 0o644
    archive.addfile(entry, io.BytesIO(content))


def digest_of(file):
    """The digest of a file's content."""
    digest = hashlib.sha256()
    with file.open("rb") as content:
        while chunk := content.read(1 << 20):
            digest.update(chunk)
    return f"sha256:{digest.hexdigest()}"
