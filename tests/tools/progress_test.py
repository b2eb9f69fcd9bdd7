#!/usr/bin/env python3
"""What people see of long work: a line on a terminal, unless they said that they want none.

    tests/tools/progress_test.py BIN [TEST...]       BIN: the folder with aerie
"""

import json
import os
import pathlib
import pty
import shutil
import subprocess
import sys
import tempfile
import unittest

BIN = pathlib.Path("build/release/bin")
SECONDS = 240
SHOWN = b"timing products"
KERNELS = ["bench", "kernels", "--types", "q4_0,q8_0", "--rows", "1", "--repeat", "1", "--memory", "1"]
FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="aerie_progress_"))
MODEL = FOLDER / "tiny.gguf"
# A prompt of several passes.
ANSWER = ["run", MODEL, " ".join(["word"] * 24), "--raw", "-n", "1", "--temp", "0", "--prefill-chunk", "4"]


def setUpModule():
    subprocess.run([BIN / "aerie", "bench", "make-model", "--shape", "tiny", "--type", "q8_0", MODEL], check=True,
                   capture_output=True)


def tearDownModule():
    shutil.rmtree(FOLDER)


def environment(after):
    """In which progress is shown after so many seconds: no test hangs on how fast a machine is."""
    return {**os.environ, "TERM": "xterm", "AERIE_PROGRESS_AFTER": str(after)}


def on_a_terminal(*arguments, after=0):
    """Status, standard output, and what a terminal at standard error gets."""
    terminal, error = pty.openpty()
    process = subprocess.Popen([BIN / "aerie", *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=error, env=environment(after))
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


def in_a_pipe(*arguments, after=0):
    done = subprocess.run([BIN / "aerie", *arguments], stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS,
                          env=environment(after), check=False)
    return done.returncode, done.stdout, done.stderr


class Progress(unittest.TestCase):
    def test_a_terminal_sees_a_line_that_vanishes(self):
        status, output, seen = on_a_terminal(*KERNELS)
        self.assertEqual(status, 0, seen)
        self.assertIn(SHOWN, seen)
        self.assertTrue(seen.endswith(b"\r\x1b[K"), seen)
        self.assertIn(b"q8_0", output)

    def test_quiet_is_quiet(self):
        for arguments in (KERNELS, ANSWER):
            status, _, seen = on_a_terminal(*arguments, "--quiet")
            self.assertEqual((status, seen), (0, b""))

    def test_figures_on_standard_output_stand_alone(self):
        status, output, seen = on_a_terminal(*KERNELS, "--json", "-")
        self.assertEqual(status, 0, seen)
        self.assertEqual(len(json.loads(output)["points"]), 4)
        self.assertNotIn(SHOWN, seen)
        self.assertIn(b"q8_0", seen)  # the table

    def test_nothing_is_seen_of_quick_work(self):
        self.assertEqual(in_a_pipe(*KERNELS, after=1000)[::2], (0, b""))
        self.assertEqual(on_a_terminal(*KERNELS, after=1000)[::2], (0, b""))

    def test_loading_and_a_long_prompt(self):
        status, _, seen = on_a_terminal(*ANSWER)
        self.assertEqual(status, 0, seen)
        self.assertRegex(seen, rb"\rloading tiny\.gguf  .*MiB")
        self.assertRegex(seen, rb"\rreading the prompt .* [0-9]+ tokens of [0-9]+ tokens")
        # Each goes when it is done: what remains are lines of their own.
        self.assertNotIn(b"tokens of", seen.split(b"\r\x1b[K")[-1])

    def test_loading_and_a_long_prompt_in_a_log(self):
        status, output, seen = in_a_pipe(*ANSWER)
        self.assertEqual(status, 0, seen)
        lines = seen.decode().splitlines()
        for what in ("loading tiny.gguf  ", "reading the prompt  "):
            self.assertTrue(any(line.startswith(what) for line in lines), seen)
        self.assertNotIn(b"\x1b", seen)
        self.assertEqual(output, in_a_pipe(*ANSWER, after=1000)[1])

    def test_conversion_and_what_is_kept(self):
        for arguments, what in (["convert", MODEL, "--type", "q4_0", "--requantize", FOLDER / "small.gguf"], b"writing "), \
                               ([*ANSWER, "--weight-cache", FOLDER], b"keeping packed weights"):
            status, _, seen = on_a_terminal(*arguments)
            self.assertEqual(status, 0, seen)
            self.assertIn(what, seen)

    def test_a_time_that_is_none(self):
        status, _, seen = in_a_pipe(*KERNELS, after="soon")
        self.assertEqual(status, 2)
        self.assertIn(b"AERIE_PROGRESS_AFTER: 'soon' is no number of seconds", seen)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        BIN = pathlib.Path(sys.argv.pop(1))
    unittest.main()
