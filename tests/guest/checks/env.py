"""What a check stands on: its declaration, users, assertions, the control connection to the host."""

import base64
import contextlib
import errno
import json
import os
import socket
import subprocess
import sys
import traceback

ALICE, BOB, CAROL, TEAM = 1001, 1002, 1003, 2001
NOBODY = 65534
CHECKS = []


class Failure(Exception):
    """A check found something wrong."""


class Skip(Exception):
    """A check cannot be made here."""


class Check:
    """One check: a function and the circumstances it needs."""

    def __init__(self, fn, name, server, user, limit, mounts, slow):
        self.fn, self.name, self.server, self.user, self.limit = fn, name, server, user, limit
        self.mounts, self.slow = mounts, slow
        self.about = " ".join(fn.__doc__.split())


def check(name, server="default", user=ALICE, limit=60, mounts=None, slow=False):
    """Declares a check.

    server: how the server is started for it: 'default' (root squashed, read-write), 'nosquash', 'squashall', 'readonly';
    user: uid the body runs as (0 = root); limit: seconds after which it is ended and has failed;
    mounts: {name: options} of further mounts of the export, reached by t.other(name); slow: --quick leaves it out.
    """

    def declare(fn):
        CHECKS.append(Check(fn, name, server, user, limit, mounts or {}, slow))
        return fn

    return declare


def eq(got, want, what):
    """Fails unless both are equal."""
    if got != want:
        raise Failure(f"{what}: {short(got)} instead of {short(want)}")


def true(value, what):
    """Fails unless `value` holds."""
    if not value:
        raise Failure(what)


def short(value):
    text = repr(value)
    return text if len(text) <= 160 else text[:150] + f"... ({len(text)} characters)"


def outcome(fn, *args, **kw):
    """'OK' or the name of the errno with which fn fails; an open descriptor it returns is closed."""
    try:
        value = fn(*args, **kw)
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e.errno))
    if hasattr(value, "close"):
        value.close()
    elif isinstance(value, int) and fn is os.open:
        os.close(value)
    return "OK"


def refused(want, what, fn, *args, **kw):
    """Fails unless fn fails with (one of) the named errno(s)."""
    want = (want,) if isinstance(want, str) else want
    got = outcome(fn, *args, **kw)
    true(got in want, f"{what}: {got} instead of {' or '.join(want)}")


def become(uid, gid=None, groups=(), keep_root=False):
    """Gives up root for `uid`; with keep_root the saved uid stays 0, so that as_root works."""
    os.setgroups(list(groups))
    gid = uid if gid is None else gid
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, 0 if keep_root else uid)


@contextlib.contextmanager
def as_root():
    """Root again for what the test rig itself needs (never for file operations under test)."""
    uid = os.geteuid()
    os.seteuid(0)
    try:
        yield
    finally:
        os.seteuid(uid)


def forked(fn):
    """Starts fn in a child; returns a function that waits for it and gives its value or raises what it raised."""
    r, w = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        os.close(r)
        status = 1
        try:
            answer = {"ok": fn()}
            status = 0
        except Skip as e:
            answer = {"skip": str(e)}
        except Failure as e:
            answer = {"failure": str(e)}
        except BaseException as e:  # told to the parent whatever it is
            where = traceback.extract_tb(e.__traceback__)[-1]
            answer = {"failure": f"{type(e).__name__}: {e} ({os.path.basename(where.filename)}:{where.lineno})"}
        with os.fdopen(w, "w") as f:
            json.dump(answer, f)
        os._exit(status)
    os.close(w)

    def wait():
        with os.fdopen(r) as f:
            text = f.read()
        os.waitpid(pid, 0)
        answer = json.loads(text) if text else {"failure": "a child ended without an answer"}
        if "skip" in answer:
            raise Skip(answer["skip"])
        if "failure" in answer:
            raise Failure(answer["failure"])
        return answer["ok"]

    wait.pid, wait.fd = pid, r
    return wait


def as_user(uid, fn, groups=(), gid=None):
    """The value of fn(), run in a child as `uid`."""

    def body():
        become(uid, gid, groups)
        return fn()

    return forked(body)()


def together(*bodies):
    """Runs all bodies at the same time in children; their values in order."""
    waits = [forked(body) for body in bodies]
    return [wait() for wait in waits]


class Host:
    """The control connection: host.stat("a/b"), host.server("crash", pause=2), ..."""

    def __init__(self, port):
        self.port, self.stream, self.owner = port, None, None

    def __getattr__(self, op):
        def call(*args, **kw):
            if args:
                kw.update(zip(SIGNATURES[op], args))
            # A connection is never shared over fork: answers would go to the wrong process.
            if self.owner != os.getpid():
                self.stream = socket.create_connection(("10.77.0.1", self.port)).makefile("rw")
                self.owner = os.getpid()
            self.stream.write(json.dumps({"op": op, "args": kw}) + "\n")
            self.stream.flush()
            line = self.stream.readline()
            true(line, "the control connection broke")
            answer = json.loads(line)
            if "errno" in answer:
                raise OSError(answer["errno"], "on the host: " + answer["error"])
            if "error" in answer:
                raise Failure("on the host: " + answer["error"])
            return answer["ok"]

        return call

    def content(self, rel, offset=0, length=1 << 20):
        """Bytes of a file of the backing directory."""
        return base64.b64decode(self.read(rel, offset, length))

    def put(self, rel, data, owner=ALICE):
        """Writes a file into the backing directory, behind the server's back."""
        self.write(rel, base64.b64encode(data).decode(), owner)


SIGNATURES = {
    "stat": ["rel"], "exists": ["rel"], "list": ["rel"], "readlink": ["rel"], "sum": ["rel"], "unlink": ["rel"],
    "manifest": ["rel", "meta"], "read": ["rel", "offset", "length"], "write": ["rel", "data", "owner"],
    "mkdir": ["rel", "mode"], "statvfs": ["rel"], "fill": ["leave"], "server": ["action"], "rmtree": ["rel"],
    "result": ["name", "status", "seconds", "detail"], "say": ["text"], "save": ["name", "text"], "alive": [],
}  # fmt: skip


class Bench:
    """What a check's body gets as `t`."""

    def __init__(self, check_, host, config):
        self.name, self.host, self.config = check_.name, host, config
        self.mount = "/mnt/nfs"
        self.dir = f"{self.mount}/{self.name}"
        self.tmp = f"/tmp/{self.name}"

    def path(self, *parts):
        """A path in this check's own folder on the main mount."""
        return os.path.join(self.dir, *parts)

    def other(self, mount, *parts):
        """The same folder through another mount declared by the check."""
        return os.path.join(f"/mnt/{mount}/{self.name}", *parts)

    def rel(self, *parts):
        """The same place as the host names it."""
        return os.path.join(self.name, *parts)

    def forget(self):
        """Empties the client's caches, so that what comes next is asked from the server."""
        os.sync()
        with as_root(), open("/proc/sys/vm/drop_caches", "w") as f:
            f.write("3")


def write(path, data=b"", mode=0o644, flags=os.O_WRONLY | os.O_CREAT | os.O_TRUNC):
    """Creates or replaces a file."""
    fd = os.open(path, flags, mode)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
    finally:
        os.close(fd)


def read(path):
    """All bytes of a file."""
    with open(path, "rb", buffering=0) as f:
        return f.readall()


def run(*argv, cwd=None, what=None, env=None):
    """Runs a program; fails with its last lines unless it exits 0. Returns its output."""
    done = subprocess.run(argv, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env)
    text = done.stdout.decode(errors="replace")
    if done.returncode:
        last = " / ".join(text.strip().splitlines()[-3:])
        raise Failure(f"{what or ' '.join(argv[:3])}: exit code {done.returncode}: {last}")
    return text


def pattern(size, seed):
    """`size` bytes that differ for each seed and repeat at no block size."""
    unit = bytes((i * 31 + seed * 17 + (i >> 8) * 7) & 255 for i in range(1021))
    return (unit * (size // 1021 + 1))[:size]
