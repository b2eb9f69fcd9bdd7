#!/usr/bin/env python3
"""Says what has changed, so that checks which take long see that alone.

  scripts/changes.py base             the commit to compare with
  scripts/changes.py files            the files that differ from it, one a line
  scripts/changes.py passed NAME ...  0 if the check NAME has passed with these very contents of the files and
                                      folders that follow, else 1
  scripts/changes.py keep NAME ...    remembers that it has
  scripts/changes.py fuzzers NAME ... of these fuzzers the ones that have not passed with what they reach:
                                      their own source and seeds, and the folders of src/ that these include
  scripts/changes.py keep-fuzzers NAME ...   remembers that these have
  scripts/changes.py keep-commit             remembers that the commit passed everything

The base is AERIE_BASE if that is set, else where the branch left origin/main; on that very commit, the last one
before it that passed everything on this machine, else the last one that is six hours older than HEAD: what was
written in one sitting is looked at as a whole.
What has passed is remembered in $XDG_CACHE_HOME/aerie/passed (~/.cache), for all clones.
"""

import hashlib
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "aerie/passed"
KEPT = 2000  # entries for a check
SITTING_SECONDS = 6 * 3600
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def git(*arguments, root=ROOT):
    """What git writes, or None where it fails."""
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, check=False)
    return done.stdout.decode() if done.returncode == 0 else None


def entries(name):
    """What has passed the check, the oldest first."""
    try:
        return (CACHE / name).read_text(encoding="ascii").split()
    except FileNotFoundError:
        return []


def remember(name, new):
    CACHE.mkdir(parents=True, exist_ok=True)
    kept = [entry for entry in entries(name) if entry not in set(new)] + list(new)
    beside = CACHE / f".{name}.{os.getpid()}"
    beside.write_text("\n".join(kept[-KEPT:]) + "\n", encoding="ascii")
    beside.replace(CACHE / name)


def digest(paths, root=ROOT):
    """Of the names and contents of all files there that git knows or would take."""
    listed = git("ls-files", "-z", "-co", "--exclude-standard", "--", *paths, root=root)
    if listed is None:
        raise SystemExit("changes: this is no git repository")
    total = hashlib.sha256()
    for name in sorted(set(filter(None, listed.split("\0")))):
        path = root / name
        if path.is_file():
            total.update(name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def base(root=ROOT):
    if os.environ.get("AERIE_BASE"):
        return os.environ["AERIE_BASE"]
    head = (git("rev-parse", "HEAD", root=root) or "").strip()
    if not head:
        return EMPTY_TREE
    merge = (git("merge-base", "HEAD", "origin/main", root=root) or "").strip()
    if merge and merge != head:
        return merge
    passed = set(entries("commits")) - {head}
    for commit in (git("rev-list", "-n", "1000", "HEAD", root=root) or "").split():
        if commit in passed:
            return commit
    when = int(git("show", "-s", "--format=%ct", "HEAD", root=root) or 0)
    older = git("rev-list", "-n", "1", f"--before={when - SITTING_SECONDS}", "HEAD", root=root)
    return (older or "").strip() or EMPTY_TREE


def changed_files(since=None, root=ROOT):
    """The files whose contents differ from that commit's, without those that only moved or whose headers did."""
    since = since or base(root)
    # Where only the lines differ that name headers, nothing is said of the file itself.
    listed = git("diff", "--numstat", "-z", "-M", "-l0", r"-I^#\s*include", since, "--", root=root)
    if listed is None:
        raise SystemExit(f"changes: git knows no {since}")
    fields, changed = listed.split("\0"), set()
    while fields and fields[0]:
        added, removed, name = fields.pop(0).split("\t")
        if not name:  # moved: the old and the new name follow
            name = fields[1]
            del fields[:2]
        if (added, removed) != ("0", "0") and (root / name).is_file():
            changed.add(name)
    untracked = git("ls-files", "-z", "-o", "--exclude-standard", root=root) or ""
    return sorted(changed | set(filter(None, untracked.split("\0"))))


def reach_of_fuzzer(name, root=ROOT):
    """Its source with the headers of tests/ behind it, its seeds, and the folders of src/ that these include."""
    short = name.removeprefix("fuzz_")
    reached, todo, folders = set(), [f"tests/fuzz/{short}_fuzz.cc"], set()
    while todo:
        file = todo.pop()
        if file in reached:
            continue
        reached.add(file)
        for header in INCLUDE.findall((root / file).read_text(encoding="utf-8")):
            if (root / header).is_file():
                todo.append(header)
            elif (root / "src" / header).is_file():
                folders.add("src/" + header.split("/")[0])
    return [*sorted(reached), f"tests/fuzz/corpus/{short}", *sorted(folders)]


def main(arguments):
    if arguments == ["base"]:
        print(base())
    elif arguments == ["files"]:
        print("\n".join(changed_files()))
    elif arguments == ["keep-commit"]:
        # Of a tree with changes of its own nothing is known later.
        if not git("status", "--porcelain"):
            remember("commits", git("rev-parse", "HEAD").split())
    elif arguments[:1] in (["passed"], ["keep"]) and len(arguments) > 2:
        key = digest(arguments[2:])
        if arguments[0] == "passed":
            return 0 if key in entries(arguments[1]) else 1
        remember(arguments[1], [key])
    elif arguments[:1] == ["fuzzers"]:
        for name in arguments[1:]:
            if digest(reach_of_fuzzer(name)) not in entries(name):
                print(name)
    elif arguments[:1] == ["keep-fuzzers"]:
        for name in arguments[1:]:
            remember(name, [digest(reach_of_fuzzer(name))])
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
