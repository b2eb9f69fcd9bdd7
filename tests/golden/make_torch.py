"""Writes tests/fuzz/corpus/torch/*.pt and what PyTorch says that they hold.

The files are small ones of torch.save(): a state dict of every type, views, parameters, nested dicts,
lists, the format of before PyTorch 1.6; and such as are refused. `torch.jsonl` has a line for each tensor of those
that are not: file, name, type, shape and the bytes of its contiguous values in hexadecimal.

    python3 -m venv build/torch-venv
    build/torch-venv/bin/pip install torch==2.14.1 numpy
    build/torch-venv/bin/python tests/golden/make_torch.py
"""

import json
import os
import pathlib
import zipfile
from collections import OrderedDict

import torch

FOLDER = pathlib.Path(__file__).parents[1] / "fuzz" / "corpus" / "torch"
EXPECTED = pathlib.Path(__file__).parent / "torch.jsonl"

TYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2", torch.int64: "I64", torch.int32: "I32",
    torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.uint16: "U16", torch.uint32: "U32",
    torch.uint64: "U64", torch.bool: "BOOL",
}


def ramp(*shape):
    count = 1
    for size in shape:
        count *= size
    return (torch.arange(count, dtype=torch.float32) - count / 2).mul(0.25).reshape(shape)


def types():
    return {f"of.{name}": ramp(2, 3).abs().to(kind) for kind, name in TYPES.items()}


def views():
    base = ramp(4, 6)
    cube = ramp(2, 3, 4)
    return {
        "base": base,
        "transposed": base.t(),
        "columns": base[:, 1:4],
        "rows": base[2:],
        "every_other": base[::2, ::3],
        "expanded": base[0, :2].expand(3, 2),
        "permuted": cube.permute(2, 0, 1),
        "inner_run": cube[:, 1:, :],
        "scalar": base[1, 2],
        "empty": base[:0],
        "one_column": base[:, :1],
    }


class Head(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 3)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(3, 3, bias=False), torch.nn.LayerNorm(3)])
        self.tied = self.fc
        self.register_buffer("t2d", torch.tensor([True, False, True]))


def nested():
    return {
        "epoch": 3,
        "rate": 0.5,
        "name": "a head",
        "kind": torch.bfloat16,
        "best": None,
        "trained": True,
        "model": OrderedDict([("fc.weight", ramp(3, 2)), ("fc.bias", ramp(3))]),
        "stack": [ramp(2), {"inner": ramp(1)}, (ramp(1), 7)],
        "ids": [5, -1, 70000, 1 << 40],
        "mixed": [1, 2.5],
        4: ramp(2),
    }


def files():
    torch.manual_seed(7)
    head = Head()
    yield "types.pt", types(), {}
    yield "views.pt", views(), {}
    yield "module.pt", head.state_dict(), {}
    yield "parameters.pt", dict(head.named_parameters()), {}
    yield "nested.pt", nested(), {}
    yield "ids.pt", [0, 3, 260, 70000, 2, 1], {}
    yield "tensor.pt", torch.tensor([4, 2, 9]), {}
    yield "protocol4.pt", views(), {"pickle_protocol": 4}
    yield "old.pt", views(), {"_use_new_zipfile_serialization": False}
    yield "old_types.pt", {k: v for k, v in types().items() if ".U16" not in k and ".F8" not in k
                           and ".U32" not in k and ".U64" not in k}, {
                               "_use_new_zipfile_serialization": False}


class Evil:
    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


def deep():
    value = {"a": torch.zeros(1)}
    for _ in range(100):
        value = {"a": value}
    return value


def shared():
    value = [1.5, None]
    for _ in range(25):
        value = [value, value]
    return value


def broken_files():
    """Refused, each for a reason of its own."""
    yield "runs_system.pt", {"a": Evil(os.system, ("true",))}, {}
    yield "runs_eval.pt", {"a": Evil(eval, ("1 + 1",))}, {"pickle_protocol": 4}
    yield "runs_old.pt", {"a": Evil(os.system, ("true",))}, {"_use_new_zipfile_serialization": False}
    yield "deep.pt", deep(), {}
    yield "shared.pt", shared(), {}
    yield "whole_module.pt", torch.nn.Linear(1, 1), {}
    yield "complex.pt", {"a": torch.zeros(2, dtype=torch.complex64)}, {}
    yield "negated.pt", {"a": torch.zeros(2, dtype=torch.complex64).conj().imag}, {}
    yield "grown.pt", {"a": torch.zeros(1).expand(1 << 20, 1 << 20)}, {}


def rewrite(source, target, change):
    """The archive again with other compression or order."""
    with zipfile.ZipFile(FOLDER / source) as old, zipfile.ZipFile(FOLDER / target, "w") as new:
        for info in old.infolist():
            change(new, info, old.read(info))


def compress(new, info, data):
    new.writestr(info.filename, data, zipfile.ZIP_DEFLATED)


def turn(new, info, data):
    new.writestr(info.filename, b"big" if info.filename.endswith("byteorder") else data)


def flatten(value, name):
    if isinstance(value, torch.Tensor):
        yield name or "data", value
    elif isinstance(value, (list, tuple)) and value and all(type(v) in (int, float) for v in value):
        kind = torch.int64 if all(type(v) is int for v in value) else torch.float64
        yield name or "data", torch.tensor(value, dtype=kind)
    elif isinstance(value, (dict, list, tuple)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from flatten(item, f"{name}.{key}" if name else str(key))


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, value, options in broken_files():
        torch.save(value, FOLDER / name, **options)
    with EXPECTED.open("w") as out:
        for name, value, options in files():
            torch.save(value, FOLDER / name, **options)
            for key, tensor in flatten(value, ""):
                data = tensor.detach().contiguous().flatten()
                raw = bytes(data.view(torch.uint8).tolist()) if data.numel() else b""
                line = {"file": name, "name": key, "type": TYPES[tensor.dtype], "shape": list(tensor.shape),
                        "bytes": raw.hex()}
                out.write(json.dumps(line) + "\n")
    rewrite("module.pt", "compressed.pt", compress)
    rewrite("module.pt", "big_endian.pt", turn)
    (FOLDER / "cut.pt").write_bytes((FOLDER / "module.pt").read_bytes()[:-200])
    (FOLDER / "cut_old.pt").write_bytes((FOLDER / "old.pt").read_bytes()[:-20])


if __name__ == "__main__":
    main()
