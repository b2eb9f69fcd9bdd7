#!/usr/bin/env python3
"""Finds the tests that were skipped in a run of ctest, and holds them against a list of those that may be.

  scripts/skips.py [--strict] --list FILE BUILD

Reads what ctest left in BUILD (ctest.log, what it printed, and Testing/Temporary/LastTest.log, what the tests
printed): whole tests that ctest calls skipped or not run, GoogleTest's and pytest's. A line of the list is
    NAME | MESSAGE | REASON
with patterns of the shell's kind for the test's name and for what it says, and why it may be left out.
Prints how many tests each reason covers, and the others; with --strict these are an error.
"""

import argparse
import collections
import contextlib
import fnmatch
import io
import pathlib
import re
import sys
import tempfile

WHOLE = re.compile(r"Test +#\d+: (\S+) \.*\s*\*\*\*(Skipped|Not Run[^\d]*)")
# GoogleTest says where, then why, then which.
WHY = re.compile(r"^\S+:\d+: Skipped$")
WHICH = re.compile(r"^\[  SKIPPED \] (\S+)(?:, where .*)? \(\d+ ms\)$")
PYTEST = re.compile(r"^SKIPPED \[(\d+)\] ([^:\s]+)(?::\d+)?: (.*)$")


def read_list(text):
    """[(name, message, reason)]"""
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = [field.strip() for field in line.split("|")]
        if len(fields) != 3 or not all(fields):
            raise ValueError(f"line {number} is not NAME | MESSAGE | REASON")
        entries.append(tuple(fields))
    return entries


def skipped(printed, last):
    """[(name, message)] from what ctest printed and from what the tests did."""
    found = [(name, how.strip()) for name, how in WHOLE.findall(printed)]
    message, in_message = [], False
    for line in last.splitlines():
        if WHY.match(line):
            message, in_message = [], True
        elif match := WHICH.match(line):
            found.append((match[1], " ".join(message).strip()))
            message, in_message = [], False
        elif match := PYTEST.match(line):
            found += [(match[2], match[3])] * int(match[1])
        elif in_message:
            message.append(line)
    return found


def sort_out(found, entries):
    """(reason -> number, the others)"""
    named, others = collections.Counter(), []
    for name, message in found:
        for name_glob, message_glob, reason in entries:
            if fnmatch.fnmatchcase(name, name_glob) and fnmatch.fnmatchcase(message, message_glob):
                named[reason] += 1
                break
        else:
            others.append((name, message))
    return named, others


def self_test():
    printed = ("      Start 1: base\n 1/2 Test #1: base .......   Passed    0.1 sec\n"
               " 2/2 Test #2: server_clients ......***Skipped   0.0 sec\n"
               " 3/3 Test #31: gone ......***Not Run   0.0 sec\n")
    last = ("[ RUN      ] A.B/avx512\n../a_test.cc:7: Skipped\nthis processor lacks avx512\n\n"
            "[  SKIPPED ] A.B/avx512 (0 ms)\n[ RUN      ] C.D\na.cc:8: Skipped\nmodel.gguf is missing\n"
            "[  SKIPPED ] C.D, where GetParam() = 3 (1 ms)\n[  SKIPPED ] 2 tests, listed below:\n"
            "[  SKIPPED ] A.B/avx512\n[  SKIPPED ] C.D\n[       OK ] X.Skipped (0 ms)\n"
            "SKIPPED [2] tests/test_page.py:50: there is no Chromium: name one\n")
    entries = read_list("# why\n* | this processor lacks * | other processors\n\n")
    named, others = sort_out(skipped(printed, last), entries)
    assert named == {"other processors": 1}, named
    assert [name for name, _ in others] == ["server_clients", "gone", "C.D"] + ["tests/test_page.py"] * 2, others
    assert others[2][1] == "model.gguf is missing", others
    try:
        read_list("* | this processor lacks *\n")
    except ValueError:
        pass
    else:
        raise AssertionError("a line without a reason was taken")
    with tempfile.TemporaryDirectory() as folder:
        build = pathlib.Path(folder)
        (build / "Testing/Temporary").mkdir(parents=True)
        (build / "Testing/Temporary/LastTest.log").write_text(last, encoding="utf-8")
        (build / "ctest.log").write_text(printed, encoding="utf-8")
        (build / "list").write_text("*|*lacks*|other processors", encoding="utf-8")
        with contextlib.redirect_stdout(io.StringIO()):
            assert run(build, build / "list", strict=False) == 0
            assert run(build, build / "list", strict=True) == 1
            (build / "list").write_text("*|*|all of them", encoding="utf-8")
            assert run(build, build / "list", strict=True) == 0
    print("skips: the self-test passed")


def run(build, list_file, strict):
    try:
        entries = read_list(list_file.read_text(encoding="utf-8"))
        found = skipped((build / "ctest.log").read_text(encoding="utf-8", errors="replace"),
                        (build / "Testing/Temporary/LastTest.log").read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError) as error:
        print(f"skips: {list_file}: {error}", file=sys.stderr)
        return 1
    named, others = sort_out(found, entries)
    for reason, count in sorted(named.items()):
        print(f"left out: {count} tests: {reason}")
    for name, message in others:
        print(f"skipped, and not named in {list_file}: {name}: {message or 'no reason given'}")
    print(f"{len(found)} tests skipped, {len(others)} of them not named in {list_file.name}")
    return 1 if others and strict else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--self-test", action="store_true", help="check the checker itself")
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--list", type=pathlib.Path)
    parser.add_argument("build", type=pathlib.Path, nargs="?")
    options = parser.parse_args()
    if options.self_test:
        self_test()
        return 0
    if not options.list or not options.build:
        parser.error("--list FILE BUILD")
    return run(options.build, options.list, options.strict)


if __name__ == "__main__":
    sys.exit(main())
