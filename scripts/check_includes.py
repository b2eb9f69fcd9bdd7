#!/usr/bin/env python3
"""Holds the folders to one direction of dependencies.

Reads every #include of the project's own files in include/, src/, bench/, tools/, train/ and python/, and the
aerie_* targets that each folder's CMakeLists.txt links, against the table below. A folder may include
itself, what its row names, and what those may include. Exits with 1 and one line for each violation.
"""

import argparse
import pathlib
import re
import sys
import tempfile

# folder -> the folders that its target links; what these link comes along.
TABLE = {
    "aerie": [],  # include/aerie: what others see
    "base": ["aerie"],
    "tensor": ["base"],
    "format": ["tensor"],
    "hub": ["format"],
    "core": ["tensor"],
    "jinja": ["format"],
    "tokenizer": ["jinja", "core"],
    "grammar": ["tokenizer"],
    "chat": ["grammar"],
    "kernels": ["tensor"],
    "kv": ["core", "kernels"],
    "model": ["format", "kv"],
    "parallel": ["model"],
    "sampling": ["core", "kernels"],
    "verify": ["sampling"],
    "draft": ["model", "sampling", "tokenizer"],
    "decode": ["draft", "verify"],
    "scheduler": ["decode"],
    "engine": ["scheduler", "chat", "hub", "parallel"],
    "report": ["format"],
    "measure": ["engine", "report"],
    "server": ["engine"],
}
# Programs outside src/: what they may include of it and of one another.
PROGRAMS = {
    "bench": ["engine"],
    "tools": ["engine", "server", "measure"],
    "train": ["engine", "measure"],
    "python": ["aerie"],  # the door alone, as programs outside the tree have it
}

SOURCES = {".cc", ".cpp", ".h", ".hpp", ".cu", ".cuh", ".inc"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
LIBRARY = re.compile(r"aerie_library\s*\(\s*(\w+)([^)]*)\)", re.DOTALL)
COMMENT = re.compile(r"#[^\n]*")


def closure(folders):
    """The folders and all that comes along with them."""
    reached, todo = set(), list(folders)
    while todo:
        folder = todo.pop()
        if folder not in reached:
            reached.add(folder)
            todo += (TABLE | PROGRAMS)[folder]
    return reached


def direct(row, present):
    """What a row stands for while some folders are not there yet: an absent one is its own row."""
    named = set()
    for folder in row:
        named |= {folder} if folder in present else direct(TABLE[folder], present)
    return named


def folder_of(path, root):
    """The table's name for the folder that a file lies in."""
    parts = path.relative_to(root).parts
    return parts[1] if parts[0] in ("include", "src") else parts[0]


def included_folder(name, quote, source, root):
    """(folder, error) of an include; (None, None) for what is not the project's."""
    beside = (source.parent / name).resolve()
    if quote == '"' and beside.is_file() and beside.is_relative_to(root):
        return folder_of(beside, root), None
    first = name.split("/")[0]
    if "/" in name and first in TABLE and (quote == '"' or (root / "src" / name).is_file()):
        return first, None
    if quote == '"' and "/" in name and first in PROGRAMS:
        return first, None
    if quote == "<":
        return None, None
    return None, f'"{name}" is no file of the project: write "folder/file.h", or <...> for others'


def check_file(source, root, problems):
    folder = folder_of(source, root)
    where = source.relative_to(root)
    if folder not in TABLE and folder not in PROGRAMS:
        problems.append(f"{where}:1: folder '{folder}' is not in the table of {__file__}")
        return
    allowed = closure([folder])
    lines = source.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        target, error = included_folder(match[2], match[1], source, root)
        if error:
            problems.append(f"{where}:{number}: {error}")
        elif target and target not in allowed:
            problems.append(
                f"{where}:{number}: {folder} must not include {match[2]}; "
                f"allowed: {', '.join(sorted(allowed))}"
            )


def check_links(folder, root, present, problems):
    """Each folder's target links what its row names: nothing else, and nothing is missing."""
    cmake = root / "src" / folder / "CMakeLists.txt"
    where = cmake.relative_to(root)
    if not cmake.is_file():
        problems.append(f"{where}:1: missing; {folder} needs a target")
        return
    libraries = dict(LIBRARY.findall(COMMENT.sub("", cmake.read_text(encoding="utf-8"))))
    if folder not in libraries:
        problems.append(f"{where}:1: no aerie_library({folder} ...)")
        return
    named = direct(TABLE[folder], present)
    rule = f"the table names {', '.join(sorted(named)) or 'nothing'}"
    links = set(re.findall(r"\baerie_(\w+)", libraries[folder]))
    for extra in sorted(links - named):
        problems.append(f"{where}:1: {folder} must not link {extra}; {rule}")
    for lacking in sorted(named - closure(links & named)):
        problems.append(f"{where}:1: {folder} does not link {lacking}; {rule}")


def check(root):
    root = root.resolve()
    problems = []
    tops = [root / "include", root / "src"] + [root / program for program in PROGRAMS]
    files = [f for top in tops if top.is_dir() for f in top.rglob("*") if f.suffix in SOURCES]
    for source in sorted(files):
        check_file(source, root, problems)
    present = {f for f in TABLE if any((root / "src" / f).glob("*"))}
    for folder in sorted(present):
        check_links(folder, root, present, problems)
    return problems, len(files)


def plant(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def self_test():
    """Plants trees that keep and that break the rules, and sees that the check tells them apart."""
    good = {
        "include/aerie/e.h": '#include <vector>\n#include "aerie/f.h"\n',
        "include/aerie/f.h": "",
        "src/base/a.h": '#include <vector>\n#include "aerie/f.h"\n',
        "src/base/CMakeLists.txt": "aerie_library(base SOURCES a.cc DEPS fmt::fmt)\n",
        "src/tensor/t.h": '#include "base/a.h"\n',
        "src/tensor/CMakeLists.txt": "aerie_library(tensor SOURCES t.cc\n  DEPS aerie_base)\n",
        "src/core/deep/c.cc": '#include "base/a.h"\n#include "c.h"\n#include "core/deep/c.h"\n',
        "src/core/deep/c.h": '// #include "draft/d.h"\n#include "tensor/t.h"\n',
        "src/core/CMakeLists.txt": "aerie_library(core SOURCES c.cc DEPS aerie_tensor)\n",
        "src/draft/d.h": '#include "core/deep/c.h"\n',
        # model, sampling and tokenizer are absent here: their rows stand in for them.
        "src/draft/CMakeLists.txt": "aerie_library(draft SOURCES d.cc DEPS aerie_core) # aerie_x\n",
        "tools/main.cc": '#include "draft/d.h"\n#include "helper.h"\n#include "tools/helper.h"\n',
        "train/b.cc": '#include "draft/d.h"\n',
        "bench/b.h": '#include "draft/d.h"\n',
        "tools/helper.h": "",
        "python/src/b.cc": '#include "aerie/e.h"\n#include "b.h"\n',
        "python/src/b.h": "",
    }
    bad = [
        ({"include/aerie/g.h": '#include "base/a.h"\n'}, "aerie must not include base/a.h"),
        ({"src/base/b.cc": '\n#include "tensor/t.h"\n'}, "src/base/b.cc:2: base must not include"),
        ({"src/tensor/b.cc": "#include <core/deep/c.h>\n"}, "src/tensor/b.cc:1: tensor must not"),
        ({"src/core/b.cc": '#  include "draft/d.h"\n'}, "must not include draft/d.h; allowed:"),
        ({"src/core/b.cc": '#include "../draft/d.h"\n'}, "core must not include ../draft/d.h"),
        ({"src/core/b.cc": '#include "lost.h"\n'}, '"lost.h" is no file of the project'),
        ({"src/verify/b.cc": '#include "model/m.h"\n'}, "verify must not include model/m.h"),
        ({"src/base/b.cc": '#include "server/s.h"\n'}, "base must not include server/s.h"),
        ({"src/base/b.cc": '#include "tools/helper.h"\n'}, "base must not include tools/helper.h"),
        ({"bench/b.cc": '#include "tools/helper.h"\n'}, "bench must not include tools/helper.h"),
        ({"tools/c.cc": '#include "bench/b.h"\n'}, "tools must not include bench/b.h"),
        ({"train/c.cc": '#include "tools/helper.h"\n'}, "train must not include tools/helper.h"),
        ({"python/src/c.cc": '#include "base/a.h"\n'}, "python must not include base/a.h"),
        ({"src/odd/b.cc": ""}, "folder 'odd' is not in the table"),
        ({"src/core/CMakeLists.txt": "aerie_library(core DEPS aerie_tensor aerie_draft)"},
         "core must not link draft; the table names tensor"),
        ({"src/core/CMakeLists.txt": "aerie_library(core SOURCES c.cc)"}, "not link tensor; the"),
        ({"src/core/CMakeLists.txt": ""}, "no aerie_library(core"),
    ]
    for planted, expected in [({}, None)] + bad:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            plant(root, good | planted)
            problems, _ = check(root)
            if expected is None:
                assert problems == [], problems
            else:
                assert any(expected in p for p in problems), (expected, problems)
    print(f"check_includes: the self-test found all {len(bad)} planted mistakes")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--self-test", action="store_true", help="check the checker itself")
    if parser.parse_args().self_test:
        self_test()
        return 0
    problems, files = check(pathlib.Path(__file__).resolve().parent.parent)
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"check_includes: {files} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
