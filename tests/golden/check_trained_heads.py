#!/usr/bin/env python3
"""Opens heads that were trained here with the public code of their formats, and runs them once.

    check_trained_heads.py MODEL.gguf FOLDER...

EAGLE-3 and P-EAGLE heads are opened by `speculators`, distilled models by `transformers`. Every tensor of the
checkpoint must be taken, none may be missing, and what comes out must be finite. Needs the packages of README.md.
"""

import argparse
import json
import logging
import os
import tempfile
from pathlib import Path

import gguf
import safetensors.torch
import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import speculators.models  # noqa: E402
import transformers  # noqa: E402
from speculators import SpeculatorModel  # noqa: E402

# Not of the model, but of Aerie: which tokens a pruned vocabulary holds.
OWN = {"d2t", "t2d"}


def tensor_of(reader, name):
    found = next((t for t in reader.tensors if t.name == name), None)
    return None if found is None else torch.from_numpy(gguf.dequantize(found.data, found.tensor_type).copy())


def write_verifier(model, folder):
    """What `speculators` reads of the target: its embedding, norm and head."""
    reader = gguf.GGUFReader(model)
    embedding = tensor_of(reader, "token_embd.weight")
    head = tensor_of(reader, "output.weight")
    tensors = {
        "model.embed_tokens.weight": embedding,
        "model.norm.weight": tensor_of(reader, "output_norm.weight"),
        "lm_head.weight": embedding.clone() if head is None else head,
    }
    safetensors.torch.save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = transformers.LlamaConfig(vocab_size=len(embedding), hidden_size=embedding.shape[1])
    config.architectures = ["LlamaForCausalLM"]
    config.save_pretrained(folder)


def stored(folder):
    return safetensors.torch.load_file(folder / "model.safetensors")


def compare(folder, model):
    state, there = model.state_dict(), stored(folder)
    # The target's own weights are not stored with a head; a tied output is the embedding.
    tied = {"lm_head.weight"} if getattr(model.config, "tie_word_embeddings", False) else set()
    missing = {n for n in state.keys() - there.keys() - tied if not n.startswith(("embed_tokens", "verifier_"))}
    if missing:
        raise SystemExit(f"{folder}: the checkpoint lacks {sorted(missing)}")
    for name, values in there.items():
        if name in OWN and name not in state:
            continue
        if name not in state:
            raise SystemExit(f"{folder}: {name} is not a tensor of {type(model).__name__}")
        if not torch.equal(state[name].float(), values.float()):
            raise SystemExit(f"{folder}: {name} was not taken as it is stored")


def open_speculator(folder, verifier):
    config = json.loads((folder / "config.json").read_text())
    config["speculators_config"]["verifier"]["name_or_path"] = str(verifier)
    with tempfile.TemporaryDirectory() as copy:
        (Path(copy) / "config.json").write_text(json.dumps(config))
        (Path(copy) / "model.safetensors").symlink_to((folder / "model.safetensors").resolve())
        return SpeculatorModel.from_pretrained(copy, dtype=torch.float32).eval()


def run_speculator(model):
    hidden = model.config.transformer_layer_config.hidden_size
    taps = len(model.target_layer_ids)
    x = model.fc(torch.randn(4, taps * hidden))
    return model.lm_head(model.norm(x))


def check(folder, verifier):
    config = json.loads((folder / "config.json").read_text())
    if "speculators_model_type" in config:
        model = open_speculator(folder, verifier)
        out = run_speculator(model)
    else:
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        out = model(torch.arange(4)[None]).logits
    compare(folder, model)
    if not torch.isfinite(out).all():
        raise SystemExit(f"{folder}: what comes out is not finite")
    print(f"{folder}: {type(model).__name__}, {sum(p.numel() for p in model.parameters())} parameters: ok")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("folders", type=Path, nargs="+")
    options = parser.parse_args()
    logging.getLogger("speculators").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as verifier:
        write_verifier(options.model, Path(verifier))
        for folder in options.folders:
            check(folder, verifier)


if __name__ == "__main__":
    main()
