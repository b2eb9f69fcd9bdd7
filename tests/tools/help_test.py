"""Help, completion and the manual page, as somebody at a terminal sees them.

    help_test.py build/release/bin
"""

import pathlib
import re
import shutil
import subprocess
import sys
import unittest

BIN = pathlib.Path(sys.argv.pop(1)).resolve()
COMMANDS = ["", "run", "serve", "inspect", "tokenize", "convert", "bench", "tune", "audit", "completion", "bench verify",
            "bench kernels", "bench decode", "bench spec", "bench sweep", "bench serve"]


def aerie(*words):
    return subprocess.run([BIN / "aerie", *words], capture_output=True, text=True, timeout=120, check=False)


def script(shell):
    return aerie("completion", shell).stdout


def complete(line):
    """What bash offers at the end of a line."""
    words = line.split(" ")
    quoted = " ".join(f"'{word}'" for word in words)
    code = f"{script('bash')}\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _aerie\nprintf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, timeout=60, check=False, cwd="/")
    return done.stdout.split("\n")[:-1]


class Help(unittest.TestCase):
    def test_fits_a_screen(self):
        for command in COMMANDS:
            done = aerie(*command.split(), "--help")
            self.assertEqual(done.returncode, 0, command)
            lines = done.stdout.split("\n")[:-1]
            self.assertLess(len(lines), 24, command)
            self.assertLessEqual(max(map(len, lines)), 80, f"{command}:\n{done.stdout}")

    def test_all_has_everything_in_eighty_columns(self):
        for command in COMMANDS:
            done = aerie(*command.split(), "--help-all")
            self.assertEqual(done.returncode, 0, command)
            for line in done.stdout.split("\n"):
                # A single word may be longer.
                self.assertTrue(len(line) <= 80 or " " not in line.strip(), line)
        everything = aerie("serve", "--help-all").stdout
        for flag in ("--model", "--max-num-seqs", "--record-share", "--prefill-chunk", "--no-allow-trace"):
            self.assertIn(flag, everything)

    def test_common_flags_are_there(self):
        short = aerie("serve", "--help").stdout
        for flag in ("--port", "--max-model-len", "--speculate", "--help-all"):
            self.assertIn(flag, short)
        self.assertNotIn("--max-unsent-mib", short)
        self.assertIn("--max-tokens", aerie("run", "--help").stdout)


class Mistyped(unittest.TestCase):
    def refusal(self, *words):
        done = aerie(*words)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stdout, "")
        return done.stderr

    def test_flag(self):
        self.assertIn("there is no flag --max-num-sqes (did you mean --max-num-seqs?)",
                      self.refusal("serve", "-m", "x", "--max-num-sqes", "3"))
        self.assertIn("did you mean --temp", self.refusal("run", "-m", "x", "--tepm=1"))
        self.assertIn("aerie bench verify: there is no flag --rowz (did you mean --rows?)",
                      self.refusal("bench", "verify", "--rowz", "3"))

    def test_command(self):
        self.assertIn("there is no command srve (did you mean serve?)", self.refusal("srve", "-m", "x"))
        self.assertIn("aerie bench: there is no command sevre (did you mean serve?)", self.refusal("bench", "sevre"))

    def test_nothing_near(self):
        text = self.refusal("run", "-m", "x", "--flibbertigibbet")
        self.assertIn("there is no flag --flibbertigibbet; see aerie run --help-all", text)
        self.assertNotIn("did you mean", text)

    def test_values_are_no_flags(self):
        self.assertNotIn("there is no", self.refusal("run", "-m", "--x", "-n", "none"))


class Completion(unittest.TestCase):
    def test_bash(self):
        self.assertEqual(sorted(complete("aerie s")), ["serve", "speedup"])
        self.assertIn("--max-num-seqs", complete("aerie serve --max-n"))
        self.assertEqual(complete("aerie serve -m x --scheduling-policy p"), ["priority"])
        self.assertIn("verify", complete("aerie bench v"))
        self.assertIn("--dataset", complete("aerie bench spec --data"))
        self.assertIn("zsh", complete("aerie completion z"))
        self.assertIn("etc", complete("aerie run -m et"))
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
        flags = set(re.findall(r"--[a-z][a-z0-9-]*", aerie("serve", "--help-all").stdout)) - {"--speculate"}
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
    unittest.main()
