"""Aerie: inference of large language models with lossless speculative decoding.

    from aerie import LLM, SamplingParams

    llm = LLM("model.gguf")
    for output in llm.generate(["Once upon a time"], SamplingParams(temperature=0, max_tokens=64)):
        print(output.outputs[0].text)

LLM has the shape of vLLM's, Llama that of llama-cpp-python's; Drafter is what a drafter written in Python
derives from. docs/python.md has the rest.
"""

from ._core import version as __version__
from .drafter import Drafter, DraftRequest, DraftResult
from .errors import (AerieError, InternalError, InvalidArgumentError, InvalidDataError, NotFoundError,
                     RequestCancelledError, ResourceExhaustedError, UnsupportedError)
from .llama import Llama
from .llm import LLM
from .outputs import (CompletionOutput, Logprob, ReplyMetrics, RequestOutput, SpeculationStats, StreamChunk)
from .sampling_params import SamplingParams, StructuredOutputsParams
from .streaming import TextStream
from .tokenizer import Tokenizer

__all__ = [
    "AerieError", "CompletionOutput", "DraftRequest", "DraftResult", "Drafter", "InternalError",
    "InvalidArgumentError", "InvalidDataError", "LLM", "Llama", "Logprob", "NotFoundError", "ReplyMetrics",
    "RequestCancelledError", "RequestOutput", "ResourceExhaustedError", "SamplingParams", "SpeculationStats",
    "StreamChunk", "StructuredOutputsParams", "TextStream", "Tokenizer", "UnsupportedError", "__version__",
]
