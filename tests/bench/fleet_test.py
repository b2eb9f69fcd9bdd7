"""bench/fleet (docs/scaling/fleet.md): small fleets whose answers are known by hand or from theory, and bad input."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/fleet"))

from costs import BadInput, Machine, read_drafts, read_passes  # noqa: E402
from load import Recorded, Request, Synthetic, page_keys  # noqa: E402
from routing import POLICIES  # noqa: E402
from simulate import Fleet  # noqa: E402

FLAT = [(1, 0.01, 0.0)]  # every pass takes 10 ms
STEEP = [(1, 0.01, 0.0), (2, 0.02, 0.0)]  # every row does


def made(count=400, rate=1.0, prefixes=10, prefix_tokens=0, zipf=1.0, own=64, output=10, spread=0, seed=1):
    return Synthetic(count, rate, prefixes, prefix_tokens, zipf, own, output, spread, seed)


def simulated(machine, load, replicas=1, policy="random", **settings):
    return Fleet(machine, load, replicas, policy, **settings).run()


class Given(list):
    """Requests of (arrival, prompt, output, pages)."""

    def __iter__(self):
        return (Request(number, *row) for number, row in enumerate(super().__iter__()))


class OneReplica(unittest.TestCase):
    def test_alone(self):
        """A pass for the prompt, and one for each further token."""
        figures = simulated(Machine(FLAT), Given([(0.0, 100, 11, ()), (5.0, 100, 11, ())]))
        self.assertAlmostEqual(figures["ttft_p99_ms"], 10)
        self.assertAlmostEqual(figures["tpot_p50_ms"], 10)
        self.assertAlmostEqual(figures["duration"], 5.11)
        self.assertAlmostEqual(figures["busy"], 0.22 / 5.11)
        self.assertAlmostEqual(figures["output_throughput"], 22 / 5.11)

    def test_a_long_prompt_is_read_in_pieces(self):
        machine = Machine(FLAT, budget=128)
        figures = simulated(machine, Given([(0.0, 300, 1, ())]))
        self.assertAlmostEqual(figures["ttft_p50_ms"], 30)

    def test_one_comes_while_another_writes(self):
        """The pass that runs at 15 ms ends at 20; then its prompt is read, beside a round of the other."""
        figures = simulated(Machine(FLAT), Given([(0.0, 64, 11, ()), (0.015, 64, 6, ())]))
        self.assertAlmostEqual(figures["ttft_p99_ms"], 15)
        self.assertAlmostEqual(figures["duration"], 0.11)

    def test_rounds_of_drafts(self):
        """2 tokens a round: 5 passes for the 10 tokens after the first."""
        machine = Machine(FLAT, [0.5, 0.3, 0.2], speculate="3")
        figures = simulated(machine, Given([(0.0, 64, 11, ())]))
        self.assertAlmostEqual(figures["duration"], 0.06)
        self.assertAlmostEqual(figures["tokens_per_round"], 2.0)

    def test_context_costs(self):
        machine = Machine([(1, 0.01, 1e-5)])
        # 100 positions behind 1000 each take 10 ms more, in the mean of 10 passes 1000 + 1 + 5.
        figures = simulated(machine, Given([(0.0, 1000, 11, ())]))
        self.assertAlmostEqual(figures["tpot_p50_ms"], 10 + 10.06, places=3)

    def test_a_queue_as_theory_has_it(self):
        """M/D/1: one sequence at a time, 100 ms each, 7 a second: the mean wait is ρS/(2(1-ρ)) = 116.7 ms."""
        figures = simulated(Machine(FLAT), made(60000, rate=7.0), max_seqs=1)
        self.assertAlmostEqual(figures["e2el_mean_ms"] - 100, 116.7, delta=6)
        self.assertAlmostEqual(figures["busy"], 0.7, delta=0.01)

    def test_clients(self):
        """Four clients, rows that cost what rows cost: 4 sequences take 40 ms a round."""
        figures = simulated(Machine(STEEP, budget=64), made(8, own=1, output=101), clients=4)
        self.assertAlmostEqual(figures["tpot_p50_ms"], 40, delta=0.5)


class Depth(unittest.TestCase):
    def test_free_rows_are_taken_and_dear_ones_not(self):
        flat, steep = Machine(FLAT, [0.6, 0.4, 0.2]), Machine(STEEP, [0.6, 0.4, 0.2])
        self.assertEqual(flat.depth(1, 0), 3)
        self.assertEqual(steep.depth(1, 0), 0)

    def test_it_falls_with_load(self):
        # 16 rows are free, further ones cost.
        machine = Machine([(1, 0.01, 0.0), (16, 0.01, 0.0), (32, 0.03, 0.0)], [0.8, 0.6, 0.4, 0.3, 0.2])
        depths = [machine.depth(sequences, 0) for sequences in (1, 3, 4, 8, 16)]
        self.assertEqual(depths, [5, 4, 3, 1, 0])

    def test_drafting_costs(self):
        self.assertEqual(Machine(FLAT, [0.5], draft_seconds=0.01).depth(1, 0), 0)
        self.assertEqual(Machine(FLAT, [0.5], draft_seconds=0.001).depth(1, 0), 1)

    def test_beside_a_prompt_what_drafts_add_counts(self):
        machine = Machine([(1, 0.01, 0.0), (16, 0.01, 0.0), (32, 0.03, 0.0)], [0.8, 0.6])
        self.assertEqual(machine.depth(1, 0), 2)
        self.assertEqual(machine.depth(1, 0, prompt_rows=64), 2)
        self.assertEqual(machine.depth(12, 0, prompt_rows=64), 0)


class Prefixes(unittest.TestCase):
    def test_hits_by_hand(self):
        """The second prompt finds two of its three pages, the third all but the last token, the fourth nothing."""
        rows = [(0.0, 192, 1, (1, 2, 3)), (1.0, 192, 1, (1, 2, 4)), (2.0, 192, 1, (1, 2, 4)), (3.0, 192, 1, (9, 2, 4))]
        figures = simulated(Machine(FLAT), Given(rows))
        self.assertAlmostEqual(figures["prefix_hit_rate"], (128 + 191) / (4 * 192))

    def test_the_longest_unused_goes(self):
        """Room for three pages and a reply's."""
        rows = [(0.0, 64, 1, (1,)), (1.0, 64, 1, (2,)), (2.0, 64, 1, (1,)), (3.0, 64, 1, (3,)), (4.0, 64, 1, (4,)),
                (5.0, 64, 1, (1,)), (6.0, 64, 1, (2,))]
        figures = simulated(Machine(FLAT), Given(rows), pages=4)
        self.assertAlmostEqual(figures["prefix_hit_rate"], 2 * 63 / (7 * 64))

    def test_the_same_is_not_read_twice_at_a_time(self):
        rows = [(0.0, 640, 2, tuple(range(10)))] + [(0.001, 640, 2, tuple(range(10)))] * 3
        figures = simulated(Machine(FLAT, budget=64), Given(rows))
        self.assertAlmostEqual(figures["prefix_hit_rate"], 3 * 639 / (4 * 640))

    def test_prefix_aware_beats_random(self):
        """At least 1.5 times the hits, where a replica's cache holds its share of the prefixes and no more."""
        hits = {}
        for policy in POLICIES:
            load = made(3000, rate=20.0, prefixes=80, prefix_tokens=512, zipf=0.5)
            hits[policy] = simulated(Machine(FLAT), load, 8, policy, pages=160, warm_up=0.2)["prefix_hit_rate"]
        for policy in ("hashing", "cache-aware"):
            self.assertGreater(hits[policy], 1.5 * hits["random"], hits)


class Fleets(unittest.TestCase):
    def test_every_request_is_answered_once(self):
        for policy in POLICIES:
            for mtbf in (None, 5.0):
                load = made(600, rate=20.0, prefixes=5, prefix_tokens=128, output=50, spread=0.5)
                figures = simulated(Machine(FLAT), load, 5, policy, mtbf=mtbf, repair=1.0)
                self.assertEqual(figures["completed"] + figures["failed"], 600, policy)
                self.assertEqual(figures["failed"] > 0, mtbf is not None, policy)
                self.assertEqual(figures["moved"] > 0, mtbf is not None, policy)

    def test_no_replica_is_up(self):
        """The one replica fails time and again; what waits meanwhile is answered when it is back."""
        figures = simulated(Machine(FLAT), made(50, rate=1.0), 1, "hashing", mtbf=3.0, repair=5.0, retries=100)
        self.assertGreater(figures["failures"], 3)
        self.assertEqual(figures["completed"] + figures["failed"], 50)
        self.assertGreater(figures["completed"], 40)
        self.assertGreater(figures["ttft_p99_ms"], 1000)

    def test_clients_go_on_after_failures(self):
        figures = simulated(Machine(FLAT), made(300), 3, "least-requests", clients=6, mtbf=2.0, repair=0.5)
        self.assertEqual(figures["completed"] + figures["failed"], 300)

    def test_same_seed_same_result(self):
        def run(seed):
            load = made(500, rate=30.0, prefix_tokens=128, spread=0.5, seed=seed)
            return simulated(Machine(FLAT, [0.5]), load, 7, "cache-aware", mtbf=20.0, seed=seed)
        self.assertEqual(run(3), run(3))
        self.assertNotEqual(run(3), run(4))

    def test_fewest_requests_waits_less_than_random(self):
        wait = {policy: simulated(Machine(FLAT), made(5000, rate=28.0), 4, policy, max_seqs=1)["ttft_p99_ms"]
                for policy in ("random", "least-requests")}
        self.assertLess(wait["least-requests"] * 2, wait["random"])

    def test_round_robin(self):
        rows = [(float(n), 64, 1, (7,)) for n in range(6)]
        self.assertAlmostEqual(simulated(Machine(FLAT), Given(rows), 3, "round-robin")["prefix_hit_rate"], 63 / 128)


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, *lines):
        path = self.folder / name
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        return str(path)

    def test_passes(self):
        profile = self.write("a", {"aerie_profile": 1, "pass_cost": [
            {"rows": 1, "seconds": 0.01, "seconds_per_position": 1e-6}]})
        self.assertEqual(read_passes(profile), [(1, 0.01, 1e-6)])
        verify = self.write("b", {"points": [{"rows": 1, "context": 100, "median_ms": 11},
                                             {"rows": 1, "context": 300, "median_ms": 13}]})
        (rows, seconds, slope), = read_passes(verify)
        self.assertEqual((rows, round(seconds, 9), round(slope, 9)), (1, 0.010, 1e-5))

    def test_drafts(self):
        path = self.write("s", {"methods": [
            {"method": "none", "per_position_acceptance": []},
            {"method": "x", "per_position_acceptance": [0.6, 0.4], "accepted_tokens": 100, "drafted_tokens": 150,
             "stage_seconds": {"draft": 0.3}}]})
        acceptance, share, seconds = read_drafts(path)
        self.assertEqual((acceptance, round(share, 9), seconds), ([0.6, 0.4], 0.75, 0.002))

    def test_records(self):
        ids = list(range(130))
        path = self.write("r", {"aerie_record": 2, "prompt_ids": ids, "token_ids": [1] * 70, "time": 30.0},
                          {"aerie_record": 2, "prompt_ids": ids[:64] + [5] * 10, "token_ids": [1], "time": 10.0})
        first, second = Recorded(path, speed=10.0)
        self.assertEqual((first.arrival, second.arrival), (0.0, 2.0))
        self.assertEqual((second.prompt, second.output, len(second.pages), len(second.kept)), (130, 70, 2, 3))
        self.assertEqual(first.pages[0], second.pages[0])
        self.assertEqual(second.kept[:2], page_keys(ids))

    def test_hashes(self):
        row = {"timestamp": 1000, "input_length": 1100, "output_length": 5, "hash_ids": [4, 5, 6]}
        first, second = Recorded(self.write("h", row, {**row, "hash_ids": [4, 7, 8], "timestamp": 3000}))
        self.assertEqual((len(first.pages), second.arrival), (17, 2.0))
        self.assertEqual([a == b for a, b in zip(first.pages, second.pages)], [True] * 8 + [False] * 9)

    def test_bad_input(self):
        for call, what in (
                (lambda: read_passes(str(self.folder / "none")), "none: No such file"),
                (lambda: read_passes(self.write("c", {"points": [{"rows": 1}]})), "neither a profile"),
                (lambda: read_drafts(self.write("d", {"methods": []})), "0 methods that draft"),
                (lambda: list(Recorded(self.write("e", {"timestamp": 1}))),
                 "e:1: no recorded request: 'input_length' is missing"),
                (lambda: list(Recorded(self.write("f"))), "no requests"),
                (lambda: Machine(FLAT, [0.5], speculate="3"), "acceptance for 1 positions"),
                (lambda: simulated(Machine(FLAT), made(1, own=1000), pages=8), "see --cache-tokens")):
            with self.assertRaises(BadInput) as raised:
                call()
            self.assertIn(what, str(raised.exception))

    def test_the_command(self):
        passes = self.write("p", {"points": [{"rows": r, "context": 64, "median_ms": 5 + r} for r in (1, 8, 64)]})
        figures = self.folder / "out.json"
        command = [sys.executable, str(ROOT / "bench/fleet"), "--passes", passes]
        done = subprocess.run([*command, "--acceptance", "0.7,0.5", "--replicas", "1,3", "--rate", "0.5",
                               "--speculate", "none,auto", "--requests", "200", "--json", str(figures)],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        runs = json.loads(figures.read_text())["runs"]
        self.assertEqual(len(runs), 2 * len(POLICIES) * 2)
        self.assertEqual(len(done.stdout.splitlines()), 2 + len(runs))
        self.assertTrue(all(run["gain"] > 1.2 for run in runs if run["speculate"] == "auto"), runs)
        done = subprocess.run([*command, "--policy", "best", "--rate", "1"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("best is none of random,", done.stderr)


if __name__ == "__main__":
    unittest.main()
