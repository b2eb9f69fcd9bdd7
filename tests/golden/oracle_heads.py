"""Draft heads as they are trained to know one text by heart: the drafts of all its rows at once, with gradients, each
step fed what the one before it handed on. Used by make_oracles.py.

An oracle has parameters(), files() -> (config.json, {name: tensor}) and draft(tokens, states, earlier) -> logits
[steps, rows, draft vocabulary]. The draft of row t begins with the target's features at t; tokens [steps, rows] are
what its steps read: the root, at t + 1, then the drafted. `earlier` are the states of which the rows before t are made.
Weights that see the embedding of a token are zero and stay zero.
"""

import copy

import torch
import transformers
from torch import nn

import heads_attention as plain
import heads_common as common
import heads_mlp_modules as mlp
import make_heads_eagle as eagle
from heads_common import HIDDEN, VOCABULARY

STEPS, DRAFT_VOCABULARY, INTERMEDIATE, SIZE, MASK_TOKEN = 4, 40, 48, 16, 2


class AnchoredLayer(plain.Layer):
    """Runs rows first as one sequence, and keeps its keys and values. Then each row begins a draft of its own: step s
    of row t stands at t + s and sees the kept rows before t and this row's steps up to s."""

    def forget(self):
        self.kept, self.own = None, []

    def attention(self, x):
        q, k, v, gate = self.parts(x, len(self.own))
        if self.kept is None:
            self.kept = k, v
            before = q @ k.transpose(1, 2) / self.size**0.5 + self.mask(len(x))
            return self.output(torch.softmax(before, -1) @ v, gate)
        self.own.append((k, v))
        earlier = torch.ones(len(x), len(x)).tril(-1) == 0
        before = (q @ self.kept[0].transpose(1, 2) / self.size**0.5).masked_fill(earlier, -torch.inf)
        own = torch.stack([(q * key).sum(-1) for key, _ in self.own], -1) / self.size**0.5
        weights = torch.softmax(torch.cat([before, own], -1), -1)
        seen = weights[..., : len(x)] @ self.kept[1]
        for i, (_, value) in enumerate(self.own):
            seen = seen + weights[..., len(x) + i, None] * value
        return self.output(seen, gate)


def blinded(named, blind):
    """Parameters whose columns `blind` (name -> slice) are zero and get no gradient."""
    for name, columns in blind.items():
        sees = torch.ones_like(named[name])
        sees[..., columns] = 0.0
        with torch.no_grad():
            named[name].mul_(sees)
        named[name].register_hook(lambda gradient, sees=sees: gradient * sees)


class Attentive:
    """An oracle of a head with attention. head: a transcription whose layers are AnchoredLayers over `trained`"""

    def __init__(self, head, layers, config, trained, fixed, parallel=False):
        self.head, self.layers, self.config, self.trained, self.fixed = head, layers, config, trained, fixed
        self.parallel = parallel  # whether later steps are rows of the mask

    def parameters(self):
        return self.trained.values()

    def draft(self, tokens, states, earlier):
        rows = self.head.fuse(*states)
        for layer in self.layers:
            layer.forget()
        self.head.layers(self.head.embedding[tokens[0]], self.head.fuse(*earlier))
        logits = []
        for step in range(STEPS):
            masked = self.parallel and step > 0
            read = torch.full_like(tokens[0], MASK_TOKEN) if masked else tokens[step]
            out = self.head.layers(self.head.embedding[read], rows)
            logits.append(self.head.logits(out))
            if self.parallel:
                rows = self.head.project(self.trained["mask_hidden"].view(1, -1)).expand(len(rows), -1)
            else:
                rows = self.head.handed_on(out)
        return torch.stack(logits)

    def files(self):
        return self.config, self.trained | self.fixed


def parameters(name, shapes, blind):
    random = common.generator(f"oracle {name}")
    named = {key: nn.Parameter(common.value(random, key, shape)) for key, shape in shapes.items()}
    blinded(named, {key: slice(HIDDEN) for key in blind})
    return named


def layer_shapes(width):
    return eagle.shapes_of_layer(HIDDEN, INTERMEDIATE, 4, 2, SIZE, width)


def attention_config(**more):
    shape = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": SIZE, "intermediate_size": INTERMEDIATE}
    return eagle.eagle3_config() | shape | more


def vocabulary_map(text):
    """Rows of the head for the text's tokens and for others."""
    others = [int(token) for token in common.generator("oracle d2t").permutation(VOCABULARY) if token not in text]
    chosen = torch.tensor(sorted({*text, *others[: DRAFT_VOCABULARY - len(set(text))]}))
    t2d = torch.zeros(VOCABULARY, dtype=torch.bool)
    t2d[chosen] = True
    return {"d2t": chosen - torch.arange(DRAFT_VOCABULARY), "t2d": t2d}


def make_eagle(name, target, text):
    config = attention_config(bias=True)
    del config["draft_vocab_size"]
    shapes = {f"layers.0.{key}": shape for key, shape in layer_shapes(HIDDEN).items()}
    shapes |= {"fc.weight": (HIDDEN, 2 * HIDDEN), "fc.bias": (HIDDEN,)}
    trained = parameters(name, shapes, ["fc.weight"])
    fixed = {"embed_tokens.weight": target.embedding}
    head = plain.Eagle1(config, trained | fixed, target)
    head.layer = AnchoredLayer(trained, "layers.0.", config)
    return Attentive(head, [head.layer], config, trained, fixed)


def make_eagle3(layers, parallel, **more):
    def make(name, target, text):
        config = attention_config(num_hidden_layers=layers, **more)
        layer = layer_shapes(2 * HIDDEN) | {"hidden_norm.weight": (HIDDEN,), "input_layernorm.weight": (HIDDEN,)}
        shapes = {f"midlayer.{key}": shape for key, shape in layer.items()}
        for i in range(1, layers):
            further = layer_shapes(HIDDEN) | {"input_layernorm.weight": (HIDDEN,)}
            shapes |= {f"layers.{i}.{key}": shape for key, shape in further.items()}
        taps = len(more["eagle_aux_hidden_state_layer_ids"])
        shapes |= {"fc.weight": (HIDDEN, taps * HIDDEN), "norm.weight": (HIDDEN,)}
        shapes["lm_head.weight"] = (DRAFT_VOCABULARY, HIDDEN)
        shapes |= {"mask_hidden": (1, 1, taps * HIDDEN)} if parallel else {}
        trained = parameters(name, shapes, [f"midlayer.self_attn.{part}_proj.weight" for part in "qkv"])
        fixed = vocabulary_map(text)
        head = plain.Eagle3(config, trained | fixed, target)
        renamed = {key.replace("midlayer.", "layers.0."): tensor for key, tensor in trained.items()}
        head.stack = [AnchoredLayer(renamed, f"layers.{i}.", config) for i in range(layers)]
        return Attentive(head, head.stack, config, trained, fixed, parallel)

    return make


def make_mtp(name, target, text):
    layout = eagle.DEEPSEEK
    config = eagle.mtp_config("DeepseekV3ForCausalLM", "deepseek_v3", num_attention_heads=4, num_key_value_heads=2,
                              intermediate_size=INTERMEDIATE)  # fmt: skip
    shapes = {f"{layout.layer}{key}": shape for key, shape in layer_shapes(HIDDEN).items()}
    shapes |= {f"{layout.project}.weight": (HIDDEN, 2 * HIDDEN), f"{layout.layer}input_layernorm.weight": (HIDDEN,)}
    shapes |= {f"{key}.weight": (HIDDEN,) for key in (layout.embedding_norm, layout.hidden_norm, layout.final_norm)}
    trained = parameters(name, shapes, [f"{layout.project}.weight"])
    fixed = {f"{layout.head}.weight": target.head, f"{layout.layer}embed_tokens.weight": target.embedding}
    head = plain.Mtp(config, trained | fixed, target, layout, AnchoredLayer(trained, layout.layer, config))
    return Attentive(head, [head.layer], config, trained, fixed)


class Modules:
    """An oracle of a head without attention of its own. draft_of(tokens, features, earlier features)"""

    def __init__(self, name, module, config, draft_of, blind=None):
        self.module, self.config, self.draft_of = module, config, draft_of
        random = common.generator(f"oracle {name}")
        named = dict(module.named_parameters())
        with torch.no_grad():
            for key, parameter in named.items():
                if key.startswith("input_embed_fn"):
                    parameter.requires_grad_(False)  # the target's
                else:
                    parameter.copy_(common.value(random, key.replace(".ln.", ".norm"), tuple(parameter.shape)))
        blinded(named, blind or {})

    def parameters(self):
        return [parameter for parameter in self.module.parameters() if parameter.requires_grad]

    def draft(self, tokens, states, earlier):
        return self.draft_of(tokens, states[1], earlier[1])

    def files(self):
        return self.config, self.module.state_dict()


EVERY = slice(None)


def make_medusa(name, target, text):
    head = mlp.Medusa(mlp.medusa_modules(STEPS, 1, HIDDEN, VOCABULARY))
    config = {"base_model_name_or_path": "../target", "medusa_num_heads": STEPS, "medusa_num_layers": 1}
    return Modules(name, head.module, config, lambda tokens, features, earlier: head.step_logits(features))


def make_prefix_layer(target):
    """The module that gives the names; (features, earlier features) -> what the heads see"""
    config = copy.deepcopy(target.config)
    config.num_hidden_layers = 1
    module = transformers.LlamaModel(config)
    layer = AnchoredLayer(dict(module.named_parameters()), "layers.0.", config.to_dict())

    def run(features, earlier):
        layer.forget()
        layer(earlier)
        return module.norm(layer(features))

    return module, run


def make_hydra(grounded, prefix=False):
    def make(name, target, text):
        config = {"base_model_name_or_path": "../target", "hydra_head_arch": "prefix-mlp" if prefix else "mlp",
                  "hydra_num_heads": STEPS, "hydra_num_layers": 2 if prefix else 1, "grounded_heads": grounded,
                  "hidden_state_offset": 0}  # fmt: skip
        embedding = nn.Embedding(VOCABULARY, HIDDEN, _weight=target.embedding.clone())
        layer, run = make_prefix_layer(target) if prefix else (None, lambda features, earlier: features)
        module = mlp.Hydra(config, embedding, VOCABULARY, layer).module
        first = 1 if prefix else 0  # of a head's parts: a dropout comes before
        blind = {f"hydra_mlp.{i}.{first}.{part}.weight": slice(HIDDEN, None)
                 for i in range(STEPS if grounded else 0) for part in ("linear", "res_connection")}  # fmt: skip
        if prefix:
            blind["prefix_embeding_layer.embed_tokens.weight"] = EVERY

        def draft(tokens, features, earlier):
            seen, logits = run(features, earlier), []
            for i in range(STEPS):
                seen = torch.cat([seen, embedding(tokens[i])], -1) if grounded else seen
                logits.append(module.hydra_lm_head[i](module.hydra_mlp[i](seen)))
            return torch.stack(logits)

        return Modules(name, module, config, draft, blind)

    return make


def make_mlp_speculator(name, target, text):
    config = {"architectures": ["MLPSpeculatorPreTrainedModel"], "model_type": "mlp_speculator", "emb_dim": HIDDEN,
              "vocab_size": VOCABULARY, "inner_dim": HIDDEN, "n_predict": STEPS, "tie_weights": False,
              "scale_input": True, "top_k_tokens_per_head": [4, 3, 2, 2], "n_candidates": 5}  # fmt: skip
    head = mlp.MlpSpeculator(config, True)

    def draft(tokens, features, earlier):
        state, logits = mlp.rms(features) / 2**0.5, []
        for i in range(STEPS):
            state = head.step(i, state, tokens[i])
            logits.append(head.inner.head[i](state))
        return torch.stack(logits)

    return Modules(name, head.module, config, draft, {f"speculator.emb.{i}.weight": EVERY for i in range(STEPS)})


def make_redrafter(name, target, text):
    config = {"architectures": ["Drafter"], "model_type": "recurrent_drafting_drafter", "vocab_size": VOCABULARY,
              "hidden_size": HIDDEN, "exit_dim": 2 * HIDDEN, "num_draft_layers": 2, "num_lookback_tokens": -1,
              "rnn": True}  # fmt: skip
    embedding = nn.Embedding(VOCABULARY, HIDDEN, _weight=target.embedding.clone())
    head = mlp.Redrafter(config, embedding, STEPS, 1)

    def draft(tokens, features, earlier):
        state, logits = torch.zeros_like(features), []
        for i in range(STEPS):
            state, row = head.step(features, state, tokens[i])
            logits.append(row)
        return torch.stack(logits)

    return Modules(name, head.module, config, draft, {"rnn_w.weight": EVERY})
