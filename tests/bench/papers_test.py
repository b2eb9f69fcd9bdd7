"""bench/papers (docs/training.md): tables of known figures, what is kept, and bad input.   papers_test.py [AERIE]"""

import fractions
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAPERS = ROOT / "bench/papers"
AERIE = sys.argv.pop() if len(sys.argv) > 1 else None
sys.path.insert(0, str(PAPERS))

import drafters  # noqa: E402
from experiments import SETS, part_of  # noqa: E402

# Writes down what it is asked for. Of `bench spec` a method has the τ that the digits of its name, or of its folder, make.
STUB = r'''#!/usr/bin/env python3
import json, pathlib, re, sys
words = sys.argv[1:]
here = pathlib.Path(__file__).parent
with open(here / "asked", "a") as asked:
    asked.write(json.dumps(words) + "\n")
if (here / "fails").exists():
    sys.exit("it went wrong")
def after(flag):
    return [words[i + 1] for i, word in enumerate(words) if word == flag]
if words[0] == "train":
    final = pathlib.Path(after("--out")[0]) / "final"
    final.mkdir(parents=True, exist_ok=True)
    (final / "config.json").write_text("{}")
else:
    made = []
    for temperature in after("--temperature")[0].split(","):
        for method in ["none", *after("--method")]:
            folder = method.split("model=")[-1].split(",")[0]
            tau = 1 + sum(map(int, re.findall(r"\d", folder.split("/papers/")[-1]))) / 10
            figures = {"mean_accepted_length": tau + float(temperature), "n_alpha": [0.5, tau / 10],
                       "speedup": {"value": 1.5, "low_95": 1.25, "high_95": 1.75}}
            made.append({"method": method, "temperature": float(temperature), "without_looped": figures})
    pathlib.Path(after("--json")[0]).write_text(json.dumps({"methods": made}))
'''


class Papers(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)
        self.folder = pathlib.Path(self.scratch.name)
        self.aerie = self.folder / "aerie"
        self.aerie.write_text(STUB)
        self.aerie.chmod(0o755)
        for name in ("model.gguf", "data", "sets"):
            (self.folder / name).mkdir()
        (self.folder / "data/data.json").write_text("{}")
        (self.folder / "data/answers-1-of-1.jsonl").write_text(
            "".join(json.dumps({"id": f"{n}-0", "prompt": n}) + "\n" for n in range(16)))

    def run_table(self, *words, status=0):
        done = subprocess.run([sys.executable, PAPERS, words[0], "-m", self.folder / "model.gguf", "--work",
                               self.folder / "papers", "--aerie", self.aerie, *words[1:]],
                              check=False, capture_output=True, encoding="utf-8")
        self.assertEqual(done.returncode, status, done.stderr)
        return done

    def with_data(self, *words):
        return self.run_table(*words, "--data", self.folder / "data", "--sets", self.folder / "sets")

    def asked(self):
        return [json.loads(line) for line in (self.folder / "asked").read_text().splitlines()]

    def test_methods_are_everything_at_hand(self):
        self.run_table("heads", "--data", self.folder / "data", "--methods", "EAGLE-3,Medusa")
        printed = self.run_table("methods", "--sets", self.folder / "sets", "--method", "mine=eagle3:model=/4").stdout
        for temperature, add in (("0", 0.0), ("1", 1.0)):
            part = printed.split(f"Temperature {temperature}:")[1].split("Temperature")[0]
            rows = {cells[1]: cells for cells in ([cell.strip() for cell in line.split("|")] for line in part.splitlines())
                    if len(cells) > 4}
            self.assertEqual(set(rows) - {"", "---"}, {*drafters.UNTRAINED, "EAGLE-3", "EAGLE-3, tree", "Medusa", "mine"})
            self.assertEqual(rows["mine"][2:], [*[f"{1.4 + add:.2f}, 1.50 (1.25-1.75)"] * 5, f"{1.4 + add:.2f}, 1.50",
                                                "0.50 0.14 0.00 0.00", ""])
            self.assertEqual(rows["ngram"][2], f"{1 + add:.2f}, 1.50 (1.25-1.75)")
        self.assertEqual((self.folder / "papers/methods.md").read_text(), printed)

    def test_what_is_there_is_not_done_again(self):
        self.run_table("methods", "--sets", self.folder / "sets")
        self.assertEqual(len(self.asked()), len(SETS))
        self.run_table("methods", "--sets", self.folder / "sets")
        self.assertEqual(len(self.asked()), len(SETS))
        (self.folder / "papers/methods/QA.json").unlink()
        self.run_table("methods", "--sets", self.folder / "sets")
        self.assertEqual(len(self.asked()), len(SETS) + 1)
        self.run_table("methods", "--sets", self.folder / "sets", "--max-tokens", "7")
        self.assertEqual(len(self.asked()), 2 * len(SETS) + 1)
        two = self.run_table("methods", "--sets", self.folder / "sets", "--max-tokens", "7", "--only", "GSM8K,QA").stdout
        self.assertEqual(len(self.asked()), 2 * len(SETS) + 1)
        self.assertIn("|  | GSM8K | QA | mean | n-α |", two)

    def test_shares_of_the_data(self):
        printed = self.with_data("data", "--shares", "1/4,1", "--seeds", "2,4").stdout
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in printed.splitlines()[2:]]
        # τ of data/1-of-4-2 and -4 is 1.7 and 1.9, of data/1-of-1-2 and -4 1.4 and 1.6; Student's t of one degree is 12.71.
        self.assertEqual(rows, [["1/4", "0.500 ± 0.000", "0.180 ± 0.127", *["0.000 ± 0.000"] * 2, "1.800 ± 1.271"],
                                ["1", "0.500 ± 0.000", "0.150 ± 0.127", *["0.000 ± 0.000"] * 2, "1.500 ± 1.271"]])
        quarter = part_of(self.folder / "data", self.folder / "quarter", fractions.Fraction(1, 4))
        kept = [json.loads(line)["prompt"] for line in (quarter / "answers-1-of-1.jsonl").read_text().splitlines()]
        self.assertEqual(kept, [0, 4, 8, 12])
        self.assertTrue((quarter / "data.json").exists())

    def test_an_ablation_is_paired(self):
        printed = self.with_data("ablation", "--variant", "first=", "--variant", "x3=--loss tv", "--seeds", "1,2").stdout
        row = next(line for line in printed.splitlines() if line.startswith("| x3"))
        self.assertIn("--loss tv", row)
        self.assertIn("+0.300 ± 0.000 *", row)  # each seed gains as much
        trained = [words for words in self.asked() if words[0] == "train"]
        self.assertEqual([("--loss" in words) for words in trained], [False, False, True, True])

    def test_says_what_is_wrong(self):
        (self.folder / "fails").touch()
        failed = self.run_table("methods", "--sets", self.folder / "sets", status=1)
        self.assertIn("it went wrong", failed.stderr)
        (self.folder / "fails").unlink()
        self.run_table("methods", "--sets", self.folder / "sets")  # nothing was kept of it
        for words, what in ((["heads", "--data", self.folder / "data", "--methods", "EAGLE-9"], "EAGLE-9"),
                            (["methods", "--sets", self.folder / "nowhere"], "nowhere"),
                            (["methods", "--sets", self.folder / "sets", "--only", "QA,Moon"], "--only Moon"),
                            (["methods", "--sets", self.folder / "sets", "--method", "x"], "NAME=TEXT"),
                            (["ablation", "--sets", self.folder / "sets", "--data", self.folder / "data", "--seeds", "1",
                              "--variant", "a=", "--variant", "b="], "--seeds"),
                            (["ablation", "--sets", self.folder / "sets", "--data", self.folder / "data"], "--variant")):
            self.assertIn(what, self.run_table(*words, status=2).stderr)

    @unittest.skipIf(AERIE is None, "no program to ask")
    def test_training_knows_the_flags(self):
        for title, head in drafters.HEADS.items():
            said = subprocess.run([AERIE, "train", head.method, "--help"], check=True, capture_output=True, text=True).stdout
            known = set(re.findall(r"--[a-z0-9-]+", said))
            wanted = {word for word in head.flags if word.startswith("--")} | ({"--draft-vocab"} if head.prunes else set())
            self.assertLessEqual(wanted, known, title)
            self.assertEqual("--draft-vocab" in known, head.prunes, title)


if __name__ == "__main__":
    unittest.main()
