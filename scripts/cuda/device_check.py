#!/usr/bin/env python3
"""Checks and measures the device backend on a machine with a GPU, in less than ten minutes.

  scripts/cuda/device_check.py OUT [--device cuda:0] [--bin DIR] [--only peak,ids] [--seconds 590]

Builds nothing: the programs are those of a bundle (scripts/cuda/bundle.sh), where this file lies beside them, or of
build/release/bin. Writes to the folder OUT: device_check.json (what was measured and what failed), table.txt (the same
for people, also to standard output) and log.txt (every command and what it wrote). Each stage has a limit of time; one
that fails stops no other. Exits with 1 if one failed.

  peak        what the GPU gives at most: bytes, products, launches (aerie-device-peak)
  tests       the tests that a device can be named for (test_model_device): fragments, tensor cores, operations, models
  operations  what each operation takes by itself (device_bench)
  ids         tiny models of each type: the emulator's ids on the GPU, greedy and sampled, alone and with drafts
  sanitizer   a short run under compute-sanitizer: memory, races, barriers, memory that nobody wrote
  bf16, q4    passes of an 8B shape against the limits of the GPU (aerie bench verify)
  experts     passes of OLMoE's shape, whose rows use 8 of 64 experts, in 4 bits
  rounds      rounds of the 8B shape with simulated acceptance
  heads       rounds of that shape with an EAGLE-3 head of random weights
  server      a server of a 1B shape with 1 to 64 clients
"""

import argparse
import datetime
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
TYPES = ("bf16", "q4_0", "q4_k", "q8_0", "q6_k")
PROMPTS = ("abcabcabcabcabc", "one two one two one two", "a")
SAMPLINGS = (("--temp", "0"), ("--temp", "1", "--seed", "7"), ("--temp", "0.7", "--top-p", "0.9", "--seed", "8"))
TESTS = ("test_model_device",)
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")


class Failed(Exception):
    """What is wrong, for the report."""


class Missing(Exception):
    """What the stage would need is not there."""


class Check:
    """The programs, the clock and the log."""

    def __init__(self, options, work):
        self.device, self.types = options.device, options.types.split(",")
        self.work, self.out = pathlib.Path(work), pathlib.Path(options.out)
        self.bin = pathlib.Path(options.bin) if options.bin else HERE if (HERE / "aerie").is_file() \
            else HERE.parent.parent / "build/release/bin"
        self.end = time.monotonic() + options.seconds
        self.stage_end = self.end
        self.log = (self.out / "log.txt").open("w", encoding="utf-8")
        self.environment = dict(os.environ)
        if (self.bin / "bin").is_dir():  # a bundle: without its wrappers, which tools do not look behind
            libraries = [str(self.bin / "lib"), os.environ.get("LD_LIBRARY_PATH")]
            self.environment["LD_LIBRARY_PATH"] = ":".join(filter(None, libraries))
            self.bin = self.bin / "bin"

    def need_gpu(self):
        if not self.device.startswith("cuda"):
            raise Missing(f"{self.device} is no GPU")

    def program(self, name):
        path = self.bin / name
        if not path.is_file():
            raise Missing(f"{path} is not there")
        return str(path)

    def start(self, *command):
        print("\n$", *command, file=self.log, flush=True)
        return subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                env=self.environment, start_new_session=True)

    def run(self, *command, seconds=None):
        """What it takes, with what it writes in the log; its end by force where the stage's time is over."""
        limit = self.stage_end - time.monotonic()
        limit = limit if seconds is None else min(limit, seconds)
        begin, process = time.monotonic(), self.start(*command)
        try:
            status = process.wait(timeout=max(limit, 0.1))
        except subprocess.TimeoutExpired:
            stop(process)
            raise Failed(f"longer than {limit:.0f} s: {' '.join(map(str, command))}") from None
        if status != 0:
            raise Failed(f"status {status} of {' '.join(map(str, command))}: {self.last_line()}")
        return time.monotonic() - begin

    def last_line(self):
        self.log.flush()
        lines = (self.out / "log.txt").read_text(encoding="utf-8", errors="replace").splitlines()
        return next((line for line in reversed(lines) if line.strip()), "")

    def json_of(self, *command, flag="--json"):
        """What the command writes to the file that its flag names."""
        path = self.work / "result.json"
        path.unlink(missing_ok=True)
        self.run(*command, *([flag] if flag else []), path)
        return json.loads(path.read_text(encoding="utf-8"))

    def text_of(self, *command):
        """What it writes to standard output and standard error."""
        self.log.flush()
        before = (self.out / "log.txt").stat().st_size
        self.run(*command)
        return (self.out / "log.txt").read_bytes()[before:].decode(errors="replace").split("\n", 2)[2]

    def aerie(self, *arguments):
        return self.json_of(self.program("aerie"), *arguments)


def stop(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


# Stages: each fills in what was measured, which is kept if it fails.


def peak(check, result):
    check.need_gpu()
    index = check.device.removeprefix("cuda").removeprefix(":") or "0"
    result |= check.json_of(check.program("aerie-device-peak"), index, flag=None)


def tests(check, result):
    check.environment["AERIE_TEST_DEVICE"] = check.device
    for name in TESTS:
        if (check.bin / name).is_file():
            result[name] = check.run(check.program(name))
    if not result:
        raise Missing(f"there is none of {', '.join(TESTS)} in {check.bin}")


def operations(check, result):
    check.need_gpu()
    result["text"] = check.text_of(check.program("device_bench"), check.device)


def tiny_model(check, kind):
    path = check.work / f"tiny-{kind}.gguf"
    if not path.exists():
        check.run(check.program("aerie"), "bench", "make-model", path, "--shape", "tiny", "--type", kind)
    return path


def ids_of(check, model, prompt, sampling, device, speculate):
    done = check.aerie("run", "-m", model, "--device", device, "--raw", "-p", prompt, "-n", "48", "--ctx", "256",
                       *sampling, "--speculate", speculate)
    return done["token_ids"], done["drafted_tokens"]


def ids(check, result):
    wrong = []
    result |= {"ids": 0, "drafted": 0}
    for kind in check.types:
        model = tiny_model(check, kind)
        for prompt, sampling in zip(PROMPTS, SAMPLINGS, strict=True):
            run = (check, model, prompt, sampling)
            emulated, _ = ids_of(*run, "emulated", "none")
            alone, _ = ids_of(*run, check.device, "none")
            drafted, drafts = ids_of(*run, check.device, "ngram")
            result["ids"] += len(alone)
            result["drafted"] += drafts
            for got, expected, what in ((drafted, alone, "with drafts and alone"), (alone, emulated, "as emulated")):
                if got != expected:
                    first = next((i for i, pair in enumerate(zip(got, expected)) if pair[0] != pair[1]), len(got))
                    wrong.append(f"{kind}, {' '.join(sampling)}: ids are not the same {what} from {first} on")
    if wrong:
        raise Failed("; ".join(wrong))
    if result["drafted"] == 0:
        raise Failed("nothing was drafted")


def sanitizer(check, result):
    check.need_gpu()
    program = shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")
    if program is None:
        raise Missing("there is no compute-sanitizer")
    model = tiny_model(check, "q4_0")
    for tool in TOOLS:
        result[tool] = check.run(program, "--tool", tool, "--error-exitcode", "9", check.program("aerie"), "run", "-m",
                                 model, "--device", check.device, "--raw", "-p", PROMPTS[0], "-n", "12", "--ctx", "256",
                                 "--temp", "0", "--speculate", "ngram")


def verify(shape, kind):
    def stage(check, result):
        check.need_gpu()
        result |= check.aerie("bench", "verify", "--shape", shape, "--type", kind, "--device", check.device)
    return stage


def rounds(check, result):
    check.need_gpu()
    result |= check.aerie("bench", "spec", "--shape", "llama-8b", "--type", "q4_0", "--device", check.device,
                          "--simulate-acceptance", "0.8,0.7,0.6,0.5,0.4", "--draft-cost", "0.05", "--replay", "256")


def heads(check, result):
    """Rounds with an EAGLE-3 head of random weights: what they cost, as nothing of its drafts is accepted."""
    check.need_gpu()
    head = check.work / "eagle3"
    check.run(check.program("aerie"), "bench", "make-head", head, "--shape", "llama-8b", "--kind", "eagle3",
              "--draft-vocab", "32000")
    report = check.aerie("bench", "decode", "--shape", "llama-8b", "--type", "q4_0", "--device", check.device,
                         "--context", "512", "--tokens", "128", "--repeat", "3",
                         "--speculate", f"eagle3:model={head},num_speculative_tokens=3")
    point = report["points"][0]
    plain, drafts = point["plain_round_us"], point["round_us"]
    result |= {f"{name} of a pass, us": value for name, value in plain.items()}
    result |= {f"{name} of a round of 3 drafts, us": value for name, value in drafts.items()}
    result["a level of a draft, us"] = drafts["draft"] / 3
    result["overhead of a pass, us"] = plain["all"] - plain["device"]
    result["overhead of a round, us"] = drafts["all"] - drafts["device"]


def server(check, result):
    check.need_gpu()
    model, port = check.work / "llama-1b.gguf", 18471
    check.run(check.program("aerie"), "bench", "make-model", model, "--shape", "llama-1b", "--type", "q4_0")
    process = check.start(check.program("aerie"), "serve", "-m", model, "--device", check.device, "--port", port,
                          "--ctx", "512")
    try:
        while not answers(port):
            if process.poll() is not None:
                raise Failed(f"the server ended: {check.last_line()}")
            if time.monotonic() > check.stage_end:
                raise Failed("the server did not begin in time")
            time.sleep(0.2)
        for clients in (1, 8, 64):
            result[str(clients)] = check.aerie(
                "bench", "serve", "--url", f"http://127.0.0.1:{port}/v1", "--dataset-name", "random",
                "--random-input-len", "128", "--random-output-len", "64", "--ignore-eos", "--concurrency", clients,
                "--num-prompts", 4 * clients)
    finally:
        stop(process)


def answers(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1) as reply:
            return reply.status == 200
    except OSError:
        return False


# The seconds that each may take.
STAGES = {
    "peak": (peak, 40), "tests": (tests, 60), "operations": (operations, 60), "ids": (ids, 90),
    "sanitizer": (sanitizer, 100), "bf16": (verify("llama-8b", "bf16"), 100),
    "q4": (verify("llama-8b", "q4_0"), 80), "experts": (verify("olmoe-7b", "q4_0"), 60), "rounds": (rounds, 60),
    "heads": (heads, 90),
    "server": (server, 90),
}


def perform(check, names):
    results = {}
    for name in names:
        function, limit = STAGES[name]
        begin = time.monotonic()
        check.stage_end = min(check.end, begin + limit)
        print(f"\n==== {name}", file=check.log, flush=True)
        if begin >= check.end:
            outcome = {"state": "failed", "why": "the time of the whole was over"}
        else:
            outcome = {"state": "ok", "result": {}}
            try:
                function(check, outcome["result"])
            except Missing as missing:
                outcome |= {"state": "left out", "why": str(missing)}
            except Failed as failed:
                outcome |= {"state": "failed", "why": str(failed)}
            except (OSError, ValueError, KeyError) as error:
                outcome |= {"state": "failed", "why": f"{type(error).__name__}: {error}"}
        outcome["seconds"] = round(time.monotonic() - begin, 1)
        results[name] = outcome
        print(f"{name:<10} {outcome['state']:<8} {outcome['seconds']:6.1f} s  {outcome.get('why', '')}", flush=True)
        write(check, results)
    return results


def machine():
    done = None
    if shutil.which("nvidia-smi"):
        done = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.max.sm",
                               "--format=csv,noheader"], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done and done.returncode == 0 else "nvidia-smi does not answer"


def passes(result):
    """Lines of bench verify's points."""
    for point in result.get("points", []):
        yield "{:>8} rows, context {:>6}: {:9.3f} ms, x{:.2f}".format(
            point.get("rows"), point.get("context"), point.get("median_ms", 0), point.get("ratio", 0))


def table(check, results):
    lines = [f"{machine()}; device {check.device}"]
    for name, outcome in results.items():
        lines.append(f"{name:<10} {outcome['state']:<8} {outcome['seconds']:6.1f} s  {outcome.get('why', '')}".rstrip())
        result = outcome.get("result", {})
        if name in ("bf16", "q4", "experts"):
            lines += passes(result)
        elif name == "operations":
            lines.append(result.get("text", ""))
        elif name == "server":
            for clients, figures in result.items():
                lines.append(f"{clients:>8} clients: " + json.dumps(figures)[:400])
        else:
            lines += [f"{key:>30} {value:.6g}" for key, value in result.items() if isinstance(value, (int, float))]
    return "\n".join(lines) + "\n"


def write(check, results):
    report = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "machine": machine(),
              "device": check.device, "stages": results}
    (check.out / "device_check.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    (check.out / "table.txt").write_text(table(check, results), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--bin", help="where the programs lie")
    parser.add_argument("--only", help="stages, with commas between them", default=",".join(STAGES))
    parser.add_argument("--types", help="of weights, for ids", default=",".join(TYPES))
    parser.add_argument("--seconds", type=float, default=590, help="for everything")
    options = parser.parse_args()
    names = options.only.split(",")
    if unknown := [name for name in names if name not in STAGES]:
        parser.error(f"there is no stage {', '.join(unknown)}: {', '.join(STAGES)}")
    pathlib.Path(options.out).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="aerie-device-check.") as work:
        check = Check(options, work)
        if not (check.bin / "aerie").is_file():
            parser.error(f"there is no {check.bin}/aerie: --bin names where the programs lie")
        print(machine())
        results = perform(check, names)
    print("\n" + table(check, results), end="")
    return 0 if all(outcome["state"] in ("ok", "left out") for outcome in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
