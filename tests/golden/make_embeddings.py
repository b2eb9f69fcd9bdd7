#!/usr/bin/env python3
"""Records what transformers makes of texts as vectors. Run by hand, not by CI.

    pip install torch==2.15.0 transformers==5.24.0 gguf==0.19.0
    python tests/golden/make_embeddings.py

The weights are those of models/SmolLM2-135M-Instruct.Q4_1.gguf, made floats, and all is computed in double: the last
hidden state behind the final norm. smollm2-embeddings.json is a list of {"text", "ids", "last", "mean"}; the vectors
have length 1 and five digits.
"""

import json
import pathlib

import torch
from transformers import AutoModel, AutoTokenizer

HERE = pathlib.Path(__file__).resolve().parent
MODELS = HERE.parents[1] / "models"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
TEXTS = [
    "The lighthouse stood on a rock that the sea had eaten from three sides, and its keeper was old.",
    "How do I reverse a list in Python?",
    "Wie spät ist es in Tokio, wenn es in Lima Mitternacht ist?",
    "x",
]


def digits(vector):
    return [round(value, 5) for value in (vector / vector.norm()).tolist()]


def main():
    tokenizer = AutoTokenizer.from_pretrained(MODELS, gguf_file=FILE)
    model = AutoModel.from_pretrained(MODELS, gguf_file=FILE, dtype=torch.float64).eval()
    out = []
    for text in TEXTS:
        ids = tokenizer(text)["input_ids"]
        with torch.no_grad():
            states = model(torch.tensor([ids])).last_hidden_state[0]
        out.append({"text": text, "ids": ids, "last": digits(states[-1]), "mean": digits(states.mean(0))})
    (HERE / "smollm2-embeddings.json").write_text(json.dumps(out, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
