"""Many requests at once, from threads and from asyncio, cancelled at random: no leak, no lock-up."""

import asyncio
import concurrent.futures
import gc
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

from aerie import LLM, SamplingParams

from conftest import ALWAYS

REQUESTS = 1000 if "AERIE_NIGHTLY" in os.environ else 400
THREADS = 32
LONGEST = 200  # tokens; few requests are let go on so long


class Repeat:
    """A drafter in Python has the interpreter's lock to wait for, too."""

    def propose(self, requests):
        return [request.tokens[-2:] for request in requests]


@pytest.fixture(scope="module", params=["ngram", "custom"])
def busy(tiny, request):
    config = ALWAYS if request.param == "ngram" else {"drafter": Repeat(), "gate": False}
    with LLM(tiny, speculative_config=config, max_model_len=256, max_num_seqs=8) as one:
        yield one


def prompt(number):
    return [1 + number % 5, 2, 3]


def params(number, max_tokens=None):
    """So many tokens, or a few; what a request writes goes by its number modulo 35."""
    return SamplingParams(temperature=0.9, seed=number % 7, max_tokens=max_tokens or 4 + number % 9, ignore_eos=True)


@pytest.fixture(scope="module")
def expected(plain):
    """What each request brings alone, at its longest."""
    outputs = plain.generate([prompt(number) for number in range(35)], [params(n, LONGEST) for n in range(35)])
    return [output.outputs[0].token_ids for output in outputs]


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def resident():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096


def check(number, ids, expected, max_tokens):
    assert ids == expected[number % 35][:len(ids)] and len(ids) <= max_tokens
    return int(len(ids) == max_tokens)


def one_of_a_thread(llm, expected, number):
    """1: it was let go on to its end."""
    if number % 3 == 0:
        ids = llm.generate([prompt(number)], params(number))[0].outputs[0].token_ids
        assert check(number, ids, expected, 4 + number % 9)
        return 1
    left = random.Random(number).randrange(12)
    ids = []
    with llm.stream(prompt(number), params(number, LONGEST)) as stream:
        for chunk in stream:
            ids += chunk.token_ids
            left -= 1
            if left < 0:
                break
    return check(number, ids, expected, LONGEST)


def storm_of_threads(llm, expected):
    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        done = sum(pool.map(lambda number: one_of_a_thread(llm, expected, number), range(REQUESTS)))
    # A thread that comes late sees much at once, so some of those to be left early are through.
    assert REQUESTS // 3 <= done < REQUESTS


async def one_of_a_loop(llm, expected, number):
    early = number % 3 == 0
    max_tokens = LONGEST if early else 4 + number % 9
    task = asyncio.ensure_future(llm.agenerate([prompt(number)], params(number, max_tokens)))
    if early:
        await asyncio.sleep(random.Random(number).random() / 20)
        task.cancel()
    try:
        outputs = await task
    except asyncio.CancelledError:
        return 0
    assert check(number, outputs[0].outputs[0].token_ids, expected, max_tokens)
    return 1


async def storm_of_a_loop(llm, expected):
    async def left_early():
        async for _ in llm.astream(prompt(1), params(1, LONGEST)):
            break

    done = await asyncio.gather(*(one_of_a_loop(llm, expected, number) for number in range(REQUESTS)),
                                *(left_early() for _ in range(10)))
    assert REQUESTS // 2 < sum(one for one in done if one) < REQUESTS


def test_storms_leave_nothing_behind(busy, expected):
    storm_of_threads(busy, expected)
    asyncio.run(storm_of_a_loop(busy, expected))
    gc.collect()
    files, bytes_, threads = descriptors(), resident(), threading.active_count()
    storm_of_threads(busy, expected)
    asyncio.run(storm_of_a_loop(busy, expected))
    gc.collect()
    assert descriptors() <= files and threading.active_count() <= threads
    # A sanitizer keeps what was freed, and looks for leaks itself.
    assert "libclang_rt" in os.environ.get("LD_PRELOAD", "") or resident() - bytes_ < 10 << 20
    ids = busy.generate([prompt(5)], params(5, LONGEST))[0].outputs[0].token_ids
    assert check(5, ids, expected, LONGEST)


def test_others_run_while_the_engine_works(plain):
    """No call holds the interpreter's lock while it waits."""
    beats = []
    stop = threading.Event()

    def beat():
        while not stop.wait(0.002):
            beats.append(time.monotonic())

    thread = threading.Thread(target=beat)
    thread.start()
    plain.generate(["Once"] * 32, SamplingParams(max_tokens=200, ignore_eos=True, temperature=1))
    stop.set()
    thread.join()
    assert len(beats) > 5
    assert max(after - before for before, after in zip(beats, beats[1:])) < 1.0


SCRIPT = """
import signal, sys, time, aerie
signal.signal(signal.SIGINT, signal.default_int_handler)  # where the tests run in the background
llm = aerie.LLM(sys.argv[1], speculative_config=None)
params = aerie.SamplingParams(max_tokens=None, ignore_eos=True, temperature=1)
try:
    print("begin", flush=True)
    while True:
        {call}
except KeyboardInterrupt:
    start = time.monotonic()
    assert llm.generate("x", aerie.SamplingParams(max_tokens=2))[0].outputs[0].token_ids
    print("ended", time.monotonic() - start, flush=True)
    raise SystemExit(3)
"""


@pytest.mark.parametrize("call", ['llm.generate(["Once"] * 100, params)', 'list(llm.stream("Once", params))'])
def test_ctrl_c_ends_a_call(tiny, call):
    child = subprocess.Popen([sys.executable, "-c", SCRIPT.format(call=call), tiny], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "begin\n"
        time.sleep(0.3)
        child.send_signal(signal.SIGINT)
        start = time.monotonic()
        output, _ = child.communicate(timeout=30)
    finally:
        child.kill()
    assert child.returncode == 3 and output.startswith("ended"), output
    assert time.monotonic() - start < 5


def test_an_engine_left_open_ends_with_the_interpreter(tiny):
    script = ("import sys, aerie\n"
              "llm = aerie.LLM(sys.argv[1], speculative_config={'drafter': type('D', (), {'propose':"
              " lambda self, requests: [[1]] * len(requests)}), 'gate': False})\n"
              "stream = llm.stream('x', aerie.SamplingParams(max_tokens=None, ignore_eos=True))\n"
              "next(stream)\n")
    subprocess.run([sys.executable, "-c", script, tiny], check=True, timeout=30)
