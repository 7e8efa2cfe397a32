"""Checks of trouble: the server crashes and comes back, mounts that must be refused."""

import errno
import hashlib
import os
import subprocess
import threading
import time

from env import check, eq, outcome, pattern, read, refused, run, true, write
from treesum import difference, manifest


def crash(t):
    """kill -9 of the server, 2 s of nothing, start with the same state folder."""
    t.host.server("crash", pause=2)


@check("killserver", limit=150)
def killserver(t):
    """The server is killed and restarted in the middle of a copy: cp ends well, all bytes are right, no handle is stale."""
    src = t.tmp + "/src"
    os.mkdir(src)
    for n in range(500):
        write(f"{src}/file{n:03d}", pattern((n * 7919) % 60_000, n))
    write(src + "/zlarge", pattern(12_000_000, 1))
    want = manifest(src)
    os.mkdir(t.path("held"))
    write(t.path("held/f"), b"before ")
    reader = os.open(t.path("held/f"), os.O_RDONLY)
    writer = os.open(t.path("held/f"), os.O_WRONLY | os.O_APPEND)
    os.chdir(t.path("held"))
    os.mkdir(t.path("dst"))
    copy = subprocess.Popen(
        ["cp", "-r", src + "/.", t.path("dst")], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    while copy.poll() is None and len(t.host.list(t.rel("dst"))) < 100:
        time.sleep(0.02)
    true(copy.poll() is None, "cp was done before the server could be killed")
    crash(t)
    text, _ = copy.communicate()
    eq(copy.returncode, 0, f"exit code of cp ({text.decode(errors='replace').strip()[:200]})")
    wrong = difference(t.host.manifest(t.rel("dst")), want)
    true(not wrong, f"on the host: {wrong}")
    t.forget()
    wrong = difference(manifest(t.path("dst")), want)
    true(not wrong, f"on the client: {wrong}")
    # What was open or current before the crash still is.
    os.write(writer, b"and after")
    os.fsync(writer)
    eq(os.pread(reader, 100, 0), b"before and after", "file that was open over the crash")
    write("relative", b"here")
    eq(t.host.content(t.rel("held/relative")), b"here", "file made in the working folder of before")
    os.close(reader)
    os.close(writer)


@check("killwrite", limit=120, slow=True)
def killwrite(t):
    """The server is killed amid a large write before its commit: the client sends again what was not yet stable."""
    f = t.path("big")
    body = pattern(64 << 20, 2)
    fd = os.open(f, os.O_WRONLY | os.O_CREAT, 0o644)
    done = []
    for at in range(0, len(body), 1 << 20):
        if at == 24 << 20:
            trouble = threading.Thread(target=lambda: done.append(crash(t)))
            trouble.start()
        os.write(fd, body[at : at + (1 << 20)])
    os.fsync(fd)
    os.close(fd)
    trouble.join()
    eq(len(done), 1, "restarts")
    true(t.host.sum(t.rel("big")) == hashlib.sha256(body).hexdigest(), "content on the host differs")
    t.forget()
    true(read(f) == body, "content on the client differs")


@check("idle", limit=90)
def idle(t):
    """A restart while nothing is under way goes unnoticed: names, handles and listings are as before."""
    for n in range(50):
        write(t.path(f"f{n}"), pattern(1000 + n, n))
    os.mkdir(t.path("d"))
    ino = {e.name: e.inode() for e in os.scandir(t.path())}
    t.host.server("restart")
    t.forget()
    eq({e.name: e.inode() for e in os.scandir(t.path())}, ino, "names and inodes after the restart")
    for n in range(50):
        eq(read(t.path(f"f{n}")), pattern(1000 + n, n), f"content of f{n}")
    os.rename(t.path("f1"), t.path("d/f1"))
    refused(("ENOTEMPTY", "EEXIST"), "removal of a full folder", os.rmdir, t.path("d"))
    eq(sorted(t.host.list(t.rel("d"))), ["f1"], "the folder on the host")


@check("badmount", user=0)
def badmount(t):
    """Mounts of what is not exported are refused at once and with a reason; a folder below the export can be mounted."""
    host, export = t.config["source"].split(":", 1)
    options = t.config["mount"] + ",retry=0"

    def mount(path):
        os.makedirs("/mnt/bad", exist_ok=True)
        done = subprocess.run(
            ["timeout", "30", "mount.nfs", f"{host}:{path}", "/mnt/bad", "-o", options],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        if done.returncode == 0:
            return "mounted"
        return done.stdout.decode(errors="replace").strip().splitlines()[-1]

    reasons = ("No such file", "access denied", "Permission denied", "not a directory", "Not a directory")
    for path in ("/no/such/place", export + "/missing", os.path.dirname(export), export + "/../state", export + "x"):
        text = mount(path)
        if text == "mounted":
            run("umount", "/mnt/bad")
        true(any(r in text for r in reasons), f"mount of {path}: {text}")
    t.host.mkdir(t.rel(), 0o777)
    t.host.put(t.rel("x"), b"below")
    eq(mount(f"{export}/{t.name}"), "mounted", "mount of a folder below the export")
    try:
        eq(os.listdir("/mnt/bad"), ["x"], "listing of that mount")
        eq(os.stat("/mnt/bad").st_ino, os.stat(t.path()).st_ino, "inode of its root")
    finally:
        run("umount", "/mnt/bad")


@check("ports", user=0)
def ports(t):
    """A mount that names no port finds NFS and MOUNT through rpcbind on the server's port 111."""
    os.makedirs("/mnt/ports", exist_ok=True)
    t.host.mkdir(t.rel(), 0o777)
    t.host.put(t.rel("x"), b"found")
    run("timeout", "30", "mount.nfs", t.config["source"], "/mnt/ports", "-o", "vers=3,proto=tcp,mountproto=tcp,nolock,retry=0")
    try:
        eq(read(f"/mnt/ports/{t.name}/x"), b"found", "content")
    finally:
        run("umount", "/mnt/ports")
    for program in ("100003", "100005"):
        true("ready and waiting" in run("rpcinfo", "-T", "tcp", "10.77.0.1", program, "3"), f"ping of {program}")


@check("replaced")
def replaced(t):
    """A file replaced on the host: the old descriptor never shows the new file's bytes, a new open does."""
    f = t.path("f")
    for n in range(5):
        write(f, b"old content")
        fd = os.open(f, os.O_RDONLY)
        t.host.unlink(t.rel("f"))
        t.host.put(t.rel("f"), b"new content")
        eq(read(f), b"new content", f"round {n}: content by a new open")
        t.forget()
        # A server that keeps files open may still have the old one; it must not have taken the new one for it.
        try:
            got = os.pread(fd, 100, 0)
        except OSError as e:
            got = errno.errorcode[e.errno]
        true(got in ("ESTALE", b"old content"), f"round {n}: the old descriptor gave {got!r}")
        os.close(fd)
        os.unlink(f)


@check("stale", mounts={"b": "nosharecache"})
def stale(t):
    """What another client has removed is stale for those who still hold it: files, folders, a working folder."""
    os.mkdir(t.path("d"))
    write(t.path("d/x"), b"x")
    write(t.path("f"), pattern(20_000, 1))
    fd = os.open(t.path("f"), os.O_RDWR)
    folder = os.open(t.path("d"), os.O_RDONLY | os.O_DIRECTORY)
    os.chdir(t.path("d"))
    os.unlink(t.other("b", "f"))
    os.unlink(t.other("b", "d", "x"))
    os.rmdir(t.other("b", "d"))
    t.forget()
    refused("ESTALE", "read of a file removed by another client", os.pread, fd, 100, 0)

    def put():
        os.pwrite(fd, b"late", 0)
        os.fsync(fd)

    refused("ESTALE", "write to a file removed by another client", put)
    refused(("ESTALE", "ENOENT"), "file created in a removed working folder", write, "new")
    refused(("ESTALE", "ENOENT"), "listing of a removed folder", os.listdir, folder)
    # The names are free again, and new things under them are not taken for the old ones.
    os.chdir("/")
    write(t.path("f"), b"another")
    os.mkdir(t.path("d"))
    write(t.path("d/y"), b"y")
    t.forget()
    refused("ESTALE", "read of the removed file after a new one of its name", os.pread, fd, 100, 0)
    eq((read(t.path("f")), os.listdir(t.path("d"))), (b"another", ["y"]), "content of the new file and folder")
    for held in (fd, folder):
        outcome(os.close, held)
