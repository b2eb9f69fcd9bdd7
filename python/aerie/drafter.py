"""Drafters written in Python. The engine verifies what they propose, so they change no token of a reply."""

from __future__ import annotations

import collections
import dataclasses
import logging
from typing import Deque, Dict, List, Optional, Sequence, Tuple, Union

_log = logging.getLogger("aerie")

Node = Union[int, Tuple[int, int], Tuple[int, int, float]]
Draft = Optional[Sequence[Node]]


@dataclasses.dataclass
class DraftRequest:
    """What is asked of a drafter for one reply of a round.

    sequence: the same number until close(). tokens: prompt and reply so far (not to be changed); the draft
    goes on behind the last. max_tokens: what is proposed beyond is left out.
    """

    sequence: int
    tokens: List[int]
    max_tokens: int


@dataclasses.dataclass
class DraftResult:
    """What became of a round, or of a piece of a prompt (then drafted is 0).

    tokens: as in the next DraftRequest. accepted: the drafted tokens that the model wrote, too.
    drafted: tokens that were verified, of a tree all nodes.
    """

    sequence: int
    tokens: List[int]
    accepted: List[int]
    drafted: int


class Drafter:
    """The base of drafters; propose() alone has to be written.

        class Repeat(aerie.Drafter):
            def propose(self, requests):
                return [request.tokens[-4:] for request in requests]

        llm = aerie.LLM("model.gguf", speculative_config={"method": "custom", "drafter": Repeat()})

    The engine's thread calls, one call at a time, and all replies wait for it. What raises is logged, and
    its sequences are decoded plainly to their ends.
    """

    def open(self, sequence: int, tokens: List[int]) -> None:
        """A reply begins, or goes on after others needed its room: tokens is what there is of it, first its prompt."""

    def propose(self, requests: List[DraftRequest]) -> Sequence[Draft]:
        """A draft for each request, in their order: token ids that may come next.

        A draft is a chain, [id, id, …], or a tree, [(id, parent), …] or [(id, parent, probability), …]:
        parent is the place of an earlier node, -1 the text's last token; probability, in (0, 1], is an
        estimate that all of the path to the node will be accepted, by which it is decided whether the
        draft pays. None or []: no idea.
        """
        raise NotImplementedError

    def observe(self, results: List[DraftResult]) -> None:
        """Hears of every pass: prompts first, then what became of each round."""

    def close(self, sequence: int) -> None:
        """A reply has ended, or has to make room for others."""


def _nodes_of(draft: Draft) -> List[Tuple[int, int, float]]:
    """(token, parent, probability) of each node; 0.0: the drafter has no idea."""
    nodes = []
    for place, node in enumerate(() if draft is None else draft):
        if isinstance(node, (tuple, list)):
            if not 2 <= len(node) <= 3:
                raise ValueError(f"a node is (token, parent) or (token, parent, probability), not {node!r}")
            nodes.append((int(node[0]), int(node[1]), float(node[2]) if len(node) == 3 else 0.0))
        else:
            nodes.append((int(node), place - 1, 0.0))
    return nodes


class DrafterAdapter:
    """What the engine calls: keeps each sequence's tokens and checks what comes back."""

    MOST_ERRORS = 100  # that are kept

    def __init__(self, drafter: Drafter) -> None:
        if not callable(getattr(drafter, "propose", None)):
            raise TypeError(f"drafter: {type(drafter).__name__} has no method propose()")
        self._drafter = drafter
        self._tokens: Dict[int, List[int]] = {}
        self.errors: Deque[str] = collections.deque(maxlen=self.MOST_ERRORS)

    def _call(self, name: str, *arguments):
        method = getattr(self._drafter, name, None)
        if method is None:
            return None
        try:
            return method(*arguments)
        except BaseException as error:
            self._note(name, error)
            raise

    def _note(self, name: str, error: BaseException) -> None:
        self.errors.append(f"{name}: {type(error).__name__}: {error}")
        _log.error("the drafter %s failed in %s(); what it was asked about is decoded plainly",
                   type(self._drafter).__name__, name, exc_info=error)

    def open(self, sequence: int, tokens: List[int]) -> None:
        self._tokens[sequence] = tokens
        self._call("open", sequence, tokens)

    def close(self, sequence: int) -> None:
        self._tokens.pop(sequence, None)
        self._call("close", sequence)

    def propose(self, asked: List[Tuple[int, List[int], int]]) -> List[List[Tuple[int, int, float]]]:
        requests = []
        for sequence, new_tokens, max_tokens in asked:
            tokens = self._tokens[sequence]
            tokens.extend(new_tokens)
            requests.append(DraftRequest(sequence, tokens, max_tokens))
        drafts = self._call("propose", requests)
        try:
            drafts = list(drafts)
            if len(drafts) != len(requests):
                raise ValueError(f"propose() gave {len(drafts)} drafts for {len(requests)} requests")
            return [_nodes_of(draft) for draft in drafts]
        except Exception as error:
            self._note("propose", error)
            raise

    def observe(self, told: List[Tuple[int, List[int], List[int], int]]) -> None:
        results = []
        for sequence, new_tokens, accepted, drafted in told:
            tokens = self._tokens[sequence]
            tokens.extend(new_tokens)
            results.append(DraftResult(sequence, tokens, accepted, drafted))
        self._call("observe", results)
