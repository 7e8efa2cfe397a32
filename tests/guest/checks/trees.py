"""Checks by whole trees and the programs people use on them: cp, tar, git, rm."""

import os
import random

from env import check, eq, pattern, read, run, together, true, write
from treesum import difference, manifest

# Sizes that meet the edges of pages, of small and large transfers, and of the 1 MiB a READ or WRITE may carry.
EDGES = (0, 1, 4095, 4096, 4097, 65_535, 65_536, 65_537, 131_073, 262_144, 1_048_575, 1_048_576, 1_048_577, 2_500_000)


def grow(root, files, seed):
    """Makes a tree of `files` files in folders of varied size; most are small, every edge size occurs."""
    rng = random.Random(seed)
    os.makedirs(root)
    folders = [root]
    for n in range(files):
        if n % 40 == 0 and n:
            parent = rng.choice(folders)
            folders.append(os.path.join(parent, f"dir{n}"))
            os.mkdir(folders[-1])
        size = EDGES[n] if n < len(EDGES) else int(rng.paretovariate(0.8) * 300) % 90_000
        write(os.path.join(rng.choice(folders), f"file{n}.dat"), pattern(size, n))
        if n % 100 == 50:
            os.symlink(f"../target{n}", os.path.join(rng.choice(folders), f"link{n}"))


def round_trip(t, source, label):
    """Copies a tree in by cp -a and out again; both copies must equal the source, here and on the host."""
    want = manifest(source)
    run("cp", "-a", "--no-preserve=ownership", source, t.path("in"), what=f"{label}: cp in")
    wrong = difference(t.host.manifest(t.rel("in")), want)
    true(not wrong, f"{label} on the host: {wrong}")
    t.forget()
    run("cp", "-a", "--no-preserve=ownership", t.path("in"), t.tmp + "/out", what=f"{label}: cp out")
    wrong = difference(manifest(t.tmp + "/out"), want)
    true(not wrong, f"{label} copied out: {wrong}")
    t.forget()
    wrong = difference(manifest(t.path("in")), want)
    true(not wrong, f"{label} read on the mount: {wrong}")
    run("rm", "-rf", t.path("in"), what=f"{label}: rm")
    eq(t.host.list(t.rel()), [], f"{label}: entries on the host after rm -rf")


@check("copytree", limit=300)
def copytree(t):
    """A tree of 3,000 files (1,000 with --quick) from 0 bytes to 2.5 MB is copied in and out by cp; all checksums are
    equal; rm -rf works."""
    grow(t.tmp + "/src", 1000 if t.config["quick"] else 3000, seed=1)
    round_trip(t, t.tmp + "/src", "tree")


@check("copyreal", limit=300, slow=True)
def copyreal(t):
    """The same with real files: the headers and programs of this machine, up to 1,000 files and 60 MB."""
    files = size = 0
    for top in ("/usr/include", "/usr/share/perl5", "/usr/lib/python3", "/usr/share/doc"):
        for folder, folders, names in os.walk(top):
            folders.sort()
            for name in sorted(names):
                source = os.path.join(folder, name)
                if files >= 1000 or size >= 60_000_000:
                    break
                if os.path.islink(source) or not os.path.isfile(source):
                    continue
                target = t.tmp + "/src" + source
                os.makedirs(os.path.dirname(target), exist_ok=True)
                body = read(source)
                write(target, body, mode=0o755 if os.access(source, os.X_OK) else 0o444)
                files, size = files + 1, size + len(body)
    true(files > 100, f"only {files} files found to copy")
    round_trip(t, t.tmp + "/src", f"{files} real files")


@check("tarx", limit=150)
def tarx(t):
    """tar x as a user: 0444 files, 0555 folders, links, sparse files and times arrive as they were packed."""
    src = t.tmp + "/src"
    grow(src, 400, seed=2)
    os.mkdir(src + "/sealed")
    for n in range(60):
        write(f"{src}/sealed/readonly{n}", pattern(n * 700, n), mode=0o444)
        os.utime(f"{src}/sealed/readonly{n}", (1_500_000_000 + n, 1_400_000_000 + n))
    for n in range(20):
        os.link(f"{src}/sealed/readonly{n}", f"{src}/hard{n}")
    write(src + "/suid", b"#!", mode=0o755)
    os.chmod(src + "/suid", 0o4755)
    fd = os.open(src + "/holes", os.O_WRONLY | os.O_CREAT, 0o644)
    os.pwrite(fd, b"x", 5_000_000)
    os.close(fd)
    os.chmod(src + "/sealed", 0o555)
    want = manifest(src, meta=True)
    run("tar", "-C", src, "-S", "-cf", t.tmp + "/x.tar", ".")
    os.mkdir(t.path("out"))
    run("tar", "-C", t.path("out"), "-xpf", t.tmp + "/x.tar")
    wrong = difference(t.host.manifest(t.rel("out"), True), want)
    true(not wrong, f"on the host: {wrong}")
    t.forget()
    wrong = difference(manifest(t.path("out"), meta=True), want)
    true(not wrong, f"on the client: {wrong}")
    # And packed from the mount it is the same archive, contents considered.
    run("tar", "-C", t.path("out"), "-df", t.tmp + "/x.tar", what="tar --diff")
    os.chmod(src + "/sealed", 0o755)
    os.chmod(t.path("out/sealed"), 0o755)


@check("gitclone", limit=240)
def gitclone(t):
    """git as a user: clone, checkout, commit, gc and fsck in a repository on the mount; its objects are 0444 files."""
    env = dict(os.environ, HOME=t.tmp, GIT_CONFIG_NOSYSTEM="1", GIT_TERMINAL_PROMPT="0")
    for role in ("AUTHOR", "COMMITTER"):
        env.update({f"GIT_{role}_NAME": "Alice", f"GIT_{role}_EMAIL": "alice@example.org"})

    def git(*argv, cwd):
        return run("git", *argv, cwd=cwd, env=env, what="git " + argv[0])

    src, clone, tree = t.tmp + "/src", t.path("clone"), t.path("tree")
    grow(src, 200, seed=3)
    git("init", "-q", "-b", "main", ".", cwd=src)
    for n in range(3):
        write(f"{src}/round{n}", pattern(5000, n))
        git("add", "-A", cwd=src)
        git("commit", "-q", "-m", f"round {n}", cwd=src)
    git("clone", "-q", "--no-local", src, clone, cwd=t.tmp)
    eq(git("status", "--porcelain", cwd=clone), "", "status of the clone")
    eq(git("rev-parse", "HEAD^{tree}", cwd=clone), git("rev-parse", "HEAD^{tree}", cwd=src), "tree of the clone")
    git("fsck", "--strict", "--no-progress", cwd=clone)
    for n in range(4):
        write(f"{clone}/more{n}", pattern(20_000, n))
    git("add", "-A", cwd=clone)
    git("commit", "-q", "-m", "on the mount", cwd=clone)
    git("checkout", "-q", "-b", "side", "HEAD~2", cwd=clone)
    git("checkout", "-q", "main", cwd=clone)
    git("gc", "-q", cwd=clone)
    git("fsck", "--strict", "--no-progress", cwd=clone)
    t.forget()
    eq(git("status", "--porcelain", cwd=clone), "", "status after commit, checkout and gc")
    git("clone", "-q", clone, tree, cwd=t.tmp)
    eq(git("log", "--oneline", cwd=tree).count("\n"), 4, "commits in a clone of the clone")
    run("rm", "-rf", clone, tree)
    eq(t.host.list(t.rel()), [], "entries on the host after rm -rf")


@check("parallel", limit=120)
def parallel(t):
    """Four processes make, change, move and remove files at once, each checked against its own model."""
    os.mkdir(t.path("common"))

    def worker(n):
        def body():
            rng = random.Random(n)
            base = t.path(f"w{n}")
            os.mkdir(base)
            model = {}
            for step in range(250):
                kind = rng.random()
                names = list(model)
                if kind < 0.4 or not names:
                    name = f"n{step}"
                    model[name] = pattern(rng.choice((0, 10, 5000, 70_000)), step)
                    write(os.path.join(base, name), model[name])
                elif kind < 0.55:
                    old, new = rng.choice(names), f"m{step}"
                    # By way of a folder that all share, so that its lock and cookies are contended.
                    os.rename(os.path.join(base, old), t.path("common", f"{n}-{old}"))
                    os.rename(t.path("common", f"{n}-{old}"), os.path.join(base, new))
                    model[new] = model.pop(old)
                elif kind < 0.7:
                    name = rng.choice(names)
                    with open(os.path.join(base, name), "ab") as f:
                        f.write(b"tail")
                    model[name] += b"tail"
                elif kind < 0.85:
                    name = rng.choice(names)
                    eq(read(os.path.join(base, name)), model[name], f"worker {n}, step {step}: content of {name}")
                else:
                    name = rng.choice(names)
                    os.unlink(os.path.join(base, name))
                    del model[name]
                if step % 50 == 49:
                    eq(sorted(os.listdir(base)), sorted(model), f"worker {n}, step {step}: listing")
            return {k: len(v) for k, v in model.items()}

        return body

    sizes = together(*(worker(n) for n in range(4)))
    t.forget()
    for n, want in enumerate(sizes):
        got = {k: row[1] for k, row in t.host.manifest(t.rel(f"w{n}")).items()}
        eq(got, want, f"files of worker {n} on the host")
        eq({e.name: e.stat().st_size for e in os.scandir(t.path(f"w{n}"))}, want, f"files of worker {n}")
    eq(os.listdir(t.path("common")), [], "the common folder")
