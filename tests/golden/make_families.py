#!/usr/bin/env python3
"""Makes the tiny random models of tests/golden/families/ and records what transformers computes for them.
Run by hand, not by CI.

    python tests/golden/make_families.py [NAME ...]            writes the folders (all of them by default)
    python tests/golden/make_families.py --check [NAME ...]    measures: does leaving something out show?
    python tests/golden/make_families.py --as-llama-cpp FOLDER   writes there what check_gguf_with_llama_cpp.py may
                                                               compare where llama.cpp does not follow the file

Needs torch, transformers and safetensors. families/README.md describes what it writes.
"""

import argparse
import contextlib
import copy
import json
import re
import shutil
import struct
import tempfile
import zlib
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
import transformers
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

import hybrid_checks
from families_gemma4 import GEMMA4
from families_table import AS_LLAMA_CPP, DROP
from families_table import FAMILIES as OTHERS

ROOT = Path(__file__).resolve().parent / "families"
FAMILIES = OTHERS + GEMMA4
EXACT_FLOAT = torch.float32  # by this name also within double_precision()
VISIBLE = 1e-2  # mean KL divergence, in nats, above which a difference is visible
CLEAR = 1e-3  # how far, relatively, the last expert chosen must be before the first one that is not
ROUTER = r"(\.gate|\.router(\.layer)?)\.weight$"


# ---- Weights ----


def standard_deviation(name, shape, config, tied):
    """Such that attention has favourites, no term drowns another and logits spread over a few units."""
    if re.search(r"(embed_tokens|wte|lm_head)\.weight$", name):
        gain = 1.6 if config.model_type.startswith(("gemma3", "gemma4")) else 2.5  # its tied embedding favours the token itself
        return gain / shape[-1] ** 0.5 if tied or "lm_head" in name else 1.0
    if "embed_tokens_per_layer" in name:
        return 1.0 / config.hidden_size_per_layer_input**0.5
    if "wpe" in name:
        return 1.7 / shape[-1] ** 0.5
    if re.search(rf"{ROUTER}|router\.proj\.weight$", name):
        return 1.3 / shape[-1] ** 0.5
    if "shared_expert_gate" in name:
        return 2.0 / shape[-1] ** 0.5
    if re.search(r"linear_attn\.out_proj|mamba\.out_proj|in_proj_a", name):  # layers upon layers of them would be too sensitive
        return 0.6 / shape[-1] ** 0.5
    if hybrid_checks.is_hybrid(config) and "o_proj" in name:  # gates and averages leave little to it
        return 2.5 / shape[-1] ** 0.5
    if config.model_type == "gpt_oss" and ".experts." in name:  # [inputs, outputs]; limits are to be reached
        return (4.0 if "gate_up" in name else 0.25) / shape[-2] ** 0.5
    inputs = shape[-2] if config.model_type == "gpt2" else shape[-1]
    if name.endswith("experts.down_proj"):  # probabilities leave less of it
        return 2.0 / inputs**0.5
    return (1.8 if re.search(r"[qk]_proj|qkv_proj|c_attn", name) else 1.2) / inputs**0.5


def round_mantissa(values, bits):
    raw = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    drop = 23 - bits
    if drop:
        raw = (raw + np.uint32(1 << (drop - 1))) & np.uint32(0xFFFFFFFF << drop & 0xFFFFFFFF)
    return raw.view(np.float32)


def round_to_steps(values):
    """To a dozen values or so, which compress well. For most of a mixture, experts being many."""
    step = 2.0 ** np.floor(np.log2(values.std()))
    return (np.round(values / step) * step).astype(np.float32)


def decay(random, name, shape):
    """A_log and dt_bias as they are drawn before training: the state is halved within anything between one position and
    some hundreds."""
    if name.endswith("A_log"):
        return np.log(random.uniform(0.5, 16.0, shape))
    steps = np.exp(random.uniform(np.log(1e-3), np.log(0.1), shape))
    return steps + np.log(-np.expm1(-steps))  # whose softplus they are


def random_weights(shapes, config, family, seed=""):
    """Name -> float tensor, from a seed that is the name's; tied copies are left to the model."""
    random = np.random.Generator(np.random.PCG64(zlib.crc32((family.name + family.seed + seed).encode())))
    is_gemma4 = config.model_type.startswith("gemma4")
    one_more = config.model_type.startswith("gemma") and not is_gemma4 or hybrid_checks.is_hybrid(config)  # norms multiply with 1 + w
    mixture = any(".experts." in name for name in shapes)
    weights = {}
    for name, shape in shapes.items():
        values = random.standard_normal(shape)
        if re.search(r"A_log$|dt_bias$", name):
            values = decay(random, name, shape)
        elif re.search(r"layer_scalar$|router\.(per_expert_)?scale$", name):
            values = (1.0 if name.endswith("scalar") else 1.5) + 0.3 * values
        elif re.search(r"[qk]_norm\.weight$", name) and is_gemma4:  # scores are not divided
            values = 0.6 + 0.15 * values
        elif re.search(r"[qk]_(layer)?norm\.weight$", name):
            values = 1.5 - one_more + 0.3 * values
        elif re.search(r"(norm|norm_\w+|ln_\w+)\.weight$", name):
            values = 1.0 - (one_more and "linear_attn" not in name) + 0.3 * values
        elif name.endswith("sinks"):
            values = 1.0 + values
        elif re.search(r"[._]bias$", name):
            values *= 1.0 if ".experts." in name else 0.4
        else:
            values *= standard_deviation(name, shape, config, config.tie_word_embeddings)
        coarse = mixture and not re.search(rf"_attn\.|norm|bias|scal|router\.proj|{ROUTER}", name)
        rounded = round_to_steps(values) if coarse else round_mantissa(values, family.mantissa_bits)
        weights[name] = torch.from_numpy(rounded)
    return weights


# ---- Folders ----


def write_json(path, content):
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def save_plain(family, folder, model, dtype="float32", max_shard_size="5GB"):
    model.to(getattr(torch, dtype)).save_pretrained(folder, max_shard_size=max_shard_size)


def rewrite(folder, change):
    """Writes model.safetensors anew, through change(name -> tensor)."""
    path = folder / "model.safetensors"
    tensors = change(safetensors.torch.load_file(path))
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})


def save_old_llama(family, folder, model, dtype):
    save_plain(family, folder, model, dtype)
    frequencies = model.model.rotary_emb.inv_freq.float()
    names = [f"model.layers.{i}.self_attn.rotary_emb.inv_freq" for i in range(model.config.num_hidden_layers)]
    rewrite(folder, lambda tensors: {**tensors, **{name: frequencies.clone() for name in names}})


def save_gpt2_published(family, folder, model):
    save_plain(family, folder, model)
    size = model.config.n_positions
    mask = torch.tril(torch.ones(size, size)).view(1, 1, size, size)

    def change(tensors):
        tensors = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
        return tensors | {f"h.{i}.attn.bias": mask.clone() for i in range(model.config.n_layer)}

    rewrite(folder, change)


def save_vision(family, folder, model):
    save_plain(family, folder, model)
    random = torch.Generator().manual_seed(1)
    eye = {
        "vision_tower.vision_model.embeddings.position_embedding.weight": (4, 16),
        "vision_tower.vision_model.encoder.layers.0.self_attn.q_proj.weight": (16, 16),
        "vision_tower.vision_model.encoder.layers.0.self_attn.q_proj.bias": (16,),
        "multi_modal_projector.mm_input_projection_weight": (16, 32),
    }

    def change(tensors):
        tensors = {f"language_model.{name}": tensor for name, tensor in tensors.items()}
        return tensors | {name: torch.randn(shape, generator=random) for name, shape in eye.items()}

    rewrite(folder, change)


def save_gemma4_vision(family, folder, model):
    save_plain(family, folder, model)
    random = torch.Generator().manual_seed(1)
    eye = {
        "model.vision_tower.patch_embedder.input_proj.weight": (16, 48), "model.vision_tower.std_bias": (16,),
        "model.vision_tower.encoder.layers.0.self_attn.q_proj.linear.weight": (16, 16),
        "model.embed_vision.embedding_projection.weight": (32, 16),
    }  # fmt: skip
    unused = {f"model.language_model.layers.2.self_attn.{name}.weight": shape for name, shape in
              {"k_proj": (32, 32), "v_proj": (32, 32), "k_norm": (32,)}.items()}  # fmt: skip

    def change(tensors):
        tensors = {re.sub(r"^model\.", "model.language_model.", name): tensor for name, tensor in tensors.items()}
        return tensors | {name: torch.randn(shape, generator=random) for name, shape in (eye | unused).items()}

    rewrite(folder, change)


def next_token_module(family, model):
    """mtp.*: a layer like the model's with full attention, and what leads to it."""
    config = model.config
    full = config.layer_types.index("full_attention")
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    layer = {name.replace(f"model.layers.{full}.", "mtp.layers.0."): shape for name, shape in shapes.items()
             if name.startswith(f"model.layers.{full}.")}
    size = config.hidden_size
    norms = {f"mtp.{name}.weight": (size,) for name in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden")}
    return random_weights({"mtp.fc.weight": (size, 2 * size), **norms, **layer}, config, family, "mtp")


def split_experts(tensors):
    """Those that are joined, under the names that each has in published checkpoints."""
    out = {}
    for name, tensor in tensors.items():
        module, _, matrix = name.rpartition(".")
        if not module.endswith(".experts"):
            out[name] = tensor
            continue
        for i, one in enumerate(tensor):
            parts = one.chunk(2) if matrix == "gate_up_proj" else (one,)
            names = ("gate_proj", "up_proj") if matrix == "gate_up_proj" else (matrix,)
            out |= {f"{module}.{i}.{part}.weight": value.clone() for part, value in zip(names, parts)}
    return out


def save_published(family, folder, model):
    """With mtp.* and, where the configuration has an eye, tensors of it, and the text model's as they are called
    there."""
    save_plain(family, folder, model)
    seeing = "vision_config" in family.config
    random = torch.Generator().manual_seed(1)
    eye = {
        "model.visual.patch_embed.proj.weight": (16, 3, 2, 4, 4), "model.visual.patch_embed.proj.bias": (16,),
        "model.visual.pos_embed.weight": (16, 16), "model.visual.blocks.0.norm1.weight": (16,),
        "model.visual.blocks.0.attn.qkv.weight": (48, 16), "model.visual.blocks.0.attn.qkv.bias": (48,),
        "model.visual.blocks.0.mlp.linear_fc1.weight": (32, 16), "model.visual.merger.linear_fc2.weight": (32, 64),
    }

    def change(_):
        tensors = {name: value.float() for name, value in model.state_dict().items()}
        if model.config.tie_word_embeddings:
            del tensors["lm_head.weight"]
        tensors |= next_token_module(family, model)
        if not seeing:
            return split_experts(tensors)
        tensors = {re.sub(r"^model\.", "model.language_model.", name): tensor for name, tensor in tensors.items()}
        return tensors | {
            name: torch.randn(shape, generator=random).bfloat16().float() for name, shape in eye.items()}

    rewrite(folder, change)


def save_predicting(family, folder, model):
    """With a layer behind the model's that predicts the token after the next, as DeepSeek and GLM publish it."""
    save_plain(family, folder, model)
    config = model.config
    last, behind = (f"model.layers.{config.num_hidden_layers + i}." for i in (-1, 0))
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    module = {name.replace(last, behind): shape for name, shape in shapes.items() if name.startswith(last)}
    size = config.hidden_size
    module |= {f"{behind}{name}.weight": (size,) for name in ("enorm", "hnorm", "shared_head.norm")}
    module |= {f"{behind}eh_proj.weight": (size, 2 * size)}
    tensors = split_experts(random_weights(module, config, family, "mtp"))
    copies = {"embed_tokens": "model.embed_tokens", "shared_head.head": "lm_head"}
    rewrite(folder, lambda own: own | tensors | {
        f"{behind}{name}.weight": own[f"{of_model}.weight"].clone() for name, of_model in copies.items()})


def spread(scale, shape, block):
    """A scale for each block as one for each weight."""
    if block is None:
        return scale.reshape(1, 1).expand(shape)
    rows, columns = block[0], block[1] or shape[1]
    return scale.repeat_interleave(rows, 0).repeat_interleave(columns, 1)[: shape[0], : shape[1]]


def quantize_fp8(weight, block, scale_type):
    """FP8 (E4M3) codes and the scales that their blocks (None: the whole matrix) are multiplied with."""
    rows, columns = (weight.shape if block is None else (block[0], block[1] or weight.shape[1]))
    padded = torch.nn.functional.pad(weight, (0, -weight.shape[1] % columns, 0, -weight.shape[0] % rows))
    blocks = padded.view(padded.shape[0] // rows, rows, padded.shape[1] // columns, columns)
    scale = (blocks.abs().amax((1, 3)) / torch.finfo(torch.float8_e4m3fn).max).to(scale_type)
    codes = (weight / spread(scale.float(), weight.shape, (rows, columns))).clamp(-448, 448).to(torch.float8_e4m3fn)
    return codes, scale


def save_fp8(family, folder, model, block, suffix, scale, shape=None, input=False, ignore=()):
    save_plain(family, folder, model)

    def change(tensors):
        out = {}
        for name, tensor in tensors.items():
            module = name.removesuffix(".weight")
            if not module.endswith("_proj") or module in ignore:
                out[name] = tensor.to(torch.bfloat16)
                continue
            codes, scales = quantize_fp8(tensor, block, getattr(torch, scale))
            out[name] = codes
            out[f"{module}.{suffix}"] = scales if shape is None else scales.reshape(shape)
            if input:
                out[f"{module}.input_scale"] = torch.full(shape, 0.0625).to(scales.dtype)
        return out

    rewrite(folder, change)


FP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def quantize_mxfp4(weight):
    """[..., n] -> FP4 (E2M1), two codes in a byte, the lower one first, [..., n / 32, 16]; exponents [..., n / 32]."""
    blocks = weight.double().reshape(*weight.shape[:-1], -1, 32)
    largest = blocks.abs().amax(-1, keepdim=True).clamp(min=2.0**-100)
    exponents = torch.floor(torch.log2(largest)) - 2  # so that the largest is between 4 and 8, of which 6 is left
    distance = (blocks.abs() / 2.0**exponents).unsqueeze(-1) - torch.tensor(FP4).double()
    codes = distance.abs().argmin(-1) + 8 * (blocks < 0)
    return (codes[..., ::2] + 16 * codes[..., 1::2]).to(torch.uint8), (exponents.squeeze(-1) + 127).to(torch.uint8)


def save_mxfp4(family, folder, model):
    save_plain(family, folder, model)

    def change(tensors):
        out = {}
        for name, tensor in tensors.items():
            if re.search(r"experts\.\w+_proj$", name):  # blocks run along the inputs
                out[f"{name}_blocks"], out[f"{name}_scales"] = quantize_mxfp4(tensor.transpose(1, 2))
            else:
                out[name] = tensor.to(torch.bfloat16)
        return out

    rewrite(folder, change)


STORES = {
    "plain": save_plain, "old_llama": save_old_llama, "gpt2_published": save_gpt2_published, "vision": save_vision,
    "published": save_published, "predicting": save_predicting, "gemma4_vision": save_gemma4_vision, "fp8": save_fp8, "mxfp4": save_mxfp4,
}


def join_experts(weights):
    """Experts under the names of published checkpoints, as transformers' models hold them."""
    names = {"w1": "gate", "w2": "down", "w3": "up", "gate_proj": "gate", "down_proj": "down", "up_proj": "up"}
    joined, experts = {}, {}
    for name, value in weights.items():
        if match := re.fullmatch(r"(.*)\.(block_sparse_moe|mlp|feed_forward)\.experts\.(\d+)\.(\w+)\.weight", name):
            layer, module, expert, matrix = match.groups()
            module = module.replace("block_sparse_moe", "mlp")
            experts.setdefault(f"{layer}.{module}.experts", {}).setdefault(names[matrix], {})[int(expert)] = value
            continue
        name = name.replace(".block_sparse_moe.gate.", ".mlp.gate.")
        name = name.replace("moe.input_linear.weight", "moe.experts.gate_up_proj")
        name = name.replace("moe.output_linear.weight", "moe.experts.down_proj").replace(".router.layer.", ".router.")
        joined[name] = value
    for module, matrices in experts.items():
        gate, up, down = (torch.stack([matrices[name][i] for i in range(len(matrices[name]))])
                          for name in ("gate", "up", "down"))
        joined |= {f"{module}.gate_up_proj": torch.cat((gate, up), 1), f"{module}.down_proj": down}
    return joined


def read_weights(family, folder):
    """What the files say: name in the model -> double tensor, exactly."""
    raw = {}
    for path in sorted(folder.glob("*.safetensors")):
        raw |= safetensors.torch.load_file(path)
    weights = {}
    for name, tensor in raw.items():
        if re.search(r"_scales?(_inv)?$|inv_freq$|^vision|^multi_modal|^model\.(visual|vision_tower|embed_vision)\.|^mtp\.",
                     name) and not name.endswith("per_expert_scale"):  # fmt: skip
            continue
        if family.store == "predicting" and name.startswith(f"model.layers.{family.config['num_hidden_layers']}."):
            continue
        if family.store == "gemma4_vision" and re.search(r"layers\.2\.self_attn\.[kv]_", name):
            continue
        if name.endswith("_blocks"):
            name = name.removesuffix("_blocks")
            scales = raw[f"{name}_scales"]
            weights[name] = convert_moe_packed_tensors(tensor, scales, dtype=EXACT_FLOAT).double()
            continue
        if family.store == "gpt2_published":
            if name.endswith(".attn.bias"):
                continue
            name = f"transformer.{name}"
        value = tensor.double()
        if tensor.dtype == torch.float8_e4m3fn:
            scale = raw[f"{name.removesuffix('weight')}{family.options['suffix']}"].double()
            value = value * spread(scale, tensor.shape, family.options["block"])
        weights[name.removeprefix("language_model.").replace("model.language_model.", "model.")] = value
    return join_experts(weights)


# ---- Logits ----


@contextlib.contextmanager
def double_precision():
    """Models ask by name for float32 in norms, softmax and rotary tables, whatever the type of their weights."""
    names = ("float32", "float")
    saved = {name: getattr(torch, name) for name in names}
    method = torch.Tensor.float
    for name in names:
        setattr(torch, name, torch.float64)
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        for name in names:
            setattr(torch, name, saved[name])
        torch.Tensor.float = method
        torch.set_default_dtype(torch.float32)


def read_config(content):
    """The text model's configuration as transformers understands a config.json."""
    with tempfile.TemporaryDirectory() as folder:
        write_json(Path(folder) / "config.json", {k: v for k, v in content.items() if k != "quantization_config"})
        return transformers.AutoConfig.from_pretrained(folder).get_text_config()


def new_model(config, dtype=torch.float32):
    """Of a copy of the configuration: models write into theirs."""
    return transformers.AutoModelForCausalLM.from_config(
        copy.deepcopy(config), attn_implementation="eager", experts_implementation="eager", dtype=dtype).eval()


def load(model, weights):
    missing, unexpected = model.load_state_dict(weights, strict=False)
    if unexpected or set(missing) - {"lm_head.weight"}:
        raise SystemExit(f"missing {missing}, unexpected {unexpected}")
    if missing:
        if not model.config.tie_word_embeddings:
            raise SystemExit("lm_head.weight is missing from an untied model")
        model.tie_weights()


def lead(values, count):
    """How far the first that is left out lies below the last of the `count` best, as a share of the latter."""
    best = values.sort(-1, descending=True).values
    if best.shape[-1] == count:
        return torch.ones(len(best))
    return (best[:, count - 1] - best[:, count]) / best[:, count - 1].abs()


def grouped_leads(router, logits, chosen):
    """The same of a router with groups or a correction, for groups and for the experts of those that are chosen."""
    count = chosen.shape[-1]
    corrected = hasattr(router, "e_score_correction_bias")
    scores = logits.sigmoid() + router.e_score_correction_bias if corrected else logits.softmax(-1)
    leads = []
    if corrected or router.topk_method != "greedy":
        groups = scores.unflatten(-1, (router.num_group, -1))
        of_group = groups.sort(-1, descending=True).values[..., : 2 if corrected else 1].sum(-1)
        leads.append(lead(of_group, router.topk_group))
        taken = of_group >= of_group.sort(-1, descending=True).values[:, router.topk_group - 1 : router.topk_group]
        scores = groups.masked_fill(~taken.unsqueeze(-1), -1e9).flatten(-2)
    if (scores.topk(count).indices.sort(-1).values != chosen.sort(-1).values).any():
        raise SystemExit("a router does not choose the best of the best groups")
    return torch.stack([*leads, lead(scores, count)]).amin(0)


def check_routers(model):
    """Has routers refuse what is not double, and returns a list for how clearly each row chose its experts: how far the
    probability of the first that is left out lies below that of the last that is taken, as a share of the latter."""
    margins = []

    def hook(module, arguments, output):
        scores, weights, chosen = output
        if any(value.dtype != torch.float64 or (value == value.to(EXACT_FLOAT)).all() for value in (scores, weights)):
            raise SystemExit("a router does not compute in double")
        if type(module).__name__.startswith("Lfm2"):
            compared = scores.sigmoid() + (arguments[1] if module.use_expert_bias else 0.0)
            if (compared.topk(chosen.shape[-1]).indices.sort(-1).values != chosen.sort(-1).values).any():
                raise SystemExit("a router does not choose the best")
            margins.extend(lead(compared, chosen.shape[-1]).tolist())
            return
        if type(module).__name__.startswith("Gemma4"):
            margins.extend(lead(scores, chosen.shape[-1]).tolist())
            return
        if hasattr(module, "routed_scaling_factor"):
            margins.extend(grouped_leads(module, scores, chosen).tolist())
            return
        best = scores.sort(-1, descending=True)
        count = chosen.shape[-1]
        if (best.indices[:, :count] != chosen).any():
            raise SystemExit("a router does not choose the best")
        margins.extend((1 - (best.values[:, count] - best.values[:, count - 1]).exp()).tolist())

    for module in model.modules():
        if type(module).__name__.endswith("Router"):
            module.register_forward_hook(hook)
    return margins


def check_linear_attention(model):
    """Has layers with linear attention refuse what is not double."""

    def hook(module, args):
        value = args[0]
        if value.dtype != torch.float64 or (value == value.to(EXACT_FLOAT)).all():
            raise SystemExit("linear attention does not compute in double")

    for module in model.modules():
        if type(module).__name__.endswith("RMSNormGated"):
            module.register_forward_pre_hook(hook)


def logits(config, weights, sequences, clear=False):
    """[length, vocabulary] for each sequence, computed in double throughout. clear: choices of experts must be."""
    with double_precision(), torch.no_grad():
        model = new_model(config, torch.float64)
        load(model, weights)
        for name, value in [*model.named_parameters(), *model.named_buffers()]:
            if value.is_floating_point() and value.dtype != torch.float64:
                raise SystemExit(f"{name} is not double")
            if "inv_freq" in name and (value == value.to(EXACT_FLOAT)).all():
                raise SystemExit(f"{name} is rounded to float")
        margins = check_routers(model) if clear else []
        check_linear_attention(model)
        rows = [model(torch.tensor([ids]), use_cache=False).logits[0].numpy() for ids in sequences]
        if margins:
            print(f"  experts: {len(margins)} choices, the closest by {min(margins):.1e} of the probability")
        if margins and min(margins) < CLEAR:
            raise SystemExit("a choice of experts is too close: give the family another seed")
        return rows


def token_sequences(family, vocab):
    random = np.random.Generator(np.random.PCG64(zlib.crc32(b"tokens of " + family.name.encode())))
    return [random.integers(0, vocab, length).tolist() for length in family.lengths]


def log_softmax(rows):
    rows = rows - rows.max(-1, keepdims=True)
    return rows - np.log(np.exp(rows).sum(-1, keepdims=True))


def divergence(reference, other):
    """Mean KL(reference || other) over all positions of all sequences."""
    p, q = (log_softmax(np.concatenate(rows)) for rows in (reference, other))
    return float((np.exp(p) * (p - q)).sum(-1).mean())


# ---- The two things to do ----


def write_golden(path, sequences, rows):
    vocab = rows[0].shape[1]
    blob = bytearray(b"AERIELGT" + struct.pack("<3I", 1, vocab, len(sequences)))
    for ids, values in zip(sequences, rows):
        blob += struct.pack("<I", len(ids)) + np.array(ids, "<i4").tobytes() + values.astype("<f4").tobytes()
    path.write_bytes(blob)


def own_float_model(folder, family):
    """The folder as transformers itself opens it, in float; not for what it cannot open without more packages."""
    if family.store in ("fp8", "mxfp4", "gemma4_vision"):
        return None
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager").eval()


def largest_difference(model, sequences, rows):
    with torch.no_grad():
        own = [model(torch.tensor([ids]), use_cache=False).logits[0].double().numpy() for ids in sequences]
    return max(float(np.abs(a - b).max()) for a, b in zip(own, rows))


def make(family):
    folder = ROOT / family.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    config = read_config(family.config)
    model = new_model(config)
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    load(model, random_weights(shapes, model.config.get_text_config(), family))
    STORES[family.store](family, folder, model, **family.options)
    written = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if "text_config" not in family.config and family.store not in ("fp8", "mxfp4"):
        write_json(folder / "config.v5.json", written)
    write_json(folder / "config.json", family.config)

    weights = read_weights(family, folder)
    sequences = token_sequences(family, config.vocab_size)
    rows = logits(config, weights, sequences, clear=True)
    write_golden(folder / "golden.bin", sequences, rows)
    about = {
        "class": type(model).__name__, "note": family.note, "sequences": [len(ids) for ids in sequences],
        "transformers": transformers.__version__, "torch": torch.__version__.split("+")[0],
    }
    if family.store == "fp8":
        rounded = {name: value.to(torch.bfloat16).double() for name, value in weights.items()}
        about["kl_if_weights_are_rounded_to_bf16"] = float(f"{divergence(rows, logits(config, rounded, sequences)):.2g}")
    write_json(folder / "golden.json", about)
    for path in folder.iterdir():
        path.chmod(0o644)

    if (label := hybrid_checks.rewritten(config)) is not None:
        with hybrid_checks.doing(label, config):
            again = logits(config, weights, sequences)
        if max(np.abs(a - b).max() for a, b in zip(rows, again)) > 1e-9:
            raise SystemExit(f"{family.name}: position by position the state comes to something else")
    if (folder / "config.v5.json").exists():
        again = logits(read_config(written), weights, sequences)
        if any((a != b).any() for a, b in zip(rows, again)):
            raise SystemExit(f"{family.name}: the two configurations differ")
    if (own := own_float_model(folder, family)) is not None:
        difference = largest_difference(own, sequences, rows)
        if difference > 2e-3:
            raise SystemExit(f"{family.name}: transformers' own reading of the folder differs by {difference}")
        print(f"  transformers in float differs by at most {difference:.1e}")
    probability = np.exp(log_softmax(np.concatenate(rows)).max(-1))
    size = sum(path.stat().st_size for path in folder.iterdir())
    packed = sum(len(zlib.compress(path.read_bytes())) for path in folder.iterdir())
    print(f"{family.name}: {size // 1000} kB, {packed // 1000} kB packed; first token's probability "
          f"{probability.mean():.2f} on average, {probability.min():.2f} to {probability.max():.2f}")


def check(family):
    folder = ROOT / family.name
    weights = read_weights(family, folder)
    config = read_config(family.config)
    sequences = token_sequences(family, config.vocab_size)
    rows = logits(config, weights, sequences)

    def report(label, config, weights):
        kl = divergence(rows, logits(config, weights, sequences))
        print(f"{family.name:<28} {label:<32} mean KL {kl:8.2e}{'' if kl > VISIBLE else '   NOT VISIBLE'}")
        return kl > VISIBLE

    seen = True
    for label, override in family.config_checks.items():
        changed = {key: value for key, value in {**family.config, **override}.items() if value is not DROP}
        seen &= report(label, read_config(changed), weights)
    for label, (pattern, value) in family.weight_checks.items():
        change = value if callable(value) else lambda tensor, to=value: torch.full_like(tensor, to)
        hit = {name: change(tensor) if re.search(pattern, name) else tensor for name, tensor in weights.items()}
        seen &= report(label, config, hit)
    for label in family.code_checks:
        with hybrid_checks.doing(label, config):
            seen &= report(label, config, weights)
    return seen


def make_as_llama_cpp(family, target):
    """The family's weights with a configuration that llama.cpp follows, and what transformers computes then."""
    folder = target / family.name
    shutil.copytree(ROOT / family.name, folder)
    (folder / "config.v5.json").unlink(missing_ok=True)
    changed = {**family.config, **AS_LLAMA_CPP[family.name]}
    write_json(folder / "config.json", changed)
    config = read_config(changed)
    sequences = token_sequences(family, config.vocab_size)
    write_golden(folder / "golden.bin", sequences, logits(config, read_weights(family, folder), sequences))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="folders; all by default")
    parser.add_argument("--check", action="store_true", help="write nothing; measure what changes of a model change")
    parser.add_argument("--as-llama-cpp", type=Path, metavar="FOLDER", help="write only variants, to this folder")
    args = parser.parse_args()
    unknown = set(args.names) - {family.name for family in FAMILIES}
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    chosen = [family for family in FAMILIES if not args.names or family.name in args.names]
    if args.check:
        raise SystemExit(0 if all([check(family) for family in chosen]) else 1)
    for family in chosen:
        if not args.as_llama_cpp:
            make(family)
        elif family.name in AS_LLAMA_CPP:
            make_as_llama_cpp(family, args.as_llama_cpp)


if __name__ == "__main__":
    main()
