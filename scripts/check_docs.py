#!/usr/bin/env python3
"""Holds the documentation to what is there.

    scripts/check_docs.py [--bin build/release/bin]

Reads README.md, docs/ and the other pages named in PAGES, and looks up what stands in them: links and
their anchors, paths, names of the code, flags, commands, settings and the filters of tests. Flags are
held to the `--help` of the command that they follow, those of scripts to the script; a flag that stands
alone has to be one of some command or script. Programs that were not built are looked up in the sources.
Exits with 1 and one line for each thing that is not there.

What belongs to others is named in FOREIGN. Placeholders (MODEL, <method>, …) are no names.
"""

import argparse
import collections
import concurrent.futures
import fnmatch
import functools
import pathlib
import re
import shlex
import subprocess
import sys

PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs", "models", "bench", "train")
CODE = ("src", "include", "tools", "train", "bench", "tests", "scripts", "cmake", "examples", "python", "deploy",
        "models/heads/train.sh", "CMakeLists.txt", "CMakePresets.json", "test.sh", "quickstart.sh")
TEXT = {".cc", ".h", ".py", ".sh", ".cmake", ".txt", ".json", ".js", ".css", ".html", ".service", ".yaml", ".yml"}
SOURCE = (".cc", ".h", ".py", ".sh", ".cmake", ".md")
LARGE = 1 << 20  # goldens and prompts hold no names of the code

# Names in code spans that nothing here has to hold: other projects', and those put together at run time.
FOREIGN = {
    "sched_yield",  # Linux
    "round_robin", "consistent_hash", "power_of_two", "kv_aware",  # vllm-router
    "contentEncoding", "contentMediaType", "dependentSchemas",  # JSON schema, refused as every unknown keyword
    "--from-file", "deploy/api-key",  # kubectl; a key that its user makes
    "mean_ttft_ms", "median_ttft_ms", "p99_ttft_ms", "…_tpot_ms", "…_itl_ms", "…_e2el_ms",  # aerie bench serve
}

FENCE = re.compile(r"^(```+)\s*(\w*)")
SPAN = re.compile(r"(`+)(.+?)\1(?!`)", re.DOTALL)
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$")
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
SETTING = re.compile(r'\b(?:add|add_word|other)\(\s*"!?([a-z][a-z0-9-]*)",')
NAME = re.compile(r"[A-Za-z_]\w*")
SCOPED = re.compile(r"\b([A-Za-z_]\w*(?:::~?[A-Za-z_]\w*)+)")
TEST = re.compile(r"^\s*(?:TYPED_)?TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\)", re.MULTILINE)
OWNER = re.compile(r"\b(?:class|struct|enum|namespace)\s+(?:\w+::)*(\w+)\b")
FILTER = re.compile(r"--gtest_filter[= ]'?([^'\s]+)'?")
SETTINGS = re.compile(r"^[a-z_,0-9]+:[a-z_]+=")


def read(path):
    return path.read_text(encoding="utf-8", errors="replace")


def braces(word):
    """What a shell makes of a{b,c}d."""
    match = re.search(r"\{([^{}]*,[^{}]*)\}", word)
    if not match:
        return [word]
    return [one for part in match[1].split(",") for one in braces(word[:match.start()] + part + word[match.end():])]


class Tree:
    """The files of the project and the names in its code."""

    def __init__(self, root):
        self.root = root
        skipped = {".git", "build", ".cache", "shared", "__pycache__"}
        self.files, folders = [], set()
        todo = [root]
        while todo:
            for path in todo.pop().iterdir():
                if path.name in skipped:
                    continue
                if path.is_dir():
                    todo.append(path)
                    folders.add(path.relative_to(root).as_posix())
                else:
                    self.files.append(path.relative_to(root).as_posix())
        self.paths = set(self.files) | folders
        # Of a path each end: docs name files of src/ without the folders above them.
        self.ends = {"/".join(path.split("/")[i:]) for path in self.paths for i in range(path.count("/") + 1)}
        self.top = {path.split("/")[0] for path in folders}
        # What a path may begin with that is the project's.
        self.firsts = {path.rsplit("/", 1)[-1] for path in folders if path.startswith(("src/", "tools/", "train/"))}
        self.text = {}
        for name in self.files:
            path = root / name
            if name.startswith(CODE) and path.suffix in TEXT and path.stat().st_size < LARGE:
                self.text[name] = "" if path.suffix == ".md" else read(path)
        for name in ("scripts/check_docs.py", "scripts/check_docs_planted.py"):
            self.text.pop(name, None)
        self.names = {name for text in self.text.values() for name in NAME.findall(text)}

    @functools.cached_property
    def joined(self):
        return "\n".join(self.text.values())

    @functools.cached_property
    def tests(self):
        return {f"{suite}.{name}" for suite, name in TEST.findall(self.joined)}

    @functools.cached_property
    def script_flags(self):
        return {flag for name, text in self.text.items() if name.endswith((".py", ".sh"))
                for flag in FLAG.findall(text)}

    @functools.cached_property
    def their_flags(self):
        """Of other programs, which commands take over."""
        text = self.text.get("tools/flags/their_flags.cc", "")
        return set(FLAG.findall(text)) | set(re.findall(r'(?<=[",])-[a-z]+(?=[",])', text))

    @functools.cached_property
    def training_flags(self):
        """Of commands of which not all are asked; a method's settings stand there without dashes."""
        texts = [text for name, text in self.text.items() if name.startswith(("train/", "tests/train/"))]
        return {flag for text in texts for flag in FLAG.findall(text)} | {
            "--" + name for text in texts for name in SETTING.findall(text)}

    @functools.lru_cache(maxsize=None)
    def has_name(self, name):
        """Whether the code has the name; `…` and `*` stand for any letters."""
        if name in self.names:
            return True
        pattern = name.replace("…", "*").replace("...", "*")
        return "*" in pattern and any(fnmatch.filter(self.names, pattern))

    @functools.cached_property
    def owners(self):
        """Class, struct, enum or namespace -> the texts that declare it."""
        found = collections.defaultdict(list)
        for name, text in self.text.items():
            if name.endswith((".h", ".cc")):
                for owner in set(OWNER.findall(text)):
                    found[owner].append(text)
        return found

    def has_member(self, scoped):
        """A::b: A::b stands somewhere, or b in a file that declares A."""
        owner, member = scoped.split("::")[-2:]
        return scoped in self.joined or any(re.search(rf"\b{member}\b", text) for text in self.owners[owner])

    def has_path(self, path, page):
        """Whether a path, seen from the root, the page or a folder of sources, is there; with wildcards."""
        path = path.removeprefix("./").rstrip("/")
        beside = (self.root / page).parent / path
        if path in self.paths or path in self.ends or beside.exists():
            return True
        if path.startswith("models/") and path.split("/")[-1] in self.text.get("scripts/fetch_model.sh", ""):
            return True
        pattern = re.sub(r"<[^>]*>|…", "*", path)
        return "*" in pattern and any(fnmatch.filter(self.ends, pattern))

    def beside(self, script):
        """The text of a script and of those in its folder, to which it may hand its flags on."""
        folder = script.removeprefix("./").rpartition("/")[0]
        return "\n".join(text for name, text in self.text.items()
                         if name.rpartition("/")[0].endswith(folder) and name.endswith((".py", ".sh")))

    @functools.lru_cache(maxsize=None)
    def has_program(self, name):
        """Whether something builds a program of this name."""
        plain = re.sub(r"^(test|fuzz)_", "", name)
        return any(re.search(rf"(?:aerie_test|aerie_fuzzer|add_executable)\(\s*(?:{re.escape(plain)}|{re.escape(name)})\s", text)
                   for path, text in self.text.items() if path.endswith(("CMakeLists.txt", ".cmake")))


class Helps:
    """What the commands of aerie say of themselves: command -> help, such as "bench spec".

    Those of training, which take half a second each, are asked only if they are among `wanted`."""

    def __init__(self, ask, wanted):
        self.texts, self.missing = {}, set()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            todo = [()]
            while todo:
                answers = list(pool.map(ask, todo))
                further = []
                for command, text in zip(todo, answers):
                    if text is None:
                        self.missing.add(" ".join(command))
                        continue
                    self.texts[" ".join(command)] = text
                    names = [name for name in self.subcommands(text) if command != ("train",) or name in wanted]
                    further += [(*command, name) for name in names]
                todo = further

    @staticmethod
    def subcommands(text):
        block = re.search(r"^(?:Sub)?[Cc]ommands:\n((?:  .*\n|\n)*)", text + "\n", re.MULTILINE)
        return re.findall(r"^  ([a-z][\w-]*)", block[1], re.MULTILINE) if block else []

    @functools.cached_property
    def flags(self):
        return {flag for text in self.texts.values() for flag in FLAG.findall(text)}


def asker(program):
    """Asks the built program; None where it, or the one that it would run, is not there."""

    def ask(command):
        try:
            done = subprocess.run([program, *command, "--help-all"], capture_output=True, text=True, timeout=60, check=False)
        except OSError:
            return None
        return done.stdout if done.returncode == 0 else None

    return ask


def blocks(text):
    """(line number, kind, text) of a page: kind is "text", or "code" with its language."""
    lines, kept, start = text.split("\n"), [], 1
    fence, language, before = "", "", ""
    for number, line in enumerate([*lines, ""], 1):
        match = FENCE.match(line.strip())
        indented = line.startswith("    ") and (before == "" or before.startswith("    ")) and not fence
        if match and (not fence or line.strip() == fence):
            if kept:
                yield start, language if fence else "text", "\n".join(kept)
            kept, fence, language = [], "" if fence else match[1], match[2] or "sh"
        elif fence:
            kept, start = [*kept, line], start if kept else number
        elif indented and line.strip() and not (kept and kept[-1].startswith("- ")):
            if kept and not kept[0].startswith("    "):
                yield start, "text", "\n".join(kept)
                kept = []
            kept, start = [*kept, line], start if kept else number
        elif kept and kept[0].startswith("    "):
            yield start, "sh", "\n".join(kept)
            kept, start = ([line], number) if line.strip() else ([], number)
        elif line.strip():
            kept, start = [*kept, line], start if kept else number
        elif kept:
            yield start, "text", "\n".join(kept)
            kept = []
        before = line
    if kept:
        yield start, "text", "\n".join(kept)


@functools.lru_cache(maxsize=None)
def slugs(text):
    """The anchors that a page's headings have, as GitHub makes them."""
    found, fenced = set(), False
    for line in text.split("\n"):
        fenced ^= bool(FENCE.match(line))
        match = HEADING.match(line)
        if match and not fenced:
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match[1]).replace("`", "").lower()
            slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
            number = 1
            while slug in found:
                slug, number = f"{slug.removesuffix(f'-{number - 1}')}-{number}", number + 1
            found.add(slug)
    return found


def commands(text):
    """The commands of a shell text as lists of words, without what stands before the program."""
    text = re.sub(r"\\\n", " ", text)
    for line in text.split("\n"):
        try:
            words = shlex.split(line, comments=True)
        except ValueError:  # a quotation that goes on in the next line
            words = re.sub(r"\s#.*", "", line).split()
        command = []
        for word in [*words, ";"]:
            if word in {";", "&&", "||", "|", "&"}:
                if command:
                    yield command
                command = []
            elif word.endswith(";"):
                yield [*command, word[:-1]]
                command = []
            else:
                command.append(word)


class Checker:
    def __init__(self, tree, helps):
        self.tree, self.helps = tree, helps
        self.problems = []

    def problem(self, text):
        self.problems.append(f"{self.page}:{self.line}: {text}")

    def check(self, page):
        self.page = page
        text = read(self.tree.root / page)
        own = slugs(text)
        for self.line, kind, block in blocks(text):
            if kind == "text":
                self.check_text(block, own)
            elif kind in {"sh", "bash", "console"}:
                self.check_shell(block)
            elif kind == "cpp":
                self.check_cpp(block)

    def check_text(self, block, own):
        start = self.line
        for match in LINK.finditer(SPAN.sub(lambda m: re.sub(r"[^\n]", "x", m[0]), block)):
            self.line = start + block.count("\n", 0, match.start())
            self.check_link(match[1], own)
        for match in SPAN.finditer(block):
            self.line = start + block.count("\n", 0, match.start())
            self.check_span(re.sub(r"\s+", " ", match[2]).strip())
        outside = LINK.sub("", SPAN.sub("", block))
        for match in re.finditer(r"(?<![\w/.])[\w.-]+(?:/[\w.-]+)+\.\w+", outside):
            self.line = start
            self.check_path(match[0])

    def check_link(self, target, own):
        if re.match(r"[a-z]+:", target):
            return
        path, _, anchor = target.partition("#")
        file = (self.tree.root / self.page).parent / path if path else self.tree.root / self.page
        if not file.exists():
            self.problem(f"the link {target} leads nowhere")
        elif anchor and anchor not in (slugs(read(file)) if path else own):
            self.problem(f"no heading makes the anchor of {target}")

    def check_span(self, span):
        if "aerie" in span.split()[0] or " --" in span or span.startswith(("./", "scripts/", "bench/", "build/")):
            self.check_shell(span)
        elif span.startswith("-"):
            self.check_flags(span)
        elif SETTINGS.match(span):
            self.check_settings(span)
        elif " " not in span or "/" in span:
            for word in span.split():
                self.check_word(word)
        for scoped in SCOPED.findall(span):
            if scoped not in FOREIGN and not self.tree.has_member(scoped):
                self.problem(f"{scoped} is not in the code")

    def check_word(self, word):
        """A word of a code span: a path, or a name if it looks like one of the code's."""
        word = word.rstrip(",;:.") if not word.endswith("...") else word
        if self.check_path(word):
            return
        if word in FOREIGN or not re.fullmatch(r"[\w*…]+(\(\))?", word.replace("...", "…")):
            return
        name = word.removesuffix("()")
        looks = "_" in name or word.endswith("()") or re.search(r"[a-z][A-Z]|^[A-Z][a-z]{3,}$", name)
        if not looks or name in FOREIGN:
            return
        if re.match(r"(test|fuzz|aerie)[_-]", name) and self.tree.has_program(name):
            return
        if not self.tree.has_name(name):
            self.problem(f"{word} is not in the code")

    def check_path(self, word):
        """Whether the word is a path of the project; one that is not there is a problem."""
        if "://" in word or word in FOREIGN or re.search(r"[()=$\"'\[\]]", word):
            return False
        first = word.removeprefix("./").split("/")[0]
        sources = word.endswith(SOURCE) or re.search(r"\.\{[a-z]+,[a-z,]+\}$", word)
        mine = "/" in word and (first in self.tree.top or first == "build" or first in self.tree.firsts and sources)
        if not (mine or sources and not word.startswith("/") and re.match(r"[\w./{*<-]", word)):
            return False
        for path in braces(word):
            if first == "build":
                built = re.fullmatch(r"build/(?:release|debug|asan|tsan|aarch64)/bin/([\w-]+)", path)
                if built and not self.tree.has_program(built[1]):
                    self.problem(f"nothing builds {path}")
            elif not self.tree.has_path(path, self.page) and path not in FOREIGN:
                self.problem(f"{path} is not there")
        return True

    def check_settings(self, text):
        """Of `method:key=value,...`: the keys."""
        for key in re.findall(r"(?:^[a-z_,0-9]+:|,)([a-z_]+)=", text):
            if not self.tree.has_name(key) and key not in FOREIGN:
                self.problem(f"the setting {key} is not in the code")

    def check_flags(self, text):
        known = self.helps.flags | self.tree.script_flags | self.tree.their_flags
        for flag in FLAG.findall(text):
            if flag in known or flag in FOREIGN or flag.startswith("--gtest_"):
                continue
            if flag not in self.tree.training_flags:
                self.problem(f"no command has {flag}")

    def check_shell(self, text):
        for patterns in FILTER.findall(text):
            for pattern in patterns.partition("-")[0].split(":"):
                if not fnmatch.filter(self.tree.tests, pattern):
                    self.problem(f"no test is meant by {pattern}")
        for words in commands(text):
            self.check_command(words)

    def check_command(self, words):
        for place, word in enumerate(words):
            base = word.rsplit("/", 1)[-1]
            if base == "aerie":
                self.check_word(word)
                self.check_aerie(words[place + 1:])
                return
            if base.startswith("aerie-"):
                self.check_flags(" ".join(words[place + 1:]))
            if base.endswith((".py", ".sh")) and self.tree.has_path(word, self.page):
                script = self.tree.beside(word)
                for flag in filter(FLAG.fullmatch, (w.partition("=")[0] for w in words[place + 1:])):
                    if flag not in script:
                        self.problem(f"{word} has no {flag}")
                break
        for target in words[1:] if words[:1] == ["ninja"] else []:
            if re.match(r"[a-z]", target) and "/" not in target and not self.tree.has_program(target):
                self.problem(f"there is no target {target}")
        self.check_arguments(words)

    def check_arguments(self, words):
        for word in words:
            option = re.match(r"-D(\w+)", word)
            if option and option[1].startswith("AERIE_") and not self.tree.has_name(option[1]):
                self.problem(f"no build has {option[1]}")
            if SETTINGS.match(word):
                self.check_settings(word)
            else:
                self.check_path(word)

    def check_aerie(self, words):
        command = ""
        while words and re.fullmatch(r"[a-z][a-z0-9-]*", words[0]):
            longer = f"{command} {words[0]}".strip()
            if longer not in self.helps.texts:
                break
            command, words = longer, words[1:]
        text = self.helps.texts.get(command)
        if text is None:
            return
        if self.helps.subcommands(text) and words and re.fullmatch(r"[a-z][a-z0-9-]*", words[0]):
            longer = f"{command} {words[0]}".strip()
            # A program without LibTorch knows of no training.
            if longer in self.helps.missing or command == "train" and f'"{words[0]}"' in self.tree.joined:
                self.check_flags(" ".join(words))
            else:
                self.problem(f"there is no command aerie {longer}")
            return
        for word in words:
            flag = word.partition("=")[0]
            if flag == "--help" or flag in FOREIGN:
                continue
            if command in ("run", "serve", "bench serve") and flag in self.tree.their_flags:
                continue
            if FLAG.fullmatch(flag) and not re.search(rf"(?<![\w-]){flag}(?![\w-])", text):
                self.problem(f"aerie {command} has no {flag}")
            elif re.fullmatch(r"-[a-z]", word) and not re.search(rf"^  {word}\b", text, re.MULTILINE):
                self.problem(f"aerie {command} has no {word}")
        self.check_arguments([word for word in words if not word.startswith("-")])

    def check_cpp(self, block):
        code = re.sub(r"//[^\n]*|\"(?:[^\"\\]|\\.)*\"", "", block)
        for name in sorted(set(re.findall(r"\b(?:AERIE_\w+|[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+)\b", code))):
            if not self.tree.has_name(name) and name not in FOREIGN:
                self.problem(f"{name} is not in the code")


def pages(root):
    for name in PAGES:
        path = root / name
        for page in sorted(path.rglob("*.md")) if path.is_dir() else [path] if path.is_file() else []:
            yield page.relative_to(root).as_posix()


def check(root, helps):
    checker = Checker(Tree(root), helps)
    for page in pages(root):
        checker.check(page)
    return checker.problems


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--self-test", action="store_true", help="check the checker itself")
    parser.add_argument("--bin", default=root / "build/release/bin", type=pathlib.Path, help="where aerie was built")
    args = parser.parse_args()
    if args.self_test:
        import check_docs_planted  # noqa: PLC0415

        check_docs_planted.find_all(check, Helps)
        return 0
    wanted = {name for page in pages(root) for name in re.findall(r"aerie train ([a-z][\w-]*)", read(root / page))}
    helps = Helps(asker(args.bin / "aerie"), wanted)
    if not helps.texts:
        parser.error(f"{args.bin / 'aerie'} cannot be run: build it first")
    problems = check(root, helps)
    for problem in problems:
        print(problem, file=sys.stderr)
    unseen = f"; without the help of: {', '.join(sorted(helps.missing))}" if helps.missing else ""
    print(f"check_docs: {len(list(pages(root)))} pages, {len(problems)} problems{unseen}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
