"""What the golden scripts share: llama.cpp's low-level calls, wrapped just enough.

Run by hand with llama-cpp-python installed (bench/peers/install.sh makes such an environment).
"""

import ctypes
import struct
from pathlib import Path

import llama_cpp as L

REPO = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).resolve().parent
DATA = REPO.parent / "shared" / "data"
MODELS = {
    "smollm2": REPO / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf",
    "gemma3": REPO / "models" / "gemma-3-270m-q4_k_m.gguf",
}


@L.llama_log_callback
def _quiet(level, text, user_data):
    del level, text, user_data


def quiet():
    """Drops the library's log lines."""
    L.llama_log_set(_quiet, ctypes.c_void_p(0))


class Model:
    """A loaded GGUF file. vocab_only leaves the weights out."""

    def __init__(self, path, vocab_only=False):
        self.path = Path(path)
        L.llama_backend_init()
        params = L.llama_model_default_params()
        params.vocab_only = vocab_only
        params.n_gpu_layers = 0
        self.handle = L.llama_model_load_from_file(str(path).encode(), params)
        if not self.handle:
            raise SystemExit(f"cannot load {path}")
        self.vocab = L.llama_model_get_vocab(self.handle)
        self.vocab_size = L.llama_vocab_n_tokens(self.vocab)
        # The token that the file asks to have in front of every text, if it does.
        self.bos = [L.llama_vocab_bos(self.vocab)] if L.llama_vocab_get_add_bos(self.vocab) else []

    def metadata(self, key, fallback):
        size = L.llama_model_meta_val_str(self.handle, key.encode(), None, 0)
        if size < 0:
            return fallback
        buffer = ctypes.create_string_buffer(size + 1)
        L.llama_model_meta_val_str(self.handle, key.encode(), buffer, size + 1)
        return buffer.value.decode("utf-8")

    def tokenize(self, text, special):
        """Token ids of text. Never adds BOS or EOS; special tokens are parsed only if asked for."""
        data = text.encode("utf-8")
        room = len(data) + 16
        ids = (L.llama_token * room)()
        count = L.llama_tokenize(self.vocab, data, len(data), ids, room, False, special)
        if count < 0:
            raise RuntimeError(f"tokenizer wants room for {-count} tokens, has {room}")
        return list(ids[:count])

    def piece(self, token):
        """The bytes that a token stands for; special tokens give their text."""
        buffer = ctypes.create_string_buffer(256)
        size = L.llama_token_to_piece(self.vocab, token, buffer, 256, 0, True)
        if size < 0:
            raise RuntimeError(f"token {token} is longer than 256 bytes")
        return buffer.raw[:size]


def gguf_arrays(path, *keys):
    """Array values of a GGUF file's metadata, which llama.cpp's interface does not hand out."""
    scalars = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
    with open(path, "rb") as file:

        def number(form):
            return struct.unpack("<" + form, file.read(struct.calcsize("<" + form)))[0]

        def value(kind):
            if kind == 8:
                return file.read(number("Q")).decode("utf-8")
            if kind == 9:
                element, count = number("I"), number("Q")
                return [value(element) for _ in range(count)]
            return number(scalars[kind])

        if file.read(4) != b"GGUF" or number("I") < 2:
            raise SystemExit(f"{path} is not a GGUF file of version 2 or later")
        number("Q")  # tensors
        found = {}
        for _ in range(number("Q")):
            name = value(8)
            found[name] = value(number("I"))
    return [found[key] for key in keys]
