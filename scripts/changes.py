#!/usr/bin/env python3
"""Says what has changed, so that checks which take long see that alone.

  scripts/changes.py base             the commit to compare with
  scripts/changes.py files            the files that differ from it, one a line
  scripts/changes.py contents CHECK PATH ...   "CHECK DIGEST" if the check has not passed with these very contents of the
                                               files and folders that follow
  scripts/changes.py tests CHECK NAME ...      a line "CHECK_NAME DIGEST" for each of these programs of tests/, each an
                                               aerie_test(NAME ...), that has not passed the check with what it reaches:
                                               its sources, the headers of tests/ behind them, the folders of src/ that
                                               these include, in turn, and the data beside them
  scripts/changes.py fuzzers NAME ...          likewise of fuzzers: each with its seeds
  scripts/changes.py --all contents|tests|fuzzers ...   whether they have passed or not
  scripts/changes.py keep < LINES     remembers that these, of the lines above, have passed
  scripts/changes.py keep-passed JUNIT < LINES   remembers it of those lines of tests all of whose tests passed in that
                                                 run, by the file that ctest --output-junit wrote
  scripts/changes.py keep-commit      remembers that the commit passed everything
  scripts/changes.py --self-test      checks itself

The base is AERIE_BASE if that is set, else where the branch left origin/main; on that very commit, the last one
before it that passed everything on this machine, else the last one that is six hours older than HEAD: what was
written in one sitting is looked at as a whole.
What has passed is remembered in $XDG_CACHE_HOME/aerie/passed (~/.cache), for all clones on this machine, and in
.ci/passed, which is committed, for all machines: the last contents that each check has passed with. CI=true leaves
that file alone.
"""

import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "aerie/passed"
RECORD = ".ci/passed"
KEPT = 2000  # entries for a check
BUILD_FILES = ("CMakeLists.txt", "CMakePresets.json", "cmake")
SITTING_SECONDS = 6 * 3600
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
AERIE_TEST = re.compile(r"\baerie_test\(\s*(\w+)([^()]*)\)")
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def git(*arguments, root=ROOT):
    """What git writes, or None where it fails."""
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, check=False)
    return done.stdout.decode() if done.returncode == 0 else None


def recorded(root=ROOT):
    """What .ci/passed says: of each check the contents that it passed with."""
    try:
        lines = (root / RECORD).read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        return {}
    found = {}
    for number, line in enumerate(lines, 1):
        words = line.split()
        if line.startswith("#") or not words:
            continue
        if len(words) != 2 or not re.fullmatch("[0-9a-f]{64}", words[1]):
            raise SystemExit(f"changes: {RECORD}, line {number} is not CHECK DIGEST; delete it, and the check runs again")
        found[words[0]] = words[1]
    return found


def entries(name):
    """What has passed the check on this machine, the oldest first."""
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


def record(passed, root=ROOT):
    """Remembers of each of these checks the contents that it passed with, here and for other machines."""
    for name, key in passed.items():
        remember(name, [key])
    if os.environ.get("CI") != "true":
        lines = [f"{name} {key}" for name, key in sorted((recorded(root) | passed).items())]
        text = "# What has passed with which contents: written by scripts/changes.py, to be committed.\n"
        (root / RECORD).write_text(text + "\n".join(lines) + "\n", encoding="ascii")


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


def sources_of(folder, root):
    return [path for path in sorted((root / folder).rglob("*")) if path.suffix in (".cc", ".h")]


def includes(path):
    return INCLUDE.findall(path.read_text(encoding="utf-8"))


def folders_below(folders, root):
    """These folders of src/ and all that their files include, in turn."""
    found, todo = set(), list(folders)
    while todo:
        folder = todo.pop()
        if folder not in found:
            found.add(folder)
            named = {name.split("/")[0] for path in sources_of(f"src/{folder}", root) for name in includes(path)}
            todo += [name for name in named if (root / "src" / name).is_dir()]
    return sorted(f"src/{folder}" for folder in found)


def reach(start, root=ROOT):
    """The files of tests/ that start there, the headers of tests/ behind them with the sources beside these, and the folders
    of src/ that all these include, in turn."""
    reached, todo, folders = set(), list(start), set()
    while todo:
        file = todo.pop()
        if file in reached or not (root / file).is_file():
            continue
        reached.add(file)
        for name in includes(root / file):
            if (root / name).is_file():
                todo += [name, str(pathlib.Path(name).with_suffix(".cc"))]
            elif (root / "src" / name).is_file():
                folders.add(name.split("/")[0])
    return [*sorted(reached), *folders_below(folders, root), *BUILD_FILES]


def reach_of_fuzzer(name, root=ROOT):
    short = name.removeprefix("fuzz_")
    return [*reach([f"tests/fuzz/{short}_fuzz.cc"], root), f"tests/fuzz/corpus/{short}"]


def programs(root=ROOT):
    """Of each program that an aerie_test() makes its folder and sources."""
    found = {}
    for listing in sorted((root / "tests").rglob("CMakeLists.txt")):
        folder = listing.parent.relative_to(root)
        for name, rest in AERIE_TEST.findall(listing.read_text(encoding="utf-8")):
            words = rest.split()
            sources = [word for word in words[words.index("SOURCES") + 1 :] if word.endswith(".cc")]
            if any(word.startswith("$") for word in words):
                sources = [path.name for path in sources_of(folder, root)]
            found[name] = (str(folder), [os.path.normpath(folder / source) for source in sources])
    return found


def reach_of_test(name, known, root=ROOT):
    if name not in known:
        raise SystemExit(f"changes: no CMakeLists.txt of tests/ has an aerie_test({name} ...)")
    folder, sources = known[name]
    data = [str(path.relative_to(root)) for path in sorted((root / folder).rglob("*"))
            if path.is_file() and path.suffix not in (".cc", ".h", ".py")]
    return [*reach(sources, root), *data]


def not_passed(keys, root=ROOT):
    """Of these checks with their contents those that have not passed."""
    committed = recorded(root)
    return {name: key for name, key in keys.items() if key != committed.get(name) and key not in entries(name)}


def keys_of_tests(check, names, root=ROOT):
    known = programs(root)
    return {f"{check}_{name}": digest(reach_of_test(name, known, root), root) for name in names}


def keys_of_fuzzers(names, root=ROOT):
    return {name: digest(reach_of_fuzzer(name, root), root) for name in names}


def passed_in(junit, lines):
    """Those lines all of whose program's tests, NAME or NAME_1, NAME_2 ..., passed in the run that ctest wrote there."""
    states = {}
    for case in xml.etree.ElementTree.parse(junit).getroot().iter("testcase"):
        states.setdefault(re.sub(r"_[0-9]+$", "", case.get("name")), set()).add(case.get("status"))
    return {name: key for name, key in lines.items() if states.get(name.split("_", 1)[1]) == {"run"}}


PLANTED = {
    "src/base/a.h": "", "src/base/a.cc": '#include "base/a.h"\n',
    "src/kv/k.h": '#include "base/a.h"\n', "src/model/m.h": '#include "kv/k.h"\n',
    "tests/testing/t.h": '#include "tests/testing/u.h"\n', "tests/testing/u.h": "", "tests/testing/u.cc": "",
    "tests/kv/k_test.cc": '#include "kv/k.h"\n#include "tests/testing/t.h"\n',
    "tests/kv/CMakeLists.txt": "aerie_test(kv\n  SOURCES k_test.cc ../model/batches.cc\n  DEPS aerie_kv)\n",
    "tests/kv/other_test.cc": "", "tests/kv/golden.json": "",
    "tests/model/batches.cc": "", "tests/model/m_test.cc": '#include "model/m.h"\n', "CMakeLists.txt": "",
}
# Whether the tests of kv have to run again where this file has changed.
REACHED = {
    "src/base/a.cc": True, "src/kv/k.h": True, "tests/testing/u.cc": True, "tests/kv/k_test.cc": True,
    "tests/model/batches.cc": True, "CMakeLists.txt": True, "tests/kv/golden.json": True,
    "tests/kv/new.json": True, "tests/kv/other_test.cc": False, "src/model/m.h": False,
    "tests/model/m_test.cc": False, "README.md": False,
}


def self_test():
    """Changes a file at a time in a planted tree and sees which of the changes undo that a check has passed."""
    global CACHE  # pylint: disable=global-statement
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        CACHE = root / "cache"
        (root / ".ci").mkdir()
        for name, text in PLANTED.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        assert git("init", "-q", root=root) is not None
        os.environ.pop("CI", None)
        assert list(not_passed(keys_of_tests("asan", ["kv"], root), root)) == ["asan_kv"]
        record(keys_of_tests("asan", ["kv"], root), root)
        for remembered in (CACHE / "asan_kv", root / RECORD):  # either is enough
            for name, expected in REACHED.items():
                before = (root / name).read_bytes() if (root / name).exists() else None
                (root / name).write_text("// changed\n", encoding="utf-8")
                again = "asan_kv" in not_passed(keys_of_tests("asan", ["kv"], root), root)
                assert again == expected, (name, again)
                (root / name).unlink() if before is None else (root / name).write_bytes(before)
                assert not not_passed(keys_of_tests("asan", ["kv"], root), root), name
                assert "tsan_kv" in not_passed(keys_of_tests("tsan", ["kv"], root), root)
            remembered.unlink()
        assert list(not_passed(keys_of_tests("asan", ["kv"], root), root)) == ["asan_kv"]
        os.environ["CI"] = "true"
        record(keys_of_tests("asan", ["kv"], root), root)
        assert not (root / RECORD).exists()
        (root / RECORD).write_text("<<<<<<< HEAD\n", encoding="ascii")
        try:
            recorded(root)
        except SystemExit as error:
            assert "line 1" in str(error), error
        else:
            raise AssertionError("a conflict was taken for a digest")
        (root / "junit.xml").write_text(
            '<testsuite><testcase name="kv_1" status="run"/><testcase name="kv_2" status="fail"/><testcase name="model_1" '
            'status="run"/><testcase name="model_2" status="run"/><testcase name="base" status="notrun"/></testsuite>')
        lines = {f"asan_{name}": "0" for name in ("kv", "model", "base", "absent")}
        assert list(passed_in(root / "junit.xml", lines)) == ["asan_model"]
    print(f"changes: the self-test tried {len(REACHED)} changes")


def main(arguments):
    everything = arguments[:1] == ["--all"]
    arguments = arguments[1:] if everything else arguments

    def lines():
        return dict(line.split() for line in sys.stdin if line.strip())

    def show(keys):
        for name, key in (keys if everything else not_passed(keys)).items():
            print(name, key)

    if arguments == ["base"]:
        print(base())
    elif arguments == ["files"]:
        print("\n".join(changed_files()))
    elif arguments == ["keep-commit"]:
        # Of a tree with changes of its own nothing is known later.
        if not git("status", "--porcelain"):
            remember("commits", git("rev-parse", "HEAD").split())
    elif arguments == ["--self-test"]:
        self_test()
    elif arguments == ["keep"]:
        record(lines())
    elif arguments[:1] == ["keep-passed"] and len(arguments) == 2:
        record(passed_in(arguments[1], lines()))
    elif arguments[:1] == ["contents"] and len(arguments) > 2:
        show({arguments[1]: digest(arguments[2:])})
    elif arguments[:1] == ["tests"] and len(arguments) > 2:
        show(keys_of_tests(arguments[1], arguments[2:]))
    elif arguments[:1] == ["fuzzers"]:
        show(keys_of_fuzzers(arguments[1:]))
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
