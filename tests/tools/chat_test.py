#!/usr/bin/env python3
"""`aerie run` as people use it: messages without flags, and the chat in a terminal.

    tests/tools/chat_test.py BIN [TEST...]       BIN: the folder with aerie

Needs the real model (scripts/fetch_model.sh), else it exits with 77: skipped.
"""

import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

from more_metadata import with_metadata

BIN = pathlib.Path("build/release/bin")
MODEL = pathlib.Path(__file__).resolve().parents[2] / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
SECONDS = 120
TEMPLATE = ("{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}</s>{% endfor %}"
            "{% if add_generation_prompt %}<assistant>{% endif %}")
SAMPLING = {"general.sampling.temp": 0.6, "general.sampling.top_p": 0.9, "general.sampling.top_k": 20}
FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="aerie_chat_"))
PLAIN, CHATTY, DRAWN = FOLDER / "plain.gguf", FOLDER / "chatty.gguf", FOLDER / "drawn.gguf"


def setUpModule():
    subprocess.run([BIN / "aerie", "bench", "make-model", "--shape", "tiny", "--type", "q8_0", PLAIN], check=True,
                   stderr=subprocess.DEVNULL)
    with_metadata(PLAIN, CHATTY, {"tokenizer.chat_template": TEMPLATE})
    with_metadata(PLAIN, DRAWN, {"tokenizer.chat_template": TEMPLATE, **SAMPLING})


def tearDownModule():
    shutil.rmtree(FOLDER)


def environment(**more):
    return {**os.environ, "HOME": str(FOLDER), "XDG_STATE_HOME": str(FOLDER / "state"), "TERM": "xterm", **more}


def run(*arguments, typed="", env=None):
    """Status, text and messages."""
    done = subprocess.run([BIN / "aerie", "run", *map(str, arguments)], input=typed.encode(), capture_output=True,
                          env=env or environment(), timeout=SECONDS, check=False)
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


def figures(*arguments, typed=""):
    """What --json says."""
    file = FOLDER / "figures.json"
    status, _, said = run(*arguments, "--json", file, typed=typed)
    assert status == 0, said
    return json.loads(file.read_text()), said


class Messages(unittest.TestCase):
    def tokens_of(self, *arguments, typed=""):
        return figures(*arguments, "-n", "2", typed=typed)[0]["prompt_tokens"]

    def test_a_prompt_is_a_message_where_there_is_a_template(self):
        framed = len("<user>hello</s><assistant>")
        self.assertEqual(self.tokens_of(CHATTY, "hello"), framed)
        self.assertEqual(self.tokens_of(CHATTY, "-p", "hello"), framed)
        self.assertEqual(self.tokens_of("-m", CHATTY, "hello"), framed)
        self.assertEqual(self.tokens_of("-m", CHATTY, typed="hello"), framed)
        self.assertEqual(self.tokens_of("-m", CHATTY, "-p", "hello", "--template"), framed)
        self.assertEqual(self.tokens_of(CHATTY, "hello", "--system", "be"), framed + len("<system>be</s>"))

    def test_and_a_text_where_there_is_none_or_raw_is_asked_for(self):
        self.assertEqual(self.tokens_of(PLAIN, "hello"), 5)
        self.assertEqual(self.tokens_of(CHATTY, "hello", "--raw"), 5)

    def refused(self, *arguments, word, typed=""):
        status, _, said = run(*arguments, typed=typed)
        self.assertEqual(status, 2, said)
        self.assertIn(word, said)

    def test_what_cannot_be_is_refused(self):
        self.refused(word="there is no model")
        self.refused(CHATTY, word="there is no prompt")
        self.refused(CHATTY, "two", "words", word="put it in quotes")
        self.refused(CHATTY, "one", "-p", "two", word="put it in quotes")
        self.refused(CHATTY, "hi", "-f", "/dev/null", word="exclude each other")
        self.refused(CHATTY, "hi", "--raw", "--system", "x", word="--raw")
        self.refused(CHATTY, "hi", "--chat", word="--chat")
        status, _, said = run(PLAIN, "hi", "--template")
        self.assertNotEqual(status, 0)
        self.assertIn("no chat template", said)
        self.assertIn("--raw", said)

    def test_a_template_that_cannot_be_read_is_no_reason_to_go_on_without(self):
        broken = with_metadata(PLAIN, FOLDER / "broken.gguf", {"tokenizer.chat_template": "{% nonsense %}"})
        status, _, said = run(broken, "hi", "-n", "2")
        self.assertNotEqual(status, 0)
        self.assertIn("--raw", said)
        self.assertEqual(run(broken, "hi", "-n", "2", "--raw")[0], 0)


class Sampling(unittest.TestCase):
    def test_is_as_the_makers_recommend(self):
        report, said = figures(DRAWN, "hi", "-n", "2")
        self.assertEqual(report["temperature"], 0.6)
        self.assertIn("temperature 0.6, top-k 20, top-p 0.9", said)

    def test_unless_it_is_asked_for(self):
        self.assertEqual(figures(DRAWN, "hi", "-n", "2", "--temp", "0.2")[0]["temperature"], 0.2)
        for choice in ("none", "vllm"):
            report, said = figures(DRAWN, "hi", "-n", "2", "--generation-config", choice)
            self.assertEqual(report["temperature"], 0)
            self.assertNotIn("recommend", said)

    def test_what_makes_no_sense_is_named(self):
        odd = with_metadata(PLAIN, FOLDER / "odd.gguf", {"general.sampling.top_p": 7.0})
        status, _, said = run(odd, "hi", "-n", "2")
        self.assertEqual(status, 1, said)
        self.assertIn("general.sampling.top_p is 7", said)
        self.assertIn("--generation-config none", said)
        self.assertEqual(run(odd, "hi", "-n", "2", "--generation-config", "none")[0], 0)


class Report(unittest.TestCase):
    def test_on_standard_output_is_alone_there(self):
        status, text, _ = run(CHATTY, "hi", "-n", "4", "--ignore-eos", "--json", "-")
        self.assertEqual(status, 0)
        self.assertEqual(json.loads(text)["generated_tokens"], 4)


class Colour(unittest.TestCase):
    ASKED = (CHATTY, "one one one one one", "-n", "64", "--temp", "0", "--ignore-eos", "--speculate", "ngram")

    def test_never_changes_the_text(self):
        plain = run(*self.ASKED)[1]
        tinted = run(*self.ASKED, "--color=always")[1]
        self.assertIn("\x1b[32m", tinted)
        self.assertEqual(re.sub("\x1b\\[[0-9]*m", "", tinted), plain)

    def test_is_for_terminals(self):
        self.assertNotIn("\x1b", run(*self.ASKED, "--color")[1])
        self.assertNotIn("\x1b", run(*self.ASKED)[1])


class Reasoning(unittest.TestCase):
    ASKED = ("hi", "-n", "12", "--temp", "1", "--seed", "3")
    SCHEMA = ("--json-schema", '{"type": "object"}')

    def model(self, begin):
        """One whose replies begin behind this text."""
        file = FOLDER / f"thinks{len(begin)}.gguf"
        told = "{{ m['content'].split('</think>')[-1] }}"
        template = TEMPLATE.replace("{{ m['content'] }}", told).replace("<assistant>", "<assistant>" + begin)
        with_metadata(PLAIN, file, {"tokenizer.chat_template": template})
        return file

    def test_is_no_part_of_the_answer(self):
        status, text, said = run(self.model("<think>\n"), *self.ASKED, "-q")
        self.assertEqual(status, 0)
        self.assertEqual(text, "\n")
        self.assertGreater(len(said.strip()), 4)

    def test_is_free_where_the_answer_has_a_form(self):
        status, text, said = run(self.model("<think>\n"), *self.ASKED, *self.SCHEMA, "-q")
        self.assertEqual(status, 0)
        self.assertEqual(text, "\n")
        self.assertFalse(said.startswith("{"), said)

    def test_answers_begin_with_their_form(self):
        for arguments in ((self.model("<think>\n</think>"),), (self.model("<think>\n"), "--raw"), (CHATTY,)):
            self.assertTrue(run(*arguments, *self.ASKED, *self.SCHEMA)[1].startswith("{"), arguments)


class Terminal:
    """A chat in a terminal of 80 columns."""

    def __init__(self, *arguments, **more):
        self.seen = ""
        self.process, self.fd = pty.fork()
        if self.process == 0:
            os.execve(BIN / "aerie", ["aerie", "run", *map(str, arguments)], environment(**more))
        self.resize(80)

    def resize(self, columns):
        import fcntl
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            os.kill(self.process, signal.SIGKILL)
            os.waitpid(self.process, 0)
        except (ProcessLookupError, ChildProcessError):
            pass
        os.close(self.fd)

    def type(self, text):
        os.write(self.fd, text.encode())

    def until(self, pattern):
        """Reads until what was not yet read has it; what came before and with it."""
        end = time.monotonic() + SECONDS
        while not (found := re.search(pattern, self.seen)):
            if time.monotonic() > end or not select.select([self.fd], [], [], SECONDS)[0]:
                raise AssertionError(f"{pattern!r} did not come: {self.seen!r}")
            try:
                self.seen += os.read(self.fd, 65536).decode(errors="replace")
            except OSError as error:
                raise AssertionError(f"{pattern!r} did not come: {self.seen!r}") from error
        out, self.seen = self.seen[:found.end()], self.seen[found.end():]
        return out

    def asks(self):
        return self.until("> (?:\x1b\\[K)?")

    def ends(self):
        """The exit status."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            try:
                os.read(self.fd, 65536)
            except OSError:
                break
        return os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])


CLOSING = r"\(\d+ tokens, .* tokens/s, τ .*\)"


class Chat(unittest.TestCase):
    def chat(self, *arguments, **more):
        return Terminal(CHATTY, "-n", "6", "--ignore-eos", "--temp", "0", *arguments, **more)

    def said(self, path):
        return [(one["role"], one["content"]) for one in json.loads(path.read_text())["messages"]]

    def test_is_what_a_terminal_without_a_prompt_gets(self):
        with self.chat() as chat:
            chat.until("/help tells the commands")
            chat.asks()
            chat.type("hello\r")
            chat.until(CLOSING)
            chat.asks()
            chat.type("\x04")
            self.assertEqual(chat.ends(), 0)

    def test_lines_can_be_edited_and_called_back(self):
        saved = FOLDER / "edited.json"
        with self.chat() as chat:
            chat.asks()
            chat.type("wörlld\x1b[D\x7f\x01hello \r")  # left, backspace, to the beginning
            chat.until(CLOSING)
            chat.asks()
            chat.type("\x1b[A!\r")  # up
            chat.until(CLOSING)
            chat.asks()
            chat.type(f"/save {saved}\r")
            chat.until("saved")
        users = [text for role, text in self.said(saved) if role == "user"]
        self.assertEqual(users, ["hello wörld", "hello wörld!"])
        # The next chat has it, too.
        with self.chat() as chat:
            chat.asks()
            chat.type("\x1b[A\x1b[A")
            chat.until("hello wörld!")
        self.assertEqual((FOLDER / "state/aerie/chat_history").stat().st_mode & 0o777, 0o600)

    def test_what_is_pasted_is_one_message(self):
        saved = FOLDER / "pasted.json"
        with self.chat() as chat:
            chat.asks()
            chat.type("\x1b[200~one\rtwo\x07\r\x1b[201~ three\r")
            chat.until(CLOSING)
            chat.asks()
            chat.type(f"/save {saved}\r")
            chat.until("saved")
        self.assertEqual(self.said(saved)[0], ("user", "one\ntwo three"))

    def test_ctrl_c_drops_a_line_and_stops_a_reply(self):
        saved = FOLDER / "stopped.json"
        # A reply that takes a while.
        with Terminal(MODEL, "--ignore-eos", "--temp", "0") as chat:
            chat.asks()
            chat.type("dropped\x03")
            chat.until("Ctrl-D or /exit leaves")
            chat.asks()
            chat.type("Write a very long story about a whale.\r")
            chat.until(r"\n[^\x1b\n]*[a-z]+ [a-z]+")
            chat.type("\x03")
            chat.until(r"\(stopped\)")
            chat.asks()
            chat.type(f"/save {saved}\r")
            chat.until("saved")
        said = self.said(saved)
        self.assertEqual([role for role, _ in said], ["user", "assistant"])
        self.assertEqual(said[0][1], "Write a very long story about a whale.")
        self.assertRegex(said[1][1], "[a-z]+ [a-z]+")

    def test_commands(self):
        saved = FOLDER / "commands.json"
        with self.chat() as chat:
            def command(text, answer):
                chat.asks()
                chat.type(text + "\r")
                return chat.until(answer)
            command("/nothing", "there is no /nothing")
            command("/undo", "nothing was said yet")
            command("/regenerate", "nothing was said yet")
            command("/stats", "nothing was said yet")
            command("/set", r"max_tokens +6")
            command("/set temperature hot", "no number that fits")
            command("/set temperature -1", "temperature")
            command("/set warmth 1", "there is temperature")
            command("/set temperature 0.7", "> ")
            chat.type("/set\r")
            chat.until(r"temperature +0.7")
            command("/system be brief", "from the next reply on")
            command("first", CLOSING)
            command("second", CLOSING)
            command("/stats", "all:  2 replies, 12 tokens")
            command("/undo", r"taken back: second")
            command("/regenerate", CLOSING)
            command("/speculate", r"none, auto.*\(now: auto\)")
            command("/speculate none", "> ")
            chat.type("/speculate\r")
            chat.until(r"\(now: none\)")
            command("/speculate magic", "opened with")
            command("/save", "give the file")
            command("/save /no/such/folder/x", "error: ")
            command(f"/save {saved}", "saved")
            command("/clear", "a new conversation")
            command("/undo", "nothing was said yet")
            command("/load /no/such/file", "error: ")
            command(f"/load {saved}", "3 messages")
            command("/undo", "taken back: first")
            command("/help", "Ctrl-C")
            chat.asks()
            chat.type("/bye\r")
            self.assertEqual(chat.ends(), 0)
        self.assertEqual([role for role, _ in self.said(saved)], ["system", "user", "assistant"])

    def test_tab_completes_commands(self):
        with self.chat() as chat:
            chat.asks()
            chat.type("/reg\t")
            chat.until("enerate")
            chat.type("\x03")
            chat.asks()
            chat.type("/set temp\t")
            chat.until("erature")

    def test_files_that_are_no_conversation_are_refused(self):
        for number, text in enumerate(["[1]", "{}", '[{"role": "tool", "content": "x"}]', '{"messages": [{"role": "user"}]}',
                                       '[{"role": "user", "content": 1}]', "nothing"]):
            file = FOLDER / f"wrong{number}.json"
            file.write_text(text)
            status, _, said = run(CHATTY, "--chat", typed=f"/load {file}\n/undo\n")
            self.assertEqual(status, 0, said)
            self.assertIn(f"error: {file}", said)
            self.assertIn("nothing was said yet", said)

    def test_a_window_may_change_its_size(self):
        saved = FOLDER / "resized.json"
        text = "long words " * 20
        with self.chat() as chat:
            chat.asks()
            chat.type(text)
            chat.resize(40)
            chat.type("end\r")
            chat.until(CLOSING)
            chat.asks()
            chat.type(f"/save {saved}\r")
            chat.until("saved")
        self.assertEqual(self.said(saved)[0][1], text + "end")

    def test_terminals_that_cannot_edit_give_lines(self):
        with self.chat(TERM="dumb") as chat:
            chat.asks()
            chat.type("hello\r")
            self.assertNotIn("\x1b", chat.until(CLOSING))
            chat.type("\x04")

    def test_colours_stay_away_where_nobody_wants_them(self):
        with self.chat("--color") as chat:
            chat.until("\x1b\\[32mdrafted and accepted")
        with self.chat("--color", NO_COLOR="1") as chat:
            self.assertNotIn("drafted and accepted", chat.asks())

    def test_a_pipe_chats_when_it_is_asked_to(self):
        status, text, said = run(CHATTY, "--chat", "-n", "3", "--ignore-eos", "--temp", "0", typed="one\ntwo\n")
        self.assertEqual(status, 0, said)
        self.assertEqual(len(re.findall(CLOSING, said)), 2)
        self.assertTrue(text)

    def test_without_a_template_there_is_none(self):
        with Terminal(PLAIN) as chat:
            chat.until("--raw")
            self.assertNotEqual(chat.ends(), 0)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    if not MODEL.exists():
        print(f"{MODEL} is missing: scripts/fetch_model.sh")
        sys.exit(77)
    unittest.main()
