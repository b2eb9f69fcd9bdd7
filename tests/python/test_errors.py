"""What goes wrong is an exception that says what, where and what to do."""

import pytest

import aerie
from aerie import LLM, SamplingParams


@pytest.mark.parametrize("settings, error, message", [
    ({"model": "/no/such.gguf"}, FileNotFoundError, "/no/such.gguf"),
    ({"model": __file__}, ValueError, "test_errors.py"),
    ({"model": 5}, TypeError, "model: a path"),
    ({"max_model_len": "long"}, TypeError, "max_model_len: a number"),
    ({"max_model_len": 10**9}, ValueError, "context"),
    ({"max_num_seqs": 0}, ValueError, "0 sequences"),
    ({"enable_prefix_caching": "yes"}, TypeError, "enable_prefix_caching"),
    ({"kv_cache_dtype": "q7"}, ValueError, "f16"),
    ({"max_modle_len": 5}, TypeError, "is max_model_len meant"),
    ({"speculative_config": {"method": "ngram", "num_spec_tokens": 3}}, ValueError,
     "^speculative_config: .*num_spec_tokens"),
    ({"speculative_config": {"method": "magic"}}, ValueError, "magic"),
    ({"speculative_config": {"method": "ngram", "num_speculative_tokens": "3"}}, ValueError,
     "num_speculative_tokens"),
    ({"speculative_config": {"method": "draft_model", "model": "/no/such.gguf"}}, FileNotFoundError, "/no/such"),
    ({"speculative_config": 5}, TypeError, "speculative_config"),
    ({"speculative_config": {"method": {1, 2}}}, TypeError, "speculative_config"),
])
def test_engines_that_cannot_be_opened(tiny, settings, error, message):
    with pytest.raises(error, match=message):
        LLM(**{"model": tiny, **settings})


@pytest.mark.parametrize("settings, error, message", [
    ({"temperature": -1.0}, ValueError, "temperature"),
    ({"temperature": "hot"}, TypeError, "temperature: 'hot'"),
    ({"top_p": 2.0}, ValueError, "top"),
    ({"n": 0}, ValueError, "n: at least 1"),
    ({"max_tokens": 0}, ValueError, "max_tokens"),
    ({"seed": "x"}, TypeError, "seed"),
    ({"stop": 5}, TypeError, "stop: a text"),
    ({"logprobs": 1 << 20}, ValueError, "logprobs"),
    ({"min_tokens": 5, "bad_words": []}, NotImplementedError, "min_tokens: 5"),
    ({"structured_outputs": {"json": "{"}}, ValueError, "schema: line 1"),
    ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, ValueError, "exactly one"),
    ({"structured_outputs": {"jsn": "{}"}}, TypeError, "jsn"),
    ({"structured_outputs": {"choice": "red"}}, TypeError, "list of texts"),
])
def test_requests_that_cannot_be_answered(plain, settings, error, message):
    with pytest.raises(error, match=message):
        plain.generate("Once", SamplingParams(**settings))


@pytest.mark.parametrize("prompt, error, message", [
    ([], ValueError, "prompt"),
    ([[1 << 20]], ValueError, "vocabulary"),
    ([[1, "x"]], TypeError, "a prompt is"),
    ({"text": "x"}, ValueError, "prompt_token_ids"),
    ([[{"role": "user", "content": [{"type": "image_url"}]}]], ValueError, "image_url"),
    (["x" * 4000], ValueError, "256"),
])
def test_prompts_that_are_none(plain, prompt, error, message):
    if prompt == []:
        assert plain.generate(prompt) == []
        return
    with pytest.raises(error, match=message):
        plain.generate(prompt)


def test_kinds():
    assert issubclass(aerie.NotFoundError, FileNotFoundError) and issubclass(aerie.NotFoundError, aerie.AerieError)
    assert issubclass(aerie.ResourceExhaustedError, MemoryError)
    assert str(aerie.InvalidArgumentError("what, where")) == "what, where"
    with pytest.raises(TypeError, match="has no argument 'gpu'"):
        LLM("x", gpu=1)


def test_arguments_of_vllm_that_mean_nothing(tiny):
    with pytest.warns(UserWarning, match="gpu_memory_utilization means nothing"):
        LLM(tiny, gpu_memory_utilization=0.9, speculative_config=None).close()


def test_a_closed_engine(tiny):
    llm = LLM(tiny, speculative_config=None)
    # So many that they do not end before this thread goes on.
    stream = llm.stream("Once", SamplingParams(max_tokens=None, ignore_eos=True, n=32))
    next(stream)
    llm.close()
    llm.close()
    with pytest.raises(aerie.RequestCancelledError, match="closed"):
        list(stream)
    with pytest.raises(ValueError, match="the engine is closed"):
        llm.generate("Once")
