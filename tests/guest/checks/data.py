"""Checks of file contents: offsets, sizes, holes, caches, durability of what was written."""

import errno
import mmap
import os
import random
import stat
import time

from env import Skip, check, eq, outcome, pattern, read, together, true, write

MIB = 1 << 20
GIB = 1 << 30


@check("truncate")
def truncate(t):
    """Shrinking and growing by path and by descriptor; grown parts are zero; the host sees each size."""
    f = t.path("f")
    body = pattern(100_000, 1)
    write(f, body)
    os.truncate(f, 12_345)
    eq(os.stat(f).st_size, 12_345, "size after shrinking")
    eq(t.host.stat(t.rel("f"))["size"], 12_345, "size on the host after shrinking")
    os.truncate(f, 70_001)
    t.forget()
    eq(read(f), body[:12_345] + bytes(70_001 - 12_345), "content after growing")
    fd = os.open(f, os.O_RDWR)
    os.ftruncate(fd, 3)
    os.pwrite(fd, b"xyz", 10)
    os.close(fd)
    eq(t.host.content(t.rel("f")), body[:3] + bytes(7) + b"xyz", "content on the host after shrink and write beyond")
    # What was cut off must not come back when the file grows again over the same page.
    os.truncate(f, 4096)
    t.forget()
    eq(read(f), body[:3] + bytes(7) + b"xyz" + bytes(4096 - 13), "content after growing within a page")
    os.close(os.open(f, os.O_WRONLY | os.O_TRUNC))
    eq(t.host.stat(t.rel("f"))["size"], 0, "size on the host after O_TRUNC")
    os.truncate(f, 6 * GIB)
    eq(t.host.stat(t.rel("f"))["size"], 6 * GIB, "size on the host after growing to 6 GiB")
    eq(os.stat(f).st_size, 6 * GIB, "size after growing to 6 GiB")
    os.truncate(f, 0)


@check("sparse")
def sparse(t):
    """A write far behind the end leaves a hole: it reads as zeros and takes no blocks on the host."""
    f = t.path("f")
    fd = os.open(f, os.O_RDWR | os.O_CREAT, 0o644)
    os.pwrite(fd, b"start", 0)
    os.pwrite(fd, b"end", 64 * MIB)
    os.close(fd)
    t.forget()
    with open(f, "rb", buffering=0) as h:
        eq(os.pread(h.fileno(), 8, 0), b"start\0\0\0", "first bytes")
        hole = os.pread(h.fileno(), MIB, 31 * MIB + 17)
        true(len(hole) == MIB and not hole.strip(b"\0"), "the hole does not read as zeros")
        eq(os.pread(h.fileno(), 100, 64 * MIB - 2), b"\0\0end", "last bytes")
    st = t.host.stat(t.rel("f"))
    eq(st["size"], 64 * MIB + 3, "size on the host")
    true(st["blocks"] * 512 < MIB, f"the hole takes {st['blocks'] * 512} bytes on the host")
    true(os.stat(f).st_blocks * 512 < MIB, "the client sees no hole in st_blocks")


@check("bigoffset")
def bigoffset(t):
    """1 MiB written at 5 GiB + 3 comes back after the caches are gone; offsets are 64 bits wide everywhere."""
    f = t.path("f")
    body = pattern(MIB, 5)
    at = 5 * GIB + 3
    fd = os.open(f, os.O_RDWR | os.O_CREAT, 0o644)
    os.pwrite(fd, body, at)
    os.pwrite(fd, b"low", GIB + 3)
    os.fsync(fd)
    os.close(fd)
    eq(t.host.stat(t.rel("f"))["size"], at + MIB, "size on the host")
    eq(t.host.content(t.rel("f"), at, MIB), body, "content on the host")
    t.forget()
    fd = os.open(f, os.O_RDONLY)
    eq(os.pread(fd, 2 * MIB, at), body, "content read back")
    eq(os.pread(fd, 5, at - 2), b"\0\0" + body[:3], "bytes around the start")
    eq(os.pread(fd, 3, GIB + 3), b"low", "bytes at 1 GiB + 3")
    eq(os.pread(fd, 4, at + MIB - 2), body[-2:], "bytes around the end")
    eq(os.lseek(fd, 0, os.SEEK_END), at + MIB, "end by lseek")
    os.close(fd)
    os.unlink(f)


SIZES = {"small": "nosharecache,rsize=4096,wsize=4096", "odd": "nosharecache,rsize=65536,wsize=32768"}


@check("iopattern", limit=120, mounts=SIZES)
def iopattern(t):
    """Random reads, writes and truncations against a model, by three mounts with different rsize and wsize."""
    for n, base in enumerate((t.path(), t.other("small"), t.other("odd"))):
        rng = random.Random(n)
        name = f"f{n}"
        fd = os.open(os.path.join(base, name), os.O_RDWR | os.O_CREAT, 0o644)
        model = bytearray()
        for step in range(150):
            at = rng.randrange(2 * MIB)
            size = rng.choice((1, 7, 512, 4095, 4096, 4097, 10_000, 65_536, 100_001, 300_000))
            kind = rng.random()
            if kind < 0.45:
                body = pattern(size, step)
                os.pwrite(fd, body, at)
                if len(model) < at:
                    model.extend(bytes(at - len(model)))
                model[at : at + size] = body
            elif kind < 0.9:
                eq(os.pread(fd, size, at), bytes(model[at : at + size]), f"mount {n}, step {step}: {size} bytes at {at}")
            elif kind < 0.95:
                os.ftruncate(fd, at)
                del model[at:]
                model.extend(bytes(at - len(model)))
            else:
                os.fsync(fd)
                t.forget()
        os.close(fd)
        eq(t.host.content(t.rel(name), 0, 4 * MIB), bytes(model), f"mount {n}: content on the host")
        t.forget()
        eq(read(os.path.join(base, name)), bytes(model), f"mount {n}: content read back")


@check("rsize", mounts={str(n): f"nosharecache,rsize={n},wsize={n}" for n in (4096, 8192, 32_768, 131_072, MIB)})
def rsize(t):
    """A file of 1 MiB and a bit is read and written with transfers of 4 KiB to 1 MiB; the agreed size is the one asked,
    over UDP at most 32 KiB."""
    body = pattern(MIB + 13, 11)
    write(t.path("f"), body)
    with open("/proc/self/mounts") as f:
        options = {row.split()[1]: row.split()[3].split(",") for row in f}
    for n in (4096, 8192, 32_768, 131_072, MIB):
        base = t.other(str(n))
        have = options[f"/mnt/{n}"]
        agreed = min(n, 32_768) if "proto=udp" in have else n
        true(f"rsize={agreed}" in have, f"rsize={n} was asked for, the mount has {have}")
        t.forget()
        true(read(base + "/f") == body, f"rsize={n}: content differs")
        write(f"{base}/w{n}", body)
        true(t.host.content(t.rel(f"w{n}"), 0, 2 * MIB) == body, f"wsize={n}: content on the host differs")


@check("crowd", limit=120, mounts={"b": "nosharecache", "c": "nosharecache,nconnect=4"})
def crowd(t):
    """Twelve processes on three mounts, one with four connections, read one file and write one file, each its own
    records, at the same time."""
    bases = [t.path(), t.other("b"), t.other("c")]
    shared = pattern(4 * MIB, 21)
    record, rounds = 8192, 40
    write(t.path("shared"), shared)
    write(t.path("board"), bytes(6 * rounds * record))

    def reader(n):
        def body():
            rng = random.Random(n)
            fd = os.open(os.path.join(bases[n % 3], "shared"), os.O_RDONLY | (os.O_DIRECT if n < 3 else 0))
            buffer = mmap.mmap(-1, 65_536)
            for i in range(rounds * 2):
                at = rng.randrange(len(shared) // 4096 - 16) * 4096
                eq(os.preadv(fd, [buffer], at), 65_536, f"reader {n}: bytes read at {at}")
                true(buffer[:] == shared[at : at + 65_536], f"reader {n}, round {i}: content at {at} differs")
            os.close(fd)

        return body

    def writer(n):
        def body():
            # Clients of one file must not cache what others write to: that is O_DIRECT's part.
            fd = os.open(os.path.join(bases[n % 3], "board"), os.O_RDWR | os.O_DIRECT)
            buffer = mmap.mmap(-1, record)
            for i in range(rounds):
                at = (i * 6 + n) * record
                want = pattern(record, n * 100 + i)
                buffer[:] = want
                eq(os.pwritev(fd, [buffer], at), record, f"writer {n}: bytes written at {at}")
                buffer[:] = bytes(record)
                eq(os.preadv(fd, [buffer], at), record, f"writer {n}: bytes read back at {at}")
                true(buffer[:] == want, f"writer {n}, round {i}: own record differs")
            os.close(fd)

        return body

    together(*(reader(n) for n in range(6)), *(writer(n) for n in range(6)))
    want = b"".join(pattern(record, n * 100 + i) for i in range(rounds) for n in range(6))
    true(t.host.content(t.rel("board"), 0, 4 * MIB) == want, "content on the host differs")


@check("append")
def append(t):
    """Four processes append 150 lines each with O_APPEND: no line is lost, torn or overwritten."""
    f = t.path("log")
    write(f)

    def writer(n):
        def body():
            fd = os.open(f, os.O_WRONLY | os.O_APPEND)
            for i in range(150):
                os.write(fd, f"{n}:{i}:{'x' * (i % 90)}\n".encode())
            os.close(fd)

        return body

    together(*(writer(n) for n in range(4)))
    lines = t.host.content(t.rel("log")).decode().splitlines()
    want = sorted(f"{n}:{i}:{'x' * (i % 90)}" for n in range(4) for i in range(150))
    eq(len(lines), len(want), "number of lines")
    true(sorted(lines) == want, "lines differ from those written")


@check("mmap")
def mmap_write(t):
    """Stores through a shared mapping reach the server; a mapping shows what the server has."""
    f = t.path("f")
    size = 3 * MIB + 100
    body = bytearray(pattern(size, 9))
    write(f, bytes(body))
    fd = os.open(f, os.O_RDWR)
    with mmap.mmap(fd, size) as m:
        for at in (0, 4095, 4096, MIB + 7, size - 5):
            m[at : at + 5] = body[at : at + 5] = b"mmapd"
        m.flush()
        eq(t.host.content(t.rel("f"), 0, 4 * MIB), bytes(body), "content on the host after msync")
        m[123:126] = body[123:126] = b"abc"
    os.close(fd)
    eq(t.host.content(t.rel("f"), 0, 4 * MIB), bytes(body), "content on the host after munmap and close")
    t.forget()
    fd = os.open(f, os.O_RDONLY)
    with mmap.mmap(fd, size, prot=mmap.PROT_READ) as m:
        true(m[:] == bytes(body), "the mapping differs from the file")
    os.close(fd)


@check("syncwrite")
def syncwrite(t):
    """O_SYNC and O_DSYNC writes are on the server when write returns; fsync works on an unchanged file too."""
    for name, flag in (("sync", os.O_SYNC), ("dsync", os.O_DSYNC)):
        fd = os.open(t.path(name), os.O_WRONLY | os.O_CREAT | flag, 0o644)
        done = b""
        for n in range(20):
            body = pattern(1 + n * 1009, n)
            os.write(fd, body)
            done += body
            eq(t.host.stat(t.rel(name))["size"], len(done), f"{name}: size on the host after write {n}")
        eq(t.host.content(t.rel(name)), done, f"{name}: content on the host while open")
        os.fsync(fd)
        os.fdatasync(fd)
        os.close(fd)


@check("odirect", slow=True)
def odirect(t):
    """O_DIRECT reads and writes of 1 MiB and of 4 KiB bypass the client's cache and agree with it."""
    f = t.path("f")
    total = 4 * MIB
    fd = os.open(f, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o644)
    buffer = mmap.mmap(-1, MIB)  # page aligned
    for at in range(0, total, MIB):
        buffer[:] = pattern(MIB, at // MIB)
        eq(os.pwritev(fd, [buffer], at), MIB, f"bytes written at {at}")
    page = mmap.mmap(-1, 4096)
    page[:] = pattern(4096, 77)
    eq(os.pwritev(fd, [page], MIB + 8192), 4096, "bytes written in the middle")
    want = bytearray(b"".join(pattern(MIB, n) for n in range(4)))
    want[MIB + 8192 : MIB + 12288] = pattern(4096, 77)
    eq(t.host.content(t.rel("f"), 0, total), bytes(want), "content on the host")
    for at in range(0, total, MIB):
        eq(os.preadv(fd, [buffer], at), MIB, f"bytes read at {at}")
        eq(buffer[:], bytes(want[at : at + MIB]), f"content read at {at}")
    eq(os.preadv(fd, [buffer], total), 0, "bytes read at the end of the file")
    os.close(fd)
    eq(read(f), bytes(want), "content read through the cache")


@check("closetoopen", mounts={"b": "nosharecache"})
def closetoopen(t):
    """After a change by another client or on the host, whoever opens the file next sees the new bytes."""
    f, g = t.path("f"), t.other("b", "f")
    for n in range(15):
        body = pattern(1000 + n * 777, n)
        write(f, body)
        eq(read(g), body, f"round {n}: content through the second mount")
    for n in range(5):
        body = pattern(5000 + n, n)
        t.host.put(t.rel("f"), body)
        eq(read(f), body, f"round {n}: content after a change on the host")
    # Same size: only the time of the change tells.
    for n in range(5):
        body = pattern(5000, 100 + n)
        time.sleep(0.02)
        t.host.put(t.rel("f"), body)
        eq(read(f), body, f"round {n}: content after a change of the same size on the host")


@check("df")
def df(t):
    """statfs gives the backing file system's own figures, and follows them."""
    here, there = os.statvfs(t.dir), t.host.statvfs("")
    # The client counts in larger blocks and rounds up.
    more = here.f_blocks * here.f_frsize - there["blocks"] * there["frsize"]
    true(0 <= more < here.f_frsize, f"total bytes differ by {more}")
    eq(here.f_files, there["files"], "number of inodes")
    eq(here.f_namemax, 255, "longest name")
    f = t.path("f")
    fd = os.open(f, os.O_WRONLY | os.O_CREAT, 0o644)
    os.write(fd, pattern(32 * MIB, 1))
    os.fsync(fd)
    os.close(fd)
    less = os.statvfs(t.dir)
    used = here.f_bfree * here.f_frsize - less.f_bfree * less.f_frsize
    # Others may use the disk at the same time, but not the rig's own tmpfs.
    slack = 4 * MIB if t.config["backing"] == "tmpfs" else 512 * MIB
    true(abs(used - 32 * MIB) <= slack, f"32 MiB written, but free space fell by {used} bytes")
    os.unlink(f)
    true(less.f_bavail <= less.f_bfree <= less.f_blocks, "available, free and total are not in order")


@check("enospc", slow=True)
def enospc(t):
    """A full file system is reported as ENOSPC by write, fsync or close; with space again all goes on."""
    f = t.path("f")
    if not t.host.fill(8 * MIB):
        raise Skip("the backing file system is not the rig's own")

    def overflow():
        fd = os.open(f, os.O_WRONLY | os.O_CREAT, 0o644)
        got = None
        try:
            for n in range(24):
                os.write(fd, pattern(MIB, n))
            os.fsync(fd)
        except OSError as e:
            got = e.errno
        try:
            os.close(fd)
        except OSError as e:
            got = got or e.errno
        return got

    try:
        got = overflow()
        eq(errno.errorcode.get(got, got), "ENOSPC", "24 MiB written into 8 MiB of space")
    finally:
        t.host.unfill()
    os.unlink(f)
    body = pattern(10 * MIB, 3)
    write(f, body)
    t.forget()
    true(read(f) == body, "content after space came back differs")


def settle(t, want, what):
    """The client removes a .nfs file after the close, not in it: give it up to 5 s."""
    deadline = time.monotonic() + 5
    while t.host.list(t.rel()) != want and time.monotonic() < deadline:
        time.sleep(0.05)
    eq(t.host.list(t.rel()), want, what)


@check("sillyrename")
def sillyrename(t):
    """An open file that is removed stays usable under a .nfs name and is gone on the host after the close."""
    f = t.path("f")
    body = pattern(300_000, 4)
    write(f, body)
    fd = os.open(f, os.O_RDWR)
    os.unlink(f)
    eq(outcome(os.stat, f), "ENOENT", "stat of the removed name")
    hidden = t.host.list(t.rel())
    true(len(hidden) == 1 and hidden[0].startswith(".nfs"), f"host shows {hidden} while the file is open")
    t.forget()
    eq(os.pread(fd, MIB, 0), body, "content of the removed file")
    os.pwrite(fd, b"still here", 300_000)
    os.fsync(fd)
    eq(os.fstat(fd).st_size, 300_010, "size of the removed file")
    os.close(fd)
    settle(t, [], "entries on the host after the close")
    # The same when an open file is replaced by a rename.
    write(f, b"old")
    fd = os.open(f, os.O_RDONLY)
    write(t.path("new"), b"new")
    os.rename(t.path("new"), f)
    t.forget()
    eq(os.pread(fd, 10, 0), b"old", "content of the replaced file")
    eq(read(f), b"new", "content under its name")
    os.close(fd)
    settle(t, ["f"], "entries on the host after the second close")


@check("exclrace", limit=120, mounts={"b": "nosharecache"})
def exclrace(t):
    """Six processes on two independent mounts create the same 100 names with O_EXCL: each has one winner."""
    bases = [t.path(), t.other("b")]

    def racer(n):
        def body():
            won = []
            for i in range(100):
                try:
                    fd = os.open(os.path.join(bases[n % 2], f"lock{i}"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)
                except FileExistsError:
                    continue
                os.write(fd, str(n).encode())
                os.close(fd)
                won.append(i)
            return won

        return body

    before = time.time()
    winners = together(*(racer(n) for n in range(6)))
    eq(sorted(i for won in winners for i in won), list(range(100)), "names won")
    for n, won in enumerate(winners):
        for i in won:
            eq(t.host.content(t.rel(f"lock{i}")), str(n).encode(), f"content of lock{i}")
    # An exclusive CREATE may park its verifier in the times and mode; the client's SETATTR must have cured that.
    for i in range(0, 100, 7):
        st = t.host.stat(t.rel(f"lock{i}"))
        eq(stat.S_IMODE(st["mode"]), 0o640, f"mode of lock{i}")
        for which in ("atime_ns", "mtime_ns"):
            true(abs(st[which] / 1e9 - before) < 300, f"{which} of lock{i} is {st[which] / 1e9:.0f}, now is {before:.0f}")
