#!/usr/bin/env python3
"""Command lines that the documentation of other programs prints start here, with a tiny model under each name in a
hub of the test's own, and answer as plain decoding does.

    tests/hub/commands_test.py BIN [TEST...]       BIN: the folder with aerie
"""

import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest
import urllib.request

from hub_server import HubServer

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path("build/release/bin")
COMMANDS = json.loads((ROOT / "tests/tools/flags/printed_commands.json").read_text())
# Their targets bring a module that drafts along, which the tiny model does not have: such families are not read yet,
# or not from a file like it.
OF_THE_TARGET = "mtp"
FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="aerie_commands_"))
CONTEXT = 65536  # more than any of the lines asks for
PROMPT = {"prompt": "one two one two", "max_tokens": 12, "temperature": 0, "ignore_eos": True}


def aerie(*arguments):
    subprocess.run([BIN / "aerie", *map(str, arguments)], check=True, capture_output=True)


def make_model(path):
    aerie("bench", "make-model", "--shape", "tiny", "--type", "q8_0", path)
    data = bytearray(path.read_bytes())
    key = b"llama.context_length" + struct.pack("<I", 4)
    struct.pack_into("<I", data, data.index(key) + len(key), CONTEXT)
    path.write_bytes(data)
    return bytes(data)


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class Server:
    """`aerie serve` with these words, until the block ends."""

    def __init__(self, words, env):
        self.process = subprocess.Popen([BIN / "aerie", "serve", *words, "--host", "127.0.0.1", "--port", "0"], cwd=FOLDER,
                                        env=env, stderr=subprocess.PIPE, text=True)
        self.said, self.url = "", None
        for line in self.process.stderr:
            self.said += line
            if found := re.search(r"listening on (http://[0-9.:]+)", line):
                self.url = found[1]
                break

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate()

    def answer(self):
        request = urllib.request.Request(self.url + "/v1/completions", json.dumps(PROMPT).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as reply:
            return json.load(reply)["choices"][0]["text"]


def without_address(words):
    out, words = [], iter(words)
    for word in words:
        if word in ("--host", "--port"):
            next(words)
        else:
            out.append(word)
    return out


class PrintedCommands(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = make_model(FOLDER / "tiny.gguf")
        cls.heads = {}
        for kind in ("eagle", "eagle3", "medusa", "mlp_speculator"):
            aerie("bench", "make-head", FOLDER / kind, "-m", FOLDER / "tiny.gguf", "--kind", kind)
            cls.heads[kind] = FOLDER / kind
        repos = {}
        for command in COMMANDS:
            cls.place(command["model"], None, repos)
            for method, name in re.findall(r"(\w+):(?:[^,]*,)*?model=([^,]+)", command["speculation"]):
                cls.place(name, cls.heads.get(method), repos)
        lines = "".join(json.dumps({"prompt": f"say {i}"}) + "\n" for i in range(3)).encode()
        cls.hub = HubServer(repos=repos, datasets={"org/lines": {"data/question.jsonl": lines, "README.md": b"#"},
                                                   "org/columns": {"test.parquet": lines}}).__enter__()
        cls.env = {**os.environ, "HF_ENDPOINT": cls.hub.url, "HF_HOME": str(FOLDER / "cache")}
        cls.env.pop("HF_TOKEN", None)
        with Server([str(FOLDER / "tiny.gguf"), "--speculate", "none"], cls.env) as server:
            cls.plain = server.answer()

    @classmethod
    def tearDownClass(cls):
        cls.hub.__exit__(None, None, None)
        shutil.rmtree(FOLDER)

    @classmethod
    def place(cls, name, head, repos):
        """A model or the head under that name: a file or folder beside the server, or on the hub."""
        repo, _, quant = name.partition(":")
        if re.fullmatch(r"[\w.-]+/[\w.-]+", repo) and not name.endswith(".gguf"):
            repos[repo] = files_of(head) if head else {f"tiny-{quant or 'Q4_K_M'}.gguf": cls.model}
            return
        path = FOLDER / name.lstrip("/")
        if path.exists():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        if head:
            shutil.copytree(head, path)
        else:
            path.write_bytes(cls.model)

    def test_start_and_answer(self):
        self.assertTrue(self.plain)
        started = 0
        for command in COMMANDS:
            if command["speculation"].startswith(OF_THE_TARGET):
                continue
            line = command["line"].replace("/path/to", "path/to")
            with self.subTest(where=command["where"], line=line):
                with Server(without_address(shlex.split(line)), self.env) as server:
                    self.assertIsNotNone(server.url, server.said)
                    self.assertEqual(server.answer(), self.plain)
                started += 1
        self.assertGreaterEqual(started, 25)


    def bench(self, url, dataset, **env):
        """`vllm bench serve` as it is typed, and the figures."""
        figures = FOLDER / "figures.json"
        done = subprocess.run(
            [BIN / "aerie", "bench", "serve", "--backend", "openai", "--base-url", url, "--endpoint", "/v1/completions",
             "--dataset-name", "hf", "--dataset-path", dataset, "--hf-split", "train", "--num-prompts", "3",
             "--max-concurrency", "1", "--hf-output-len", "4", "--result-filename", figures, "--save-result"],
            cwd=FOLDER, env={**self.env, **env}, capture_output=True, text=True, check=False)
        return done, json.loads(figures.read_text()) if done.returncode == 0 else None

    def made(self, url, *flags):
        """The figures that vLLM's command saves under its own name."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=FOLDER)) / "results"
        host, port = url.removeprefix("http://").split(":")
        done = subprocess.run(
            [BIN / "aerie", "bench", "serve", "--host", host, "--port", port, "--num-prompts", "3", "--max-concurrency", "2",
             "--save-result", "--result-dir", folder, "--seed", "5", *flags],
            cwd=FOLDER, env=self.env, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        [file] = folder.iterdir()
        [run] = json.loads(file.read_text())["runs"]
        return file.name, run

    def test_sets_of_prompts_are_made(self):
        poem = FOLDER / "poem.txt"
        poem.write_text("".join(f"A line of number {n} and no more\n" for n in range(40)))
        with Server([str(FOLDER / "tiny.gguf")], self.env) as server:
            name, run = self.made(server.url, "--backend", "vllm", "--dataset-name", "random", "--random-input-len", "50",
                                  "--random-output-len", "6", "--random-prefix-len", "10", "--request-rate", "40")
            self.assertRegex(name, r"^vllm-40\.0qps-concurrency2-tiny-[0-9]{8}-[0-9]{6}\.json$")
            self.assertEqual((run["completed"], run["total_input_tokens"], run["total_output_tokens"]), (3, 180, 18))
            name, run = self.made(server.url, "--dataset-name", "sonnet", "--dataset-path", poem, "--sonnet-input-len", "700",
                                  "--sonnet-output-len", "5", "--sonnet-prefix-len", "300", "--endpoint", "/v1/completions",
                                  "--ignore-eos", "--label", "mine")
            self.assertRegex(name, r"^mine-infqps-concurrency2-tiny-")
            self.assertEqual((run["completed"], run["total_output_tokens"]), (3, 15))
            self.assertLessEqual(run["total_input_tokens"], 3 * 700)
            self.assertGreater(run["total_input_tokens"], 3 * 600)
            # A name of one's own, and twice into one file.
            file = FOLDER / "both.json"
            for _ in range(2):
                subprocess.run([BIN / "aerie", "bench", "serve", "--base-url", server.url, "--dataset-name", "random",
                                "--input-len", "8", "--output-len", "2", "--num-prompts", "1", "--append-result",
                                "--result-filename", file.name, "--result-dir", FOLDER],
                               check=True, capture_output=True, env=self.env)
            self.assertEqual(file.read_text().count('"model_id"'), 2)

    def test_sets_of_prompts_come_from_the_hub(self):
        with Server([str(FOLDER / "tiny.gguf")], self.env) as server:
            done, figures = self.bench(server.url, "org/lines")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual((figures["datasets"], figures["runs"][0]["completed"]), (["org/lines"], 3))
            # Parquet takes a package of Python's: one that reads these files, and none.
            package = FOLDER / "python/pyarrow"
            package.mkdir(parents=True)
            (package / "__init__.py").touch()
            (package / "parquet.py").write_text(
                "import json\n"
                "class ParquetFile:\n"
                "    def __init__(self, path): self.path = path\n"
                "    def iter_batches(self): return [self]\n"
                "    def to_pylist(self): return [json.loads(line) for line in open(self.path)]\n")
            done, figures = self.bench(server.url, "org/columns", PYTHONPATH=str(package.parent))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(figures["runs"][0]["completed"], 3)
            (package / "parquet.py").write_text("raise ImportError")
            done, _ = self.bench(server.url, "org/columns", PYTHONPATH=str(package.parent))
            self.assertEqual(done.returncode, 1)
            self.assertIn("pip install pyarrow", done.stderr)
            done, _ = self.bench(server.url, "org/nothing")
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("org/nothing", done.stderr)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
