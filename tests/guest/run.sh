#!/bin/bash
# Boots a real Linux kernel as NFS client against a server on this machine and runs the checks; see README.md.
# Everything lives in namespaces that end with this command. `run.sh --help` lists the options.
#
# Exit: 0 all passed, 1 a check failed, 2 wrong usage, 77 not possible here.
set -u
here=$(cd "$(dirname "$0")" && pwd)

python=/usr/bin/python3
[ -x $python ] || python=python3
peer=()
for ((i = 1; i <= $#; i++)); do
    case ${!i} in
        --help | -h | --list) exec $python -B "$here/rig/main.py" "$@" ;;
        --peer) n=$((i + 1)); peer=(--peer "${!n:-}") ;;
        --peer=*) v=${!i}; peer=(--peer "${v#--peer=}") ;;
    esac
done

"$here/setup.sh" --check "${peer[@]}"
rc=$?
if [ $rc != 0 ]; then
    [ $rc = 77 ] && echo "guest: 0 passed, 0 failed, 1 skipped"
    exit $rc
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/nfsguest.XXXXXX") || exit 77
child=
finish() {
    [ -z "$child" ] || { kill -KILL "$child"; wait "$child"; } 2>/dev/null
    # Mounts were made in the private mount namespace and are gone with it, so this removes plain files only.
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# The process id namespace is the guard against stray processes: when its first process ends, the kernel ends the
# server, the guest and all they started. Should this shell be killed, the parent-death signals do the same.
setpriv --pdeathsig KILL unshare --mount --net --pid --fork --kill-child=KILL --mount-proc --propagation private \
    $python -B "$here/rig/main.py" --work "$work" "$@" </dev/null &
child=$!
wait $child
rc=$?
child=
exit $rc
