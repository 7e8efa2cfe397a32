#!/bin/bash
# Reads through a link on which acknowledgements come late and packets get lost, and looks at every byte: a page that is
# used again before the peer has acknowledged it shows here, and on no fast link.
#
#   tests/relay/run.sh [--server PATH] [--case NAME]... [-- ARGUMENTS OF NFSD]
#   tests/relay/run.sh --faults [--server PATH] [-- ARGUMENTS OF NFSD]
#
#   --server PATH   the nfsd to test [default: the release build; with --faults the debug one]
#   --case NAME     only this one of copy, copy-loss, zerocopy, zerocopy-loss; of loopback, which has no relay; of
#                   no-recycling, in which all pages come fresh from the system
#   --faults        show that deliberate faults are noticed; for a build with the feature `mutations`
#
# Of each case it tells how many fresh pages the server took for a page of payload, in all and in the second half. With
# zero-copy and without loss, more than 0.050 and 0.005 fail; without the relay more than 0.005 in all, of ten times the
# replies.
#
# Two network namespaces stand for two hosts. Exit: 0 all right, 1 wrong replies, a fault not noticed or a case that
# could not run, 2 wrong usage, 77 not possible here.
set -u
cd "$(dirname "$0")/../.." || exit 1

replies=300 replies_loopback=3000 window=8 size=65536
# The server's data arrive at once, the client's acknowledgements late.
to_client_ms=0 to_server_ms=40 mtu=1500 every=20
cases=(copy copy-loss zerocopy zerocopy-loss loopback no-recycling)
# Of a thousand pages of payload, so many may be fresh: in all, in the second half. A window of 8 alone makes 28 of them,
# the completions that the kernel joins, of up to 512 KiB, make it 48.
fresh_max=50 fresh_max_later=5
# Faults of sunrpc::mutate and the case that has to notice each. A gate that opens when all is transmitted once is wrong
# only where something is transmitted again.
faults=(no-gate=zerocopy gate-transmitted=zerocopy-loss)
patience=60

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "$0"; }
server='' chosen=() extra=() show_faults=no
while [ $# -gt 0 ]; do
    case $1 in
        --server) server=${2:?--server needs a path}; shift 2 ;;
        --case)
            [[ " ${cases[*]} " == *" ${2:-} "* ]] || { usage >&2; exit 2; }
            chosen+=("$2"); shift 2 ;;
        --faults) show_faults=yes; shift ;;
        --help | -h) usage; exit 0 ;;
        --) shift; extra=("$@"); break ;;
        *) usage >&2; exit 2 ;;
    esac
done
[ $show_faults = no ] || [ ${#chosen[@]} = 0 ] || { usage >&2; exit 2; }
[ ${#chosen[@]} -gt 0 ] || chosen=("${cases[@]}")

impossible() {
    echo "SKIPPED: the relay tests cannot run here: $*. They need root with CAP_NET_ADMIN and CAP_SYS_ADMIN, ip of" \
        "iproute2, and /dev/net/tun." >&2
    exit 77
}
command -v ip >/dev/null || impossible "there is no command ip"
[ -c /dev/net/tun ] || impossible "there is no /dev/net/tun"

a=sunrpc-a-$$ b=sunrpc-b-$$
work=$(mktemp -d "${TMPDIR:-/tmp}/nfsrelay.XXXXXX") || exit 1
nfsd='' relay=''
# Ends one of our processes, by SIGKILL if it must be.
end() {
    [ -n "$1" ] || return 0
    kill "$1" 2>/dev/null
    for _ in $(seq 100); do
        kill -0 "$1" 2>/dev/null || break
        sleep 0.1
    done
    kill -KILL "$1" 2>/dev/null
    wait "$1" 2>/dev/null
}
finish() {
    end "$nfsd"
    end "$relay"
    ip netns del "$a" 2>/dev/null
    ip netns del "$b" 2>/dev/null
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

why=$(ip netns add "$a" 2>&1 && ip netns add "$b" 2>&1) || impossible "no network namespace: $why"
why=$(ip -n "$a" tuntap add dev probe mode tun 2>&1 && ip -n "$a" link del probe 2>&1) ||
    impossible "no TUN device: $why"

target=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
cargo build --quiet --locked -p sunrpc-tests --bin tunrelay --bin relaycheck || exit 1
build='release --release'
[ $show_faults = no ] || build='debug --features mutations'
server=${server:-$target/${build%% *}/nfsd}
[ -x "$server" ] || { echo "no $server: cargo build -p nfsd ${build#* }, or name one with --server" >&2; exit 1; }

mkdir -m 755 "$work/export"
"$target/debug/relaycheck" make "$work/export" $((replies * size)) || exit 1

# Waits until a line of the process's output says that it is ready.
ready() { # PID FILE WORDS
    for _ in $(seq $((patience * 10))); do
        grep -qs -- "$3" "$2" && return 0
        kill -0 "$1" 2>/dev/null || return 1
        sleep 0.1
    done
    return 1
}

counted() { sed "s/.*\"total\":{[^}]*\"$2\":\([0-9]*\).*/\1/" "$1"; } # counted FILE COUNTER
thousandth() { printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)); }

# Fresh pages per page of payload, from what the server counted midway and in the end. 1 if they are not what the case is
# about.
judge_pages() { # NAME
    local fresh payload fresh_mid payload_mid all later
    fresh=$(counted "$work/end" fresh) payload=$(counted "$work/end" payload)
    fresh_mid=$(counted "$work/mid" fresh) payload_mid=$(counted "$work/mid" payload)
    [ "$payload" -gt "$payload_mid" ] || { echo "    the server counted no payload" >&2; return 1; }
    all=$((fresh * 1000 / payload)) later=$(((fresh - fresh_mid) * 1000 / (payload - payload_mid)))
    printf '%-14s fresh pages per payload page: %s, second half %s\n' "$1" "$(thousandth $all)" "$(thousandth $later)"
    case $1 in
        zerocopy) [ $all -le $fresh_max ] && [ $later -le $fresh_max_later ] ;;
        loopback) [ $all -le $fresh_max_later ] && [ $later -le $fresh_max_later ] ;;
        no-recycling) [ $all -ge 1000 ] && [ $later -ge 1000 ] ;;
    esac
}

# One case: 0 if every reply was right, 1 if some were not, 2 if the case shows nothing.
run() { # NAME
    local drop=0 zerocopy=off rc=0 verdict server_at=10.77.0.1 client=$b options=() replies=$replies
    case $1 in zerocopy* | loopback | no-recycling) zerocopy=on ;; esac
    case $1 in loopback) server_at=127.0.0.1 client=$a replies=$replies_loopback ;; esac
    case $1 in no-recycling) options=(--no-recycling) ;; esac
    case $1 in *-loss) drop=$every ;; esac
    # Started in the background, a program may write its file after we look: what the last case left must not be there.
    rm -f "$work"/{relay,nfsd,check,mid,end}
    "$target/debug/tunrelay" "$a" "$b" $to_client_ms $to_server_ms $mtu $drop >"$work/relay" 2>&1 &
    relay=$!
    if ready $relay "$work/relay" '^ready$'; then
        ip netns exec "$a" "$server" "$work/export" --state-dir "$work/state" --rpcbind off --insecure \
            --clients 10.77.0.0/24,127.0.0.1 --threads 1 --listen "tcp://$server_at:2049" --zerocopy $zerocopy \
            "${options[@]}" "${extra[@]}" >"$work/nfsd" 2>&1 </dev/null &
        nfsd=$!
        if ready $nfsd "$work/nfsd" ',port='; then
            stat="'$server' stat pages --json --control '$work/state/control'"
            verdict=$(ip netns exec "$client" "$target/debug/relaycheck" read "$server_at" 2049 "$work/export" \
                $replies $window $size --midway "$stat >'$work/mid'" 2>"$work/check")
            rc=$?
            sh -c "$stat" >"$work/end" 2>>"$work/check" || true
            # Wrong replies are one thing, a server that died is another.
            kill -0 $nfsd 2>/dev/null || { verdict="the server ended: ${verdict:-no verdict}" rc=2; }
        else
            verdict="the server did not start" rc=2
        fi
    else
        verdict="the relay did not start" rc=2
    fi
    end "$nfsd"
    end "$relay"
    nfsd='' relay=''
    printf '%-14s %s (relay: %s)\n' "$1" "${verdict:-no verdict}" \
        "$(sed -n 's/, [0-9]* refused.*//; /^[AB]->/p' "$work/relay" | paste -sd ';')"
    if [ $rc != 0 ]; then
        touch "$work/check" "$work/nfsd"
        sed 's/^/    /' "$work/check" >&2
        [ $rc = 1 ] || tail -n 5 "$work/relay" "$work/nfsd" | sed 's/^/    /' >&2
    fi
    # A link without the faults that it is to have proves nothing.
    if [ $rc = 0 ] && [ $drop -gt 0 ] && ! grep -q '^A->B: .* [1-9][0-9]* dropped' "$work/relay"; then
        echo "    no packet was dropped" >&2
        rc=2
    fi
    if [ $rc = 0 ] && ! judge_pages "$1"; then rc=1; fi
    return $rc
}

ip -n "$a" link set lo up
failed=0
if [ $show_faults = yes ]; then
    for pair in "${faults[@]}"; do
        SUNRPC_MUTATION=${pair%=*} run "${pair#*=}" 2>"$work/log"
        if [ $? = 1 ]; then
            echo "killed    ${pair%=*}"
        else
            echo "survived  ${pair%=*} (is $server built with the feature mutations?)"
            sed 's/^/    /' "$work/log"
            failed=$((failed + 1))
        fi
    done
    echo "killed $((${#faults[@]} - failed)), survived $failed"
else
    for name in "${chosen[@]}"; do
        run "$name" || failed=$((failed + 1))
    done
    echo "relay: $((${#chosen[@]} - failed)) passed, $failed failed"
fi
[ $failed = 0 ]
