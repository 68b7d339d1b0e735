"""What is proven of services: systemd's unit under a systemd of its own, in a container of Debian
12, and podman's quadlet.
"""

import configparser
import contextlib
import os
import subprocess
import time
from pathlib import Path

import base
from cases import CLIENT, HEALTH, IMAGE, MANIFESTS, rights
from engine import Failed, Skipped

UNITS = MANIFESTS.parent / "systemd"
QUADLET = MANIFESTS.parent / "quadlet"
GENERATOR = Path("/usr/lib/systemd/system-generators/podman-system-generator")
MACHINE = "localhost/machine:latest"
EXPOSED_MAX, EXPOSED_MAX_INTERFACE = 10, 20
"""Most exposure of a unit, in tenths of what `systemd-analyze security` prints."""
NET_RAW = 1 << 13
INSTALLED = f"""\
FROM {base.IMAGE}
COPY --from={IMAGE} /usr/lib/x86_64-linux-gnu/ /usr/lib/x86_64-linux-gnu/
COPY --from={IMAGE} /usr/bin/uroce /usr/bin/uroce-perf /usr/bin/
COPY --from={IMAGE} /etc/uroce/ /etc/uroce/
COPY . /etc/
"""
FINITE = """\
[Service]
Type=oneshot
Restart=no
ExecStart=
ExecStart=/usr/bin/uroce-perf rping -c -a 192.0.2.1 -V -C 2000 --config /etc/uroce/%i.toml
"""
"""Makes an instance a client that ends after some pings."""
AT_INTERFACE = """\
[[device]]
name = "uroce0"
idle = "sleep"

[[device.port]]
ethdev = {{ {ethdev} }}
ip = ["{address}/24"]
"""
NAMESPACES = ("--cap-add=SYS_ADMIN,SYS_PTRACE", "--security-opt=seccomp=unconfined",
              "--security-opt=apparmor=unconfined")
"""What systemd needs to confine services. It cannot set the kernel's parameters: /proc/sys is
read-only in a container without privilege."""
ETHDEVS = {"af-packet": 'vdev = "net_af_packet0,iface={}"', "udp": 'udp = "{}"'}
"""Ports at an interface, by the name of the file with their rights."""
ADDRESSES = {"one": "192.0.2.1", "two": "192.0.2.2"}
"""Addresses of a server and its client, which are the instances af-packet-one, udp-two and so on.
Each has an interface of the name of its end."""


def unit(session):
    """uroce@.service: few rights by systemd's own measure, and two instances exchange data."""
    with machine(session) as systemd:
        exposed(systemd, "uroce@node1.service", EXPOSED_MAX)
        isolated(session, talk(session, systemd, "node1", "node2", 0))
        # Control groups of a container in this one are not to be had, so that it is set is all.
        show = ("systemctl", "show", "--property=MemoryMax", "--value", "uroce@node1")
        if (limit := systemd(*show).strip()) != str(512 << 20):
            raise Failed(f"MemoryMax is {limit}")


def unit_of_packets(session):
    """uroce@.service with af-packet.conf: two instances at a cable, with CAP_NET_RAW alone."""
    with machine(session) as systemd:
        cable(session)
        exposed(systemd, "uroce@af-packet-one.service", EXPOSED_MAX_INTERFACE)
        read_only(talk(session, systemd, "af-packet-one", "af-packet-two", NET_RAW))


def unit_of_udp(session):
    """uroce@.service with udp.conf: two instances by UDP sockets, with no capability."""
    with machine(session) as systemd:
        cable(session, ADDRESSES.items())
        exposed(systemd, "uroce@udp-one.service", EXPOSED_MAX_INTERFACE)
        read_only(talk(session, systemd, "udp-one", "udp-two", 0))


def cable(session, addresses=()):
    """Joins two interfaces in the machine's network, and gives them addresses."""
    process = str(session.podman.main_process("machine"))
    one, other = ADDRESSES
    steps = [f"link add {one} type veth peer name {other}", f"link set {one} up",
             f"link set {other} up",
             *(f"addr add {address}/24 dev {end}" for end, address in addresses)]
    for step in steps:
        subprocess.run(["nsenter", "-n", "-t", process, "ip", *step.split()], check=True)


def exposed(systemd, unit, most):
    """Raises if a unit is faulty or has more rights than it may."""
    # Without this option it ends well in spite of keys that it does not know.
    systemd("systemd-analyze", "verify", "--recursive-errors=no", unit)
    systemd("systemd-analyze", "security", f"--threshold={most}", unit)


def isolated(session, process):
    """Raises unless a service's process sees a root that is read-only, no other network and users
    than its own, no device of hardware and no process of others."""
    machine = session.podman.main_process("machine")
    for kind in ("mnt", "net", "user"):
        if space(process, kind) == space(machine, kind):
            raise Failed(f"the service has the machine's namespace {kind}")
    read_only(process)
    if found := [name for name in ("kmsg", "mem", "net") if Path(
            f"/proc/{process}/root/dev/{name}").exists()]:
        raise Failed(f"the service has the devices {found}")


def space(process, kind):
    """The namespace of a process."""
    return os.readlink(f"/proc/{process}/ns/{kind}")


def read_only(process):
    """Raises unless the system's files are read-only to a process."""
    rows = [line.split() for line in Path(f"/proc/{process}/mountinfo").read_text().splitlines()]
    options = {row[4]: row[5].split(",") for row in rows}
    for folder in ("/", "/etc", "/usr"):
        if folder in options and "ro" not in options[folder]:
            raise Failed(f"the service may write to {folder}")


def talk(session, systemd, server, client, capabilities):
    """Starts a server and a client that ends well; checks the server's rights. Returns the number
    of its process on this machine."""
    systemd("systemctl", "start", f"uroce@{server}")
    end = time.monotonic() + 20
    while "listening" not in (log := systemd("journalctl", "-u", f"uroce@{server}")):
        if time.monotonic() > end:
            raise Failed(f"uroce@{server} does not listen: {log[-900:]}")
        time.sleep(0.2)
    try:
        systemd("systemctl", "start", f"uroce@{client}")
    except Failed as failure:
        log = systemd("journalctl", "-u", f"uroce@{client}")
        raise Failed(f"{failure}; {log[-900:]}")
    show = ("systemctl", "show", "--property=MainPID", "--value", f"uroce@{server}")
    inner = systemd(*show).strip()
    [outer] = [entry for entry in session.podman.ask("top", "machine", "hpid", "pid").splitlines()
               if entry.split()[1] == inner]
    user = systemd("stat", "--format=%u", f"/proc/{inner}").strip()
    if user == "0":
        raise Failed("the service runs as root")
    process = int(outer.split()[0])
    rights(process, user, capabilities)
    return process


@contextlib.contextmanager
def machine(session):
    """A container with systemd as its first process, uroce and the units. Gives a function that
    runs a command in it."""
    podman = session.podman
    install(session)

    def systemd(*command):
        return podman.ask("exec", "machine", *command)

    try:
        podman.ask("run", "--detach", "--name=machine", *NAMESPACES, "--systemd=always",
                   "--network=none", "--no-healthcheck", MACHINE, "/lib/systemd/systemd")
        end = time.monotonic() + 30
        while (state := podman.run("exec", "machine", "systemctl", "is-system-running").stdout
               .strip()) not in ("running", "degraded"):
            if time.monotonic() > end:
                raise Failed(f"systemd is {state}: {podman.logs('machine')[-600:]}")
            time.sleep(0.2)
        yield systemd
    finally:
        podman.remove("machine")


def install(session):
    """Makes the image of the machine, once."""
    podman, context = session.podman, session.work / "machine"
    if context.exists():
        return
    units = context / "systemd/system"
    units.mkdir(parents=True)
    (units / "uroce@.service").write_text((UNITS / "uroce@.service").read_text())
    (context / "uroce").mkdir()
    for way, ethdev in ETHDEVS.items():
        for end, address in ADDRESSES.items():
            drop_in(units, f"{way}-{end}", f"{way}.conf", (UNITS / f"{way}.conf").read_text())
            text = AT_INTERFACE.format(ethdev=ethdev.format(end), address=address)
            (context / f"uroce/{way}-{end}.toml").write_text(text)
    for name in ("node2", "af-packet-two", "udp-two"):
        drop_in(units, name, "client.conf", FINITE)
    file = session.work / "machine.containerfile"
    file.write_text(INSTALLED)
    session.debian.image(podman)
    podman.ask("build", "--quiet", "--layers=false", "--pull=never", "--tag", MACHINE, "--file",
               str(file), str(context), timeout=300)


def drop_in(units, instance, name, text):
    """Puts a file beside the unit of an instance."""
    folder = units / f"uroce@{instance}.service.d"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)


OPTIONS = {
    "User": "--user={User}:{Group}", "Group": "", "DropCapability": "--cap-drop={DropCapability}",
    "NoNewPrivileges": "--security-opt=no-new-privileges", "ReadOnly": "--read-only",
    "Network": "--network={Network}", "Volume": "--volume={Volume}", "PodmanArgs": "{PodmanArgs}",
}
"""podman's options for the keys, as podman-systemd.unit(5) has them; switches are on here."""
FACTS = ("{{json .EffectiveCaps}} {{json .BoundingCaps}} {{.HostConfig.ReadonlyRootfs}} "
         "{{.HostConfig.Memory}} {{.Path}} {{json .Args}}")


def quadlet(session):
    """The quadlet's container has the rights of the Pod's, and serves a client by its volume."""
    podman, keys = session.podman, section("uroce.container", "Container")
    if section("uroce.volume", "Volume"):
        raise Failed("the volume has keys of which this test knows nothing")
    # podman's name for the volume of a file.
    keys["Volume"] = keys["Volume"].replace("uroce.volume", "systemd-uroce")
    podman.ask("volume", "create", "systemd-uroce")
    image, command = keys.pop("Image"), keys.pop("Exec").split()
    options = [option for key in keys if (option := OPTIONS[key].format(**keys))]
    try:
        podman.ask("run", "--detach", "--name=quadlet", "--no-healthcheck", *options, image,
                   *command)
        podman.wait_for("quadlet", "listening")
        rights(podman.main_process("quadlet"))
        podman.ask("exec", "quadlet", *HEALTH)
        podman.container(f"--volume={keys['Volume']}", IMAGE, *CLIENT, "-C", "2000")
        with podman.played(MANIFESTS / "overlays/fabric/pair.yaml"):
            one, other = (podman.inspect(name, FACTS) for name in ("quadlet", "uroce-pair-server"))
        if one != other:
            raise Failed(f"the quadlet has {one}, the Pod {other}")
    finally:
        podman.remove("quadlet")
    generated(session)


def generated(session):
    """podman's generator takes the files, where podman has one."""
    if not GENERATOR.exists():
        raise Skipped("the generator is not run here: needs podman 4.4. The options were run")
    environment = {**os.environ, "QUADLET_UNIT_DIRS": str(QUADLET)}
    done = subprocess.run([GENERATOR, "--dryrun"], env=environment, capture_output=True, text=True)
    if done.returncode != 0 or "--cap-drop=all" not in done.stdout:
        raise Failed(f"the generator: {(done.stdout + done.stderr)[-900:]}")


def section(file, name):
    """The keys of a section of a quadlet's file; none is there twice."""
    parser = configparser.ConfigParser(delimiters="=", interpolation=None)
    parser.optionxform = str
    parser.read(QUADLET / file)
    return dict(parser[name])


CASES = (quadlet,)
BESIDE = (unit, unit_of_packets, unit_of_udp)
