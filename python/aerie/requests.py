"""From SamplingParams to what the engine is asked, and from what it tells to CompletionOutput."""

from __future__ import annotations

import collections
import secrets
from typing import Any, Dict, List, Optional, Tuple

from . import _core, errors
from .outputs import CompletionOutput, Logprob, ReplyMetrics, SpeculationStats, StreamChunk
from .sampling_params import SamplingParams

_SAMPLING = ("temperature", "top_p", "min_p", "repetition_penalty", "frequency_penalty", "presence_penalty",
             "penalty_window")


def _set(target: Any, field: str, name: str, value: Any) -> None:
    try:
        setattr(target, field, value)
    except TypeError:
        raise TypeError(f"{name}: {value!r} is of a type that it cannot be ({type(value).__name__})") from None


class GrammarCache:
    """The grammars that were compiled of late. Thread-safe: at worst one is compiled twice."""

    MOST = 64

    def __init__(self) -> None:
        self._grammars: "collections.OrderedDict[Tuple[str, str, Tuple[str, ...]], Any]" = collections.OrderedDict()

    def get(self, engine: Any, params: SamplingParams) -> Optional[Any]:
        structure = params.structure()
        if structure is None:
            return None
        key = structure.kind_and_text()
        grammar = self._grammars.get(key)
        if grammar is None:
            kind, text, choices = key
            grammar = engine.compile_grammar(kind, text, list(choices))
            self._grammars[key] = grammar
            while len(self._grammars) > self.MOST:
                self._grammars.popitem(last=False)
        return grammar


def new_seed(params: SamplingParams) -> int:
    if params.seed is None:
        return secrets.randbits(63)
    if not isinstance(params.seed, int):
        raise TypeError(f"seed: a whole number is wanted, not {params.seed!r}")
    return params.seed % (1 << 64)


def tool_call(name: str, arguments: str) -> Dict[str, Any]:
    """OpenAI's form of a call. The id has nine letters, which some templates insist on."""
    return {"id": secrets.token_hex(5)[:9], "type": "function", "function": {"name": name, "arguments": arguments}}


def _prediction_ids(engine: Any, prediction: Any) -> List[int]:
    if prediction is None:
        return []
    return engine.tokenize(prediction, False, False) if isinstance(prediction, str) else list(prediction)


def build_requests(engine: Any, grammars: GrammarCache, ids: List[int], params: SamplingParams, seed: int,
                   priority: int) -> List[Any]:
    """One request for each of the n choices. TypeError, ValueError or an AerieError for what cannot be."""
    if not isinstance(params, SamplingParams):
        raise TypeError(f"sampling_params: SamplingParams are wanted, not {type(params).__name__}")
    params.check_known()
    if not isinstance(params.n, int) or params.n < 1:
        raise ValueError(f"n: at least 1 is wanted, not {params.n!r}")
    if params.max_tokens is not None and params.max_tokens < 1:
        raise ValueError(f"max_tokens: at least 1, or None, is wanted, not {params.max_tokens!r}")
    grammar = grammars.get(engine, params)
    prediction = _prediction_ids(engine, params.prediction)
    requests = []
    for choice in range(params.n):
        request = _core.Request()
        _set(request, "prompt", "prompt", ids)
        _set(request, "max_tokens", "max_tokens", params.max_tokens or 0)
        _set(request, "stop", "stop", params.stops())
        _set(request, "stop_tokens", "stop_token_ids", list(params.stop_token_ids or ()))
        _set(request, "prediction", "prediction", prediction)
        for field in ("ignore_eos", "speculate", "max_draft_depth"):
            _set(request, field, field, getattr(params, field))
        request.priority = priority
        if grammar is not None:
            request.set_grammar(grammar)
        request.sampling = _sampling(params, seed, choice)
        # The choices have one prompt.
        if choice == 0 and params.prompt_logprobs is not None:
            _set(request.sampling, "prompt_logprobs", "prompt_logprobs", params.prompt_logprobs)
        requests.append(request)
    return requests


def _sampling(params: SamplingParams, seed: int, choice: int) -> Any:
    sampling = _core.SamplingSettings()
    for field in _SAMPLING:
        _set(sampling, field, field, getattr(params, field))
    _set(sampling, "top_k", "top_k", 0 if params.top_k == -1 else params.top_k)
    _set(sampling, "logprobs", "logprobs", -1 if params.logprobs is None else params.logprobs)
    bias = params.logit_bias or {}
    _set(sampling, "logit_bias", "logit_bias", [(int(token), float(value)) for token, value in bias.items()])
    sampling.seed = seed
    sampling.choice = choice
    return sampling


class ReplyReader:
    """Puts one reply together from what its handle brings."""

    def __init__(self, engine: Any, index: int, handle: Any, wants_logprobs: bool) -> None:
        self._engine = engine
        self.handle = handle
        self._texts: List[str] = []
        self.output = CompletionOutput(index, logprobs=[] if wants_logprobs else None)
        self.prompt_logprobs: List[Optional[Dict[int, Logprob]]] = []
        self.done = False

    def read(self) -> Optional[StreamChunk]:
        """What is new; None: nothing. Raises what ended the reply, if that was no ordinary end."""
        text, ids, origins, logprobs, of_prompt, end = self.handle.take()
        if not text and not ids and end is None:
            return None
        output = self.output
        self._texts.append(text)
        self.prompt_logprobs += self._logprobs(of_prompt)
        output.token_ids += ids
        output.origins += origins
        chunk = StreamChunk(output.index, text, ids)
        if output.logprobs is not None:
            chunk.logprobs = self._logprobs(logprobs)
            output.logprobs += chunk.logprobs
            output.cumulative_logprob = (output.cumulative_logprob or 0.0) + sum(one[0][1] for one in logprobs)
        if end is not None:
            self._finish(end)
            chunk.finish_reason = output.finish_reason
            chunk.output = output
        return chunk

    def _logprobs(self, tokens: List[List[Tuple[int, float]]]) -> List[Any]:
        """The first of each is the token itself, the others are the likeliest in order; of none None."""
        out: List[Any] = []
        for tops in tokens:
            if not tops:
                out.append(None)
                continue
            entry = {tops[0][0]: Logprob(tops[0][1], None, self._decode(tops[0][0]))}
            for place, (token, logprob) in enumerate(tops[1:]):
                entry[token] = Logprob(logprob, place + 1, self._decode(token))
            out.append(entry)
        return out

    def _decode(self, token: int) -> str:
        return self._engine.detokenize([token]).decode("utf-8", "replace")

    def _finish(self, end: Any) -> None:
        self.done = True
        if end.outcome != "done":
            message = end.message or "the engine was closed before the reply was complete"
            raise errors.error_of("cancelled" if end.outcome == "cancelled" else end.code, message)
        output, stats = self.output, end.stats
        output.text = "".join(self._texts)
        output.finish_reason = end.finish
        output.stop_reason = end.stop_string or None
        output.error = end.message if end.finish == "error" else None
        deepest = sum(count > 0 for count in stats.proposed_at)
        output.speculation = SpeculationStats(stats.rounds, stats.round_tokens, stats.drafted, stats.accepted,
                                              stats.accepted_at[:deepest])
        output.metrics = ReplyMetrics(end.queue_seconds, end.prompt_seconds, end.generation_seconds,
                                      end.cached_tokens, end.preemptions)
