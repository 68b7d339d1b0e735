"""What is proven of the Containerfile: it makes the image of deploy/container/build.

Its first image is Debian's, made here, and given the name that the Containerfile asks for; so there
is no compiler in it, and the programs are given. The compilation inside is not run here.
"""

import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

from cases import IMAGE
from engine import Failed

REPOSITORY = Path(__file__).resolve().parents[3]
FILE = REPOSITORY / "deploy/container/Containerfile"
OTHER = "localhost/from-containerfile:latest"
PROGRAMS = ("uroce", "uroce-perf", "uroce-install", "uroce-run", "liburoce_verbs_abi.so",
            "liburoce_shim.so")
GIVEN = "target/container/given"
CACHE = "/uroce/target/container/cache"


def containerfile(session):
    """The Containerfile makes the same files and the same configuration, without a registry."""
    podman, text = session.podman, FILE.read_text()
    first = re.search(r"^FROM (\S+) AS tree$", text, re.MULTILINE)[1]
    podman.ask("tag", session.debian.image(podman), first)
    context = session.work / "context"
    give(session, context, re.findall(r"^COPY (\S+) \1$", text, re.MULTILINE))
    revision = label(podman, IMAGE, "org.opencontainers.image.revision")
    podman.ask(
        "build", "--quiet", "--layers=false",
        "--format=docker", "--pull=never", "--network=host", "--tag", OTHER,
        "--volume=/etc/apt:/etc/apt:ro", f"--volume={session.cache.resolve()}:{CACHE}",
        f"--build-arg=REVISION={revision}", "--file", str(FILE), str(context), timeout=300,
    )
    compare("files", files(podman, IMAGE), files(podman, OTHER))
    compare("configuration", configuration(podman, IMAGE), configuration(podman, OTHER))
    podman.ask("rmi", "--force", OTHER, first)


def give(session, context, folders):
    """Makes the context: the checkout's folders, and the programs."""
    for folder in folders:
        shutil.copytree(REPOSITORY / folder, context / folder)
    for name in ("Cargo.toml", "Cargo.lock"):
        shutil.copy(REPOSITORY / name, context)
    given = context / GIVEN
    given.mkdir(parents=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")) / "release"
    for name in PROGRAMS:
        # Without what the build would leave out, which is most of a debug build.
        subprocess.run(["strip", "--strip-debug", "-o", str(given / name),
                        str((session.arguments.binaries or target) / name)], check=True)
    [command] = re.findall(r"\(rustc (.*?) -o uroce-launch (\S+)\)",
                           FILE.read_text().replace("\n#", ""))
    subprocess.run(["rustc", *command[0].split(), "-o", str(given / "uroce-launch"),
                    str(REPOSITORY / command[1])], check=True)


def files(podman, image):
    """What is at each path of an image: kind, mode, owner, and content or target."""
    found = {}
    with podman.mounted(image) as root:
        for path in sorted(root.rglob("*")):
            status = path.lstat()
            what = [stat.filemode(status.st_mode), status.st_uid, status.st_gid]
            if path.is_symlink():
                what.append(os.readlink(path))
            elif path.is_file():
                # A hard link that has become a copy would make the image larger.
                content = hashlib.sha256(path.read_bytes()).hexdigest()
                what += [status.st_nlink, content]
            found[str(path.relative_to(root))] = what
    return found


def configuration(podman, image):
    """The configuration of an image, without the name of the program that made it."""
    found = json.loads(podman.ask("image", "inspect", "--format", "{{json .Config}}", image))
    found["Labels"] = {name: value for name, value in found["Labels"].items()
                       if name != "io.buildah.version"}
    found["Healthcheck"] = json.loads(
        podman.ask("image", "inspect", "--format", "{{json .HealthCheck}}", image))
    return {name: value for name, value in found.items() if value}


def label(podman, image, name):
    """A label of an image."""
    return podman.ask("image", "inspect", "--format", f'{{{{index .Labels "{name}"}}}}',
                      image).strip()


def compare(what, one, other):
    """Raises if two maps differ, and names what does."""
    names = [name for name in sorted({*one, *other}) if one.get(name) != other.get(name)]
    if names:
        first = f"{names[0]}: {one.get(names[0])}, {other.get(names[0])}"
        raise Failed(f"{len(names)} {what} differ; ours and the Containerfile's {first}")


BESIDE = (containerfile,)
