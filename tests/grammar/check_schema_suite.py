#!/usr/bin/env python3
"""Holds documents that schemas gave to an independent validator, the Python package jsonschema.

Runs the program generate_documents (built with the tests) over tests/grammar/schemas.json and the
official suite, where that is there, and validates every document. Where jsonschema is missing it
goes into a virtual environment in the build folder. Exits with 1 if a document is not valid.

  --bench FOLDER   instead: the schemas of jsonschemabench (its folder data/, with a folder for each set), of each set
                   those that --sample and --seed draw; also how many compile, and why the others do not
  --time MODEL     with --bench: instead what they take with the vocabulary of this GGUF file, in time of a core
"""

import argparse
import collections
import decimal
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SUITE = ROOT.parent / "shared/data/json-schema-test-suite/tests"


def in_environment(build):
    """Runs this script again where jsonschema is."""
    folder = build / "jsonschema-venv"
    python = folder / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "jsonschema"], check=True)
    return subprocess.run([python, __file__, *sys.argv[1:]]).returncode


def documents(program, files):
    lines = subprocess.run([*program, *files], check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in lines.splitlines()]


def drawn_groups(folder, sample, seed):
    """Name and schemas of each of a benchmark's sets."""
    drawn = random.Random(seed)
    for group in sorted(path for path in folder.iterdir() if path.is_dir()):
        files = sorted(group.glob("*.json"))
        yield group.name, [json.loads(path.read_text(encoding="utf-8"))
                           for path in drawn.sample(files, min(sample, len(files)))]


def rows_of(program, schemas):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as listed:
        json.dump(schemas, listed)
        listed.flush()
        return documents(program, [listed.name])


def quantiles(values):
    ordered = sorted(values)
    at = [ordered[min(len(ordered) - 1, int(part * len(ordered)))] for part in (0.5, 0.9, 0.99, 1)]
    return "p50 {:.2f}, p90 {:.2f}, p99 {:.2f}, worst {:.2f}".format(*at)


def times(program, model, folder, sample, seed):
    """What a benchmark's schemas of up to 20 kB take."""
    rows = []
    for name, schemas in drawn_groups(folder, sample, seed):
        small = [schema for schema in schemas if len(json.dumps(schema, separators=(",", ":"))) <= 20000]
        found = [row for row in rows_of([program, "--time", model], small) if "refused" not in row]
        print(f"{name}: {len(found)} schemas, first token in ms: {quantiles([row['first_ms'] for row in found])}",
              flush=True)
        rows += found
    for title, key in (("compiling, ms", "compile_ms"), ("until the first mask, ms", "first_ms")):
        print(f"{title}: {quantiles([row[key] for row in rows])}")
    for title, key in (("a token whose mask is new, us", "new_us"), ("a token whose mask is known, us", "known_us")):
        print(f"{title}: {quantiles([time for row in rows for time in row.get(key, [])])}")


def bench(program, folder, sample, seed, validator_for):
    """Documents of a benchmark's schemas; the number that are not valid."""
    wrong, reasons = 0, collections.Counter()
    for name, schemas in drawn_groups(folder, sample, seed):
        rows = rows_of([program], schemas)
        refused = [row["refused"] for row in rows if "refused" in row]
        reasons.update(re.sub(r"^#\S*/", "", reason) for reason in refused)
        failures = check(validator_for, rows)
        print(f"{name}: {len(schemas) - len(refused)} of {len(schemas)} compile; "
              f"{len(rows) - len(refused)} documents, {failures} not valid", flush=True)
        wrong += failures
    for reason, count in reasons.most_common(20):
        print(f"  {count} {reason[:120]}")
    return wrong


def check(validator, rows):
    """The number of rows that are not valid, each with a line on standard error.

    Decimals are compared as they are written: in binary floating point 19.99 is no multiple of 0.01.
    """
    wrong = 0
    for row in rows:
        if "document" not in row:
            continue
        # Python reads these escapes, and "." before these line ends, in another way than ECMAScript.
        text = json.dumps(row["schema"])
        escapes = [r"\\W", r"\\s"] + ([r"\\w", r"\\d"] if '"patternProperties"' in text else [])
        if any(escape in text for escape in escapes):
            continue
        document = json.loads(row["document"], parse_float=decimal.Decimal)
        schema = json.loads(json.dumps(row["schema"]), parse_float=decimal.Decimal)
        if any(end in json.dumps(json.loads(row["document"]), ensure_ascii=False) for end in ("\\r", "\u2028", "\u2029")):
            continue
        if not validator(schema).is_valid(document):
            print(f"not valid: {row}", file=sys.stderr)
            wrong += 1
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--bench", type=pathlib.Path)
    parser.add_argument("--time", type=pathlib.Path)
    parser.add_argument("--sample", type=int, default=40)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    build = options.build.resolve()
    program = build / "bin/generate_documents"
    if options.bench and options.time:
        return times(program, options.time, options.bench, options.sample, options.seed)
    try:
        import jsonschema
    except ImportError:
        return in_environment(build)
    if options.bench:
        def validator_for(schema):
            return jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)(schema)
        return 1 if bench(program, options.bench, options.sample, options.seed, validator_for) else 0
    wrong = 0
    for name, validator, files in (
        ("schemas.json", jsonschema.Draft202012Validator, [ROOT / "tests/grammar/schemas.json"]),
        ("draft2020-12", jsonschema.Draft202012Validator, sorted(SUITE.glob("draft2020-12/**/*.json"))),
        ("draft7", jsonschema.Draft7Validator, sorted(SUITE.glob("draft7/**/*.json"))),
    ):
        rows = documents([program], files)
        failures = check(validator, rows)
        count = sum("document" in row for row in rows)
        print(f"{name}: {count} documents, {failures} not valid")
        wrong += failures
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
