"""Checks of names: rename, links, special files, edges of name and path lengths."""

import os
import socket
import stat

from env import check, eq, outcome, read, refused, true, write


@check("rename")
def rename(t):
    """Files and folders move, also over existing ones; identity and content stay; the refusals are the right ones."""
    p = t.path
    write(p("a"), b"one")
    ino = os.stat(p("a")).st_ino
    os.rename(p("a"), p("b"))
    eq(outcome(os.stat, p("a")), "ENOENT", "old name")
    eq((os.stat(p("b")).st_ino, read(p("b"))), (ino, b"one"), "inode and content after the rename")
    write(p("victim"), b"two")
    os.rename(p("b"), p("victim"))
    eq(read(p("victim")), b"one", "content after a rename over a file")
    eq(sorted(t.host.list(t.rel())), ["victim"], "entries on the host")

    os.makedirs(p("d1/sub"))
    write(p("d1/sub/x"), b"deep")
    os.mkdir(p("empty"))
    os.rename(p("d1"), p("empty"))
    eq(read(p("empty/sub/x")), b"deep", "content below a folder moved over an empty one")
    os.mkdir(p("other"))
    os.rename(p("empty/sub"), p("other/moved"))
    eq(sorted(os.listdir(p("other/moved"))), ["x"], "folder moved into another folder")
    # ".." of a moved folder is its new parent.
    eq(os.stat(p("other/moved/..")).st_ino, os.stat(p("other")).st_ino, "parent of the moved folder")

    os.mkdir(p("d2"))
    refused(("ENOTEMPTY", "EEXIST"), "folder over a non-empty folder", os.rename, p("d2"), p("other"))
    refused("EISDIR", "file over a folder", os.rename, p("victim"), p("d2"))
    refused("ENOTDIR", "folder over a file", os.rename, p("d2"), p("victim"))
    refused("EINVAL", "folder into itself", os.rename, p("other"), p("other/moved/inside"))
    refused("ENOENT", "missing source", os.rename, p("missing"), p("z"))
    write(p("h1"), b"h")
    os.link(p("h1"), p("h2"))
    os.rename(p("h1"), p("h2"))
    there = [os.path.exists(p("h1")), os.path.exists(p("h2")), os.stat(p("h2")).st_nlink]
    eq(there, [True, True, 2], "names and link count after a rename onto a link of itself")
    # Handles survive: an open file and a working folder keep working under their new names.
    fd = os.open(p("victim"), os.O_RDWR)
    os.rename(p("victim"), p("other/victim"))
    os.pwrite(fd, b"1", 0)
    os.fsync(fd)
    os.close(fd)
    eq(t.host.content(t.rel("other/victim")), b"1ne", "write through a descriptor opened under the old name")
    os.chdir(p("other/moved"))
    os.rename(p("other"), p("renamed"))
    write("y", b"relative")
    eq(t.host.content(t.rel("renamed/moved/y")), b"relative", "file created in a working folder whose parent moved")


@check("link")
def link(t):
    """Hard links: link count on client and host, shared content, the count falls again."""
    p = t.path
    write(p("a"), b"shared", mode=0o600)
    for n in range(5):
        os.link(p("a"), p(f"l{n}"))
        eq(os.stat(p("a")).st_nlink, n + 2, "link count")
    st = t.host.stat(t.rel("a"))
    eq(st["nlink"], 6, "link count on the host")
    eq(t.host.stat(t.rel("l3"))["ino"], st["ino"], "inode of a link on the host")
    eq(os.stat(p("l4")).st_ino, os.stat(p("a")).st_ino, "inode of a link")
    write(p("l2"), b"changed")
    eq(read(p("a")), b"changed", "content through the other name")
    os.chmod(p("l1"), 0o640)
    eq(stat.S_IMODE(os.stat(p("a")).st_mode), 0o640, "mode through the other name")
    os.unlink(p("a"))
    os.unlink(p("l0"))
    eq(os.stat(p("l1")).st_nlink, 4, "link count after two removals")
    eq(t.host.stat(t.rel("l1"))["nlink"], 4, "link count on the host after two removals")
    refused("EEXIST", "link onto an existing name", os.link, p("l1"), p("l2"))
    os.mkdir(p("d"))
    refused("EPERM", "hard link to a folder", os.link, p("d"), p("dl"))
    os.symlink("l1", p("s"))
    os.link(p("s"), p("s2"), follow_symlinks=False)
    eq(os.readlink(p("s2")), "l1", "hard link to a symbolic link")
    os.link(p("l1"), p("d/far"))
    eq(t.host.content(t.rel("d/far")), b"changed", "link in another folder")


@check("symlink")
def symlink(t):
    """Symbolic links: targets of any shape come back unchanged and are followed by the client, never by the server."""
    p = t.path
    targets = {
        "relative": b"dir/file", "absolute": b"/etc/passwd", "up": b"../../..", "dangling": b"no/such", "one": b"x",
        "long": b"/".join(b"component%03d" % n for n in range(78)), "bytes": b"\xff\xfe caf\xe9 \n\t", "self": b"self",
        "longest": b"/" + b"x" * 4000, "ping": b"pong", "pong": b"ping",
    }  # fmt: skip
    for name, target in targets.items():
        os.symlink(target, p(name).encode())
    t.forget()
    for name, target in targets.items():
        eq(os.readlink(p(name).encode()), target, f"target of {name}")
        eq(os.fsencode(t.host.readlink(t.rel(name))), target, f"target of {name} on the host")
        st = os.lstat(p(name))
        eq((stat.S_ISLNK(st.st_mode), st.st_size), (True, len(target)), f"type and size of {name}")
    os.mkdir(p("dir"))
    write(p("dir/file"), b"found")
    eq(read(p("relative")), b"found", "content through the link")
    write(p("relative"), b"written")
    eq(t.host.content(t.rel("dir/file")), b"written", "write through the link")
    refused("ELOOP", "link to itself", os.stat, p("self"))
    refused("ELOOP", "two links to each other", os.stat, p("ping"))
    refused("ENOENT", "dangling link", os.stat, p("dangling"))
    refused("EEXIST", "link over an existing name", os.symlink, "x", p("one"))
    # The client resolves an absolute target in its own tree: this passwd is the guest's, not the host's.
    with open("/etc/passwd", "rb") as f:
        eq(read(p("absolute")), f.read(), "content through an absolute link")
    # A link that the host made to a file outside of the export is only a link.
    os.unlink(p("absolute"))
    eq(outcome(os.unlink, p("dangling")), "OK", "removal of a dangling link")
    eq(t.host.exists(t.rel("dangling")), False, "the removed link on the host")


@check("longnames", limit=90)
def longnames(t):
    """Names of 255 bytes work and 256 is ENAMETOOLONG; any byte but '/' and NUL is kept; deep paths; full listing."""
    base = t.path().encode()
    names = [b"n" * 255, b"\xff\xfe\x80", b" ", b"a b\nc\td", b"caf\xc3\xa9", b"caf\xe9", b"\\", b"-rf", b"*?[", b"..."]
    names += [b"\xe2\x82\xac" * 85]  # 255 bytes, 85 characters
    for n in names:
        write(os.path.join(base, n), n)
    refused("ENAMETOOLONG", "256 bytes, create", write, os.path.join(base, b"n" * 256))
    refused("ENAMETOOLONG", "256 bytes, stat", os.stat, os.path.join(base, b"n" * 256))
    refused("ENAMETOOLONG", "256 bytes, mkdir", os.mkdir, os.path.join(base, b"m" * 256))
    refused("ENAMETOOLONG", "256 bytes, rename", os.rename, os.path.join(base, b" "), os.path.join(base, b"m" * 256))
    eq(os.pathconf(base, "PC_NAME_MAX"), 255, "NAME_MAX")
    t.forget()
    eq(sorted(os.listdir(base)), sorted(names), "listing")
    eq(sorted(os.fsencode(n) for n in t.host.list(t.rel())), sorted(names), "listing on the host")
    for n in names:
        eq(read(os.path.join(base, n)), n, f"content of {n!r}")
    # A listing whose every entry is as long as can be: replies must be cut at the right place.
    os.mkdir(t.path("wide"))
    wide = [f"{i:04d}".ljust(255 - i % 3, "w") for i in range(1200)]
    for n in wide:
        write(t.path("wide", n))
    t.forget()
    eq(sorted(os.listdir(t.path("wide"))), wide, "listing of long names")
    deep = t.path("deep")
    os.mkdir(deep)
    os.chdir(deep)
    for n in range(40):
        os.mkdir(f"{n:02d}" + "d" * 60)
        os.chdir(f"{n:02d}" + "d" * 60)
    write("bottom", b"bottom")
    os.chdir("/")
    t.forget()
    deepest = "/".join(f"{n:02d}" + "d" * 60 for n in range(40))
    eq(read(os.path.join(deep, deepest, "bottom")), b"bottom", "file 40 folders down")
    eq(t.host.content(t.rel("deep", deepest, "bottom")), b"bottom", "file 40 folders down, on the host")


@check("special")
def special(t):
    """Pipes and sockets are made by a user with the right type; a pipe works between processes of the client."""
    os.mkfifo(t.path("pipe"), 0o640)
    st = t.host.stat(t.rel("pipe"))
    eq((stat.S_ISFIFO(st["mode"]), stat.S_IMODE(st["mode"]), st["uid"]), (True, 0o640, 1001), "the pipe on the host")
    s = socket.socket(socket.AF_UNIX)
    os.chdir(t.path())
    s.bind("sock")
    true(stat.S_ISSOCK(t.host.stat(t.rel("sock"))["mode"]), "the socket is none on the host")
    true(stat.S_ISSOCK(os.lstat("sock").st_mode), "the socket is none on the client")
    pid = os.fork()
    if pid == 0:
        with open("pipe", "wb") as w:
            w.write(b"through the pipe")
        os._exit(0)
    with open("pipe", "rb") as r:
        eq(r.read(), b"through the pipe", "bytes through the pipe")
    os.waitpid(pid, 0)
    refused("EPERM", "device made by a user", os.mknod, "dev", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    kinds = {e.name: (e.is_file(follow_symlinks=False), e.is_dir(follow_symlinks=False)) for e in os.scandir(".")}
    eq(kinds, {"pipe": (False, False), "sock": (False, False)}, "types in the listing")


@check("mknod", server="nosquash", user=0)
def mknod(t):
    """An unsquashed root makes devices; major and minor arrive on the host and come back."""
    for name, kind, dev in (("char", stat.S_IFCHR, os.makedev(1, 3)), ("block", stat.S_IFBLK, os.makedev(259, 70_000))):
        os.mknod(t.path(name), kind | 0o600, dev)
        st = t.host.stat(t.rel(name))
        eq((stat.S_IFMT(st["mode"]), st["rdev"]), (kind, dev), f"{name} device on the host")
        t.forget()
        eq(os.lstat(t.path(name)).st_rdev, dev, f"{name} device on the client")
    with open(t.path("char"), "wb") as f:
        f.write(b"into /dev/null")
