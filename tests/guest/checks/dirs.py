"""Checks of directory listings."""

import os
import time

from env import check, eq, true, write


def listing(path):
    """Names as the client lists them, duplicates and all."""
    with os.scandir(path) as entries:
        return [e.name for e in entries]


def exactly(got, want, what):
    """Every wanted name once, nothing else."""
    got = sorted(got)
    eq(len(got), len(set(got)), f"{what}: number of different names")
    lost, extra = set(want) - set(got), set(got) - set(want)
    true(not lost and not extra, f"{what}: {len(lost)} missing {sorted(lost)[:3]}, {len(extra)} unexpected {sorted(extra)[:3]}")


@check("bigdir", limit=150, mounts={"plain": "nosharecache,nordirplus"}, slow=True)
def bigdir(t):
    """10,000 entries: created, listed by READDIRPLUS and READDIR, half of them removed while listing; each name once."""
    names = [f"entry-{n:05d}" for n in range(10_000)]
    for n in names:
        os.close(os.open(t.path(n), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
    eq(len(t.host.list(t.rel())), 10_000, "entries on the host")
    t.forget()
    exactly(listing(t.path()), names, "listing by READDIRPLUS")
    exactly(listing(t.other("plain")), names, "listing by READDIR")
    t.forget()
    gone, seen = set(), []
    with os.scandir(t.path()) as entries:
        for e in entries:
            seen.append(e.name)
            if int(e.name[-5:]) % 2:
                os.unlink(e.path)
                gone.add(e.name)
    exactly(seen, names, "listing while half of the entries are removed")
    rest = [n for n in names if n not in gone]
    eq(len(rest), 5000, "entries left")
    t.forget()
    exactly(listing(t.path()), rest, "listing after the removal")
    exactly(t.host.list(t.rel()), rest, "listing on the host after the removal")
    eq(sum(1 for e in os.scandir(t.path()) if e.stat().st_size == 0), 5000, "entries with attributes")


@check("readdirfresh", mounts={"b": "nosharecache,actimeo=1", "now": "nosharecache,noac,lookupcache=none"})
def readdirfresh(t):
    """Listings follow changes: own ones at once, others' within the attribute cache's time, without it at once."""
    names = set()
    for n in range(30):
        # A client sees a change by the folder's time, and that has the kernel's tick where it has no finer clock.
        time.sleep(0.02)
        write(t.path(f"f{n}"))
        names.add(f"f{n}")
        if n % 3 == 2:
            os.unlink(t.path(f"f{n - 1}"))
            names.discard(f"f{n - 1}")
        exactly(listing(t.path()), names, f"own listing after change {n}")
        exactly(listing(t.other("now")), names, f"listing without attribute cache after change {n}")
    t.host.put(t.rel("by-host"), b"x")
    names.add("by-host")
    exactly(listing(t.other("now")), names, "listing without attribute cache after a change on the host")
    os.mkdir(t.path("sub"))
    names.add("sub")
    deadline = time.monotonic() + 10
    while set(listing(t.other("b"))) != names and time.monotonic() < deadline:
        time.sleep(0.2)
    exactly(listing(t.other("b")), names, "listing with actimeo=1 after its time")
    t.host.unlink(t.rel("by-host"))
    os.rename(t.path("f0"), t.path("sub/f0"))
    names -= {"by-host", "f0"}
    exactly(listing(t.other("now")), names, "listing after a removal on the host and a rename")
    exactly(listing(t.other("now", "sub")), {"f0"}, "listing of the other folder")
    os.unlink(t.path("sub/f0"))
    os.rmdir(t.path("sub"))
    eq(t.host.exists(t.rel("sub")), False, "the removed folder on the host")


@check("resume", mounts={"plain": "nosharecache,nordirplus"}, slow=True)
def resume(t):
    """A listing under way goes on through creations and removals: every entry that stays is seen exactly once."""
    stay = {f"stay-{n:04d}" for n in range(1500)}
    go = [f"go-{n:04d}" for n in range(600)]
    for n in sorted(stay) + go:
        write(t.path(n))
    for base in (t.path(), t.other("plain")):
        t.forget()
        seen = []
        with os.scandir(base) as entries:
            for i, e in enumerate(entries):
                seen.append(e.name)
                if i % 10 == 0:
                    write(t.path(f"late-{os.path.basename(os.path.dirname(base))}-{i}"))
                if i % 7 == 0 and go:
                    os.unlink(t.path(go.pop()))
        kept = [n for n in seen if n.startswith("stay-")]
        exactly(kept, stay, "entries that stayed")
        eq(len(seen), len(set(seen)), "number of different names seen")
