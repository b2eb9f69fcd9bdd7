#!/usr/bin/env python3
"""Makes tests/golden/int8/: matrices in 8 bits as the package compressed-tensors writes them, and what it makes of them.

    build/int8-venv/bin/python tests/golden/make_int8.py

README.md beside this file says what is in it.
"""

import json
import shutil
from pathlib import Path

import compressed_tensors
import safetensors.torch
import torch
from compressed_tensors.compressors import BaseCompressor, ModelCompressor
from compressed_tensors.quantization import (
    QuantizationArgs, QuantizationConfig, QuantizationScheme, apply_quantization_config)
from compressed_tensors.quantization.utils import calculate_qparams

ROOT = Path(__file__).parent / "int8"
TOKENS = {"num_bits": 8, "type": "int", "symmetric": True, "dynamic": True, "strategy": "token"}

# name: format, type of the weights and scales, arguments of the weights, whether activations are quantised as well
CASES = {
    "group": ("int-quantized", torch.bfloat16, {"strategy": "group", "group_size": 32}, True),
    "group-64": ("int-quantized", torch.float16, {"strategy": "group", "group_size": 64}, True),
    "group-16": ("int-quantized", torch.bfloat16, {"strategy": "group", "group_size": 16}, True),
    "channel": ("int-quantized", torch.bfloat16, {"strategy": "channel"}, True),
    "channel-f32": ("int-quantized", torch.float32, {"strategy": "channel"}, True),
    "tensor": ("naive-quantized", torch.bfloat16, {"strategy": "tensor"}, False),
    "asymmetric": ("int-quantized", torch.bfloat16, {"strategy": "group", "group_size": 32, "symmetric": False}, True),
    "packed": ("pack-quantized", torch.bfloat16, {"strategy": "group", "group_size": 32, "num_bits": 4}, False),
}
REFUSED = ("asymmetric",)


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up_proj = torch.nn.Linear(64, 4)
        self.down_proj = torch.nn.Linear(128, 3, bias=False)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = torch.nn.Embedding(5, 64)
        self.layers = torch.nn.ModuleList([Layer()])
        self.lm_head = torch.nn.Linear(64, 2, bias=False)


def scales_of(weight, args):
    """Scales and zero points of the least and the largest element of each group."""
    if args.strategy == "group":
        groups = weight.unflatten(1, (-1, args.group_size))
        return calculate_qparams(groups.amin(2), groups.amax(2), args)
    if args.strategy == "channel":
        return calculate_qparams(weight.amin(1, keepdim=True), weight.amax(1, keepdim=True), args)
    return calculate_qparams(weight.amin(), weight.amax(), args)


def unpacked(packed, scale):
    """Code times scale, in F32, of eight codes in each integer."""
    codes = torch.stack([packed >> (4 * i) & 15 for i in range(8)], 2).flatten(1) - 8
    return codes.float() * scale.float().repeat_interleave(codes.shape[1] // scale.shape[1], 1)


def make(name, form, dtype, weights, activations):
    torch.manual_seed(sum(name.encode()))
    folder = ROOT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    model = Model().to(dtype)
    with torch.no_grad():
        model.layers[0].up_proj.weight[0] *= 0.01
        model.layers[0].up_proj.weight[1] = 0
    scheme = QuantizationScheme(
        targets=["Linear", "Embedding"], weights=QuantizationArgs(**weights),
        input_activations=QuantizationArgs(**TOKENS) if activations else None)
    apply_quantization_config(model, QuantizationConfig(config_groups={"group_0": scheme}, ignore=["lm_head"]))
    modules = {name: module for name, module in model.named_modules() if hasattr(module, "quantization_scheme")}
    for module in modules.values():
        scale, zero = scales_of(module.weight.detach(), scheme.weights)
        module.weight_scale.data.copy_(scale)
        if hasattr(module, "weight_zero_point"):
            module.weight_zero_point.data.copy_(zero)
    compressor = ModelCompressor.from_pretrained_model(model, form)
    compressor.compress_model(model)
    safetensors.torch.save_file(model.state_dict(), folder / "model.safetensors", {"format": "pt"})
    compressor.update_config(folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert config["quantization_config"]["format"] == form
    if name not in REFUSED:
        values = {}
        for module_name, module in modules.items():
            if form == "pack-quantized":
                values[f"{module_name}.weight"] = unpacked(module.weight_packed, module.weight_scale).contiguous()
                continue
            # The package rounds products to the type of the scales; in F32 they are what the file says.
            state = {"weight": module.weight, "weight_scale": module.weight_scale.float()}
            out = BaseCompressor.get_value_from_registry(form).decompress(state, scheme)
            assert out["weight"].dtype == torch.float32
            values[f"{module_name}.weight"] = out["weight"].detach().contiguous()
        safetensors.torch.save_file(values, folder / "values.safetensors")
    for path in folder.iterdir():
        path.chmod(0o644)
    print(name, {key: (str(value.dtype), list(value.shape)) for key, value in model.state_dict().items()})


if __name__ == "__main__":
    print("compressed-tensors", compressed_tensors.__version__, "torch", torch.__version__)
    for case, arguments in CASES.items():
        make(case, *arguments)
