#!/usr/bin/env python3
"""Makes the goldens of heads that draft blocks: tests/golden/heads/<case>/ for DFlash and DSpark. Run by hand, not by CI.

    python tests/golden/make_heads_block.py [CASE ...]    writes the folders (all by default)

Needs torch, transformers and safetensors, and tests/golden/heads/target. With --dflash, dflash/model.py of
z-lab/dflash, and --deepspec, the folder of deepseek-ai/DeepSpec, the transcriptions are held against that code on the
same weights first. tests/golden/README.md describes what is written.
"""

import argparse
import importlib
import importlib.util
import sys

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
DEEPSPEC = "own transcription; logits and confidences held against deepseek-ai/DeepSpec at afdfa7c on these weights"
PACKAGED = "own transcription of speculators' dspark (vllm-project/speculators)"
FULL, SLIDING = "full_attention", "sliding_attention"
public_code = {}  # by the source that says so: the class of a model


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


def write_spark(kind, confidence=None):
    """confidence: whether its head sees the token before, too; None: there is none"""

    def write(case, target, random):
        rank = 8
        config = deepspec_config(2, case.steps, markov_rank=rank, markov_head_type=kind)
        more = {"markov_head.markov_w1.weight": (VOCABULARY, rank), "markov_head.markov_w2.weight": (VOCABULARY, rank)}
        if kind == "gated":
            more |= {"markov_head.gate_proj.weight": (rank, HIDDEN + rank), "markov_head.gate_proj.bias": (rank,)}
        if kind == "rnn":
            wide = HIDDEN + 2 * rank
            more |= {"markov_head.joint_proj.weight": (3 * rank, wide), "markov_head.joint_proj.bias": (3 * rank,)}
        if confidence is not None:
            config |= {"enable_confidence_head": True, "confidence_head_with_markov": confidence}
            more |= {"confidence_head.proj.weight": (1, HIDDEN + confidence * rank), "confidence_head.proj.bias": (1,)}
        tensors = eagle.filled(random, shapes(2, 2) | more)
        tensors["markov_head.markov_w1.weight"] *= 3.0
        tensors |= {"embed_tokens.weight": target.embedding, "lm_head.weight": target.head}
        eagle.write_files(case, config, tensors)

    return write


def write_packaged_spark(case, target, random):
    """As the package speculators names things, with a vocabulary of its own, drafting behind the root's row."""
    rank = 8
    config = {
        "architectures": ["DSparkSpeculator"], "speculators_model_type": "dspark", "block_size": case.steps + 1,
        "draft_vocab_size": eagle.DRAFT_VOCABULARY, "aux_hidden_state_layer_ids": [2, 5],
        "mask_token_id": MASK_TOKEN, "sample_from_anchor": False, "markov_rank": rank, "markov_head_type": "vanilla",
        "enable_confidence_head": True, "confidence_head_with_markov": True, "sliding_window_non_causal": False,
        "transformer_layer_config": layer_config(2),
    }  # fmt: skip
    more = {"lm_head.weight": (eagle.DRAFT_VOCABULARY, HIDDEN), "confidence_head.proj.weight": (1, HIDDEN + rank),
            "markov_head.markov_w1.weight": (VOCABULARY, rank), "confidence_head.proj.bias": (1,),
            "markov_head.markov_w2.weight": (eagle.DRAFT_VOCABULARY, rank)}  # fmt: skip
    tensors = eagle.filled(random, shapes(2, 2) | more) | {"embed_tokens.weight": target.embedding}
    eagle.write_files(case, config, tensors | eagle.vocabulary_map(case))


def open_head(case, target):
    kind = block.Spark if case.method == "dspark" else block.Block
    ours = kind(*common.load_head(common.ROOT / case.name / "head"), target, case.steps, case.tree)
    if case.source in public_code:
        hold_against_public(case, ours)
    return [ours]


def hold_against_public(case, ours):
    config = transformers.Qwen3Config(**{name: ours.config[name] for name in layer_config(1)})
    for name, value in ours.flags.items():
        if name not in layer_config(1) and name != "transformer_layer_config":
            setattr(config, name, value)
    taps = {"mask_token_id": ours.flags["mask_token_id"], "target_layer_ids": [tap - 1 for tap in ours.taps()]}
    config.dflash_config, config.num_target_layers = taps, common.LAYERS
    config._attn_implementation = "eager"
    model = public_code[case.source](config).eval()
    model.load_state_dict({name: ours.tensors[name] for name in model.state_dict()}, strict=True)
    matches = block.matches_public if case.source == SOURCE else block.matches_deepspec
    text = common.fixed_text()
    for n in (common.PROMPT, common.TEXT - 1):
        assert matches(ours, model, text, n), f"{case.name}: the public code drafts something else"


def cases():
    def case(name, write, source=SOURCE, steps=4):
        return Case(name, "dflash", source, "dflash", write, open_head, steps, tree=TREE)

    def spark(name, write, source=DEEPSPEC):
        return Case(name, "dspark", source, "dspark", write, open_head)

    return [
        spark("dspark", write_spark("vanilla")),
        spark("dspark-gated", write_spark("gated")),
        spark("dspark-rnn", write_spark("rnn", confidence=False)),
        spark("dspark-confidence", write_spark("vanilla", confidence=True)),
        spark("dspark-speculators", write_packaged_spark, PACKAGED),
        case("dflash", write_plain),
        case("dflash-usual-taps", write_usual_taps, steps=3),
        case("dflash-windows", write_windows, ORDERED),
        case("dflash-speculators", write_packaged),
        case("dflash-from-root", write_from_root, DEEPSPEC),
    ]


def open_public(dflash, deepspec):
    if dflash:
        spec = importlib.util.spec_from_file_location("public_dflash", dflash)
        code = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(code)
        public_code[SOURCE] = code.DFlashDraftModel
    if deepspec:
        sys.path.insert(0, deepspec)
        public_code[DEEPSPEC] = importlib.import_module("deepspec.modeling.dspark.qwen3.modeling").Qwen3DSparkModel


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="CASE")
    parser.add_argument("--dflash", metavar="MODEL.PY")
    parser.add_argument("--deepspec", metavar="FOLDER")
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    unknown = set(args.names) - {case.name for case in cases()}
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    open_public(args.dflash, args.deepspec)
    with torch.no_grad():
        target = common.Target(common.TARGET)
        for case in cases():
            if not args.names or case.name in args.names:
                common.make_case(case, target)


if __name__ == "__main__":
    main()
