"""First program of the guest: mounts the export, runs the checks one by one, each in a child with a time limit."""

import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import access  # noqa: E402,F401  (importing a module declares its checks)
import attrs  # noqa: E402,F401
import data  # noqa: E402,F401
import dirs  # noqa: E402,F401
import env  # noqa: E402
import faults  # noqa: E402,F401
import names  # noqa: E402,F401
import trees  # noqa: E402,F401

# Ways in which the server is started, each once; the checks that want it run then.
PHASES = ("default", "nosquash", "squashall", "readonly")


def mount(config, where, more=""):
    """Mounts the export; Failure with mount's words if that does not work."""
    os.makedirs(where, exist_ok=True)
    options = ",".join(o for o in (config["mount"], config["extra"], more) if o)
    env.run("timeout", "60", "mount.nfs", config["source"], where, "-o", options, what=f"mount -o {options}")


def unmount(where):
    """Unmounts, lazily if something still holds on to it."""
    # os.path.ismount asks the server, and a stale root is none to it.
    with open("/proc/self/mounts") as f:
        if where not in (row.split()[1] for row in f):
            return
    for flags in ([], ["-f"], ["-l"]):
        if subprocess.run(["timeout", "-s", "KILL", "20", "umount", *flags, where], stderr=subprocess.DEVNULL).returncode == 0:
            return


def body(check, bench):
    """Runs in the child: the check itself as its user."""
    os.setsid()
    os.umask(0o022)
    if check.user:
        env.become(check.user, keep_root=True)
    os.mkdir(bench.tmp)
    # Root may be squashed: its checks make their folders themselves, on the host or as a user.
    if check.server != "readonly" and (check.user or check.server == "nosquash"):
        os.mkdir(bench.dir)
    check.fn(bench)


def one(check, host, config):
    """Runs one check; returns (status, detail)."""
    bench = env.Bench(check, host, config)
    extra = [f"/mnt/{name}" for name in check.mounts]
    try:
        for name, options in check.mounts.items():
            mount(config, f"/mnt/{name}", options)
        wait = env.forked(lambda: body(check, bench))
        ready, _, _ = select.select([wait.fd], [], [], check.limit)
        if not ready:
            detail = f"not done after {check.limit} s; waiting: {stuck(wait.pid)}"
            os.killpg(wait.pid, signal.SIGKILL)
            return "FAIL", detail
        wait()
        return "ok", ""
    except env.Skip as e:
        return "skip", str(e)
    except env.Failure as e:
        return "FAIL", str(e)
    finally:
        for where in extra:
            unmount(where)
        subprocess.run(["rm", "-rf", bench.tmp])


def stuck(session):
    """The processes of a session that have no children in it, and where in the kernel they wait; all go to the console."""
    found, parents = {}, set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as f:
                fields = f.read().rsplit(")", 1)[1].split()
            if int(fields[3]) != session:
                continue
            with open(f"/proc/{pid}/cmdline") as f:
                command = f.read().replace("\0", " ").strip()
            with open(f"/proc/{pid}/wchan") as f:
                where = f.read().strip("0\n")
        except OSError:
            continue
        found[pid] = f"{command[:100]} ({where or 'state ' + fields[0]}, {int(fields[11]) + int(fields[12])} ticks of CPU)"
        parents.add(fields[1])
        print(f"stuck: {pid} child of {fields[1]}: {found[pid]}", flush=True)
    return ", ".join(text for pid, text in found.items() if pid not in parents)


def selected(mode, config):
    """The checks that were asked for and want the server in this mode."""
    return [c for c in env.CHECKS if c.name in config["checks"] and c.server == mode]


def phase(mode, host, config, done):
    """Runs all checks of one server mode; adds the names of those reported to `done`."""
    wanted = selected(mode, config)
    if not wanted:
        return
    if mode != "default":
        host.server("restart", mode=mode)
    mount(config, "/mnt/nfs")
    for check in wanted:
        before = time.monotonic()
        status, detail = one(check, host, config)
        if not host.alive():
            detail = (detail + "; " if detail else "") + "the server is gone"
            status = "FAIL"
            host.server("start")
        host.result(check.name, status, time.monotonic() - before, detail)
        done.add(check.name)
    unmount("/mnt/nfs")


def pjdfstest(binary, place, work, out):
    """Runs the POSIX suite in `place`, with its output in the file `out`."""
    settings = os.path.join(work, "pjdfstest.toml")
    with open(settings, "w") as f:
        f.write("[features]\nposix_fallocate = {}\nutime_now = {}\nutimensat = {}\n")
        f.write('[settings]\nnaptime = 0.05\n[dummy_auth]\nentries = [["tests", "tests"], ["pjd", "pjd"]]\n')
    argv = ["timeout", "-s", "KILL", "300", binary, "-c", settings, "-p", place]
    with open(out, "wb") as f:
        subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=f, stderr=f, env=dict(os.environ, NO_COLOR="1"))


def main():
    with open("/guest/config.json") as f:
        config = json.load(f)
    host = env.Host(config["control"])
    if config["pjdfstest"]:
        mount(config, "/mnt/nfs")
        os.chmod("/mnt/nfs", 0o777)
        pjdfstest("/guest/pjdfstest", "/mnt/nfs", "/tmp", "/tmp/out.txt")
        with open("/tmp/out.txt", errors="replace") as f:
            host.save("mount.txt", f.read())
        return
    for mode in PHASES:
        done = set()
        try:
            phase(mode, host, config, done)
        except Exception as e:
            traceback.print_exc()
            for check in selected(mode, config):
                if check.name not in done:
                    host.result(check.name, "FAIL", 0, f"not run: {e}")


if __name__ == "__main__":
    main()
