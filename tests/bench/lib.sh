# What the scripts of the benchmark have in common. Sourced.
# shellcheck shell=bash

say() { progress_clear; echo "bench: $*" >&2; }
loud() { progress_clear; printf '\nbench: *** %s ***\n\n' "$*" >&2; }

stop() { # stop PID: politely, then not
  kill "$1" 2>/dev/null || return 0
  kill -CONT "$1" 2>/dev/null || return 0
  for _ in $(seq 100); do kill -0 "$1" 2>/dev/null || return 0; sleep 0.1; done
  kill -9 "$1" 2>/dev/null || true
}
stop_all() { # all servers of the array pid
  for s in "${!pid[@]}"; do stop "${pid[$s]}"; wait "${pid[$s]}" 2>/dev/null || true; unset "pid[$s]"; done
}

# Servers share a processor: those that spin, or tick, must not take it from the one that is measured.
let_run() { # let_run SERVER: the others of the array alive are stopped meanwhile
  local s
  for s in "${alive[@]}"; do
    if [ "$s" = "$1" ]; then kill -CONT "${pid[$s]}"; else kill -STOP "${pid[$s]}"; fi
  done
}

select_rows() { # select_rows ROWS WORDS PROGRAM: the rows that contain one of the words, into selected
  local line word
  selected=()
  while IFS= read -r line; do
    if [ -z "$2" ]; then selected+=("$line"); continue; fi
    while IFS= read -r word; do
      if [[ ${line%%|*} == *"$word"* ]]; then selected+=("$line"); break; fi
    done <<<"${2//,/$'\n'}"
  done <<<"$1"
  [ ${#selected[@]} -gt 0 ] || { echo "$3: --rows $2: no such row; --rows list names them" >&2; exit 2; }
}

measure() { # measure SECONDS COMMAND...: ends a load that hangs; its words for people do not break the progress line
  local rc=0
  timeout -k 5 $((${1%.*} + 60)) "${@:2}" 2>"$work/words" || rc=$?
  progress_clear
  cat "$work/words" >&2
  return "$rc"
}

machine() {
  echo "kernel $(uname -r), $(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -1), $rounds rounds of $secs s, servers on processor $server_cpu, load on $client_cpu"
}

# A line that tells how far a long run is, when a person watches.
progress_total=0 progress_done=0 progress_since=0
progress_start() { progress_total=$1 progress_done=0 progress_since=$SECONDS; } # progress_start STEPS
progress_clear() { [ "$progress_total" -eq 0 ] || [ ! -t 2 ] || printf '\r\033[K' >&2; }
progress() { # progress TEXT: begins the next step
  [ "$progress_total" -gt 0 ] && [ -t 2 ] || return 0
  local width=24 full left=
  full=$((width * progress_done / progress_total))
  if [ "$progress_done" -gt 0 ]; then
    left=$(((SECONDS - progress_since) * (progress_total - progress_done) / progress_done))
    left=", $((left / 60)):$(printf %02d $((left % 60))) left"
  fi
  printf '\r\033[K[%s%s] %d/%d %s%s' "$(printf "%${full}s" | tr ' ' '#')" "$(printf "%$((width - full))s" | tr ' ' .)" \
    "$progress_done" "$progress_total" "$1" "$left" >&2
  progress_done=$((progress_done + 1))
}
progress_end() { progress_clear; progress_total=0; }
