#!/usr/bin/env python3
"""The cache of models: what is looked up, listed, left and removed there.

    tests/hub/cache_test.py BIN [TEST...]       BIN: the folder with aerie and locate_dataset
"""

import fcntl
import json
import os
import pathlib
import pty
import shutil
import subprocess
import sys
import threading
import time
import unittest

import hub_case
from hub_case import FOLDER, REPO, HubCase, gguf
from hub_server import Faults

LARGE = gguf(padding=600_000)


class Lookup(HubCase):
    def test_what_is_there_is_not_asked_for(self):
        self.serve_one()
        self.works("inspect", REPO)
        self.hub.requests.clear()
        self.works("inspect", REPO)
        self.works("inspect", f"{REPO}:q4_k_m")
        self.works("inspect", f"{REPO}@main:tiny-Q4_K_M.gguf")
        self.assertEqual(self.hub.requests, [])

    def test_pull_asks_for_what_is_new(self):
        repo = self.serve_one()
        old = self.pull()
        repo.revisions["main"]["tiny-Q4_K_M.gguf"] = gguf("qwen2")
        self.assertIn("llama", self.works("inspect", REPO).stdout)
        new = self.pull()
        self.assertNotEqual(old.parent.name, new.parent.name)
        self.assertIn("qwen2", self.works("inspect", REPO).stdout)
        self.assertIn("llama", self.works("inspect", f"{REPO}@{old.parent.name}").stdout)

    def test_only_what_is_new_is_fetched(self):
        repo = self.serve_one({"config.json": b"{}", "model.safetensors": b"weights", "tokenizer.json": b"{}"})
        self.pull()
        repo.revisions["main"]["config.json"] = b"{ }"
        self.hub.requests.clear()
        self.pull()
        self.assertEqual([r.path.rsplit("/", 1)[-1] for r in self.hub.asked(containing="resolve")], ["config.json"])

    def test_offline(self):
        self.serve_one()
        for env, flags in (({"HF_HUB_OFFLINE": "1"}, []), ({}, ["--offline"]), ({"HF_HUB_OFFLINE": "true"}, [])):
            self.fails("inspect", REPO, *flags, env=env, says=["offline", f"aerie pull {REPO}", str(self.cache)])
        self.assertEqual(self.hub.requests, [])
        self.pull()
        self.hub.requests.clear()
        self.works("inspect", REPO, "--offline")
        self.fails("inspect", f"{REPO}:Q8_0", "--offline", says=["aerie pull"])
        self.fails("bench", "verify", "--offline", "-m", "org/no", says=["offline", "aerie pull org/no"])
        self.assertEqual(self.hub.requests, [])

    def test_half_of_a_snapshot_is_completed(self):
        self.serve_one(FOLDER)
        path = self.pull()
        for name in ("tokenizer.json", "config.json", "model.safetensors"):
            (path / name).unlink()
            self.fails("tokenize", "-m", REPO, "x", says=["tokenizer.json"])
            self.assertTrue((path / name).exists(), name)

    def test_a_missing_shard_is_completed(self):
        shards = {f"model-0000{i}-of-00002.safetensors": bytes([i]) for i in (1, 2)}
        index = json.dumps({"weight_map": {str(i): name for i, name in enumerate(shards)}}).encode()
        self.serve_one(FOLDER | shards | {"model.safetensors.index.json": index} | {"model.safetensors": b""})
        del self.hub.repo(REPO).revisions["main"]["model.safetensors"]
        path = self.pull()
        (path / "model-00002-of-00002.safetensors").unlink()
        self.call("inspect", REPO)
        self.assertTrue((path / "model-00002-of-00002.safetensors").exists())

    def test_where_the_cache_is(self):
        self.serve_one()
        a, b = self.folder / "a", self.folder / "b"
        self.assertIn(str(a / "models--org--tiny"), str(self.pull(env={"HF_HUB_CACHE": a})))
        self.assertIn(str(b / "huggingface/hub"), str(self.pull(env={"HF_HOME": "", "XDG_CACHE_HOME": b})))
        self.assertIn(str(self.folder / ".cache/huggingface/hub"), str(self.pull(env={"HF_HOME": ""})))
        self.assertIn(str(self.folder / "c/hub"), str(self.pull(env={"HF_HOME": "~/c"})))

    def test_refs_that_lead_out(self):
        self.serve_one()
        self.pull()
        (self.repo_folder() / "refs/main").write_text("../../../../etc")
        self.fails("inspect", REPO, "--offline", says=["aerie pull"])

    def test_two_at_once(self):
        self.serve_one({"m-Q4_K_M.gguf": LARGE}, Faults(slow=0.1))
        both = [self.start("pull", REPO) for _ in range(2)]
        ends = [process.communicate(timeout=hub_case.SECONDS) for process in both]
        self.assertEqual([process.returncode for process in both], [0, 0], ends)
        self.assertEqual(len(self.hub.asked("files")), 1)
        self.assertEqual(pathlib.Path(ends[0][0].strip()).read_bytes(), LARGE)

    def test_datasets(self):
        tool = hub_case.BIN / "locate_dataset"
        if not tool.exists():
            self.skipTest("needs the program locate_dataset")
        self.serve(datasets={"org/set": {"a.jsonl": b"1\n", "deep/b.jsonl": b"2\n", "c.csv": b"3\n"}})

        def locate(*wanted):
            done = subprocess.run([str(tool), "org/set", *wanted], env=self.environment(), text=True,
                                  capture_output=True, timeout=hub_case.SECONDS, check=False)
            return done.stdout.strip(), done.stderr
        found = pathlib.Path(locate(".jsonl")[0])
        self.assertEqual((found / "deep/b.jsonl").read_bytes(), b"2\n")
        self.assertFalse((found / "c.csv").exists())
        self.assertTrue(self.repo_folder("org/set", "datasets").is_dir())
        self.hub.requests.clear()
        locate(".jsonl")
        self.assertEqual(self.hub.requests, [])
        self.assertEqual((pathlib.Path(locate("c.csv")[0]) / "c.csv").read_bytes(), b"3\n")
        self.assertIn("does not have all of d.csv", locate("d.csv")[1])


class List(HubCase):
    def listed(self):
        return {one["name"]: one for one in json.loads(self.works("list", "--json").stdout)}

    def test_empty(self):
        self.assertEqual(self.works("list").stdout, "")
        self.assertEqual(self.listed(), {})

    def test_files_and_folders(self):
        self.serve({REPO: {"a-Q4_K_M.gguf": gguf(), "a-Q8_0.gguf": gguf("nonesuch")}, "org/folder": FOLDER})
        self.pull()
        self.pull(f"{REPO}:Q8_0")
        self.pull("org/folder")
        listed = self.listed()
        self.assertEqual(sorted(listed), ["org/folder", f"{REPO}:a-Q4_K_M.gguf", f"{REPO}:a-Q8_0.gguf"])
        one = listed[f"{REPO}:a-Q4_K_M.gguf"]
        self.assertEqual((one["type"], one["family"], one["bytes"]), ("GGUF", "llama", len(gguf())))
        self.assertTrue(pathlib.Path(one["path"]).exists())
        self.assertFalse(listed["org/folder"]["readable"])
        self.assertEqual(listed["org/folder"]["family"], "llama")
        text = self.works("list").stdout
        self.assertIn(f"{REPO}:a-Q8_0.gguf", text)
        self.assertIn("cannot be read", text)

    def test_what_others_left_does_not_matter(self):
        for name in ("models--x", "models--..--y", "version.txt", "models--a--b", "spaces--a--b"):
            (self.cache / name).mkdir(parents=True)
        (self.cache / "models--a--b/refs").mkdir()
        (self.cache / "models--a--b/refs/main").write_text("nonsense")
        (self.cache / "models--a--b/.no_exist").mkdir()
        self.assertEqual(self.listed(), {})


class Remove(HubCase):
    def test_all_of_a_repository(self):
        self.serve_one()
        self.pull()
        self.works("remove", REPO, "--yes")
        self.assertFalse(self.repo_folder().exists())
        self.assertEqual(list((self.cache / ".locks").iterdir()), [])

    def test_what_is_not_there(self):
        self.fails("remove", REPO, "--yes", says=["aerie list"])
        self.fails("remove", "../x", "--yes", says=["no name of a model"])
        self.fails("remove", "x", "--yes", says=["no name of a model"])

    def wait_for(self, there):
        end = time.monotonic() + hub_case.SECONDS
        while not there():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)

    def test_what_another_process_fetches(self):
        repo = self.serve_one({"m-Q4_K_M.gguf": LARGE, "s-Q8_0.gguf": gguf()})
        self.pull(f"{REPO}:Q8_0")
        repo.faults.goes_on = threading.Event()
        fetch = self.start("pull", REPO)
        blobs = self.repo_folder() / "blobs"
        self.wait_for(lambda: list(blobs.glob("*.incomplete")) and len(self.hub.asked("files")) == 2)
        for name in (REPO, f"{REPO}:Q8_0", f"{REPO}@main"):
            self.fails("remove", name, "--yes", says=[name.split("@")[0], "another process is fetching it", "wait for its end"])
        self.fails("remove", REPO, says=["another process is fetching it"])
        self.assertEqual((fetch.poll(), len(self.hub.asked("files"))), (None, 2))
        repo.faults.goes_on.set()
        out, err = fetch.communicate(timeout=hub_case.SECONDS)
        self.assertEqual(fetch.returncode, 0, err)
        self.assertEqual(pathlib.Path(out.strip()).read_bytes(), LARGE)
        self.works("remove", REPO, "--yes")
        self.assertFalse(self.repo_folder().exists())

    def test_what_another_program_fetches(self):
        """huggingface_hub has locks of single files."""
        self.serve_one()
        self.pull()
        [blob] = (self.repo_folder() / "blobs").iterdir()
        with open(self.cache / ".locks" / self.repo_folder().name / f"{blob.name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.fails("remove", REPO, "--yes", says=["another process is fetching it"])
        self.assertTrue(blob.exists())
        self.works("remove", REPO, "--yes")

    def test_a_fetch_waits_for_a_removal(self):
        self.serve_one()
        self.pull()
        locks = self.cache / ".locks" / self.repo_folder().name
        with open(locks / "use.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            fetch = self.start("pull", REPO)
            said = fetch.stderr.readline()
            self.assertIn("another program removes it: waiting for it", said)
            # As a removal ends: with the locks' names gone, of which the fetch makes its own.
            shutil.rmtree(locks)
            shutil.rmtree(self.repo_folder())
        out, err = fetch.communicate(timeout=hub_case.SECONDS)
        self.assertEqual(fetch.returncode, 0, err)
        self.assertEqual(pathlib.Path(out.strip()).read_bytes(), gguf())
        self.assertTrue((locks / "use.lock").exists())

    def test_nobody_to_ask(self):
        self.serve_one()
        self.pull()
        self.fails("remove", REPO, says=["--yes"])
        self.assertTrue(self.repo_folder().exists())

    def test_one_file_of_several(self):
        self.serve_one({"a-Q4_K_M.gguf": gguf(), "a-Q8_0.gguf": gguf("b")})
        kept = self.pull()
        gone = self.pull(f"{REPO}:Q8_0")
        blob = gone.resolve()
        self.works("remove", f"{REPO}:Q8_0", "--yes")
        self.assertFalse(gone.is_symlink() or blob.exists())
        self.assertEqual(kept.read_bytes(), gguf())

    def test_blobs_of_other_snapshots_stay(self):
        repo = self.serve_one({"config.json": b"{}", "model.safetensors": b"same", "tokenizer.json": b"[]"})
        old = self.pull()
        repo.revisions["main"]["config.json"] = b"{ }"
        new = self.pull()
        config = (old / "config.json").resolve()
        self.works("remove", f"{REPO}@{old.name}", "--yes")
        self.assertFalse(old.exists() or config.exists())
        self.assertEqual((new / "model.safetensors").read_bytes(), b"same")
        self.works("remove", f"{REPO}@main", "--yes")
        self.assertEqual(self.named(), [])

    def test_a_terminal_is_asked(self):
        self.serve_one()
        self.pull()
        for answer, stays in (("n", True), ("", True), ("y", False)):
            control, terminal = pty.openpty()
            process = subprocess.Popen([str(hub_case.BIN / "aerie"), "remove", REPO], env=self.environment(),
                                       stdin=terminal, stderr=subprocess.PIPE)
            os.write(control, answer.encode() + b"\n")
            _, said = process.communicate(timeout=hub_case.SECONDS)
            os.close(control)
            os.close(terminal)
            self.assertIn(b"[y/N]", said)
            self.assertEqual(self.repo_folder().exists(), stays, said)


if __name__ == "__main__":
    hub_case.BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
