"""Llama: llama-cpp-python's class of that name on Aerie, in the calls that are used most."""

from __future__ import annotations

import time
import uuid
from typing import Any, Dict, Iterator, List, Optional, Sequence, Union

from .errors import UnsupportedError
from .llama_replies import chat_chunk, chat_reply, completion_chunk, completion_reply
from .llm import LLM
from .outputs import RequestOutput
from .prompts import Message
from .sampling_params import SamplingParams

# Arguments of llama_cpp.Llama() that change no token here and are not used.
_IGNORED = {
    "n_gpu_layers", "split_mode", "main_gpu", "tensor_split", "use_mmap", "use_mlock", "n_ubatch", "n_threads_batch",
    "offload_kqv", "flash_attn", "verbose", "numa", "last_n_tokens_size", "logits_all", "op_offload", "swa_full",
    "no_perf", "kv_overrides", "spm_infill",
}
# Arguments of its calls: the value at which they do nothing.
_NEUTRAL = {
    "suffix": None, "tfs_z": 1.0, "typical_p": 1.0, "mirostat_mode": 0, "mirostat_tau": 5.0, "mirostat_eta": 0.1,
    "model": None, "stopping_criteria": None, "logits_processor": None, "functions": None, "function_call": None,
    "tools": None, "tool_choice": None, "best_of": 1,
}
_NOT_KNOWN = object()


class Llama:
    """A model that is open.

    model_path: a GGUF file, a Hugging Face folder, or a name of one. n_ctx: tokens of a prompt and its
    reply (512); 0: the model's own, at most 4096. n_threads: the cores that the process may use, if not
    given. n_batch: prompt tokens in a pass. seed: of calls without one; -1: drawn anew for each call.
    speculative_config: as LLM has it. Raises what LLM() raises.
    """

    def __init__(self, model_path: str, *, n_ctx: int = 512, n_threads: Optional[int] = None, n_batch: int = 512,
                 seed: int = -1, speculative_config: Any = "auto", **ignored: Any) -> None:
        for name in ignored:
            if name not in _IGNORED:
                raise TypeError(f"Llama() has no argument {name!r}")
        self.model_path = model_path
        self._seed = None if seed in (-1, 0xFFFFFFFF) else seed
        self.llm = LLM(model_path, speculative_config=speculative_config, max_model_len=n_ctx, max_num_seqs=4,
                       threads=n_threads, max_num_batched_tokens=n_batch)
        self._tokenizer = self.llm.get_tokenizer()

    @classmethod
    def from_pretrained(cls, repo_id: str, filename: Optional[str] = None, **settings: Any) -> "Llama":
        """A model of huggingface.co, through the cache that its own programs keep."""
        return cls(f"{repo_id}:{filename}" if filename else repo_id, **settings)

    # Tokens.

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = False) -> List[int]:
        """The ids of a text in UTF-8. special: names of control tokens in it become those tokens."""
        return self.llm._engine.tokenize(text, add_bos, special)

    def detokenize(self, tokens: Sequence[int], prev_tokens: Optional[Sequence[int]] = None,
                   special: bool = False) -> bytes:
        """The text of tokens in UTF-8; control tokens are left out."""
        if special:
            raise UnsupportedError("detokenize: control tokens have no text here; call it with special=False")
        return self.llm._engine.detokenize(list(tokens))

    def n_ctx(self) -> int:
        """Tokens of a prompt and its reply."""
        return self.llm.max_model_len

    def n_vocab(self) -> int:
        """Tokens of the vocabulary."""
        return self._tokenizer.vocab_size

    def token_bos(self) -> int:
        """The id of the token that texts begin with; -1: there is none."""
        return self.llm._engine.info().bos

    def token_eos(self) -> int:
        """The id of the token that replies end with; -1: there is none."""
        return self.llm._engine.info().eos

    # Replies.

    def __call__(self, prompt: Union[str, List[int]], **options: Any) -> Any:
        """create_completion()."""
        return self.create_completion(prompt, **options)

    def create_completion(self, prompt: Union[str, List[int]], *, max_tokens: Optional[int] = 16,
                          temperature: float = 0.8, echo: bool = False, logprobs: Optional[int] = None,
                          stream: bool = False, **options: Any) -> Union[Dict[str, Any], Iterator[Dict[str, Any]]]:
        """Goes on with a text or token ids: OpenAI's completion as a dict, or with stream=True an iterator of its
        chunks. max_tokens: None or below 1: as many as the context holds.

        Further: top_p, top_k, min_p, repeat_penalty, frequency_penalty, presence_penalty, stop, seed,
        logit_bias, grammar (a text in GBNF). UnsupportedError for what would change the text and is not known here.
        """
        params = self._params(options, max_tokens=max_tokens, temperature=temperature, logprobs=logprobs)
        head = self._head("cmpl-", "text_completion")
        if not stream:
            return completion_reply(head, self.llm.generate([prompt], params)[0], self._echo(prompt, echo))
        return self._completion_chunks(head, prompt, params, self._echo(prompt, echo))

    def create_chat_completion(self, messages: Sequence[Message], *, max_tokens: Optional[int] = None,
                               temperature: float = 0.2, stream: bool = False, logprobs: bool = False,
                               top_logprobs: Optional[int] = None, response_format: Optional[Dict[str, Any]] = None,
                               **options: Any) -> Union[Dict[str, Any], Iterator[Dict[str, Any]]]:
        """Answers messages: OpenAI's chat completion as a dict, or with stream=True an iterator of its chunks.
        response_format: {"type": "json_object"}, with a "schema" if wanted. Further as create_completion()."""
        params = self._params(options, max_tokens=max_tokens, temperature=temperature,
                              logprobs=(top_logprobs or 0) if logprobs else None, response_format=response_format)
        if not stream:
            output = self.llm.chat([list(messages)], params)[0]
            return chat_reply(self._head("chatcmpl-", "chat.completion"), output)
        return self._chat_chunks(self._head("chatcmpl-", "chat.completion.chunk"), list(messages), params)

    def reset(self) -> None:
        """Does nothing: no call leaves a state behind."""

    def close(self) -> None:
        """Gives the memory back."""
        self.llm.close()

    def __enter__(self) -> "Llama":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    # Within.

    def _head(self, prefix: str, kind: str) -> Dict[str, Any]:
        return {"id": prefix + uuid.uuid4().hex, "object": kind, "created": int(time.time()),
                "model": self.model_path}

    def _echo(self, prompt: Union[str, List[int]], echo: bool) -> str:
        if not echo:
            return ""
        return prompt if isinstance(prompt, str) else self._tokenizer.decode(prompt)

    def _params(self, options: Dict[str, Any], *, max_tokens: Optional[int], temperature: float,
                logprobs: Optional[int], response_format: Optional[Dict[str, Any]] = None) -> SamplingParams:
        options = dict(options)
        grammar = options.pop("grammar", None)
        params = SamplingParams(
            max_tokens=max_tokens if max_tokens is not None and max_tokens > 0 else None,
            temperature=temperature, logprobs=logprobs, top_p=options.pop("top_p", 0.95),
            top_k=options.pop("top_k", 40), min_p=options.pop("min_p", 0.05),
            repetition_penalty=options.pop("repeat_penalty", 1.0),
            frequency_penalty=options.pop("frequency_penalty", 0.0),
            presence_penalty=options.pop("presence_penalty", 0.0), stop=options.pop("stop", None) or None,
            seed=options.pop("seed", None), logit_bias=options.pop("logit_bias", None), penalty_window=64,
            structured_outputs=_structure(response_format, grammar))
        if params.seed is None:
            params.seed = self._seed
        for name, value in options.items():
            neutral = _NEUTRAL.get(name, _NOT_KNOWN)
            if neutral is _NOT_KNOWN:
                raise TypeError(f"there is no argument {name!r}")
            if value != neutral and name != "model":
                raise UnsupportedError(f"{name}: {value!r} is nothing that Aerie does; leave it out")
        return params

    def _completion_chunks(self, head: Dict[str, Any], prompt: Union[str, List[int]], params: SamplingParams,
                           echo: str) -> Iterator[Dict[str, Any]]:
        with self.llm.stream(prompt, params) as chunks:
            for chunk in chunks:
                yield completion_chunk(head, chunk, echo)
                echo = ""

    def _chat_chunks(self, head: Dict[str, Any], messages: List[Message],
                     params: SamplingParams) -> Iterator[Dict[str, Any]]:
        yield chat_chunk(head, None)
        with self.llm.stream(messages, params) as chunks:
            for chunk in chunks:
                yield chat_chunk(head, chunk)


def _structure(response_format: Optional[Dict[str, Any]], grammar: Optional[str]) -> Optional[Dict[str, Any]]:
    if grammar is not None:
        return {"grammar": grammar}
    form = response_format or {}
    kind = form.get("type", "text")
    if kind == "text":
        return None
    schema = form.get("schema")
    if kind == "json_schema":
        schema = form["json_schema"].get("schema")
    elif kind != "json_object":
        raise ValueError(f"response_format: type {kind!r} is none of text, json_object and json_schema")
    return {"json_object": True} if schema is None else {"json": schema}


__all__ = ["Llama", "RequestOutput"]
