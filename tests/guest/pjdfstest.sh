#!/bin/bash
# Runs pjdfstest (the POSIX suite of that name on crates.io) on the backing file system and, in the guest, on the mount
# of it, and prints what passes on the first and fails on the second. Exceptions: pjdfstest.expected.
#
#   pjdfstest.sh [--server PATH | --peer ganesha] [--out DIR]     DIR gets both outputs of the suite
#
# The suite is built once, into target/pjdfstest of this repository (PJDFSTEST=BINARY names another).
# Exit: 0 no unexpected difference, 1 some, 2 wrong usage, 77 not possible here.
set -u
here=$(cd "$(dirname "$0")" && pwd)
version=0.2.2

run=() out=
while [ $# -gt 0 ]; do
    case $1 in
        --server | --peer) [ $# -ge 2 ] || { echo "pjdfstest.sh: $1 needs a value" >&2; exit 2; }; run+=("$1" "$2"); shift ;;
        --out) out=${2:-}; shift ;;
        *) sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
    shift
done

skip() {
    echo "## SKIP: pjdfstest cannot run on this machine: $*" >&2
    echo "pjdfstest: skipped"
    exit 77
}

work=$(mktemp -d "${TMPDIR:-/tmp}/pjdfstest.XXXXXX") || exit 77
child=
finish() {
    [ -z "$child" ] || { kill "$child"; wait "$child"; } 2>/dev/null
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

binary=${PJDFSTEST:-$here/../../target/pjdfstest/bin/pjdfstest}
if [ ! -x "$binary" ]; then
    [ -z "${PJDFSTEST:-}" ] || skip "PJDFSTEST=$PJDFSTEST is no program"
    command -v cargo >/dev/null || skip "cargo is missing"
    "$here/setup.sh" --pjdfstest || { rc=$?; [ $rc = 77 ] && skip "see above"; exit $rc; }
    root=$(cd "$here/../.." && pwd)/target/pjdfstest
    echo "pjdfstest.sh: building pjdfstest $version into $root"
    CARGO_TARGET_DIR=$work/build cargo install pjdfstest --version $version --locked --quiet --no-track --root "$root" \
        || skip "cargo install pjdfstest --version $version failed"
    rm -rf "$work/build"
fi

[ -n "$out" ] || out=$work/out
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 2
rm -f "$out/backing.txt" "$out/mount.txt"
"$here/run.sh" "${run[@]}" --pjdfstest "$(realpath "$binary")" --pjdfstest-out "$out" &
child=$!
wait $child
rc=$?
child=
[ $rc = 77 ] && skip "see above"
for name in backing mount; do
    [ -s "$out/$name.txt" ] || { echo "FAIL pjdfstest no results of the ${name} run"; exit 1; }
done
/usr/bin/python3 -B "$here/rig/pjdcompare.py" "$out/backing.txt" "$out/mount.txt" "$here/pjdfstest.expected" || exit 1
exit $rc
