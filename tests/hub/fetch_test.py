#!/usr/bin/env python3
"""Models by name, from a hub that does everything wrong that a hub, a network or a disk can do wrong.

    tests/hub/fetch_test.py BIN [TEST...]       BIN: the folder with aerie
"""

import hashlib
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
import unittest

import hub_case
from hub_case import REPO, HubCase, gguf
from hub_server import Faults, etag_of

LARGE = gguf(padding=600_000)  # takes several pieces
SAFE = (lambda header: len(header).to_bytes(8, "little") + header + b"\0" * 8)(
    json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode())


class Names(HubCase):
    def test_a_name_is_fetched_and_opened(self):
        self.serve_one()
        self.assertIn("tiny-Q4_K_M.gguf", self.works("inspect", REPO).stdout)

    def test_a_path_wins(self):
        self.serve_one()
        (self.folder / "org").mkdir()
        (self.folder / "org/tiny").write_bytes(gguf("qwen2"))
        self.assertIn("qwen2", self.works("inspect", REPO).stdout)
        self.assertEqual(self.hub.requests, [])

    def test_other_shapes_stay_paths(self):
        self.serve_one()
        for name in ("nowhere.gguf", "./org/tiny", "/org/tiny", "org/tiny/file", "org/tiny.gguf", "org/..", "tiny",
                     "org/tiny:../x", "org/tiny@..", "-org/tiny", "org//tiny", "org/ti ny", "org/tiny:a\\b"):
            with self.subTest(name):
                self.fails("inspect", "--", name, says=["there is no such file"])
        self.assertEqual(self.hub.requests, [])

    def test_neither_says_both(self):
        self.serve_one()
        self.fails("inspect", "org/other", says=["there is no such file or folder", "look at the spelling"])

    def test_the_same_as_a_path_for_run(self):
        self.serve_one()
        self.fails("run", "-m", "org/other", "-p", "x", says=["there is no such file or folder", "HF_TOKEN"])

    def test_hf_is_another_word_for_m(self):
        self.serve_one()
        for words in (["-hf", "org/no"], ["--hf-repo", "org/no"], ["--hf-repo=org/no"]):
            self.fails("tokenize", *words, "x", says=["org/no", "look at the spelling"])

    def test_a_draft_model_is_named_too(self):
        model = pathlib.Path(__file__).parents[2] / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
        if not model.exists():
            self.skipTest("needs the real model")
        self.serve_one()
        for config in ("draft_model:model=org/no:Q8_0", "eagle3:model=org/no@v1", "auto,medusa:model=org/no"):
            self.fails("run", "-m", model, "-p", "x", "--speculate", config, says=["org/no", "the hub knows"])
        self.fails("run", "-m", model, "-p", "x", "--speculative-config",
                   '{"method":"draft_model","model":"org/no","num_speculative_tokens":3}', says=["org/no", "the hub"])

    def test_a_model_from_the_hub_answers(self):
        model = pathlib.Path(__file__).parents[2] / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
        if not model.exists():
            self.skipTest("needs the real model")
        head = model.parent / "heads/SmolLM2-135M-Instruct-EAGLE3"
        self.serve({REPO: {"x-Q4_1.gguf": model.read_bytes()},
                    "org/head": {path.name: path.read_bytes() for path in head.iterdir()}})
        flags = ["-p", "one two three", "--raw", "-n", "4", "--temp", "0", "-q"]
        here = self.works("run", "-m", model, *flags).stdout
        self.assertEqual(self.works("run", "-hf", REPO, *flags).stdout, here)
        self.hub.requests.clear()
        draft = ["--speculate", f"draft_model:model={REPO}:q4_1"]
        self.assertEqual(self.works("run", REPO, *flags, *draft).stdout, here)
        self.assertEqual(self.hub.requests, [])
        draft = ["--speculative-config",
                 '{"method":"eagle3","model":"org/head","num_speculative_tokens":3}', "--json", self.folder / "json"]
        for _ in range(2):
            self.assertEqual(self.works("run", REPO, *flags, *draft).stdout, here)
            self.assertIn("drafted", (self.folder / "json").read_text())
        self.assertEqual(len(self.hub.asked("hub", "/api/models/org/head")), 1)


class Choice(HubCase):
    FILES = {"m-Q4_0.gguf": gguf(), "m-Q4_K_M.gguf": gguf("a"), "m-Q8_0.gguf": gguf("b"),
             "mmproj-m-Q8_0.gguf": gguf("c"), "m.imatrix.gguf": gguf("d"), "README.md": b"x"}

    def test_a_quantisation(self):
        self.serve_one(self.FILES)
        self.assertEqual(self.pull(f"{REPO}:q8_0").name, "m-Q8_0.gguf")
        self.assertEqual(len(self.hub.asked("files")), 1)

    def test_a_file(self):
        self.serve_one(self.FILES)
        self.assertEqual(self.pull(f"{REPO}:m-Q4_0.gguf").name, "m-Q4_0.gguf")

    def test_the_default_is_said(self):
        self.serve_one(self.FILES)
        self.assertIn("took Q4_K_M (m-Q4_K_M.gguf)", self.works("inspect", REPO).stderr)

    def test_what_there_is_is_said(self):
        self.serve_one(self.FILES)
        done = self.fails("inspect", f"{REPO}:Q6_K", says=["there is no Q6_K", "m-Q4_0.gguf", "m-Q8_0.gguf"])
        self.assertNotIn("mmproj", done.stderr)

    def test_parts_come_together(self):
        parts = {f"Q8_0/m-Q8_0-0000{i}-of-00003.gguf": gguf(str(i)) for i in (1, 2, 3)}
        self.serve_one(parts | self.FILES)
        path = self.pull(f"{REPO}:m-Q8_0-00002-of-00003.gguf")
        self.assertEqual(path.name, "m-Q8_0-00001-of-00003.gguf")
        self.assertEqual(len(list(path.parent.iterdir())), 3)

    def test_a_folder_has_what_it_takes_and_nothing_else(self):
        wanted = {"config.json": b"{}", "generation_config.json": b"{}", "tokenizer.json": b"{}",
                  "chat_template.jinja": b"", "model.safetensors": SAFE}
        others = {"pytorch_model.bin": b"1", "original/consolidated.00.pth": b"2", "onnx/model.onnx": b"3",
                  "tf_model.h5": b"4", "README.md": b"5", "model.fp16.safetensors": b"6"}
        self.serve_one(wanted | others)
        self.assertEqual(sorted(p.name for p in self.pull().iterdir()), sorted(wanted))

    def test_shards(self):
        shards = {f"model-0000{i}-of-00002.safetensors": SAFE + bytes([i]) for i in (1, 2)}
        index = json.dumps({"weight_map": {str(i): name for i, name in enumerate(shards)}}).encode()
        wanted = shards | {"config.json": b"{}", "model.safetensors.index.json": index}
        self.serve_one(wanted | {"consolidated.safetensors": b"x"})
        self.assertEqual(sorted(p.name for p in self.pull().iterdir()), sorted(wanted))

    def test_a_head_of_pytorch(self):
        self.serve_one({"config.json": b"{}", "medusa_lm_head.pt": b"x", "training_args.bin": b"y"})
        self.assertEqual(sorted(p.name for p in self.pull().iterdir()), ["config.json", "medusa_lm_head.pt"])

    def test_nothing_that_can_be_read(self):
        self.serve_one({"README.md": b"x", "onnx/model.onnx": b"y"})
        self.fails("pull", REPO, says=["no model that can be read", "neither GGUF files nor safetensors"])

    def test_revisions(self):
        repo = self.serve_one(revisions={"v1/old": {"o-Q4_K_M.gguf": gguf("old")}})
        self.assertEqual(self.pull(f"{REPO}@v1/old").name, "o-Q4_K_M.gguf")
        commit = repo.commit("v1/old")
        self.assertEqual(self.pull(f"{REPO}@{commit}").parent.name, commit)
        self.assertEqual(self.works("pull", REPO, "--revision", "v1/old").returncode, 0)
        self.assertEqual((self.repo_folder() / "refs/v1/old").read_text(), commit)
        self.assertFalse((self.repo_folder() / f"refs/{commit}").exists())

    def test_no_such_revision(self):
        self.serve_one()
        self.fails("pull", f"{REPO}@v9", says=["no such revision", "look at the branches", REPO])


class Tokens(HubCase):
    def test_a_private_repository(self):
        self.serve_one(faults=Faults(token="hf_secret"))
        self.fails("pull", REPO, says=["401", "HF_TOKEN", "https://huggingface.co/settings/tokens"])
        self.pull(env={"HF_TOKEN": "hf_secret"})

    def test_a_wrong_token(self):
        self.serve_one(faults=Faults(token="hf_secret"))
        done = self.fails("pull", REPO, says=["does not accept the token"], env={"HF_TOKEN": "hf_wrong"})
        self.assertNotIn("hf_wrong", done.stderr)

    def test_where_tokens_lie(self):
        self.serve_one(faults=Faults(token="hf_secret"))
        self.home.mkdir()
        file = self.folder / "file"
        file.write_text("hf_secret\n")
        self.pull(env={"HF_TOKEN_PATH": file})
        self.pull(env={"HUGGING_FACE_HUB_TOKEN": "hf_secret"})
        (self.home / "token").write_text("  hf_secret \n")
        self.pull()

    def test_a_token_stays_with_the_hub(self):
        self.serve_one({"m-Q4_K_M.gguf": LARGE})
        self.pull(env={"HF_TOKEN": "hf_secret"})
        for request in self.hub.requests:
            has = "hf_secret" in str(request.headers)
            self.assertEqual(has, request.host == "hub", request)
        self.assertEqual(len(self.hub.asked("files")), 1)

    def test_another_port_is_another_host(self):
        repo = self.serve_one()
        commit = repo.commit("main")
        repo.faults.redirects = f"{self.hub.files_url}/models/{REPO}/{commit}/tiny-Q4_K_M.gguf".replace(
            "localhost", "127.0.0.1")
        self.pull(env={"HF_TOKEN": "hf_secret"})
        self.assertNotIn("hf_secret", str(self.hub.asked("files")))

    def test_gated(self):
        self.serve_one(faults=Faults(gated=True))
        self.fails("pull", REPO, says=["403", "licence", f"{self.hub.url}/{REPO}"], env={"HF_TOKEN": "hf_x"})

    def test_gated_files(self):
        for status in (401, 403):
            self.serve_one(faults=Faults(gated_files=status))
            self.fails("pull", REPO, says=[str(status), "licence", f"{self.hub.url}/{REPO}"])
            self.nothing_is_named()

    def test_a_token_that_is_none(self):
        self.serve_one()
        self.fails("pull", REPO, says=["HF_TOKEN"], env={"HF_TOKEN": "a b"})
        self.assertEqual(self.hub.requests, [])


class Faulty(HubCase):
    """Whatever goes wrong: nothing that is not whole and right gets a name."""
    def test_a_cut_is_gone_on_from(self):
        self.serve_one({"m-Q4_K_M.gguf": LARGE}, Faults(cuts=[200_000, 100_000]))
        self.assertEqual(self.pull().read_bytes(), LARGE)
        ranges = [r.headers.get("Range") for r in self.hub.asked("files")]
        self.assertIsNone(ranges[0])
        self.assertTrue(all(r and r.startswith("bytes=") for r in ranges[1:]), ranges)

    def test_cuts_without_end(self):
        self.serve_one({"m-Q4_K_M.gguf": LARGE}, Faults(cuts=[0] * 99))
        self.fails("pull", REPO, says=["m-Q4_K_M.gguf", "the hub cannot be asked"])
        self.nothing_is_named()
        self.assertLess(len(self.hub.asked("files")), 12)

    def test_another_process_goes_on(self):
        repo = self.serve_one({"m-Q4_K_M.gguf": LARGE}, Faults(cuts=[300_000] + [0] * 99))
        self.fails("pull", REPO, says=["m-Q4_K_M.gguf"])
        self.nothing_is_named()
        begun = list((self.repo_folder() / "blobs").glob("*.incomplete"))
        self.assertEqual(len(begun), 1)
        size = begun[0].stat().st_size
        self.assertGreater(size, 0)
        repo.faults.cuts.clear()
        self.hub.requests.clear()
        self.assertEqual(self.pull().read_bytes(), LARGE)
        self.assertEqual([r.headers.get("Range") for r in self.hub.asked("files")], [f"bytes={size}-"])

    def begin(self, data):
        etag = etag_of("x.gguf", LARGE)
        blobs = self.repo_folder() / "blobs"
        blobs.mkdir(parents=True)
        (blobs / f"{etag}.incomplete").write_bytes(data)

    def test_ranges_that_are_ignored(self):
        self.serve_one({"m-Q4_K_M.gguf": LARGE}, Faults(ignore_range=True))
        self.begin(LARGE[:1000])
        self.assertEqual(self.pull().read_bytes(), LARGE)

    def test_a_beginning_that_is_wrong(self):
        self.serve_one({"m-Q4_K_M.gguf": LARGE})
        self.begin(b"?" * 1000)
        self.assertEqual(self.pull().read_bytes(), LARGE)

    def test_a_beginning_that_is_too_long(self):
        self.serve_one({"m-Q4_K_M.gguf": LARGE})
        self.begin(LARGE + b"x")
        self.assertEqual(self.pull().read_bytes(), LARGE)

    def test_a_beginning_that_is_all(self):
        self.serve_one({"m-Q4_K_M.gguf": LARGE})
        self.begin(LARGE)
        self.assertEqual(self.pull().read_bytes(), LARGE)
        self.assertEqual(self.hub.asked("files"), [])

    def test_wrong_bytes(self):
        repo = self.serve_one({"m-Q4_K_M.gguf": LARGE}, Faults(wrong_bytes=1))
        self.fails("pull", REPO, says=["m-Q4_K_M.gguf", "not what the hub promised", "try again"])
        self.nothing_is_named()
        self.assertEqual(repo.faults.wrong_bytes, 0)
        self.assertEqual(self.pull().read_bytes(), LARGE)

    def test_wrong_bytes_of_a_small_file(self):
        repo = self.serve_one({"config.json": b"{}", "model.safetensors": SAFE}, Faults(wrong_bytes=2))
        self.fails("pull", REPO, says=["not what the hub promised"])
        self.assertFalse((self.repo_folder() / "snapshots").exists())
        repo.faults.wrong_bytes = 0
        self.pull()

    def test_fewer_bytes_than_promised(self):
        self.serve_one(faults=Faults(wrong_size=5))
        self.fails("pull", REPO, says=["tiny-Q4_K_M.gguf"])
        self.nothing_is_named()

    def test_more_bytes_than_promised(self):
        self.serve_one(faults=Faults(longer=5))
        self.fails("pull", REPO, says=["tiny-Q4_K_M.gguf"])
        self.nothing_is_named()

    def test_another_commit(self):
        self.serve_one(faults=Faults(other_commit=True))
        self.fails("pull", REPO, says=["another file than it listed"])
        self.nothing_is_named()

    def test_a_busy_hub_is_asked_again(self):
        self.serve_one(faults=Faults(statuses=[503, 429], api_statuses=[502, 429], retry_after=1))
        start = time.monotonic()
        self.pull()
        self.assertGreater(time.monotonic() - start, 3.5)

    def stays_busy(self, status, word):
        self.serve_one(faults=Faults(api_statuses=[status] * 99))
        self.fails("pull", REPO, says=[str(status), word])
        self.assertLess(len(self.hub.requests), 9)

    def test_a_hub_that_stays_busy(self):
        self.stays_busy(429, "fewer requests")

    def test_a_hub_that_stays_broken(self):
        self.stays_busy(500, "try again later")

    def test_addresses_that_expire(self):
        self.serve_one(faults=Faults(statuses=[403]))
        self.pull()
        self.assertEqual([r.status for r in self.hub.asked("files")], [403, 200])
        self.assertEqual(len(self.hub.asked("hub", "resolve")), 2)
        shutil.rmtree(self.home)
        self.serve_one(faults=Faults(statuses=[404]))
        done = self.fails("pull", REPO, says=["where the hub keeps it", "404"])
        self.assertNotIn("licence", done.stderr)

    def test_nobody_listens(self):
        self.fails("pull", REPO, says=["cannot be asked", "--offline"], env={"HF_ENDPOINT": "http://127.0.0.1:9"})

    def test_endpoints_that_are_none(self):
        for endpoint in ("ftp://127.0.0.1", "nothing", "file:///etc", "http://"):
            self.fails("pull", REPO, says=["HF_ENDPOINT"], env={"HF_ENDPOINT": endpoint})

    def test_redirects_to_nowhere(self):
        for place in ("file:///etc/passwd", "ftp://127.0.0.1/x", "http://", "gopher://127.0.0.1:1/x"):
            self.serve_one(faults=Faults(redirects=place))
            self.fails("pull", REPO, says=["redirects to"])
            self.nothing_is_named()

    def test_redirects_without_end(self):
        repo = self.serve_one()
        repo.faults.redirects = f"/{REPO}/resolve/main/tiny-Q4_K_M.gguf"
        self.fails("pull", REPO, says=["redirects more than"])
        self.assertLess(len(self.hub.requests), 20)


class Hostile(HubCase):
    """A hub that is none, or that means harm."""
    def listing(self, *names, **more):
        entry = {"size": 5, "blobId": "0" * 40}
        return {"sha": "1" * 40, "siblings": [{"rfilename": name} | entry for name in names]} | more

    def refused(self, listing, *says):
        self.serve_one(faults=Faults(listing=listing))
        self.fails("pull", REPO, says=says)
        self.nothing_is_named()
        self.assertEqual(sorted(p.name for p in self.folder.iterdir() if p.name != "home"), [])

    def test_names_that_lead_out(self):
        for name in ("../x.gguf", "a/../../x.gguf", "/etc/x.gguf", "a\\..\\x.gguf", "a//x.gguf", "./x.gguf", "",
                     "x\n.gguf", "x\0.gguf", "\x1b[2J.gguf", "y" * 2000 + ".gguf"):
            with self.subTest(name):
                self.refused(self.listing("m-Q4_K_M.gguf", name), "nothing is fetched")

    def test_digests_that_lead_out(self):
        for digest in ("../../../x", "", "G" * 40, "0" * 39):
            listing = self.listing()
            listing["siblings"] = [{"rfilename": "x.gguf", "size": 1, "blobId": digest}]
            self.refused(listing, "digest")

    def test_commits_that_lead_out(self):
        self.refused(self.listing("x.gguf", sha="../../../../x"), "no commit")

    def test_answers_that_are_none(self):
        for listing in (b"<html>", b"[]", b"{}", b"", {"sha": "1" * 40}, {"sha": 5}, {"sha": "1" * 40, "siblings": 3},
                        self.listing("x.gguf", "x.gguf"), b'{"a":' * 5000):
            self.refused(listing, "the hub's answer")

    def test_sizes_that_cannot_be(self):
        for size in (-1, 1 << 60, "5", None):
            listing = self.listing()
            listing["siblings"] = [{"rfilename": "x.gguf", "size": size, "blobId": "0" * 40}]
            self.refused(listing, "size")

    def test_an_answer_without_end(self):
        self.refused(b" " * ((64 << 20) + 1), "longer than it may be")


class Room(HubCase):
    def test_free_space_is_looked_at_first(self):
        self.serve_one(faults=Faults(wrong_size=1 << 49))
        self.fails("pull", REPO, says=["too full", "are wanted", "are free", "HF_HUB_CACHE"])
        self.assertEqual(self.hub.asked("files"), [])
        self.nothing_is_named()

    def test_a_disk_that_fills_up(self):
        goes_on = threading.Event()
        self.serve_one({"m-Q4_K_M.gguf": LARGE}, Faults(goes_on=goes_on))
        tool = shlex.quote(str(pathlib.Path(hub_case.BIN).resolve() / "aerie"))
        self.home.mkdir()
        # Room for the file by what the disk says, and less by what it takes: blocks are held back by a thief.
        script = (f"mount -t tmpfs -o size=900k none {self.home} || exit 77; "
                  f"{tool} pull {REPO} & pid=$!; "
                  f"while kill -0 $pid 2>/dev/null && ! ls {self.cache}/*/blobs/*.incomplete >/dev/null 2>&1; do :; "
                  f"done; head -c 850k /dev/zero > {self.home}/thief 2>/dev/null; : > {self.folder}/full; "
                  f"wait $pid; code=$?; find {self.home} -path '*snapshots*' -o -path '*refs*'; exit $code")
        try:
            process = subprocess.Popen(["unshare", "-rm", "sh", "-c", script], env=self.environment(), text=True,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        except FileNotFoundError:
            self.skipTest("there is no unshare")
        until = time.monotonic() + hub_case.SECONDS
        while process.poll() is None and time.monotonic() < until and not (self.folder / "full").exists():
            time.sleep(0.01)
        goes_on.set()
        out, err = process.communicate(timeout=hub_case.SECONDS)
        if process.returncode == 77 or "unshare" in err:
            self.skipTest("no disk can be made here")
        self.assertEqual(process.returncode, 1, (out, err))
        self.assertIn("the disk is full", err)
        self.assertIn("make room", err)
        self.assertEqual(out, "")

    def test_a_cache_that_cannot_be_written(self):
        self.serve_one()
        self.home.write_text("a file")
        self.fails("pull", REPO, says=[str(self.home)])

    def test_no_home(self):
        self.serve_one()
        self.fails("pull", REPO, says=["set HF_HOME"], env={"HF_HOME": "", "HOME": ""})


class Interrupted(HubCase):
    def test_ctrl_c_leaves_what_can_be_gone_on_from(self):
        for number in (signal.SIGINT, signal.SIGKILL):
            repo = self.serve_one({"m-Q4_K_M.gguf": LARGE}, Faults(goes_on=threading.Event()))
            process = self.start("pull", REPO)
            blobs = self.repo_folder() / "blobs"
            until = time.monotonic() + hub_case.SECONDS
            while time.monotonic() < until and not any(p.stat().st_size for p in blobs.glob("*.incomplete")):
                time.sleep(0.01)
            process.send_signal(number)
            process.communicate(timeout=hub_case.SECONDS)
            self.assertNotEqual(process.returncode, 0)
            self.nothing_is_named()
            repo.faults.goes_on.set()
            self.hub.requests.clear()
            self.assertEqual(hashlib.sha256(self.pull().read_bytes()).digest(), hashlib.sha256(LARGE).digest())
            self.assertRegex(self.hub.asked("files")[0].headers.get("Range", ""), r"^bytes=[1-9]\d*-$")
            shutil.rmtree(self.home)


if __name__ == "__main__":
    hub_case.BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    # Programs of those that are deaf to it, as in the background of a shell, are so, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.umask(0o022)
    unittest.main(testRunner=hub_case.AtOnceRunner)
