#!/usr/bin/env python3
"""What PyTorch takes for passes of an 8B model of Llama's shape on a GPU, with random bfloat16 weights: to be held
against `aerie bench verify --shape llama-8b --type bf16 --device cuda:0`.

Two figures for each number of rows: the four products of a layer, of all layers (cuBLAS), and a whole pass, with
PyTorch's own norms, rotary embedding, attention and activation. Both are recorded into a CUDA graph and replayed, so
that neither Python nor launches count; an engine such as vLLM adds its scheduler and fuses some of the small kernels.
"""

import argparse
import statistics

import torch
import torch.nn.functional as F

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN, VOCAB = 32, 4096, 32, 8, 128, 14336, 128256
KV = KV_HEADS * HEAD_DIM


def weight(n, k):
    return torch.randn(n, k, device="cuda", dtype=torch.bfloat16) * 0.02


class Layer:
    def __init__(self, positions):
        self.qkv, self.o = weight(HIDDEN + 2 * KV, HIDDEN), weight(HIDDEN, HIDDEN)
        self.gate_up, self.down = weight(2 * FFN, HIDDEN), weight(HIDDEN, FFN)
        self.norms = torch.ones(2, HIDDEN, device="cuda", dtype=torch.bfloat16)
        self.cache = torch.randn(2, KV_HEADS, positions, HEAD_DIM, device="cuda", dtype=torch.bfloat16)


class Model:
    def __init__(self, positions):
        self.layers = [Layer(positions) for _ in range(LAYERS)]
        self.embedding, self.output = weight(VOCAB, HIDDEN), weight(VOCAB, HIDDEN)

    def products(self, x):
        for layer in self.layers:
            F.linear(x, layer.qkv)
            F.linear(x, layer.o)
            wide = F.linear(x, layer.gate_up)
            F.linear(wide[:, :FFN], layer.down)
        return x

    def norm(self, x, w):
        return F.rms_norm(x, (HIDDEN,), w, 1e-5)

    def turn(self, x, cos, sin):
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat((-b, a), -1) * sin

    def whole(self, tokens, context, cos, sin, mask):
        rows = tokens.shape[0]
        x = F.embedding(tokens, self.embedding)
        for layer in self.layers:
            qkv = F.linear(self.norm(x, layer.norms[0]), layer.qkv).view(rows, HEADS + 2 * KV_HEADS, HEAD_DIM)
            q, k, v = qkv.transpose(0, 1).split((HEADS, KV_HEADS, KV_HEADS))
            layer.cache[0, :, context : context + rows] = self.turn(k, cos, sin)
            layer.cache[1, :, context : context + rows] = v
            keys, values = layer.cache[:, :, : context + rows]
            seen = F.scaled_dot_product_attention(
                self.turn(q, cos, sin)[None], keys[None], values[None], attn_mask=mask, enable_gqa=True
            )
            x = x + F.linear(seen[0].transpose(0, 1).reshape(rows, HIDDEN), layer.o)
            gate, up = F.linear(self.norm(x, layer.norms[1]), layer.gate_up).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, layer.down)
        return F.linear(self.norm(x, self.layers[0].norms[0]), self.output).argmax(-1)


def milliseconds(call, repeat):
    """The median of `repeat` replays."""
    for _ in range(2):
        call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    times = []
    for _ in range(repeat):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def measure(model, rows, context, repeat):
    x = torch.randn(rows, HIDDEN, device="cuda", dtype=torch.bfloat16)
    tokens = torch.randint(VOCAB, (rows,), device="cuda")
    angles = torch.randn(rows, HEAD_DIM, device="cuda")
    cos, sin = angles.cos().bfloat16(), angles.sin().bfloat16()
    mask = torch.ones(rows, context + rows, device="cuda", dtype=torch.bool).tril(context)
    products = milliseconds(lambda: model.products(x), repeat)
    whole = milliseconds(lambda: model.whole(tokens, context, cos, sin, mask), repeat)
    parameters = LAYERS * ((HIDDEN + 2 * KV) * HIDDEN + HIDDEN * HIDDEN + 3 * FFN * HIDDEN)
    print(
        f"{rows:5d} rows behind {context}: products {products:7.3f} ms "
        f"({2e-9 * rows * parameters / products:4.0f} TFLOP/s), pass {whole:7.3f} ms",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", default="1,4,8,16,32,64,512", help="numbers of rows, with commas between them")
    parser.add_argument("--context", type=int, default=128, help="positions in the cache")
    parser.add_argument("--repeat", type=int, default=15, help="passes, of which the median is taken")
    args = parser.parse_args()
    rows = [int(one) for one in args.rows.split(",")]
    if not torch.cuda.is_available():
        parser.error("PyTorch finds no GPU here")
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}, bfloat16")
    with torch.inference_mode():
        model = Model(args.context + max(rows))
        for one in rows:
            measure(model, one, args.context, args.repeat)


if __name__ == "__main__":
    main()
