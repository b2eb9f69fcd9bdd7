"""Plain transcriptions of draft heads with attention over the target's features: everything anew for each draft.

A head's run(text, n, path) is given the n known tokens text[:n], of which the last is the root, and tokens drafted
below it. Row t has the target's feature at t and the embedding of token t + 1; the rows 0 .. n - 2 are of the target,
each token of the path adds one with the head's own output before it. The result is what the rows n - 2, ... give:
(logits [1 + len(path), draft vocabulary], what is handed on [1 + len(path), hidden]).
"""

import dataclasses
import math

import torch
from torch.nn.functional import linear, sigmoid, silu

import heads_common as common


def rms_norm(x, weight, epsilon, offset=0.0):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon) * (weight + offset)


def rope_settings(config):
    """rope_parameters (transformers 5) or rope_theta and rope_scaling (before); 10000 where nothing is said."""
    settings = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    settings.setdefault("rope_theta", config.get("rope_theta", 10000.0))
    return settings


def inverse_frequencies(settings, size):
    inverse = 1.0 / settings["rope_theta"] ** (torch.arange(0, size, 2, dtype=torch.double) / size)
    if settings.get("rope_type", settings.get("type", "default")) != "llama3":
        return inverse
    length, factor = settings["original_max_position_embeddings"], settings["factor"]
    low, high = settings["low_freq_factor"], settings["high_freq_factor"]
    turns = length * inverse / (2 * math.pi)  # over the original context
    blend = ((turns - low) / (high - low)).clamp(0, 1)
    return inverse / factor * (1 - blend) + inverse * blend


def rotate(x, settings, rotary, first=0):
    """x [heads, rows, size]; row t stands at position first + t; the first `rotary` values turn, halves against each
    other."""
    positions = torch.arange(first, first + x.shape[1], dtype=torch.double)
    angles = torch.outer(positions, inverse_frequencies(settings, rotary))
    cos, sin = angles.cos().float(), angles.sin().float()
    a, b, rest = x[..., : rotary // 2], x[..., rotary // 2 : rotary], x[..., rotary:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)


class Layer:
    """A decoder layer whose tensors' names begin with prefix, over rows that see themselves and the rows before."""

    def __init__(self, tensors, prefix, config, offset=0.0, window=None):
        self.tensors, self.prefix, self.offset, self.window = tensors, prefix, offset, window
        self.epsilon = config["rms_norm_eps"]
        self.heads = config["num_attention_heads"]
        self.kv_heads = config.get("num_key_value_heads") or self.heads
        self.size = config.get("head_dim") or config["hidden_size"] // self.heads
        self.used = config.get("num_experts_per_tok")
        self.rope = rope_settings(config)
        self.rotary = int(self.size * self.rope.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0)))

    def has(self, name):
        return f"{self.prefix}{name}" in self.tensors

    def norm(self, name, x):
        return rms_norm(x, self.tensors[f"{self.prefix}{name}.weight"], self.epsilon, self.offset)

    def project(self, name, x):
        return linear(x, self.tensors[f"{self.prefix}{name}.weight"], self.tensors.get(f"{self.prefix}{name}.bias"))

    def split(self, name, x, heads):
        """[heads, rows, size], normed where the layer norms queries and keys"""
        split = self.project(f"self_attn.{name}_proj", x).view(len(x), heads, -1)
        gate = None
        if split.shape[-1] == 2 * self.size:  # each head's queries, then its output's gate
            split, gate = split[..., : self.size], split[..., self.size :]
        if self.has(f"self_attn.{name}_norm.weight"):
            split = self.norm(f"self_attn.{name}_norm", split)
        return split.transpose(0, 1), gate

    def mask(self, rows):
        distance = torch.arange(rows)[:, None] - torch.arange(rows)
        seen = (distance >= 0) & (distance < (self.window or rows))
        return torch.where(seen, 0.0, -math.inf)

    def parts(self, x, first=0):
        """Queries, keys and values, [heads, rows, size] each, and the gate; row t stands at position first + t"""
        q, gate = self.split("q", x, self.heads)
        k, v = self.split("k", x, self.kv_heads)[0], self.split("v", x, self.kv_heads)[0]
        q, k = rotate(q, self.rope, self.rotary, first), rotate(k, self.rope, self.rotary, first)
        k, v = (common.cached(part).repeat_interleave(self.heads // self.kv_heads, 0) for part in (k, v))
        return q, k, v, gate

    def attention(self, x):
        q, k, v, gate = self.parts(x)
        weights = torch.softmax(q @ k.transpose(1, 2) / self.size**0.5 + self.mask(len(x)), -1)
        return self.output(weights @ v, gate)

    def output(self, seen, gate):
        """seen: [heads, rows, size]"""
        out = seen.transpose(0, 1)
        out = out if gate is None else out * sigmoid(gate)
        return self.project("self_attn.o_proj", out.flatten(1))

    def mlp(self, x, name="mlp"):
        if self.has(f"{name}.gate.weight"):
            return self.experts(x) + sigmoid(self.project(f"{name}.shared_expert_gate", x)) * self.mlp(
                x, f"{name}.shared_expert")  # fmt: skip
        gate, up = self.project(f"{name}.gate_proj", x), self.project(f"{name}.up_proj", x)
        return self.project(f"{name}.down_proj", silu(gate) * up)

    def expert(self, i, x):
        if not self.has("mlp.experts.gate_up_proj"):
            return self.mlp(x, f"mlp.experts.{i}")
        both, down = (self.tensors[f"{self.prefix}mlp.experts.{name}"][i] for name in ("gate_up_proj", "down_proj"))
        gate, up = linear(x, both).chunk(2, -1)
        return linear(silu(gate) * up, down)

    def experts(self, x):
        """The likeliest few, by probabilities that sum up to 1."""
        logits = self.project("mlp.gate", x)
        rows = []
        for row, scores in zip(x, logits):
            chosen = common.best(scores, self.used)
            rows.append(torch.softmax(scores[chosen], -1) @ torch.stack([self.expert(i, row) for i in chosen]))
        return torch.stack(rows)

    def __call__(self, x, residual=None):
        """residual: what is added after the attention, where x itself is not"""
        if residual is None:
            residual = x
            x = self.norm("input_layernorm", x)
        h = residual + self.attention(x)
        return h + self.mlp(self.norm("post_attention_layernorm", h))


class LatentLayer(Layer):
    """The same with latent attention, experts that corrected sigmoids choose, in groups, and one that every row uses."""

    def __init__(self, tensors, prefix, config):
        super().__init__(tensors, prefix, config)
        self.config = config
        self.rank, self.plain, self.turning = (
            config[key] for key in ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim"))  # fmt: skip

    def turn(self, x):
        """x [..., rows, size]; neighbours turn against each other."""
        positions = torch.arange(x.shape[-2], dtype=torch.double)
        angles = torch.outer(positions, inverse_frequencies(self.rope, self.turning))
        cos, sin = angles.cos().float(), angles.sin().float()
        a, b = x[..., ::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)

    def queries(self, x):
        if self.has("self_attn.q_proj.weight"):
            return self.project("self_attn.q_proj", x)
        latent = self.norm("self_attn.q_a_layernorm", self.project("self_attn.q_a_proj", x))
        return self.project("self_attn.q_b_proj", latent)

    def attention(self, x):
        q = self.queries(x).view(len(x), self.heads, -1).transpose(0, 1)
        q = torch.cat([q[..., : self.plain], self.turn(q[..., self.plain :])], -1)
        both = self.project("self_attn.kv_a_proj_with_mqa", x)
        latent = common.cached(self.norm("self_attn.kv_a_layernorm", both[:, : self.rank]))
        turned = common.cached(self.turn(both[:, self.rank :]))
        kv = self.project("self_attn.kv_b_proj", latent).view(len(x), self.heads, -1).transpose(0, 1)
        k = torch.cat([kv[..., : self.plain], turned.expand(self.heads, -1, -1)], -1)
        weights = torch.softmax(q @ k.transpose(1, 2) / (self.plain + self.turning) ** 0.5 + self.mask(len(x)), -1)
        return self.output(weights @ kv[..., self.plain :], None)

    def mlp(self, x, name="mlp"):
        if name == "mlp" and self.has("mlp.gate.weight"):
            return self.experts(x) + super().mlp(x, "mlp.shared_experts")
        return super().mlp(x, name)

    def experts(self, x):
        rows = []
        for row, logits in zip(x, self.project("mlp.gate", x)):
            scores = sigmoid(logits)
            corrected = scores + self.tensors[f"{self.prefix}mlp.gate.e_score_correction_bias"]
            groups = corrected.view(self.config["n_group"], -1)
            kept = common.best(groups.topk(2).values.sum(-1), self.config["topk_group"])
            allowed = torch.full_like(groups, -math.inf)
            allowed[kept] = groups[kept]
            chosen = common.best(allowed.flatten(), self.used)
            weights = scores[chosen] / scores[chosen].sum() * self.config["routed_scaling_factor"]
            rows.append(weights @ torch.stack([self.expert(i, row) for i in chosen]))
        return torch.stack(rows)


class Head:
    def __init__(self, config, tensors, target):
        self.config, self.tensors, self.target = config, tensors, target
        self.epsilon = config["rms_norm_eps"]
        self.embedding = tensors.get("embed_tokens.weight", target.embedding)
        self.d2t = tensors.get("d2t")
        self.features_of = {}

    def token(self, row):
        return row if self.d2t is None else row + int(self.d2t[row])

    def norm(self, name, x, offset=0.0):
        return rms_norm(x, self.tensors[f"{name}.weight"], self.epsilon, offset)

    def features(self, text):
        """One row a token of the text, as the head's first layers take them from its own output too"""
        if tuple(text) not in self.features_of:
            self.features_of = {tuple(text): self.fuse(*self.target.states(text))}
        return self.features_of[tuple(text)]

    def run(self, text, n, path):
        rows = self.features(text)[: n - 1]
        tokens = text[1:n] + path
        logits, hidden = [], []
        for step in range(len(path) + 1):
            out = self.layers(self.embedding[tokens[: len(rows)]], rows)
            handed = self.handed_on(out)
            logits.append(self.logits(out)[-1])
            hidden.append(handed[-1])
            rows = torch.cat([rows, handed[-1:]])
        return torch.stack(logits), torch.stack(hidden)


class Eagle1(Head):
    """SafeAILab/EAGLE (cnets1.py): features are the target's outputs after its final norm, as is what it predicts."""

    def __init__(self, config, tensors, target):
        super().__init__(config, tensors, target)
        self.layer = Layer(tensors, "layers.0.", config)

    def fuse(self, entering, final):
        return final

    def layers(self, embedded, rows):
        x = linear(torch.cat([embedded, rows], -1), self.tensors["fc.weight"], self.tensors.get("fc.bias"))
        return self.layer(x, residual=x)

    def handed_on(self, out):
        return out

    def logits(self, out):
        return linear(out, self.target.head)


class Eagle3(Head):
    """SafeAILab/EAGLE (cnets.py), speculators (eagle3) and what vLLM adds (llama_eagle3.py)."""

    def __init__(self, config, tensors, target):
        tensors = {name.replace("midlayer.", "layers.0."): tensor for name, tensor in tensors.items()}
        self.layer_config = config.get("transformer_layer_config", config)
        super().__init__(self.layer_config, tensors, target)
        self.flags = config
        if config.get("draft_vocab_size") == self.layer_config["vocab_size"]:
            self.d2t = None
        self.stack = [
            Layer(tensors, f"layers.{i}.", self.layer_config, window=self.window(i))
            for i in range(self.layer_config["num_hidden_layers"])
        ]

    def window(self, i):
        kinds = self.layer_config.get("layer_types") or []
        return self.layer_config["sliding_window"] if i < len(kinds) and kinds[i] == "sliding_attention" else None

    def taps(self):
        nested = self.flags.get("eagle_config") or {}
        layers = self.target.config.num_hidden_layers
        return self.flags.get("eagle_aux_hidden_state_layer_ids") or (
            [] if nested.get("use_aux_hidden_state") is False else [2, layers // 2, layers - 3])  # fmt: skip

    def fuse(self, entering, final):
        taps = self.taps()
        return self.project(torch.cat([entering[tap] for tap in taps], -1)) if taps else final

    def project(self, x):
        if self.flags.get("norm_before_fc"):
            x = self.norm("input_norm", x)
        if self.flags.get("fc_norm"):
            parts = x.chunk(len(self.taps()), -1)
            x = torch.cat([self.norm(f"fc_norm.{i}", part) for i, part in enumerate(parts)], -1)
        return linear(x, self.tensors["fc.weight"])

    def layers(self, embedded, rows):
        first = self.stack[0]
        normed = first.norm("hidden_norm", rows)
        x = torch.cat([first.norm("input_layernorm", embedded), normed], -1)
        x = first(x, residual=normed if self.flags.get("norm_before_residual") else rows)
        for layer in self.stack[1:]:
            x = layer(x)
        return x

    def handed_on(self, out):
        return self.norm("norm", out) if self.flags.get("norm_output") else out

    def logits(self, out):
        return linear(self.norm("norm", out), self.tensors["lm_head.weight"])


@dataclasses.dataclass
class MtpLayout:
    """Names in the file and what implementations do with them. feature and recycled say of which side of a norm the
    hidden states are that the module takes: of the target's final norm, and of its own."""

    layer: str  # prefix of the decoder layer
    embedding_norm: str
    hidden_norm: str
    project: str
    final_norm: str
    head: str | None = None
    hidden_first: bool = False
    feature: str = "after_norm"
    recycled: str = "after_norm"
    first_embedding: str = "kept"  # or "zero": of the row at position 0
    norm_offset: float = 0.0

    def notes(self):
        return {"feature": self.feature, "recycled": self.recycled, "first_embedding": self.first_embedding}


class Mtp(Head):
    """One module that drafts all tokens, each from its own last output. layer: a decoder layer of other code's"""

    def __init__(self, config, tensors, target, layout, layer=None):
        self.layout = layout
        config = config.get("transformer_layer_config") or config.get("text_config") or config
        super().__init__(config, tensors, target)
        self.layer = layer or Layer(tensors, layout.layer, config, layout.norm_offset)

    def normed(self, name, x):
        return self.norm(name, x, self.layout.norm_offset)

    def fuse(self, entering, final):
        return final if self.layout.feature == "after_norm" else entering[-1]

    def layers(self, embedded, rows):
        if self.layout.first_embedding == "zero":
            embedded = torch.cat([torch.zeros_like(embedded[:1]), embedded[1:]])
        parts = [self.normed(self.layout.embedding_norm, embedded), self.normed(self.layout.hidden_norm, rows)]
        parts = parts[::-1] if self.layout.hidden_first else parts
        return self.layer(linear(torch.cat(parts, -1), self.tensors[f"{self.layout.project}.weight"]))

    def handed_on(self, out):
        return self.normed(self.layout.final_norm, out) if self.layout.recycled == "after_norm" else out

    def logits(self, out):
        head = self.tensors.get(f"{self.layout.head}.weight", self.target.head)
        return linear(self.normed(self.layout.final_norm, out), head)


def parallel_draft(head, logits, shape):
    """One distribution a depth whatever stands above: the best nodes by the product along their paths."""
    top_k, nodes = shape["top_k"], shape["num_speculative_tokens"]
    chain = [head.token(common.ranked(row, 1)[0]) for row in logits]
    rows = torch.log_softmax(logits.double(), -1)
    choices = [common.best(row, top_k) for row in rows]
    made = [((), 0.0)]  # ranks along the path, score
    frontier = made
    for row, chosen in zip(rows, choices):
        frontier = [(path + (choice,), score + float(row[choice])) for path, score in frontier for choice in chosen]
        frontier = sorted(frontier, key=lambda node: -node[1])[: nodes + 1]  # deeper ones never score more
        made = made + frontier
    made = sorted(made[1:], key=lambda node: (-node[1], len(node[0])))
    common.check_gap(made[nodes - 1][1], made[nodes][1])
    place = {(): -1} | {path: i for i, (path, _) in enumerate(made[:nodes])}
    tree = common.Tree(
        [head.token(path[-1]) for path, _ in made[:nodes]], [place[path[:-1]] for path, _ in made[:nodes]],
        [round(score, 7) for _, score in made[:nodes]])  # fmt: skip
    return common.Draft(chain, tree, logits)


class PEagle(Eagle3):
    """One pass gives all steps: behind the known rows stand steps - 1 of the mask token and mask_hidden."""

    def __init__(self, config, tensors, target, steps, tree):
        super().__init__(config, tensors, target)
        self.steps, self.tree = steps, tree

    def outputs(self, text, n):
        masked = self.project(self.tensors["mask_hidden"].view(1, -1)).expand(self.steps - 1, -1)
        rows = torch.cat([self.features(text)[: n - 1], masked])
        mask = next(self.flags[key] for key in ("mask_token_id", "pard_token", "ptd_token_id") if key in self.flags)
        tokens = text[1:n] + [mask] * (self.steps - 1)
        return self.logits(self.layers(self.embedding[tokens], rows))[n - 2 :]

    def draft(self, text, n):
        logits = self.outputs(text, n)
        return parallel_draft(self, logits, self.tree)
