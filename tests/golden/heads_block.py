"""Plain transcriptions of heads that draft a block of tokens at once (DFlash): everything anew for each draft.

Of the n known tokens text[:n] the last is the root. Each layer makes keys and values of the rows 0 .. n - 2 from the
target's features; then come the block's rows, of the root's token and of masks, at the positions n - 1, n, ...
"""

import math

import torch
from torch.nn.functional import linear

import heads_attention as plain
import heads_common as common


class BlockLayer(plain.Layer):
    """ordered: rows of the block do not see those behind them."""

    def __init__(self, tensors, prefix, config, ordered, window):
        super().__init__(tensors, prefix, config, window=window)
        self.ordered = ordered

    def seen(self, context, block):
        """[block, context + block]"""
        distance = (context + torch.arange(block))[:, None] - torch.arange(context + block)
        seen = distance < (self.window or context + block + 1)
        return seen & (distance >= 0) if self.ordered else seen

    def __call__(self, x, context):
        _, k, v, _ = self.parts(context)
        q, own_k, own_v, _ = self.parts(self.norm("input_layernorm", x), len(context))
        k, v = torch.cat([k, own_k], 1), torch.cat([v, own_v], 1)
        mask = torch.where(self.seen(len(context), len(x)), 0.0, -math.inf)
        h = x + self.output(torch.softmax(q @ k.transpose(1, 2) / self.size**0.5 + mask, -1) @ v, None)
        return h + self.mlp(self.norm("post_attention_layernorm", h))


class Block(plain.Head):
    """z-lab/dflash and what vLLM (qwen3_dflash.py) and deepseek-ai/DeepSpec add to it."""

    def __init__(self, config, tensors, target, steps, tree):
        self.flags = config | (config.get("dflash_config") or {})
        layers = config.get("transformer_layer_config", config)
        super().__init__(layers, tensors, target)
        self.steps, self.tree = steps, tree
        self.head = tensors.get("lm_head.weight", target.head)
        spark = any("DSpark" in name for name in config["architectures"])
        self.from_root = self.flags.get("sample_from_anchor", spark)
        kinds = layers.get("layer_types") or ["full_attention"] * layers["num_hidden_layers"]
        windows = [layers["sliding_window"] if kind == "sliding_attention" else None for kind in kinds]
        self.stack = [
            BlockLayer(tensors, f"layers.{i}.", layers, self.flags.get("causal", window is not None), window)
            for i, window in enumerate(windows)
        ]

    def taps(self):
        """Layers that the taps enter."""
        if "aux_hidden_state_layer_ids" in self.flags:
            return self.flags["aux_hidden_state_layer_ids"]
        count, layers = len(self.stack), self.target.config.num_hidden_layers
        usual = [round(1 + i * (layers - 4) / max(1, count - 1)) for i in range(count)] if count > 1 else [layers // 2]
        return [i + 1 for i in self.flags.get("target_layer_ids", usual)]

    def fuse(self, entering, final):
        fused = linear(torch.cat([entering[tap] for tap in self.taps()], -1), self.tensors["fc.weight"])
        return self.norm("hidden_norm", fused)

    def states(self, text, n):
        """What the output matrix takes of the rows that draft."""
        context = self.features(text)[: n - 1]
        x = self.embedding[[text[n - 1]] + [self.flags["mask_token_id"]] * (self.steps - self.from_root)]
        if "mask_embedding" in self.tensors:
            x = torch.cat([x[:1], self.tensors["mask_embedding"].expand(len(x) - 1, -1)])
        for layer in self.stack:
            x = layer(x, context)
        return self.norm("norm", x)[0 if self.from_root else 1 :]

    def outputs(self, text, n):
        return linear(self.states(text, n), self.head)

    def draft(self, text, n):
        return plain.parallel_draft(self, self.outputs(text, n), self.tree)


def matches_public(ours, public, text, n):
    """Whether DFlashDraftModel of z-lab/dflash gives the same logits."""
    entering, _ = ours.target.states(text)
    rows = torch.cat([entering[tap] for tap in ours.taps()], -1)[: n - 1]
    block = [text[n - 1]] + [ours.flags["mask_token_id"]] * ours.steps
    out = public(
        position_ids=torch.arange(n + ours.steps)[None], noise_embedding=ours.embedding[block][None],
        target_hidden=rows[None])  # fmt: skip
    return common.torch.allclose(linear(out[0, 1:], ours.head), ours.outputs(text, n), atol=2e-4)
