#!/usr/bin/env python3
"""Answers compare.py's requests with OpenVINO GenAI.

    build/peers/openvino/bin/python bench/peers/of_openvino.py --model MODEL.gguf --threads 2

Through its LLMPipeline, which times the first token (the prompt) and the later ones itself; a pass of several
rows cannot be asked for. It converts what it reads: weights to its own 4 or 8 bits, see its documentation.
"""

import numpy as np
import openvino
import openvino_genai as genai
import worker


class Pipeline:
    vocab_size = 0

    def __init__(self, args):
        # Prompts are new each time, but their beginnings must not be kept either way.
        scheduler = genai.SchedulerConfig()
        scheduler.enable_prefix_caching = False
        self.pipeline = genai.LLMPipeline(args.model, "CPU", INFERENCE_NUM_THREADS=args.threads,
                                          scheduler_config=scheduler)
        self.vocab_size = len(self.pipeline.get_tokenizer().get_vocab())

    def metrics(self, tokens, count):
        config = genai.GenerationConfig(max_new_tokens=count, min_new_tokens=count, do_sample=False,
                                        ignore_eos=True, apply_chat_template=False)
        ids = np.array([tokens], dtype=np.int64)
        inputs = genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(np.ones_like(ids)))
        return self.pipeline.generate(inputs, config).perf_metrics

    def timed_prompt(self, tokens):
        return self.metrics(tokens, 1).get_ttft().mean / 1e3

    def timed_decode(self, tokens, count):
        return self.metrics(tokens, count + 1).get_tpot().mean / 1e3 * count


def main():
    args = worker.arguments(__doc__.splitlines()[0])
    worker.serve({"pipeline": Pipeline(args)}, genai.__version__, openvino.Core().get_property("CPU", "FULL_DEVICE_NAME"),
                 args.positions)


if __name__ == "__main__":
    main()
