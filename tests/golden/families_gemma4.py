"""The Gemma 4 models of tests/golden/families/, rows like those of families_table.py."""

from families_table import DROP, NORMS, QK_NORMS, Family, common

ROPE = {
    "full_attention": {"partial_rotary_factor": 0.5, "rope_theta": 300.0, "rope_type": "proportional"},
    "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
}
SLIDING, FULL = "sliding_attention", "full_attention"


def gemma4(**keys):
    base = {
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "global_head_dim": 32,
        "num_global_key_value_heads": None, "hidden_act": DROP, "hidden_activation": "gelu_pytorch_tanh",
        "rms_norm_eps": 1e-06, "intermediate_size": 48, "sliding_window": 8, "rope_theta": DROP,
        "rope_parameters": ROPE, "attention_bias": False, "attention_k_eq_v": False, "enable_moe_block": False, "final_logit_softcapping": 5.0,
        "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0, "use_bidirectional_attention": None,
        "use_double_wide_mlp": False, "vocab_size_per_layer_input": 96, "bos_token_id": 2, "eos_token_id": [1, 5],
        "pad_token_id": 0, "tie_word_embeddings": True,
    }  # fmt: skip
    return common("Gemma4ForCausalLM", "gemma4_text", **{**base, **keys})


def rope(kind, **keys):
    return {"rope_parameters": {**ROPE, kind: {**ROPE[kind], **keys}}}


CHECKS = {
    "no cap": {"final_logit_softcapping": None}, "window - 1": {"sliding_window": 7},
    "rope base": rope(FULL, rope_theta=10000.0), "all dimensions turn": rope(FULL, partial_rotary_factor=1.0),
    "local rope base": rope(SLIDING, rope_theta=100.0),
}  # fmt: skip
SCALES = {"layers' scales 1": (r"layer_scalar$", 1.0)}
PER_LAYER = {
    "no inputs of layers": (r"per_layer_projection\.weight", 0.0),
    "no table of tokens": (r"embed_tokens_per_layer", 0.0),
    "no projection of the embedding": (r"per_layer_model_projection", 0.0),
}
EXPERTS = {
    "routers zero": (r"router\.proj", 0.0), "routers' scales 1": (r"router\.scale", 1.0),
    "experts' scales 1": (r"per_expert_scale", 1.0), "no experts": (r"experts\.down_proj", 0.0),
    "experts alone": (r"mlp\.down_proj", 0.0),
}  # fmt: skip

GEMMA4 = [
    Family(
        "gemma4", gemma4(
            num_hidden_layers=7, layer_types=[SLIDING, FULL, SLIDING, SLIDING, FULL, SLIDING, FULL],
            hidden_size_per_layer_input=16, num_kv_shared_layers=2, use_double_wide_mlp=True),
        weight_checks={**NORMS, **QK_NORMS, **SCALES, **PER_LAYER}, config_checks=CHECKS,
        note="E2B's: the last two layers read keys and values of others and are twice as wide; a table of inputs for "
        "each layer; layers without a window have heads twice as long, half of whose dimensions turn",
    ),
    Family(
        "gemma4-keys-are-values", gemma4(
            num_hidden_layers=6, num_attention_heads=4, num_key_value_heads=2, num_global_key_value_heads=1,
            attention_k_eq_v=True, use_bidirectional_attention="vision", global_head_dim=48),
        weight_checks={**NORMS, **QK_NORMS, **SCALES}, config_checks=CHECKS,
        note="31B's: where there is no window, values are the keys before their norm, and there are fewer heads of "
        "them; no layer_types: one layer in six has no window",
    ),
    Family(
        "gemma4-moe", gemma4(
            num_hidden_layers=3, layer_types=[SLIDING, SLIDING, FULL], num_key_value_heads=2,
            num_global_key_value_heads=1, attention_k_eq_v=True, enable_moe_block=True, num_experts=6, top_k_experts=2,
            moe_intermediate_size=32), seed="f",
        weight_checks={**NORMS, **QK_NORMS, **SCALES, **EXPERTS},
        config_checks={**CHECKS, "one expert more": {"top_k_experts": 3}},
        note="26B-A4B's: experts beside the feed-forward, norms before and behind either, a factor for each expert",
    ),
    Family(
        "gemma4-vision", {
            "architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4", "audio_config": None,
            "eos_token_id": [1, 5], "image_token_id": 92, "initializer_range": 0.02, "torch_dtype": "float32",
            "text_config": {
                key: value for key, value in gemma4(
                    num_hidden_layers=3, layer_types=[SLIDING, FULL, FULL], hidden_size_per_layer_input=32,
                    num_kv_shared_layers=1).items()
                if key not in ("architectures", "torch_dtype")},
            "vision_config": {
                "model_type": "gemma4_vision", "hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 1,
                "num_key_value_heads": 1, "num_hidden_layers": 1, "head_dim": 16, "patch_size": 4},
        },
        store="gemma4_vision",
        note="the text model inside a checkpoint that also sees: tensors under model.language_model., of the eye and of "
        "what leads from it beside them, and keys and values in a layer that reads another's",
    ),
]  # fmt: skip
