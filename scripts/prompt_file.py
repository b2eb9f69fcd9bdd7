"""Files of prompts, JSON lines as src/report/prompt_set.h reads them, for the scripts."""

import json


def records(path):
    """(line number, object) of each line that is not blank; ValueError names a line that is none."""
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except ValueError as error:
                raise ValueError(f"{path}:{number}: {error}") from error
            if not isinstance(record, dict):
                raise ValueError(f"{path}:{number} is no JSON object")
            yield number, record


def first_turn(record):
    """What the user says first; None if the record is no prompt."""
    said = [message.get("content") for message in record.get("messages", []) if message.get("role") == "user"]
    turns = record.get("turns") or said or [record[key] for key in ("question", "prompt", "text") if key in record]
    return turns[0] if turns and isinstance(turns[0], str) and turns[0] else None
