#!/usr/bin/env bash
# Compares plain RPC, without NFS, with other frameworks: null calls and an echo of 1 MiB. See --help.
set -euo pipefail
cd "$(dirname "$0")/../.."

usage() {
  cat <<'T'
Usage: bash tests/bench/rpc.sh [OPTIONS]      (or: bash tests/bench/run.sh --rpc [OPTIONS])

Server CPU time of a null call, 32 in flight on 1 and on 32 connections, and of an echo of 1 MiB, 8 in flight on one
connection: the framework's echo example and its peers in turn, each server on one processor and its load on another.
Prints medians as Markdown tables. Each peer is driven by a client of its own, with as many calls in flight.

  --peers P[,...]     of tirpc (libtirpc, in C), tarpc (with bincode), tonic (gRPC) [tirpc]. Those of tokio run on one
                      thread, the setting kindest to them here; tarpc-mt and tonic-mt are the same on tokio's default
                      runtime. They are built when asked for: they need their crates. Peers that cannot be built are
                      skipped, and said so.
  --rows WORD[,...]   only rows whose name contains one of the words; "list" names all rows
  --quick             1 round of 1 second instead of 3 rounds of 3
  --rounds N          rounds; servers are started anew in each [3]
  --secs S            seconds of each measurement [3]
  --json FILE         also write medians and all single runs as JSON
  --svg DIR           also draw the server's CPU time as bars, DIR/rpc.svg
  --server-cpu N      processor of the servers [0]
  --client-cpu N      processor of the load [1]
  --nfsbench PATH     use this generator instead of building one
  --echo PATH         measure this echo-server instead of building one
  --bin DIR           take tirpc-server, bench-tarpc, bench-tonic from here instead of building them
  --help
T
}

rounds=3 secs=3 peers=tirpc only= json= svg= server_cpu=0 client_cpu=1 bench= echo_server= bin=
while [ $# -gt 0 ]; do
  case $1 in
    --peers) peers=$2; shift ;;
    --rows) only=$2; shift ;;
    --quick) rounds=1 secs=1 ;;
    --rounds) rounds=$2; shift ;;
    --secs) secs=$2; shift ;;
    --json) json=$(realpath "$2"); shift ;;
    --svg) mkdir -p "$2"; svg=$(realpath "$2"); shift ;;
    --server-cpu) server_cpu=$2; shift ;;
    --client-cpu) client_cpu=$2; shift ;;
    --nfsbench) bench=$(realpath "$2"); shift ;;
    --echo) echo_server=$(realpath "$2"); shift ;;
    --bin) bin=$(realpath "$2"); shift ;;
    --help | -h) usage; exit ;;
    *) echo "rpc.sh: $1: no such option, see --help" >&2; exit 2 ;;
  esac
  shift
done

rows='null c1q32|--op rpc-null -c 1 -q 32
null c32q32|--op rpc-null -c 32 -q 32
echo 1M c1q8|--op echo -c 1 -q 8'
if [ "$only" = list ]; then cut -d'|' -f1 <<<"$rows"; exit; fi
# shellcheck source=tests/bench/lib.sh
. tests/bench/lib.sh

target() { (cd "$1" && cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/'); }
if [ -z "$bench" ]; then
  cargo build --release --locked -p sunrpc-tests --bin nfsbench >&2
  bench=$(target .)/release/nfsbench
fi
if [ -z "$echo_server" ]; then
  cargo build --release --locked -p sunrpc-example-echo --bin echo-server >&2
  echo_server=$(target .)/release/echo-server
fi

work=$(mktemp -d)
declare -A pid=() port=([ours]=22151 [tirpc]=22152 [tarpc]=22153 [tonic]=22154 [tarpc-mt]=22155 [tonic-mt]=22156)
trap 'trap - EXIT; progress_end; stop_all; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

running=(ours)
peers_bin=$bin
for p in ${peers//,/ }; do
  case $p in
    tirpc)
      if [ -n "$bin" ] && [ -x "$bin/tirpc-server" ]; then
        tirpc=$bin/tirpc-server
      else
        tirpc=$work/tirpc-server
        # shellcheck disable=SC2046 # words
        if ! cc -O2 -o "$tirpc" tests/bench/peers/tirpc/server.c $(pkg-config --cflags --libs libtirpc) 2>"$work/cc"; then
          loud "tirpc SKIPPED: apt-get install gcc pkg-config libtirpc-dev ($(head -1 "$work/cc"))"
          continue
        fi
      fi
      ;;
    tarpc | tonic | tarpc-mt | tonic-mt)
      crate=bench-${p%-mt}
      if [ -z "$bin" ]; then
        # A target directory of its own: what the peers need must not mix with the project's.
        peers_bin=$(target tests/bench/peers)/release
        if ! (cd tests/bench/peers && cargo build --release --locked -p "$crate") >&2; then
          loud "$p SKIPPED: it does not build (see above)"
          continue
        fi
      fi
      [ -x "$peers_bin/$crate" ] || { loud "$p SKIPPED: no $peers_bin/$crate"; continue; }
      ;;
    *) echo "rpc.sh: --peers: no peer $p" >&2; exit 2 ;;
  esac
  running+=("$p")
done

load_by() { # load_by SERVER: sets load to the client that speaks its protocol
  case $1 in
    tarpc* | tonic*) load=("$peers_bin/bench-${1%-mt}" load --port "${port[$1]}") ;;
    *) load=("$bench" load --port "${port[$1]}") ;;
  esac
}
# Servers are started as simple commands, so that $! is the server and not a shell around it.
start() { # start SERVER: 0 when it answers, with its pid noted
  local at=${port[$1]} runtime=
  [[ $1 != *-mt ]] || runtime=--multi-thread
  case $1 in
    ours) taskset -c "$server_cpu" "$echo_server" "tcp://127.0.0.1:$at" >"$work/$1" 2>&1 & ;;
    tirpc) taskset -c "$server_cpu" "$tirpc" "$at" >"$work/$1" 2>&1 & ;;
    *) taskset -c "$server_cpu" "$peers_bin/bench-${1%-mt}" serve --port "$at" $runtime >"$work/$1" 2>&1 & ;;
  esac
  pid[$1]=$!
  load_by "$1"
  for _ in $(seq 50); do
    kill -0 "${pid[$1]}" 2>/dev/null || break
    timeout 5 "${load[@]}" --op rpc-null --secs 0.01 --warmup 0 >/dev/null 2>"$work/probe" && return
    sleep 0.1
  done
  loud "$1 does not serve: $(tail -n 3 "$work/$1" | tr '\n' ' ') $(cat "$work/probe")"
  stop "${pid[$1]}"
  unset "pid[$1]"
  return 1
}

results=$work/results.jsonl
: >"$results"
select_rows "$rows" "$only" rpc.sh
progress_start $((rounds * ${#selected[@]} * ${#running[@]}))
for round in $(seq "$rounds"); do
  alive=()
  for s in "${running[@]}"; do start "$s" && alive+=("$s"); done
  [ ${#alive[@]} -gt 0 ] || { echo "rpc.sh: no server runs" >&2; exit 1; }
  for line in "${selected[@]}"; do
    row=${line%%|*} options=${line#*|}
    # Each round begins with another server.
    for i in $(seq 0 $((${#alive[@]} - 1))); do
      s=${alive[$(((i + round) % ${#alive[@]}))]}
      progress "round $round/$rounds, $row, $s"
      load_by "$s"
      let_run "$s"
      # shellcheck disable=SC2086 # options are words
      measure "$secs" "${load[@]}" $options --secs "$secs" --pid "${pid[$s]}" --cpu "$client_cpu" --label "$s" --row "$row" \
        --json >>"$results" || loud "$s, $row: no figures (see above)"
    done
  done
  stop_all
done
progress_end

echo
"$bench" table "$results" ${json:+--json "$json"} ${svg:+--svg "$svg/rpc.svg" --title "Plain RPC"}
echo
machine
