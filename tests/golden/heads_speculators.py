"""The package `speculators` as a reference: its models, opened from a case's files and run step by step."""

import contextlib
import functools
import importlib.metadata
import logging
import os
import warnings
from pathlib import Path
from unittest import mock

import torch

import heads_common as common

os.environ.setdefault("HF_HUB_OFFLINE", "1")
warnings.filterwarnings("ignore", message=".*target-layer-ids.*")

import speculators  # noqa: E402
import transformers  # noqa: E402
from speculators import SpeculatorModel, SpeculatorsConfig, VerifierConfig  # noqa: E402
from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig  # noqa: E402
from speculators.models.mtp import MTPDraftModel, MTPSpeculatorConfig  # noqa: E402
from speculators.models.peagle import PEagleDraftModel, PEagleSpeculatorConfig  # noqa: E402
from speculators.models.peagle import core as peagle_core  # noqa: E402
from speculators.proposals.greedy import GreedyTokenProposalConfig  # noqa: E402

transformers.utils.logging.set_verbosity_error()
logging.getLogger("speculators").setLevel(logging.ERROR)
SOURCE = f"speculators {importlib.metadata.version('speculators')} with transformers {transformers.__version__}"
MODELS = {
    "eagle3": (Eagle3SpeculatorConfig, Eagle3DraftModel),
    "peagle": (PEagleSpeculatorConfig, PEagleDraftModel),
    "mtp": (MTPSpeculatorConfig, MTPDraftModel),
}


def layer_config(model_type, **more):
    """Wider in its attention than hidden_size, so that one size cannot stand for the other."""
    config = {
        "vocab_size": common.VOCABULARY, "hidden_size": common.HIDDEN, "intermediate_size": 16, "num_hidden_layers": 1,
        "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 512,
        "rms_norm_eps": 0.01, "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0},
    } | more  # fmt: skip
    return transformers.AutoConfig.for_model(model_type, **config)


def write(case, random, kind, layer, vocabulary_map, dtype=torch.float32, offset=0.0, **flags):
    """The folder as the package saves it. Verifier weights that the package would copy stay those of the target."""
    config_class, model_class = MODELS[kind]
    general = SpeculatorsConfig(
        algorithm=kind,
        proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=case.steps)],
        default_proposal_method="greedy",
        verifier=VerifierConfig(name_or_path=f"../../{case.target}", architectures=["LlamaForCausalLM"]),
    )
    config = config_class(transformer_layer_config=layer, speculators_config=general, **flags)
    model = model_class(config)
    embedding = common.Target(common.ROOT / case.target).embedding
    state = {}
    for name, old in model.state_dict().items():
        if name in vocabulary_map:
            state[name] = vocabulary_map[name]
        elif name == "embed_tokens.weight" and not getattr(config, "embed_requires_grad", False):
            state[name] = embedding
        else:
            state[name] = common.value(random, name, tuple(old.shape), dtype) - (offset if "norm" in name else 0.0)
    model.load_state_dict(state)
    if kind == "mtp":
        del model.verifier_lm_head  # as the package does once it has loaded the target's
    folder = common.ROOT / case.name / "head"
    model.to(dtype).save_pretrained(folder)
    # The package puts a copy of its own source beside the weights, which is not ours to keep.
    (folder / "config.py").unlink(missing_ok=True)


class Opened:
    def __init__(self, case):
        with contextlib.chdir(common.ROOT / case.name / "head"):
            self.model = SpeculatorModel.from_pretrained(".", dtype=torch.float32).eval()
            # Of a missing embedding the package expects NaN, but transformers leaves arbitrary memory.
            if "embed_tokens.weight" not in common.load_head(Path("."))[1]:
                self.model._load_verifier_weights(overwrite_embed_tokens=True)
        for layer in self.model.layers:
            layer.self_attn.config._attn_implementation = "eager"
        self.model._attn_impl = "eager"
        self.model._create_mask_fn = functools.partial(
            speculators.models.attention.create_float_mask, dtype=torch.float32)  # fmt: skip
        self.target = common.Target(common.ROOT / case.target)
        self.d2t = self.model.d2t
        self.seen = {}
        self.model.lm_head.register_forward_hook(lambda _, args, out: self.seen.setdefault("logits", []).append(out[0]))
        self.model.norm.register_forward_hook(self.keep_hidden)

    def keep_hidden(self, _, args, out):
        self.seen.setdefault("hidden", []).append((out if self.model.config.norm_output else args[0])[0])

    def token(self, row):
        return row if self.d2t is None else row + int(self.d2t[row])

    def taps(self, text):
        entering, _ = self.target.states(text)
        return torch.cat([entering[i] for i in self.model.target_layer_ids], -1)


class Borrowed:
    """A decoder layer of transformers over rows that see themselves and the rows before."""

    def __init__(self, layer, rotary):
        self.layer, self.rotary = layer.eval(), rotary
        layer.self_attn.config._attn_implementation = "eager"

    def __call__(self, x, **more):
        positions = torch.arange(len(x))[None]
        mask = torch.full((len(x), len(x)), -torch.inf).triu(1)[None, None]
        where = self.rotary(x[None], positions)
        out = self.layer(x[None], attention_mask=mask, position_ids=positions, position_embeddings=where, **more)
        return (out[0] if isinstance(out, tuple) else out)[0]


def borrow(layer_class, rotary_class, config, tensors, prefix, index=0):
    """The layer with the tensors whose names begin with prefix and that it knows."""
    layer = layer_class(config, index)
    known = {name: tensors[prefix + name] for name in layer.state_dict()}
    layer.load_state_dict(known)
    return Borrowed(layer, rotary_class(config))


class Mtp:
    """The package's training never mixes the target's rows with drafted ones, so its module is run row by row here."""

    def __init__(self, case):
        with contextlib.chdir(common.ROOT / case.name / "head"):
            self.model = SpeculatorModel.from_pretrained(".", dtype=torch.float32, attn_implementation="eager").eval()
        self.model.config.transformer_layer_config._attn_implementation = "eager"
        self.module = Borrowed(self.model.mtp_layers[0], self.model.rotary_emb)
        self.target = common.Target(common.ROOT / case.target)

    def token(self, row):
        return row

    @torch.no_grad()
    def run(self, text, n, path):
        rows = self.target.states(text)[0][-1][: n - 1]  # what the package's training data holds: before the norm
        embedded = self.model.embed_tokens(torch.tensor(text[1:n] + path))
        for _ in range(len(path) + 1):
            out = self.module(rows, token_embeddings=embedded[None, : len(rows)])
            rows = torch.cat([rows, out[-1:]])
        return self.model.lm_head(rows[n - 1 :]), rows[n - 1 :]


class Eagle3(Opened):
    """Training-time test is inference here: row n - 2 takes the given next token at each step and sees the target's
    rows and its own earlier steps. Rows behind it exist only to hold the tokens."""

    @torch.no_grad()
    def run(self, text, n, path):
        features = torch.nn.functional.pad(self.taps(text)[: n - 1], (0, 0, 0, len(path)))
        tokens = torch.tensor([text[1:n] + path])
        self.seen.clear()
        self.model(features[None], tokens, torch.zeros_like(tokens), ttt_steps=len(path) + 1)
        return tuple(torch.stack([step[n - 2] for step in self.seen[name]]) for name in ("logits", "hidden"))


class PEagle(Opened):
    """The rows that training would sample: all of the target, and those behind the last one."""

    def __init__(self, case):
        super().__init__(case)
        self.case = case

    @torch.no_grad()
    def outputs(self, text, n):
        steps = self.case.steps
        tokens = torch.tensor([text[1:n] + [0] * (steps - 1)])
        features = torch.nn.functional.pad(self.taps(text)[: n - 1], (0, 0, 0, steps - 1))
        anchors = torch.tensor(list(range(n - 1)) + [n - 2] * (steps - 1))
        depths = torch.tensor([0] * (n - 1) + list(range(1, steps)))
        self.seen.clear()
        with (
            mock.patch.object(peagle_core, "generate_cod_sample_indices", lambda **_: (anchors, depths)),
            mock.patch.object(peagle_core, "compute_metrics", lambda **_: (None, None)),
        ):
            last = torch.zeros(1, tokens.shape[1], common.HIDDEN)
            self.model(features[None], tokens, torch.zeros_like(tokens), verifier_last_hidden_states=last)
        return self.seen["logits"][0][n - 2 :]
