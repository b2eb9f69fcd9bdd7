"""What the tests of the hub share: a hub, a cache, and the program with both."""

import concurrent.futures
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile
import threading
import unittest

from hub_server import HubServer, Repo

BIN = pathlib.Path("build/release/bin")
SECONDS = 240
REPO = "org/tiny"
# A model of safetensors without tensors.
FOLDER = {"config.json": b'{"model_type": "llama"}', "tokenizer.json": b"{}",
          "model.safetensors": b"\2" + b"\0" * 7 + b"{}"}
CLEARED = ("HF_", "HUGGING", "TRANSFORMERS_", "XDG_CACHE_HOME", "http_proxy", "https_proxy", "HTTP_PROXY",
           "HTTPS_PROXY", "all_proxy", "ALL_PROXY")


def gguf(architecture="llama", padding=0):
    """A GGUF file without tensors, which `aerie inspect` reads."""
    def text(value):
        return struct.pack("<Q", len(value)) + value.encode()
    pairs = [("general.architecture", architecture), ("general.name", "x" * padding)]
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs)) + b"".join(
        text(key) + struct.pack("<I", 8) + text(value) for key, value in pairs)


class HubCase(unittest.TestCase):
    """A folder for each test; `serve` starts a hub that ends with the test."""
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="aerie_hub_"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.home = self.folder / "home"
        self.cache = self.home / "hub"
        self.hub = None

    def serve(self, repos=None, **more):
        self.hub = HubServer(repos=repos, **more)
        self.hub.__enter__()
        self.addCleanup(self.hub.__exit__, None, None, None)
        return self.hub

    def serve_one(self, files=None, faults=None, revisions=None, name=REPO):
        files = files if files is not None else {"tiny-Q4_K_M.gguf": gguf()}
        self.serve({name: Repo(files, revisions, faults)})
        return self.hub.repo(name)

    def environment(self, **more):
        env = {k: v for k, v in os.environ.items() if not k.startswith(CLEARED)}
        env |= {"HF_HOME": str(self.home), "NO_COLOR": "1", "HOME": str(self.folder)}
        if self.hub:
            env["HF_ENDPOINT"] = self.hub.url
        return env | {k: str(v) for k, v in more.items()}

    def start(self, *arguments, env=None, **more):
        return subprocess.Popen([str(BIN / "aerie"), *map(str, arguments)], env=self.environment(**(env or {})),
                                cwd=more.pop("cwd", self.folder), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, **more)

    def call(self, *arguments, env=None, **more):
        process = self.start(*arguments, env=env, **more)
        out, err = process.communicate(timeout=SECONDS)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def works(self, *arguments, **more):
        done = self.call(*arguments, **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def fails(self, *arguments, says, **more):
        """Fails, and says all of that in one line."""
        done = self.call(*arguments, **more)
        self.assertIn(done.returncode, (1, 2), done)
        errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        self.assertEqual(len(errors), 1, done.stderr)
        for word in says:
            self.assertIn(word, errors[0])
        return done

    def pull(self, name=REPO, **more):
        """The path that the program says."""
        return pathlib.Path(self.works("pull", name, **more).stdout.strip())

    def repo_folder(self, name=REPO, kind="models"):
        return self.cache / f"{kind}--{name.replace('/', '--')}"

    def named(self, name=REPO):
        """Files that have a name in the cache: in a snapshot, or whole blobs."""
        folder = self.repo_folder(name)
        blobs = [p for p in (folder / "blobs").glob("*") if not p.name.endswith(".incomplete")]
        return blobs + [p for p in (folder / "snapshots").rglob("*") if not p.is_dir()]

    def nothing_is_named(self, name=REPO):
        self.assertEqual(self.named(name), [])
        self.assertFalse((self.repo_folder(name) / "refs" / "main").exists())


class LockedResult(unittest.TextTestResult):
    """Of tests that run at once."""
    lock = threading.Lock()

    def startTest(self, test):
        with self.lock:
            super().startTest(test)


class AtOnceRunner(unittest.TextTestRunner):
    """Runs tests beside one another, since most of their time is waiting: programs wait before they ask again."""
    AT_ONCE = 8
    resultclass = LockedResult

    def run(self, test):
        def each(suite):
            for one in suite:
                yield from each(one) if isinstance(one, unittest.TestSuite) else [one]

        def run_all(result):
            with concurrent.futures.ThreadPoolExecutor(self.AT_ONCE) as pool:
                for done in [pool.submit(one.run, result) for one in each(test)]:
                    done.result()

        return super().run(run_all)
