# shellcheck shell=bash
# Debian packages by purpose. A library: `source` it, then call
#
#     packages_need PURPOSE...
#
# What is installed already is left alone and nothing is said; what is missing is named on stderr
# and installed with apt-get (through sudo where the caller is not root). Fails, with the command
# to type, where it cannot.

# The packages of one purpose, each with the reason it is there.
packages_of() {
    case "$1" in
    # DPDK with its headers, bindgen's libclang, what cc and pkg-config need; the verbs headers.
    build) echo libdpdk-dev libclang-dev pkg-config gcc libc6-dev libibverbs-dev librdmacm-dev ;;
    # The independent dissectors that judge the golden vectors.
    golden) echo tshark python3-scapy ;;
    # What the tests over DPDK look with: system calls of lcores; interfaces in a namespace.
    tools) echo strace iproute2 ;;
    # deploy/cost counts instructions with it.
    cost) echo valgrind ;;
    # The interop laboratory's host side; the guest's packages are only unpacked, see lab/image.py.
    interop) echo qemu-system-x86 cpio iproute2 python3 ;;
    # The RDMA programs and libraries that run unmodified; what they import is looked at, too.
    # rdma-core has the tests of python3-pyverbs, which ask iproute2 for addresses; infiniband-diags
    # reads the tree.
    apps) echo perftest ibverbs-utils rdmacm-utils qperf fio ucx-utils libucx0 libfabric1 \
        libfabric-bin python3-pyverbs rdma-core iproute2 ibverbs-providers infiniband-diags ;;
    *)
        echo "packages: unknown purpose '$1' (build, golden, tools, cost, interop, apps)" >&2
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
    if packages_known "$@" && packages_apt install --no-install-recommends "$@"; then
        return
    fi
    # No lists yet, or lists older than the archive: read them, then try once more.
    packages_update
    packages_apt install --no-install-recommends "$@" || {
        echo "packages: could not install; by hand, as root: apt-get install $*" >&2
        return 1
    }
}

packages_update() {
    echo "packages: apt-get update" >&2
    packages_allowed || return
    packages_apt update || echo "packages: apt-get update failed; trying with the lists there are" >&2
}

# Fails, saying why, where nothing can be installed.
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

# True if apt's lists have a candidate for every package named.
packages_known() {
    apt-cache show --no-all-versions "$@" >/dev/null 2>&1
}

# apt-get as root, without questions, everything it says on stderr.
packages_apt() {
    local -a as_root=()
    ((EUID == 0)) || as_root=(sudo)
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq -y -o DPkg::Lock::Timeout=120 -o Dpkg::Use-Pty=0 "$@" </dev/null >&2
}
