#!/usr/bin/env python3
"""Runs clang-tidy over the project's sources.

  scripts/tidy.py [-j N]            what differs from the base of scripts/changes.py
  scripts/tidy.py [-j N] FILE ...   these
  scripts/tidy.py [-j N] --all      all

Files are looked at in the batches in which they are compiled: most of the time goes into the headers of others, which
a batch reads once. A header is seen by way of its own .cc, or else of the first that includes it. What has passed with
the same contents of all that it includes and the same .clang-tidy is not looked at again. Exits with 1 and what was
found, also where clang-tidy did not come to an end.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

import changes

ROOT = changes.ROOT
BUILD = ROOT / "build/tidy"
FOLDERS = ("src", "include", "tools", "bench", "train", "tests")
TIDY = "clang-tidy-19"
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Sources:
    """What is compiled with what, what includes what, and what a file's contents amount to."""

    def __init__(self, build):
        commands = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
        own = set(self._own(FOLDERS))
        self.batches = {}  # of what the compiler is given, the project's files in it
        self.torch = set()  # what is compiled with LibTorch
        for entry in commands:
            path = pathlib.Path(entry["directory"], entry["file"]).resolve()
            files = {str(file.relative_to(ROOT)) for file in self._files(path) if file.is_relative_to(ROOT)} & own
            if files:
                batch = str(path.relative_to(ROOT))
                self.batches[batch] = sorted(files)
                if "torch/csrc/api" in entry.get("command", ""):
                    self.torch.add(batch)
        self.compiled = sorted(set().union(*self.batches.values()))
        self._direct, self._closure, self._sum = {}, {}, {}
        self._settings = "".join(self._sha(name) for name in self._own(["*.clang-tidy", ".clang-tidy"]))

    @staticmethod
    def _files(path):
        """The files of a batch that CMake made; else the file itself."""
        if path.parent.name != "Unity":
            return [path]
        included = re.findall(r'^#include "(.+)"', path.read_text(encoding="utf-8"), re.MULTILINE)
        return [pathlib.Path(name).resolve() for name in included]

    @staticmethod
    def _own(paths):
        listed = changes.git("ls-files", "-z", "-co", "--exclude-standard", "--", *paths)
        return sorted(set(filter(None, (listed or "").split("\0"))))

    def _sha(self, name):
        if name not in self._sum:
            self._sum[name] = hashlib.sha256((ROOT / name).read_bytes()).hexdigest()
        return self._sum[name]

    def _includes(self, name):
        if name not in self._direct:
            text = (ROOT / name).read_text(encoding="utf-8", errors="replace")
            found = set()
            for header in INCLUDE.findall(text):
                for place in (pathlib.PurePosixPath(name).parent, "src", "include", "."):
                    path = os.path.normpath(f"{place}/{header}")
                    if (ROOT / path).is_file():
                        found.add(path)
                        break
            self._direct[name] = found
        return self._direct[name]

    def reach(self, name):
        """The file and all of the project's that it includes, directly or not."""
        if name not in self._closure:
            reached, todo = set(), [name]
            while todo:
                one = todo.pop()
                if one not in reached:
                    reached.add(one)
                    todo += self._includes(one)
            self._closure[name] = reached
        return self._closure[name]

    def key(self, batch):
        reached = set().union(*(self.reach(name) for name in self.batches[batch]))
        text = self._settings + "".join(one + self._sha(one) for one in sorted(reached))
        return hashlib.sha256(text.encode()).hexdigest()

    def by_way_of(self, header):
        """The compiled file that shows a header to clang-tidy, or None."""
        beside = str(pathlib.PurePosixPath(header).with_suffix(".cc"))
        if beside in self.compiled:
            return beside
        return next((name for name in self.compiled if header in self.reach(name)), None)


def chosen(sources, names):
    """(batches to look at, files that nothing compiles here)"""
    wanted, unseen = set(), []
    for name in names:
        path = pathlib.PurePosixPath(name)
        if path.parts[0] not in FOLDERS or path.suffix not in (".cc", ".h", ".inc"):
            continue
        file = name if name in sources.compiled else None
        if path.suffix != ".cc":
            file = sources.by_way_of(name)
        if file is None:
            unseen.append(name)
        else:
            wanted.add(file)
    return sorted(batch for batch, files in sources.batches.items() if wanted & set(files)), unseen


def look_at(batch, with_torch):
    """(whether all is well, what was said)"""
    # The commands are GCC's, with switches that clang does not know.
    command = [TIDY, "-quiet", "-p", str(BUILD), "-extra-arg=-Wno-unknown-warning-option",
               "-extra-arg=-Wno-deprecated-declarations"]
    if with_torch:
        # LibTorch 1.13's own headers use IValue before it is complete, which clang takes amiss in C++20
        # unless this one comes first.
        command += ["-extra-arg=-include", "-extra-arg=ATen/core/ivalue.h"]
    done = subprocess.run(
        [*command, str(ROOT / batch)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    said = COLOUR.sub("", done.stdout.decode(errors="replace"))
    lines = [line for line in said.splitlines() if not re.match(r"\d+ warnings? generated", line)]
    found = any(re.search(r"(error|warning):", line) for line in lines)
    return done.returncode == 0 and not found, "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("-j", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--all", action="store_true")
    parser.add_argument("files", nargs="*")
    options = parser.parse_args()
    # Clang reads no precompiled headers of GCC's.
    subprocess.run(["cmake", "--preset", "tidy"], cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    sources = Sources(BUILD)
    if options.all:
        names, why = sources.compiled, "all"
    elif options.files:
        names, why = [os.path.relpath(pathlib.Path(file).resolve(), ROOT) for file in options.files], "named"
    else:
        since = changes.base()
        names = changes.changed_files(since)
        why = f"changed since {since[:12]}"
    wanted, unseen = chosen(sources, names)
    passed = set(changes.entries("tidy"))
    todo = [batch for batch in wanted if sources.key(batch) not in passed]
    print(f"tidy: {len(wanted)} batches ({why}), {len(wanted) - len(todo)} of them passed before as they are",
          flush=True)
    for name in unseen:
        print(f"tidy: {name}: not compiled here, not looked at")
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(max(1, options.j)) as pool:
        work = {pool.submit(look_at, batch, batch in sources.torch): batch for batch in todo}
        for future in concurrent.futures.as_completed(work):
            batch, (well, said) = work[future], future.result()
            if well:
                # At once: who is interrupted goes on from there.
                changes.remember("tidy", [sources.key(batch)])
            else:
                bad += 1
                print(f"{said}\ntidy: {batch}: failed", flush=True)
    print(f"tidy: {len(todo)} looked at, {bad} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
