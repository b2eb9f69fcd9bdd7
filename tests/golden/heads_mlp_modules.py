"""Draft heads without attention of their own (and Hydra++), written from their descriptions: each module's state_dict
has the names of the public file, and draft() does one round. Used by make_heads_mlp.py."""

import dataclasses

import torch
from torch import nn

GAP = 1e-4  # what is taken must be ahead of what is not by this much, so that rounding decides nothing

# Children of each path of ranks in Medusa's (and Hydra's) default shape of 63 nodes.
CHILDREN = {(): 10, (0,): 10, (1,): 7, (2,): 3, (3,): 2, (0, 0): 10, (0, 1): 3, (0, 2): 2, (1, 0): 2, (2, 0): 1}
CHILDREN |= {(rank,): 1 for rank in range(4, 10)} | {(0, rank): 1 for rank in range(3, 8)} | {(0, 0, 0): 2}


class NearTie(Exception):
    """A decision that another order of summation could turn; another seed is tried."""


@dataclasses.dataclass
class Tree:
    tokens: list
    parents: list  # -1: child of the root
    log_probs: list | None = None  # cumulative; None: the method scores no paths


@dataclasses.dataclass
class Draft:
    logits: torch.Tensor  # [steps, draft vocabulary]
    chain: list
    tree: Tree
    hidden: torch.Tensor | None = None  # [steps, size]: what each step hands to the next


def best(scores, count):
    """Indices of the largest of a vector, best first."""
    values, order = torch.topk(scores, min(count + 1, len(scores)))
    if len(values) > 1 and (values[:-1] - values[1:]).min() < GAP:
        raise NearTie
    return order[:count].tolist()


def shape_paths():
    """Paths of the default shape by depth, then by ranks: the order in which the references number the nodes."""
    paths = [parent + (rank,) for parent, count in CHILDREN.items() for rank in range(count)]
    return sorted(paths, key=lambda path: (len(path), path))


class ResBlock(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = nn.Linear(size, size)

    def forward(self, x):
        return x + nn.functional.silu(self.linear(x))


# ---- Medusa ----


def medusa_modules(heads, layers, hidden, vocabulary, outputs=True):
    """The list whose state_dict is medusa_lm_head.pt. More than one layer is one block said several times."""

    def head():
        blocks = [ResBlock(hidden)] * layers
        return nn.Sequential(*blocks, nn.Linear(hidden, vocabulary, bias=False)) if outputs else nn.Sequential(*blocks)

    return nn.ModuleList(head() for _ in range(heads))


class Medusa:
    """All heads look at the feature before the root and at nothing else."""

    def __init__(self, heads, output=None):
        self.module = heads
        self.output = output  # the target's, where heads have none of their own

    def step_logits(self, feature):
        logits = [head(feature) for head in self.module]
        return torch.stack([self.output(x) for x in logits] if self.output else logits)

    def to_target(self, token):
        return token

    def draft(self, features, root):
        logits = self.step_logits(features[-1])
        ranked = [[self.to_target(token) for token in best(row, 10)] for row in logits]
        paths = shape_paths()
        tokens = [ranked[len(path) - 1][path[-1]] for path in paths]
        parents = [paths.index(path[:-1]) if len(path) > 1 else -1 for path in paths]
        return Draft(logits, [row[0] for row in ranked], Tree(tokens, parents))


class VllmBlock(nn.Module):
    def __init__(self, layers, hidden, bias):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(hidden, hidden, bias=bias) for _ in range(layers))

    def forward(self, x):
        for layer in self.layers:
            x = x + nn.functional.silu(layer(x))
        return x


class VllmMedusa(Medusa):
    """vLLM's names. Rows of the output matrices are draft ids, token_map[draft id] is the target's id; matrices of
    the target's size are cut to the mapped rows when they are read. Logits are given by ascending target id."""

    def __init__(self, heads, layers, hidden, output_rows, token_map, bias, shared_output):
        self.module = nn.Module()
        self.module.blocks = nn.ModuleList(VllmBlock(layers, hidden, bias) for _ in range(heads))
        outputs = 1 if shared_output else heads
        self.module.lm_heads = nn.ModuleList(nn.Linear(hidden, output_rows, bias=False) for _ in range(outputs))
        self.module.register_buffer("token_map", token_map)

    def step_logits(self, feature):
        rows = [block(feature) for block in self.module.blocks]
        matrices = [output.weight for output in self.module.lm_heads] * (len(rows) // len(self.module.lm_heads))
        kept = self.module.token_map
        cut = [matrix[kept] if len(matrix) > len(kept) else matrix for matrix in matrices]
        return torch.stack([(matrix @ row)[kept.argsort()] for matrix, row in zip(cut, rows)])

    def to_target(self, place):
        return int(self.module.token_map.sort().values[place])


# ---- MLPSpeculator ----


class ScaledNorm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self.bias = nn.Parameter(torch.empty(size))

    def forward(self, x):
        return rms(x) * self.weight + self.bias


def rms(x):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def mlp_speculator_module(config):
    """Tied: one embedding, norm and head for all steps, and one projection for all but the first."""
    steps, vocabulary, size = config["n_predict"], config["vocab_size"], config["inner_dim"] or config["emb_dim"]

    def listed(make, first=0):
        made = [make(i) for i in range(steps)]
        return nn.ModuleList([made[min(i, first)] if config["tie_weights"] else made[i] for i in range(steps)])

    module = nn.Module()
    module.emb = listed(lambda i: nn.Embedding(vocabulary, size))
    module.proj = listed(lambda i: nn.Linear(size if i else config["emb_dim"], size, bias=False), first=1)
    module.head = listed(lambda i: nn.Linear(size, vocabulary, bias=False))
    module.ln = listed(lambda i: ScaledNorm(size))
    return module


class MlpSpeculator:
    def __init__(self, config, prefix):
        self.config = config
        self.inner = mlp_speculator_module(config)
        self.module = self.inner
        if prefix:
            self.module = nn.Module()
            self.module.speculator = self.inner

    def step(self, i, state, token):
        """Next state, which is what the output sees as well."""
        size = self.config["inner_dim"] or self.config["emb_dim"]
        alpha = 0.5 ** (0.5 / self.config["n_predict"])
        beta = ((1 - alpha**2) * size / 2) ** 0.5
        mixed = self.inner.proj[i](state) + beta / alpha * self.inner.emb[i].weight[token]
        return nn.functional.gelu(self.inner.ln[i](mixed))

    def greedy(self, state, token):
        logits, states, chain = [], [], []
        for i in range(self.config["n_predict"]):
            state = self.step(i, state, token)
            logits.append(self.inner.head[i](state))
            token = best(logits[-1], 1)[0]
            states.append(state)
            chain.append(token)
        return torch.stack(logits), chain, torch.stack(states)

    def tree(self, state, root):
        """top_k_tokens_per_head children of every path, level by level; the n_candidates best whole paths, merged."""
        paths = [((root,), (0.0,), state)]
        for i, width in enumerate(self.config["top_k_tokens_per_head"]):
            grown = []
            for tokens, scores, state in paths:
                following = self.step(i, state, tokens[-1])
                log_probs = self.inner.head[i](following).log_softmax(-1)
                for token in best(log_probs, width):
                    grown.append((tokens + (token,), scores + (scores[-1] + log_probs[token].item(),), following))
            paths = grown
        kept = best(torch.tensor([scores[-1] for _, scores, _ in paths]), self.config["n_candidates"])
        return merge([(paths[i][0][1:], paths[i][1][1:]) for i in kept])

    def draft(self, features, root):
        state = rms(features[-1]) / 2**0.5 if self.config["scale_input"] else features[-1]
        logits, chain, states = self.greedy(state, root)
        return Draft(logits, chain, self.tree(state, root), states)


def merge(paths):
    """Prefix tree of (tokens, cumulative scores), nodes in the order in which the paths first need them."""
    nodes, tree = {}, Tree([], [], [])
    for tokens, scores in paths:
        for depth in range(len(tokens)):
            prefix = tokens[: depth + 1]
            if prefix not in nodes:
                nodes[prefix] = len(nodes)
                tree.tokens.append(tokens[depth])
                tree.parents.append(nodes.get(prefix[:-1], -1))
                tree.log_probs.append(scores[depth])
    return tree


# ---- Hydra ----


class HydraBlock(nn.Module):
    """The first block of a grounded head narrows its inputs, so its way round is a matrix with a bias too."""

    def __init__(self, size, inputs=1):
        super().__init__()
        self.linear = nn.Linear(inputs * size, size)
        self.res_connection = nn.Linear(inputs * size, size) if inputs > 1 else nn.Identity()

    def forward(self, x):
        return self.res_connection(x) + nn.functional.silu(self.linear(x))


def hydra_module(config, embedding, vocabulary, prefix_layer=None):
    """Modules as the public code registers them: the target's embedding is one of them, and blocks after the first
    (ungrounded: all of them) are one module. Hydra++ has a dropout before each block and each output."""
    dropout = [nn.Dropout(0.0)] if prefix_layer else []
    size, grounded = embedding.weight.shape[1], config["grounded_heads"]

    def head(i):
        rest = [*dropout, HydraBlock(size)]
        first = [*dropout, HydraBlock(size, i + 2)] if grounded else []
        return nn.Sequential(*first, *rest * (config["hydra_num_layers"] - grounded))

    def output():
        linear = nn.Linear(size, vocabulary)
        return nn.Sequential(*dropout, linear) if dropout else linear

    module = nn.Module()
    if prefix_layer:
        module.prefix_embeding_layer = prefix_layer
    module.input_embed_fn = embedding
    module.hydra_mlp = nn.ModuleList(head(i) for i in range(config["hydra_num_heads"]))
    module.hydra_lm_head = nn.ModuleList(output() for _ in range(config["hydra_num_heads"]))
    return module


class Hydra:
    """Head i sees the feature before the root and the embeddings of the root and of the i tokens drafted after it."""

    def __init__(self, config, embedding, vocabulary, prefix_layer=None):
        self.grounded = config["grounded_heads"]
        self.embedding = embedding
        self.prefix_layer = prefix_layer
        self.module = hydra_module(config, embedding, vocabulary, prefix_layer)

    def feature(self, features):
        if not self.prefix_layer:
            return features[-1]
        return self.prefix_layer(inputs_embeds=features[None], use_cache=False).last_hidden_state[0, -1]

    def extend(self, inputs, token):
        return torch.cat([inputs, self.embedding.weight[token]], -1) if self.grounded else inputs

    def draft(self, features, root):
        inputs = {(): self.extend(self.feature(features), root)}
        tokens, logits = {}, {}
        for path in [()] + shape_paths():
            if path not in CHILDREN:
                continue
            head = len(path)
            logits[path] = self.module.hydra_lm_head[head](self.module.hydra_mlp[head](inputs[path]))
            for rank, token in enumerate(best(logits[path], CHILDREN[path])):
                tokens[path + (rank,)] = token
                inputs[path + (rank,)] = self.extend(inputs[path], token)
        paths = shape_paths()
        parents = [paths.index(path[:-1]) if len(path) > 1 else -1 for path in paths]
        steps = range(len(self.module.hydra_mlp))
        chain_logits = torch.stack([logits[(0,) * i] for i in steps])
        chain = [tokens[(0,) * (i + 1)] for i in steps]
        return Draft(chain_logits, chain, Tree([tokens[path] for path in paths], parents))


# ---- ReDrafter ----


def redrafter_module(config):
    """Blocks are modules of their own here. input_proj is there where exit_dim is not the width of the inputs."""
    hidden, size = config["hidden_size"], config["exit_dim"]
    module = nn.Module()
    if size != 2 * hidden:
        module.input_proj = nn.Linear(2 * hidden, size)
    blocks = [ResBlock(size) for _ in range(config["num_draft_layers"])]
    module.lm_head = nn.Sequential(*blocks, nn.Linear(size, config["vocab_size"], bias=False))
    if config["rnn"]:
        module.rnn_u = nn.Linear(hidden, hidden)
        module.rnn_w = nn.Linear(hidden, hidden, bias=False)
    return module


class Redrafter:
    KEPT = 50  # tokens of a step that share its probability; the rest have none

    def __init__(self, config, embedding, steps, width):
        self.embedding, self.steps, self.width = embedding, steps, width
        self.module = redrafter_module(config)

    def step(self, feature, state, token):
        """(next state, logits). Without an RNN the state is the sum of the embeddings since the root."""
        embedded = self.embedding.weight[token]
        if hasattr(self.module, "rnn_u"):
            state = nn.functional.silu(self.module.rnn_w(embedded) + self.module.rnn_u(state))
        else:
            state = state + embedded
        inputs = torch.cat([feature, state], -1)
        if hasattr(self.module, "input_proj"):
            inputs = self.module.input_proj(inputs)
        return state, self.module.lm_head(inputs)

    def beams(self, feature, root):
        """The first step takes `width` tokens of one distribution, later ones the best of all beams' children.
        Tokens with cumulative log-probabilities of whole distributions, by which the beams are the same."""
        beams = self.search(feature, root, self.KEPT)
        whole = dict(self.search(feature, root, len(self.embedding.weight)))
        if [tokens for tokens, _ in beams] != list(whole):
            raise NearTie
        return [(tokens, whole[tokens]) for tokens, _ in beams]

    def search(self, feature, root, kept):
        beams = [((root,), (0.0,), torch.zeros_like(feature))]
        for _ in range(self.steps):
            scores, states = [], []
            for tokens, cumulative, state in beams:
                state, logits = self.step(feature, state, tokens[-1])
                rest = logits < torch.topk(logits, kept).values[-1]
                scores.append(cumulative[-1] + logits.masked_fill(rest, -torch.inf).log_softmax(-1))
                states.append(state)
            flat = torch.cat(scores)
            grown = []
            for place in best(flat, self.width):
                tokens, cumulative, _ = beams[place // len(scores[0])]
                grown.append((tokens + (place % len(scores[0]),), cumulative + (flat[place].item(),),
                              states[place // len(scores[0])]))  # fmt: skip
            beams = grown
        return [(tokens[1:], cumulative[1:]) for tokens, cumulative, _ in beams]

    def draft(self, features, root):
        feature = features[-1]
        state, token, logits, states, chain = torch.zeros_like(feature), root, [], [], []
        for _ in range(self.steps):
            state, row = self.step(feature, state, token)
            token = best(row, 1)[0]
            logits.append(row)
            states.append(state)
            chain.append(token)
        return Draft(torch.stack(logits), chain, merge(self.beams(feature, root)), torch.stack(states))
