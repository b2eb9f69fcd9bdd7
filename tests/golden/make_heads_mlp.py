#!/usr/bin/env python3
"""Makes the goldens of draft heads without attention of their own: tests/golden/heads/<case>/ for Medusa,
MLPSpeculator, Hydra (and Hydra++) and ReDrafter, and the tiny target they share. Run by hand, not by CI.

    python tests/golden/make_heads_mlp.py [CASE ...]    writes the folders (all of them by default)

Needs torch, transformers and safetensors. tests/golden/README.md describes what it writes.
"""

import argparse
import copy
import dataclasses
import json
import re
import shutil
import zlib
from pathlib import Path
from typing import Callable

import numpy as np
import safetensors.torch
import torch
import transformers
from torch import nn

import heads_mlp_modules as heads

ROOT = Path(__file__).resolve().parent / "heads"
TARGET = ROOT / "target_mlp"
VOCABULARY, HIDDEN, LAYERS = 96, 32, 3
PROMPT, TEXT = 17, 48
ADVANCES = [1, 3, 2, 1, 5, 2, 4, 6]
MEDUSA_TREE = {"tree": "medusa", "num_speculative_tokens": 63}
GAINS = {r"hydra_mlp|lm_head\.\d\.linear": 0.7, r"hydra_lm_head": 1.4, r"head": 2.0, r"[qk]_proj": 1.8, r"": 1.2}
BASE = {"base_model_name_or_path": "../target_mlp", "transformers_version": "4.36.2"}


@dataclasses.dataclass
class Case:
    name: str
    format: str
    make: Callable  # (case, target) -> an object with .module and .draft()
    config: dict  # config.json of the head
    steps: int
    file: str = "model.safetensors"
    prefix: str = ""  # of the names in the file
    dtype: torch.dtype = torch.float32
    method: str = "medusa"
    tree: dict = dataclasses.field(default_factory=dict)  # what a user asks for to get the tree
    source: str = ""
    torch_file: str = ""  # the public file as torch.save writes it
    leave_out: str = r"$^"  # names that the public file does not have
    extra: Callable = lambda case, target: {}  # further tensors of the file


# ---- Weights ----


def generator(name, seed=0):
    return np.random.Generator(np.random.PCG64(zlib.crc32(f"{name}/{seed}".encode())))


def value(random, name, shape):
    """Nothing neutral: norms away from 1, biases from 0; logits spread over a few units."""
    values = random.standard_normal(shape)
    if re.search(r"(norm|ln\.\d+)\.weight$", name):
        values = 1.0 + 0.3 * values
    elif name.endswith("bias"):
        values = 0.4 * values
    elif not re.search(r"emb", name) or "proj" in name:
        gain = next(gain for pattern, gain in GAINS.items() if re.search(pattern, name))
        values = gain * values / shape[-1] ** 0.5
    return torch.from_numpy(values.astype(np.float32))


def fill(module, random, dtype, skip=()):
    """Values that dtype holds exactly. A parameter that has several names is drawn once."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if not name.startswith(tuple(skip)):
                parameter.copy_(value(random, name, tuple(parameter.shape)).to(dtype))


def make_target():
    """Its values fit BF16, so a head's BF16 copy of the embedding is the target's."""
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=64, num_hidden_layers=LAYERS,
        num_attention_heads=2, num_key_value_heads=1, head_dim=16, max_position_embeddings=512, rms_norm_eps=1e-5,
        tie_word_embeddings=False, bos_token_id=1, eos_token_id=2)  # fmt: skip
    config._attn_implementation = "eager"
    model = transformers.LlamaForCausalLM(config).eval()
    fill(model, generator("target_mlp"), torch.bfloat16)
    return model


# ---- Files ----


def write_json(path, content):
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def save_tensors(path, tensors, dtype=torch.float32):
    floats = {name: tensor.to(dtype) if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
    copies = {name: tensor.detach().clone().contiguous() for name, tensor in floats.items()}
    safetensors.torch.save_file(copies, path, metadata={"format": "pt"})


def target_config(model):
    config = model.config
    names = "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads"
    names += " head_dim hidden_act max_position_embeddings rms_norm_eps tie_word_embeddings bos_token_id eos_token_id"
    values = {name: getattr(config, name) for name in names.split()}
    fixed = {"rope_theta": 10000.0, "torch_dtype": "float32", "transformers_version": "4.36.2"}
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama"} | values | fixed


def write_target(model, text):
    TARGET.mkdir(parents=True, exist_ok=True)
    write_json(TARGET / "config.json", target_config(model))
    save_tensors(TARGET / "model.safetensors", model.state_dict())
    save_tensors(TARGET / "states.safetensors", {"states": streams(model, text)})


def write_head(case, module, target):
    folder = ROOT / case.name / "head"
    folder.mkdir(parents=True)
    write_json(folder / "config.json", case.config)
    state = {case.prefix + name: tensor for name, tensor in module.state_dict().items()}
    state = {name: tensor for name, tensor in state.items() if not re.search(case.leave_out, name)}
    save_tensors(folder / case.file, state | case.extra(case, target), case.dtype)
    if case.torch_file:
        torch.save(module.to(case.dtype).state_dict(), folder / case.torch_file)


def write_golden(case, text, drafts):
    """One line a round."""
    head = {
        "format": case.format,
        "source": case.source,
        "target": "../target_mlp",
        "text": text,
        "prompt": PROMPT,
        "advances": ADVANCES,
        "draft_tokens": case.steps,
        "speculative_config": {"method": case.method, "model": "head", "num_speculative_tokens": case.steps},
        "tree_config": case.tree,
    }
    rounds = [
        {"length": length, "chain": draft.chain, "tree": dataclasses.asdict(draft.tree)} for length, draft in drafts
    ]
    lines = [f"  {json.dumps(name)}: {json.dumps(content)},\n" for name, content in head.items()]
    listed = ",\n".join(f"    {json.dumps(row)}" for row in rounds)
    path = ROOT / case.name / "golden.json"
    path.write_text("{\n" + "".join(lines) + '  "rounds": [\n' + listed + "\n  ]\n}\n", encoding="utf-8")
    tensors = {f"round{r}.logits": draft.logits for r, (_, draft) in enumerate(drafts)}
    tensors |= {f"round{r}.hidden": draft.hidden for r, (_, draft) in enumerate(drafts) if draft.hidden is not None}
    save_tensors(ROOT / case.name / "golden.safetensors", tensors)


# ---- Rounds ----


def rounds(case, head, target, text):
    """(known tokens, draft) of each round: the last known token is the root, the one before it has a feature."""
    features = case_features(case, target, torch.tensor([text]))
    lengths = [PROMPT + 1 + sum(ADVANCES[:r]) for r in range(len(ADVANCES) + 1)]
    drafts = [(length, head.draft(features[: length - 1], text[length - 1])) for length in lengths]
    for _, draft in drafts:
        spread = draft.logits.std(dim=-1).mean().item()
        assert 0.5 < spread < 6, f"{case.name}: logits spread by {spread}"
        assert len(draft.chain) == len(draft.logits) == case.steps
    return drafts


def make_text():
    """The same for all cases, so that what the target makes of it is recorded once."""
    return generator("text").integers(3, VOCABULARY, TEXT).tolist()


def streams(target, text):
    """What enters each layer, and what leaves the last one: [layers + 1, tokens, size]."""
    states = []
    hooks = [
        module.register_forward_pre_hook(lambda _, args, more: states.append((args or [more["hidden_states"]])[0][0]),
                                         with_kwargs=True)
        for module in [*target.model.layers, target.model.norm]
    ]  # fmt: skip
    target(torch.tensor([text]))
    for hook in hooks:
        hook.remove()
    return torch.stack(states)


def case_features(case, target, ids):
    """After the final norm, unless the head counts layers from the end."""
    states = target(ids, output_hidden_states=True).hidden_states
    return states[-1 - case.config.get("hidden_state_offset", 0)][0]


def make_case(case, target, text):
    for seed in range(50):
        random = generator(case.name, seed)
        head = case.make(case, target)
        fill(head.module, random, case.dtype, skip=("input_embed_fn",))
        try:
            drafts = rounds(case, head, target, text)
        except heads.NearTie:
            continue
        shutil.rmtree(ROOT / case.name, ignore_errors=True)
        write_head(case, head.module, target)
        write_golden(case, text, drafts)
        size = sum(path.stat().st_size for path in (ROOT / case.name).rglob("*") if path.is_file())
        print(f"{case.name}: seed {seed}, {size} bytes")
        return
    raise RuntimeError(f"{case.name}: every seed has a near tie")


# ---- Cases: Medusa ----


def medusa(layers, outputs=True):
    def make(case, target):
        modules = heads.medusa_modules(4, layers, HIDDEN, VOCABULARY, outputs)
        return heads.Medusa(modules, None if outputs else target.lm_head)

    return make


def vllm_medusa(layers, bias, rows, shared_output):
    def make(case, target):
        token_map = torch.from_numpy(generator("token_map").choice(VOCABULARY, 40, replace=False))
        return heads.VllmMedusa(4, layers, HIDDEN, rows, token_map, bias, shared_output)

    return make


def whole_model(case, target):
    return target.state_dict()


def medusa_config(heads_said=4, layers=1, **more):
    return BASE | {"medusa_num_heads": heads_said, "medusa_num_layers": layers} | more


def vllm_config(layers, **more):
    config = {"architectures": ["MedusaModel"], "model_type": "medusa", "hidden_size": HIDDEN, "vocab_size": VOCABULARY}
    numbers = {"num_heads": 4, "num_hidden_layers": layers, "max_paths": 64, "topk": 10, "truncated_vocab_size": 40}
    return config | numbers | more | {"transformers_version": "4.36.2"}


FROM_MEDUSA = "own transcription; logits and trees checked against the modules of FasterDecoding/Medusa at e2a5d20"
FROM_VLLM = "own transcription; logits checked against medusa.py of vllm 0.11.0, trees of Medusa's default shape"


def medusa_cases(target):
    common = {"format": "medusa", "file": "medusa_lm_head.safetensors", "tree": MEDUSA_TREE, "source": FROM_MEDUSA}
    full = target_config(target) | {"torch_dtype": "bfloat16", "medusa_num_heads": 4, "medusa_num_layers": 1}
    vllm = {"format": "medusa-vllm", "tree": MEDUSA_TREE, "source": FROM_VLLM}
    return [
        Case("medusa", make=medusa(1), config=medusa_config(), steps=4, **common),
        Case("medusa-2-layers", make=medusa(2), config=medusa_config(2, 2), steps=4,
             torch_file="medusa_lm_head.pt", **common),
        Case("medusa-shared-output", make=medusa(1, False), config=medusa_config(version="2"), steps=4, **common),
        Case("medusa-in-model", make=medusa(1), config=full, steps=4, prefix="medusa_head.", extra=whole_model,
             dtype=torch.bfloat16, **(common | {"file": "model.safetensors"})),
        Case("medusa-vllm-bias-map", make=vllm_medusa(2, True, 40, False), steps=4,
             config=vllm_config(2, medusa_fc_bias=True), **vllm),
        Case("medusa-vllm-one-output", make=vllm_medusa(1, False, VOCABULARY, True), steps=4, prefix="medusa_heads.",
             config=vllm_config(1, original_lm_head=True), **vllm),
    ]  # fmt: skip


# ---- Cases: MLPSpeculator ----


def mlp_speculator(prefix):
    return lambda case, target: heads.MlpSpeculator(case.config, prefix)


def mlp_config(tie, scale, inner, top_k, candidates):
    config = {"architectures": ["MLPSpeculatorPreTrainedModel"], "model_type": "mlp_speculator", "emb_dim": HIDDEN}
    sizes = {"vocab_size": VOCABULARY, "inner_dim": inner, "n_predict": len(top_k)}
    options = {"top_k_tokens_per_head": top_k, "n_candidates": candidates, "tie_weights": tie, "scale_input": scale}
    return config | sizes | options | {"torch_dtype": "float32", "transformers_version": "4.36.2"}


FROM_FMS = "own transcription; logits and trees checked against fms-extras at 16339f7 (ibm-fms 0.0.7)"


def mlp_speculator_cases():
    common = {"format": "mlp_speculator", "method": "mlp_speculator", "source": FROM_FMS}

    def case(name, config, prefix=True, **more):
        tree = {"top_k_tokens_per_head": config["top_k_tokens_per_head"], "n_candidates": config["n_candidates"]}
        return Case(name, make=mlp_speculator(prefix), config=config, steps=config["n_predict"], tree=tree,
                    **common, **more)  # fmt: skip

    twins = r"\.(emb|head|ln)\.[1-9]|proj\.[2-9]"  # transformers stores one name of a shared tensor
    return [
        case("mlp-speculator", mlp_config(False, False, 40, [5, 4, 3], 5)),
        case("mlp-speculator-scaled", mlp_config(False, True, 0, [4, 3, 2, 2], 6), prefix=False),
        case("mlp-speculator-tied", mlp_config(True, False, 40, [4, 3, 2, 2], 8), leave_out=twins,
             torch_file="pytorch_model.bin"),
        case("mlp-speculator-tied-scaled", mlp_config(True, True, 48, [3, 2, 2, 1, 1], 4), leave_out=twins),
    ]  # fmt: skip


# ---- Cases: Hydra ----


def prefix_layer(target):
    """A Llama of one layer, its own embedding and final norm included, whose inputs are the target's features."""
    config = copy.deepcopy(target.config)
    config.num_hidden_layers = 1
    return transformers.LlamaModel(config).eval()


def hydra(case, target):
    prefix = prefix_layer(target) if case.config["hydra_head_arch"] == "prefix-mlp" else None
    return heads.Hydra(case.config, target.model.embed_tokens, VOCABULARY, prefix)


def old_frequencies(case, target):
    """A buffer that the public code's Llama stores."""
    name = "prefix_embeding_layer.layers.0.self_attn.rotary_emb.inv_freq"
    return {name: target.model.rotary_emb.inv_freq}


def hydra_config(arch="mlp", layers=1, grounded=True, offset=0):
    names = {"hydra_head_arch": arch, "hydra_num_heads": 4, "hydra_num_layers": layers, "grounded_heads": grounded}
    return BASE | names | {"hidden_state_offset": offset}


FROM_HYDRA = "own transcription; logits and trees checked against the modules of zankner/Hydra at 3f39fbd"


def hydra_cases():
    common = {"format": "hydra", "make": hydra, "steps": 4, "file": "hydra_lm_head.safetensors", "method": "hydra",
              "tree": MEDUSA_TREE, "source": FROM_HYDRA}  # fmt: skip
    return [
        Case("hydra", config=hydra_config(), **common),
        Case("hydra-2-layers-offset", config=hydra_config(layers=2, offset=1), dtype=torch.bfloat16, **common),
        Case("hydra-ungrounded", config=hydra_config(layers=2, grounded=False), **common),
        Case(
            "hydra-prefix", config=hydra_config("prefix-mlp", 4), dtype=torch.bfloat16, extra=old_frequencies, **common
        ),
    ]


# ---- Cases: ReDrafter ----


def redrafter(case, target):
    return heads.Redrafter(case.config, target.model.embed_tokens, case.steps, case.tree["beam_width"])


def redrafter_config(rnn, exit_dim, layers):
    config = {"architectures": ["Drafter"], "model_type": "recurrent_drafting_drafter", "vocab_size": VOCABULARY}
    sizes = {"hidden_size": HIDDEN, "exit_dim": exit_dim, "num_draft_layers": layers, "num_lookback_tokens": -1}
    return config | sizes | {"rnn": rnn, "torch_dtype": "float32", "transformers_version": "4.36.2"}


FROM_REDRAFTER = "own transcription; logits and beams checked against apple/ml-recurrent-drafter at bd8586b"


def redrafter_cases():
    def case(name, config, length):
        """The length of a beam counts the root, as in the public code."""
        return Case(name, "redrafter", redrafter, config, length - 1, method="redrafter", source=FROM_REDRAFTER,
                    tree={"beam_width": 4, "beam_length": length})  # fmt: skip

    return [
        case("redrafter", redrafter_config(True, 2 * HIDDEN, 2), 4),
        case("redrafter-sum", redrafter_config(False, 2 * HIDDEN, 1), 4),
        case("redrafter-input-proj", redrafter_config(True, 48, 1), 5),
    ]


def all_cases(target):
    return medusa_cases(target) + mlp_speculator_cases() + hydra_cases() + redrafter_cases()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE")
    wanted = parser.parse_args().cases
    torch.set_grad_enabled(False)
    target = make_target()
    text = make_text()
    write_target(target, text)
    cases = all_cases(target)
    unknown = set(wanted) - {case.name for case in cases}
    if unknown:
        raise SystemExit(f"no such case: {', '.join(sorted(unknown))}")
    for case in cases:
        if not wanted or case.name in wanted:
            make_case(case, target, text)


if __name__ == "__main__":
    main()
