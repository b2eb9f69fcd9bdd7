#!/usr/bin/env python3
"""Makes the goldens of draft heads with attention over the target's features: tests/golden/heads/<case>/ for EAGLE,
EAGLE-3, P-EAGLE and multi-token prediction, and the tiny target they share. Run by hand, not by CI.

    python tests/golden/make_heads_eagle.py [CASE ...]    writes the folders (all of them by default)

Needs torch, transformers, safetensors and speculators. tests/golden/README.md describes what it writes.
"""

import argparse
import json

import torch
import transformers

import heads_attention as plain
import heads_common as common
import heads_speculators as package
from heads_common import HIDDEN, VOCABULARY, Case

DRAFT_VOCABULARY = 40
OLD = {"hidden_act": "silu", "initializer_range": 0.02, "bos_token_id": 1, "eos_token_id": 2, "use_cache": True,
       "tie_word_embeddings": False, "torch_dtype": "float16", "transformers_version": "4.28.1"}  # fmt: skip
CHECKED = "chains and trees held against cnets.py of SafeAILab/EAGLE at cb7e084 on these weights"
EAGLE3_SOURCE = f"own transcription; {CHECKED}"
VLLM_SOURCE = "own transcription of llama_eagle3.py of vLLM 0.33.0"


def open_plain(kind):
    def open_(case, target):
        return [kind(*common.load_head(common.ROOT / case.name / "head"), target)]

    return open_


def vocabulary_map(case):
    """d2t holds offsets: row i of the head is the token i + d2t[i]. t2d says which tokens have a row."""
    chosen = common.generator(f"{case.name} d2t").choice(VOCABULARY, DRAFT_VOCABULARY, replace=False)
    chosen = torch.from_numpy(chosen).sort().values
    t2d = torch.zeros(VOCABULARY, dtype=torch.bool)
    t2d[chosen] = True
    return {"d2t": chosen - torch.arange(DRAFT_VOCABULARY), "t2d": t2d}


def shapes_of_layer(hidden, intermediate, heads, kv_heads, size, width):
    """name -> shape; width: of what the queries, keys and values are made of"""
    shapes = {f"self_attn.{name}_proj.weight": (count * size, width)
              for name, count in (("q", heads), ("k", kv_heads), ("v", kv_heads))}  # fmt: skip
    shapes["self_attn.o_proj.weight"] = (hidden, heads * size)
    shapes |= {f"mlp.{name}_proj.weight": (intermediate, hidden) for name in ("gate", "up")}
    return shapes | {"mlp.down_proj.weight": (hidden, intermediate), "post_attention_layernorm.weight": (hidden,)}


def filled(random, shapes, dtype=torch.float32):
    return {name: common.value(random, name, shape, dtype) for name, shape in shapes.items()}


def write_files(case, config, tensors, dtype=torch.float32, torch_file=None):
    folder = common.ROOT / case.name / "head"
    common.write_json(folder / "config.json", config)
    common.save_tensors(folder / "model.safetensors", tensors, dtype)
    if torch_file:
        torch.save({name: tensor.clone() for name, tensor in tensors.items()}, folder / torch_file)


# ---- EAGLE-3 as its authors publish it ----


def eagle3_config(hidden=HIDDEN, **more):
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden, "intermediate_size": 48,
        "max_position_embeddings": 2048, "num_attention_heads": hidden // 16, "num_key_value_heads": 1,
        "num_hidden_layers": 1, "pad_token_id": 0, "rms_norm_eps": 1e-5, "vocab_size": VOCABULARY,
        "draft_vocab_size": DRAFT_VOCABULARY,
    } | OLD | more  # fmt: skip


def eagle3_shapes(hidden, features, rows=DRAFT_VOCABULARY):
    layer = shapes_of_layer(hidden, 48, hidden // 16, 1, 16, 2 * hidden)
    layer |= {"hidden_norm.weight": (hidden,), "input_layernorm.weight": (hidden,)}
    shapes = {f"midlayer.{name}": shape for name, shape in layer.items()}
    shapes |= {"fc.weight": (hidden, features)} if features else {}
    return shapes | {"norm.weight": (hidden,), "lm_head.weight": (rows, hidden)}


def write_eagle3(case, target, random):
    tensors = filled(random, eagle3_shapes(HIDDEN, 3 * HIDDEN)) | vocabulary_map(case)
    write_files(case, eagle3_config(), tensors, torch_file="pytorch_model.bin")


def write_eagle3_own_width(case, target, random):
    shapes = eagle3_shapes(48, 3 * HIDDEN) | {"embed_tokens.weight": (VOCABULARY, 48)}
    config = eagle3_config(48, target_hidden_size=HIDDEN, rope_theta=3000.0)
    write_files(case, config, filled(random, shapes) | vocabulary_map(case))


def write_no_taps(case, target, random):
    said = {"use_aux_hidden_state": False, "eagle_aux_hidden_state_layer_ids": [], "use_mtp_layernorm": False,
            "use_input_layernorm_in_first_layer": True, "use_last_layernorm": True}  # fmt: skip
    config = eagle3_config(architectures=["LlamaForCausalLMEagle3"], head_dim=16, eagle_config=said, rope_theta=3000.0)
    write_files(case, config, filled(random, eagle3_shapes(HIDDEN, None)) | vocabulary_map(case))


def eagle3_cases():
    def case(name, write, source=EAGLE3_SOURCE, **more):
        return Case(name, "eagle3", source, "eagle3", write, open_plain(plain.Eagle3), **more)

    return [
        case("eagle3", write_eagle3),
        case("eagle3-own-width", write_eagle3_own_width),
        case("eagle3-no-taps", write_no_taps, f"{VLLM_SOURCE}; {CHECKED}"),
    ]


# ---- EAGLE-3 as the package speculators has it ----


def write_speculators(model_type="llama", layer=None, full=False, change=None, dtype=torch.float32, **flags):
    def write(case, target, random):
        mapped = {} if full else vocabulary_map(case)
        rows = VOCABULARY if full else DRAFT_VOCABULARY
        config = package.layer_config(model_type, **(layer or {}))
        package.write(case, random, "eagle3", config, mapped, dtype, draft_vocab_size=rows, **flags)
        if change:
            change(case, dtype)

    return write


def open_speculators(case, target):
    """The package makes the golden, and the transcription must agree."""
    return [package.Eagle3(case), *open_plain(plain.Eagle3)(case, target)]


def without_embedding(case, dtype):
    folder = common.ROOT / case.name / "head"
    _, tensors = common.load_head(folder)
    del tensors["embed_tokens.weight"]
    common.save_tensors(folder / "model.safetensors", tensors, dtype)


LLAMA3_ROPE = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 32}  # fmt: skip


def rope_as_before(case, dtype):
    """rope_theta and rope_scaling stand apart in files older than transformers 5."""
    path = common.ROOT / case.name / "head" / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    del config["transformer_layer_config"]["rope_parameters"]
    config["transformer_layer_config"] |= {"rope_theta": 5000.0, "rope_scaling": LLAMA3_ROPE}
    common.write_json(path, config)


def first_step_agrees(case, target):
    """The package's training keeps the window of the row where drafting began; a draft's own position counts here."""
    ours, theirs = open_plain(plain.Eagle3)(case, target)[0], package.Eagle3(case)
    text = common.generator(case.name).integers(3, VOCABULARY, common.TEXT).tolist()
    for n in (common.PROMPT, common.TEXT - 1):
        assert torch.allclose(ours.run(text, n, [])[0], theirs.run(text, n, [])[0], atol=2e-4)
    return [ours]


def speculators_cases():
    def case(name, write, open_=open_speculators, source=package.SOURCE, **more):
        return Case(f"eagle3-speculators{name}", "speculators-eagle3", source, "eagle3", write, open_, **more)

    taps = {"eagle_aux_hidden_state_layer_ids": [2, 4, 5]}
    two = {"num_hidden_layers": 2}
    rope = {"rope_parameters": LLAMA3_ROPE | {"rope_theta": 5000.0}}
    kinds = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 9, "use_sliding_window": True}
    window = two | kinds | {"max_window_layers": 0}
    biased = two | {"attention_bias": True, "mlp_bias": True}
    return [
        case("", write_speculators(**taps)),
        case("-residual", write_speculators(change=without_embedding, norm_before_residual=True)),
        case("-norm-fc", write_speculators(norm_before_fc=True, norm_before_residual=True, **taps)),
        case("-fc-norm-output", write_speculators(fc_norm=True, norm_output=True, **taps)),
        case("-qwen3", write_speculators("qwen3", two, norm_before_residual=True, **taps)),
        case("-qwen3-window", write_speculators("qwen3", window, **taps), first_step_agrees,
             f"own transcription of qwen3_eagle3.py of vLLM 0.33.0; first steps held against {package.SOURCE}"),
        case("-own-embedding", write_speculators(embed_requires_grad=True, **taps)),
        case("-bias-4-taps", write_speculators(layer=biased, eagle_aux_hidden_state_layer_ids=[1, 3, 6, 7])),
        case("-2-taps", write_speculators(eagle_aux_hidden_state_layer_ids=[3, 8], fc_norm=True)),
        case("-llama3-rope-bf16", write_speculators(layer=rope, change=rope_as_before, dtype=torch.bfloat16, **taps)),
        case("-full-vocabulary", write_speculators(full=True, **taps)),
    ]  # fmt: skip


# ---- P-EAGLE ----

PARALLEL = {"tree": "parallel", "num_speculative_tokens": 11, "top_k": 4}
MASK_TOKEN = 2


def open_peagle(case, target):
    files = common.load_head(common.ROOT / case.name / "head")
    return [plain.PEagle(*files, target, case.steps, case.tree)]


class PackagedPEagle(package.PEagle):
    def draft(self, text, n):
        return plain.parallel_draft(self, self.outputs(text, n), self.case.tree)


def open_packaged_peagle(case, target):
    return [PackagedPEagle(case), *open_peagle(case, target)]


def write_packaged_peagle(layer, **flags):
    def write(case, target, random):
        config = package.layer_config("llama", num_hidden_layers=2, **layer)
        package.write(case, random, "peagle", config, vocabulary_map(case), draft_vocab_size=DRAFT_VOCABULARY,
                      mask_token_id=MASK_TOKEN, eagle_aux_hidden_state_layer_ids=[2, 4, 5], **flags)  # fmt: skip

    return write


def write_peagle(case, target, random):
    """As vLLM reads it outside of speculators' format: one flat config.json, the mask token under another key."""
    shapes = eagle3_shapes(HIDDEN, 2 * HIDDEN, VOCABULARY) | {"mask_hidden": (1, 1, 2 * HIDDEN)}
    shapes |= {"embed_tokens.weight": (VOCABULARY, HIDDEN), "layers.1.input_layernorm.weight": (HIDDEN,)}
    shapes |= {f"layers.1.{name}": shape for name, shape in shapes_of_layer(HIDDEN, 48, 2, 1, 16, HIDDEN).items()}
    config = eagle3_config(
        architectures=["LlamaForCausalLMEagle3"], draft_vocab_size=VOCABULARY, num_hidden_layers=2, rope_theta=3000.0,
        ptd_token_id=MASK_TOKEN, eagle_aux_hidden_state_layer_ids=[1, 6], num_aux_hidden_states=2)  # fmt: skip
    write_files(case, config, filled(random, shapes))


def peagle_cases():
    def case(name, format_, steps, write, open_, source):
        settings = {"parallel_drafting": True}
        return Case(name, format_, source, "eagle3", write, open_, steps, tree=PARALLEL, settings=settings)

    biased = {"attention_bias": True}
    packaged = ("speculators-peagle", 4, write_packaged_peagle({}), open_packaged_peagle, package.SOURCE)
    residual = write_packaged_peagle(biased, norm_before_residual=True, norm_before_fc=True)
    return [
        case("peagle-speculators", *packaged),
        case("peagle-speculators-residual", "speculators-peagle", 8, residual, open_packaged_peagle, package.SOURCE),
        case("peagle", "peagle", 4, write_peagle, open_peagle, VLLM_SOURCE),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="CASE")
    names = parser.parse_args().names
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    cases = eagle3_cases() + speculators_cases() + peagle_cases()
    unknown = set(names) - {case.name for case in cases}
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    if not (common.TARGET / "config.json").exists() or not names:
        common.make_target()
    with torch.no_grad():
        targets = {}
        for case in cases:
            if not names or case.name in names:
                if case.target not in targets:
                    targets[case.target] = common.Target(common.ROOT / case.target)
                common.make_case(case, targets[case.target])


if __name__ == "__main__":
    main()
