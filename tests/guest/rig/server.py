"""The NFS server under test: how it is started, killed, restarted and asked whether it answers."""

import os
import shlex
import signal
import socket
import struct
import subprocess
import time

NFS_PROGRAM = 100003
LISTEN = "10.77.0.1"


def rpc_null(port, program=NFS_PROGRAM, version=3, timeout=2.0):
    """True if a NULL call over TCP is answered with success (RFC 5531)."""
    call = struct.pack(">10I", 0x67756573, 0, 2, program, version, 0, 0, 0, 0, 0)
    try:
        with socket.create_connection((LISTEN, port), timeout=timeout) as s:
            s.settimeout(timeout)
            s.sendall(struct.pack(">I", 0x80000000 | len(call)) + call)
            answer = b""
            while len(answer) < 28:
                got = s.recv(28 - len(answer))
                if not got:
                    return False
                answer += got
    except OSError:
        return False
    # fragment header, xid, REPLY, MSG_ACCEPTED, verifier flavor and length (0), SUCCESS
    return struct.unpack(">7I", answer)[2:4] == (1, 0) and answer[24:28] == b"\0\0\0\0"


class Server:
    """One server process. Subclasses give the command line; everything else is common."""

    name = "server"
    port = 2049
    mountport = 2049
    start_limit = 20.0
    mount_options = ""
    # {check: reason} of what this server is known to fail; reported as skipped, with the reason.
    known_failures = {}

    def __init__(self, export, state, log_path):
        self.export = export
        self.state = state
        self.log_path = log_path
        self.process = None
        self.mode = "default"
        self.surprises = []

    def command(self, mode):
        """The argument list that serves `export` in `mode`: 'default', 'nosquash', 'squashall' or 'readonly'."""
        raise NotImplementedError

    def prepare(self):
        """What has to run or exist once before the first start."""

    def start(self, mode=None):
        """Starts the server, in the mode of before if none is given, and waits until it answers; RuntimeError if it
        does not."""
        self.mode = mode or self.mode
        argv = self.command(self.mode)
        with open(self.log_path, "ab") as log:
            log.write(f"--- start: {shlex.join(argv)}\n".encode())
            log.flush()
            self.process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + self.start_limit
        while not (rpc_null(self.port) and (self.port == self.mountport or rpc_null(self.mountport, 100005))):
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended at once with code {self.process.returncode}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"the server does not answer on port {self.port}")
            time.sleep(0.05)

    def check_alive(self):
        """Records an end nobody asked for; returns whether the process runs."""
        if self.process is None:
            return False
        code = self.process.poll()
        if code is not None:
            self.surprises.append(f"ended by itself with code {code}")
            self.process = None
        return code is None

    def kill(self):
        """SIGKILL, as a crash would end it."""
        if self.check_alive():
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def stop(self):
        """SIGTERM; the exit must come within 10 s and not be by a signal or a panic."""
        if not self.check_alive():
            return
        self.process.terminate()
        try:
            code = self.process.wait(10)
            if code not in (0, -signal.SIGTERM):
                self.surprises.append(f"exit code {code} after SIGTERM")
        except subprocess.TimeoutExpired:
            self.surprises.append("still running 10 s after SIGTERM")
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.process = None

    def usage(self):
        """Open descriptors, resident memory (KiB) and CPU time (s) of the running server."""
        base = f"/proc/{self.process.pid}"
        with open(f"{base}/status") as f:
            rss = next((int(line.split()[1]) for line in f if line.startswith("VmRSS")), 0)
        with open(f"{base}/stat") as f:
            ticks = f.read().rsplit(")", 1)[1].split()[11:13]
        return len(os.listdir(f"{base}/fd")), rss, sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")

    def log_faults(self):
        """Lines of the server's log that tell of a fault whatever the checks saw."""
        with open(self.log_path, errors="replace") as f:
            return [line.strip() for line in f if "panicked at" in line or "AddressSanitizer" in line]


class Nfsd(Server):
    """The project's own server: NFS and MOUNT on one port."""

    name = "nfsd"

    def __init__(self, *args, binary):
        super().__init__(*args)
        self.binary = binary

    def command(self, mode):
        argv = [self.binary, self.export, "--clients", "10.77.0.0/24"]
        for proto in ("tcp", "udp"):
            argv += ["--listen", f"{proto}://0.0.0.0:{self.port}"]
        # Not "auto": a socket of this machine's rpcbind may be in sight.
        argv += ["--state-dir", self.state, "--rpcbind", "embedded"]
        # Root squash is the default and is tested as such: it is never asked for.
        more = {"nosquash": ["--squash", "none"], "squashall": ["--squash", "all"], "readonly": ["--read-only"]}
        return argv + more.get(mode, [])


class Ganesha(Server):
    """nfs-ganesha with its VFS backend, the reference the checks were written against."""

    name = "ganesha"
    mountport = 20048
    start_limit = 60.0
    # Its NFSACL SETACL fails ("Bad xdr_free" in its log), which turns every `cp -a` into EIO.
    mount_options = "noacl"
    known_failures = {
        "suidtruncate": "SETATTR of the size leaves set-user-id as it is; so does the Linux kernel's server",
        "linktimes": "SETATTR of a symbolic link's times sets them to now",
    }

    def prepare(self):
        for path in ("/run", "/var/lib/nfs"):
            subprocess.run(["mount", "-t", "tmpfs", "tmpfs", path], check=True)
        for path in ("/run/ganesha", "/run/rpcbind", "/var/lib/nfs/ganesha"):
            os.makedirs(path)
        self.rpcbind = subprocess.Popen(
            ["rpcbind", "-w", "-f"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", 111), timeout=1).close()
                return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError("rpcbind does not answer")

    def command(self, mode):
        squash = {"nosquash": "no_root_squash", "squashall": "all_squash"}.get(mode, "root_squash")
        access = "RO" if mode == "readonly" else "RW"
        config = os.path.join(self.state, "ganesha.conf")
        with open(config, "w") as f:
            f.write(
                f"NFS_CORE_PARAM {{ NFS_Port = {self.port}; MNT_Port = {self.mountport}; Protocols = 3;\n"
                "  Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false;\n"
                # Of version 5 and later; 4 warns that it does not know it.
                "  Allow_Set_Io_Flusher_Fail = true; }\n"
                "NFS_KRB5 { Active_krb5 = false; }\n"
                "LOG { Default_Log_Level = WARN; }\n"
                f'EXPORT {{ Export_Id = 7; Path = "{self.export}"; Pseudo = "/e"; Access_Type = {access};\n'
                f"  Squash = {squash};\n"
                "  Anonymous_Uid = 65534; Anonymous_Gid = 65534; SecType = sys; Protocols = 3; Transports = TCP;\n"
                # Otherwise changes made on the host stay unseen for a minute.
                "  Attr_Expiration_Time = 0;\n"
                "  FSAL { Name = VFS; } }\n"
            )
        return ["ganesha.nfsd", "-F", "-f", config, "-L", "/dev/stderr", "-p", "/run/ganesha/pid", "-N", "NIV_WARN"]

    def stop(self):
        # It needs many seconds to leave on SIGTERM and has nothing left to write here.
        self.kill()
