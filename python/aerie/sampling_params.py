"""What is asked of a reply: vLLM's SamplingParams and StructuredOutputsParams."""

from __future__ import annotations

import dataclasses
import json as json_module
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from .errors import UnsupportedError

_NOT_KNOWN = {"best_of", "bad_words", "min_tokens", "detokenize", "skip_special_tokens",
              "spaces_between_special_tokens", "include_stop_str_in_output", "allowed_token_ids"}


@dataclasses.dataclass(frozen=True)
class StructuredOutputsParams:
    """The form of a reply; exactly one of these.

    json: a JSON schema, as a dict or as text. regex: an expression that the whole reply matches.
    choice: the reply is one of these. grammar: rules in GBNF, EBNF or Lark's notation.
    json_object: True: any JSON object.
    """

    json: Union[str, Dict[str, Any], bool, None] = None
    regex: Optional[str] = None
    choice: Optional[Sequence[str]] = None
    grammar: Optional[str] = None
    json_object: Optional[bool] = None

    def kind_and_text(self) -> Tuple[str, str, Tuple[str, ...]]:
        """(kind, text, choices) as the engine takes it. ValueError unless exactly one is given."""
        given = [field.name for field in dataclasses.fields(self)
                 if getattr(self, field.name) is not None and getattr(self, field.name) is not False
                 or (field.name == "json" and self.json is False)]
        if len(given) != 1:
            raise ValueError("structured outputs take exactly one of json, regex, choice, grammar and "
                             f"json_object, not {', '.join(given) or 'none'}")
        kind = given[0]
        value = getattr(self, kind)
        if kind == "choice":
            if isinstance(value, str) or not all(isinstance(one, str) for one in value):
                raise TypeError("choice: a list of texts is wanted")
            return kind, "", tuple(value)
        if kind == "json_object":
            return kind, "", ()
        if kind == "json" and not isinstance(value, str):
            value = json_module.dumps(value, ensure_ascii=False)
        if not isinstance(value, str):
            raise TypeError(f"{kind}: a text is wanted, not {type(value).__name__}")
        return kind, value, ()


@dataclasses.dataclass
class SamplingParams:
    """How a reply is sampled and where it ends, under vLLM's names and defaults.

    n: replies to one prompt; reply i has the noise of choice i of the seed, reply 0 that of a lone one.
    temperature: 0: always the likeliest token. top_k: 0 (or -1): all. seed: None: drawn anew for each
    prompt (RequestOutput.seed says which). max_tokens: None: as many as the context holds.
    logprobs: k: of every token its log-probability and those of the k likeliest; None: none.
    prompt_logprobs: the same of every token of the prompt (RequestOutput.prompt_logprobs; not of streams).
    stop: texts before which the reply ends. stop_token_ids: tokens with which it ends.
    penalty_window: the newest so many tokens, the prompt's too, that penalties count; -1: all.

    Speculation, which changes no token: speculate: False: plain decoding. max_draft_depth: no draft goes
    deeper; 0: as configured. prediction: a text, or token ids, that the reply is expected to resemble.
    """

    n: int = 1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: Optional[int] = None
    stop: Union[str, Sequence[str], None] = None
    stop_token_ids: Optional[Sequence[int]] = None
    ignore_eos: bool = False
    max_tokens: Optional[int] = 16
    logprobs: Optional[int] = None
    prompt_logprobs: Optional[int] = None
    logit_bias: Optional[Dict[int, float]] = None
    structured_outputs: Union[StructuredOutputsParams, Dict[str, Any], None] = None
    penalty_window: int = -1
    speculate: bool = True
    max_draft_depth: int = 0
    prediction: Union[str, List[int], None] = None
    # What vLLM has besides: these values alone, which change nothing.
    best_of: Optional[int] = None
    bad_words: Optional[Sequence[str]] = None
    min_tokens: int = 0
    detokenize: bool = True
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    allowed_token_ids: Optional[Sequence[int]] = None

    def check_known(self) -> None:
        """UnsupportedError for a setting that Aerie does not have."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in _NOT_KNOWN and value != field.default and value != []:
                raise UnsupportedError(f"{field.name}: {value!r} is nothing that Aerie does; leave it out")

    def stops(self) -> List[str]:
        """stop as a list."""
        if self.stop is None:
            return []
        stops = [self.stop] if isinstance(self.stop, str) else self.stop
        if not isinstance(stops, (list, tuple)) or not all(isinstance(one, str) for one in stops):
            raise TypeError(f"stop: a text or a list of texts is wanted, not {self.stop!r}")
        return list(stops)

    def structure(self) -> Optional[StructuredOutputsParams]:
        """structured_outputs as an object. TypeError for a dict with other keys."""
        if isinstance(self.structured_outputs, dict):
            return StructuredOutputsParams(**self.structured_outputs)
        return self.structured_outputs
