#!/usr/bin/env python3
"""Writes the prompts on which draft heads are trained.

Without arguments: chat.jsonl, code.jsonl, text.jsonl, translate.jsonl and questions.jsonl, beside
this file, from the lists in source/. The same lists give the same bytes.

With --passages DATA_DIR OUT_DIR: OUT_DIR/passages.jsonl, tasks on excerpts of the novels in
DATA_DIR/gutenberg and of DATA_DIR/wikitext-2/valid.txt.
"""

import argparse
import ast
import json
import pathlib
import random
import re
import sys
import textwrap

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE / "source"
SEED = 20240607

# Of a list of topics, how many tasks each topic is given.
TASKS_PER_TOPIC = 3
REPORTS_PER_FRAME = 12
TASKS_PER_PASSAGE = 4
# The novel that stays out of training, so that it can serve for measuring.
HELD_OUT = "alice_in_wonderland.txt"


def lines_of(name):
    text = (SOURCE / name).read_text(encoding="utf-8")
    return [line for line in text.split("\n") if line and not line.startswith("# Kinds")]


def sections(name):
    """(heading, line) for each line below a heading "# heading"."""
    heading = ""
    for line in lines_of(name):
        if line.startswith("# "):
            heading = line[2:]
        else:
            yield heading, line


class Writer:
    """Collects the prompts of a file; refuses a prompt that is there already."""

    def __init__(self, name):
        self.name = name
        self.records = []
        self.seen = set()

    def add(self, category, *turns, prompt=None):
        key = prompt if prompt is not None else turns[0]
        if key in self.seen:
            return
        self.seen.add(key)
        record = {"question_id": f"{self.name}-{len(self.records) + 1}", "category": category}
        if prompt is not None:
            record["prompt"] = prompt
        else:
            record["turns"] = list(turns)
        self.records.append(record)

    def write(self, folder):
        path = pathlib.Path(folder) / f"{self.name}.jsonl"
        with path.open("w", encoding="utf-8", newline="\n") as out:
            for record in self.records:
                out.write(json.dumps(record, ensure_ascii=False) + "\n")
        print(f"{path}: {len(self.records)} prompts, {path.stat().st_size} bytes")


def topic_kinds():
    kinds = []
    for line in lines_of("topics.txt"):
        mark, _, rest = line.partition(" ")
        if mark == "@":
            name, category = rest.split()
            kinds.append({"name": name, "category": category, "tasks": [], "then": []})
        elif mark == ":":
            kinds[-1]["topics"] = [topic.strip() for topic in rest.split(";")]
        else:
            kinds[-1]["tasks" if mark == "-" else "then"].append(rest)
    return kinds


def capital(text):
    return text[0].upper() + text[1:]


def chat(rng):
    out = Writer("chat")
    for category, line in sections("chat.txt"):
        out.add(category, *(turn.replace("\\n", "\n") for turn in line.split(" || ")))
    for kind in topic_kinds():
        for i, topic in enumerate(kind["topics"]):
            # Neighbouring topics begin at different tasks, so each task is used about equally often.
            tasks = [
                kind["tasks"][(i + 4 * k) % len(kind["tasks"])] for k in range(TASKS_PER_TOPIC)
            ]
            for task in dict.fromkeys(tasks):
                turns = [capital(task.format(topic))]
                if rng.random() < 0.3:
                    turns.append(rng.choice(kind["then"]))
                out.add(kind["category"], *turns)
    for _, line in sections("words.txt"):
        problem, *groups = line.split(" | ")
        for group in groups:
            out.add("math", problem.format(**dict(zip("abcdefg", group.split()))))
    rng.shuffle(out.records)
    for number, record in enumerate(out.records, 1):
        record["question_id"] = f"chat-{number}"
    return out


TYPING = ["Any", "Callable", "Dict", "Iterable", "Iterator", "List", "Optional", "Set", "Tuple"]


def function_head(rng, signature):
    """The lines before the docstring: imports if the types need any, and the def itself."""
    if rng.random() < 0.3:  # without types, as much code is written
        function = ast.parse(f"def {signature}: pass").body[0]
        for argument in [*function.args.args, function.args.vararg]:
            if argument:
                argument.annotation = None
        signature = f"{function.name}({ast.unparse(function.args)})"
    names = [name for name in TYPING if re.search(rf"\b{name}\b", signature)]
    head = f"from typing import {', '.join(names)}\n\n\n" if names else ""
    return head + f"def {signature}:\n"


def function_text(rng, line):
    signature, purpose, examples = line.split(" | ")
    pairs = [example.rsplit(" == ", 1) for example in examples.split(" ; ")]
    wide = textwrap.fill(purpose, 84, subsequent_indent="    ")
    style = rng.randrange(5)
    quote = "'''" if rng.random() < 0.2 else '"""'
    if style == 0:
        doc = wide + "\n" + "".join(f"    >>> {call}\n    {value}\n" for call, value in pairs)
    elif style == 1:
        doc = wide + "\n\n    Examples:\n" + "".join(f"        {c} -> {v}\n" for c, v in pairs)
    elif style == 2:
        doc = f"\n    {wide}\n\n" + "".join(
            f"    {call} returns {value}\n" for call, value in pairs
        )
    elif style == 3:
        doc = (
            wide
            + "\n    For example:\n"
            + "".join(f"    {call} == {value}\n" for call, value in pairs)
        )
    else:
        doc = wide
    raw = "r" if "\\" in doc else ""
    end = "" if style == 4 else "    "
    return function_head(rng, signature) + f"    {raw}{quote}{doc}{end}{quote}\n"


FENCE_TASKS = [
    "Complete the following function:",
    "Complete the following Python function. Answer with the code only.",
    "Finish this function:",
    "Please implement the function below.",
    "Write the body of this Python function, and explain it briefly.",
]
SNIPPET_TASKS = {
    "fix": [
        "This {} code has a bug. Find and fix it.",
        "What is wrong with this {} code?",
        "My {} code does not do what I expect. Explain why and correct it.",
    ],
    "explain": [
        "Explain what this {} code does.",
        "What does the following {} code do? Go through it line by line.",
    ],
    "improve": [
        "Make this {} code shorter and easier to read.",
        "Review this {} code and suggest improvements.",
        "Rewrite this {} code in a cleaner or faster way.",
    ],
    "convert": ["Convert this code from {} to {}.", "Translate the following {} code into {}."],
}


def snippets():
    for block in re.split(
        r"^@ ", (SOURCE / "snippets.txt").read_text(encoding="utf-8"), flags=re.M
    )[1:]:
        head, _, code = block.partition("\n")
        kind, _, language = head.partition(" ")
        yield kind, language.split("|"), code.rstrip("\n")


def code(rng):
    out = Writer("code")
    for number, (_, line) in enumerate(sections("functions.txt")):
        out.add("completion", prompt=function_text(rng, line))
        task = FENCE_TASKS[number % len(FENCE_TASKS)] if number % 2 else FENCE_TASKS[0]
        out.add("completion", f"{task}\n\n```python\n{function_text(rng, line)}```")
    for heading, line in sections("code_tasks.txt"):
        task, _, languages = line.partition(" | ") if "write" in heading else (line, "", "")
        for language in languages.split(", "):
            out.add("coding", task.format(language) if language else task)
    for kind, languages, text in snippets():
        for task in SNIPPET_TASKS[kind]:
            fence = re.sub(r"\W", "", languages[0].lower().replace("c++", "cpp"))
            out.add("coding", f"{task.format(*languages)}\n\n```{fence}\n{text}\n```")
    return out


class Passage:
    def __init__(self, title, questions, fields, text):
        self.title, self.questions, self.fields, self.text = title, questions, fields, text


def passages():
    for block in re.split(
        r"^== ", (SOURCE / "passages.txt").read_text(encoding="utf-8"), flags=re.M
    )[1:]:
        title, *lines = block.rstrip("\n").split("\n")
        questions = [line[3:] for line in lines if line.startswith("Q: ")]
        fields = next(line[3:] for line in lines if line.startswith("J: "))
        yield Passage(title, questions, fields, lines[-1])


def frames():
    """Each frame: name, question, fields, slots, and its sentences as lists of alternatives."""
    common, result = {}, []
    for line in lines_of("frames.txt"):
        mark, _, rest = line.partition(" ")
        if mark == "$":
            name, _, values = rest.partition(": ")
            slots = result[-1]["slots"] if result else common
            slots[name] = [value.strip() for value in values.split(";")]
        elif mark == "@":
            result.append({"name": rest, "slots": dict(common), "sentences": []})
        elif mark in ("Q:", "J:"):
            result[-1][mark] = rest
        elif mark == "-":
            result[-1]["sentences"].append(rest.split(" / "))
    return result


def report(rng, frame, number):
    """A text of the frame: the same slot holds the same value throughout, numbers are drawn anew."""
    values = {name: rng.choice(options) for name, options in frame["slots"].items()}
    for name in list(frame["slots"])[-2:]:  # the frame's own: all in turn
        options = frame["slots"][name]
        values[name] = options[number % len(options)]

    def fill(match):
        if match[1] == "n":
            low, high = match[2].split("-")
            return str(rng.randint(int(low), int(high)))
        return values[match[1]]

    chosen = [rng.choice(options) for options in frame["sentences"]]
    text = " ".join(
        capital(re.sub(r"\{(\w+)(?::([\d-]+))?\}", fill, sentence)) for sentence in chosen
    )
    text = re.sub(
        r"\b(\d*(?<!1)([123]))th\b", lambda m: m[1] + {"1": "st", "2": "nd", "3": "rd"}[m[2]], text
    )
    return Passage(frame["name"], [frame["Q:"]], frame["J:"], text)


SUMMARISE = [
    "Summarize: {}",
    "Summarise the following text in three sentences.\n\n{}",
    "{}\n\nSum this up in one sentence.",
    "Give the main points of this text as a list.\n\n{}",
    "{}\n\nTL;DR",
    "Write a headline and a two-line summary.\n\n{}",
    "Summarise this for a ten-year-old:\n\n{}",
    "What is this text about? Answer briefly.\n\n{}",
]
REWRITE = [
    "Rewrite the following text in simple language.\n\n{}",
    "Turn this text into a short dialogue.\n\n{}",
    "Shorten this text to half its length.\n\n{}",
    "Rewrite this as a post for social media.\n\n{}",
    "Rewrite the text from the point of view of a person who was there.\n\n{}",
    "Correct any mistakes in the text and repeat it.\n\n{}",
    "Translate the following text into German.\n\n{}",
    "Write five questions for a reading test about this text, with answers.\n\n{}",
]
ANSWER = [
    "{text}\n\nQuestion: {question}\nAnswer:",
    "Read the text and answer the question.\n\n{text}\n\n{question}",
    "Answer with a quotation from the text: {question}\n\n{text}",
    "{question} Use only the following text.\n\n{text}",
]
EXTRACT = [
    "Extract the following from the text as JSON ({fields}):\n\n{text}",
    "{text}\n\nGive a JSON object with these keys: {fields}. Use null for what is not in the text.",
    "Make a table of the facts in this text: {fields}.\n\n{text}",
]
SEVERAL = (
    "Here are some passages:\n\n[1] {}\n\n[2] {}\n\nAnswer the question from the passages and say which of "
    "them you used.\n\nQuestion: {}"
)


def text_tasks(passage, other, number):
    """Up to TASKS_PER_PASSAGE prompts on one passage, different ones for its neighbours."""
    question = passage.questions[number % len(passage.questions)]
    second = passage.questions[-1 - number % len(passage.questions)]
    yield "summarization", SUMMARISE[number % len(SUMMARISE)].format(passage.text)
    yield "extraction", EXTRACT[number % len(EXTRACT)].format(
        text=passage.text, fields=passage.fields
    )
    yield "qa", ANSWER[number % len(ANSWER)].format(text=passage.text, question=question)
    if number % 3 == 0:
        pair = [passage.text, other.text] if number % 2 else [other.text, passage.text]
        yield "rag", SEVERAL.format(*pair, second)
    else:
        yield "rewriting", REWRITE[number % len(REWRITE)].format(passage.text)


def text(rng):
    out = Writer("text")
    written = list(passages())
    for number, passage in enumerate(written):
        for category, prompt in text_tasks(passage, written[(number + 7) % len(written)], number):
            out.add(category, prompt)
    number = 0
    for frame in frames():
        for i in range(REPORTS_PER_FRAME):
            made = report(rng, frame, i)
            # One task for each report; the summaries, which are asked for most often, twice in five.
            tasks = list(text_tasks(made, written[number % len(written)], number // 4))
            category, prompt = tasks[(0, 1, 0, 2, 3)[number % 5]]
            out.add(category, prompt)
            number += 1
    return out


def translate(_):
    out = Writer("translate")
    for _, line in sections("german.txt"):
        out.add("translation", f"Translate German to English: {line}")
    return out


def questions(_):
    out = Writer("questions")
    for number, (_, line) in enumerate(sections("questions.txt")):
        # Every third one as people type them into a search box.
        typed = number % 3 == 0 and line.count("?") == 1 and line.endswith("?")
        out.add("qa", line[:-1].lower() if typed else line)
    return out


# Not the full stop of a title or of an initial.
SENTENCE_END = re.compile(
    r"((?<!\bMr)(?<!\bMrs)(?<!\bDr)(?<!\bSt)(?<!\b[A-Z])[.!?][\"'”’)]*)\s+" r"(?=[\"'“‘(]?[A-Z])"
)


def sentences(paragraph):
    found = SENTENCE_END.split(paragraph)
    return [text + end for text, end in zip(found[::2], found[1::2] + [""])]


def excerpts(paragraphs, low=120, high=300):
    """Runs of whole sentences of neighbouring paragraphs, each of `low` to `high` words."""
    held, words = [], 0
    for paragraph in paragraphs:
        if paragraph is None:  # what stands here cannot be bridged
            held, words = [], 0
            continue
        for sentence in sentences(paragraph):
            count = len(sentence.split())
            if words + count > high:
                held, words = [], 0
            held.append(sentence)
            words += count
            if words >= low:
                yield " ".join(held)
                held, words = [], 0


def novel(path):
    for block in re.split(r"\n\s*\n", path.read_text(encoding="utf-8")):
        paragraph = " ".join(block.split())
        heading = paragraph.isupper() or re.match(r"(?i)chapter|volume|book\b|contents", paragraph)
        yield None if heading or len(paragraph.split()) < 4 else paragraph.replace("_", "")


def wikitext(path):
    """Paragraphs with the usual spaces, less the sentences in which a word was replaced by <unk>."""
    for line in path.read_text(encoding="utf-8").split("\n"):
        line = line.strip()
        if not line or line.startswith("=") or line.endswith(":"):
            yield None
            continue
        line = re.sub(r" @(.)@ ", r"\1", line)
        line = re.sub(r" ([,.;:!?%)\]]|'s\b|n't\b|'(?=\s|$))", r"\1", line)
        line = re.sub(r"([(\[$£]) ", r"\1", line)
        line = re.sub(r'" ([^"]*?) "', r'"\1"', line)
        yield " ".join(sentence for sentence in sentences(line) if "<unk>" not in sentence)
        yield None


PASSAGE_QUESTIONS = [
    "Who or what is this passage about?",
    "What happens in this passage?",
    "What can one conclude from the passage that it does not say outright?",
    "Which details does the author mention, and why might they matter?",
    "What is the mood of this passage?",
]


def public_passages(data, per_source):
    out = Writer("passages")
    texts = [
        (path.stem, novel(path))
        for path in sorted((data / "gutenberg").glob("*.txt"))
        if path.name != HELD_OUT
    ]
    texts.append(("wikitext", wikitext(data / "wikitext-2" / "valid.txt")))
    number = 0
    for name, paragraphs in texts:
        found = list(excerpts(paragraphs))
        count = min(per_source * (2 if name == "wikitext" else 1), len(found))
        for i in range(count):
            passage = found[i * len(found) // count]
            if number % 2:
                question = PASSAGE_QUESTIONS[number // 2 % len(PASSAGE_QUESTIONS)]
                out.add("qa", ANSWER[number // 2 % 2].format(text=passage, question=question))
            else:
                out.add("summarization", SUMMARISE[number // 2 % len(SUMMARISE)].format(passage))
            number += 1
    return out


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--passages", nargs=2, metavar=("DATA_DIR", "OUT_DIR"), type=pathlib.Path)
    parser.add_argument(
        "--per-source", type=int, default=40, help="excerpts of each novel (default: 40)"
    )
    parser.add_argument(
        "--out", type=pathlib.Path, default=HERE, help="folder for the files (default: this one)"
    )
    args = parser.parse_args()
    if args.passages is None:
        for make in (chat, code, text, translate, questions):
            make(random.Random(SEED)).write(args.out)
        return 0
    data, out = args.passages
    if args.per_source < 1:
        parser.error("--per-source: give a number of at least 1")
    missing = [p for p in (data / "gutenberg", data / "wikitext-2" / "valid.txt") if not p.exists()]
    if missing:
        parser.error(
            f"{missing[0]} is not there; DATA_DIR must hold gutenberg/ and wikitext-2/valid.txt"
        )
    out.mkdir(parents=True, exist_ok=True)
    public_passages(data, args.per_source).write(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
