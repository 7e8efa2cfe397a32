"""Control service: lets the checks in the guest look at the backing directory, change it behind the server's back,
and kill or restart the server. One JSON object a line, over TCP inside the private network namespace."""

import base64
import json
import os
import shutil
import socketserver
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "checks"))
import treesum  # noqa: E402

PORT = 20777


class Operations:
    """What a check may ask for. Paths are relative to the backing directory; every answer is JSON."""

    def __init__(self, export, server, report, out=None):
        self.export, self.server, self.report, self.out = export, server, report, out
        self.lock = threading.Lock()
        self.filler = os.path.join(export, ".filler")

    def path(self, rel):
        return os.path.join(self.export, rel)

    def do_stat(self, rel):
        st = os.lstat(self.path(rel))
        names = ("mode", "ino", "nlink", "uid", "gid", "size", "blocks", "rdev")
        out = {n: getattr(st, "st_" + n) for n in names}
        out.update(atime_ns=st.st_atime_ns, mtime_ns=st.st_mtime_ns, ctime_ns=st.st_ctime_ns)
        return out

    def do_exists(self, rel):
        return os.path.lexists(self.path(rel))

    def do_list(self, rel):
        return os.listdir(self.path(rel))

    def do_readlink(self, rel):
        return os.readlink(self.path(rel))

    def do_sum(self, rel):
        return treesum.file_sum(self.path(rel))

    def do_manifest(self, rel, meta=False):
        return treesum.manifest(self.path(rel), meta)

    def do_read(self, rel, offset, length):
        with open(self.path(rel), "rb") as f:
            f.seek(offset)
            return base64.b64encode(f.read(length)).decode()

    def do_write(self, rel, data, owner=1001):
        with open(self.path(rel), "wb") as f:
            f.write(base64.b64decode(data))
        os.chown(self.path(rel), owner, owner)

    def do_unlink(self, rel):
        os.unlink(self.path(rel))

    def do_mkdir(self, rel, mode):
        os.mkdir(self.path(rel))
        os.chmod(self.path(rel), mode)

    def do_statvfs(self, rel):
        st = os.statvfs(self.path(rel))
        return {n: getattr(st, "f_" + n) for n in ("frsize", "blocks", "bfree", "bavail", "files", "ffree")}

    def do_fill(self, leave):
        """Takes all space of the backing file system but `leave` bytes; only where that is the rig's own tmpfs."""
        if not os.path.ismount(self.export):
            return False
        st = os.statvfs(self.export)
        with open(self.filler, "wb") as f:
            os.posix_fallocate(f.fileno(), 0, st.f_bavail * st.f_frsize - leave)
        return True

    def do_unfill(self):
        os.unlink(self.filler)

    def do_server(self, action, mode=None, pause=0.0):
        """'crash' = kill, wait `pause` seconds, start again; 'restart' = end it kindly, start it in `mode`; 'start'."""
        with self.lock:
            if action == "crash":
                self.server.kill()
                time.sleep(pause)
            elif action == "restart":
                self.server.stop()
            elif action != "start":
                raise ValueError(action)
            self.server.start(mode)

    def do_alive(self):
        return self.server.check_alive()

    def do_result(self, name, status, seconds, detail):
        self.report(name, status, seconds, detail)

    def do_rmtree(self, rel):
        shutil.rmtree(self.path(rel))

    def do_say(self, text):
        print(text, flush=True)

    def do_save(self, name, text):
        """Stores a text of the guest's in the folder of results, where one was asked for."""
        with open(os.path.join(self.out, os.path.basename(name)), "w") as f:
            f.write(text)


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            call = json.loads(line)
            try:
                method = getattr(self.server.operations, "do_" + call["op"])
                answer = {"ok": method(**call.get("args", {}))}
            except OSError as e:
                answer = {"errno": e.errno, "error": str(e)}
            except Exception as e:  # the guest turns it into a failed check
                answer = {"error": f"{type(e).__name__}: {e}"}
            self.wfile.write(json.dumps(answer).encode() + b"\n")


class Control(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, operations):
        super().__init__(("10.77.0.1", PORT), Handler)
        self.operations = operations
        threading.Thread(target=self.serve_forever, daemon=True).start()
