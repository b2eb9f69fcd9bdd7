"""What comes of a request: vLLM's RequestOutput and CompletionOutput, with figures of speculation."""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, List, Optional


@dataclasses.dataclass
class Logprob:
    """The natural logarithm of a token's probability. rank: 1: the likeliest; None: beyond those asked for."""

    logprob: float
    rank: Optional[int] = None
    decoded_token: Optional[str] = None


@dataclasses.dataclass
class SpeculationStats:
    """One reply's speculation. A round is a draft and the pass of the model that verifies it.

    mean_accepted_length: tokens per round, the model's own token counted; plain decoding is 1.0.
    acceptance_rate: accepted of drafted tokens. acceptance_per_position: of all rounds, those in which the
    token at that depth was accepted.
    """

    rounds: int = 0
    round_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    accepted_tokens_per_position: List[int] = dataclasses.field(default_factory=list)

    @property
    def mean_accepted_length(self) -> float:
        return self.round_tokens / self.rounds if self.rounds else 0.0

    @property
    def acceptance_rate(self) -> float:
        return self.accepted_tokens / self.drafted_tokens if self.drafted_tokens else 0.0

    @property
    def acceptance_per_position(self) -> List[float]:
        return [count / self.rounds for count in self.accepted_tokens_per_position] if self.rounds else []


@dataclasses.dataclass
class ReplyMetrics:
    """Where a reply's time went, in seconds, and what it shared with others."""

    queue_seconds: float = 0.0  # until the first pass of its prompt
    prompt_seconds: float = 0.0  # from then to the first token
    generation_seconds: float = 0.0  # after it
    cached_tokens: int = 0  # of the prompt, taken from earlier requests
    preemptions: int = 0


@dataclasses.dataclass
class CompletionOutput:
    """One reply.

    token_ids: all generated ids, an end token included. text: without end tokens and stop strings.
    finish_reason: "stop", "length", or "error" where a constraint asked for too much (error says why).
    stop_reason: the stop string that ended the reply, if one did.
    origins: of each token "target", "accepted", "correction" or "bonus". logprobs: of each token
    {id: Logprob}, if asked for.

    Of LLM.chat(): reasoning_content: what was thought before. content: what was said. tool_calls: of the
    tools that were offered, {"id": …, "type": "function", "function": {"name": …, "arguments": JSON}}.
    text has all of it as the model wrote it.
    """

    index: int
    text: str = ""
    reasoning_content: Optional[str] = None
    content: Optional[str] = None
    tool_calls: List[Dict[str, Any]] = dataclasses.field(default_factory=list)
    token_ids: List[int] = dataclasses.field(default_factory=list)
    cumulative_logprob: Optional[float] = None
    logprobs: Optional[List[Dict[int, Logprob]]] = None
    finish_reason: Optional[str] = None
    stop_reason: Optional[str] = None
    error: Optional[str] = None
    origins: List[str] = dataclasses.field(default_factory=list)
    speculation: SpeculationStats = dataclasses.field(default_factory=SpeculationStats)
    metrics: ReplyMetrics = dataclasses.field(default_factory=ReplyMetrics)

    def finished(self) -> bool:
        return self.finish_reason is not None


@dataclasses.dataclass
class RequestOutput:
    """A prompt and its replies. seed: what they were sampled with, so that they can be had again.
    prompt_logprobs: of each token of the prompt {id: Logprob}, None for the first, if asked for."""

    request_id: str
    prompt: Optional[str]
    prompt_token_ids: List[int]
    outputs: List[CompletionOutput]
    seed: int
    finished: bool = True
    prompt_logprobs: Optional[List[Optional[Dict[int, Logprob]]]] = None

    @property
    def num_cached_tokens(self) -> int:
        return self.outputs[0].metrics.cached_tokens if self.outputs else 0


@dataclasses.dataclass
class StreamChunk:
    """What a pass of the model, or several if the reader was slower, brought to one reply. text became final: it is
    never taken back.

    output: at the end of the reply, all of it; then finish_reason is set, too.
    """

    index: int
    text: str
    token_ids: List[int]
    logprobs: Optional[List[Dict[int, Logprob]]] = None
    finish_reason: Optional[str] = None
    output: Optional[CompletionOutput] = None
