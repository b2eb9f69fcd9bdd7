#!/usr/bin/env python3
"""Makes the goldens of draft heads with attention over the target's features: tests/golden/heads/<case>/ for EAGLE,
EAGLE-3, P-EAGLE and multi-token prediction, and the tiny target they share. Run by hand, not by CI.

    python tests/golden/make_heads_eagle.py [CASE ...]    writes the folders (all of them by default)

Needs torch, transformers, safetensors and speculators. tests/golden/README.md describes what it writes.
"""

import argparse
import dataclasses
import importlib
import json

import numpy as np
import torch
import transformers

import heads_attention as plain
import heads_common as common
import heads_speculators as package
from heads_common import HIDDEN, VOCABULARY, Case

DRAFT_VOCABULARY = 40
INTERMEDIATE, SIZE, EPSILON = 16, 16, 0.01  # an epsilon that shows
OLD = {"hidden_act": "silu", "initializer_range": 0.02, "bos_token_id": 1, "eos_token_id": 2, "use_cache": True,
       "tie_word_embeddings": False, "torch_dtype": "float16", "transformers_version": "4.28.1"}  # fmt: skip
CHECKED = "chains and trees held against cnets.py of SafeAILab/EAGLE at cb7e084 on these weights"
EAGLE3_SOURCE = f"own transcription; {CHECKED}"
TRANSFORMERS = f"transformers {transformers.__version__}"
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
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden,
        "intermediate_size": INTERMEDIATE, "max_position_embeddings": 2048, "num_attention_heads": hidden // SIZE,
        "num_key_value_heads": 1, "num_hidden_layers": 1, "pad_token_id": 0, "rms_norm_eps": EPSILON,
        "vocab_size": VOCABULARY, "draft_vocab_size": DRAFT_VOCABULARY,
    } | OLD | more  # fmt: skip


def eagle3_shapes(hidden, features, rows=DRAFT_VOCABULARY):
    layer = shapes_of_layer(hidden, INTERMEDIATE, hidden // SIZE, 1, SIZE, 2 * hidden)
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
    config = eagle3_config(
        architectures=["LlamaForCausalLMEagle3"], head_dim=SIZE, eagle_config=said, rope_theta=3000.0
    )
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
    two = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
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


# ---- EAGLE and EAGLE-2: one format ----


def write_eagle(with_bias, **more):
    def write(case, target, random):
        shapes = {
            f"layers.0.{name}": shape
            for name, shape in shapes_of_layer(HIDDEN, INTERMEDIATE, 2, 1, SIZE, HIDDEN).items()
        }
        shapes |= {"fc.weight": (HIDDEN, 2 * HIDDEN)} | ({"fc.bias": (HIDDEN,)} if with_bias else {})
        if more.get("qkv_bias"):
            shapes |= {
                f"layers.0.self_attn.{name}_proj.bias": (size,) for name, size in (("q", 32), ("k", 16), ("v", 16))
            }
        tensors = filled(random, shapes) | {"embed_tokens.weight": target.embedding}
        for name in ("fc", "layers.0.self_attn.o_proj", "layers.0.mlp.down_proj"):
            tensors[f"{name}.weight"] *= 0.5  # there is no norm to keep the features from growing
        config = eagle3_config(**more)
        del config["draft_vocab_size"]
        write_files(case, config, tensors)

    return write


def eagle_cases():
    checked = "held against cnets1.py of SafeAILab/EAGLE at cb7e084 on these weights"
    source = f"own transcription; chains and trees {checked}"
    static = "own transcription; chains {}; the tree by the shape mc_sim_7b_63 of its choices.py".format(checked)

    def case(name, write, source=source, **more):
        return Case(name, "eagle", source, "eagle", write, open_plain(plain.Eagle1), **more)

    qwen2 = write_eagle(True, qkv_bias=True, rope_theta=7000.0)
    return [
        case("eagle", write_eagle(True)),
        case("eagle-static-tree", write_eagle(False, bias=False, rope_theta=7000.0), static, tree=common.STATIC_TREE),
        case("eagle-qkv-bias", qwen2),
    ]


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
    shapes |= {
        f"layers.1.{name}": shape for name, shape in shapes_of_layer(HIDDEN, INTERMEDIATE, 2, 1, SIZE, HIDDEN).items()
    }
    config = eagle3_config(
        architectures=["LlamaForCausalLMEagle3"], draft_vocab_size=VOCABULARY, num_hidden_layers=2,
        rope_theta=3000.0, ptd_token_id=MASK_TOKEN, eagle_aux_hidden_state_layer_ids=[1, 6],
        num_aux_hidden_states=2)  # fmt: skip
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


# ---- Multi-token prediction ----

DEEPSEEK = plain.MtpLayout(
    "model.layers.8.", "model.layers.8.enorm", "model.layers.8.hnorm", "model.layers.8.eh_proj",
    "model.layers.8.shared_head.norm", "model.layers.8.shared_head.head", first_embedding="zero")  # fmt: skip
GLM = dataclasses.replace(DEEPSEEK, recycled="before_norm")
MIMO = plain.MtpLayout(
    "model.mtp_layers.0.", "model.mtp_layers.0.token_layernorm", "model.mtp_layers.0.hidden_layernorm",
    "model.mtp_layers.0.input_proj", "model.mtp_layers.0.final_layernorm", hidden_first=True, feature="before_norm",
    first_embedding="zero")  # fmt: skip
QWEN = plain.MtpLayout(
    "mtp.layers.0.", "mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden", "mtp.fc", "mtp.norm", norm_offset=1.0
)
PACKAGED = plain.MtpLayout(
    "mtp_layers.0.", "mtp_layers.0.token_layernorm", "mtp_layers.0.hidden_layernorm", "mtp_layers.0.input_proj",
    "mtp_layers.0.final_layernorm", feature="before_norm")  # fmt: skip


def layer_classes(family):
    module = importlib.import_module(f"transformers.models.{family[0]}.modeling_{family[0]}")
    return getattr(module, f"{family[1]}DecoderLayer"), getattr(module, f"{family[2]}RotaryEmbedding")


def write_mtp(layout, config, extra=None):
    """The module's tensors alone; in the public files they stand among the target's."""

    def write(case, target, random):
        layer = config.get("text_config", config)
        heads, kv_heads, size = layer["num_attention_heads"], layer["num_key_value_heads"], layer.get("head_dim")
        plain_shapes = shapes_of_layer(HIDDEN, INTERMEDIATE, heads, kv_heads, size or SIZE, HIDDEN)
        without = ("mlp.",) * ("num_experts" in layer) + ("self_attn.", "mlp.") * ("kv_lora_rank" in layer)
        plain_shapes = {name: shape for name, shape in plain_shapes.items() if not name.startswith(without)}
        shapes = {layout.layer + name: shape for name, shape in plain_shapes.items()}
        shapes |= {f"{layout.project}.weight": (HIDDEN, 2 * HIDDEN), f"{layout.layer}input_layernorm.weight": (HIDDEN,)}
        for name in (layout.embedding_norm, layout.hidden_norm, layout.final_norm):
            shapes[f"{name}.weight"] = (HIDDEN,)
        tensors = filled(random, shapes | {layout.layer + name: shape for name, shape in (extra or {}).items()})
        for name in tensors:
            if "norm" in name:
                tensors[name] -= layout.norm_offset
        if layout.head:
            tensors |= {f"{layout.head}.weight": target.head, f"{layout.layer}embed_tokens.weight": target.embedding}
        write_files(case, config, tensors)

    return write


def joined_experts(tensors, prefix):
    """Experts that have a tensor each as transformers' layers hold them."""
    names = [name for name in tensors if name.startswith(f"{prefix}mlp.experts.")]
    if f"{prefix}mlp.experts.gate_up_proj" in tensors or not names:
        return tensors
    count = 1 + max(int(name.removeprefix(f"{prefix}mlp.experts.").split(".")[0]) for name in names)
    gate, up, down = (
        torch.stack([tensors[f"{prefix}mlp.experts.{i}.{matrix}_proj.weight"] for i in range(count)])
        for matrix in ("gate", "up", "down"))  # fmt: skip
    joined = {"gate_up_proj": torch.cat((gate, up), 1), "down_proj": down}
    return tensors | {f"{prefix}mlp.experts.{name}": tensor for name, tensor in joined.items()}


def open_mtp(layout, family):
    """The layer of transformers makes the golden, and the transcription must agree. It is one with full attention,
    whatever the model's first layer is."""

    def open_(case, target):
        config, tensors = common.load_head(common.ROOT / case.name / "head")
        kind = {"qwen3_5": "qwen3_5_text", "qwen3_5_moe": "qwen3_5_moe_text"}.get(family[0], family[0])
        known = transformers.AutoConfig.for_model(**config.get("text_config", config) | {"model_type": kind})
        known._experts_implementation = "eager"
        index = (getattr(known, "layer_types", None) or ["full_attention"]).index("full_attention")
        if "kv_lora_rank" in config:
            index = config["first_k_dense_replace"]  # the first one with experts
        joined = joined_experts(tensors, layout.layer)
        borrowed = package.borrow(*layer_classes(family), known, joined, layout.layer, index)
        latent = plain.LatentLayer(tensors, layout.layer, config) if "kv_lora_rank" in config else None
        return [plain.Mtp(config, tensors, target, layout, borrowed), plain.Mtp(config, tensors, target, layout, latent)]

    return open_


def open_packaged_mtp(layout):
    def open_(case, target):
        return [package.Mtp(case), plain.Mtp(*common.load_head(common.ROOT / case.name / "head"), target, layout)]

    return open_


def mtp_config(architecture, model_type, **more):
    return {
        "architectures": [architecture], "model_type": model_type, "vocab_size": VOCABULARY, "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE, "num_hidden_layers": common.LAYERS, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": SIZE, "hidden_act": "silu", "max_position_embeddings": 512,
        "rms_norm_eps": EPSILON, "rope_theta": 7000.0, "tie_word_embeddings": False, "num_nextn_predict_layers": 1,
    } | more  # fmt: skip


def biases(heads, kv_heads, size):
    return {
        f"self_attn.{name}_proj.bias": (count * size,)
        for name, count in (("q", heads), ("k", kv_heads), ("v", kv_heads))
    }


def norms(size):
    return {f"self_attn.{name}_norm.weight": (size,) for name in ("q", "k")}


def qwen35_config():
    text = mtp_config("Qwen3_5ForCausalLM", "qwen3_5_text", mtp_num_hidden_layers=1, attn_output_gate=True,
                      layer_types=["full_attention"] * common.LAYERS)  # fmt: skip
    del text["architectures"], text["rope_theta"], text["num_nextn_predict_layers"]
    text["rope_parameters"] = {"rope_type": "default", "rope_theta": 7000.0, "partial_rotary_factor": 0.5,
                               "mrope_section": [2, 1, 1], "mrope_interleaved": True}  # fmt: skip
    return {"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "text_config": text}


HYBRID = {
    "num_hidden_layers": 4, "layer_types": ["linear_attention"] * 3 + ["full_attention"], "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_value_head_dim": 16,
}  # fmt: skip
EXPERTS = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
           "shared_expert_intermediate_size": 16}  # fmt: skip


def hybrid_target_config():
    """A Qwen3.5 of four layers, three of them with linear attention."""
    config = common.target_config() | {"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text"} | HYBRID
    theta = config.pop("rope_theta")
    return config | {"rope_parameters": qwen35_config()["text_config"]["rope_parameters"] | {"rope_theta": theta}}


def draw_hybrid(random, name, shape, dtype):
    """Norms multiply with 1 + w, but for that of a linear layer. Steps and rates as they are drawn before training."""
    if name.endswith("A_log"):
        values = np.log(random.uniform(0.5, 16.0, shape))
    elif name.endswith("dt_bias"):
        steps = np.exp(random.uniform(np.log(1e-3), np.log(0.1), shape))
        values = steps + np.log(-np.expm1(-steps))
    else:
        values = common.value(random, name, shape, torch.float32).numpy()
        values = values - ("norm" in name and "linear_attn" not in name)
    return torch.from_numpy(values.astype(np.float32)).to(dtype).float()


def hybrid_config():
    config = qwen35_config()
    config["text_config"] |= HYBRID
    return config


def hybrid_moe_config():
    config = hybrid_config() | {"architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe"}
    config["text_config"] |= EXPERTS | {"model_type": "qwen3_5_moe_text"}
    del config["text_config"]["intermediate_size"]
    return config


def qwen3_next_config():
    """layer_types as published: unsaid, by full_attention_interval."""
    config = mtp_config("Qwen3NextForCausalLM", "qwen3_next", partial_rotary_factor=0.5, full_attention_interval=4,
                        norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[], rope_scaling=None,
                        **HYBRID, **EXPERTS)  # fmt: skip
    del config["layer_types"], config["num_nextn_predict_layers"]
    return config


def expert_shapes(joined):
    count, size = EXPERTS["num_experts"], EXPERTS["moe_intermediate_size"]
    shapes = {"mlp.gate.weight": (count, HIDDEN), "mlp.shared_expert_gate.weight": (1, HIDDEN)}
    matrices = {"gate_proj": (size, HIDDEN), "up_proj": (size, HIDDEN), "down_proj": (HIDDEN, size)}
    shapes |= {f"mlp.shared_expert.{name}.weight": shape for name, shape in matrices.items()}
    if joined:
        return shapes | {"mlp.experts.gate_up_proj": (count, 2 * size, HIDDEN),
                         "mlp.experts.down_proj": (count, HIDDEN, size)}  # fmt: skip
    return shapes | {
        f"mlp.experts.{i}.{name}.weight": shape for i in range(count) for name, shape in matrices.items()
    }


def latent_config(architecture, model_type, **more):
    """Transformers' norms of latents have an epsilon of their own: one for all here."""
    config = mtp_config(
        architecture, model_type, rms_norm_eps=1e-6, num_key_value_heads=2, first_k_dense_replace=1, kv_lora_rank=16,
        q_lora_rank=24, qk_nope_head_dim=16, qk_rope_head_dim=16, v_head_dim=32, moe_intermediate_size=16,
        n_shared_experts=1, norm_topk_prob=True, rope_scaling=None, **more)  # fmt: skip
    del config["head_dim"]
    return config


def latent_shapes(config):
    """Of its layer, with experts as published: a tensor for each matrix."""
    heads, size = config["num_attention_heads"], config["moe_intermediate_size"]
    plain_dim, turning, values = (config[key] for key in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    rank, query_rank = config["kv_lora_rank"], config["q_lora_rank"]
    attention = {
        "q_a_proj": (query_rank, HIDDEN), "q_b_proj": (heads * (plain_dim + turning), query_rank),
        "kv_a_proj_with_mqa": (rank + turning, HIDDEN), "kv_b_proj": (heads * (plain_dim + values), rank),
        "o_proj": (HIDDEN, heads * values), "q_a_layernorm": (query_rank,), "kv_a_layernorm": (rank,),
    }  # fmt: skip
    matrices = {"gate_proj": (size, HIDDEN), "up_proj": (size, HIDDEN), "down_proj": (HIDDEN, size)}
    modules = ["shared_experts", *(f"experts.{i}" for i in range(config["n_routed_experts"]))]
    shapes = {f"self_attn.{name}.weight": shape for name, shape in attention.items()}
    shapes |= {f"mlp.{module}.{name}.weight": shape for module in modules for name, shape in matrices.items()}
    experts = config["n_routed_experts"]
    return shapes | {"mlp.gate.weight": (experts, HIDDEN), "mlp.gate.e_score_correction_bias": (experts,)}


def write_packaged_mtp(model_type, offset, **layer):
    def write(case, target, random):
        package.write(case, random, "mtp", package.layer_config(model_type, **layer), {}, offset=offset)

    return write


def mtp_cases():
    def case(name, format_, write, open_, layout, source, **more):
        return Case(name, format_, source, "mtp", write, open_, 3, notes=layout.notes(), **more)

    def borrowed(name, format_, layout, config, family, extra, source, vllm="0.33.0", **more):
        source = f"own transcription of {source} of vLLM {vllm} around {family[1]}DecoderLayer of {TRANSFORMERS}"
        return case(name, format_, write_mtp(layout, config, extra), open_mtp(layout, family), layout, source, **more)

    deepseek = mtp_config("DeepseekV3ForCausalLM", "deepseek_v3")
    glm = mtp_config("Glm4MoeForCausalLM", "glm4_moe", partial_rotary_factor=0.5, attention_bias=True, use_qk_norm=True,
                     first_k_dense_replace=1)  # fmt: skip
    deepseek3 = latent_config("DeepseekV3ForCausalLM", "deepseek_v3", n_group=4, topk_group=2,
                              n_routed_experts=8, num_experts_per_tok=3, routed_scaling_factor=1.5, scoring_func="sigmoid", topk_method="noaux_tc")  # fmt: skip
    glm_lite = latent_config("Glm4MoeLiteForCausalLM", "glm4_moe_lite", n_group=1, topk_group=1,
                             n_routed_experts=4, num_experts_per_tok=2, routed_scaling_factor=1.8, topk_method="noaux_tc")  # fmt: skip
    mimo = mtp_config("MiMoForCausalLM", "mimo", num_hidden_layers=2, attention_bias=True)
    llama, qwen2, glm4 = ("llama", "Llama", "Llama"), ("qwen2", "Qwen2", "Qwen2"), ("glm4_moe", "Glm4Moe", "Glm4Moe")
    bias = biases(2, 1, SIZE)
    gate = {"self_attn.q_proj.weight": (2 * 2 * SIZE, HIDDEN)}
    two = {"layer_types": ["linear_attention", "full_attention"], "num_hidden_layers": 2,
           "rope_parameters": qwen35_config()["text_config"]["rope_parameters"]}  # fmt: skip
    gated = dataclasses.replace(PACKAGED, norm_offset=1.0)
    return [
        borrowed("mtp-deepseek", "deepseek-mtp", DEEPSEEK, deepseek, llama, {}, "deepseek_mtp.py"),
        borrowed("mtp-glm", "glm4-moe-mtp", GLM, glm, glm4, bias | norms(SIZE), "glm4_moe_mtp.py"),
        borrowed("mtp-deepseek-latent", "deepseek-mtp", DEEPSEEK, deepseek3,
                 ("deepseek_v3", "DeepseekV3", "DeepseekV3"), latent_shapes(deepseek3), "deepseek_mtp.py"),
        borrowed("mtp-glm-latent", "glm4-moe-lite-mtp", GLM, glm_lite, ("glm4_moe_lite", "Glm4MoeLite", "Glm4MoeLite"),
                 latent_shapes(glm_lite), "glm4_moe_lite_mtp.py", "at 055e47c"),
        borrowed("mtp-mimo", "mimo-mtp", MIMO, mimo, qwen2, bias, "mimo_mtp.py", target="target-qwen2"),
        borrowed("mtp-qwen3.5", "qwen3.5-mtp", QWEN, qwen35_config(), ("qwen3_5", "Qwen3_5", "Qwen3_5Text"),
                 gate | norms(SIZE), "qwen3_5_mtp.py"),
        borrowed("mtp-qwen3.5-hybrid", "qwen3.5-mtp", QWEN, hybrid_config(), ("qwen3_5", "Qwen3_5", "Qwen3_5Text"),
                 gate | norms(SIZE), "qwen3_5_mtp.py", target="target-qwen3.5"),
        borrowed("mtp-qwen3.5-moe", "qwen3.5-mtp", QWEN, hybrid_moe_config(),
                 ("qwen3_5_moe", "Qwen3_5Moe", "Qwen3_5MoeText"), gate | norms(SIZE) | expert_shapes(True),
                 "qwen3_5_mtp.py", target="target-qwen3.5"),
        borrowed("mtp-qwen3-next", "qwen3-next-mtp", QWEN, qwen3_next_config(), ("qwen3_next", "Qwen3Next", "Qwen3Next"),
                 gate | norms(SIZE) | expert_shapes(False), "qwen3_next_mtp.py", "at 055e47c", target="target-qwen3.5"),
        case("mtp-speculators", "speculators-mtp", write_packaged_mtp("qwen3", 0.0), open_packaged_mtp(PACKAGED),
             PACKAGED, package.SOURCE),
        case("mtp-speculators-qwen3.5", "speculators-mtp", write_packaged_mtp("qwen3_5_text", 1.0, **two),
             open_packaged_mtp(gated), gated, package.SOURCE),
    ]  # fmt: skip


def qwen2_config():
    config = common.target_config() | {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
    return config | {"num_hidden_layers": 2, "intermediate_size": 48}


TARGETS = {
    "target": (common.target_config, common.value), "target-qwen2": (qwen2_config, common.value),
    "target-qwen3.5": (hybrid_target_config, draw_hybrid),
}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="CASE")
    names = parser.parse_args().names
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    cases = eagle3_cases() + speculators_cases() + peagle_cases() + eagle_cases() + mtp_cases()
    unknown = set(names) - {case.name for case in cases}
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    for name, (config, draw) in TARGETS.items():
        if not names or not (common.ROOT / name).exists():
            common.make_target(common.ROOT / name, config(), name, draw)
    with torch.no_grad():
        targets = {}
        for case in cases:
            if not names or case.name in names:
                if case.target not in targets:
                    targets[case.target] = common.Target(common.ROOT / case.target)
                common.make_case(case, targets[case.target])


if __name__ == "__main__":
    main()
