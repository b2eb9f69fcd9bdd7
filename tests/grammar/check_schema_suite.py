#!/usr/bin/env python3
"""Holds documents that schemas gave to an independent validator, the Python package jsonschema.

Runs the program generate_documents (built with the tests) over tests/grammar/schemas.json and the
official suite, where that is there, and validates every document. Where jsonschema is missing it
goes into a virtual environment in the build folder. Exits with 1 if a document is not valid.
"""

import argparse
import json
import pathlib
import subprocess
import sys

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
    lines = subprocess.run([program, *files], check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in lines.splitlines()]


def check(validator, rows):
    """The number of rows that are not valid, each with a line on standard error."""
    wrong = 0
    for row in rows:
        # Python reads these two escapes in another way than ECMAScript.
        if any(escape in json.dumps(row["schema"]) for escape in (r"\\W", r"\\s")):
            continue
        document = json.loads(row["document"])
        if not validator(row["schema"]).is_valid(document):
            print(f"not valid: {row}", file=sys.stderr)
            wrong += 1
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    build = parser.parse_args().build.resolve()
    try:
        import jsonschema
    except ImportError:
        return in_environment(build)
    program = build / "bin/generate_documents"
    wrong = 0
    for name, validator, files in (
        ("schemas.json", jsonschema.Draft202012Validator, [ROOT / "tests/grammar/schemas.json"]),
        ("draft2020-12", jsonschema.Draft202012Validator, sorted(SUITE.glob("draft2020-12/**/*.json"))),
        ("draft7", jsonschema.Draft7Validator, sorted(SUITE.glob("draft7/**/*.json"))),
    ):
        rows = documents(program, files)
        failures = check(validator, rows)
        print(f"{name}: {len(rows)} documents, {failures} not valid")
        wrong += failures
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
