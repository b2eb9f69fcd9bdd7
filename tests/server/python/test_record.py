"""`aerie serve --record`: what was served under load is what a plain run says, and a wrong id is found."""

import concurrent.futures
import json
import re
import shutil
import stat
import subprocess

from conftest import NIGHTLY, metric, wait_for

CLIENTS = 12
SECRET = "xylophone"
PROMPTS = [
    "The lighthouse stood on a rock that",
    "one two three four five one two three four five one two",
    "def add(a, b):\n    return a + b\n\ndef add(a, b):\n    return",
    f"Dear {SECRET},\n\nI am writing to",
]
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "old": {"type": "boolean"}},
          "required": ["name", "old"], "additionalProperties": False}
SUMMARY = re.compile(r"audit: (\d+) replies replayed, (\d+) differ, (\d+) skipped, (\d+) failed")


def audit(program, model_file, *arguments):
    """The exit status, the figures of the last line, and all that was said."""
    done = subprocess.run([program, "audit", "-q", "-m", model_file, *map(str, arguments)],
                          capture_output=True, text=True, check=False)
    summary = SUMMARY.fullmatch(done.stdout.splitlines()[-1])
    assert summary, done.stdout + done.stderr
    return done.returncode, tuple(map(int, summary.groups())), done.stdout + done.stderr


def requests(speculations):
    """Of every kind; how many replies each has."""
    out = []
    for number in range((4 if NIGHTLY else 2) * CLIENTS):
        extra = {"ignore_eos": number % 5 == 0, "cache_salt": str(number % 3)}
        settings = {"prompt": PROMPTS[number % len(PROMPTS)], "seed": number, "max_tokens": 16 + number % 24,
                    "temperature": [0, 0.7, 1.0, 1.3][number % 3], "extra_body": extra}
        method = number % (len(speculations) + 1)
        extra["speculation"] = {"method": speculations[method]} if method < len(speculations) else "off"
        if number % 6 == 1:
            settings["n"] = 3
        if number % 8 == 2:
            extra["structured_outputs"] = {"regex": "[a-z ]{10,40}\\."}
        if number % 8 == 6:
            extra["structured_outputs"] = {"json": SCHEMA}
        if number % 4 == 3:
            settings["stop"] = [" the", "7"]
        if number % 7 == 4:
            settings["frequency_penalty"] = 0.6
            extra["top_k"] = 40
            settings["logit_bias"] = {"30": -5, "198": -100}
        out.append(settings)
    return out


def load(server, model, speculations):
    """Mixed load, some of whose clients go away; how many replies came to their ends, and of these how many
    were constrained."""
    client = server.client()

    def ask(settings):
        reply = client.completions.create(model=model, **settings)
        return len(reply.choices), "structured_outputs" in settings["extra_body"]

    def go_away(number):
        stream = client.completions.create(model=model, prompt=PROMPTS[number % 4], max_tokens=400, stream=True,
                                           temperature=0.9, extra_body={"ignore_eos": True})
        for _ in range(3):
            next(stream)
        stream.close()

    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        leavers = [pool.submit(go_away, number) for number in range(4)]
        asked = [pool.submit(ask, settings) for settings in requests(speculations)]
        done = [one.result() for one in asked]
        for one in leavers:
            one.result()
    return sum(count for count, _ in done), sum(count for count, constrained in done if constrained)


def lines(folder):
    return [(path, number, line) for path in sorted(folder.glob("*.jsonl"))
            for number, line in enumerate(path.read_text().splitlines(), 1)]


def test_what_was_served_is_what_a_plain_run_says(start, program, model_file, model, speculations, tmp_path):
    folder = tmp_path / "records"
    server = start("--record", folder, "--record-share", "1", "--record-texts", "--cache-tokens", "16384")
    whole, _ = load(server, model, speculations)
    assert server.stop() == 0
    records = [json.loads(line) for _, _, line in lines(folder)]
    cancelled = [one for one in records if one["finish_reason"] == "none"]
    # Whoever goes away has had three chunks, so that something of each reply is there.
    assert len(cancelled) == 4
    assert len(records) == whole + len(cancelled)
    assert {one["speculate"] for one in records} >= {"none", *speculations}
    assert {one["choice"] for one in records} == {0, 1, 2}
    assert {one["grammar"] and one["grammar"]["kind"] for one in records} == {None, "regex", "json_schema"}
    assert any(one["prompt"] == PROMPTS[3] for one in records)
    assert audit(program, model_file, folder)[:2] == (0, (len(records), 0, 0, 0))
    assert audit(program, model_file, "--since", "1h", "--sample", "7", folder)[:2] == (0, (7, 0, 0, 0))

    # A wrong id is found, by file, line and place; among some of the records, since each is replayed.
    path, number, line = lines(folder)[len(records) // 2]
    wrong = json.loads(line)
    place = len(wrong["token_ids"]) // 2
    wrong["token_ids"][place] += 1
    kept = path.read_text().splitlines()[:number + 2][-5:]
    number = kept.index(line) + 1
    some = tmp_path / "some"
    some.mkdir()
    (some / path.name).write_text("\n".join(kept).replace(line, json.dumps(wrong)) + "\n")
    (some / f"a-{path.name}").write_text("\n".join(kept[:2]) + "\n")
    status, figures, said = audit(program, model_file, some)
    assert (status, figures) == (1, (len(kept) + len(kept[:2]), 1, 0, 0))
    assert f"{some / path.name}:{number}: differs at token {place}," in said


def test_without_texts_there_are_none(start, program, model_file, model, speculations, tmp_path):
    folder = tmp_path / "records"
    server = start("--record", folder, "--record-share", "1", "--cache-tokens", "16384")
    whole, constrained = load(server, model, speculations)
    wait_for(lambda: metric(server, "aerie:records_written_total") == whole - constrained + 4, what="the last record")
    assert metric(server, "aerie:records_left_out_total") == constrained
    assert metric(server, "aerie:records_dropped_total") == 0
    assert server.stop() == 0
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for path in folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert SECRET not in path.read_text()
    for _, _, line in lines(folder):
        record = json.loads(line)
        assert record["text"] is None and record["prompt"] is None and record["grammar"] is None
        assert record["stop"] == []
    assert audit(program, model_file, folder)[:2] == (0, (whole - constrained + 4, 0, 0, 0))


def test_a_share_is_recorded(start, model, tmp_path):
    folder = tmp_path / "records"
    server = start("--record", folder, "--record-share", "0.5", "--cache-tokens", "4096")
    client = server.client()
    for _ in range(25):
        client.completions.create(model=model, prompt="a", max_tokens=2, n=4)
    assert server.stop() == 0
    assert 25 <= len(lines(folder)) <= 75


def test_a_folder_that_goes_away_stops_nobody(start, program, model_file, model, tmp_path):
    folder = tmp_path / "records"
    server = start("--record", folder, "--record-share", "1", "--cache-tokens", "4096")
    client = server.client()

    def ask(count):
        for _ in range(count):
            assert client.completions.create(model=model, prompt="a", max_tokens=2).choices[0].text

    def said(words):
        return sum(words in line for line in server.log)

    ask(1)
    wait_for(lambda: metric(server, "aerie:records_written_total") == 1, what="the record")
    shutil.rmtree(folder)
    folder.write_text("in its place")
    ask(3)
    wait_for(lambda: metric(server, "aerie:records_dropped_total") == 3, what="the loss")
    wait_for(lambda: said("records are not written") == 1, what="the message")
    folder.unlink()
    ask(2)
    wait_for(lambda: metric(server, "aerie:records_written_total") == 3, what="the record")
    wait_for(lambda: said("records are written again; 3 were lost") == 1, what="the message")
    # Whoever comes second is refused.
    second = subprocess.run([program, "serve", "-m", model_file, "--port", "0", "--record", folder],
                            capture_output=True, text=True, check=False, timeout=120)
    assert second.returncode == 2 and str(folder) in second.stderr
    assert server.stop() == 0
    assert said("records are not written") == 1
    assert len(lines(folder)) == 2
