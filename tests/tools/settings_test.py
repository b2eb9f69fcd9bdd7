#!/usr/bin/env python3
"""Flags and surroundings that could hurt: each is refused by name, or ends in a message.

    tests/tools/settings_test.py BIN [TEST...]       BIN: the folder with aerie

Needs the real model (scripts/fetch_model.sh), else it exits with 77: skipped.
"""

import http.client
import json
import os
import pathlib
import re
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
BIN = pathlib.Path("build/release/bin")
SECONDS = 120
MIB = 1 << 20

# Flag and value. The message names the flag, or what NAMES has.
RUN_REFUSED = [
    ("--temp", ""), ("--json", ""), ("--stop", ""), ("--seed", ""), ("--top-k", ""),
    ("--top-p", ""), ("--max-tokens", ""), ("--threads", ""), ("--ctx", ""), ("--record", ""),
    ("--speculate", ""), ("--regex", ""), ("--grammar", ""), ("--json-schema", ""),
    ("--weight-cache", ""), ("--profile", ""), ("--isa", ""), ("--type", ""), ("--logit-bias", ""),
    ("--prediction", ""), ("--seed", "-1"), ("--seed", "18446744073709551616"),
    ("--seed", "99999999999999999999999"), ("--seed", "1.5"), ("--seed", "0x10"),
    ("--temp", "nan"), ("--temp", "inf"), ("--temp", "1e999"), ("--temp", "-1"), ("--temp", "1,5"),
    ("--top-p", "nan"), ("--top-p", "2"), ("--top-p", "-0.1"), ("--min-p", "nan"),
    ("--min-p", "1.5"), ("--top-k", "-1"), ("--top-k", "99999999999"), ("--repeat-penalty", "0"),
    ("--repeat-penalty", "nan"), ("--repeat-penalty", "-1"), ("--frequency-penalty", "inf"),
    ("--presence-penalty", "nan"), ("--repeat-last-n", "-2"), ("--logprobs", "1000000"),
    ("--logprobs", "-5"), ("--logit-bias", "1"), ("--logit-bias", "99999999999=1"),
    ("--logit-bias", "-1=1"), ("--logit-bias", "1=nan"), ("--threads", "0"), ("--threads", "-1"),
    ("--threads", "1000000"), ("--ctx", "-1"), ("--ctx", "1"), ("--ctx", "99999999"),
    ("--ctx", "18446744073709551618"), ("--max-tokens", "-1"), ("--max-tokens", "0"),
    ("--max-tokens", "4294967297"), ("--prefill-chunk", "0"), ("--cache-type", "f7"),
    ("--isa", "mmx"), ("--verify", "maybe"), ("--speculate", "ngram:num_speculative_tokens=-1"),
    ("--speculate", "ngram:num_speculative_tokens=99999999999999999999"),
    ("--speculate", "nothing"), ("--speculative-config", "{"), ("--speculative-config", "[]"),
 ("--json", "/no/such/folder/file"),
    ("--profile", "/"), ("--prediction", "/"),
]
NAMES = {"--temp": "temperature", "--top-p": "top_p", "--top-k": "top_k", "--min-p": "min_p",
         "--repeat-penalty": "repetition", "--frequency-penalty": "frequency",
         "--presence-penalty": "presence", "--repeat-last-n": "window", "--ctx": "context", "--logprobs": "logprobs",
         "--logit-bias": "logit_bias", "--profile": "/: the file", "--host": "no address", "--tls-key": "TLS",
         "--tls-cert": "TLS", "--max-num-batched-tokens": "a pass of"}

SERVE_REFUSED = [
    ("--cors-origin", "bogus"), ("--cors-origin", ""), ("--cors-origin", "https://a.example/"),
    ("--cors-origin", "null"), ("--trust-proxy", "localhost"), ("--trust-proxy", ""), ("--client-limits", "rps=1"),
    ("--audit-log", "/"), ("--api-key-file", "/"), ("--api-key-file", ""),
    ("--api-key-file", "/dev/null"), ("--api-key-file", "/no/such/file"), ("--api-key", ""),
    ("--api-key", "two words"), ("--host", ""), ("--host", "256.0.0.1"), ("--port", "-1"),
    ("--port", "65536"), ("--port", ""), ("--config", ""), ("--config", "/"),
    ("--config", "/no/such/file"), ("--tls-cert", ""), ("--tls-key", "/"), ("--tls-cert", "/"),
    ("--cache-tokens", "-1"), ("--cache-tokens", "99999999999999999999"), ("--cache-tokens", ""),
    ("--max-num-seqs", "0"), ("--max-num-seqs", "5000"), ("--max-num-batched-tokens", "1"),
    ("--max-connections", "0"), ("--max-body-mib", "nan"), ("--max-body-mib", "-1"),
    ("--read-seconds", "nan"), ("--read-seconds", "0"), ("--drain-seconds", "inf"),
    ("--max-seconds", "nan"), ("--stream-interval", "0"), ("--served-model-name", ""),
    ("--offer", ""), ("--offer", "nothing"), ("--scheduling-policy", "never"),
    ("--record", ""), ("--record", "/dev/null"), ("--record", "/no/such/folder/records"), ("--record", "/proc"),
    ("--record-share", "0.5"), ("--record-mib", "16"),
]
# Beside a folder that may be recorded in.
RECORD_REFUSED = [
    ("--record-share", ""), ("--record-share", "nan"), ("--record-share", "1.01"), ("--record-share", "-0.1"),
    ("--record-share", "inf"), ("--record-share", "1%"), ("--record-mib", "0"), ("--record-mib", "-1"),
    ("--record-mib", "99999999999"), ("--record-mib", "1.5"), ("--record-mib", ""),
]
AUDIT_REFUSED = [
    ("--since", ""), ("--since", "24"), ("--since", "h"), ("--since", "-1h"), ("--since", "0d"), ("--since", "1.5h"),
    ("--since", "99999999999999999999d"), ("--sample", "-1"), ("--sample", "many"), ("--sample", ""),
]


def command(*arguments):
    return [str(BIN / "aerie"), *map(str, arguments)]


def call(*arguments, seconds=SECONDS, **settings):
    """Exit status and standard error. A status below 0 is a signal's."""
    settings = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, **settings}
    done = subprocess.run(command(*arguments), stdin=subprocess.DEVNULL, timeout=seconds, check=False, **settings)
    return done.returncode, (done.stderr or b"").decode(errors="replace")


def limited(which, size):
    return lambda: resource.setrlimit(which, (size, size))


class Server:
    """Started, or ended: then `port` is None, and `said` has why."""

    def __init__(self, *flags, **settings):
        self.process = subprocess.Popen(command("serve", "-m", MODEL, "--port", "0", *flags), stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, bufsize=0, **settings)
        self.said, self.port = "", None
        end = time.monotonic() + SECONDS
        # Not buffered: select() knows nothing of a second line that was read along with the first.
        while self.port is None and select.select([self.process.stderr], [], [], max(0, end - time.monotonic()))[0]:
            line = self.process.stderr.readline().decode(errors="replace")
            if not line:
                break
            self.said += line
            found = re.search(r"listening on http://127.0.0.1:(\d+)", line)
            self.port = int(found[1]) if found else None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()

    def stop(self):
        """The exit status."""
        if self.port is not None:
            self.process.send_signal(signal.SIGTERM)
        self.said += self.process.communicate(timeout=SECONDS)[1].decode(errors="replace")
        return self.process.returncode


class Flags(unittest.TestCase):
    def refused(self, arguments, *words):
        with self.subTest(arguments=arguments):
            status, said = call(*arguments)
            # What cannot be read is no wrong flag.
            self.assertIn(status, (1, 2) if "/" in arguments else (2,), said)
            self.assertTrue(any(word in said for word in words), said)

    def test_of_a_run(self):
        for flag, value in RUN_REFUSED:
            few = () if flag == "--max-tokens" else ("-n", "1")
            self.refused(("run", "-m", MODEL, "-p", "hi", *few, flag, value), flag, NAMES.get(flag, flag))

    def test_of_a_server(self):
        for flag, value in SERVE_REFUSED:
            self.refused(("serve", "-m", MODEL, "--port", "0", flag, value), flag, NAMES.get(flag, flag))

    def test_of_recording(self):
        with tempfile.TemporaryDirectory(prefix="aerie_settings_") as folder:
            record = ("serve", "-m", MODEL, "--port", "0", "--record", folder)
            for flag, value in RECORD_REFUSED:
                self.refused((*record, flag, value), flag)
            self.refused(("serve", "-m", MODEL, "--port", "0", "--record-texts"), "--record-texts")
            for flag, value in AUDIT_REFUSED:
                self.refused(("audit", "-m", MODEL, folder, flag, value), flag)
            self.refused(("audit", "-m", MODEL, folder), "there are no records")
            self.assertEqual(os.listdir(folder), [])

    def test_of_other_programs(self):
        self.refused(("tokenize", "-m", MODEL, "--frequencies", ""), "--frequencies")
        self.refused(("bench", "spec", "-m", MODEL, "--seed", "-1"), "--seed")
        self.refused(("inspect", ""), "empty")
        self.refused(("audit", ""), "empty")

    def test_a_cache_that_no_machine_has(self):
        for bits in (36, 38, 40):
            with self.subTest(bits=bits):
                status, said = call("serve", "-m", MODEL, "--port", "0", "--cache-tokens", 1 << bits)
                self.assertIn(status, (1, 2), said)
                self.assertRegex(said, r"\d+ MiB of cache .* do not fit into the \d+ MiB that are available")

    def test_an_empty_prompt_has_an_end(self):
        status, said = call("run", "-m", MODEL, "-p", "", "--raw")
        self.assertEqual(status, 2, said)
        self.assertIn("the prompt is empty", said)
        status, said = call("run", "-m", MODEL, "-p", "", "-n", "3", "--raw")
        self.assertEqual(status, 0, said)


class Surroundings(unittest.TestCase):
    def test_too_little_memory_ends_in_a_message(self):
        for which in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
            statuses = []
            for mib in (24, 96, 128, 224):
                with self.subTest(which=which, mib=mib):
                    status, said = call("run", "-m", MODEL, "-p", "hi", "-n", "2", preexec_fn=limited(which, mib * MIB))
                    self.assertIn(status, (0, 1, 127), said)  # 127: the loader's, of libraries
                    self.assertTrue(status == 0 or "error" in said, said)
                    statuses.append(status)
                    with Server(preexec_fn=limited(which, mib * MIB)) as server:
                        self.assertIn(server.stop(), (0, 1, 127), server.said)
                        self.assertTrue(server.port is not None or "error" in server.said, server.said)
            self.assertTrue(any(statuses))

    def test_the_cache_heeds_the_limit_of_memory(self):
        """By default it takes half of what is free, and the process may have less than the machine."""
        with Server(preexec_fn=limited(resource.RLIMIT_AS, 2048 * MIB)) as server:
            self.assertIsNotNone(server.port, server.said)
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=SECONDS)
            connection.request("POST", "/v1/completions", json.dumps({"prompt": "The sea", "max_tokens": 4}))
            self.assertEqual(connection.getresponse().status, 200)
            connection.close()
            self.assertEqual(server.stop(), 0, server.said)

    def test_few_descriptors(self):
        for files in (4, 8, 12, 16):
            with self.subTest(files=files):
                few = limited(resource.RLIMIT_NOFILE, files)
                with Server("--cache-tokens", "4096", preexec_fn=few) as server:
                    self.assertIn(server.stop(), (0, 1, 2, 127), server.said)
                    self.assertTrue(server.port is not None or "error" in server.said, server.said)

    def test_a_closed_error_lets_results_through(self):
        with tempfile.TemporaryDirectory(prefix="aerie_settings_") as folder:
            written = pathlib.Path(folder) / "out.json"
            status, _ = call("run", "-m", MODEL, "-p", "hi", "-n", "2", "--json", written, stderr=None,
                             preexec_fn=lambda: os.close(2))
            self.assertEqual(status, 0)
            self.assertEqual(json.loads(written.read_text())["generated_tokens"], 2)

    def test_messages_that_cannot_be_written(self):
        for arguments in (("run", "-m", MODEL, "-p", "hi", "-n", "1", "--temp", "nan"), ("inspect", "/no/such/file")):
            with self.subTest(arguments=arguments), open("/dev/full", "wb") as full:
                self.assertIn(call(*arguments, stderr=full)[0], (1, 2))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    if not MODEL.exists():
        print(f"skipped: {MODEL} is missing: scripts/fetch_model.sh gets it", file=sys.stderr)
        sys.exit(77)
    unittest.main()
