"""Plain transcriptions of heads that draft a block of tokens at once (DFlash, DSpark): everything anew for each draft.

Of the n known tokens text[:n] the last is the root. Each layer makes keys and values of the rows 0 .. n - 2 from the
target's features; then come the block's rows, of the root's token and of masks, at the positions n - 1, n, ...
"""

import math

import torch
from torch.nn.functional import linear, sigmoid

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


class Spark(Block):
    """DSpark (deepseek-ai/DeepSpec): what is drafted says something of what follows it, and how sure that is."""

    def bias(self, states, before):
        """What the tokens before each row say of it."""
        seen = self.tensors["markov_head.markov_w1.weight"][before]
        states = states[: len(before)]
        kind = self.flags["markov_head_type"]
        if kind == "gated":
            seen = sigmoid(self.project("gate_proj", torch.cat([states, seen], -1))) * seen
        if kind == "rnn":
            state, rows = torch.zeros(seen.shape[1]), []
            for row, hidden in zip(seen, states):
                gate, candidate, out = self.project("joint_proj", torch.cat([state, row, hidden])).chunk(3)
                state = sigmoid(gate) * state + (1 - sigmoid(gate)) * torch.tanh(candidate)
                rows.append(torch.tanh(out))
            seen = torch.stack(rows)
        return linear(seen, self.tensors["markov_head.markov_w2.weight"])

    def project(self, name, x):
        return linear(x, self.tensors[f"markov_head.{name}.weight"], self.tensors[f"markov_head.{name}.bias"])

    def run(self, text, n, path):
        states, before = self.states(text, n)[: len(path) + 1], [text[n - 1], *path]
        return linear(states, self.head) + self.bias(states, before), None

    def confidence(self, text, n, path):
        """Of each row's token, given those before it."""
        states, before = self.states(text, n)[: len(path) + 1], [text[n - 1], *path]
        weight, bias = (self.tensors[f"confidence_head.proj.{part}"] for part in ("weight", "bias"))
        if self.flags["confidence_head_with_markov"]:
            states = torch.cat([states, self.tensors["markov_head.markov_w1.weight"][before]], -1)
        return sigmoid(linear(states, weight, bias))[:, 0]

    def draft(self, text, n):
        chain, logits, _ = common.chain(self, text, n, self.steps)
        sure = "confidence_head.proj.weight" in self.tensors
        tree = common.eagle2_tree(Promises(self) if sure else self, text, n, **self.tree)
        return common.Draft(chain, tree, logits, self.confidence(text, n, chain[:-1])[:, None] if sure else None)


class Promises:
    """A head whose likeliest token after a path is as likely as it is confident; others share the rest, and none is
    likelier."""

    def __init__(self, head):
        self.head, self.token = head, head.token

    def log_probs(self, text, n, path):
        row = torch.softmax(self.head.run(text, n, path)[0][-1].double(), -1)
        best = int(row.argmax())
        sure = float(self.head.confidence(text, n, path)[-1])
        shared = row * min((1 - sure) / (1 - row[best]), sure / row[best])
        shared[best] = sure
        return shared.log()


def matches_deepspec(ours, public, text, n):
    """Whether Qwen3DSparkModel of deepseek-ai/DeepSpec drafts the same, from the same logits."""
    entering, _ = ours.target.states(text)
    rows = torch.cat([entering[tap] for tap in ours.taps()], -1)[: n - 1]
    block = torch.tensor([[text[n - 1]] + [ours.flags["mask_token_id"]] * (ours.steps - 1)])
    hidden = public._forward_backbone(
        position_ids=torch.arange(n - 1 + ours.steps)[None], noise_embedding=public.embed_tokens(block),
        target_hidden_states=rows[None])  # fmt: skip
    base = public.compute_logits(hidden)
    tokens, logits = public.sample_draft_tokens(base, first_prev_token_ids=block[:, 0], hidden_states=hidden)
    path = tokens[0].tolist()[:-1]
    own = ours.run(text, n, path)[0] if isinstance(ours, Spark) else ours.outputs(text, n)
    same = torch.allclose(logits[0], own, atol=2e-4)
    if public.confidence_head is not None:
        before = torch.cat([block[:, :1], tokens[:, :-1]], 1)
        sure = sigmoid(public.predict_confidence_step(hidden, prev_token_ids=before)).flatten()
        same &= torch.allclose(sure, ours.confidence(text, n, path), atol=1e-5)
    return same


def matches_public(ours, public, text, n):
    """Whether DFlashDraftModel of z-lab/dflash gives the same logits."""
    entering, _ = ours.target.states(text)
    rows = torch.cat([entering[tap] for tap in ours.taps()], -1)[: n - 1]
    block = [text[n - 1]] + [ours.flags["mask_token_id"]] * ours.steps
    out = public(
        position_ids=torch.arange(n + ours.steps)[None], noise_embedding=ours.embedding[block][None],
        target_hidden=rows[None])  # fmt: skip
    return torch.allclose(linear(out[0, 1:], ours.head), ours.outputs(text, n), atol=2e-4)
