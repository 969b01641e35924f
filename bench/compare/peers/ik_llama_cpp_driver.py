"""ik_llama.cpp, through the bindings of `ik-llama-cpp-python`. Command line and output: procedure.py.

Weights are repacked at the start, its fastest way. Flash attention is on for one sequence and off for several: version 0.1.5
aborts the process, GGML_ASSERT(S > 0), when a second sequence is short.
"""
from importlib.metadata import version

from ik_llama_cpp import _ctypes_api as ik

from llama_api import run


class Api:
    decode, logits, free, clear = ik.llama_decode, ik.llama_get_logits_ith, ik.llama_free, ik.llama_kv_cache_clear

    def __init__(self, threads):
        self.threads = threads
        ik.llama_backend_init()

    def open(self, path):
        params = ik.llama_model_default_params()
        params.n_gpu_layers, params.repack_tensors, params.use_mmap = 0, True, False
        self.model = ik.llama_model_load_from_file(path.encode(), params)
        if not self.model:
            raise RuntimeError(f"ik_llama.cpp cannot load {path}")
        self.vocab = ik.llama_vocab_n_tokens(ik.llama_model_get_vocab(self.model))

    def batch(self, rows):
        return ik.llama_batch_init(rows, 0, 1)

    def context(self, sequences, positions):
        params = ik.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_seq_max = sequences * positions, 2048, sequences
        params.n_threads = params.n_threads_batch = self.threads
        params.flash_attn = sequences == 1
        return ik.llama_init_from_model(self.model, params)


run(Api, version("ik-llama-cpp-python"))
