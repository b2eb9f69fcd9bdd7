#!/usr/bin/env python3
"""What people see of long work: a line on a terminal, unless they said that they want none.

    tests/tools/progress_test.py BIN [TEST...]       BIN: the folder with aerie
"""

import json
import os
import pathlib
import pty
import subprocess
import sys
import unittest

BIN = pathlib.Path("build/release/bin")
SECONDS = 240
SHOWN = b"timing products"
# Every figure is of a hundredth of a second at least, so that this takes more than a second.
SLOW = ["bench", "kernels", "--types", "q4_0,q8_0", "--rows", "1", "--repeat", "20", "--memory", "1"]
QUICK = ["bench", "kernels", "--types", "q4_0", "--rows", "1", "--repeat", "1", "--memory", "1"]


def on_a_terminal(*arguments):
    """Status, standard output, and what a terminal at standard error gets."""
    terminal, error = pty.openpty()
    process = subprocess.Popen([BIN / "aerie", *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=error, env={**os.environ, "TERM": "xterm"})
    os.close(error)
    seen = b""
    try:
        while part := os.read(terminal, 4096):
            seen += part
    except OSError:  # the other end was closed
        pass
    os.close(terminal)
    output, _ = process.communicate(timeout=SECONDS)
    return process.returncode, output, seen


class Progress(unittest.TestCase):
    def test_a_terminal_sees_a_line_that_vanishes(self):
        status, output, seen = on_a_terminal(*SLOW)
        self.assertEqual(status, 0, seen)
        self.assertIn(SHOWN, seen)
        self.assertTrue(seen.endswith(b"\r\x1b[K"), seen)
        self.assertIn(b"q8_0", output)

    def test_quiet_is_quiet(self):
        status, _, seen = on_a_terminal(*SLOW, "--quiet")
        self.assertEqual(status, 0, seen)
        self.assertEqual(seen, b"")

    def test_figures_on_standard_output_stand_alone(self):
        status, output, seen = on_a_terminal(*SLOW, "--json", "-")
        self.assertEqual(status, 0, seen)
        self.assertEqual(len(json.loads(output)["points"]), 4)
        self.assertNotIn(SHOWN, seen)
        self.assertIn(b"q8_0", seen)  # the table

    def test_a_pipe_sees_nothing_of_quick_work(self):
        done = subprocess.run([BIN / "aerie", *QUICK], capture_output=True, timeout=SECONDS, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, b""))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        BIN = pathlib.Path(sys.argv.pop(1))
    unittest.main()
