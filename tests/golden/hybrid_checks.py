"""Models with linear attention (Gated DeltaNet) that do one thing another way, for make_families.py --check."""

import contextlib
import importlib
from unittest import mock

import torch

MODULES = {"qwen3_next": "qwen3_next", "qwen3_5_text": "qwen3_5", "qwen3_5_moe_text": "qwen3_5_moe"}
PREFIXES = {"qwen3_next": "Qwen3Next", "qwen3_5": "Qwen3_5", "qwen3_5_moe": "Qwen3_5Moe"}
CHUNK = 64


def is_hybrid(config):
    return config.model_type in MODULES


def modeling(config):
    name = MODULES[config.model_type]
    return importlib.import_module(f"transformers.models.{name}.modeling_{name}")


def unit(x):
    return x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + 1e-6)


def delta_rule(query, key, value, g, beta, keys=unit, queries=unit, scale=None, first_read=False, delta=True,
               repeat=lambda x, times: x.repeat_interleave(times, 2), forget=0):
    """[1, length, heads, size] each, g and beta without the size; position by position."""
    times = value.shape[2] // key.shape[2]
    q, k = repeat(queries(query), times)[0], repeat(keys(key), times)[0]
    q = q * (q.shape[-1] ** -0.5 if scale is None else scale)
    state = torch.zeros(value.shape[2], key.shape[-1], value.shape[-1], dtype=value.dtype)
    rows = []
    for t in range(len(q)):
        if forget and t % forget == 0:
            state = torch.zeros_like(state)
        state = state * g[0, t].exp()[:, None, None]
        before = state
        known = torch.einsum("hkv,hk->hv", state, k[t]) if delta else 0.0
        change = beta[0, t][:, None] * (value[0, t] - known)
        state = state + torch.einsum("hk,hv->hkv", k[t], change)
        rows.append(torch.einsum("hkv,hk->hv", before if first_read else state, q[t]))
    return torch.stack(rows)[None]


def rule(beta_is=None, **options):
    """Patches the rule of a modeling module."""

    def patch(module, prefix):
        def replacement(query, key, value, g, beta, **_):
            beta = beta if beta_is is None else torch.full_like(beta, beta_is)
            return delta_rule(query, key, value, g, beta, **options), None

        return mock.patch.object(module, "torch_chunk_gated_delta_rule", replacement)

    return patch


def convolution(change):
    def patch(module, prefix):
        plain = module.causal_conv1d_fn

        def replacement(x, weight, bias, activation=None, **_):
            return change(lambda part, act=activation: plain(part, weight, bias, activation=act), x)

        return mock.patch.object(module, "causal_conv1d_fn", replacement)

    return patch


def norm(change):
    def patch(module, prefix):
        def forward(self, x, gate):
            def plain(y):
                return self.weight * y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)

            return change(plain, x, gate)

        return mock.patch.object(getattr(module, f"{prefix}RMSNormGated"), "forward", forward)

    return patch


def same(x):
    return x


CODE_CHECKS = {
    "rewritten": rule(),  # must not show
    "beta 1": rule(beta_is=1.0),
    "keys as they are": rule(keys=lambda x: 0.3 * x),
    "queries as they are": rule(queries=same),
    "queries not scaled": rule(scale=1.0),
    "read before written": rule(first_read=True),
    "no delta": rule(delta=False),
    "heads of keys tiled": rule(repeat=lambda x, times: x.repeat(1, 1, times, 1)),
    "state lost after 64 positions": rule(forget=CHUNK),
    "no convolution": convolution(lambda plain, x: torch.nn.functional.silu(x)),
    "no SiLU behind it": convolution(lambda plain, x: plain(x, None)),
    "convolution's window lost after 64 positions": convolution(
        lambda plain, x: torch.cat([plain(part) for part in x.split(CHUNK, -1)], -1)),
    "no gate": norm(lambda plain, x, gate: plain(x)),
    "sigmoid for the gate's SiLU": norm(lambda plain, x, gate: plain(x) * torch.sigmoid(gate)),
    "gate before the norm": norm(lambda plain, x, gate: plain(x * torch.nn.functional.silu(gate))),
}


@contextlib.contextmanager
def doing(label, config):
    """Within: models of the configuration do what the label says."""
    module = modeling(config)
    with CODE_CHECKS[label](module, PREFIXES[MODULES[config.model_type]]):
        yield
