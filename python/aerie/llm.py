"""LLM: vLLM's class of that name on Aerie."""

from __future__ import annotations

import asyncio
import collections
import itertools
import json
import time
from typing import Any, AsyncIterator, Deque, Dict, List, Optional, Sequence, Tuple, Union

from . import _core, opening
from .errors import ResourceExhaustedError
from .outputs import RequestOutput, StreamChunk
from .prompts import Message, Prompt, encode, is_single, render_chat
from .requests import GrammarCache, ReplyReader, build_requests, new_seed, tool_call
from .sampling_params import SamplingParams
from .streaming import LoopNews, TextStream
from .tokenizer import Tokenizer

# How long to wait where the engine's queue is full.
_RETRY_SECONDS = 0.05
# Requests that one call has in the queue; the others wait here.
_MOST_SUBMITTED = 512


class LLM:
    """A model that is open. All calls may come from any thread; requests are answered together, each with the
    token ids that it has alone.

    model: a GGUF file, a Hugging Face folder, or ORG/REPO[@REVISION][:QUANT or FILE].
    speculative_config: vLLM's keys as a dict, {"method": "ngram", "num_speculative_tokens": 5}, or a list
        of such dicts; a text as --speculate takes it; None: plain decoding. {"method": "custom",
        "drafter": OBJECT} drafts with a Drafter of one's own. Speculation changes no token.
    max_model_len: tokens of a prompt and its reply; the model's own, at most 4096, if not given.
    max_num_seqs: requests that are answered at the same time (16).
    max_num_batched_tokens: prompt tokens in a pass (512). enable_prefix_caching: prompts begin with what
        earlier ones that began alike have computed (True). kv_cache_dtype: "f16" or "q8".
    weight_type: what float matrices become, such as "q8_0". threads: the cores that the process may use,
        if not given. verify: the verification rule ("exact"). isa, device, weight_cache, profile: as the flags of
        `aerie run`.

    Other arguments of vLLM's that change no token are warned of and not used.

    Raises NotFoundError, InvalidDataError, UnsupportedError or ResourceExhaustedError for files that cannot be
    opened, InvalidArgumentError for a setting that cannot be, TypeError for one of a wrong type or name.
    """

    def __init__(self, model: Any, *, speculative_config: Any = "auto", max_num_seqs: int = 16,
                 **settings: Any) -> None:
        arguments = {"model": model, "max_num_seqs": max_num_seqs, **settings}
        self._holder, self._adapter = opening.open_engine(arguments, speculative_config)
        self._engine = self._holder.core
        self._grammars = GrammarCache()
        self._ids = itertools.count()

    # What it is.

    @property
    def model_name(self) -> str:
        """ORG/REPO of what came from a hub, else the file's or folder's name without its ending."""
        return self._engine.info().name

    @property
    def max_model_len(self) -> int:
        """Tokens of a prompt and its reply."""
        return self._engine.info().context

    def get_tokenizer(self) -> Tokenizer:
        """The model's."""
        return Tokenizer(self._engine)

    def get_default_sampling_params(self) -> SamplingParams:
        """What the model's makers recommend, else the likeliest token: what `aerie run` samples with."""
        suggested = self._engine.suggested_sampling()
        return SamplingParams(temperature=suggested.temperature, top_k=suggested.top_k, top_p=suggested.top_p,
                              min_p=suggested.min_p, repetition_penalty=suggested.repetition_penalty,
                              penalty_window=suggested.penalty_window)

    @property
    def drafter_errors(self) -> List[str]:
        """What a drafter of one's own has raised, the newest 100."""
        return list(self._adapter.errors) if self._adapter else []

    # Whole replies.

    def generate(self, prompts: Union[Prompt, Sequence[Prompt]],
                 sampling_params: Union[SamplingParams, Sequence[SamplingParams], None] = None, *,
                 use_tqdm: bool = False, priority: int = 0) -> List[RequestOutput]:
        """Answers prompts: texts, lists of token ids, lists of messages, or dicts with prompt or
        prompt_token_ids; one of them or a list. One RequestOutput for each, in their order.

        sampling_params: one for all or a list of one for each; get_default_sampling_params() if None.
        priority: lower ones first. use_tqdm: not used.

        Ctrl-C ends what is under way within a pass of the model. Raises InvalidArgumentError for a request that
        cannot be answered, before anything is generated for it.
        """
        return self._generate(self._prepare(prompts, sampling_params, priority))

    def _generate(self, work: List[Tuple[Any, ...]]) -> List[RequestOutput]:
        results, waiting, running = _results(work)
        try:
            while waiting or running:
                while waiting and len(running) < _MOST_SUBMITTED and self._submit_next(waiting, running):
                    pass
                if not running:
                    time.sleep(_RETRY_SECONDS)
                    continue
                output, reader = running.popleft()
                try:
                    reader.handle.wait(True)
                    reader.read()
                finally:
                    reader.handle.cancel()
                _add(reader, output)
        finally:
            for _, reader in running:
                reader.handle.cancel()
        return results

    def chat(self, messages: Union[Sequence[Message], Sequence[Sequence[Message]]],
             sampling_params: Union[SamplingParams, Sequence[SamplingParams], None] = None,
             *, add_generation_prompt: bool = True, tools: Optional[Sequence[Dict[str, Any]]] = None,
             chat_template_kwargs: Optional[Dict[str, Any]] = None, use_tqdm: bool = False,
             priority: int = 0) -> List[RequestOutput]:
        """generate() for one conversation or a list of them, each a list of {"role": …, "content": …}.

        tools: definitions for the template, as OpenAI has them. chat_template_kwargs: what else the template
        speaks of, such as enable_thinking. Replies come in parts: CompletionOutput has reasoning_content, content
        and tool_calls, as far as the template shows how the model marks them.
        """
        prompts = self._render(messages, add_generation_prompt, tools, chat_template_kwargs)
        work = self._prepare(prompts, sampling_params, priority, self._marks(tools))
        return self._read_chats(self._generate(work), tools)

    def stream(self, prompt: Prompt, sampling_params: Optional[SamplingParams] = None, *,
               priority: int = 0) -> TextStream:
        """Answers one prompt; gives a StreamChunk for each reply and pass of the model (or several passes)."""
        notifier = _core.Notifier()
        (_, requests, params), = self._prepare([prompt], sampling_params, priority)
        readers = []
        for index, request in enumerate(requests):
            handle = self._engine.submit(request, notifier, index)
            readers.append(ReplyReader(self._engine, index, handle, params.logprobs is not None))
        return TextStream(notifier, readers)

    # The same for event loops. A coroutine that is cancelled ends its request within a pass of the model.

    async def agenerate(self, prompts: Union[Prompt, Sequence[Prompt]],
                        sampling_params: Union[SamplingParams, Sequence[SamplingParams], None] = None, *,
                        priority: int = 0) -> List[RequestOutput]:
        """generate() for asyncio."""
        return await self._agenerate(await asyncio.to_thread(self._prepare, prompts, sampling_params, priority))

    async def _agenerate(self, work: List[Tuple[Any, ...]]) -> List[RequestOutput]:
        news = LoopNews.current()
        places = asyncio.Semaphore(_MOST_SUBMITTED)

        async def one(request: Any, index: int, params: SamplingParams) -> Any:
            async with places:
                tag = news.add()
                reader = None
                try:
                    handle = await self._asubmit(request, news, tag, True)
                    reader = ReplyReader(self._engine, index, handle, params.logprobs is not None)
                    while not reader.done:
                        await news.wait(tag)
                        reader.read()
                    return reader
                finally:
                    news.remove(tag)
                    if reader is not None:
                        reader.handle.cancel()

        tasks = [[asyncio.ensure_future(one(request, index, params)) for index, request in enumerate(requests)]
                 for _, requests, params in work]
        flat = list(itertools.chain.from_iterable(tasks))
        try:
            await asyncio.gather(*flat)
        finally:
            for task in flat:
                task.cancel()
        for (output, _, _), of_prompt in zip(work, tasks):
            for task in of_prompt:
                _add(task.result(), output)
        return [output for output, _, _ in work]

    async def achat(self, messages: Union[Sequence[Message], Sequence[Sequence[Message]]],
                    sampling_params: Union[SamplingParams, Sequence[SamplingParams], None] = None,
                    *, add_generation_prompt: bool = True, tools: Optional[Sequence[Dict[str, Any]]] = None,
                    chat_template_kwargs: Optional[Dict[str, Any]] = None,
                    priority: int = 0) -> List[RequestOutput]:
        """chat() for asyncio."""
        prompts = self._render(messages, add_generation_prompt, tools, chat_template_kwargs)
        work = await asyncio.to_thread(self._prepare, prompts, sampling_params, priority, self._marks(tools))
        return self._read_chats(await self._agenerate(work), tools)

    async def astream(self, prompt: Prompt, sampling_params: Optional[SamplingParams] = None, *,
                      priority: int = 0) -> AsyncIterator[StreamChunk]:
        """stream() for asyncio: `async for chunk in llm.astream(…)`."""
        (_, requests, params), = await asyncio.to_thread(self._prepare, [prompt], sampling_params, priority)
        news = LoopNews.current()
        tag = news.add()
        readers: List[ReplyReader] = []
        try:
            for index, request in enumerate(requests):
                handle = await self._asubmit(request, news, tag, False)
                readers.append(ReplyReader(self._engine, index, handle, params.logprobs is not None))
            while not all(reader.done for reader in readers):
                await news.wait(tag)
                for reader in readers:
                    chunk = None if reader.done else reader.read()
                    if chunk is not None:
                        yield chunk
        finally:
            news.remove(tag)
            for reader in readers:
                reader.handle.cancel()

    # Its end.

    def close(self) -> None:
        """Ends what is under way and gives the memory back. Other calls then raise InvalidArgumentError."""
        self._holder.close()

    def __enter__(self) -> "LLM":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    # Within.

    def _render(self, messages: Any, add_generation_prompt: bool, tools: Optional[Sequence[Dict[str, Any]]],
                variables: Optional[Dict[str, Any]]) -> List[Prompt]:
        conversations = [messages] if is_single(messages) else messages
        return [{"prompt": render_chat(self._engine, [one] if isinstance(one, dict) else one, add_generation_prompt,
                                       tools, **(variables or {}))} for one in conversations]

    def _marks(self, tools: Optional[Sequence[Dict[str, Any]]]) -> List[int]:
        """Control tokens that a chat's text has to show, so that it can be read."""
        return self._engine.reply_marks(bool(tools))

    def _read_chats(self, results: List[RequestOutput], tools: Optional[Sequence[Dict[str, Any]]]) -> List[RequestOutput]:
        offered = json.dumps(list(tools)) if tools else ""
        for output in results:
            for reply in output.outputs:
                reasoning, content, calls = self._engine.read_chat_reply(reply.text, output.prompt or "", offered)
                reply.reasoning_content = reasoning or None
                reply.content = None if calls and not content else content
                reply.tool_calls = [tool_call(name, arguments) for name, arguments in calls]
        return results

    def _prepare(self, prompts: Any, sampling_params: Any, priority: int,
                 shown_tokens: Sequence[int] = ()) -> List[Tuple[RequestOutput, List[Any], Any]]:
        """(output without replies, its requests, their settings) of each prompt."""
        prompts = [prompts] if is_single(prompts) else list(prompts)
        if sampling_params is None:
            sampling_params = self.get_default_sampling_params()
        if isinstance(sampling_params, SamplingParams):
            sampling_params = [sampling_params] * len(prompts)
        if len(sampling_params) != len(prompts):
            raise ValueError(f"{len(sampling_params)} sampling_params for {len(prompts)} prompts")
        work = []
        for prompt, params in zip(prompts, sampling_params):
            text, ids = encode(self._engine, prompt)
            seed = new_seed(params)
            requests = build_requests(self._engine, self._grammars, ids, params, seed, priority)
            for request in requests:
                request.shown_tokens = list(shown_tokens)
            work.append((RequestOutput(str(next(self._ids)), text, ids, [], seed), requests, params))
        return work

    def _submit_next(self, waiting: Deque[Tuple[Any, ...]], running: Deque[Tuple[Any, ...]]) -> bool:
        """False: the queue is full."""
        output, request, index, params = waiting[0]
        try:
            handle = self._engine.submit(request)
        except ResourceExhaustedError:
            return False
        waiting.popleft()
        running.append((output, ReplyReader(self._engine, index, handle, params.logprobs is not None)))
        return True

    async def _asubmit(self, request: Any, news: LoopNews, tag: int, at_end_alone: bool) -> Any:
        while True:
            try:
                return self._engine.submit(request, news.notifier, tag, at_end_alone)
            except ResourceExhaustedError:
                await asyncio.sleep(_RETRY_SECONDS)


def _add(reader: ReplyReader, output: RequestOutput) -> None:
    output.outputs.append(reader.output)
    if reader.prompt_logprobs:
        output.prompt_logprobs = reader.prompt_logprobs


def _results(work: List[Tuple[RequestOutput, List[Any], Any]]) -> Tuple[List[RequestOutput], Deque[Any], Deque[Any]]:
    """(all outputs, what is to be submitted, what has been)."""
    waiting = collections.deque((output, request, index, params) for output, requests, params in work
                                for index, request in enumerate(requests))
    return [output for output, _, _ in work], waiting, collections.deque()
