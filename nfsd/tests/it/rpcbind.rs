//! Debian's `rpcinfo`, `showmount` and `rpcbind` against nfsd, each test in a network of its own with a /run of its own,
//! so that no port and no socket of this machine is touched.

use std::process::Command;

/// What the scripts share: a clean place, `start MODE PORT` to serve, `say COMMAND` to show output and exit code.
const PRELUDE: &str = r#"
set -u
ip link set lo up
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/data /run/state /run/rpcbind
chmod 777 /run/data /run/state
start() {
  : >"/run/log.$2"
  ${AS:-} "$NFSD" /run/data --insecure --listen "tcp://[::]:$2" ${MORE:-} --state-dir "/run/state/$2" --rpcbind "$1" >"/run/log.$2" 2>&1 &
  nfsd=$!
  for _ in $(seq 600); do
    grep -q 'mount -t nfs' "/run/log.$2" && break
    kill -0 $nfsd 2>/dev/null || break
    sleep 0.1
  done
  sed 's/^/log: /' "/run/log.$2"
}
say() { "$@" 2>&1; echo "exit $?"; }
portmapper() {
  rpcbind -w -f >/run/rpcbind.log 2>&1 &
  for _ in $(seq 600); do rpcinfo >/dev/null 2>&1 && return; sleep 0.1; done
  cat /run/rpcbind.log
}
stop() { kill "$1"; wait "$1"; echo "stopped $?"; }
"#;

/// Runs a script in namespaces of its own; what it printed, in parts as its lines `== NAME` divide it. `None`, loudly, if
/// this machine does not permit that.
fn run(script: &str) -> Option<Vec<(String, String)>> {
    for (tool, arg) in [("rpcinfo", "-h"), ("showmount", "-h"), ("rpcbind", "-h"), ("ip", "-V")] {
        if Command::new(tool).arg(arg).output().is_err() {
            eprintln!("SKIPPED: no {tool} here (apt-get install nfs-common rpcbind iproute2)");
            return None;
        }
    }
    let ns = ["--net", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"];
    if !Command::new("unshare").args(ns).arg("true").status().is_ok_and(|s| s.success()) {
        eprintln!("SKIPPED: this machine permits no namespaces (unshare --net --mount --pid needs root)");
        return None;
    }
    let out = Command::new("unshare")
        .args(ns)
        .args(["bash", "-c", &format!("{PRELUDE}{script}")])
        .env("NFSD", env!("CARGO_BIN_EXE_nfsd"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{text}{}", String::from_utf8_lossy(&out.stderr));
    let mut parts: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix("== "), parts.last_mut()) {
            (Some(name), _) => parts.push((name.to_owned(), String::new())),
            (None, Some((_, part))) => *part += &(line.to_owned() + "\n"),
            (None, None) => panic!("before the first part: {line}"),
        }
    }
    Some(parts)
}

#[track_caller]
fn part<'a>(all: &'a [(String, String)], name: &str) -> &'a str {
    let found = all.iter().find(|(n, _)| n == name);
    found.map(|(_, text)| text.as_str()).unwrap_or_else(|| panic!("no part {name} in {all:#?}"))
}

/// The rows of rpcinfo's table for a program: version, then the words after it.
fn rows(text: &str, prog: u32) -> Vec<Vec<&str>> {
    let words = text.lines().map(|l| l.split_whitespace().collect::<Vec<_>>());
    words.filter(|w| w.first() == Some(&prog.to_string().as_str())).collect()
}

#[test]
fn the_embedded_one_answers_rpcinfo_and_showmount() {
    let Some(all) = run(r#"
echo "== start"; start embedded 2049; first=$nfsd
echo "== table"; say rpcinfo -p 127.0.0.1
echo "== table6"; say rpcinfo -s ::1
echo "== list"; say rpcinfo 127.0.0.1
for p in "tcp 127.0.0.1 100003 3" "tcp 127.0.0.1 100005 1" "tcp 127.0.0.1 100005 3" "tcp 127.0.0.1 100000" "tcp6 ::1 100003 3"; do
  echo "== $p"; say rpcinfo -T $p
done
echo "== own"; say rpcinfo -a 127.0.0.1.8.1 -T tcp 100000 4
echo "== addresses"; say rpcinfo -l 127.0.0.1 100003 3
echo "== statistics"; say rpcinfo -m 127.0.0.1
echo "== exports"; say showmount -e 127.0.0.1
echo "== second"; start embedded 3049; second=$nfsd
echo "== second is up"; say rpcinfo -a 127.0.0.1.11.233 -T tcp 100000 4
echo "== end"; stop $first; stop $second
echo "== gone"; say rpcinfo -p 127.0.0.1
"#)
    else {
        return;
    };
    assert!(part(&all, "start").contains("rpcbind: embedded, on tcp://[::]:111"), "{}", part(&all, "start"));
    let table = part(&all, "table");
    assert!(table.ends_with("exit 0\n"), "{table}");
    assert_eq!(rows(table, 100_003), [["100003", "3", "tcp", "2049", "nfs"]]);
    assert_eq!(rows(table, 100_005).len(), 2);
    assert_eq!(
        rows(table, 100_000).iter().map(|r| (r[1], r[3])).collect::<Vec<_>>(),
        [("4", "111"), ("3", "111"), ("2", "111")]
    );
    assert!(rows(part(&all, "table6"), 100_003)[0][2].contains("tcp6"), "{}", part(&all, "table6"));
    let list = rows(part(&all, "list"), 100_003);
    assert_eq!(list[0], ["100003", "3", "tcp", "0.0.0.0.8.1", "nfs", "superuser"]);
    assert_eq!(list[1][2..4], ["tcp6", "::.8.1"]);
    for p in [
        "tcp 127.0.0.1 100003 3",
        "tcp 127.0.0.1 100005 1",
        "tcp 127.0.0.1 100005 3",
        "tcp 127.0.0.1 100000",
        "tcp6 ::1 100003 3",
        "own",
    ] {
        let text = part(&all, p);
        assert!(text.contains("ready and waiting") && text.ends_with("exit 0\n"), "{p}: {text}");
    }
    assert!(part(&all, "addresses").contains("inet/tcp/cots_ord       127.0.0.1.8.1"), "{all:#?}");
    assert!(part(&all, "statistics").contains("RPCBIND (version 4) statistics"), "{all:#?}");
    let exports = part(&all, "exports");
    assert!(exports.contains("/run/data") && exports.ends_with("exit 0\n"), "{exports}");
    let second = part(&all, "second");
    assert!(second.contains("must name the ports: cannot listen on tcp://[::]:111"), "{second}");
    assert_eq!(second.lines().filter(|l| l.contains("rpcbind:")).count(), 1, "one line: {second}");
    assert!(part(&all, "second is up").contains("ready and waiting"), "{all:#?}");
    assert_eq!(part(&all, "end"), "stopped 0\nstopped 0\n");
    assert!(part(&all, "gone").ends_with("exit 1\n"), "{all:#?}");
}

#[test]
fn a_plain_user_serves_without_port_111() {
    let Some(all) = run(r#"
echo "== start"; AS="setpriv --reuid 65534 --regid 65534 --clear-groups" start auto 2049
echo "== ping"; say rpcinfo -a 127.0.0.1.8.1 -T tcp 100000 4
echo "== nfs"; say rpcinfo -a 127.0.0.1.8.1 -T tcp 100003 3
echo "== end"; stop $nfsd
"#)
    else {
        return;
    };
    let start = part(&all, "start");
    assert!(start.contains("serving /run/data") && start.contains("INFO"), "{start}");
    assert!(start.contains("Permission denied") && !start.contains("WARN"), "{start}");
    for p in ["ping", "nfs"] {
        assert!(part(&all, p).contains("ready and waiting"), "{all:#?}");
    }
    assert_eq!(part(&all, "end"), "stopped 0\n");
}

#[test]
fn the_systems_rpcbind_lists_us_until_we_stop() {
    let Some(all) = run(r#"
portmapper
echo "== start"; start auto 2049; first=$nfsd
echo "== list"; say rpcinfo
for p in "tcp 127.0.0.1 100003 3" "tcp6 ::1 100003 3" "tcp 127.0.0.1 100005 3"; do
  echo "== $p"; say rpcinfo -T $p
done
echo "== exports"; say showmount -e 127.0.0.1
echo "== second"; start system 3049; wait $nfsd; echo "exit $?"
echo "== still"; say rpcinfo -T tcp 127.0.0.1 100003 3
kill -9 $first; wait $first
echo "== stale"; say rpcinfo
echo "== again"; start system 3050
echo "== new"; say rpcinfo
echo "== ping"; say rpcinfo -T tcp 127.0.0.1 100003 3
echo "== end"; stop $nfsd
echo "== after"; say rpcinfo
"#)
    else {
        return;
    };
    assert!(part(&all, "start").contains("registered 6 addresses"), "{}", part(&all, "start"));
    let list = part(&all, "list");
    assert_eq!(rows(list, 100_003)[0], ["100003", "3", "tcp", "0.0.0.0.8.1", "nfs", "superuser"]);
    assert_eq!((rows(list, 100_003).len(), rows(list, 100_005).len()), (2, 4));
    for p in ["tcp 127.0.0.1 100003 3", "tcp6 ::1 100003 3", "tcp 127.0.0.1 100005 3", "still", "ping"] {
        assert!(part(&all, p).contains("ready and waiting"), "{p}: {}", part(&all, p));
    }
    assert!(part(&all, "exports").contains("/run/data"), "{}", part(&all, "exports"));
    let second = part(&all, "second");
    assert!(second.contains("by another server at 0.0.0.0.8.1") && second.ends_with("exit 1\n"), "{second}");
    assert_eq!(rows(part(&all, "stale"), 100_003).len(), 2, "a killed server leaves its entries");
    assert_eq!(rows(part(&all, "new"), 100_003)[0][3], "0.0.0.0.11.234", "and its successor replaces them");
    assert_eq!(rows(part(&all, "new"), 100_003).len(), 2);
    assert_eq!(part(&all, "end"), "stopped 0\n");
    let after = part(&all, "after");
    assert!(rows(after, 100_003).is_empty() && rows(after, 100_005).is_empty(), "{after}");
    assert!(!rows(after, 100_000).is_empty(), "rpcbind itself stays: {after}");
}

#[test]
fn modes_without_a_system_rpcbind() {
    let Some(all) = run(r#"
echo "== system"; start system 2049; wait $nfsd; echo "exit $?"
echo "== off"; start off 2049
echo "== table"; say rpcinfo -p 127.0.0.1
echo "== own"; say rpcinfo -a 127.0.0.1.8.1 -T tcp 100000 4
echo "== nfs"; say rpcinfo -a 127.0.0.1.8.1 -T tcp 100003 3
echo "== end"; stop $nfsd
"#)
    else {
        return;
    };
    let system = part(&all, "system");
    assert!(system.contains("no rpcbind answers") && system.contains("--rpcbind embedded"), "{system}");
    assert!(system.ends_with("exit 1\n"), "{system}");
    assert!(!part(&all, "off").contains("rpcbind"), "{all:#?}");
    assert!(part(&all, "table").ends_with("exit 1\n"), "{all:#?}");
    assert!(part(&all, "own").contains("not available"), "{all:#?}");
    assert!(part(&all, "nfs").contains("ready and waiting"), "{all:#?}");
    assert_eq!(part(&all, "end"), "stopped 0\n");
}

#[test]
fn datagrams_and_local_processes_find_the_embedded_one() {
    let Some(all) = run(r#"
echo "== start"; MORE="--listen udp://[::]:2049" start embedded 2049
echo "== table"; say rpcinfo -p 127.0.0.1
for p in "udp 127.0.0.1 100003 3" "udp 127.0.0.1 100005 3" "udp6 ::1 100003 3" "udp 127.0.0.1 100000"; do
  echo "== $p"; say rpcinfo -T $p
done
echo "== unoffered"; say rpcinfo -T udp 127.0.0.1 100003 4
echo "== local"; say rpcinfo
echo "== statd"
if command -v rpc.statd >/dev/null; then
  mkdir -p /var/lib/nfs && mount -t tmpfs tmpfs /var/lib/nfs && mkdir -p /var/lib/nfs/sm /var/lib/nfs/sm.bak
  rpc.statd --no-notify --foreground >/run/statd.log 2>&1 &
  for _ in $(seq 100); do rpcinfo | grep -q ' 100024 ' && break; sleep 0.1; done
  say rpcinfo -T udp 127.0.0.1 100024 1
  cat /run/statd.log
else
  echo absent
fi
echo "== end"; stop $nfsd
"#)
    else {
        return;
    };
    let start = part(&all, "start");
    assert!(start.contains("udp://[::]:111") && start.contains("local:/run/rpcbind.sock"), "{start}");
    let table = rows(part(&all, "table"), 100_003);
    assert_eq!(table.iter().map(|r| (r[2], r[3])).collect::<Vec<_>>(), [("tcp", "2049"), ("udp", "2049")]);
    for p in ["udp 127.0.0.1 100003 3", "udp 127.0.0.1 100005 3", "udp6 ::1 100003 3", "udp 127.0.0.1 100000"]
    {
        let text = part(&all, p);
        assert!(text.contains("ready and waiting") && text.ends_with("exit 0\n"), "{p}: {text}");
    }
    assert!(part(&all, "unoffered").contains("low version = 3, high version = 3"), "{all:#?}");
    assert_eq!(rows(part(&all, "local"), 100_003).len(), 4, "{all:#?}");
    // A real daemon registers over the local socket.
    let statd = part(&all, "statd");
    assert!(statd.contains("program 100024 version 1 ready and waiting") || statd == "absent\n", "{all:#?}");
    assert_eq!(part(&all, "end"), "stopped 0\n");
}

#[test]
fn libnfs_copies_files_by_the_ports_that_rpcbind_tells() {
    if Command::new("nfs-cp").output().is_err() {
        eprintln!("SKIPPED: no nfs-cp here (apt-get install libnfs-utils)");
        return;
    }
    let Some(all) = run(r#"
echo "== start"; start embedded 3049
head -c 5000000 /dev/urandom >/run/in
echo "== in"; say nfs-cp /run/in nfs://127.0.0.1/run/data/copy
echo "== list"; say nfs-ls nfs://127.0.0.1/run/data
echo "== out"; say nfs-cp nfs://127.0.0.1/run/data/copy /run/out
echo "== same"; say cmp /run/in /run/out
"#)
    else {
        return;
    };
    assert!(part(&all, "in").contains("copied 5000000 bytes"), "{all:#?}");
    assert!(part(&all, "list").contains(" copy\n"), "{all:#?}");
    assert!(part(&all, "out").ends_with("exit 0\n"), "{all:#?}");
    assert_eq!(part(&all, "same"), "exit 0\n");
}
