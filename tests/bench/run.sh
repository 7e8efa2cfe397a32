#!/usr/bin/env bash
# Compares the server with its peers and with the floor of this machine, and prints tables.
# See --help, and docs/performance.md for what the figures mean.
set -euo pipefail
cd "$(dirname "$0")/../.."

usage() {
  cat <<'T'
Usage: bash tests/bench/run.sh [OPTIONS]
       bash tests/bench/run.sh --rpc [OPTIONS]     plain RPC against other frameworks, see --rpc --help
       bash tests/bench/run.sh --modes [OPTIONS]   how files on a disk are read and written, see --modes --help
       bash tests/bench/run.sh --pages [OPTIONS]   our ways of sending READ replies against each other

Builds nfsd and the load generator, starts the servers on one processor and the generator on another, and measures
every operation against each server in turn, on a directory in memory. Prints medians as Markdown tables.

  --quick             1 round of 1 second instead of 3 rounds of 3
  --rounds N          rounds; servers are started anew in each [3]
  --secs S            seconds of each measurement [3]
  --rows WORD[,...]   only rows whose name contains one of the words, such as "null,read 4k"; "list" names all rows
  --servers S[,...]   of ours, ganesha, floor [all three]
  --matrix            instead of the rows: NULL and GETATTR on 1, 8, 32 and 1000 connections, each with 1, 4, 8 and 32
                      calls in flight
  --stall             instead of the rows: how long GETATTR of one client takes while another one writes 16 MiB and
                      COMMITs over and over, and without it; on a disk [--dir: $TMPDIR or /tmp]
  --pages             instead of the rows: READ of 4 KiB to 1 MiB, 8 connections with 8 calls in flight, answered by copy, by
                      splice, by MSG_ZEROCOPY, and by copy without recycling of pages, beside servers that do nothing but
                      pread + send, splice, or sendfile
  --server NAME=CMD   also measure this NFSv3 server; repeatable. CMD is one command that stays in the foreground; {dir}
                      in it is the directory to export, {port} the port of NFS, {mount_port} that of MOUNT, if it has
                      one of its own. An earlier version of ours:
                      --server old='./nfsd-old {dir} --listen tcp://127.0.0.1:{port} --insecure --squash none --rpcbind off'
  --json FILE         also write medians and all single runs as JSON
  --svg DIR           also draw the server's CPU time as bars, DIR/nfs.svg
  --dir DIR           measure in a new directory below DIR [/dev/shm]; remove what is left of a killed run there
  --server-cpu N      processor of the servers [0]
  --client-cpu N      processor of the generator [1]
  --busy              the generator polls without sleeping (rows of depth 1 do so anyway, beside the usual way)
  --nfsd PATH         measure this binary instead of building one
  --nfsbench PATH     use this generator instead of building one
  --keep              leave directory and logs
  --help

Peers that are not installed or do not start are skipped, and said so. nfs-ganesha: as root,
`apt-get install nfs-ganesha nfs-ganesha-vfs rpcbind`.
As root everything runs in a network of its own, so that no port can clash.
T
}

if [ "${1:-}" = --rpc ]; then
  shift
  exec bash tests/bench/rpc.sh "$@"
fi
if [ "${1:-}" = --modes ]; then
  shift
  exec bash tests/bench/modes.sh "$@"
fi
given=("$@")
declare -A pid=() command=() port=([ours]=22149 [ganesha]=22049 [floor]=22249)
declare -A mount_port=([ours]=22149 [ganesha]=22048 [floor]=22249)
rounds=3 secs=3 only= servers=ours,ganesha,floor json= svg= base= server_cpu=0 client_cpu=1 busy= nfsd= bench= keep= matrix= pages= stall= extra=() ratios=()
while [ $# -gt 0 ]; do
  case $1 in
    --quick) rounds=1 secs=1 ;;
    --rounds) rounds=$2; shift ;;
    --secs) secs=$2; shift ;;
    --rows) only=$2; shift ;;
    --servers) servers=$2; shift ;;
    --json) json=$(realpath "$2"); shift ;;
    --svg) mkdir -p "$2"; svg=$(realpath "$2"); shift ;;
    --dir) base=$(realpath "$2"); shift ;;
    --server-cpu) server_cpu=$2; shift ;;
    --client-cpu) client_cpu=$2; shift ;;
    --matrix) matrix=yes ;;
    --stall) stall=yes ;;
    --pages) pages=yes servers= ;;
    --server)
      name=${2%%=*}
      case $2 in [a-zA-Z]*=?*) ;; *) echo "run.sh: --server $2: NAME=COMMAND is wanted" >&2; exit 2 ;; esac
      if [[ $name = *[!a-zA-Z0-9_.-]* ]] || [ -n "${port[$name]:-}" ]; then
        echo "run.sh: --server $name: letters and digits, and a name of its own" >&2
        exit 2
      fi
      extra+=("$name")
      command[$name]=${2#*=} port[$name]=$((22300 + ${#extra[@]} * 2)) mount_port[$name]=${port[$name]}
      if [[ $2 = *{mount_port}* ]]; then mount_port[$name]=$((port[$name] + 1)); fi
      shift
      ;;
    --busy) busy=--busy ;;
    --nfsd) nfsd=$(realpath "$2"); shift ;;
    --nfsbench) bench=$(realpath "$2"); shift ;;
    --keep) keep=yes ;;
    --help | -h) usage; exit ;;
    *) echo "run.sh: $1: no such option, see --help" >&2; exit 2 ;;
  esac
  shift
done

# Name | options of nfsbench. Sizes and depths are those that the peers' published figures have.
rows='null c1q1|--op null
null c1q1 busy|--op null --busy
null c1q32|--op null -q 32
null c8q32|--op null -c 8 -q 32
getattr c1q1|--op getattr
getattr c1q1 busy|--op getattr --busy
getattr c8q32|--op getattr -c 8 -q 32
getattr c8q32 1000 files|--op getattr -c 8 -q 32 --targets 1000
getattr c1000q1|--op getattr -c 1000
lookup c8q32|--op lookup -c 8 -q 32
lookup c8q32 1000 names|--op lookup -c 8 -q 32 --targets 1000
access c8q32|--op access -c 8 -q 32
read 4k random c8q32|--op read -c 8 -q 32
write 4k c8q8|--op write -c 8 -q 8
create+remove c8q8|--op create -c 8 -q 8
readdirplus 10k c1q1|--op readdirplus
read 1M c1q8|--op read1m -q 8
read 1M c8q8|--op read1m -c 8 -q 8
write 1M c4q4|--op write1m -c 4 -q 4'
if [ -n "$matrix" ]; then
  rows=$(for op in null getattr; do
    for c in 1 8 32 1000; do for q in 1 4 8 32; do echo "$op c${c}q$q|--op $op -c $c -q $q"; done; done
  done)
fi
if [ -n "$stall" ]; then
  rows='getattr alone|--op getattr
getattr, writer|--op getattr'
fi
if [ -n "$pages" ]; then
  rows=$(for k in 4 16 64 128 256 1024; do echo "read ${k}K c8q8|--op read1m --bytes $((k << 10)) -c 8 -q 8"; done)
  ours='{nfsd} --listen tcp://127.0.0.1:{port} --rpcbind off --threads 1'
  bare='{nfsbench} floor --port {port} --file {dir}/big --send'
  n=0
  for line in "copy=$ours --config {work}/copy.toml --state-dir {work}/copy" \
    "splice=$ours --config {work}/splice.toml --state-dir {work}/splice" \
    "zerocopy=$ours --config {work}/copy.toml --state-dir {work}/zerocopy --zerocopy on" \
    "fresh=$ours --config {work}/copy.toml --state-dir {work}/fresh --no-recycling" \
    "bare-copy=$bare copy" "bare-splice=$bare splice" "bare-sendfile=$bare sendfile"; do
    name=${line%%=*}
    extra+=("$name")
    command[$name]=${line#*=} port[$name]=$((22400 + n++)) mount_port[$name]=${port[$name]}
  done
  for r in copy/bare-copy splice/bare-splice splice/copy zerocopy/copy fresh/copy; do ratios+=(--ratio "$r"); done
fi
if [ "$only" = list ]; then cut -d'|' -f1 <<<"$rows"; exit; fi
# The floor has no directories. Bare system calls stand in its place at READDIRPLUS.
floor_lacks='readdirplus 10k c1q1
getattr c8q32 1000 files
lookup c8q32 1000 names'

# shellcheck source=tests/bench/lib.sh
. tests/bench/lib.sh

if [ -z "$base" ]; then
  base=/dev/shm
  if [ -n "$stall" ]; then base=${TMPDIR:-/tmp}; fi
fi
if [ -n "$stall" ] && [[ $(stat -f -c %T "$base") = *mfs ]]; then
  echo "run.sh: $base is in memory, where COMMIT waits for nothing; choose a directory on a disk with --dir" >&2
  exit 2
fi

if [ -z "$nfsd" ] || [ -z "$bench" ]; then
  target=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
  if [ -z "$bench" ]; then
    cargo build --release -p sunrpc-tests --bin nfsbench >&2
    bench=$target/release/nfsbench
  fi
  if [ -z "$nfsd" ] && [[ -n $pages || ,$servers, = *,ours,* ]]; then
    cargo build --release -p nfsd >&2
    nfsd=$target/release/nfsd
  fi
fi

# A network of its own: rpcbind and fixed ports disturb nobody. /run too, for their sockets and pid files.
if [ -z "${NFSBENCH_ISOLATED:-}" ] && [ "$(id -u)" = 0 ] && unshare -n -m true 2>/dev/null && command -v ip >/dev/null; then
  export NFSBENCH_ISOLATED=yes
  exec unshare -n -m --propagation private bash -c '
    mount -t tmpfs tmpfs /run && mkdir -p /run/rpcbind /run/ganesha /run/dbus && ip link set lo up && exec bash "$@"' \
    _ tests/bench/run.sh "${given[@]}" ${nfsd:+--nfsd "$nfsd"} --nfsbench "$bench"
fi

[ "$(nproc)" -ge 2 ] || loud "only one processor: the generator's work will be charged to nobody, but it delays the servers"

work=$(mktemp -d "$base/nfsbench.XXXXXX")
chmod 755 "$work"
helpers=() writing= # the load that runs beside a row

cleanup() {
  trap - EXIT
  progress_end
  if [ -n "$writing" ]; then stop "$writing"; fi
  stop_all
  for p in "${helpers[@]}"; do stop "$p"; done
  if [ -n "$keep" ]; then say "left: $work"; else rm -rf "$work"; fi
}
trap cleanup EXIT
trap 'exit 130' INT TERM

export_dir=$work/export log=$work/log
mkdir -p "$export_dir"/{work,dir10k} "$log" "$work"/{state,recovery}
say "preparing $export_dir"
head -c 64M /dev/urandom >"$export_dir/big"
(cd "$export_dir/dir10k" && seq -f 'file%05g' 10000 | xargs touch)

cat >"$work/ganesha.conf" <<T
NFS_CORE_PARAM {
  NFS_Port = ${port[ganesha]}; MNT_Port = ${mount_port[ganesha]};
  Protocols = 3; Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false;
}
NFSv4 { Graceless = true; RecoveryRoot = "$work/recovery"; }
LOG { Default_Log_Level = EVENT; }
EXPORT {
  Export_Id = 1; Path = $export_dir; Pseudo = /bench;
  Access_Type = RW; Squash = No_Root_Squash; SecType = sys, none; Protocols = 3; Transports = TCP;
  FSAL { Name = VFS; }
}
T

for how in off:copy 1:splice; do
  word=${how%%:*}
  if [ "$word" = off ]; then word='"off"'; fi
  printf '[[export]]\npath = "%s"\ninsecure = true\nsquash = "none"\nsplice = %s\n' "$export_dir" "$word" \
    >"$work/${how#*:}.toml"
done

answers() { # answers SERVER: whether it serves the export
  timeout 5 "$bench" load --op getattr --port "${port[$1]}" --mount-port "${mount_port[$1]}" --export "$export_dir" \
    --secs 0.01 --warmup 0 >/dev/null 2>"$log/probe"
}
# Servers are started as simple commands, so that $! is the server and not a shell around it.
start() { # start SERVER: 0 when it answers, with its pid noted
  case $1 in
    ours)
      taskset -c "$server_cpu" "$nfsd" "$export_dir" --listen "tcp://127.0.0.1:${port[ours]}" --insecure --squash none \
        --rpcbind off --state-dir "$work/state" --threads 1 >"$log/ours" 2>&1 &
      ;;
    ganesha)
      taskset -c "$server_cpu" ganesha.nfsd -F -f "$work/ganesha.conf" -L "$log/ganesha" -p "$work/ganesha.pid" \
        >>"$log/ganesha.out" 2>&1 &
      ;;
    floor)
      "$bench" floor --port "${port[floor]}" --cpu "$server_cpu" --file "$export_dir/big" >"$log/floor" 2>&1 &
      ;;
    *)
      local c=${command[$1]}
      c=${c//\{nfsd\}/$nfsd} c=${c//\{nfsbench\}/$bench} c=${c//\{work\}/$work}
      c=${c//\{dir\}/$export_dir} c=${c//\{port\}/${port[$1]}} c=${c//\{mount_port\}/${mount_port[$1]}}
      taskset -c "$server_cpu" bash -c "exec $c" >"$log/$1" 2>&1 &
      ;;
  esac
  pid[$1]=$!
  for _ in $(seq 100); do
    kill -0 "${pid[$1]}" 2>/dev/null || break
    answers "$1" && return
    sleep 0.2
  done
  loud "$1 does not serve: $(tail -n 3 "$log/$1" | tr '\n' ' ') $(cat "$log/probe")"
  stop "${pid[$1]}"
  unset "pid[$1]"
  return 1
}

# The generator of the writer gives way to the one that measures, with which it shares a processor.
writer() { # writer SERVER ROW: 16 MiB in WRITEs of 1 MiB, one after the other, and COMMIT, from before the row to after it
  nice -n 19 "$bench" load --op write1m --commit-every 16 --span 16 --port "${port[$1]}" --mount-port "${mount_port[$1]}" \
    --export "$export_dir" --warmup 0.5 --secs "$(awk "BEGIN { print $secs + 0.5 }")" --cpu "$client_cpu" --label "$1" \
    --row "its writer, beside $2" --json >"$work/writer.json" 2>"$work/writer.words" &
  writing=$!
  sleep 0.5
}
writer_end() { # writer_end SERVER ROW
  if wait "$writing"; then cat "$work/writer.json" >>"$results"; else loud "$1, $2: its writer failed: $(cat "$work/writer.words")"; fi
  writing=
}

running=()
for s in ${servers//,/ }; do
  case $s in
    ours | floor) running+=("$s") ;;
    ganesha)
      if ! command -v ganesha.nfsd >/dev/null || ! command -v rpcbind >/dev/null; then
        loud "ganesha SKIPPED: not installed; apt-get install nfs-ganesha nfs-ganesha-vfs rpcbind"
      elif [ "$(id -u)" != 0 ]; then
        loud "ganesha SKIPPED: it serves only for root"
      else
        if ! rpcinfo -p 127.0.0.1 >/dev/null 2>&1; then
          rpcbind -w -f >"$log/rpcbind" 2>&1 &
          helpers+=($!)
          sleep 0.5
        fi
        running+=(ganesha)
      fi
      ;;
    *) echo "run.sh: --servers: no server $s" >&2; exit 2 ;;
  esac
done

running+=("${extra[@]}")

results=$work/results.jsonl
: >"$results"
select_rows "$rows" "$only" run.sh
progress_start $((rounds * ${#selected[@]} * ${#running[@]}))
for round in $(seq "$rounds"); do
  say "round $round of $rounds: starting ${running[*]}"
  alive=()
  for s in "${running[@]}"; do start "$s" && alive+=("$s"); done
  [ ${#alive[@]} -gt 0 ] || { echo "run.sh: no server runs" >&2; exit 1; }
  for line in "${selected[@]}"; do
    row=${line%%|*} options=${line#*|}
    # Each round begins with another server.
    for i in $(seq 0 $((${#alive[@]} - 1))); do
      s=${alive[$(((i + round) % ${#alive[@]}))]}
      progress "round $round/$rounds, $row, $s"
      if [ "$s" = floor ] && grep -qxF "$row" <<<"$floor_lacks"; then
        [[ $row = readdirplus* ]] || continue
        measure "$secs" "$bench" probe-readdir "$export_dir/dir10k" --cpu "$server_cpu" --secs "$secs" --row "$row" --json >>"$results"
        continue
      fi
      let_run "$s"
      if [[ $row = *", writer" ]]; then writer "$s" "${row%, writer}"; fi
      # shellcheck disable=SC2086 # options are words
      measure "$secs" "$bench" load $options $busy --port "${port[$s]}" --mount-port "${mount_port[$s]}" \
        --export "$export_dir" --secs "$secs" --pid "${pid[$s]}" --cpu "$client_cpu" --label "$s" --row "$row" --json \
        >>"$results" || loud "$s, $row: no figures (see above)"
      if [[ $row = *", writer" ]]; then writer_end "$s" "$row"; fi
    done
  done
  stop_all
done
progress_end

echo
"$bench" table "$results" "${ratios[@]}" ${stall:+--latency} ${json:+--json "$json"} ${svg:+--svg "$svg/nfs.svg" --title "NFSv3"}
echo
machine
[[ " ${running[*]} " = *" ganesha "* ]] && echo "ganesha: $(ganesha.nfsd -v 2>/dev/null | head -1)"
if [ -n "$stall" ]; then
  echo "on $(findmnt -n -o FSTYPE,SOURCE,OPTIONS -T "$work" | head -1 | tr -s ' '); the floor has no file system: what it shows beside" \
    "the writer is the machine's and the network's part"
  exit 0
fi
[ -n "$pages" ] || echo "READDIRPLUS stands beside bare getdents64 + statx of the same directory; read 1M beside sendfile of the same file."
exit 0
