"""train() and speedup(): draft heads for a model, trained by the program aerie-train."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import sys
from typing import Any, Callable, Dict, List, Optional, Union

from .errors import InvalidDataError
from .training_job import TrainingJob, TrainingProgress, find_program, words_of

Progress = Union[bool, Callable[[TrainingProgress], Any]]
Path = Union[str, "os.PathLike[str]"]


@dataclasses.dataclass
class TrainingResult:
    """What a training has left.

        result = aerie.speedup("model.gguf", budget="2h")
        llm = aerie.LLM(result.model, speculative_config=result.speculative_config, profile=result.profile)

    complete: False: it was stopped; the same call goes on. folder: what `out` said.
    head: the folder of the best head so far; None: there is none yet, or of train("data").
    model: what it drafts for: the model that was named, or the one that the method made of it (medusa2, layerskip).
    speculative_config: as LLM() takes it; of speedup() what was measured to be fastest: "none" where plain decoding
    was. profile: of speedup(), as LLM() takes it. commands: what to type instead.
    tau: tokens for each pass of the model with the best head; of speedup() with what was fastest; None: not measured.
    speedup: of speedup(): tokens per second of what was fastest, by plain decoding's.
    figures: all that the command has in its report.json; of train("data") samples, tokens and generated.
    """

    complete: bool
    folder: str
    head: Optional[str] = None
    model: Optional[str] = None
    speculative_config: Optional[str] = None
    profile: Optional[str] = None
    commands: List[str] = dataclasses.field(default_factory=list)
    tau: Optional[float] = None
    speedup: Optional[float] = None
    figures: Dict[str, Any] = dataclasses.field(default_factory=dict)


def train(method: str, *, model: Optional[Path] = None, out: Optional[Path] = None, progress: Progress = True,
          program: Optional[Path] = None, **flags: Any) -> TrainingResult:
    """What `aerie train METHOD` does: trains a draft head on the samples of train("data").

        aerie.train("data", model="model.gguf", prompts=["chat.jsonl"], out="data", temperature=[0, 1])
        result = aerie.train("eagle3", model="model.gguf", data="data", out="run", time="2h", draft_vocab=16384)
        llm = aerie.LLM(result.model, speculative_config=result.speculative_config)

    method: "eagle3", "p-eagle", "medusa", …, or "data": answers prompts, to train on. model: the target, a GGUF file
    or a Hugging Face folder. out: the folder for what is made; the same call goes on with what is there.
    flags: the command's, with _ for -: numbers, texts ("2h", "30m"), paths, lists, True and False
    (docs/training.md, `aerie train METHOD --help`). The command itself checks them.
    progress: True: its lines, on sys.stderr; False: nothing; a function: is called with each TrainingProgress. What
    the function raises stops the training as Ctrl-C does.
    program: aerie-train; else $AERIE_TRAIN, else beside this package's `aerie` or on PATH. It needs LibTorch, and the
    wheel comes without it.

    Ctrl-C stops it: the step under way is finished, a checkpoint is written, and KeyboardInterrupt goes on. A second
    one does not wait for that.

    Raises NotFoundError, saying what to install, if there is no such program; InvalidArgumentError with the
    command's text for flags that cannot be; TrainingError for what goes wrong later.
    """
    return _watch(start_training(method, model=model, out=out, program=program, **flags), progress)


def start_training(method: str, *, model: Optional[Path] = None, out: Optional[Path] = None,
                   program: Optional[Path] = None, **flags: Any) -> TrainingJob:
    """train(), as an iterator of what it tells: see TrainingJob."""
    if not isinstance(method, str) or not method or method.startswith("-"):
        raise TypeError(f"method: a name such as \"eagle3\" is wanted, not {method!r}")
    if method == "speedup":
        raise ValueError("method: \"speedup\" is no method of training; call aerie.speedup()")
    folder = None if out is None else os.fspath(out)
    words = [method, *words_of({"model": model, "out": folder, **flags})]
    log = pathlib.Path(folder, "log.jsonl") if folder and method != "data" else None

    def finish(complete: bool) -> TrainingResult:
        return (_data_result if method == "data" else _train_result)(complete, folder or "")

    return TrainingJob(words, find_program(program), log, finish)


def speedup(model: Path, *, budget: Union[str, float] = "2h", out: Optional[Path] = None, progress: Progress = True,
            program: Optional[Path] = None, **flags: Any) -> TrainingResult:
    """What `aerie speedup` does: makes a draft head for a model within a time, measures it on this machine, and says
    whether it pays.

    budget: of all of it: "30m", "2h", or seconds. out: the folder for everything (the model's name and -speedup,
    here). flags: prompts, method, draft_vocab, intermediate, type, threads, device (docs/training.md#one-command).
    Else as train().
    """
    return _watch(start_speedup(model, budget=budget, out=out, program=program, **flags), progress)


def start_speedup(model: Path, *, budget: Union[str, float] = "2h", out: Optional[Path] = None,
                  program: Optional[Path] = None, **flags: Any) -> TrainingJob:
    """speedup(), as an iterator of what it tells: see TrainingJob."""
    folder = os.fspath(out) if out is not None else _speedup_folder(os.fspath(model))
    words = ["speedup", *words_of({"model": model, "budget": budget, "out": folder, **flags})]
    return TrainingJob(words, find_program(program), pathlib.Path(folder, "run", "log.jsonl"),
                       lambda complete: _speedup_result(complete, folder))


def _speedup_folder(model: str) -> str:
    """As the command has it: "models/Small.Q4_1.gguf" becomes "Small.Q4_1-speedup"."""
    name = os.path.basename(model.rstrip("/"))
    return (name[:-len(".gguf")] if name.endswith(".gguf") else name) + "-speedup"


def _watch(job: TrainingJob, progress: Progress) -> TrainingResult:
    def show(event: TrainingProgress) -> None:
        # Errors are told by the exception, the log's lines by the program.
        if event.kind in ("message", "progress") and not event.text.startswith("error: "):
            print(event.text, file=sys.stderr, flush=True)

    tell = progress if callable(progress) else show if progress else None
    try:
        for event in job:
            if tell is not None:
                tell(event)
    except BaseException:
        job.close()
        if tell is show:
            for event in job.left():
                show(event)
        raise
    return job.result()


def _read(path: str) -> Dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except ValueError as error:
        raise InvalidDataError(f"{path}: {error}") from None


def _train_result(complete: bool, folder: str) -> TrainingResult:
    path = os.path.join(folder, "report.json")
    if not complete and not os.path.exists(path):
        return TrainingResult(False, folder)
    figures = _read(path)
    return TrainingResult(complete, folder, figures.get("head"), figures.get("model", figures.get("target")),
                          figures.get("speculate"), None, figures.get("commands", []),
                          (figures.get("best") or {}).get("tau"), None, figures)


def _speedup_result(complete: bool, folder: str) -> TrainingResult:
    head = os.path.join(folder, "head")
    if not complete:
        return TrainingResult(False, folder, head if os.path.isdir(head) else None)
    figures = _read(os.path.join(folder, "report.json"))
    best = figures["best"]
    # The first are of temperature 0, of which the best is, too.
    measured = [one for one in figures["evaluation"]["methods"] if one["method"] == best["speculate"]]
    return TrainingResult(True, folder, figures["head"], figures["model"], best["speculate"], figures["profile"],
                          figures["commands"], measured[0]["mean_accepted_length"] if measured else None,
                          best["speedup"], figures)


def _data_result(complete: bool, folder: str) -> TrainingResult:
    """Of samples that lie in answers-I-of-N.jsonl, a line for each."""
    figures = {"samples": 0, "tokens": 0, "generated": 0}
    for path in sorted(pathlib.Path(folder).glob("answers-*-of-*.jsonl")):
        with open(path, encoding="utf-8") as file:
            for line in file:
                sample = json.loads(line)
                figures["samples"] += 1
                figures["tokens"] += len(sample["tokens"])
                figures["generated"] += sum(end - begin for begin, end in sample["replies"])
    return TrainingResult(complete, folder, figures=figures)
