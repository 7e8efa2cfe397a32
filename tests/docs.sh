#!/usr/bin/env bash
# Runs the shell commands of README.md and docs/ as they stand there.
#
# The line before a block of commands says what to do with it, and there is no block without one:
#   <!-- ci: run -->                     run it; it must succeed
#   <!-- ci: serve TEXT -->              run it until it prints TEXT, then stop it
#   <!-- ci: skip REASON -->             leave it alone
#
# As root, where permitted, in a network of its own, with a /run of its own and an empty /srv/data.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -z "${DOCS_ISOLATED:-}" ] && [ "$(id -u)" = 0 ] && unshare -n -m true 2>/dev/null; then
  DOCS_ISOLATED=yes exec unshare -n -m --propagation private bash -c \
    'ip link set lo up && mount -t tmpfs tmpfs /run && mkdir -p /srv && mount -t tmpfs tmpfs /srv && mkdir /srv/data && exec bash tests/docs.sh "$@"' _ "$@"
fi
if [ -z "${DOCS_ISOLATED:-}" ]; then
  echo "SKIPPED: the commands of the documents need a network of their own (unshare -n -m, as root)"
  exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ran=0 failed=0

# do_block FILE LINE KIND ARGUMENT SCRIPT
do_block() {
  local out=$work/out rc=0
  case $3 in
    skip) echo "skip  $1:$2 ($4)"; return ;;
    run) timeout -k 5 900 setsid bash -euo pipefail "$5" >"$out" 2>&1 </dev/null || rc=$? ;;
    serve)
      setsid bash -euo pipefail "$5" >"$out" 2>&1 </dev/null &
      local pid=$!
      rc=1
      for _ in $(seq 9000); do
        grep -qF -- "$4" "$out" && { rc=0; break; }
        kill -0 $pid 2>/dev/null || break
        sleep 0.1
      done
      kill -- -$pid 2>/dev/null || true
      wait $pid 2>/dev/null || true
      ;;
    *) echo "$1:$2: no such kind of block: $3"; rc=2 ;;
  esac
  ran=$((ran + 1))
  if [ $rc = 0 ]; then
    echo "ok    $1:$2"
  else
    failed=$((failed + 1))
    echo "FAIL  $1:$2 (exit $rc)"
    sed 's/^/      /' "$5" "$out"
  fi
}

for file in README.md docs/*.md; do
  n=0 inside='' kind='' argument='' at=0
  while IFS= read -r line; do
    n=$((n + 1))
    if [ -n "$inside" ]; then
      if [ "$line" = '```' ]; then
        do_block "$file" $at "$kind" "$argument" "$work/script"
        inside='' kind=''
      else
        printf '%s\n' "$line" >>"$work/script"
      fi
    elif [[ $line =~ ^'<!-- ci: '([a-z]+)' '?(.*)' -->'$ ]]; then
      kind=${BASH_REMATCH[1]} argument=${BASH_REMATCH[2]}
    elif [ "$line" = '```sh' ]; then
      if [ -z "$kind" ]; then
        echo "FAIL  $file:$n: say in the line before what CI does with these commands (tests/docs.sh)"
        failed=$((failed + 1))
        kind=skip argument=unmarked
      fi
      inside=yes at=$n
      : >"$work/script"
    elif [ -n "$line" ]; then
      kind=''
    fi
  done <"$file"
done
echo "documents: $ran blocks run, $failed failed"
[ $failed = 0 ]
