"""Manifest of a directory tree: what is where, with checksums. Used by the rig (backing directory) and the guest."""

import hashlib
import os
import stat


def file_sum(path):
    """SHA-256 of a file's bytes, as hex."""
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as f:
        while True:
            block = f.read(1 << 20)
            if not block:
                return digest.hexdigest()
            digest.update(block)


def manifest(root, meta=False):
    """{relative path: [kind, detail...]} of everything below `root`; with `meta` also mode, mtime in s and link count.

    The modification time of a directory is left out: it tells when the copy was made.
    """
    out = {}
    todo = [""]
    while todo:
        rel = todo.pop()
        for entry in os.scandir(os.path.join(root, rel)):
            name = os.path.join(rel, entry.name)
            st = entry.stat(follow_symlinks=False)
            if stat.S_ISLNK(st.st_mode):
                row = ["link", os.readlink(entry.path)]
            elif stat.S_ISDIR(st.st_mode):
                row = ["dir"]
                todo.append(name)
            elif stat.S_ISREG(st.st_mode):
                row = ["file", st.st_size, file_sum(entry.path)]
            else:
                row = ["other", stat.S_IFMT(st.st_mode)]
            if meta and row[0] != "link":
                row.append(stat.S_IMODE(st.st_mode))
                if row[0] == "file":
                    row += [int(st.st_mtime), st.st_nlink]
            out[name] = row
    return out


def difference(got, want):
    """A short text that names the first differences, or '' if both manifests agree."""
    lost = sorted(set(want) - set(got))
    extra = sorted(set(got) - set(want))
    other = sorted(k for k in set(got) & set(want) if list(got[k]) != list(want[k]))
    parts = []
    if lost:
        parts.append(f"{len(lost)} missing, first {lost[0]!r}")
    if extra:
        parts.append(f"{len(extra)} unexpected, first {extra[0]!r}")
    if other:
        parts.append(f"{len(other)} differ, first {other[0]!r}: {got[other[0]]} instead of {want[other[0]]}")
    return "; ".join(parts)
