"""Aerie: inference of large language models with lossless speculative decoding.

    from aerie import LLM, SamplingParams

    llm = LLM("model.gguf")
    for output in llm.generate(["Once upon a time"], SamplingParams(temperature=0, max_tokens=64)):
        print(output.outputs[0].text)

LLM has the shape of vLLM's, Llama that of llama-cpp-python's; Drafter is what a drafter written in Python
derives from; train() and speedup() make draft heads. docs/python.md has the rest.
"""

from ._core import version as __version__
from .drafter import Drafter, DraftRequest, DraftResult
from .errors import (AerieError, InternalError, InvalidArgumentError, InvalidDataError, NotFoundError,
                     RequestCancelledError, ResourceExhaustedError, TrainingError, UnsupportedError)
from .llama import Llama
from .llm import LLM
from .outputs import (CompletionOutput, Logprob, ReplyMetrics, RequestOutput, SpeculationStats, StreamChunk)
from .sampling_params import SamplingParams, StructuredOutputsParams
from .streaming import TextStream
from .tokenizer import Tokenizer
from .training import TrainingResult, speedup, start_speedup, start_training, train
from .training_job import TrainingJob, TrainingProgress

__all__ = [
    "AerieError", "CompletionOutput", "DraftRequest", "DraftResult", "Drafter", "InternalError",
    "InvalidArgumentError", "InvalidDataError", "LLM", "Llama", "Logprob", "NotFoundError", "ReplyMetrics",
    "RequestCancelledError", "RequestOutput", "ResourceExhaustedError", "SamplingParams", "SpeculationStats",
    "StreamChunk", "StructuredOutputsParams", "TextStream", "Tokenizer", "TrainingError", "TrainingJob",
    "TrainingProgress", "TrainingResult", "UnsupportedError", "__version__", "speedup", "start_speedup",
    "start_training", "train",
]
