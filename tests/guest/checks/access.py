"""Checks of who may do what."""

import os
import stat

from env import ALICE, BOB, CAROL, NOBODY, TEAM, as_user, check, eq, outcome, read, refused, run, true, write


@check("permissions", user=0)
def permissions(t):
    """Two users, a group and strangers: reading, writing, listing, searching, sticky folders, access(2)."""
    t.host.mkdir(t.rel(), 0o777)
    p = t.path

    def alice():
        write(p("private"), b"mine", mode=0o600)
        write(p("team"), b"ours", mode=0o660)
        os.chmod(p("team"), 0o660)
        os.chown(p("team"), -1, TEAM)
        write(p("public"), b"all", mode=0o644)
        os.mkdir(p("closed"), 0o700)
        write(p("closed/x"), b"x")
        os.mkdir(p("search"), 0o711)
        write(p("search/x"), b"found")
        os.mkdir(p("dropbox"))
        os.chmod(p("dropbox"), 0o1777)
        write(p("dropbox/alices"))
        os.mkdir(p("readonly"), 0o755)

    as_user(ALICE, alice, groups=[TEAM])

    def member():
        refused("EACCES", "0600, read by another user", os.open, p("private"), os.O_RDONLY)
        refused("EACCES", "0600, write by another user", os.open, p("private"), os.O_WRONLY)
        refused("EACCES", "0600, truncate by another user", os.truncate, p("private"), 0)
        eq(read(p("team")), b"ours", "0660, read by a member")
        write(p("team"), b"changed", flags=os.O_WRONLY)
        eq(read(p("public")), b"all", "0644, read by another user")
        refused("EACCES", "0644, write by another user", os.open, p("public"), os.O_WRONLY)
        refused("EACCES", "0700 folder, list", os.listdir, p("closed"))
        refused("EACCES", "0700 folder, stat below", os.stat, p("closed/x"))
        refused("EACCES", "0711 folder, list", os.listdir, p("search"))
        eq(read(p("search/x")), b"found", "0711 folder, file of a known name")
        write(p("dropbox/bobs"))
        denied = ("EPERM", "EACCES")
        refused(denied, "sticky folder, removal of another's file", os.unlink, p("dropbox/alices"))
        refused(denied, "sticky folder, rename of another's file", os.rename, p("dropbox/alices"), p("dropbox/z"))
        refused("EACCES", "0755 folder, creation", write, p("readonly/x"))
        refused("EACCES", "0755 folder, mkdir", os.mkdir, p("readonly/d"))
        for name, right, want in (
            ("private", os.R_OK, False), ("team", os.R_OK | os.W_OK, True), ("public", os.W_OK, False),
            ("closed", os.X_OK, False), ("search", os.X_OK, True), ("search", os.R_OK, False),
        ):  # fmt: skip
            eq(os.access(p(name), right), want, f"access(2) to {name}, right {right}")

    as_user(BOB, member, groups=[TEAM])
    eq(t.host.content(t.rel("team")), b"changed", "0660 file on the host after the member's write")
    eq(t.host.content(t.rel("private")), b"mine", "0600 file on the host")
    as_user(CAROL, lambda: refused("EACCES", "0660, read by a stranger", os.open, p("team"), os.O_RDONLY))
    # As many groups as AUTH_SYS carries: the sixteenth counts.
    sixteen = [*range(1900, 1915), TEAM]
    as_user(BOB, lambda: eq(read(p("team")), b"changed", "0660, read by a member of 16 groups"), groups=sixteen)
    # The own class counts even where others have more.
    as_user(ALICE, lambda: os.chmod(p("public"), 0o077))
    as_user(ALICE, lambda: eq(os.access(p("public"), os.R_OK), False, "0077, access(2) by the owner"))
    as_user(BOB, lambda: eq(outcome(os.open, p("public"), os.O_RDWR), "OK", "0077, open by another user"))
    # A right taken away is gone for the next open, cached answers or not.
    as_user(ALICE, lambda: os.chmod(p("public"), 0o600))
    as_user(BOB, lambda: refused("EACCES", "right taken away", os.open, p("public"), os.O_RDONLY))
    as_user(ALICE, lambda: os.chmod(p("public"), 0o666))
    as_user(BOB, lambda: eq(outcome(os.open, p("public"), os.O_RDWR), "OK", "right given"))


@check("owneroverride")
def owneroverride(t):
    """The owner's open descriptor works whatever the mode bits say later (v3 servers have no open): RFC 1813, 4.4."""
    p = t.path
    fd = os.open(p("readonly"), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o444)
    os.write(fd, b"written into a 0444 file" * 1000)
    os.fsync(fd)
    os.ftruncate(fd, 100)
    os.close(fd)
    eq(t.host.stat(t.rel("readonly"))["size"], 100, "size of the 0444 file on the host")
    refused("EACCES", "0444, opened for writing by its owner", os.open, p("readonly"), os.O_WRONLY)
    fd = os.open(p("none"), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(fd, b"first")
    os.fchmod(fd, 0)
    os.pwrite(fd, b"second", 5)
    os.fsync(fd)
    t.forget()
    eq(os.pread(fd, 100, 0), b"firstsecond", "content read through a descriptor after chmod 0")
    os.ftruncate(fd, 5)
    os.close(fd)
    eq(t.host.content(t.rel("none")), b"first", "content on the host")
    refused("EACCES", "0000, opened by its owner", os.open, p("none"), os.O_RDONLY)


@check("execread", user=0)
def execread(t):
    """The right to execute implies that the server lets the bytes be read: a program of mode 0711 runs for others."""
    t.host.mkdir(t.rel(), 0o777)

    def alice():
        with open("/busybox", "rb") as f:
            write(t.path("busybox"), f.read())
        os.chmod(t.path("busybox"), 0o711)

    as_user(ALICE, alice)

    def bob():
        refused("EACCES", "0711, opened for reading by another user", os.open, t.path("busybox"), os.O_RDONLY)
        eq(run(t.path("busybox"), "echo", "it runs"), "it runs\n", "output of the program")

    as_user(BOB, bob)


@check("rootsquash", user=0)
def rootsquash(t):
    """Root is nobody by default: what it makes belongs to nobody, and it has no more rights than nobody."""
    t.host.mkdir(t.rel(), 0o1777)
    p = t.path
    as_user(ALICE, lambda: write(p("private"), b"mine", mode=0o600))
    as_user(ALICE, lambda: write(p("public"), b"all", mode=0o644))
    write(p("made"), b"by root", mode=0o600)
    os.mkdir(p("folder"))
    for name in ("made", "folder"):
        st = t.host.stat(t.rel(name))
        eq((st["uid"], st["gid"]), (NOBODY, NOBODY), f"owner and group of root's {name} on the host")
    eq(os.stat(p("made")).st_uid, NOBODY, "owner of root's file")
    eq(read(p("made")), b"by root", "root's own file")
    eq(read(p("public")), b"all", "0644 file read by root")
    t.forget()
    # The client's root may open what it likes; the server decides on the reading.
    def read_private():
        fd = os.open(p("private"), os.O_RDONLY)
        try:
            return os.pread(fd, 10, 0)
        finally:
            os.close(fd)

    refused("EACCES", "0600 file read by root", read_private)
    refused("EPERM", "chown by root", os.chown, p("made"), ALICE, ALICE)
    refused("EPERM", "chmod of a user's file by root", os.chmod, p("private"), 0o644)
    refused(("EPERM", "EACCES"), "removal of a user's file by root", os.unlink, p("private"))
    refused(("EPERM", "EACCES"), "device made by root", os.mknod, p("dev"), stat.S_IFCHR | 0o600, os.makedev(1, 3))
    eq(t.host.content(t.rel("private")), b"mine", "the user's file on the host")
    true(t.host.exists(t.rel("made")), "root's file is gone on the host")


@check("norootsquash", server="nosquash", user=0)
def norootsquash(t):
    """With squashing off, root is root: it owns what it makes, reads and changes what belongs to others."""
    os.chmod(t.path(), 0o1777)
    p = t.path
    as_user(ALICE, lambda: write(p("private"), b"mine", mode=0o600))
    write(p("made"), b"by root", mode=0o600)
    st = t.host.stat(t.rel("made"))
    eq((st["uid"], st["gid"]), (0, 0), "owner and group of root's file on the host")
    t.forget()
    eq(read(p("private")), b"mine", "0600 file read by root")
    os.chmod(p("private"), 0o000)
    write(p("private"), b"changed", flags=os.O_WRONLY | os.O_TRUNC)
    eq(t.host.content(t.rel("private")), b"changed", "0000 file written by root")
    # And nobody else becomes root by that.
    def bob():
        refused("EACCES", "root's 0600 file read by a user", os.open, p("made"), os.O_RDONLY)
        refused("EPERM", "root's file changed by a user", os.chmod, p("made"), 0o777)
        refused(("EPERM", "EACCES"), "root's file removed by a user", os.unlink, p("made"))
        refused("EPERM", "chown by a user", os.chown, p("private"), BOB, -1)

    as_user(BOB, bob)
    os.unlink(p("private"))
    eq(t.host.exists(t.rel("private")), False, "the removed file on the host")


@check("squashall", server="squashall", user=0)
def squashall(t):
    """With --squash all everybody is nobody: files belong to it, and what one user made is every user's."""
    t.host.mkdir(t.rel(), 0o777)
    f = t.path("f")
    as_user(ALICE, lambda: write(f, b"by alice", mode=0o600))
    st = t.host.stat(t.rel("f"))
    eq((st["uid"], st["gid"]), (NOBODY, NOBODY), "owner and group on the host")
    as_user(BOB, lambda: eq(read(f), b"by alice", "0600 file of one user, read by another"))
    as_user(BOB, lambda: os.chmod(f, 0o640))
    eq(stat.S_IMODE(t.host.stat(t.rel("f"))["mode"]), 0o640, "mode after chmod by another user")
    t.host.put(t.rel("own"), b"alice's", ALICE)
    refusals = ("EPERM", "EACCES")
    as_user(ALICE, lambda: refused(refusals, "chmod by the owner, who is nobody here", os.chmod, t.path("own"), 0o666))


@check("readonly", server="readonly", user=0)
def readonly(t):
    """--read-only: everything can be read, every change is refused with EROFS, and nothing has changed on the host."""
    t.host.mkdir(t.rel(), 0o777)
    t.host.put(t.rel("f"), b"content")
    t.host.mkdir(t.rel("d"), 0o777)
    before = t.host.manifest(t.rel(), True)
    p = t.path

    def alice():
        eq((read(p("f")), sorted(os.listdir(p()))), (b"content", ["d", "f"]), "content and listing")
        rofs = "EROFS"
        refused(rofs, "create", write, p("new"))
        refused(rofs, "mkdir", os.mkdir, p("newdir"))
        refused(rofs, "symlink", os.symlink, "f", p("newlink"))
        refused(rofs, "mkfifo", os.mkfifo, p("pipe"))
        refused(rofs, "link", os.link, p("f"), p("hard"))
        refused(rofs, "rename", os.rename, p("f"), p("g"))
        refused(rofs, "unlink", os.unlink, p("f"))
        refused(rofs, "rmdir", os.rmdir, p("d"))
        refused(rofs, "chmod", os.chmod, p("f"), 0o600)
        refused(rofs, "utime", os.utime, p("f"), ns=(1, 1))
        # These ask ACCESS first, and by RFC 1813 that has only "no" to say, not why.
        refused((rofs, "EACCES"), "open for writing", os.open, p("f"), os.O_WRONLY)
        refused((rofs, "EACCES"), "truncate", os.truncate, p("f"), 0)
        eq([os.access(p("f"), os.R_OK), os.access(p("f"), os.W_OK)], [True, False], "access(2)")

    as_user(ALICE, alice)
    eq(t.host.manifest(t.rel(), True), before, "the folder on the host")
