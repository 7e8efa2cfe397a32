"""Checks of attributes: mode, owner, times, and set-user-id bits."""

import os
import stat
import time

from env import ALICE, BOB, CAROL, TEAM, as_user, check, eq, refused, true, write


def mode_of(t, name):
    """The mode bits as client and host see them; they must agree."""
    here = stat.S_IMODE(os.stat(t.path(name)).st_mode)
    eq(stat.S_IMODE(t.host.stat(t.rel(name))["mode"]), here, f"mode of {name} on the host and on the client")
    return here


@check("chmod")
def chmod(t):
    """Mode bits of files and folders, set at creation and later, arrive on the host as they were given."""
    write(t.path("f"))
    os.mkdir(t.path("d"))
    for mode in (0o000, 0o400, 0o644, 0o755, 0o777, 0o1777, 0o2755, 0o4755, 0o6711, 0o7777, 0o600):
        os.chmod(t.path("f"), mode)
        eq(mode_of(t, "f"), mode, f"file after chmod {mode:o}")
        os.chmod(t.path("d"), mode | 0o700)
        eq(mode_of(t, "d"), mode | 0o700, f"folder after chmod {mode:o}")
    os.umask(0)
    for mode in (0o600, 0o755, 0o444, 0o4711, 0o666):
        write(t.path(f"c{mode:o}"), mode=mode)
        eq(mode_of(t, f"c{mode:o}"), mode, f"file created with {mode:o}")
        os.mkdir(t.path(f"d{mode:o}"), mode)
        eq(mode_of(t, f"d{mode:o}"), mode & 0o1777, f"folder created with {mode:o}")
    os.umask(0o027)
    write(t.path("masked"), mode=0o666)
    eq(mode_of(t, "masked"), 0o640, "file created under umask 027")
    before = os.stat(t.path("f")).st_ctime_ns
    time.sleep(0.05)
    os.chmod(t.path("f"), 0o600)
    true(os.stat(t.path("f")).st_ctime_ns > before, "ctime does not move on chmod")


@check("utimes")
def utimes(t):
    """Times to the nanosecond, far ones too, 'now' by the server; of files and folders."""
    write(t.path("f"))
    os.mkdir(t.path("d"))
    for name in ("f", "d"):
        # From the second after the first to the last but one of the 32 unsigned bits of the v3 wire format; the client
        # cuts the ends themselves to whole seconds.
        second = 10**9
        for atime, mtime in (
            (1_000_000_000 * second + 123_456_789, 1_234_567_890 * second + 987_654_321),
            (second + 1, 2 * second - 1),
            (4_200_000_000 * second, 4_294_967_294 * second),
        ):
            os.utime(t.path(name), ns=(atime, mtime))
            st, there = os.stat(t.path(name)), t.host.stat(t.rel(name))
            eq((there["atime_ns"], there["mtime_ns"]), (atime, mtime), f"times of {name} on the host")
            eq((st.st_atime_ns, st.st_mtime_ns), (atime, mtime), f"times of {name}")
    os.utime(t.path("f"))
    now = time.time()
    there = t.host.stat(t.rel("f"))
    for which in ("atime_ns", "mtime_ns"):
        true(abs(there[which] / 1e9 - now) < 30, f"{which} set to now is {there[which] / 1e9:.0f}, the clock says {now:.0f}")
    old = t.host.stat(t.rel("f"))["mtime_ns"]
    time.sleep(0.05)
    write(t.path("f"), b"x")
    there = t.host.stat(t.rel("f"))
    true(there["mtime_ns"] > old, "mtime does not move on a write")
    time.sleep(0.05)
    folder = t.host.stat(t.rel())["mtime_ns"]
    write(t.path("new"))
    true(t.host.stat(t.rel())["mtime_ns"] > folder, "mtime of the folder does not move on a creation")


@check("linktimes")
def linktimes(t):
    """The times of a symbolic link are set by themselves; its target keeps its own."""
    write(t.path("f"))
    before = t.host.stat(t.rel("f"))["mtime_ns"]
    os.symlink("f", t.path("l"))
    os.utime(t.path("l"), ns=(1_500_000_000_000_000_001, 1_600_000_000_999_999_999), follow_symlinks=False)
    there, st = t.host.stat(t.rel("l")), os.lstat(t.path("l"))
    eq((there["atime_ns"], there["mtime_ns"]), (1_500_000_000_000_000_001, 1_600_000_000_999_999_999), "times on the host")
    eq((st.st_atime_ns, st.st_mtime_ns), (there["atime_ns"], there["mtime_ns"]), "times of the link")
    eq(t.host.stat(t.rel("f"))["mtime_ns"], before, "mtime of the link's target")
    os.utime(t.path("l"), ns=(1, 1_700_000_000_000_000_000))
    eq(t.host.stat(t.rel("f"))["mtime_ns"], 1_700_000_000_000_000_000, "mtime of the target, set through the link")


@check("chown", server="nosquash", user=0)
def chown(t):
    """An unsquashed root changes owner and group, also to high ids; each alone; links themselves."""
    write(t.path("f"))
    for uid, gid in ((1001, 1002), (0, 0), (65534, 65534), (3_000_000_000, 4_000_000_000)):
        os.chown(t.path("f"), uid, gid)
        st, there = os.stat(t.path("f")), t.host.stat(t.rel("f"))
        eq((there["uid"], there["gid"]), (uid, gid), "owner and group on the host")
        eq((st.st_uid, st.st_gid), (uid, gid), "owner and group")
    os.chown(t.path("f"), ALICE, -1)
    eq(t.host.stat(t.rel("f"))["gid"], 4_000_000_000, "group after a change of the owner only")
    os.chown(t.path("f"), -1, TEAM)
    there = t.host.stat(t.rel("f"))
    eq((there["uid"], there["gid"]), (ALICE, TEAM), "owner after a change of the group only")
    os.symlink("f", t.path("l"))
    os.chown(t.path("l"), BOB, BOB, follow_symlinks=False)
    eq(t.host.stat(t.rel("l"))["uid"], BOB, "owner of the link")
    eq(t.host.stat(t.rel("f"))["uid"], ALICE, "owner of the link's target")


@check("chgrp", user=0)
def chgrp(t):
    """A user gives a file to one of their groups only, and never away; a set-group-id folder hands its group down."""
    t.host.mkdir(t.rel(), 0o777)
    f = t.path("f")

    def alice():
        write(f)
        os.chown(f, -1, TEAM)
        eq(t.host.stat(t.rel("f"))["gid"], TEAM, "group on the host")
        refused("EPERM", "group the user is not in", os.chown, f, -1, 2999)
        refused("EPERM", "file given away", os.chown, f, BOB, -1)
        os.mkdir(t.path("shared"))
        os.chown(t.path("shared"), -1, TEAM)
        os.chmod(t.path("shared"), 0o2775)
        write(t.path("shared/x"))
        os.mkdir(t.path("shared/d"))
        eq(t.host.stat(t.rel("shared/x"))["gid"], TEAM, "group of a file in the set-group-id folder")
        there = t.host.stat(t.rel("shared/d"))
        eq((there["gid"], bool(there["mode"] & stat.S_ISGID)), (TEAM, True), "group and bit of a folder in it")

    as_user(ALICE, alice, groups=[TEAM])
    as_user(BOB, lambda: refused("EPERM", "chmod by another user", os.chmod, f, 0o777))
    as_user(BOB, lambda: refused("EPERM", "chown by another user", os.chown, f, BOB, -1))
    as_user(BOB, lambda: refused(("EPERM", "EACCES"), "utime to a value by another user", os.utime, f, ns=(1, 1)))


@check("suidclear", user=0)
def suidclear(t):
    """Writing to a set-user-id file by another user who may takes the bit away, as a local write would."""
    t.host.mkdir(t.rel(), 0o777)

    def fresh(name, mode):
        def body():
            write(t.path(name), b"program text" * 100)
            os.chmod(t.path(name), mode)
            eq(mode_of(t, name), mode, f"{name} before")

        as_user(ALICE, body)

    def overwrite(name, flags=0):
        fd = os.open(t.path(name), os.O_WRONLY | flags)
        os.write(fd, b"evil")
        os.close(fd)

    # The first write to each file goes through a descriptor that the server opens for that user; the second file is
    # written by its owner before it gets the bit, so that the server may have one of the owner's at hand.
    fresh("a", 0o4777)
    as_user(BOB, lambda: overwrite("a"))
    eq(mode_of(t, "a"), 0o777, "4777 after another user's write")
    as_user(ALICE, lambda: write(t.path("b"), b"x" * 5000))
    fresh("b", 0o4777)
    as_user(BOB, lambda: overwrite("b", os.O_SYNC))
    eq(mode_of(t, "b"), 0o777, "4777 after another user's synchronous write")
    # Again, with everybody's descriptors warm.
    as_user(ALICE, lambda: os.chmod(t.path("b"), 0o4777))
    as_user(BOB, lambda: overwrite("b", os.O_APPEND))
    eq(mode_of(t, "b"), 0o777, "4777 after a second write")
    fresh("d", 0o4755)
    as_user(ALICE, lambda: overwrite("d"))
    eq(mode_of(t, "d"), 0o755, "4755 after the owner's own write")
    fresh("e", 0o2777)
    as_user(CAROL, lambda: overwrite("e"))
    eq(mode_of(t, "e"), 0o777, "2777 after another user's write")
    fresh("f", 0o4755)
    as_user(BOB, lambda: refused("EACCES", "4755 opened for writing by another user", os.open, t.path("f"), os.O_WRONLY))
    eq(mode_of(t, "f"), 0o4755, "4755 after a refused open")


@check("suidtruncate", user=0)
def suidtruncate(t):
    """Truncating and growing a set-user-id file by another user who may takes the bits away, as it does locally."""
    t.host.mkdir(t.rel(), 0o777)
    for name, size in (("cut", 5), ("emptied", 0), ("grown", 9000)):

        def alice(name=name):
            write(t.path(name), b"program text" * 100)
            os.chmod(t.path(name), 0o6777)

        as_user(ALICE, alice)
        as_user(BOB, lambda name=name, size=size: os.truncate(t.path(name), size))
        eq(mode_of(t, name), 0o777, f"6777, {name} by another user")


@check("suidclear_none", server="nosquash", user=0)
def suidclear_none(t):
    """The same where root is not squashed: a user's write clears the bit although root's own work is allowed all."""
    write(t.path("f"), b"program text")
    os.chown(t.path("f"), ALICE, TEAM)
    os.chmod(t.path("f"), 0o4775)
    fd = os.open(t.path("f"), os.O_WRONLY)
    os.pwrite(fd, b"root", 0)
    os.fsync(fd)
    os.close(fd)
    os.chmod(t.path("f"), 0o4775)

    def member():
        fd = os.open(t.path("f"), os.O_WRONLY)
        os.pwrite(fd, b"evil", 0)
        os.close(fd)

    as_user(BOB, member, groups=[TEAM])
    eq(mode_of(t, "f"), 0o775, "4775 after a write by a member of the group")
