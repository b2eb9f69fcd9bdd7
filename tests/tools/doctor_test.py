#!/usr/bin/env python3
"""`aerie doctor`: of the machine, of models, and of what is none.

    tests/tools/doctor_test.py BIN [TEST...]       BIN: the folder with aerie
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

BIN = pathlib.Path("build/release/bin")
SECONDS = 240
FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="aerie_doctor_"))
MODEL, HEAD = FOLDER / "model.gguf", FOLDER / "head"


def aerie(*arguments):
    done = subprocess.run([BIN / "aerie", *map(str, arguments)], capture_output=True, timeout=SECONDS, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def setUpModule():
    for command in (["make-model", "--shape", "tiny", "--type", "bf16", MODEL],
                    ["make-head", "-m", MODEL, "--kind", "eagle3", HEAD]):
        status, _, said = aerie("bench", *command)
        assert status == 0, said


def tearDownModule():
    shutil.rmtree(FOLDER)


class Doctor(unittest.TestCase):
    def test_a_machine(self):
        status, text, said = aerie("doctor", "--no-measure")
        self.assertEqual((status, said), (0, ""))
        for word in ("Versions:", "aerie-train", "Processor:", "Instructions:", "Memory:", "Huge pages:", "Devices:", "Folder:"):
            self.assertIn(word, text)
        self.assertNotIn("Measured:", text)
        self.assertNotIn("fatal", text)

    def test_a_model(self):
        status, text, said = aerie("doctor", MODEL)
        self.assertEqual(status, 0, said)
        for word in ("Measured:", "llama", "bf16", "the model fits", "tokens/s", "8 rows:"):
            self.assertIn(word, text)

    def test_figures(self):
        file = FOLDER / "figures.json"
        status, text, _ = aerie("doctor", MODEL, "--json", file, "--ctx", "64", "--threads", "1")
        self.assertEqual(status, 0)
        self.assertIn("Findings:", text)
        figures = json.loads(file.read_text())
        self.assertTrue(figures["can_run"])
        self.assertEqual(figures["machine"]["threads"], 1)
        self.assertGreater(figures["limits"]["bandwidth"], 0)
        model = figures["model"]
        self.assertEqual((model["family"], model["context"]), ("llama", 64))
        self.assertEqual([one["rows"] for one in model["passes"]], [1, 4, 8])
        self.assertGreater(model["tokens_per_second"], 0)

    def test_drafters(self):
        for flags in (["--speculate", f"ngram,eagle3:model={HEAD}"],
                      ["--speculative-config", json.dumps({"method": "eagle3", "model": str(HEAD), "num_speculative_tokens": 3})]):
            status, text, said = aerie("doctor", MODEL, "--no-measure", "--json", "-", *flags)
            self.assertEqual(status, 0, said)
            self.assertIn("the model and its drafters fit", said)
            model = json.loads(text)["model"]
            [head] = model["drafters"]
            self.assertEqual((head["method"], head["model"]), ("eagle3", str(HEAD)))
            self.assertGreater(head["cache_bytes"], 0)
            of_model = model["weight_bytes"] + model["cache_bytes"] + model["work_bytes"]
            self.assertEqual(model["bytes"], of_model + head["weight_bytes"] + head["cache_bytes"])
        smaller = json.loads(aerie("doctor", MODEL, "--no-measure", "--json", "-", *flags, "--draft-type", "q4_0")[1])
        self.assertLess(smaller["model"]["drafters"][0]["weight_bytes"], head["weight_bytes"])
        status, _, said = aerie("doctor", MODEL, "--speculate", "ngram", "--draft-type", "q4_0")
        self.assertEqual(status, 2)
        self.assertIn("trained heads", said)

    def test_figures_on_standard_output_stand_alone(self):
        status, text, said = aerie("doctor", MODEL, "--no-measure", "--json", "-")
        self.assertEqual(status, 0)
        figures = json.loads(text)
        self.assertIsNone(figures["limits"])
        self.assertNotIn("tokens_per_second", figures["model"])
        self.assertIn("Processor:", said)

    def fatal(self, word, *arguments):
        status, text, said = aerie("doctor", *arguments, "--no-measure")
        self.assertEqual((status, said), (1, ""))
        self.assertIn("fatal", text)
        self.assertIn(word, text)
        self.assertIn("Processor:", text)

    def test_what_cannot_run(self):
        self.fatal("nothing.gguf", FOLDER / "nothing.gguf")
        self.fatal("is a draft head", HEAD)
        self.fatal("--ctx", MODEL, "--ctx", "1000000")
        self.fatal("eagle3: ", MODEL, "--speculate", f"eagle3:model={FOLDER / 'no_head'}")
        broken = FOLDER / "broken.gguf"
        broken.write_bytes(MODEL.read_bytes()[:1000])
        self.fatal("broken.gguf", broken)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        BIN = pathlib.Path(sys.argv.pop(1))
    unittest.main()
