#!/usr/bin/env bash
# Compares the ways in which an export can read and write its files, on a disk. See --help, and docs/performance.md.
set -euo pipefail
cd "$(dirname "$0")/../.."

usage() {
  cat <<'T'
Usage: bash tests/bench/modes.sh [OPTIONS]      (or: bash tests/bench/run.sh --modes [OPTIONS])

What the settings `read`, `write` and `writeback_kick` of an export cost and what they leave in the page cache, on a real
file system. One client passes once over one file in calls of 1 MiB, each way with a server of its own:

  read       READ of a file that is not cached
  fresh      WRITE UNSTABLE of a new file, and COMMIT
  overwrite  the same into a file that exists and is not cached
  mix        three READs to two WRITEs, through the first three fifths and the rest of such a file, and COMMIT

Rates count from the first call to the last reply, COMMIT's included. The server's CPU time is that of its process, user and
system; kernel threads that write to the disk are not in it. "Cached after" is what the page
cache holds of the file then, of --mib MiB. Prints one Markdown table of medians.

  --mib N             size of the file in MiB, a multiple of 5 [500]
  --depth N           calls in flight [8]
  --rounds N          rounds [3]
  --quick             1 round with files of 50 MiB: shows that it works, not more
  --rows WORD[,...]   only cells whose name contains one of the words, such as "read,hybrid"; "list" names all cells
  --dir DIR           measure in a new directory below DIR, on a disk [$TMPDIR or /tmp]
  --json FILE         also write medians and all single runs as JSON
  --threads N         worker threads of the server [1]
  --server-cpu N      processor of the server [0]
  --client-cpu N      processor of the generator [1]
  --nfsd PATH         measure this binary instead of building one
  --nfsbench PATH     use this generator instead of building one
  --keep              leave directory and logs
  --help
T
}

rounds=3 mib=500 depth=8 only= base=${TMPDIR:-/tmp} json= threads=1 server_cpu=0 client_cpu=1 nfsd= bench= keep= port=22158
while [ $# -gt 0 ]; do
  case $1 in
    --mib) mib=$2; shift ;;
    --depth) depth=$2; shift ;;
    --rounds) rounds=$2; shift ;;
    --quick) rounds=1 mib=50 ;;
    --rows) only=$2; shift ;;
    --dir) base=$(realpath "$2"); shift ;;
    --json) json=$(realpath "$2"); shift ;;
    --threads) threads=$2; shift ;;
    --server-cpu) server_cpu=$2; shift ;;
    --client-cpu) client_cpu=$2; shift ;;
    --nfsd) nfsd=$(realpath "$2"); shift ;;
    --nfsbench) bench=$(realpath "$2"); shift ;;
    --keep) keep=yes ;;
    --help | -h) usage; exit ;;
    *) echo "modes.sh: $1: no such option, see --help" >&2; exit 2 ;;
  esac
  shift
done

# Load, read / write mode[ + kick]. Where only one of the two takes part, the other is not named, and buffered.
cells='read: buffered
read: dontcache
read: direct
fresh: buffered
fresh: buffered + kick
fresh: hybrid
fresh: dontcache
fresh: direct
overwrite: buffered
overwrite: buffered + kick
overwrite: hybrid
overwrite: dontcache
overwrite: direct
mix: buffered / buffered
mix: buffered / buffered + kick
mix: buffered / hybrid
mix: dontcache / hybrid
mix: dontcache / dontcache
mix: direct / direct'
if [ "$only" = list ]; then echo "$cells"; exit; fi
if [[ ! $mib =~ ^[0-9]+$ ]] || [ "$mib" -eq 0 ] || [ $((mib % 5)) -ne 0 ]; then
  echo "modes.sh: --mib $mib: a multiple of 5 is wanted" >&2
  exit 2
fi
# shellcheck source=tests/bench/lib.sh
. tests/bench/lib.sh
select_rows "$cells" "$only" modes.sh

case $(stat -f -c %T "$base") in
  tmpfs | ramfs)
    echo "modes.sh: $base is in memory, where all modes are the same; choose a directory on a disk with --dir" >&2
    exit 2
    ;;
  overlay* | nfs* | fuse* | UNKNOWN*) loud "$base is not on a disk's file system itself: modes may fall back to buffered" ;;
esac
free=$(df --output=avail -m "$base" | tail -1)
if [ "$free" -lt $((mib * 4)) ]; then
  echo "modes.sh: $base has $free MiB free, $((mib * 4)) are needed; see --mib and --dir" >&2
  exit 2
fi
[ "$(nproc)" -ge 2 ] || loud "only one processor: the generator delays the server"

target=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
if [ -z "$bench" ]; then
  cargo build --release --locked -p sunrpc-tests --bin nfsbench >&2
  bench=$target/release/nfsbench
fi
if [ -z "$nfsd" ]; then
  cargo build --release --locked -p nfsd >&2
  nfsd=$target/release/nfsd
fi

work=$(mktemp -d "$base/nfsbench.XXXXXX")
chmod 755 "$work"
declare -A pid=()
cleanup() {
  trap - EXIT
  progress_end
  stop_all
  if [ -n "$keep" ]; then say "left: $work"; else rm -rf "$work"; fi
}
trap cleanup EXIT
trap 'exit 130' INT TERM

export_dir=$work/export
mkdir -p "$export_dir" "$work"/{state,log}
say "preparing $export_dir"
head -c "${mib}M" /dev/urandom >"$export_dir/old"

words=(--port "$port" --export "$export_dir")
start() { # start READ WRITE KICK LOG: serves the export in these modes; 0 when it answers
  cat >"$work/nfsd.toml" <<T
listen = "tcp://127.0.0.1:$port"
threads = $threads
state_dir = "$work/state"
rpcbind = "off"

[[export]]
path = "$export_dir"
insecure = true
squash = "none"
read = "$1"
write = "$2"
writeback_kick = "$3"
T
  taskset -c "$server_cpu" "$nfsd" --config "$work/nfsd.toml" >"$4" 2>&1 &
  pid[ours]=$!
  for _ in $(seq 50); do
    kill -0 "${pid[ours]}" 2>/dev/null || break
    timeout 5 "$bench" load --op null "${words[@]}" --secs 0.01 --warmup 0 >/dev/null 2>"$work/probe" && return
    sleep 0.1
  done
  echo "modes.sh: the server does not serve: $(tail -n 3 "$4") $(cat "$work/probe")" >&2
  exit 1
}

results=$work/results.jsonl
: >"$results"
fell_back=()
progress_start $((rounds * ${#selected[@]}))
for round in $(seq "$rounds"); do
  # Each round begins elsewhere.
  for i in $(seq 0 $((${#selected[@]} - 1))); do
    cell=${selected[$(((i + (round - 1) * 7) % ${#selected[@]}))]}
    load=${cell%%: *} modes=${cell#*: } kick=off
    progress "round $round/$rounds, $cell"
    case $load in
      read) read=$modes write=buffered ;;
      mix) read=${modes%% / *} write=${modes#* / } ;;
      *) read=buffered write=$modes ;;
    esac
    if [[ $write = *" + kick" ]]; then write=${write% + kick} kick=after_reply; fi
    case $load in
      read) file=old options=(--op read1m --file old) ;;
      mix) file=old options=(--op mix1m --file old) ;;
      overwrite) file=old options=(--op write1m --into old) ;;
      fresh) file=new options=(--op write1m --into new) ;;
    esac
    rm -f "$export_dir/new"
    "$bench" resident --drop "$export_dir/old" >/dev/null
    # What the last cell left to the journal and to the device is not this one's.
    sync -f "$export_dir"
    sleep 0.3
    log=$work/log/$(tr -c 'a-z\n' _ <<<"$cell")
    start "$read" "$write" "$kick" "$log"
    measure 300 "$bench" load "${options[@]}" "${words[@]}" --depth "$depth" --total "$mib" --span "$mib" --commit-every 0 \
      --warm "$export_dir" --resident "$export_dir/$file" --pid "${pid[ours]}" --cpu "$client_cpu" \
      --label "$modes" --row "$load" --json >>"$results" || loud "$cell: no figures (see above)"
    stop_all
    if grep -q 'on this file system' "$log"; then fell_back+=("$cell"); fi
  done
done
progress_end

[ -s "$results" ] || { echo "modes.sh: no figures at all" >&2; exit 1; }
echo
"$bench" table "$results" --bulk ${json:+--json "$json"}
echo
if [ ${#fell_back[@]} -gt 0 ]; then
  loud "this file system lacks what was asked for, so these were buffered: $(printf '%s; ' "${fell_back[@]}" | sort -u)"
fi
echo "kernel $(uname -r), $(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -1), server with --threads $threads on" \
  "processor $server_cpu, load on $client_cpu, $depth calls in flight"
echo "$rounds rounds, file of $mib MiB on $(findmnt -n -o FSTYPE,SOURCE,OPTIONS -T "$work" | head -1 | tr -s ' ')"
