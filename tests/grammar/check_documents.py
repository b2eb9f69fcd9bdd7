#!/usr/bin/env python3
"""Validates the documents of generate_documents with the package jsonschema.

check_documents.py PROGRAM BUILD_FOLDER: makes itself an environment in the build folder.
"""

import json
import os
import subprocess
import sys
import venv


def environment(folder):
    """The Python of an environment with jsonschema."""
    python = os.path.join(folder, "bin", "python")
    if not os.path.exists(python):
        venv.create(folder, with_pip=True)
    probe = subprocess.run([python, "-c", "import jsonschema"], capture_output=True)
    if probe.returncode != 0:
        subprocess.run([python, "-m", "pip", "install", "--quiet", "jsonschema"], check=True)
    return python


def check(program):
    """The number of documents that are not as their schema wants them."""
    import jsonschema

    wrong = total = 0
    lines = subprocess.run([program], check=True, capture_output=True).stdout.splitlines()
    for line in lines:
        case = json.loads(line)
        draft7 = case["name"].startswith("draft7/")
        kind = jsonschema.Draft7Validator if draft7 else jsonschema.Draft202012Validator
        total += 1
        try:
            error = next(kind(case["schema"]).iter_errors(json.loads(case["document"])), None)
        except json.JSONDecodeError as broken:
            error = broken
        if error is not None:
            wrong += 1
            print(f"{case['name']}\n  {case['schema']}\n  {case['document']!r}\n  {error}\n")
    print(f"{total} documents, {wrong} wrong")
    return wrong if total > 0 else 1


def main():
    if len(sys.argv) == 4:
        return 1 if check(sys.argv[1]) else 0
    program, build = sys.argv[1:]
    python = environment(os.path.join(build, "jsonschema-env"))
    return subprocess.run([python, __file__, program, build, "here"]).returncode


if __name__ == "__main__":
    sys.exit(main())
