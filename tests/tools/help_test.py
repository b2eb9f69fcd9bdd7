"""Help and what is said of mistyped words, as somebody at a terminal sees them.

    help_test.py build/release/bin
"""

import pathlib
import subprocess
import sys
import unittest

BIN = pathlib.Path(sys.argv.pop(1)).resolve()
COMMANDS = ["", "run", "serve", "inspect", "tokenize", "convert", "bench", "tune", "audit", "completion", "bench verify",
            "bench kernels", "bench decode", "bench spec", "bench sweep", "bench serve"]


def aerie(*words):
    return subprocess.run([BIN / "aerie", *words], capture_output=True, text=True, timeout=120, check=False)


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


if __name__ == "__main__":
    unittest.main()
