#!/usr/bin/env python3
"""Makes the goldens of heads that draft blocks: tests/golden/heads/<case>/ for DFlash. Run by hand, not by CI.

    python tests/golden/make_heads_block.py [CASE ...] [--public MODEL.PY]    writes the folders (all by default)

Needs torch, transformers and safetensors, and tests/golden/heads/target. With --public, dflash/model.py of
z-lab/dflash, the transcription is held against that code on the same weights first. tests/golden/README.md describes
what is written.
"""

import argparse
import importlib.util

import torch
import transformers

import heads_block as block
import heads_common as common
import make_heads_eagle as eagle
from heads_common import HIDDEN, VOCABULARY, Case

TREE = {"tree": "parallel", "num_speculative_tokens": 11, "top_k": 4}
MASK_TOKEN, SIZE = 2, 16
SOURCE = "own transcription; logits held against dflash/model.py of z-lab/dflash at 44947fb on these weights"
ORDERED = "own transcription of qwen3_dflash.py of vLLM"
DEEPSPEC = "own transcription of deepseek-ai/DeepSpec at afdfa7c"
FULL, SLIDING = "full_attention", "sliding_attention"
public_code = None


def layer_config(layers, **more):
    return {
        "model_type": "qwen3", "hidden_size": HIDDEN, "intermediate_size": 16, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": SIZE, "num_hidden_layers": layers, "hidden_act": "silu",
        "rms_norm_eps": 0.01, "rope_theta": 3000.0, "max_position_embeddings": 2048, "vocab_size": VOCABULARY,
        "attention_bias": False, "layer_types": [FULL] * layers, "sliding_window": None, "use_sliding_window": False,
        "max_window_layers": layers, "tie_word_embeddings": False, "attention_dropout": 0.0,
    } | more  # fmt: skip


def flat_config(layers, steps, **more):
    own = {"mask_token_id": MASK_TOKEN, "target_layer_ids": [1, 3, 6][:layers]}
    return (
        {"architectures": ["DFlashDraftModel"], "block_size": steps + 1, "num_target_layers": common.LAYERS}
        | layer_config(layers)
        | {"dflash_config": own}
        | more
    )


def shapes(layers, taps):
    found = {"fc.weight": (HIDDEN, taps * HIDDEN), "hidden_norm.weight": (HIDDEN,), "norm.weight": (HIDDEN,)}
    norms = {"input_layernorm.weight": (HIDDEN,)}
    norms |= {f"self_attn.{name}_norm.weight": (SIZE,) for name in "qk"}
    for i in range(layers):
        layer = eagle.shapes_of_layer(HIDDEN, 16, 2, 1, SIZE, HIDDEN) | norms
        found |= {f"layers.{i}.{name}": shape for name, shape in layer.items()}
    return found


def write_plain(case, target, random):
    eagle.write_files(case, flat_config(2, case.steps), eagle.filled(random, shapes(2, 2)))


def write_usual_taps(case, target, random):
    """Three layers, and so three taps where none are named; a table of embeddings and a mask of its own."""
    own = {"mask_token_id": VOCABULARY}
    tensors = eagle.filled(random, shapes(3, 3) | {"embed_tokens.weight": (VOCABULARY + 1, HIDDEN)})
    eagle.write_files(case, flat_config(3, case.steps + 3, dflash_config=own), tensors)


def write_windows(case, target, random):
    windows = {"layer_types": [SLIDING, FULL], "sliding_window": 7, "use_sliding_window": True}
    tensors = eagle.filled(random, shapes(2, 2) | {"mask_embedding": (HIDDEN,)})
    eagle.write_files(case, flat_config(2, case.steps, **windows), tensors)


def write_packaged(case, target, random):
    """As the package speculators names things, with a vocabulary of its own."""
    config = {
        "architectures": ["DFlashSpeculator"], "speculators_model_type": "dflash", "block_size": case.steps + 1,
        "draft_vocab_size": eagle.DRAFT_VOCABULARY, "aux_hidden_state_layer_ids": [0, 2, 5],
        "mask_token_id": MASK_TOKEN, "sample_from_anchor": False, "sliding_window_non_causal": False,
        "transformer_layer_config": layer_config(2),
    }  # fmt: skip
    more = {"lm_head.weight": (eagle.DRAFT_VOCABULARY, HIDDEN)}
    tensors = eagle.filled(random, shapes(2, 3) | more) | {"embed_tokens.weight": target.embedding}
    eagle.write_files(case, config, tensors | eagle.vocabulary_map(case))


def deepspec_config(layers, steps, **more):
    said = {"architectures": ["Qwen3DSparkModel"], "num_target_layers": common.LAYERS, "block_size": steps,
            "mask_token_id": MASK_TOKEN, "target_layer_ids": [-1, 3, 6][-layers:], "num_anchors": 8,
            "enable_confidence_head": False, "markov_rank": 0}  # fmt: skip
    return layer_config(layers) | said | more


def write_from_root(case, target, random):
    """DFlash as DeepSpec trains it: the root's row drafts too, and copies of the target's matrices are in the file."""
    tensors = eagle.filled(random, shapes(2, 2))
    tensors |= {"embed_tokens.weight": target.embedding, "lm_head.weight": target.head}
    eagle.write_files(case, deepspec_config(2, case.steps), tensors)


def open_block(case, target):
    ours = block.Block(*common.load_head(common.ROOT / case.name / "head"), target, case.steps, case.tree)
    if public_code is not None and case.source == SOURCE:
        hold_against_public(case, ours)
    return [ours]


def hold_against_public(case, ours):
    config = transformers.Qwen3Config(**{name: ours.config[name] for name in layer_config(1)})
    config.dflash_config = {"mask_token_id": ours.flags["mask_token_id"]}
    config.dflash_config["target_layer_ids"] = [tap - 1 for tap in ours.taps()]
    config.num_target_layers, config.block_size = common.LAYERS, case.steps + 1
    config._attn_implementation = "eager"
    model = public_code.DFlashDraftModel(config).eval()
    held = {name: ours.tensors[name] for name in model.state_dict()}
    model.load_state_dict(held, strict=True)
    text = common.fixed_text()
    for n in (common.PROMPT, common.TEXT - 1):
        assert block.matches_public(ours, model, text, n), f"{case.name}: the public code drafts something else"


def cases():
    def case(name, write, source=SOURCE, steps=4):
        return Case(name, "dflash", source, "dflash", write, open_block, steps, tree=TREE)

    return [
        case("dflash", write_plain),
        case("dflash-usual-taps", write_usual_taps, steps=3),
        case("dflash-windows", write_windows, ORDERED),
        case("dflash-speculators", write_packaged),
        case("dflash-from-root", write_from_root, DEEPSPEC),
    ]


def main():
    global public_code
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="CASE")
    parser.add_argument("--public", metavar="MODEL.PY")
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    unknown = set(args.names) - {case.name for case in cases()}
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    if args.public:
        spec = importlib.util.spec_from_file_location("public_dflash", args.public)
        public_code = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(public_code)
    with torch.no_grad():
        target = common.Target(common.TARGET)
        for case in cases():
            if not args.names or case.name in args.names:
                common.make_case(case, target)


if __name__ == "__main__":
    main()
