#!/usr/bin/env python3
"""The cache that Aerie shares with the package huggingface_hub, which its layout is from.

    tests/hub/shared_cache_test.py BIN [TEST...]       BIN: the folder with aerie

Needs the package: tests/hub/run.sh gets it.
"""

import pathlib
import subprocess
import sys
import unittest

import hub_case
from hub_case import FOLDER, REPO, HubCase, gguf
from hub_server import Faults

LARGE = gguf(padding=600_000)


class Shared(HubCase):
    def python(self, code, offline):
        env = self.environment(HF_HUB_DISABLE_TELEMETRY="1", HF_HUB_DISABLE_XET="1",
                               HF_HUB_OFFLINE="1" if offline else "0")
        done = subprocess.run([sys.executable, "-c", "from huggingface_hub import *\n" + code], env=env, text=True,
                              capture_output=True, timeout=hub_case.SECONDS, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def test_python_finds_what_aerie_fetched(self):
        self.serve_one(FOLDER)
        path = self.pull()
        code = f"print(snapshot_download('{REPO}', local_files_only=True))"
        self.assertEqual(self.python(code, offline=True), str(path))
        code = f"print(hf_hub_download('{REPO}', 'config.json', local_files_only=True))"
        self.assertEqual(self.python(code, offline=True), str(path / "config.json"))
        code = "r = scan_cache_dir(); print(len(r.warnings), [x.repo_id for x in r.repos], r.size_on_disk)"
        self.assertEqual(self.python(code, offline=True), f"0 ['{REPO}'] {sum(map(len, FOLDER.values()))}")

    def test_aerie_finds_what_python_fetched(self):
        self.serve_one(FOLDER | {"m/a-Q4_K_M.gguf": gguf()})
        path = self.python(f"print(snapshot_download('{REPO}'))", offline=False)
        self.hub.requests.clear()
        done = self.call("tokenize", "--offline", "-m", REPO, "x")
        self.assertIn(path, done.stderr)
        self.works("inspect", "--offline", f"{REPO}:Q4_K_M")
        self.assertEqual(self.hub.requests, [])
        self.assertIn(REPO, self.works("list").stdout)

    def test_python_fetches_nothing_again(self):
        self.serve_one(FOLDER)
        path = self.pull()
        self.hub.requests.clear()
        self.assertEqual(self.python(f"print(snapshot_download('{REPO}'))", offline=False), str(path))
        self.assertEqual([r for r in self.hub.requests if r.status == 200 and "resolve" in r.path
                          and "Range" in r.headers], [])
        self.assertEqual(self.hub.asked("files"), [])

    def test_both_at_once(self):
        self.serve_one({"m-Q4_K_M.gguf": LARGE}, Faults(slow=0.1))
        process = self.start("pull", REPO)
        path = self.python(f"print(hf_hub_download('{REPO}', 'm-Q4_K_M.gguf'))", offline=False)
        out, err = process.communicate(timeout=hub_case.SECONDS)
        self.assertEqual(process.returncode, 0, err)
        self.assertEqual(out.strip(), path)
        self.assertEqual(pathlib.Path(path).read_bytes(), LARGE)


if __name__ == "__main__":
    hub_case.BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
