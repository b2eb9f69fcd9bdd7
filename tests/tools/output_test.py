#!/usr/bin/env python3
"""Output of every program that cannot be written, and everything that an output option may name.

    tests/tools/output_test.py BIN [TEST...]       BIN: the folder with aerie and, if it is built, aerie-train

Needs the real model (scripts/fetch_model.sh), whose tables are longer than any buffer, else it exits with 77:
skipped; what generates runs a tiny one. As root it makes nodes of its own for devices, so that an error of the
programs costs no device of the system.
"""

import os
import pathlib
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
BIN = pathlib.Path("build/release/bin")
PROMPTS = '{"prompt": "one two three"}\n'
SECONDS = 240
NIGHTLY = "AERIE_NIGHTLY" in os.environ
FULL, NULL = os.makedev(1, 7), os.makedev(1, 3)
FOLDER = tempfile.TemporaryDirectory(prefix="aerie_tiny_")
TINY = pathlib.Path(FOLDER.name) / "tiny.gguf"
RUN = ["run", "-m", TINY, "-p", "one two", "-n", "3", "--temp", "0"]
KERNELS = ["bench", "kernels", "--threads", "1", "--types", "q4_0", "--rows", "1", "--repeat", "1", "--memory", "1"]


def command(arguments):
    program = BIN / ("aerie-train" if arguments[0] == "train" else "aerie")
    return [str(program), *map(str, arguments[arguments[0] == "train":])]


def call(arguments, limit=None, closed=(), **streams):
    """How it ended, and what it said to those of output and error that nobody gave."""
    def prepare():
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        for fd in closed:
            os.close(fd)
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    return subprocess.run(command(arguments), timeout=SECONDS, preexec_fn=prepare, check=False, **streams)


def trains():
    return (BIN / "aerie-train").exists()


def setUpModule():
    made = call(["bench", "make-model", "--shape", "tiny", TINY])
    if made.returncode != 0:
        raise RuntimeError(made.stderr)


class Output(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="aerie_output_"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.inputs = self.folder / "inputs"
        self.inputs.mkdir()
        self.prompts = self.inputs / "prompts.jsonl"
        self.prompts.write_text(PROMPTS)
        self.out = self.folder / "out"
        self.out.mkdir()

    def node(self, name, device):
        """A device of the same kind; None where there can be none that may be lost."""
        path = self.out / name
        try:
            os.mknod(path, 0o600 | stat.S_IFCHR, device)
            os.close(os.open(path, os.O_WRONLY))
            return path
        except OSError:
            path.unlink(missing_ok=True)
        return pathlib.Path("/dev") / name if os.geteuid() != 0 else None

    def refused(self, done, *words):
        """Ended by itself, not well, and said why."""
        self.assertGreater(done.returncode, 0, done)
        for word in (b"error: ", *words):
            self.assertIn(word, done.stderr)


class StandardOutput(Output):
    def commands(self):
        yield ["--help"]
        yield ["run", "--help"]
        yield ["--version"]
        yield RUN
        yield ["inspect", MODEL]
        yield ["inspect", "--json", "--tensors", MODEL]
        yield ["tokenize", "-m", MODEL, "some text"]
        yield ["tokenize", "-m", MODEL, "--json", "some text"]
        yield ["tokenize", "-m", MODEL, "--decode", "20 30"]
        yield ["tokenize", "-m", MODEL, "--frequencies", self.prompts]
        yield KERNELS
        if trains():
            yield ["train", "--help"]

    def each(self):
        for arguments in self.commands():
            with self.subTest(arguments=arguments):
                yield arguments

    def test_full(self):
        for arguments in self.each():
            with open("/dev/full", "wb") as full:
                self.refused(call(arguments, stdout=full), b"standard output", b"No space left")

    def test_closed(self):
        for arguments in self.each():
            self.refused(call(arguments, closed=[1]), b"standard output", b"Bad file descriptor")

    def test_nobody_reads(self):
        for arguments in self.each():
            reader, writer = os.pipe()
            os.close(reader)
            with open(writer, "wb") as pipe:
                self.refused(call(arguments, stdout=pipe), b"standard output", b"Broken pipe")

    def test_largest_size(self):
        for arguments in self.each():
            with open(self.out / "file", "wb") as file:
                self.refused(call(arguments, limit=1, stdout=file), b"standard output", b"too large")

    def test_messages_that_are_lost(self):
        for arguments in self.each():
            wanted = call(arguments)
            with open("/dev/full", "wb") as full:
                for done in (call(arguments, closed=[2]), call(arguments, stderr=full)):
                    self.assertEqual(done.returncode, 0)
                    if arguments != KERNELS:
                        self.assertEqual(done.stdout, wanted.stdout)

    def test_all_closed(self):
        for arguments in self.each():
            self.assertGreater(call(arguments, closed=[0, 1, 2]).returncode, 0)

    def test_a_wrong_flag_with_closed_error(self):
        self.assertEqual(call(["run", "--no-such-flag"], closed=[2]).returncode, 2)

    def test_closed_input(self):
        self.refused(call(["run", "-m", TINY, "-f", "-"], closed=[0]), b"standard input")
        done = call(["serve", "--hash-key"], closed=[1], stdin=subprocess.PIPE, input=None)
        self.assertGreater(done.returncode, 0)

    def test_key_hash(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run(command(["serve", "--hash-key"]), input=b"a-key-that-is-long-enough\n",
                                  stdout=full, stderr=subprocess.PIPE, timeout=SECONDS, check=False)
        self.refused(done, b"standard output")

    def test_a_chat_ends_where_nobody_listens(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run(command(["run", "-m", MODEL, "--chat", "-n", "3"]), input=b"hello\n" * 100,
                                  stdout=full, stderr=subprocess.PIPE, timeout=SECONDS, check=False)
        self.refused(done, b"standard output")

    def test_a_worker_ends_where_nobody_listens(self):
        done = call(["bench", "worker", "-m", TINY, "--positions", "512"], closed=[1])
        self.refused(done, b"cannot be written")


class Options(Output):
    def options(self):
        """Of each output option a command that ends with it."""
        spec = ["-m", TINY, "--dataset", self.prompts, "--method", "ngram", "--max-tokens", "3", "--repeat", "1",
                "--temperature", "0", "--threads", "1", "--memory", "1"]
        bench_decode = ["bench", "decode", "-m", TINY, "--threads", "1", "--context", "4", "--tokens", "2", "--repeat", "1", "--memory", "1"]
        yield [*RUN, "--json"]
        yield [*RUN, "--record"]
        yield [*KERNELS, "--json"]
        yield [*bench_decode, "--json"]
        if NIGHTLY:  # it takes a second, and bench sweep writes as it does
            yield ["bench", "spec", *spec, "--json"]
        yield ["bench", "spec", *spec, "--html"]
        yield ["bench", "verify", "-m", TINY, "--threads", "1", "--rows", "1", "--context", "8", "--repeat", "1", "--memory", "1",
               "--json"]
        yield ["audit", self.records(), "-m", TINY, "--json"]
        yield ["inspect", MODEL, "--convert"]

    def records(self):
        path = self.inputs / "records.jsonl"
        if not path.exists():
            self.assertEqual(call([*RUN, "--record", path]).returncode, 0)
        return path

    def each(self):
        for arguments in self.options():
            with self.subTest(option=arguments[-1], of=arguments[:2]):
                for left in self.out.iterdir():
                    left.unlink()
                yield arguments

    def holds(self, *names):
        self.assertEqual(sorted(path.name for path in self.out.iterdir()), sorted(names))

    def works(self, arguments, path):
        done = call([*arguments, path])
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_files_and_links(self):
        for arguments in self.each():
            target, link, dangling = self.out / "file", self.out / "link", self.out / "dangling"
            target.touch(0o640)
            target.chmod(0o640)
            link.symlink_to("file")
            dangling.symlink_to("new")
            self.works(arguments, link)
            self.works(arguments, dangling)
            self.assertTrue(link.is_symlink() and dangling.is_symlink())
            self.assertGreater(target.stat().st_size, 0)
            self.assertEqual(stat.S_IMODE(target.stat().st_mode), 0o640)
            self.holds("file", "link", "dangling", "new")

    def test_pipes(self):
        for arguments in self.each():
            pipe, read = self.out / "pipe", []
            os.mkfifo(pipe)
            reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
            reader.start()
            self.works(arguments, pipe)
            reader.join(SECONDS)
            self.assertGreater(len(read[0]), 0)
            self.assertTrue(pipe.is_fifo())
            self.holds("pipe")

    def test_devices(self):
        full, null = self.node("full", FULL), self.node("null", NULL)
        if full is None or null is None:
            self.skipTest("no device can be made here that may be lost")
        for arguments in self.options():
            with self.subTest(option=arguments[-1], of=arguments[:2]):
                self.refused(call([*arguments, full]), str(full).encode(), b"No space left")
                self.works(arguments, null)
                for path, device in ((full, FULL), (null, NULL)):
                    self.assertTrue(path.is_char_device())
                    self.assertEqual(path.stat().st_rdev, device)

    def test_a_full_disk(self):
        for arguments in self.each():
            if arguments[-1] == "--record":
                old = self.records().read_bytes()
            else:
                old = b"before"
            (self.out / "file").write_bytes(old)
            self.refused(call([*arguments, self.out / "file"], limit=len(old) + 20), b"too large")
            self.assertEqual((self.out / "file").read_bytes(), old)
            self.holds("file")

    def test_what_cannot_be(self):
        for arguments in self.each():
            self.refused(call([*arguments, self.out / "no/such/folder"]), b"no/such/folder")
            self.refused(call([*arguments, self.out]), str(self.out).encode())
            self.holds()

    def test_standard_output_as_a_file(self):
        for arguments in self.each():
            with open(self.out / "file", "wb") as file:
                done = call([*arguments, "/dev/stdout"], stdout=file)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertGreater((self.out / "file").stat().st_size, 0)
            self.holds("file")
            # Closed, it is an error as ever.
            self.assertGreater(call([*arguments, "/dev/stdout"], closed=[1]).returncode, 0)

    def test_an_interruption_leaves_nothing(self):
        try:
            os.close(os.open(self.out, os.O_TMPFILE | os.O_WRONLY))
        except OSError:
            self.skipTest("this file system has no files without a name")
        slow = [*KERNELS[:-3], "10000", "--memory", "1", "--json", self.out / "file"]
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            process = subprocess.Popen(command(slow), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.addCleanup(process.kill)
            time.sleep(1)
            self.assertIsNone(process.poll())
            process.send_signal(number)
            process.wait(SECONDS)
            self.holds()


class SlowOptions(Output):
    """Of commands that take seconds: what a full disk leaves."""

    def options(self):
        speculation = ["-m", TINY, "--dataset", self.prompts, "--max-tokens", "3", "--threads", "1", "--memory", "1"]
        tune = ["tune", *speculation, "--out"]
        sweep = ["bench", "sweep", *speculation, "--method", "ngram"]
        yield tune
        yield [*tune, os.devnull, "--json"]
        yield [*tune, os.devnull, "--html"]
        yield [*sweep, "--json"]
        yield [*sweep, "--html"]

    def test_a_full_disk(self):
        file = self.out / "file"
        for arguments in self.options():
            with self.subTest(option=arguments[-1], of=arguments[0]):
                file.write_bytes(b"before")
                self.refused(call([*arguments, file], limit=20), b"too large")
                self.assertEqual(file.read_bytes(), b"before")
                self.assertEqual([path.name for path in self.out.iterdir()], ["file"])


if __name__ == "__main__":
    # Programs of those that are deaf to it, as in the background of a shell, are so, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if len(sys.argv) > 1:
        BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    if not MODEL.exists():
        print(f"skipped: {MODEL} is missing: scripts/fetch_model.sh gets it", file=sys.stderr)
        sys.exit(77)
    unittest.main()
