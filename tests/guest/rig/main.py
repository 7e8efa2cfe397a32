"""The rig on the host side: lays out the guest's root, starts the server, boots the guest, reports.

run.sh starts this as first process of private mount, network and process id namespaces; when it ends, the kernel ends
everything it started and drops every mount and device.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "checks"))

import env  # noqa: E402
import run as guest  # noqa: E402
import server as servers  # noqa: E402
from control import PORT, Control, Operations  # noqa: E402

REPO = os.path.abspath(os.path.join(HERE, "..", "..", ".."))
# Files of the host's /etc that programs in the guest read. Users, groups and hosts are the guest's own.
ETC = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "protocols", "services", "rpc", "netconfig", "magic")
USERS = {"root": 0, "nobody": 65534, "alice": 1001, "bob": 1002, "carol": 1003, "team": 2001, "tests": 1100, "pjd": 1101}


MEMORY = "768M"  # of the guest


def options(argv):
    p = argparse.ArgumentParser(prog="run.sh", description=__doc__.split("\n")[0])
    p.add_argument("--work", help=argparse.SUPPRESS)
    p.add_argument("--list", action="store_true", help="list the checks and end")
    p.add_argument("--only", nargs="+", default=[], metavar="NAME", help="run these checks only")
    p.add_argument("--skip", nargs="+", default=[], metavar="NAME", help="leave these checks out, reported as skipped")
    p.add_argument("--quick", action="store_true", help="leave the slow checks out")
    p.add_argument("--server", metavar="PATH", help="the nfsd to test (default: target/release/nfsd of this repository)")
    p.add_argument("--peer", choices=["ganesha"], help="serve with this reference server instead of nfsd")
    p.add_argument("--backing", choices=["tmpfs", "disk"], help="what the export is on (tmpfs; disk on kernels before 6.6)")
    p.add_argument("--proto", choices=["tcp", "udp"], default="tcp", help="transport of NFS and MOUNT (tcp); udp needs --kernel")
    p.add_argument("--kernel", metavar="PATH", help="boot this User Mode Linux with NFS built in; the stock one has no NFS over UDP")
    p.add_argument("--mount-options", default="", metavar="O", help="more options for every mount in the guest")
    p.add_argument("--limit", type=int, default=900, metavar="S", help="end everything after S seconds (900)")
    p.add_argument("--logs", metavar="DIR", help="leave the logs of server and guest in DIR")
    p.add_argument("--pjdfstest", metavar="BINARY", help=argparse.SUPPRESS)
    p.add_argument("--pjdfstest-out", metavar="DIR", help=argparse.SUPPRESS)
    return p.parse_args(argv)


def select(o):
    """Names of the checks to run, in order, and of those to leave out with the reason."""
    if o.pjdfstest:
        return [], {}
    names = [c.name for c in env.CHECKS]
    for name in o.only + o.skip:
        if name not in names:
            print(f"run.sh: unknown check {name!r}; --list shows them", file=sys.stderr)
            sys.exit(2)
    left_out = {name: "left out by --skip" for name in o.skip}
    if o.quick and not o.only:
        left_out.update({c.name: "slow, left out by --quick" for c in env.CHECKS if c.slow})
    return [n for n in names if (n in o.only or not o.only) and n not in left_out], left_out


def sh(*argv):
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)


def stable_tmpfs_cookies():
    """Whether the host's tmpfs keeps a directory position valid when entries go (Linux 6.6 and later)."""
    major, minor = os.uname().release.split(".")[:2]
    return (int(major), int("".join(c for c in minor if c.isdigit()))) >= (6, 6)


def lay_out(root, o, config):
    """The guest's root: a static busybox, mount points, a small /etc and the checks. /usr is mounted by init."""
    for d in ("dev", "proc", "sys", "run", "var", "mnt", "tmp", "root", "usr", "etc", "lib", "guest"):
        os.makedirs(os.path.join(root, d))
    for link, target in (("bin", "usr/bin"), ("sbin", "usr/sbin"), ("lib64", "usr/lib64")):
        os.symlink(target, os.path.join(root, link))
    # /lib is a folder of links so that the kernel's own modprobe finds /lib/modules without a mount point on the host.
    for name in os.listdir("/usr/lib"):
        if name != "modules":
            os.symlink(f"../usr/lib/{name}", os.path.join(root, "lib", name))
    os.symlink("../usr/lib/uml/modules", os.path.join(root, "lib/modules"))
    shutil.copy(shutil.which("busybox"), os.path.join(root, "busybox"))
    os.symlink("busybox", os.path.join(root, "modprobe"))
    shutil.copy(os.path.join(HERE, "init.sh"), os.path.join(root, "init"))
    os.chmod(os.path.join(root, "init"), 0o755)
    etc = os.path.join(root, "etc")
    for name in ETC:
        source = os.path.join("/etc", name)
        if os.path.isdir(source):
            shutil.copytree(source, os.path.join(etc, name), symlinks=True)
        elif os.path.exists(source):
            shutil.copy(source, etc)
    write_users(etc)
    files = {
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
        "hosts": "127.0.0.1 localhost\n10.77.0.1 server\n",
    }
    for name, text in files.items():
        with open(os.path.join(etc, name), "w") as f:
            f.write(text)
    os.symlink("/proc/self/mounts", os.path.join(etc, "mtab"))
    checks = os.path.join(HERE, "..", "checks")
    for name in os.listdir(checks):
        if name.endswith(".py"):
            shutil.copy(os.path.join(checks, name), os.path.join(root, "guest"))
    if o.pjdfstest:
        shutil.copy(o.pjdfstest, os.path.join(root, "guest/pjdfstest"))
    with open(os.path.join(root, "guest/config.json"), "w") as f:
        json.dump(config, f)


def write_users(etc):
    """A passwd and a group file with the users of the checks only."""
    with open(os.path.join(etc, "passwd"), "w") as f:
        f.writelines(f"{n}:x:{i}:{i}:{n}:/tmp:/bin/sh\n" for n, i in USERS.items())
    with open(os.path.join(etc, "group"), "w") as f:
        f.writelines(f"{n}:x:{i}:\n" for n, i in USERS.items())


class Report:
    """Result lines as they come, and the sums at the end."""

    def __init__(self, expected, left_out, known_failures):
        self.expected, self.known_failures, self.results = expected, known_failures, {}
        for name, why in left_out.items():
            self.add(name, "skip", 0, why)

    def add(self, name, status, seconds, detail):
        if status == "FAIL" and name in self.known_failures:
            status, detail = "skip", f"known of this server: {self.known_failures[name]} (here: {detail})"
        detail = " ".join(str(detail).split())
        self.results[name] = status
        print(" ".join(x for x in (status, name, detail, f"({seconds:.1f} s)" if seconds else "") if x), flush=True)

    def close(self, reason):
        """Marks what never reported as failed; returns the three sums."""
        for name in self.expected:
            if name not in self.results:
                self.add(name, "FAIL", 0, f"not run: {reason}")
        values = list(self.results.values())
        return values.count("ok"), values.count("FAIL"), values.count("skip")


def tail(path, lines, title):
    try:
        with open(path, errors="replace") as f:
            rows = f.read().splitlines()[-lines:]
    except OSError:
        return
    if rows:
        print(f"--- {title}, last lines")
        for row in rows:
            print("  | " + row[:300])


def make_server(o, export, state, log):
    if o.peer == "ganesha":
        return servers.Ganesha(export, state, log)
    binary = os.path.abspath(o.server or os.path.join(REPO, "target/release/nfsd"))
    if not os.access(binary, os.X_OK):
        raise RuntimeError(f"no server: {binary} is missing; cargo build --release -p nfsd makes it, --server PATH names one")
    return servers.Nfsd(export, state, log, binary=binary)


def boot(o, work, console):
    """Starts the guest; returns its process."""
    tmp = os.path.join(work, "tmp")
    os.makedirs(tmp)
    sh("mount", "-t", "tmpfs", "-o", "size=1g", "tmpfs", tmp)  # backs the guest's memory; must allow exec
    argv = [o.kernel or shutil.which("linux.uml"), f"mem={MEMORY}", "root=/dev/root", "rootfstype=hostfs", f"rootflags={work}/root"]
    argv += ["ro", "quiet", "init=/init", "vec0:transport=tap,ifname=tap0,depth=128,gro=1", "con=null", "con0=null,fd:1"]
    argv += [f"uml_dir={tmp}", "umid=guest", "panic=-1"]
    env_vars = {"PATH": os.environ["PATH"], "TMPDIR": tmp, "HOME": "/root"}
    return subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=console, stderr=console, env=env_vars, start_new_session=True
    )


def run_guest(o, work, deadline):
    """Boots the guest and waits for its end; '' or the reason why it had to be ended."""
    with open(os.path.join(work, "console.log"), "wb") as console:
        process = boot(o, work, console)
        try:
            code = process.wait(max(1, deadline - time.monotonic()))
            return "" if code == 0 else f"the guest ended with code {code}"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return f"the limit of {o.limit} s is over"


def native_pjdfstest(o, work, export):
    """The suite on the backing file system itself, so that only what the mount adds is held against it."""
    etc = os.path.join(work, "etc")
    os.makedirs(etc)
    write_users(etc)
    for name in ("passwd", "group"):
        sh("mount", "--bind", os.path.join(etc, name), f"/etc/{name}")
    place = os.path.join(export, "native")
    os.makedirs(place)
    guest.pjdfstest(o.pjdfstest, place, work, os.path.join(o.pjdfstest_out, "backing.txt"))
    shutil.rmtree(place)


def prepare_export(o):
    """Makes the directory to be served; returns it and the kind of file system behind it."""
    export = os.path.join(o.work, "export")
    os.makedirs(export)
    backing = o.backing or ("tmpfs" if stable_tmpfs_cookies() else "disk")
    if backing == "tmpfs":
        sh("mount", "-t", "tmpfs", "-o", "size=1g", "tmpfs", export)
    os.chmod(export, 0o1777)
    return export, backing


def network():
    sh("ip", "link", "set", "lo", "up")
    sh("ip", "tuntap", "add", "tap0", "mode", "tap")
    sh("ip", "addr", "add", f"{servers.LISTEN}/24", "dev", "tap0")
    sh("ip", "link", "set", "tap0", "up")


def end_server(server, report):
    """Stops the server; how it fared all the while is a check of its own."""
    if server.check_alive():
        fds, rss, cpu = server.usage()
        print(f"rig: server at the end: {fds} descriptors, {rss} KiB resident, {cpu:.1f} s of CPU since its last start")
    server.stop()
    faults = server.surprises + server.log_faults()
    report.add("serverhealth", "FAIL" if faults else "ok", 0, "; ".join(faults[:3]))


def whole_run(o, started):
    """Everything between the options and the sums: (passed, failed, skipped) and the reason of an early end or ''."""
    wanted, left_out = select(o)
    os.chmod(o.work, 0o755)
    state = os.path.join(o.work, "state")
    os.makedirs(state)
    export, backing = prepare_export(o)
    network()
    server = make_server(o, export, state, os.path.join(o.work, "server.log"))
    report = Report(wanted, left_out, server.known_failures)
    print(f"rig: server {server.name}, export on {backing}, {len(wanted)} checks", flush=True)
    server.prepare()
    server.start("nosquash" if o.pjdfstest else "default")
    config = {
        "control": PORT,
        "mount": f"vers=3,proto={o.proto},port={server.port},mountport={server.mountport},mountproto={o.proto},nolock",
        "extra": ",".join(x for x in (server.mount_options, o.mount_options) if x),
        "source": f"{servers.LISTEN}:{export}",
        "checks": wanted,
        "pjdfstest": bool(o.pjdfstest),
        "backing": backing,
        "quick": o.quick,
    }
    lay_out(os.path.join(o.work, "root"), o, config)
    Control(Operations(export, server, report.add, o.pjdfstest_out))
    if o.pjdfstest:
        native_pjdfstest(o, o.work, export)
    reason = run_guest(o, o.work, started + o.limit)
    end_server(server, report)
    return report.close(reason or "the guest ended early"), reason


def main():
    o = options(sys.argv[1:])
    if o.list:
        for c in env.CHECKS:
            print(f"{c.name:16} {c.about}{' (slow)' if c.slow else ''}")
        return 0
    if not o.work or os.getpid() != 1:
        sys.exit("start this by run.sh")
    started = time.monotonic()
    # A last resort should this process itself hang: its end takes the namespaces with it.
    watchdog = threading.Timer(o.limit + 60, os._exit, (1,))
    watchdog.daemon = True
    watchdog.start()
    logs = {name: os.path.join(o.work, name + ".log") for name in ("server", "console")}
    try:
        (passed, failed, skipped), reason = whole_run(o, started)
    except (RuntimeError, OSError, subprocess.CalledProcessError) as e:
        print(f"FAIL rig {e}", flush=True)
        passed, failed, skipped, reason = 0, 1, 0, str(e)
    if failed or reason:
        tail(logs["server"], 30, "server log")
        tail(logs["console"], 30, "guest console")
    if o.logs:
        os.makedirs(o.logs, exist_ok=True)
        for path in filter(os.path.exists, logs.values()):
            shutil.copy(path, o.logs)
    print(f"rig: {time.monotonic() - started:.0f} s in all")
    if not o.pjdfstest:
        print(f"guest: {passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return 1 if failed or reason else 0


if __name__ == "__main__":
    sys.exit(main())
