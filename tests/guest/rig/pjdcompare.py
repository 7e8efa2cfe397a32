"""Compares two outputs of pjdfstest: what passes on the backing file system must pass through the mount, but for a list
of exceptions, each with its reason.

pjdcompare.py BACKING MOUNT EXPECTED; exit code 0 if nothing else fails, 1 otherwise.
"""

import re
import sys

RESULT = re.compile(r"^(\S+::\S+)\s+(ok|FAILED|skipped)\s*$")
SUMMARY = re.compile(r"^Summary: .*?(\d+) total$")


def results(path):
    """{test: (result, what it said)} and the total that the suite claims, None if it did not come to its end."""
    out, total, name = {}, None, None
    with open(path, errors="replace") as f:
        for line in f:
            if match := RESULT.match(line):
                name = match[1]
                out[name] = (match[2], [])
            elif match := SUMMARY.match(line):
                total, name = int(match[1]), None
            elif name and line.startswith(("\t", " ")):
                out[name][1].append(line.strip())
    return {k: (result, " / ".join(said)) for k, (result, said) in out.items()}, total


def exceptions(path):
    """{test: reason}; every line needs its reason."""
    out = {}
    with open(path) as f:
        for number, line in enumerate(f, 1):
            if line.strip() and not line.startswith("#"):
                name, _, reason = line.strip().partition(" ")
                if not reason.strip():
                    sys.exit(f"{path}:{number}: {name} has no reason")
                out[name] = reason.strip()
    return out


def count(tests):
    values = [result for result, _ in tests.values()]
    return f"{values.count('ok')} passed, {values.count('FAILED')} failed, {values.count('skipped')} skipped"


def main():
    (backing, backing_total), (mount, mount_total) = results(sys.argv[1]), results(sys.argv[2])
    expected = exceptions(sys.argv[3])
    wrong = known = 0
    for title, tests, total in (("backing file system", backing, backing_total), ("NFSv3 mount", mount, mount_total)):
        print(f"pjdfstest: {title}: {count(tests)}")
        if total is None or total != len(tests) or not total:
            print(f"FAIL pjdfstest the run on the {title} is not whole: {len(tests)} results of {total}")
            wrong += 1
    for name in sorted(backing):
        result, said = mount.get(name, ("missing", ""))
        if backing[name][0] != "ok" or result == "ok":
            if name in expected and result == "ok":
                print(f"note {name} passes; its line in the list of exceptions may go")
            continue
        if name in expected:
            known += 1
            print(f"known {name}: {expected[name]}")
        else:
            wrong += 1
            print(f"FAIL {name} {result}: {said}" if said else f"FAIL {name} {result}")
    for name in expected:
        if name not in backing:
            print(f"note {name} is in the list of exceptions but not in the suite")
    print(f"pjdfstest: {known} known differences, {wrong} unexpected")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
