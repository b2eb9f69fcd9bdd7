"""The models of tests/golden/families/: their config.json as published checkpoints write it, how their weights are
stored, and what must show in the logits. make_families.py turns a row into a folder."""

from dataclasses import dataclass, field

DROP = object()  # in an override: the key is absent


@dataclass
class Family:
    name: str
    config: dict
    # Sequence lengths. Windows, rope scaling and learned positions need the longest.
    lengths: tuple = (5, 19, 48)
    # How the weights are written: a function of make_families.py.
    store: str = "plain"
    options: dict = field(default_factory=dict)
    # Fewer mantissa bits than float's 23 make the file smaller under compression; still more than F16 or BF16 hold.
    mantissa_bits: int = 12
    # Label -> changed keys of the configuration, each of which must change the logits visibly (--check).
    config_checks: dict = field(default_factory=dict)
    # Label -> (pattern of tensor names, value or function of the tensor): the same for weights set to one value.
    weight_checks: dict = field(default_factory=dict)
    # Labels of CODE_CHECKS in hybrid_checks.py: the same for what the code does.
    code_checks: tuple = ()
    note: str = ""
    # Of the weights, beside the name: changed until no choice between experts is close.
    seed: str = ""


NORMS = {"all norms 1": (r"(norm|ln_\w+)\.weight$", 1.0)}
GEMMA_NORMS = {"all norms 1": (r"norm\.weight$", 0.0)}
BIASES = {"no biases": (r"\.bias$", 0.0)}
QK_NORMS = {"q and k norms 1": (r"[qk]_norm\.weight$", 1.0)}
ROUTERS = {"routers zero": (r"\.(gate|router)\.weight$", 0.0)}


LATENT = {"no latent": (r"kv_a_layernorm", 0.0), "norms of latents 1": (r"_a_layernorm\.weight$", 1.0)}


SHARED_EXPERT = {
    "no shared expert": (r"shared_expert\.down_proj", 0.0), "half of the shared expert": (r"shared_expert_gate", 0.0),
    "shared expert alone": (r"experts\.down_proj", 0.0),
}


def last_tap(weight):
    """A convolution that sees the current position alone."""
    return weight * (weight.new_tensor(range(weight.shape[-1])) == weight.shape[-1] - 1)


def without_gates(weight):
    """q_proj whose gates are all one half. Of each head the upper half of the rows are gates; heads have 32."""
    return (weight.unflatten(0, (-1, 2, 32)) * weight.new_tensor([1.0, 0.0]).view(2, 1, 1)).flatten(0, 2)


# Of layers with linear attention: what must show when it is left out, or done another way.
HYBRID = {
    "norms multiply with w": (r"(?<!linear_attn\.)norm\.weight$", lambda weight: weight - 1),
    "norm of linear layers with 1 + w": (r"linear_attn\.norm\.weight$", lambda weight: weight + 1),
    "norms of linear layers 1": (r"linear_attn\.norm\.weight$", 1.0),
    "q and k norms 1": (r"[qk]_norm\.weight$", 0.0), "gates of attention one half": (r"q_proj\.weight$", without_gates),
    "convolution's last tap": (r"conv1d\.weight$", last_tap),
    "convolution turned round": (r"conv1d\.weight$", lambda weight: weight.flip(-1)),
    "no bias of steps": (r"dt_bias$", 0.0), "no decay": (r"A_log$", -30.0), "no memory": (r"A_log$", 10.0),
    "same decay in all heads": (r"A_log$", 1.0),
}
# How long queries are shows through the epsilon of the norm behind them alone.
HYBRID_CODE = (
    "beta 1", "no convolution", "no SiLU behind it", "keys as they are", "read before written", "no delta",
    "heads of keys tiled", "no gate", "sigmoid for the gate's SiLU", "gate before the norm",
    "state lost after 64 positions", "convolution's window lost after 64 positions",
)


GPT_OSS_YARN = {
    "beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 512, "rope_type": "yarn",
    "truncate": False,
}


DEEPSEEK_YARN = {
    "beta_fast": 32, "beta_slow": 1, "factor": 8, "mscale": 0.707, "mscale_all_dim": 0.707,
    "original_max_position_embeddings": 512, "type": "yarn",
}


def common(architecture, model_type, **keys):
    base = {
        "architectures": [architecture],
        "model_type": model_type,
        "vocab_size": 96,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "hidden_act": "silu",
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-05,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "initializer_range": 0.02,
        "torch_dtype": "float32",
        "use_cache": True,
    }
    base.update(keys)
    return {key: value for key, value in base.items() if value is not DROP}


def llama(**keys):
    base = {"attention_bias": False, "mlp_bias": False, "pretraining_tp": 1, "rope_scaling": None}
    return common("LlamaForCausalLM", "llama", **{**base, **keys})


def mistral(**keys):
    return common("MistralForCausalLM", "mistral", **keys)


def qwen2(**keys):
    base = {"attention_dropout": 0.0, "use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 2}
    return common("Qwen2ForCausalLM", "qwen2", **{**base, "rms_norm_eps": 1e-06, **keys})


def qwen3(**keys):
    base = {"attention_bias": False, "head_dim": 32, "rope_scaling": None, "rope_theta": 1000000}
    window = {"use_sliding_window": False, "sliding_window": None, "max_window_layers": 2}
    return common("Qwen3ForCausalLM", "qwen3", **{**base, **window, "rms_norm_eps": 1e-06, **keys})


def qwen2_moe(**keys):
    base = {
        "attention_dropout": 0.0, "use_sliding_window": False, "sliding_window": 32768, "max_window_layers": 2,
        "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "decoder_sparse_step": 1, "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 48, "num_experts_per_tok": 2, "num_experts": 5, "norm_topk_prob": False,
        "output_router_logits": False, "router_aux_loss_coef": 0.001,
    }
    return common("Qwen2MoeForCausalLM", "qwen2_moe", **{**base, **keys})


def qwen3_moe(**keys):
    base = {
        "attention_bias": False, "attention_dropout": 0.0, "head_dim": 16, "rope_scaling": None,
        "rope_theta": 1000000.0, "rms_norm_eps": 1e-06, "use_sliding_window": False, "sliding_window": None,
        "max_window_layers": 2, "decoder_sparse_step": 1, "mlp_only_layers": [], "moe_intermediate_size": 32,
        "num_experts_per_tok": 2, "num_experts": 8, "norm_topk_prob": True, "output_router_logits": False,
        "router_aux_loss_coef": 0.001,
    }
    return common("Qwen3MoeForCausalLM", "qwen3_moe", **{**base, **keys})


def linear_attention(**keys):
    """Two heads of keys for four of values, and a quarter of the 32 dimensions of a head turn."""
    base = {
        "attention_bias": False, "attention_dropout": 0.0, "head_dim": 32, "rms_norm_eps": 1e-06,
        "max_position_embeddings": 256, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 16,
        "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_value_head_dim": 16, "num_hidden_layers": 4,
    }
    return {**base, **keys}


def qwen3_next(**keys):
    base = linear_attention(
        decoder_sparse_step=1, full_attention_interval=4, mlp_only_layers=[], moe_intermediate_size=16,
        norm_topk_prob=True, num_experts=5, num_experts_per_tok=2, output_router_logits=False,
        partial_rotary_factor=0.25, rope_scaling=None, rope_theta=10000000, router_aux_loss_coef=0.001,
        shared_expert_intermediate_size=16, intermediate_size=48)
    return common("Qwen3NextForCausalLM", "qwen3_next", **{**base, **keys})


INTERLEAVED = {
    "mrope_interleaved": True, "mrope_section": [2, 1, 1], "partial_rotary_factor": 0.25, "rope_theta": 10000000,
    "rope_type": "default",
}


def qwen35(kind="qwen3_5", architecture="Qwen3_5ForCausalLM", **keys):
    base = linear_attention(
        attn_output_gate=True, full_attention_interval=4, mamba_ssm_dtype="float32", mtp_num_hidden_layers=1,
        mtp_use_dedicated_embeddings=False, rope_parameters=INTERLEAVED, rope_theta=DROP, intermediate_size=48,
        bos_token_id=None)
    return common(architecture, f"{kind}_text", **{**base, **keys})


def qwen35_moe(**keys):
    base = {
        "intermediate_size": DROP, "moe_intermediate_size": 16, "num_experts": 5, "num_experts_per_tok": 2,
        "router_aux_loss_coef": 0.001, "shared_expert_intermediate_size": 16,
    }
    return qwen35("qwen3_5_moe", "Qwen3_5MoeForCausalLM", **{**base, **keys})


def seeing(architecture, text):
    """The configuration of a model that also sees, around that of its text model."""
    kind = text["model_type"].removesuffix("_text")
    outer = {
        "architectures": [architecture], "image_token_id": 90, "model_type": kind,
        "text_config": without(text, "architectures"), "tie_word_embeddings": text["tie_word_embeddings"],
        "video_token_id": 91, "vision_end_token_id": 93, "vision_start_token_id": 92,
    }
    eye = {
        "model_type": kind, "depth": 1, "hidden_size": 16, "hidden_act": "gelu_pytorch_tanh", "in_channels": 3,
        "intermediate_size": 32, "num_heads": 1, "num_position_embeddings": 16, "out_hidden_size": 32, "patch_size": 4,
        "spatial_merge_size": 2, "temporal_patch_size": 2,
    }
    return {**outer, "vision_config": eye}


def in_text(config, **keys):
    """An override for the text model inside of such a configuration."""
    changed = {**config["text_config"], **keys}
    return {"text_config": {key: value for key, value in changed.items() if value is not DROP}}


def mixtral(**keys):
    base = {
        "attention_dropout": 0.0, "intermediate_size": 32, "rope_theta": 1000000.0, "sliding_window": None,
        "num_local_experts": 8, "num_experts_per_tok": 2, "output_router_logits": False, "router_aux_loss_coef": 0.02,
    }
    return common("MixtralForCausalLM", "mixtral", **{**base, **keys})


def olmoe(**keys):
    base = {
        "attention_bias": False, "attention_dropout": 0.0, "clip_qkv": None, "intermediate_size": 32,
        "num_key_value_heads": 2, "rope_scaling": None, "rms_norm_eps": DROP, "bos_token_id": DROP, "pad_token_id": 1,
        "num_experts": 6, "num_experts_per_tok": 3, "norm_topk_prob": False, "output_router_logits": False,
        "router_aux_loss_coef": 0.01,
    }
    return common("OlmoeForCausalLM", "olmoe", **{**base, **keys})


def granitemoe(**keys):
    base = {
        "attention_bias": False, "attention_dropout": 0.1, "intermediate_size": 32, "rms_norm_eps": 1e-06,
        "rope_scaling": None, "embedding_multiplier": 2.0, "residual_multiplier": 0.6, "attention_multiplier": 0.125,
        "logits_scaling": 1.6, "num_local_experts": 5, "num_experts_per_tok": 2, "output_router_logits": False,
        "router_aux_loss_coef": 0.0, "tie_word_embeddings": True, "bos_token_id": 0, "eos_token_id": 0,
        "pad_token_id": 0,
    }
    return common("GraniteMoeForCausalLM", "granitemoe", **{**base, **keys})


def granite_hybrid(**keys):
    """Four heads of 16 in the state space, and queries and keys that do not turn."""
    base = {
        "intermediate_size": 48, "shared_intermediate_size": 48, "num_local_experts": 0, "num_experts_per_tok": 0,
        "layer_types": ["mamba", "mamba", "attention", "mamba"], "num_hidden_layers": 4, "mamba_chunk_size": 64,
        "mamba_conv_bias": True, "mamba_d_conv": 4, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_expand": 2,
        "mamba_n_groups": 1, "mamba_n_heads": 4, "mamba_proj_bias": False, "normalization_function": "rmsnorm",
        "position_embedding_type": "nope", "max_position_embeddings": 256, "rms_norm_eps": 1e-05,
        "init_method": "mup",
    }
    names = {"architectures": ["GraniteMoeHybridForCausalLM"], "model_type": "granitemoehybrid"}
    return {**granitemoe(**{**base, **keys}), **names}


def lfm2(**keys):
    """As LFM2-1.2B's: widths of blocks of 16, and the layers that have attention counted."""
    base = {
        "block_auto_adjust_ff_dim": True, "block_dim": 32, "block_ff_dim": 90, "block_ffn_dim_multiplier": 1.0,
        "block_mlp_init_scale": 1.0, "block_multiple_of": 16, "block_norm_eps": 1e-05, "block_out_init_scale": 1.0,
        "block_use_swiglu": True, "block_use_xavier_init": True, "conv_L_cache": 3, "conv_bias": False, "conv_dim": 32,
        "conv_dim_out": 32, "conv_use_xavier_init": True, "eos_token_id": 7, "full_attn_idxs": [1, 3],
        "intermediate_size": DROP, "hidden_act": DROP, "max_position_embeddings": 256, "norm_eps": 1e-05,
        "num_heads": 2, "num_hidden_layers": 4, "pad_token_id": 0, "rms_norm_eps": DROP, "rope_theta": 1000000.0,
        "tie_word_embeddings": DROP, "use_pos_enc": True,
    }
    return common("Lfm2ForCausalLM", "lfm2", **{**base, **keys})


def lfm2_moe(**keys):
    base = {
        "conv_L_cache": 3, "conv_bias": False, "hidden_act": DROP, "intermediate_size": 48,
        "layer_types": ["conv", "full_attention", "conv"], "max_position_embeddings": 256,
        "moe_intermediate_size": 16, "norm_eps": 1e-05, "norm_topk_prob": True, "num_dense_layers": 1,
        "num_experts": 6, "num_experts_per_tok": 2, "num_hidden_layers": 3, "rms_norm_eps": DROP,
        "rope_theta": 1000000.0, "routed_scaling_factor": 1.0, "tie_embedding": True, "tie_word_embeddings": DROP,
        "use_expert_bias": True, "eos_token_id": 7, "pad_token_id": 0,
    }
    return common("Lfm2MoeForCausalLM", "lfm2_moe", **{**base, **keys})


def gpt_oss(**keys):
    base = {
        "attention_bias": True, "attention_dropout": 0.0, "experts_per_token": 2, "head_dim": 16,
        "initial_context_length": 512, "intermediate_size": 32, "layer_types": ["sliding_attention", "full_attention"],
        "max_position_embeddings": 16384, "num_attention_heads": 3, "num_experts_per_tok": 2, "num_local_experts": 5,
        "output_router_logits": False, "pad_token_id": 94, "eos_token_id": 95, "bos_token_id": DROP,
        "rope_scaling": GPT_OSS_YARN, "rope_theta": 150000, "router_aux_loss_coef": 0.9, "sliding_window": 8,
        "swiglu_limit": 7.0,
    }
    return common("GptOssForCausalLM", "gpt_oss", **{**base, **keys})


def deepseek(architecture, model_type, **keys):
    base = {
        "attention_bias": False, "attention_dropout": 0.0, "aux_loss_alpha": 0.001, "first_k_dense_replace": 1,
        "kv_lora_rank": 32, "moe_intermediate_size": 32, "moe_layer_freq": 1, "n_routed_experts": 8,
        "n_shared_experts": 1, "num_experts_per_tok": 3, "num_key_value_heads": 2,
        "max_position_embeddings": 4096, "pretraining_tp": 1, "q_lora_rank": 48, "qk_nope_head_dim": 32,
        "qk_rope_head_dim": 16, "rms_norm_eps": 1e-06, "rope_scaling": DEEPSEEK_YARN, "seq_aux": True,
        "v_head_dim": 32,
    }
    return common(architecture, model_type, **{**base, **keys})


def deepseek2(**keys):
    base = {
        "n_group": 4, "norm_topk_prob": False, "routed_scaling_factor": 3.0, "scoring_func": "softmax",
        "topk_group": 2, "topk_method": "group_limited_greedy",
    }
    return deepseek("DeepseekV2ForCausalLM", "deepseek_v2", **{**base, **keys})


def deepseek3(**keys):
    base = {
        "ep_size": 1, "n_group": 4, "norm_topk_prob": True, "num_nextn_predict_layers": 1,
        "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "topk_group": 2, "topk_method": "noaux_tc",
    }
    return deepseek("DeepseekV3ForCausalLM", "deepseek_v3", **{**base, **keys})


def glm4_moe_lite(**keys):
    base = {
        "aux_loss_alpha": DROP, "seq_aux": DROP, "moe_layer_freq": DROP, "pretraining_tp": DROP, "n_group": 1,
        "norm_topk_prob": True, "num_nextn_predict_layers": 1, "partial_rotary_factor": 1.0, "pad_token_id": 94,
        "eos_token_id": [94, 95], "bos_token_id": DROP, "rms_norm_eps": 1e-05, "rope_scaling": None,
        "rope_theta": 1000000, "routed_scaling_factor": 1.8, "topk_group": 1, "topk_method": "noaux_tc",
    }
    return deepseek("Glm4MoeLiteForCausalLM", "glm4_moe_lite", **{**base, **keys})


def gemma2(**keys):
    base = {
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "num_hidden_layers": 3,
        "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh", "rms_norm_eps": 1e-06,
        "query_pre_attn_scalar": 64, "attn_logit_softcapping": 3.0, "final_logit_softcapping": 5.0,
        "sliding_window": 8, "sliding_window_size": 8, "cache_implementation": "hybrid",
        "bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0, "tie_word_embeddings": DROP,
    }
    return common("Gemma2ForCausalLM", "gemma2", **{**base, **keys})


def gemma3(**keys):
    base = {
        "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 16, "num_hidden_layers": 4,
        "hidden_act": DROP, "hidden_activation": "gelu_pytorch_tanh", "rms_norm_eps": 1e-06, "intermediate_size": 48,
        "query_pre_attn_scalar": 24, "attn_logit_softcapping": None, "final_logit_softcapping": None,
        "sliding_window": 8, "rope_theta": 1000000, "rope_local_base_freq": 10000, "rope_scaling": None,
        "attention_bias": False, "cache_implementation": "hybrid",
        "bos_token_id": 2, "eos_token_id": [1, 5], "pad_token_id": 0, "tie_word_embeddings": DROP,
    }
    return common("Gemma3ForCausalLM", "gemma3_text", **{**base, **keys})


def phi3(**keys):
    base = {
        "num_key_value_heads": 2, "original_max_position_embeddings": 128, "rope_scaling": None, "sliding_window": 10,
        "embd_pdrop": 0.0, "resid_pdrop": 0.0, "attention_dropout": 0.0, "attention_bias": False, "pad_token_id": 0,
    }
    return common("Phi3ForCausalLM", "phi3", **{**base, **keys})


def smollm3(**keys):
    base = {
        "attention_bias": False, "mlp_bias": False, "no_rope_layer_interval": 4, "no_rope_layers": [1, 0, 1],
        "num_hidden_layers": 3, "layer_types": ["full_attention"] * 3, "max_window_layers": 28, "rope_scaling": None,
        "rope_theta": 50000.0, "sliding_window": None, "use_sliding_window": False, "tie_word_embeddings": DROP,
        "rms_norm_eps": 1e-06, "pad_token_id": 4,
    }
    return common("SmolLM3ForCausalLM", "smollm3", **{**base, **keys})


def granite(**keys):
    base = {
        "attention_bias": False, "attention_dropout": 0.0, "mlp_bias": False, "rope_scaling": None, "pad_token_id": 0,
        "embedding_multiplier": 2.0, "residual_multiplier": 0.6, "attention_multiplier": 0.125, "logits_scaling": 1.6,
    }
    return common("GraniteForCausalLM", "granite", **{**base, **keys})


def gpt2(**keys):
    base = {
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "activation_function": "gelu_new",
        "attn_pdrop": 0.1, "embd_pdrop": 0.1, "resid_pdrop": 0.1, "bos_token_id": 95, "eos_token_id": 95,
        "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "n_ctx": 64, "n_embd": 32, "n_head": 2, "n_layer": 2,
        "n_positions": 64, "summary_activation": None, "summary_type": "cls_index", "vocab_size": 96,
    }
    return {**base, **keys}



HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}  # heads * head_dim != hidden_size
THREE_HEADS = {"hidden_size": 48, "num_attention_heads": 3}  # no multiple of 32, three query heads on one of keys
SHORT_FACTOR = [1.0, 1.03, 1.1, 1.25, 1.4, 1.55, 1.7, 1.9]
LONG_FACTOR = [1.2, 1.9, 3.1, 5.5, 9.0, 14.0, 22.0, 31.0]
LLAMA3 = {
    "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
    "rope_type": "llama3",
}
YARN = {
    "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512, "attention_factor": 1.3,
    "beta_fast": 8.0, "beta_slow": 0.5,
}


def without(table, *keys):
    return {key: value for key, value in table.items() if key not in keys}


def without_labels(labels, *left_out):
    return tuple(label for label in labels if label not in left_out)


LAYER_TYPES = ["linear_attention", "full_attention", "linear_attention"]
FOUR_LAYERS = ["linear_attention"] * 3 + ["full_attention"]

ARCHITECTURES = [
    Family(
        "llama", llama(**THREE_HEADS, vocab_size=101, intermediate_size=48), mantissa_bits=23, weight_checks=NORMS,
        config_checks={"rope base": {"rope_theta": 500.0}, "epsilon": {"rms_norm_eps": 0.5}},
        note="full floats; a vocabulary of 101; no head_dim in config.json",
    ),
    Family(
        "llama-tied-linear-rope", llama(
            num_key_value_heads=2, tie_word_embeddings=True, rope_scaling={"type": "linear", "factor": 4.0}),
        config_checks={"no scaling": {"rope_scaling": None}},
        note="the old spelling \"type\"; as many heads of keys as of queries",
    ),
    Family(
        "llama3", llama(**HEADS, rope_scaling=LLAMA3, eos_token_id=[2, 7]), lengths=(5, 19, 80),
        config_checks={
            "no scaling": {"rope_scaling": None},
            "linear": {"rope_scaling": {"rope_type": "linear", "factor": 8.0}},
        },
        note="eos_token_id is a list; heads * head_dim != hidden_size",
    ),
    Family(
        "llama-dynamic-rope", llama(rope_scaling={"type": "dynamic", "factor": 2.0}, max_position_embeddings=64),
        lengths=(5, 19, 64), config_checks={"linear": {"rope_scaling": {"type": "linear", "factor": 2.0}}},
        note="within the context, where this scaling changes nothing; beyond it the base depends on the whole length",
    ),
    Family(
        "llama-yarn", llama(**HEADS, rope_scaling=YARN, max_position_embeddings=2048), lengths=(5, 19, 80),
        config_checks={
            "no scaling": {"rope_scaling": None},
            "attention factor of the paper": {"rope_scaling": without(YARN, "attention_factor")},
            "betas of the paper": {"rope_scaling": without(YARN, "beta_fast", "beta_slow")},
        },
        note="its own attention factor and betas",
    ),
    Family(
        "llama-bias", llama(attention_bias=True, mlp_bias=True, rms_norm_eps=0.3), weight_checks={**NORMS, **BIASES},
        config_checks={"epsilon": {"rms_norm_eps": 1e-5}}, note="a large epsilon",
    ),
    Family(
        "smollm3", smollm3(), weight_checks=NORMS,
        config_checks={"rope in every layer": {"no_rope_layers": [1, 1, 1]}, "by interval": {"no_rope_layers": DROP}},
        note="layer 1 has no rotary embedding; tied, which config.json does not say",
    ),
    Family(
        "mistral", mistral(**{**HEADS, "head_dim": 32, "num_attention_heads": 2, "num_key_value_heads": 1},
                           sliding_window=12),
        config_checks={
            "no window": {"sliding_window": None}, "window + 1": {"sliding_window": 13},
            "window - 1": {"sliding_window": 11},
        },
        note="a row sees itself and the 11 before it",
    ),
    Family(
        "qwen2", qwen2(tie_word_embeddings=True, intermediate_size=96), weight_checks={**NORMS, **BIASES},
        config_checks={"rope base": {"rope_theta": 1000000.0}},
        note="biases on q, k and v alone; sliding_window is set and not used",
    ),
    Family(
        "qwen2-window", qwen2(use_sliding_window=True, sliding_window=8, max_window_layers=1, num_hidden_layers=3,
                              intermediate_size=48),
        config_checks={
            "no window": {"use_sliding_window": False}, "window in all layers": {"max_window_layers": 0},
            "window - 1": {"sliding_window": 7},
        },
        note="a window in layers 1 and 2; layer 0 sees everything",
    ),
    Family(
        "qwen2-yarn", qwen2(
            max_position_embeddings=2048,
            rope_scaling={"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}),
        config_checks={"no scaling": {"rope_scaling": None}}, lengths=(5, 19, 80),
        note="YaRN with the paper's attention factor and betas, as Qwen2.5 writes it",
    ),
    Family(
        "qwen3", qwen3(), weight_checks={**NORMS, **QK_NORMS}, config_checks={"rope base": {"rope_theta": 10000}},
        note="norms of q and k",
    ),
    Family(
        "gemma2", gemma2(), weight_checks=GEMMA_NORMS,
        config_checks={
            "no cap of scores": {"attn_logit_softcapping": None}, "no cap of logits": {"final_logit_softcapping": None},
            "no window": {"sliding_window": 4096}, "window - 1": {"sliding_window": 7},
            "scaled by head_dim": {"query_pre_attn_scalar": 16},
            "windows in the other layers": {
                "layer_types": ["full_attention", "sliding_attention", "full_attention"]},
            "SiLU": {"hidden_activation": "silu"},
        },
        note="windows in layers 0 and 2; tied, which config.json does not say",
    ),
    Family(
        "gemma3", gemma3(rope_scaling={"factor": 8.0, "rope_type": "linear"}, sliding_window_pattern=3),
        weight_checks={**GEMMA_NORMS, "q and k norms 1": (r"[qk]_norm\.weight$", 0.0)},
        config_checks={
            "no scaling": {"rope_scaling": None}, "no window": {"sliding_window": 4096},
            "pattern of 6": {"sliding_window_pattern": DROP}, "one base": {"rope_local_base_freq": 1000000},
            "window - 1": {"sliding_window": 7}, "scaled by head_dim": {"query_pre_attn_scalar": 16},
            "scaling in all layers": {"rope_local_base_freq": 10000 * 8**8},
        },
        note="every third layer is global; the scaling is the global layers' alone",
    ),
    Family(
        "gemma3-layer-types", gemma3(
            num_hidden_layers=3, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            _sliding_window_pattern=6, use_bidirectional_attention=False),
        config_checks={"by the pattern": {"layer_types": DROP}},
        note="layer_types decides, as Gemma 3 270M writes it",
    ),
    Family(
        "gemma3-vision", {
            "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "boi_token_index": 90,
            "eoi_token_index": 91, "image_token_index": 92, "mm_tokens_per_image": 4, "eos_token_id": [1, 5],
            "initializer_range": 0.02, "torch_dtype": "float32",
            "text_config": {
                "model_type": "gemma3_text", "vocab_size": 96, "hidden_size": 32, "intermediate_size": 32,
                "num_hidden_layers": 6, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
                "query_pre_attn_scalar": 16, "max_position_embeddings": 128, "sliding_window": 8,
                "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
            },
            "vision_config": {
                "model_type": "siglip_vision_model", "hidden_size": 16, "image_size": 28, "intermediate_size": 16,
                "num_attention_heads": 1, "num_hidden_layers": 1, "patch_size": 14, "vision_use_head": False,
            },
        },
        store="vision",
        note="the text model inside a checkpoint that also sees: nested configuration that leans on defaults (a global "
        "layer in six, both rope bases), tensors under language_model., and tensors of the eye to pass over",
    ),
    Family(
        "phi3", phi3(**THREE_HEADS, num_key_value_heads=3, intermediate_size=48),
        weight_checks=NORMS, config_checks={"no window": {"sliding_window": None}, "window - 1": {"sliding_window": 9}},
        note="fused qkv_proj and gate_up_proj; a window in all layers",
    ),
    Family(
        "phi3-longrope", phi3(
            num_key_value_heads=1, sliding_window=None, original_max_position_embeddings=32,
            rope_scaling={"type": "longrope", "short_factor": SHORT_FACTOR, "long_factor": LONG_FACTOR}),
        lengths=(5, 32, 33, 70),
        config_checks={
            "long factors only": {"rope_scaling": {
                "type": "longrope", "short_factor": LONG_FACTOR, "long_factor": LONG_FACTOR}},
            "short factors only": {"rope_scaling": {
                "type": "longrope", "short_factor": SHORT_FACTOR, "long_factor": SHORT_FACTOR}},
            "no attention factor": {"rope_scaling": {
                "type": "longrope", "short_factor": SHORT_FACTOR, "long_factor": LONG_FACTOR, "attention_factor": 1.0}},
        },
        note="short factors at lengths 5 and 32, long ones at 33 and 70: the length of the whole sequence decides, for "
        "all of its positions. The attention factor holds for both",
    ),
    Family(
        "phi3-partial", phi3(
            hidden_size=64, intermediate_size=32, num_key_value_heads=1, partial_rotary_factor=0.5,
            sliding_window=None, tie_word_embeddings=True),
        config_checks={"all dimensions turn": {"partial_rotary_factor": 1.0}},
        note="16 of the 32 dimensions of a head turn",
    ),
    Family(
        "gpt2", gpt2(n_positions=96, n_ctx=96, layer_norm_epsilon=0.05), lengths=(5, 19, 64),
        weight_checks={**NORMS, **BIASES, "no positions": (r"wpe\.weight$", 0.0)},
        config_checks={"epsilon": {"layer_norm_epsilon": 1e-5}, "ReLU": {"activation_function": "relu"}},
        note="matrices stored as [in, out]; a large epsilon",
    ),
    Family(
        "gpt2-published", gpt2(), store="gpt2_published", lengths=(5, 19, 64),
        note="as published: names without \"transformer.\", and the causal masks among the tensors",
    ),
    Family(
        "granite", granite(), weight_checks=NORMS,
        config_checks={
            "embedding as it is": {"embedding_multiplier": DROP}, "branches as they are": {"residual_multiplier": DROP},
            "scores as they are": {"attention_multiplier": DROP},
            "scaled by head_dim": {"attention_multiplier": 0.25}, "logits as they are": {"logits_scaling": DROP},
        },
        note="a factor on the embedding, on scores and on what branches add, a divisor of the logits",
    ),
    Family(
        "granite-plain", granite(
            embedding_multiplier=DROP, residual_multiplier=DROP, attention_multiplier=DROP, logits_scaling=DROP,
            tie_word_embeddings=True, attention_bias=True),
        weight_checks=BIASES, config_checks={"scaled by head_dim": {"attention_multiplier": 0.25}},
        note="none of the four is said: all are 1, that of scores too; biases; tied",
    ),
]

MIXTURES = [
    Family(
        "mixtral", mixtral(), lengths=(5, 24), seed="b", weight_checks={**NORMS, **ROUTERS},
        config_checks={
            "rope base": {"rope_theta": 500.0}, "one expert more": {"num_experts_per_tok": 3},
            "one expert less": {"num_experts_per_tok": 1},
        },
        note="experts as block_sparse_moe.experts.0.w1, w2 and w3; intermediate_size is theirs",
    ),
    Family(
        "qwen2-moe", qwen2_moe(), lengths=(5, 24),
        weight_checks={
            **NORMS, **BIASES, **ROUTERS, "no shared expert": (r"shared_expert\.down_proj", 0.0),
            "half of the shared expert": (r"shared_expert_gate", 0.0),
            "shared expert alone": (r"experts\.down_proj", 0.0),
        },
        config_checks={"normalised": {"norm_topk_prob": True}, "one expert more": {"num_experts_per_tok": 3}},
        note="5 experts, probabilities as they are; beside them the shared expert, through a sigmoid of its own",
    ),
    Family(
        "qwen2-moe-dense", qwen2_moe(
            decoder_sparse_step=2, norm_topk_prob=True, intermediate_size=48,
            shared_expert_intermediate_size=32, tie_word_embeddings=True),
        lengths=(5, 24),
        weight_checks={**ROUTERS, "no shared expert": (r"shared_expert\.down_proj", 0.0)},
        config_checks={"not normalised": {"norm_topk_prob": False}, "one expert more": {"num_experts_per_tok": 3}},
        note="decoder_sparse_step of 2: layer 0 has no experts; probabilities normalised; tied",
    ),
    Family(
        "qwen3-moe", qwen3_moe(), lengths=(5, 24), weight_checks={**NORMS, **QK_NORMS, **ROUTERS},
        config_checks={
            "not normalised": {"norm_topk_prob": False}, "not normalised by default": {"norm_topk_prob": DROP},
            "one expert more": {"num_experts_per_tok": 3}, "rope base": {"rope_theta": 10000},
        },
        note="norms of q and k; probabilities normalised",
    ),
    Family(
        "qwen3-moe-dense", qwen3_moe(
            mlp_only_layers=[0], norm_topk_prob=DROP, num_experts=5, moe_intermediate_size=48,
            tie_word_embeddings=True),
        lengths=(5, 24), weight_checks=ROUTERS,
        config_checks={"normalised": {"norm_topk_prob": True}, "one expert more": {"num_experts_per_tok": 3}},
        note="mlp_only_layers: layer 0 has no experts; norm_topk_prob is not said and false; tied",
    ),
    Family(
        "olmoe", olmoe(), lengths=(5, 24), weight_checks={**NORMS, **QK_NORMS, **ROUTERS},
        config_checks={
            "normalised": {"norm_topk_prob": True}, "one expert more": {"num_experts_per_tok": 4},
            "rope base": {"rope_theta": 500.0},
        },
        note="norms of all of q and of all of k, before they are heads; no epsilon in config.json",
    ),
    Family(
        "olmoe-normalised", olmoe(
            norm_topk_prob=True, num_attention_heads=2, num_key_value_heads=1, num_experts=5, num_experts_per_tok=2,
            rms_norm_eps=1e-05),
        lengths=(5, 24), weight_checks={**QK_NORMS, **ROUTERS},
        config_checks={"not normalised": {"norm_topk_prob": False}, "one expert more": {"num_experts_per_tok": 3}},
        note="fewer heads of keys than of queries; probabilities normalised",
    ),
    Family(
        "olmoe-clipped", olmoe(clip_qkv=1.25), lengths=(5, 24), config_checks={"as they are": {"clip_qkv": None}},
        note="queries, keys and values are held between two numbers, behind the norms",
    ),
    Family(
        "granitemoe", granitemoe(), lengths=(5, 24), seed=" 2", weight_checks={**NORMS, **ROUTERS},
        config_checks={
            "embedding as it is": {"embedding_multiplier": DROP}, "branches as they are": {"residual_multiplier": DROP},
            "scores as they are": {"attention_multiplier": DROP},
            "scaled by head_dim": {"attention_multiplier": 0.25}, "logits as they are": {"logits_scaling": DROP},
            "one expert more": {"num_experts_per_tok": 3},
        },
        note="the experts of a layer in two tensors, gates before ups; softmax of the chosen alone; tied",
    ),
    Family(
        "gpt-oss", gpt_oss(), lengths=(5, 24, 60),
        weight_checks={
            **NORMS, **ROUTERS, "no sinks": (r"sinks$", -1e30), "no biases": (r"[._]bias$", 0.0),
            "no biases of experts": (r"proj_bias$", 0.0), "no bias of the router": (r"router\.bias$", 0.0),
        },
        config_checks={
            "no limit": {"swiglu_limit": 1000.0}, "a plain SiLU's slope": {"swiglu_alpha": 1.0},
            "no window": {"sliding_window": 4096}, "window - 1": {"sliding_window": 7},
            "windows in the other layers": {"layer_types": ["full_attention", "sliding_attention"]},
            "one expert more": {"num_experts_per_tok": 3}, "no scaling": {"rope_scaling": {"rope_type": "default"}},
            "whole pairs": {"rope_scaling": {**GPT_OSS_YARN, "truncate": True}},
        },
        note="sinks, biases everywhere, a limited SwiGLU whose limits are reached, YaRN that is not rounded to whole "
        "pairs; layer 0 has a window",
    ),
    Family(
        "gpt-oss-usual", gpt_oss(
            rope_scaling=DROP, layer_types=DROP, num_hidden_layers=3, head_dim=32, num_local_experts=4,
            initial_context_length=4096, max_position_embeddings=131072, rope_theta=DROP, rms_norm_eps=DROP,
            swiglu_limit=DROP, num_attention_heads=2),
        lengths=(5, 24, 60), seed="c",
        config_checks={
            "no scaling": {"rope_scaling": {"rope_type": "default"}},
            "another base": {"rope_theta": 10000.0},
            "windows in no layer": {"layer_types": ["full_attention"] * 3},
        },
        note="config.json leaves out what is usual: YaRN from 4096 positions, windows in layers 0 and 2, base, limit",
    ),
    Family(
        "gpt-oss-mxfp4", gpt_oss(
            torch_dtype="bfloat16",
            quantization_config={
                "modules_to_not_convert": [
                    "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"],
                "quant_method": "mxfp4",
            }),
        lengths=(5, 24, 60), store="mxfp4", seed="e",
        weight_checks={"no sinks": (r"sinks$", -1e30)},
        note="as published: experts in 4-bit blocks with scales beside them, the rest in BF16",
    ),
    Family(
        "deepseek2-lite", deepseek2(
            n_group=1, topk_group=1, topk_method="greedy", q_lora_rank=None, n_shared_experts=2,
            num_experts_per_tok=2, n_routed_experts=6, routed_scaling_factor=1.0),
        lengths=(5, 24, 60),
        weight_checks={**NORMS, **ROUTERS, **LATENT, "no shared experts": (r"shared_experts\.down_proj", 0.0)},
        config_checks={
            "one expert more": {"num_experts_per_tok": 3}, "weights times 2.5": {"routed_scaling_factor": 2.5},
            "no scaling": {"rope_scaling": {"rope_type": "default"}},
            "no mscale": {"rope_scaling": {**DEEPSEEK_YARN, "mscale_all_dim": 0.0}},
        },
        note="V2-Lite's: queries without a latent; softmax chooses; layer 0 has no experts; YaRN scales scores, too",
    ),
    Family(
        "deepseek2", deepseek2(rope_scaling={**DEEPSEEK_YARN, "mscale": 1.0}, qk_nope_head_dim=16, v_head_dim=48),
        lengths=(5, 24, 60), seed="b",
        weight_checks={**NORMS, **ROUTERS, **LATENT, "no shared experts": (r"shared_experts\.down_proj", 0.0)},
        config_checks={
            "any group": {"topk_method": "greedy"}, "one group more": {"topk_group": 3},
            "weights as they are": {"routed_scaling_factor": 1.0},
            "mscale as the other": {"rope_scaling": DEEPSEEK_YARN},
        },
        note="V2's: experts of the groups whose best is best; cosines and sines have a factor of their own, too",
    ),
    Family(
        "deepseek3", deepseek3(qk_nope_head_dim=16), lengths=(5, 24, 60), seed="c", store="predicting",
        weight_checks={
            **NORMS, **ROUTERS, **LATENT, "no shared experts": (r"shared_experts\.down_proj", 0.0),
            "no correction": (r"correction_bias$", 0.0),
        },
        config_checks={
            "not normalised": {"norm_topk_prob": False}, "any group": {"n_group": 1, "topk_group": 1},
            "weights as they are": {"routed_scaling_factor": 1.0}, "one expert more": {"num_experts_per_tok": 4},
            "halves turn": {"rope_interleave": False},
        },
        note="V3's: sigmoids with a correction choose, of the groups whose two best are; weights do not have it; a "
        "module of the next token but one beside the model",
    ),
    Family(
        "glm4-moe-lite", glm4_moe_lite(qk_nope_head_dim=48, v_head_dim=64), lengths=(5, 24, 60), store="predicting",
        weight_checks={**NORMS, **ROUTERS, **LATENT, "no correction": (r"correction_bias$", 0.0)},
        config_checks={
            "not normalised": {"norm_topk_prob": False}, "weights as they are": {"routed_scaling_factor": 1.0},
            "rope base": {"rope_theta": 10000.0},
        },
        note="GLM-4.7-Flash's: V3's without groups and scaling; such a module beside the model",
    ),
]

SEEING = seeing("Qwen3_5ForConditionalGeneration", qwen35(
    num_hidden_layers=3, layer_types=LAYER_TYPES, linear_num_value_heads=2, tie_word_embeddings=True))
SEEING_MOE = seeing("Qwen3_5MoeForConditionalGeneration", qwen35_moe(
    num_hidden_layers=2, full_attention_interval=2, layer_types=["linear_attention", "full_attention"]))
LONG = (5, 33, 100)  # the longest is of more than one chunk of those that the state is often computed in

HYBRIDS = [
    Family(
        "qwen3-next", qwen3_next(), lengths=LONG, store="published",
        weight_checks={**HYBRID, **ROUTERS, **SHARED_EXPERT}, code_checks=HYBRID_CODE,
        config_checks={
            "not normalised": {"norm_topk_prob": False}, "one expert more": {"num_experts_per_tok": 3},
            "rope base": {"rope_theta": 10000}, "half of a head turns": {"partial_rotary_factor": 0.5},
        },
        note="three layers with linear attention and one without, as no key but full_attention_interval says; experts "
        "and a shared one; q, k, v and z of a head in one tensor; mtp.* beside the model",
    ),
    Family(
        "qwen3-next-layer-types", qwen3_next(
            num_hidden_layers=3, layer_types=LAYER_TYPES, full_attention_interval=DROP, mlp_only_layers=[1],
            norm_topk_prob=False, linear_value_head_dim=32, partial_rotary_factor=DROP, linear_conv_kernel_dim=3,
            linear_num_key_heads=1, linear_num_value_heads=2, rms_norm_eps=0.01),
        lengths=LONG, seed="2", weight_checks={**HYBRID, **ROUTERS, **SHARED_EXPERT},
        code_checks=(
            *without_labels(HYBRID_CODE, "heads of keys tiled"), "queries as they are", "queries not scaled"),
        config_checks={
            "normalised": {"norm_topk_prob": True}, "one expert more": {"num_experts_per_tok": 3},
            "epsilon": {"rms_norm_eps": 1e-6}, "half of a head turns": {"partial_rotary_factor": 0.5}, 
            "all of a head turns": {"partial_rotary_factor": 1.0},
        },
        note="the layer in the middle has full attention and no experts; a head's values are twice as long as its "
        "keys; a convolution of 3; a large epsilon; probabilities as they are; partial_rotary_factor is not said and 0.25",
    ),
    Family(
        "qwen35", qwen35(linear_num_value_heads=6, layer_types=FOUR_LAYERS), lengths=LONG, seed="2",
        weight_checks=HYBRID, code_checks=HYBRID_CODE,
        config_checks={
            "rope base": {"rope_parameters": {**INTERLEAVED, "rope_theta": 10000}},
            "half of a head turns": {"rope_parameters": {**INTERLEAVED, "partial_rotary_factor": 0.5}},
        },
        note="the text model alone; three heads of values for each of keys; q, k and v in one tensor, z in "
        "another",
    ),
    Family(
        "qwen35-vision", SEEING, lengths=LONG, store="published", weight_checks=HYBRID,
        code_checks=without_labels(HYBRID_CODE, "heads of keys tiled"),
        config_checks={
            "rope base": in_text(SEEING, rope_parameters={**INTERLEAVED, "rope_theta": 10000}),
            "half of a head turns": in_text(
                SEEING, rope_parameters={**INTERLEAVED, "partial_rotary_factor": 0.5}),
        },
        note="as published: the text model under model.language_model. in a checkpoint that also sees, mtp.* and "
        "tensors of the eye beside it; as many heads of keys as of values; layer_types decides, whatever "
        "full_attention_interval says; tied",
    ),
    Family(
        "qwen35-moe", SEEING_MOE, lengths=LONG, store="published",
        weight_checks={**HYBRID, **ROUTERS, **SHARED_EXPERT}, code_checks=HYBRID_CODE,
        config_checks={"one expert more": in_text(SEEING_MOE, num_experts_per_tok=3)},
        note="as published, the experts of a layer in two tensors, gates before ups; probabilities normalised, which "
        "no key says",
    ),
]

# Of short convolutions and of state spaces: what must show when it is left out, or done another way.
SHORT = {
    "convolution's last tap": (r"conv\.conv\.weight$", last_tap),
    "convolution turned round": (r"conv\.conv\.weight$", lambda weight: weight.flip(-1)),
    "q and k norms 1": (r"[qk]_layernorm\.weight$", 1.0),
}
SHORT_CODE = ("SiLU behind it", "nothing but gates")
STATE_SPACE = {
    "convolution's last tap": (r"conv1d\.weight$", last_tap),
    "convolution turned round": (r"conv1d\.weight$", lambda weight: weight.flip(-1)),
    "no bias of the convolution": (r"conv1d\.bias$", 0.0), "no bias of steps": (r"dt_bias$", 0.0),
    "nothing skips": (r"mamba\.D$", 0.0), "no decay": (r"A_log$", -30.0), "no memory": (r"A_log$", 10.0),
    "same decay in all heads": (r"A_log$", 1.0), "norms of state spaces 1": (r"mamba\.norm\.weight$", 1.0),
}
STATE_SPACE_CODE = (
    "scan reads before it writes", "scan with a delta", "norm before the gate", "no gate before the norm",
    "no convolution", "no SiLU behind it", "scan loses its state after 64 positions",
)
GRANITE = {
    "embedding as it is": {"embedding_multiplier": DROP}, "branches as they are": {"residual_multiplier": DROP},
    "scores as they are": {"attention_multiplier": DROP}, "logits as they are": {"logits_scaling": DROP},
}
TURNS = {"queries and keys turn": {"position_embedding_type": "rope"}}
DO_NOT_TURN = {"queries and keys do not turn": {"position_embedding_type": "nope"}}

SHORT_HYBRIDS = [
    Family(
        "lfm2", lfm2(), lengths=LONG, seed="b", weight_checks={**NORMS, **SHORT}, code_checks=SHORT_CODE,
        config_checks={"rope base": {"rope_theta": 10000.0}},
        note="short convolutions between gates; full_attn_idxs says which layers have attention; tied, as no key says",
    ),
    Family(
        "lfm2-layer-types", lfm2(
            block_ff_dim=DROP, intermediate_size=48, block_auto_adjust_ff_dim=False, full_attn_idxs=DROP,
            layer_types=["full_attention", "conv", "conv"], num_hidden_layers=3, conv_bias=True, conv_L_cache=4,
            tie_embedding=False),
        lengths=LONG, weight_checks={**NORMS, **BIASES, **SHORT}, code_checks=SHORT_CODE,
        note="newer keys; the width as it is given; convolutions of 4 with biases; untied",
    ),
    Family(
        "lfm2-moe", lfm2_moe(), lengths=(5, 33), weight_checks={
            **NORMS, **ROUTERS, **SHORT, "no correction": (r"expert_bias$", 0.0)},
        config_checks={"not normalised": {"norm_topk_prob": False}, "one expert more": {"num_experts_per_tok": 3}},
        code_checks=SHORT_CODE,
        note="a layer without experts before those that have some; sigmoids with a correction choose, weights do not "
        "have it",
    ),
    Family(
        "granite-hybrid", granite_hybrid(), lengths=LONG, weight_checks={**NORMS, **STATE_SPACE},
        code_checks=STATE_SPACE_CODE, config_checks={**GRANITE, **TURNS},
        note="Mamba-2 in three layers and attention in one, whose queries and keys do not turn; no experts, the shared "
        "one is the feed-forward; tied",
    ),
    Family(
        "granite-hybrid-moe", granite_hybrid(
            num_local_experts=5, num_experts_per_tok=2, intermediate_size=32, shared_intermediate_size=16,
            layer_types=["mamba", "attention", "mamba"], num_hidden_layers=3, mamba_n_groups=2, mamba_d_state=32,
            mamba_d_head="auto", mamba_d_conv=3, mamba_proj_bias=True, attention_bias=True,
            position_embedding_type="rope", tie_word_embeddings=False),
        lengths=LONG, seed="a", weight_checks={
            **NORMS, **STATE_SPACE, **ROUTERS, **BIASES,
            "no shared expert": (r"shared_mlp\.output_linear", 0.0), "shared expert alone": (r"experts\.down_proj", 0.0)},
        code_checks=(*STATE_SPACE_CODE[:-1], "groups tiled"), config_checks={
            **GRANITE, **DO_NOT_TURN, "one expert more": {"num_experts_per_tok": 3}},
        note="experts and a shared one; two heads for each group, which have a norm of their own; keys twice as long as "
        "values; biases of all projections; queries and keys turn; untied",
    ),
    Family(
        "granite-4-attention", granite_hybrid(
            layer_types=["attention", "attention"], num_hidden_layers=2, position_embedding_type="rope"),
        weight_checks=NORMS, config_checks={**GRANITE, **DO_NOT_TURN},
        note="all layers have attention, as in Granite 4.0 Micro: a file of the family 'granite'",
    ),
]

QUANTIZED = {**THREE_HEADS, "torch_dtype": "bfloat16"}
FP8_BLOCK = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic"}


def compressed(strategy, activations):
    """quantization_config as llm-compressor writes it, for 8-bit floats."""
    eight_bits = {"num_bits": 8, "type": "float", "symmetric": True, "group_size": None, "block_structure": None}
    weights = {**eight_bits, "strategy": strategy, "dynamic": False, "observer": "minmax", "actorder": None}
    return {
        "quant_method": "compressed-tensors", "format": "float-quantized", "quantization_status": "compressed",
        "global_compression_ratio": None, "kv_cache_scheme": None,
        "ignore": ["lm_head", "model.layers.1.mlp.down_proj"],
        "config_groups": {"group_0": {
            "targets": ["Linear"], "weights": weights, "output_activations": None,
            "input_activations": {**eight_bits, **activations},
        }},
    }


STORAGE = [
    Family(
        "llama-sharded", llama(**HEADS), options={"max_shard_size": "40KB"},
        note="several files and model.safetensors.index.json",
    ),
    Family("llama-bf16", llama(torch_dtype="bfloat16"), options={"dtype": "bfloat16"}, note="all tensors in BF16"),
    Family(
        "llama-f16", llama(torch_dtype="float16"), options={"dtype": "float16"}, store="old_llama",
        note="all tensors in F16; rotary_emb.inv_freq among them, as in old checkpoints, to be passed over",
    ),
    Family(
        "llama-fp8-block", llama(**QUANTIZED, quantization_config={**FP8_BLOCK, "weight_block_size": [32, 32]}),
        store="fp8", options={"block": (32, 32), "suffix": "weight_scale_inv", "scale": "float32"},
        note="F32 scales of blocks of 32 x 32, which the matrices do not fill",
    ),
    Family(
        "qwen3-fp8-block",
        qwen3(torch_dtype="bfloat16", quantization_config={**FP8_BLOCK, "weight_block_size": [16, 16]}),
        store="fp8", options={"block": (16, 16), "suffix": "weight_scale_inv", "scale": "bfloat16"},
        note="BF16 scales of blocks of 16 x 16",
    ),
    Family(
        "llama-fp8-tensor", llama(**QUANTIZED, quantization_config={
            "quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["lm_head"]}),
        store="fp8", options={"block": None, "suffix": "weight_scale", "scale": "float32", "shape": [], "input": True},
        note="one F32 scale for a matrix, of no dimensions; input_scale beside it is to be passed over",
    ),
    Family(
        "llama-fp8-compressed-tensor",
        llama(**QUANTIZED, quantization_config=compressed("tensor", {"strategy": "tensor", "dynamic": False})),
        store="fp8",
        options={
            "block": None, "suffix": "weight_scale", "scale": "bfloat16", "shape": [1], "input": True,
            "ignore": ("model.layers.1.mlp.down_proj",),
        },
        note="compressed-tensors, strategy tensor: one BF16 scale [1]; layer 1's down_proj stays in BF16",
    ),
    Family(
        "llama-fp8-compressed-channel",
        llama(**QUANTIZED, quantization_config=compressed("channel", {"strategy": "token", "dynamic": True})),
        store="fp8",
        options={
            "block": (1, None), "suffix": "weight_scale", "scale": "bfloat16",
            "ignore": ("model.layers.1.mlp.down_proj",),
        },
        note="compressed-tensors, strategy channel: BF16 scales [out, 1]; layer 1's down_proj stays in BF16",
    ),
    Family(
        "llama-fp8-fbgemm", llama(**QUANTIZED, quantization_config={
            "quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0,
            "modules_to_not_convert": ["lm_head", "model.layers.0.self_attn.q_proj"]}),
        store="fp8",
        options={
            "block": (1, None), "suffix": "weight_scale", "scale": "float32",
            "ignore": ("model.layers.0.self_attn.q_proj",),
        },
        note="fbgemm_fp8: F32 scales [out, 1]; layer 0's q_proj stays in BF16",
    ),
]

FAMILIES = ARCHITECTURES + MIXTURES + HYBRIDS + SHORT_HYBRIDS + STORAGE

# What llama.cpp assumes of a model whatever its GGUF file says: what must change in a configuration for it to be true.
AS_LLAMA_CPP = {
    "deepseek2": {"rope_scaling": DEEPSEEK_YARN, "topk_method": "greedy"},  # groups are worth their best two
    "gemma2": {"query_pre_attn_scalar": 16},  # head_dim, but in the largest Gemmas
    "gemma3": {"query_pre_attn_scalar": 16},
    "gemma3-layer-types": {"query_pre_attn_scalar": 16},
    **{name: {"rope_scaling": {**GPT_OSS_YARN, "truncate": True}} for name in ("gpt-oss", "gpt-oss-mxfp4")},
    "gpt-oss-usual": {
        "rope_scaling": {**GPT_OSS_YARN, "original_max_position_embeddings": 4096, "truncate": True}},
    "llama-yarn": {"rope_scaling": {  # the usual betas
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512, "attention_factor": 1.3}},
    "mistral": {"sliding_window": None},
    "phi3": {"sliding_window": None},
    "qwen2-window": {"use_sliding_window": False},
    "smollm3": {"no_rope_layers": [1, 1, 1]},  # every fourth layer does not turn
}
