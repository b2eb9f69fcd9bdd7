"""Completion in bash, zsh and fish, each of which is run, and the manual page.

    completion_test.py build/release/bin

Exits with 77, which ctest takes as "skipped", where a shell is not installed.
"""

import json
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

BIN = pathlib.Path(sys.argv.pop(1)).resolve()
FILES = pathlib.Path(tempfile.mkdtemp(prefix="aerie_completion_"))
NAMES = {"bash": "aerie.bash", "zsh": "_aerie", "fish": "aerie.fish", "man": "aerie.1"}


def setUpModule():
    for kind, name in NAMES.items():
        (FILES / name).write_text(run(BIN / "aerie", "completion", kind))
    (FILES / "only.gguf").touch()


def tearDownModule():
    shutil.rmtree(FILES)


def run(*words, **more):
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=True, **more).stdout


def script(kind):
    return (FILES / NAMES[kind]).read_text()


def bash_offers(line):
    """What bash offers at the end of a line."""
    words = line.split(" ")
    quoted = " ".join(f"'{word}'" for word in words)
    return run("bash", "-c", f"source {FILES}/aerie.bash; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _aerie; "
               "printf '%s\\n' \"${COMPREPLY[@]}\"", cwd=FILES).split("\n")[:-1]


def fish_offers(line):
    """The same of fish."""
    offers = run("fish", "--no-config", "-c", f"source aerie.fish; complete -C '{line}'", cwd=FILES,
                 env={**os.environ, "HOME": str(FILES)})
    return [offer.split("\t")[0] for offer in offers.splitlines()]


class Zsh:
    """zsh at a terminal, with a command `aerie` that says what it is given."""

    def __init__(self, setup):
        self.terminal, inside = pty.openpty()
        self.shell = subprocess.Popen(["zsh", "-f", "-i"], stdin=inside, stdout=inside, stderr=inside, cwd=FILES,
                                      env={**os.environ, "TERM": "dumb", "HOME": str(FILES)}, start_new_session=True)
        os.close(inside)
        self.seen = ""
        self.type(f"autoload -U compinit; {setup}; aerie() {{ print -r -- \"<$*>\" }}; print rea''dy\n")
        self.wait_for(r"\bready\r?\n")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.shell.kill()
        self.shell.wait()
        os.close(self.terminal)

    def type(self, text):
        os.write(self.terminal, text.encode())

    def wait_for(self, pattern):
        end = time.monotonic() + 60
        while not (found := re.search(pattern, self.seen)):
            assert time.monotonic() < end, self.seen
            if select.select([self.terminal], [], [], 1)[0]:
                self.seen += os.read(self.terminal, 4096).decode(errors="replace")
        self.seen = self.seen[found.end():]
        return found

    def completes(self, line):
        """The last word of the line after a tab."""
        self.type(line + "\t\n")
        return self.wait_for(r"<([^<>\n]*)>\r?\n")[1].split(" ")[-1]


class Completion(unittest.TestCase):
    # What there is only one way to go on with.
    SINGLE = {"aerie tok": "tokenize", "aerie serve --max-num-s": "--max-num-seqs", "aerie run --cache-type q": "q8",
              "aerie bench ser": "serve", "aerie bench serve --conc": "--concurrency", "aerie completion z": "zsh",
              "aerie run -m onl": "only.gguf", "aerie train dat": "data", "aerie train data --held": "--held-out"}

    def single(self, offers):
        for line, wanted in self.SINGLE.items():
            with self.subTest(line=line):
                self.assertEqual(offers(line), wanted)

    @unittest.skipUnless(shutil.which("fish"), "fish is not installed")
    def test_fish(self):
        self.single(lambda line: " ".join(fish_offers(line)))
        self.assertEqual(sorted(fish_offers("aerie s")), ["serve", "speedup"])
        # `aerie serve` has it, and this is another command.
        self.assertEqual(fish_offers("aerie bench serve --max-num-s"), [])

    @unittest.skipUnless(shutil.which("zsh"), "zsh is not installed")
    def test_zsh(self):
        # As a file that is sourced, and in a folder of functions.
        for setup in (f"compinit -u -D; source {FILES}/_aerie", f"fpath=({FILES} $fpath); compinit -u -D"):
            with self.subTest(setup=setup), Zsh(setup) as shell:
                self.single(shell.completes)

    def test_commands_of_the_second_program(self):
        told = json.loads(run(BIN / "aerie-train", "--command-words"))
        commands = {command["name"]: [name for option in command["options"] for name in option["names"]]
                    for command in told["commands"]}
        speedup = commands.pop("speedup", None)
        self.assertIn("data", commands)
        self.assertEqual(sorted(bash_offers("aerie train ")), sorted(commands))
        for name, flags in commands.items():
            self.assertLessEqual({"--offline", "--help"}, set(flags))
            self.assertEqual(sorted(bash_offers(f"aerie train {name} -")), sorted(flags))
        self.assertEqual(sorted(bash_offers("aerie speedup -")), sorted(speedup or []))
        self.assertIn("aerie train data", script("man"))

    def test_without_the_second_program(self):
        shutil.copy(BIN / "aerie", FILES)
        self.assertIn("-f -a train ", run(FILES / "aerie", "completion", "fish"))

    def test_bash(self):
        complete = bash_offers
        self.single(lambda line: " ".join(complete(line)))
        self.assertEqual(sorted(complete("aerie s")), ["serve", "speedup"])
        self.assertIn("--max-num-seqs", complete("aerie serve --max-n"))
        self.assertEqual(complete("aerie serve -m x --scheduling-policy p"), ["priority"])
        self.assertIn("verify", complete("aerie bench v"))
        self.assertIn("--dataset", complete("aerie bench spec --data"))
        self.assertIn("zsh", complete("aerie completion z"))
        self.assertIn("only.gguf", complete("aerie run -m on"))
        self.assertIn("q8", complete("aerie run --cache-type q"))
        self.assertIn("ngram", complete("aerie run --speculate n"))

    def test_scripts_parse(self):
        for shell in ("bash", "zsh", "fish"):
            text = script(shell)
            self.assertIn("speculate", text)
            if shutil.which(shell):
                done = subprocess.run([shell, "-n"], input=text, capture_output=True, text=True, timeout=60, check=False)
                self.assertEqual((done.returncode, done.stderr), (0, ""), shell)

    def test_every_flag_is_everywhere(self):
        flags = set(re.findall(r"--[a-z][a-z0-9-]*", run(BIN / "aerie", "serve", "--help-all"))) - {"--speculate"}
        zsh, fish, bash = script("zsh"), script("fish"), script("bash")
        manual = script("man").replace("\\-", "-")
        for flag in flags:
            self.assertIn(flag, bash)
            self.assertIn(f"'{flag}:", zsh)
            self.assertIn(f" -l {flag[2:]}", fish)
            self.assertIn(flag, manual)

    def test_manual(self):
        page = script("man")
        self.assertTrue(page.startswith(".TH AERIE 1"))
        for line in page.split("\n"):
            if line.startswith((".", "'")):
                self.assertRegex(line, r"^\.(TH|SH|B|TP)\b")
        if shutil.which("groff"):
            done = subprocess.run(["groff", "-man", "-Tutf8", "-ww"], input=page, capture_output=True, text=True,
                                  timeout=60, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    sys.exit(1 if not result.wasSuccessful() else 77 if result.skipped else 0)
