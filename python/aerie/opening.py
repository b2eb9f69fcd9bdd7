"""From the arguments of LLM() to an open engine."""

from __future__ import annotations

import atexit
import difflib
import json
import os
import warnings
import weakref
from typing import Any, Dict, List, Optional, Tuple

from . import _core
from .drafter import DrafterAdapter
from .errors import AerieError

_open_engines: "weakref.WeakSet[Any]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    # Their threads must not need the interpreter once it is gone.
    for engine in list(_open_engines):
        engine.close()


class EngineHolder:
    """An engine, closed with the interpreter at the latest."""

    def __init__(self, options: Any) -> None:
        self.core = _core.Engine(options)
        _open_engines.add(self)

    def close(self) -> None:
        self.core.close()


# Argument of LLM() -> (field of OpenOptions, types, what it is for a message).
FIELDS = {
    "model": ("model", (str, os.PathLike), "a path or a name"),
    "max_model_len": ("context", (int,), "a number of tokens"),
    "max_num_seqs": ("sequences", (int,), "a number of requests"),
    "max_num_batched_tokens": ("prefill_chunk", (int,), "a number of tokens"),
    "enable_prefix_caching": ("prefix_cache", (bool,), "True or False"),
    "kv_cache_dtype": ("cache_type", (str,), '"f16" or "q8"'),
    "weight_type": ("type", (str,), 'a type such as "q8_0"'),
    "threads": ("threads", (int,), "a number of threads"),
    "verify": ("verify", (str,), "a verification rule"),
    "isa": ("isa", (str,), "an instruction set"),
    "device": ("device", (str,), 'a device such as "cpu" or "cuda:0"'),
    "weight_cache": ("weight_cache", (str, os.PathLike), "a folder"),
    "profile": ("profile", (str, os.PathLike), "a file of `aerie tune`"),
}

# Of vLLM's LLM(): what means nothing here and changes no token.
IGNORED = {
    "tokenizer", "tokenizer_mode", "skip_tokenizer_init", "trust_remote_code", "tensor_parallel_size", "dtype",
    "gpu_memory_utilization", "swap_space", "cpu_offload_gb", "enforce_eager", "disable_custom_all_reduce",
    "disable_log_stats", "enable_chunked_prefill", "download_dir", "seed", "block_size", "async_scheduling",
}


def _set(options: Any, argument: str, value: Any) -> None:
    field, types, what = FIELDS[argument]
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise TypeError(f"{argument}: {what} is wanted, not {type(value).__name__} {value!r}")
    setattr(options, field, os.fspath(value) if isinstance(value, os.PathLike) else value)


def _check_name(argument: str) -> None:
    if argument in IGNORED:
        warnings.warn(f"{argument} means nothing to Aerie and is not used", stacklevel=4)
        return
    near = difflib.get_close_matches(argument, [*FIELDS, "speculative_config"], n=1)
    hint = f"; is {near[0]} meant?" if near else ""
    raise TypeError(f"LLM() has no argument {argument!r}{hint}")


def _take_drafter(config: Dict[str, Any], found: List[Any]) -> Dict[str, Any]:
    """The configuration of one method without its object, which goes to `found`."""
    if not isinstance(config, dict):
        raise TypeError(f"speculative_config: a method's settings are a dict, not {config!r}")
    config = dict(config)
    if "methods" in config:
        config["methods"] = [_take_drafter(one, found) for one in config["methods"]]
    if "drafter" in config:
        drafter = config.pop("drafter")
        found.append(drafter() if isinstance(drafter, type) else drafter)
        if config.setdefault("method", "custom") != "custom":
            raise ValueError(f'speculative_config: a drafter goes with method "custom", not {config["method"]!r}')
    return config


def speculation_of(config: Any) -> Tuple[str, Optional[Any]]:
    """(the engine's text, the drafter within or None) of a speculative_config.

    A dict or a list of dicts with vLLM's keys, the short form of --speculate as a text, or None: plain
    decoding. TypeError or ValueError for what is none of these.
    """
    if config is None:
        return "none", None
    if isinstance(config, str):
        return config, None
    found: List[Any] = []
    if isinstance(config, (list, tuple)):
        plain: Any = [_take_drafter(one, found) for one in config]
    else:
        plain = _take_drafter(config, found)
    if len(found) > 1:
        raise ValueError("speculative_config: an engine takes one drafter of one's own")
    try:
        text = json.dumps(plain)
    except TypeError as error:
        raise TypeError(f"speculative_config: {error}") from None
    return text, found[0] if found else None


def open_engine(arguments: Dict[str, Any], speculative_config: Any) -> Tuple[EngineHolder, Optional[DrafterAdapter]]:
    """Opens what LLM() was asked for. Raises what LLM() raises."""
    options = _core.OpenOptions()
    for argument, value in arguments.items():
        if argument not in FIELDS:
            _check_name(argument)
        elif value is not None:
            _set(options, argument, value)
    options.speculate, drafter = speculation_of(speculative_config)
    adapter = None
    if drafter is not None:
        adapter = DrafterAdapter(drafter)
        options.set_drafter(adapter)
    try:
        return EngineHolder(options), adapter
    except AerieError as error:
        # What the engine's option is called here.
        message = str(error)
        if not message.startswith("speculate: "):
            raise
        raise type(error)("speculative_config: " + message[len("speculate: "):]) from None
