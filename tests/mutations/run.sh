#!/usr/bin/env bash
# Shows that the tests of the invariants notice their violation: each test in `table` passes, and fails with the fault
# beside it. The last line says how many faults were noticed (killed) and how many were not (survived).
#
#   tests/mutations/run.sh            all
#   tests/mutations/run.sh NAME...    these faults only
#
# One build serves all: that of `cargo test --workspace --all-features`. Faults that need the delay relay are in
# tests/relay; what is signed cannot be lent at all: that does not compile (a test of the documentation of Payload).
set -uo pipefail
cd "$(dirname "$0")/../.."
table=tests/mutations/table
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

test_run() { # FAULT TARGET... TEST: 0 it passed, 1 it failed, 2 it did not run
  local fault=$1 name=${*: -1}
  set -- "${@:2:$#-2}"
  SUNRPC_MUTATION=$fault timeout -k 5 "${LIMIT:-150}" \
    cargo test -q --workspace --all-features --locked "$@" -- --exact "$name" >"$out/log" 2>&1
  local rc=$?
  [ $rc -eq 0 ] && { grep -q "test result: ok. 1 passed" "$out/log" && return 0 || return 2; }
  return 1
}

if ! cargo test -q --workspace --all-features --locked --no-run >"$out/log" 2>&1; then
  tail -20 "$out/log"
  exit 1
fi
killed=0 survived=0 bad=0
while read -r fault invariant target; do
  case $fault in '#'* | '') continue ;; esac
  if [ $# -gt 0 ]; then case " $* " in *" $fault "*) ;; *) continue ;; esac; fi
  # shellcheck disable=SC2086 # the words of the target are arguments
  test_run "" $target
  case $? in
    1) echo "FAILS WITHOUT A FAULT: $target"; tail -5 "$out/log"; bad=1; continue ;;
    2) echo "NO SUCH TEST: $target"; bad=1; continue ;;
  esac
  # shellcheck disable=SC2086
  if test_run "$fault" $target; then
    echo "survived  $fault (invariant $invariant): $target"
    survived=$((survived + 1))
  else
    echo "killed    $fault (invariant $invariant)"
    killed=$((killed + 1))
  fi
done <$table

if [ $# -eq 0 ]; then
  # Every fault has a row, here or in the relay's rig.
  for fault in $(sed -n 's/^    ("\([a-z-]*\)", ".*/\1/p' sunrpc/src/mutate.rs); do
    grep -q "^$fault " $table || grep -qs -- "$fault" tests/relay/run.sh || { echo "NO TEST: $fault"; bad=1; }
  done
  target=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
  if [ -x "$target/release/nfsd" ]; then
    if grep -q SUNRPC_MUTATION "$target/release/nfsd"; then
      echo "THE RELEASED SERVER KNOWS FAULTS"
      bad=1
    else
      echo "the released server knows no fault"
    fi
  fi
fi
echo "killed $killed, survived $survived"
[ $survived -eq 0 ] && [ $bad -eq 0 ]
