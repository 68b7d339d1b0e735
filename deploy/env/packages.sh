# shellcheck shell=bash
# Debian packages by purpose. A library: `source` it, then call
#
#     packages_need PURPOSE...
#
# Installed packages are left alone without a message. Missing packages are named on stderr and
# installed with apt-get, through sudo if the caller is not root. If that is not possible, it fails
# and prints the command to type.

# Prints the packages of one purpose.
packages_of() {
    case "$1" in
    # DPDK and the verbs interface with their headers, bindgen's libclang, and the tools of cc and
    # pkg-config.
    build) echo libdpdk-dev libclang-dev pkg-config gcc libc6-dev libibverbs-dev librdmacm-dev ;;
    # Independent dissectors that check the golden vectors.
    golden) echo tshark python3-scapy ;;
    # Tools of the tests over DPDK: strace for lcores' system calls, ip for interfaces in a
    # namespace.
    tools) echo strace iproute2 ;;
    # deploy/cost counts instructions with it.
    cost) echo valgrind ;;
    # The host side of the interop laboratory. The guest's packages are only unpacked, see
    # lab/vm/image.py.
    interop) echo qemu-system-x86 cpio iproute2 python3 ;;
    # deploy/peer-rxe compiles a kernel and packs the root folder of its guest.
    rxe) echo linux-source-6.1 gcc libc6-dev make flex bison bc xz-utils cpio python3 ;;
    # The RDMA programs and libraries that run unmodified; their imports are checked too. rdma-core
    # contains the tests of python3-pyverbs, which use iproute2 to find addresses. infiniband-diags
    # reads the tree.
    apps) echo perftest ibverbs-utils rdmacm-utils qperf fio ucx-utils libucx0 libfabric1 \
        libfabric-bin python3-pyverbs rdma-core iproute2 ibverbs-providers infiniband-diags ;;
    # Engines of several processes (lab/engines), and the compilers of their programs.
    engines) echo openmpi-bin libopenmpi-dev mpich libmpich-dev gcc libc6-dev ucx-utils libucx0 \
        libfabric1 libfabric-bin iproute2 ibverbs-providers python3-venv ;;
    # deploy/container/build: its own language, and strip and objdump.
    image) echo python3 binutils ;;
    # Engines, their runtime and networks, an environment for tools from PyPI, and mmdebstrap for
    # Debian as an image, for the tests of the image.
    containers) echo podman runc catatonit containernetworking-plugins docker.io docker-compose \
        buildah iproute2 util-linux python3-venv mmdebstrap ;;
    # kubelet from Debian's source, for deploy/kubernetes/node; docker.io brings containerd.
    node) echo golang-go dpkg-dev containerd ;;
    # The MPI program of an image without uroce, for the tests of the image.
    mpi) echo openmpi-bin libopenmpi-dev gcc libc6-dev ;;
    # Open vSwitch with DPDK, at whose ports several programs share a NIC.
    switch) echo openvswitch-switch-dpdk ;;
    # promtool, which checks the text of `uroce export`, and dpdk-telemetry.py.
    telemetry) echo prometheus dpdk-dev ;;
    # The terminal sessions of uroce, a program to look into, and the shells that it completes in.
    cli) echo tmux perftest zsh fish man-db ;;
    # Languages with runtimes that handle SIGSEGV themselves (bindings/verbs-abi/tests/runtimes.rs):
    # 200 MB to download, which the laboratory has no use for.
    runtimes) echo openjdk-17-jdk-headless golang-go ;;
    *)
        echo "packages: unknown purpose '$1'; one of build, golden, tools, cost, interop, rxe," \
            "apps, engines, switch, image, containers, node, mpi, telemetry, cli, runtimes" >&2
        return 2
        ;;
    esac
}

packages_need() {
    local purpose wanted package
    local -a missing=()
    for purpose in "$@"; do
        wanted=$(packages_of "$purpose") || return
        for package in $wanted; do
            packages_installed "$package" || missing+=("$package")
        done
    done
    ((${#missing[@]} == 0)) || packages_install "${missing[@]}"
}

packages_installed() {
    dpkg-query -W -f='${db:Status-Status}\n' "$1" 2>/dev/null | grep -qx installed
}

packages_install() {
    echo "packages: installing from Debian: $*" >&2
    packages_allowed || return
    packages_mend
    if packages_known "$@" && packages_apt install --no-install-recommends "$@"; then
        return
    fi
    # The package lists are missing or older than the archive. Update them, then try once more.
    packages_update
    packages_apt install --no-install-recommends "$@" || {
        echo "packages: could not install; by hand, as root: apt-get install $*" >&2
        return 1
    }
}

# Completes an installation that was ended half-way, by a signal or a reset. Until then apt-get
# refuses all others. What dpkg cannot configure, apt-get unpacks again.
packages_mend() {
    [[ -n $(dpkg --audit 2>/dev/null) ]] || return 0
    echo "packages: an earlier installation was interrupted: dpkg --configure -a" >&2
    packages_as_root dpkg --configure -a || packages_apt install --fix-broken
}

packages_update() {
    echo "packages: apt-get update" >&2
    packages_allowed || return
    packages_apt update || echo "packages: apt-get update failed; trying with the present lists" >&2
}

# Fails with a message if packages cannot be installed.
packages_allowed() {
    if ! command -v apt-get >/dev/null; then
        echo "packages: no apt-get here; these scripts take their packages from Debian" >&2
        return 1
    fi
    if ((EUID != 0)) && ! command -v sudo >/dev/null; then
        echo "packages: neither root nor sudo here: install them by hand, then run this again" >&2
        return 1
    fi
}

# True if apt's lists have a candidate for every package.
packages_known() {
    apt-cache show --no-all-versions "$@" >/dev/null 2>&1
}

packages_apt() {
    packages_as_root apt-get -qq -y -o DPkg::Lock::Timeout=120 -o Dpkg::Use-Pty=0 "$@"
}

# Runs apt-get or dpkg as root, without questions, with all output on stderr. The services of what
# is installed (Docker, Prometheus, Open vSwitch) do not start: Debian's policy for that is set
# while the command runs, unless the machine has one.
packages_as_root() {
    local -a as_root=()
    ((EUID == 0)) || as_root=(sudo)
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive sh -c "$packages_without_services" packages \
        "$@" </dev/null >&2
}

# A command, its arguments, which runs under that policy.
packages_without_services='
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap "rm -f $policy" EXIT
    trap "exit 1" HUP INT TERM
    printf "#!/bin/sh\nexit 101\n" >"$policy"
    chmod 755 "$policy"
fi
"$@"'
