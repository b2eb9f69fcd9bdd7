#!/usr/bin/env python3
"""Holds the tree to sizes that a reader can take in.

  - A folder has at most 25 files besides its CMakeLists.txt.
  - A function of src/, bench/, tools/, train/ or python/ has at most 60 lines, a kernel 150 (its braces and what is
    between them).
  - No two headers have one name.
  - A test's names are in a namespace of its file, since tests are compiled in batches.
  - Of the files that include one another in a circle, a .h with its .cc taken as one, there are at most two.

Exceptions stand below, each with its reason. Exits with 1 and one line for each violation.
"""

import argparse
import collections
import fnmatch
import pathlib
import re
import subprocess
import sys
import tempfile

MAX_FILES = 25
MAX_LINES = 60
MAX_KERNEL_LINES = 150
MAX_CIRCLE = 2

# Folder -> why it may have more files.
LARGE_FOLDERS = {
    "tests/fuzz/corpus/*": "seeds of a fuzzer, read by a program",
    "tests/golden": "one file for each thing that is compared, and what wrote it",
}

# What was longer when the rule came. Nothing is added here and no number rises; a function that has
# become short is taken out. "path name" -> lines.
LONG_FUNCTIONS = {}
# Likewise what included one another in larger circles: none grows by a file.
CIRCLES = []

PRODUCTION = ("src", "bench", "tools", "train", "include", "python")
SOURCES = {".cc", ".h", ".inc"}
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)

# Comments, literals and preprocessor lines, whose braces are none. A digit may stand before the quote
# of 1'000.
SKIPPED = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"(?P<mark>[^\s()\\]{0,16})\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|"""
    r"""(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'|^[ \t]*\#(?:[^\n\\]|\\.)*""", re.DOTALL | re.MULTILINE)
SCOPE = re.compile(r'\s*(?:inline\s+)?(?:namespace\b|extern\s*$)')
TYPE = re.compile(r"(?:^|[\s>])(?:class|struct|union|enum)\b[^()=]*$")
TYPE_WITH_MACRO = re.compile(r"^\s*(?:class|struct|union)\s+(?:alignas\s*\([^)]*\)\s*)?[\w:]+[^()=]*$")
MEMBER = re.compile(r"\)[\s\w]*(?<!:):(?!:).*[\w>]\s*$", re.DOTALL)
NOT_THE_NAME = re.compile(r"\[\[[^\]]*\]\]|template\s*<[^{}]*?>\s*(?=\w)")
LAMBDA = re.compile(r"\]\s*(?:\([^{}]*\))?\s*(?:mutable|noexcept|->|\w|[\s:<>*&])*$")
NAME = re.compile(r"(operator\s*(?:\(\)|\[\]|[^\s\w(]+|[\w:<>]+)|~?[\w:]+(?:<[^<>()]*>)?)\s*\(")


def without_literals(text):
    """The text with as many lines, and nothing where SKIPPED matched."""
    return SKIPPED.sub(lambda match: " " + "\n" * match[0].count("\n"), text)


def kind_of(head):
    """What a brace opens at the scope of a namespace or a type, by what stands before it."""
    head = NOT_THE_NAME.sub(" ", head)
    # A default argument, or a member that a constructor initializes.
    if head.count("(") > head.count(")") or MEMBER.search(head):
        return "other"
    if SCOPE.match(head) or TYPE.search(head) or TYPE_WITH_MACRO.match(head):
        return "scope"
    if "(" in head and not re.search(r"=\s*$", head):
        before = head.split("(")[0]
        if "=" not in before or "operator" in before or LAMBDA.search(head):
            return "function"
    return "other"


def name_of(head):
    match = NAME.search(NOT_THE_NAME.sub(" ", head))
    return re.sub(r"\s+", "", match[1]) if match else "lambda"


def functions(text):
    """[(name, line, lines)] of the bodies that are not within others, or None where braces do not pair."""
    found, open_, head, line = [], [], "", 1
    depth_in_function = 0
    for token in re.split(r"([{};\n])", without_literals(text)):
        if token == "\n":
            line += 1
            head += " "
        elif token == "{":
            if depth_in_function:
                depth_in_function += 1
            elif (kind := kind_of(head)) == "function":
                depth_in_function = 1
                found.append([name_of(head), line, 0])
            else:
                open_.append((kind, head))
            head = ""
        elif token == "}":
            if depth_in_function:
                depth_in_function -= 1
                if depth_in_function == 0:
                    found[-1][2] = line - found[-1][1] + 1
                    head = ""
            elif open_:
                kind, head = open_.pop()
                # What was no body may be a part of what stands before one.
                head = head + "{}" if kind == "other" else ""
            else:
                return None
        elif token == ";":
            head = ""
        else:
            head += token
    return None if open_ or depth_in_function else [tuple(entry) for entry in found]


def tracked(root):
    """The files that git knows or would take."""
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "-z", "-co", "--exclude-standard"],
                            capture_output=True, check=True).stdout.decode().split("\0")
    return sorted(name for name in listed if name and (root / name).is_file())


def check_folders(names, problems):
    sizes = collections.Counter(
        str(pathlib.PurePosixPath(name).parent) for name in names if not name.endswith("CMakeLists.txt"))
    for folder, count in sorted(sizes.items()):
        if count > MAX_FILES and not any(fnmatch.fnmatch(folder, glob) for glob in LARGE_FOLDERS):
            problems.append(f"{folder}: {count} files; a folder has at most {MAX_FILES}")


def check_functions(root, names, allowed, problems):
    left = dict(allowed)
    for name in names:
        path = pathlib.PurePosixPath(name)
        if path.parts[0] not in PRODUCTION or path.suffix not in SOURCES:
            continue
        bodies = functions((root / name).read_text(encoding="utf-8", errors="replace"))
        if bodies is None:
            problems.append(f"{name}:1: the braces do not pair; write them so that each branch of an #if pairs")
            continue
        limit = MAX_KERNEL_LINES if name.startswith("src/kernels/") else MAX_LINES
        for function, line, lines in bodies:
            if lines <= limit:
                continue
            known = left.pop(f"{name} {function}", 0)
            if lines > known:
                problems.append(f"{name}:{line}: {function} has {lines} lines; at most {known or limit}")
    for entry in left:
        problems.append(f"{entry}: is not that long any more; take it out of LONG_FUNCTIONS")


def check_names(names, problems):
    by_name = collections.defaultdict(list)
    for name in names:
        # The public headers are called like what they show.
        if name.endswith(".h") and not name.startswith("include/"):
            by_name[pathlib.PurePosixPath(name).name].append(name)
    for paths in by_name.values():
        if len(paths) > 1:
            problems.append(f"{paths[0]}: headers of one name: {', '.join(paths)}")


def check_tests(root, names, problems):
    for name in names:
        if not name.startswith("tests/") or not name.endswith("_test.cc"):
            continue
        if re.search(r"^namespace \{", (root / name).read_text(encoding="utf-8"), re.MULTILINE):
            problems.append(f"{name}: a namespace without a name, which the tests of its batch would share: "
                            f"namespace {pathlib.PurePosixPath(name).stem}")


def included(root, names):
    """File without suffix -> the files without suffix that it includes."""
    known = {name for name in names if pathlib.PurePosixPath(name).suffix in SOURCES}
    graph = collections.defaultdict(set)
    for name in known:
        path = pathlib.PurePosixPath(name)
        text = (root / name).read_text(encoding="utf-8", errors="replace")
        for header in INCLUDE.findall(text):
            for candidate in (path.parent / header, "src/" + header, "include/" + header, header):
                if str(candidate) in known:
                    graph[str(path.with_suffix(""))].add(str(candidate).rsplit(".", 1)[0])
                    break
    return graph


def circles(graph):
    """The sets of nodes that reach one another (Tarjan 1972, without recursion)."""
    order, low, stack, found = {}, {}, [], []
    for root in sorted(graph):
        work = [(root, iter(sorted(graph[root])))] if root not in order else []
        while work:
            node, targets = work[-1]
            if node not in order:
                order[node] = low[node] = len(order)
                stack.append(node)
            for target in targets:
                if target not in order:
                    work.append((target, iter(sorted(graph.get(target, ())))))
                    break
                if target in stack:
                    low[node] = min(low[node], order[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == order[node]:
                    at = stack.index(node)
                    found.append(sorted(stack[at:]))
                    del stack[at:]
    return found


def check_circles(root, names, allowed, problems):
    found = [set(circle) for circle in circles(included(root, names)) if len(circle) > MAX_CIRCLE]
    for circle in found:
        if not any(circle <= known for known in allowed):
            problems.append(f"{min(circle)}: include one another in a circle: {', '.join(sorted(circle))}")
    for known in allowed:
        if not any(circle <= known for circle in found):
            problems.append(f"{min(known)}: is in no such circle any more; take it out of CIRCLES")


def check(root, names, long_functions, known_circles):
    problems = []
    check_folders(names, problems)
    check_functions(root, names, long_functions, problems)
    check_names(names, problems)
    check_tests(root, names, problems)
    check_circles(root, names, known_circles, problems)
    return problems


def body(lines):
    return "{\n" + "  x();\n" * (lines - 2) + "}\n"


GOOD = {
    "src/base/a.h": "class A {\n public:\n  void f() { g(); }\n};\n" + "// {\n" * 90,
    "src/base/a.cc": '#include "base/a.h"\nnamespace aerie {\nint A::f(int x) const ' + body(60) + "}\n",
    # Two that include one another.
    "src/base/b.cc": '#include "base/c.h"\n',
    "src/base/b.h": "const int kTable[] = " + body(80).replace("x();", "1,") + ";\n",
    "src/base/c.h": '#include "base/b.h"\n',
    "src/kernels/k.cc": "template <int N>\nvoid kernel() " + body(150),
    "src/base/text.cc": 'const char* f() {\n  return R"({{{)" "{" ; }\nchar g() { return \'{\'; }\n'
                        "int h() { return 1'000'000; }\n#define X {\n",
    "tests/base/long_test.cc": "TEST(A, B) " + body(200),
}
BAD = [
    ({f"src/base/f{i}.cc": "" for i in range(25)}, "src/base: 31 files"),
    ({"src/base/a.cc": "int A::f(int x) const " + body(61)}, "src/base/a.cc:1: A::f has 61 lines"),
    ({"src/base/a.cc": "namespace a {\nnamespace {\n\nA::A(int x)\n    : x_(x), y_{x} " + body(61) + "}}"},
     "A::A has 61 lines"),
    ({"src/base/a.cc": "void f(std::vector<int> x = {}, int y = {1}) " + body(70)}, "f has 70 lines"),
    ({"src/base/a.cc": "const Entry kTable[] = {{1, [](int x) " + body(70) + "}};"}, "lambda has 70 lines"),
    ({"src/base/a.h": "struct A {\n  bool operator()(int x) const " + body(70) + "};"}, "operator() has 70"),
    ({"tools/a.cc": "template <typename T>\nauto f(T x) -> std::vector<T> " + body(70)}, "f has 70 lines"),
    ({"train/a.cc": "const auto kF = [](int x) -> int " + body(70) + ";"}, "lambda has 70 lines"),
    ({"bench/a.cc": 'extern "C" {\nint f() ' + body(70) + "}"}, "f has 70 lines"),
    ({"src/kernels/k.cc": "void kernel() " + body(151)}, "kernel has 151 lines; at most 150"),
    ({"src/base/a.cc": "void f() {\n#if A\n if (x) {\n#else\n if (y) {\n#endif\n }\n}\n"}, "do not pair"),
    ({"tests/base/a_test.cc": "namespace aerie {\nnamespace {\n}\n}\n"}, "would share: namespace a_test"),
    ({"src/core/a.h": ""}, "headers of one name: src/base/a.h, src/core/a.h"),
    ({"src/base/b.h": '#include "base/d.h"\n', "src/base/d.cc": '#include "c.h"\n', "src/base/d.h": ""},
     "in a circle: src/base/b, src/base/c, src/base/d"),
]


def self_test():
    """Plants trees that keep and that break the rules, and sees that the check tells them apart."""
    cases = [({}, {}, [], None)] + [(planted, {}, [], expected) for planted, expected in BAD]
    long_ = {"src/base/a.cc": "int f() " + body(70)}
    circle, known = BAD[-1][0], {"src/base/b", "src/base/c", "src/base/d"}
    cases += [
        (long_, {"src/base/a.cc f": 70}, [], None),
        (long_, {"src/base/a.cc f": 69}, [], "f has 70 lines; at most 69"),
        ({}, {"src/base/a.cc f": 70}, [], "is not that long any more"),
        (circle, {}, [known], None),
        (circle, {}, [known - {"src/base/d"}], "in a circle: src/base/b, src/base/c, src/base/d"),
        ({}, {}, [known], "is in no such circle any more"),
    ]
    for planted, long_functions, known_circles, expected in cases:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            files = GOOD | planted
            for name, text in files.items():
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            problems = check(root, sorted(files), long_functions, known_circles)
            if expected is None:
                assert problems == [], problems
            else:
                assert any(expected in p for p in problems), (expected, problems)
    print(f"check_structure: the self-test found all {sum(e is not None for *_, e in cases)} planted mistakes")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--self-test", action="store_true", help="check the checker itself")
    if parser.parse_args().self_test:
        self_test()
        return 0
    root = pathlib.Path(__file__).resolve().parent.parent
    names = tracked(root)
    problems = check(root, names, LONG_FUNCTIONS, CIRCLES)
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"check_structure: {len(names)} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
