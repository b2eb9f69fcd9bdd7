"""Models with linear attention (Gated DeltaNet, Mamba-2, short convolutions) that do one thing another way, for
make_families.py --check."""

import contextlib
import importlib
from unittest import mock

import torch

DELTA_RULE = {"qwen3_next": "qwen3_next", "qwen3_5_text": "qwen3_5", "qwen3_5_moe_text": "qwen3_5_moe"}
SHORT = {name: name for name in ("lfm2", "lfm2_moe")}
MODULES = {**DELTA_RULE, **SHORT, "granitemoehybrid": "granitemoehybrid"}
PREFIXES = {
    "qwen3_next": "Qwen3Next", "qwen3_5": "Qwen3_5", "qwen3_5_moe": "Qwen3_5Moe", "lfm2": "Lfm2",
    "lfm2_moe": "Lfm2Moe", "granitemoehybrid": "GraniteMoeHybrid",
}
CHUNK = 64


def is_hybrid(config):
    return config.model_type in DELTA_RULE


def rewritten(config):
    """The label of the check that must not show; None: nothing is rewritten."""
    if config.model_type == "granitemoehybrid":
        return "scan rewritten" if "linear_attention" in config.layer_types else None
    return "rewritten" if is_hybrid(config) else None


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


def scan(forget=0, first_read=False, subtract=False, repeat=lambda x, times: x.repeat_interleave(times, 1)):
    """Patches Mamba-2's scan of a modeling module, position by position."""

    def patch(module, prefix):
        def replacement(x, dt, A, B, C, D, dt_bias, **_):
            (x, dt, B, C), times = (value[0] for value in (x, dt, B, C)), x.shape[2] // B.shape[2]
            keys, queries, steps = repeat(B, times), repeat(C, times), torch.nn.functional.softplus(dt + dt_bias)
            state = torch.zeros(x.shape[1], keys.shape[-1], x.shape[-1], dtype=x.dtype)
            rows = []
            for t in range(len(x)):
                if forget and t % forget == 0:
                    state = torch.zeros_like(state)
                before = state
                state = state * (steps[t] * A).exp()[:, None, None]
                known = torch.einsum("hkv,hk->hv", state, keys[t]) if subtract else 0.0
                state = state + torch.einsum("hk,hv->hkv", keys[t], steps[t][:, None] * (x[t] - known))
                read = torch.einsum("hkv,hk->hv", before if first_read else state, queries[t])
                rows.append(read + D[:, None] * x[t])
            return torch.stack(rows)[None]

        return mock.patch.object(module, "mamba2_chunk_scan", replacement)

    return patch


def group_norm(change):
    def patch(module, prefix):
        def forward(self, x, gate):
            def plain(y):
                y = y.unflatten(-1, (-1, self.group_size))
                return self.weight * (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)).flatten(-2)

            return change(plain, x, gate)

        return mock.patch.object(getattr(module, f"{prefix}RMSNormGated"), "forward", forward)

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
    "scan rewritten": scan(),  # must not show
    "scan reads before it writes": scan(first_read=True),
    "scan with a delta": scan(subtract=True),
    "groups tiled": scan(repeat=lambda x, times: x.repeat(1, times, 1)),
    "scan loses its state after 64 positions": scan(forget=CHUNK),
    "norm before the gate": group_norm(lambda plain, x, gate: plain(x) * torch.nn.functional.silu(gate)),
    "no gate before the norm": group_norm(lambda plain, x, gate: plain(x)),
    "SiLU behind it": convolution(lambda plain, x: plain(x, "silu")),
    "nothing but gates": convolution(lambda plain, x: x),
}


@contextlib.contextmanager
def doing(label, config):
    """Within: models of the configuration do what the label says."""
    module = modeling(config)
    with CODE_CHECKS[label](module, PREFIXES[MODULES[config.model_type]]):
        yield
