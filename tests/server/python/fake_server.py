#!/usr/bin/env python3
"""Sends the page and scripted replies, for what a real server cannot be asked to do.

The prompt's first word says what happens: "differ" gives other text without speculation, "break" ends with an
error after a few rounds, "drop" with the connection, "refuse" is a bad request, "slow" takes long,
"split" holds text back, "think" thinks for four rounds. With --key it wants that API key.
"""

import argparse
import http.server
import json
import pathlib
import random
import sys
import threading
import time
import zlib

PAGE = pathlib.Path(__file__).resolve().parents[3] / "src/server/page"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
TEXT = (
    "The lamp was lit at dusk, and the keeper wrote the hour into the book.\n\n"
    "1. Trim the wick.\n2. Wipe the glass.\n3. Wind the clockwork, which takes a hundred and "
    "twenty turns of the crank and lasts until four in the morning.\n\n"
    "In fog the bell was struck by hand, once every half minute, for as long as it took. "
)


def tokens_of(text):
    words, word = [], ""
    for letter in text:
        if letter in " \n.," and word:
            words.append(word)
            word = ""
        word += letter
    return words + [word]


def id_of(word):
    return zlib.crc32(word.encode()) % 50000


def rounds_of(text, seed, speculate):
    """The trace of each round: the prompt's pass first."""
    draw = random.Random(seed)
    words = tokens_of(text)

    def token(word, origin):
        return {"id": id_of(word), "text": word, "origin": origin}

    yield {"tokens": [token(words[0], "target")], "tree": []}
    at = 1
    while at < len(words):
        if not speculate:
            yield {"tokens": [token(words[at], "target")], "tree": []}
            at += 1
            continue
        chain = words[at : at + 4]
        right = min(draw.choice([0, 1, 2, 3, 4, 4]), len(chain))
        tree, parent = [], -1
        for depth, word in enumerate(chain):
            good = depth < right
            tree.append({
                "token": id_of(word) if good else 0,
                "text": word if good else draw.choice(words),
                "parent": parent,
                "probability": round(draw.uniform(0.3, 0.98), 3),
                "accepted": good,
            })
            parent = len(tree) - 1
            if depth < 2:
                tree.append({"token": 1, "text": draw.choice(words), "parent": tree[parent]["parent"],
                             "probability": round(draw.uniform(0.01, 0.2), 3), "accepted": False})
        out = [token(word, "accepted") for word in chain[:right]]
        at += right
        if at < len(words):
            out.append(token(words[at], "bonus" if right == len(chain) else "correction"))
            at += 1
        yield {"tokens": out, "tree": tree}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, kind, body):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'")
        self.end_headers()
        self.wfile.write(body)

    def reply_json(self, status, value):
        self.reply(status, "application/json", json.dumps(value).encode())

    def refuse(self, status, message):
        self.reply_json(status, {"error": {"message": message, "type": "invalid_request_error"}})

    def allowed(self):
        key = self.server.key
        if not key or self.headers.get("Authorization") == f"Bearer {key}":
            return True
        self.refuse(401, "This server wants an API key.")
        return False

    def do_GET(self):
        if self.path == "/v1/models":
            if self.allowed():
                aerie = {"speculations": ["auto", "ngram", "none"]}
                self.reply_json(200, {"object": "list", "data": [
                    {"id": "fake-model", "object": "model", "aerie": aerie}]})
            return
        file = PAGE / (self.path.strip("/") or "index.html")
        if file.parent != PAGE or not file.is_file():
            self.refuse(404, "There is no such page.")
            return
        self.reply(200, TYPES[file.suffix] + "; charset=utf-8", file.read_bytes())

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.allowed():
            return
        self.server.requests.append(request)
        chat = self.path.endswith("/chat/completions")
        prompt = request["messages"][-1]["content"] if chat else request["prompt"]
        word = prompt.split()[0]
        if word == "refuse":
            self.refuse(400, "max_tokens is too large: this model's context holds 2048 tokens.")
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            self.write_reply(request, word, chat)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def event(self, value):
        self.wfile.write(b"data: " + json.dumps(value).encode() + b"\n\n")
        self.wfile.flush()

    def write_reply(self, request, word, chat):
        speculate = request.get("speculation") != "off"
        text = TEXT * (10 if word == "slow" else 1)
        if word == "differ" and not speculate:
            text = text.replace("hundred", "dozen")
        rounds = list(rounds_of(text, request.get("seed"), speculate))
        held = ""
        for number, trace in enumerate(rounds):
            if number == 5 and word == "break":
                self.event({"error": {"message": "The model failed: out of memory."}})
                return
            if number == 5 and word == "drop":
                return
            if number == 5:
                self.server.goes_on.wait(60)
            piece = held + "".join(token["text"] for token in trace["tokens"])
            held = ""
            if word == "split" and number % 3 == 1:
                piece, held = piece[:-2], piece[-2:]
                trace["tokens"][-1]["text"] = "\ufffd"
            choice = {"index": 0, "finish_reason": None}
            said = "reasoning_content" if word == "think" and number < 4 else "content"
            choice.update({"delta": {said: piece}} if chat else {"text": piece})
            self.event({"choices": [choice], "trace": trace})
            time.sleep(self.server.pause * (20 if word == "slow" else 1))
        count = sum(len(trace["tokens"]) for trace in rounds)
        choice = {"index": 0, "finish_reason": "stop"}
        choice.update({"delta": {"content": held}} if chat else {"text": held})
        self.event({"choices": [choice]})
        passes = len(rounds) - 1
        self.event({
            "choices": [],
            "usage": {"prompt_tokens": 21, "completion_tokens": count, "total_tokens": 21 + count},
            "aerie": {"rounds": passes, "accepted_length": (count - 1) / passes, "queue_ms": 0.2,
                      "prompt_ms": 31.5, "generation_ms": 12.5 * passes, "cached_tokens": 16},
        })
        self.wfile.write(b"data: [DONE]\n\n")


class FakeServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port=0, key=None, pause=0.005):
        super().__init__(("127.0.0.1", port), Handler)
        self.key = key
        self.pause = pause
        self.goes_on = threading.Event()  # while it is not set, replies stand still in the middle
        self.goes_on.set()
        self.requests = []  # bodies, as they came

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--key")
    parser.add_argument("--pause", type=float, default=0.02, help="seconds between rounds")
    options = parser.parse_args()
    server = FakeServer(options.port, options.key, options.pause)
    print(f"listening on {server.url}", file=sys.stderr, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
