"""The trainer, a program of its own: finding it, running it, hearing of it, stopping it."""

from __future__ import annotations

import codecs
import dataclasses
import json
import os
import pathlib
import re
import selectors
import shutil
import signal
import subprocess
import weakref
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

from .errors import InvalidArgumentError, NotFoundError, TrainingError

VARIABLE = "AERIE_TRAIN"
NAME = "aerie-train"
_POLL_SECONDS = 0.2
_INTERRUPTED = (130, -signal.SIGINT)


@dataclasses.dataclass
class TrainingProgress:
    """What a training tells of itself.

    kind: "message": a line for people; "progress": how far the work at hand has come, as a line, and in share;
    "step": every so many steps; "evaluation": what the head was measured to do.
    text: the line. share: of the work at hand, 0 to 1; None: not known.
    step: steps done. tokens: trained on so far. seconds: of the training so far.
    figures: of steps and evaluations, as log.jsonl has them: loss, of evaluations tau (tokens for each pass
    of the model) and acceptance (of all rounds, by depth), …
    """

    kind: str
    text: str
    share: Optional[float] = None
    step: Optional[int] = None
    tokens: Optional[int] = None
    seconds: Optional[float] = None
    figures: Dict[str, Any] = dataclasses.field(default_factory=dict)


def find_program(program: Any = None) -> str:
    """Where aerie-train is: `program`, else $AERIE_TRAIN, else beside this package's `aerie`, on PATH, or beside
    the `aerie` there. NotFoundError says what to install."""
    for source, named in (("program", program), (VARIABLE, os.environ.get(VARIABLE))):
        if named:
            found = shutil.which(os.fspath(named))
            if found is None:
                raise NotFoundError(f"{source}: {os.fspath(named)} is no program that can be run; {_how_to_get()}")
            return found
    places = [str(pathlib.Path(__file__).parent / "bin" / NAME), NAME]
    on_path = shutil.which("aerie")
    if on_path is not None:
        places.append(str(pathlib.Path(on_path).resolve().parent / NAME))
    for place in places:
        found = shutil.which(place)
        if found is not None:
            return found
    raise NotFoundError(f"{NAME} is not here: {_how_to_get()}")


def _how_to_get() -> str:
    return (f"the wheel comes without the trainer, which takes LibTorch; in a checkout of Aerie "
            f"`scripts/install_deps.sh --train && scripts/configure.sh release train && ninja -C build/release {NAME}` "
            f"makes it: then put build/release/bin on PATH, or name the file as program= or in {VARIABLE}")


def words_of(flags: Dict[str, Any]) -> List[str]:
    """A command's flags of Python's arguments: draft_vocab=8192 is --draft-vocab=8192, a list repeats the flag,
    True gives a flag without a value, False takes it back, None leaves it out."""
    words = []
    for name, value in flags.items():
        flag = "--" + name.rstrip("_").replace("_", "-")
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is None:
                continue
            if isinstance(one, bool):
                words.append(flag if one else flag + "=false")
            elif isinstance(one, (dict, set, bytes)):
                raise TypeError(f"{name}: a text, a number, True, False or a list of these is wanted, not {one!r}")
            else:
                words.append(f"{flag}={os.fspath(one) if isinstance(one, os.PathLike) else one}")
    return words


class _Log:
    """log.jsonl of a run, while it grows. A run that goes on cuts off what came after its checkpoint."""

    def __init__(self, path: Optional[pathlib.Path]) -> None:
        self._path = path
        self._seen: Any = None
        self._lines: List[bytes] = []
        self.news()

    def news(self) -> List[TrainingProgress]:
        """The lines that are new."""
        if self._path is None:
            return []
        try:
            stat = os.stat(self._path)
        except OSError:
            return []
        if self._seen == (stat.st_size, stat.st_mtime_ns):
            return []
        self._seen = (stat.st_size, stat.st_mtime_ns)
        lines = self._path.read_bytes().split(b"\n")[:-1]
        same = 0
        while same < min(len(lines), len(self._lines)) and lines[same] == self._lines[same]:
            same += 1
        self._lines = lines
        return [_progress_of(json.loads(line)) for line in lines[same:]]


def _progress_of(line: Dict[str, Any]) -> TrainingProgress:
    figures = line.get("evaluation")
    kind = "step" if figures is None else "evaluation"
    if figures is None:
        figures = {name: value for name, value in line.items() if name not in ("step", "share", "tokens", "seconds")}
    told = [f"{name} {figures[name]:.4g}" for name in ("loss", "tau") if isinstance(figures.get(name), (int, float))]
    return TrainingProgress(kind, f"{kind}, step {line['step']}: " + ", ".join(told), line.get("share"),
                            line["step"], line.get("tokens"), line.get("seconds"), figures)


def _message(line: str) -> TrainingProgress:
    found = re.search(r"  (\d{1,3}) %  ", line)  # as src/base/progress.cc and the trainer write it
    if found is None:
        return TrainingProgress("message", line)
    return TrainingProgress("progress", line, int(found[1]) / 100)


class _Lines:
    """What a pipe brings, line by line, without waiting for it."""

    def __init__(self, pipe: Any) -> None:
        self.ended = False
        self._fd = pipe.fileno()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._fd, selectors.EVENT_READ)

    def read(self, seconds: float) -> List[str]:
        """The lines that came within this time."""
        if self.ended or not self._selector.select(seconds):
            return []
        block = os.read(self._fd, 1 << 16)
        self.ended = not block
        text = self._rest + self._decoder.decode(block, self.ended)
        *lines, self._rest = text.split("\n")
        if self.ended:
            self._selector.close()
            lines.append(self._rest)
        return [line for line in lines if line.strip()]


def _interrupt(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGINT)


class TrainingJob(Iterator[TrainingProgress]):
    """A training under way: an iterator of what it tells.

        with aerie.start_training("eagle3", model="model.gguf", data="data", out="run", steps=100) as job:
            for event in job:
                if event.kind == "evaluation" and event.figures["tau"] > 2:
                    job.stop()
        print(job.result().speculative_config)

    The end of a `with`, Ctrl-C and dropping it stop it as Ctrl-C stops the command: what is done is kept, and the
    same call goes on. One thread at a time, but for stop().
    """

    def __init__(self, words: Sequence[str], program: str, log: Optional[pathlib.Path],
                 finish: Callable[[bool], Any]) -> None:
        self._log = _Log(log)
        # Not of a session of its own: where a terminal ends, both do.
        self._process = subprocess.Popen([program, *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                         stderr=subprocess.PIPE)
        self._pipe: Any = self._process.stderr
        self._lines = _Lines(self._pipe)
        self._said: List[str] = []
        self._waiting: List[TrainingProgress] = []
        self._finish = finish
        self._result: Any = None
        self._over = False
        self._ender = weakref.finalize(self, _interrupt, self._process)

    def __iter__(self) -> "TrainingJob":
        return self

    def __next__(self) -> TrainingProgress:
        try:
            while not self._waiting and not self._over:
                self._read(_POLL_SECONDS)
        except BaseException:
            self.close()
            raise
        if self._waiting:
            return self._waiting.pop(0)
        self._check()
        raise StopIteration

    def stop(self) -> None:
        """Asks it to stop: the step under way is finished and a checkpoint written. The iterator tells the rest."""
        _interrupt(self._process)

    def close(self) -> None:
        """stop(), and waits for its end. A second Ctrl-C while it waits ends the program at once."""
        self.stop()
        try:
            while not self._over:
                self._read(_POLL_SECONDS)
        except BaseException:
            self._process.kill()
            self._process.wait()
            self._end()
            raise

    def left(self) -> List[TrainingProgress]:
        """What it told while it was closed, at most once."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def result(self) -> Any:
        """Waits for the end. The TrainingResult; complete is False if it was stopped. Raises what train() raises."""
        for _ in self:
            pass
        self._check()
        return self._result

    def __enter__(self) -> "TrainingJob":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    # Within.

    def _read(self, seconds: float) -> None:
        for line in self._lines.read(seconds):
            self._said.append(line)
            self._waiting.append(_message(line))
        self._waiting.extend(self._log.news())
        if self._lines.ended:
            self._process.wait()
            self._waiting.extend(self._log.news())
            self._end()

    def _end(self) -> None:
        self._pipe.close()
        self._over = True

    def _check(self) -> None:
        """Once it is over: the result, or the error that ended it."""
        if self._result is not None:
            return
        status = self._process.returncode
        if status != 0 and status not in _INTERRUPTED:
            raise _error_of(status, self._said)
        self._result = self._finish(status == 0)


def _error_of(status: int, said: List[str]) -> Exception:
    """The exception for the program's exit status and what it said."""
    if status < 0:
        return TrainingError(f"{NAME} was ended by {signal.Signals(-status).name}; the same call goes on from what "
                             "it kept last")
    at = max((place for place, line in enumerate(said) if line.startswith("error: ")), default=None)
    told = [line for line in said if not line.startswith("Run with --help")] if at is None else said[at:]
    text = "\n".join(told)
    text = text[len("error: "):] if at is not None else text
    if status == 2:
        return InvalidArgumentError(text)
    return TrainingError(text or f"{NAME} ended with status {status} and said nothing")
