"""What llama.cpp and its fork ik_llama.cpp have in common: a context, through the calls of llama.h."""

import numpy as np
import worker


class LlamaContext:
    """`functions` are those of llama.h; `cut` forgets positions, which the two call by other names."""

    def __init__(self, functions, model, params, args, cut):
        params.n_ctx = (args.positions + 255) // 256 * 256
        params.n_batch = params.n_ubatch = max(worker.CHUNK, args.rows)
        params.n_threads = params.n_threads_batch = args.threads
        self.functions = functions
        self.context = functions.llama_init_from_model(model, params)
        if not self.context:
            raise SystemExit("cannot open a context")
        self.cut = lambda position: cut(self.context, position)
        self.vocab_size = functions.llama_vocab_n_tokens(functions.llama_model_get_vocab(model))
        self.batch = functions.llama_batch_init(max(worker.CHUNK, args.rows), 0, 1)

    def forward(self, tokens, first, logits):
        batch = self.batch
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i] = token
            batch.pos[i] = first + i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = logits == "all" or (logits == "last" and i == len(tokens) - 1)
        if self.functions.llama_decode(self.context, batch) != 0:
            raise RuntimeError("llama_decode failed")
        self.functions.llama_synchronize(self.context)

    def largest(self):
        logits = self.functions.llama_get_logits_ith(self.context, -1)
        return int(np.ctypeslib.as_array(logits, shape=(self.vocab_size,)).argmax())


def load(functions, args, **settings):
    """A model on the processor alone."""
    params = functions.llama_model_default_params()
    params.n_gpu_layers = 0
    for name, value in settings.items():
        setattr(params, name, value)
    model = functions.llama_model_load_from_file(args.model.encode(), params)
    if not model:
        raise SystemExit(f"cannot load {args.model}")
    return model
