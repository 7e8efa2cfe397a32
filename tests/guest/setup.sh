#!/bin/bash
# Prepares a Debian machine for the guest tests: installs the missing packages, checks what the kernel permits,
# prints what it found.
#
#   setup.sh            install what is missing, then check
#   setup.sh --check    check only, install nothing
#   setup.sh --peer ganesha [--check]     the same with the packages of the reference peer
#   setup.sh --pjdfstest [--check]        the same with what pjdfstest.sh needs to build the suite
#
# Exit: 0 ready, 77 not possible here (a skip: say so loudly, the caller decides), 2 wrong usage.
set -u

packages=(user-mode-linux nfs-common netbase iproute2 busybox-static git python3 util-linux mount rpcbind libnfs-utils)
install=yes
while [ $# -gt 0 ]; do
    case $1 in
        --check) install=no ;;
        --pjdfstest) packages+=(gcc libc6-dev libacl1-dev) ;;
        --peer)
            shift
            case ${1:-} in
                ganesha) packages+=(nfs-ganesha nfs-ganesha-vfs rpcbind) ;;
                *) echo "setup.sh: unknown peer '${1:-}' (known: ganesha)" >&2; exit 2 ;;
            esac ;;
        *) echo "usage: setup.sh [--check] [--peer ganesha] [--pjdfstest]" >&2; exit 2 ;;
    esac
    shift
done

skip() {
    {
        echo "############################################################"
        echo "## SKIP: the guest tests cannot run on this machine:"
        printf '##   %s\n' "$@"
        echo "############################################################"
    } >&2
    exit 77
}

[ "$(id -u)" = 0 ] || skip "root is needed (network namespace, tap device, mounts)"
case $(uname -m) in
    x86_64) ;;
    *) skip "the stock User Mode Linux kernel exists for x86_64 only, this is $(uname -m)" ;;
esac

installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

command -v dpkg-query >/dev/null || skip "this is no Debian-like system; the packages used there are ${packages[*]}"
missing=()
for p in "${packages[@]}"; do installed "$p" || missing+=("$p"); done

if [ ${#missing[@]} -gt 0 ]; then
    [ $install = yes ] || skip "packages missing: ${missing[*]}" "run tests/guest/setup.sh once"
    # Nothing may start a daemon on the host's own ports: the tests start theirs in a namespace. The policy file is ours
    # only if there was none.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e $policy ]; then
        printf '#!/bin/sh\nexit 101\n' > $policy && chmod 755 $policy
        trap 'rm -f /usr/sbin/policy-rc.d' EXIT
        trap 'exit 130' INT TERM HUP
    fi
    try() {
        DEBIAN_FRONTEND=noninteractive timeout 600 \
            apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null >"$log" 2>&1
    }
    log=$(mktemp)
    # The package lists of a fresh machine are absent or old; ask for new ones only when the first try says so.
    if ! try; then
        timeout 300 apt-get update -qq </dev/null >/dev/null 2>&1
        try || { tail -20 "$log" >&2; rm -f "$log"; skip "apt-get could not install: ${missing[*]}"; }
    fi
    rm -f "$log"
    echo "setup: installed ${missing[*]}"
fi

for tool in linux.uml mount.nfs ip busybox unshare setpriv git; do
    PATH=$PATH:/usr/sbin:/sbin command -v "$tool" >/dev/null || skip "command $tool is missing although its package is installed"
done
[ -x /usr/bin/python3 ] || skip "/usr/bin/python3 is missing"
if [ ! -e /dev/net/tun ] && [ $install = yes ]; then
    # Containers often have the driver but not the node.
    mkdir -p /dev/net && mknod -m 600 /dev/net/tun c 10 200 && echo "setup: made /dev/net/tun"
fi
[ -c /dev/net/tun ] || skip "/dev/net/tun is missing: no tap device can be made"

# One try of everything the rig does: namespaces, a private /proc, a tap device, a tmpfs.
probe=$(unshare --mount --net --pid --fork --kill-child --mount-proc --propagation private /bin/sh -c '
    ip link set lo up || exit 1
    ip tuntap add tap0 mode tap || { echo "no tap device can be made (/dev/net/tun)"; exit 1; }
    ip addr add 10.77.0.1/24 dev tap0 || exit 1
    mount -t tmpfs -o size=1m none /tmp || { echo "no tmpfs can be mounted"; exit 1; }' 2>&1) \
    || skip "namespaces are not permitted here: ${probe:-unshare failed}"

# What main.py takes for the guest's modules: the newest that the package brought.
kernel=$(ls /usr/lib/uml/modules 2>/dev/null | sort -V | tail -1)
[ -n "$kernel" ] || skip "user-mode-linux has no modules below /usr/lib/uml/modules"
find "/usr/lib/uml/modules/$kernel" -name nfsv3.ko\* | grep -q . || skip "the guest kernel $kernel has no NFSv3 client"
echo "setup: guest kernel $kernel, host kernel $(uname -r), $(nproc) CPUs, $(/usr/bin/python3 -V)"
