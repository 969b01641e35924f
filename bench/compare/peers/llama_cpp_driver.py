"""llama.cpp, through the C API in the shared object of the wheel `xllamacpp`. Command line and output: procedure.py.

The structures are those of the pinned version (engines.py); their default values are looked at before they are used.
"""
import ctypes as c
import glob
import os
from importlib.metadata import version

import xllamacpp

from llama_api import POINTER, bound, run


def structure(*fields):
    return type("Structure", (c.Structure,), {"_fields_": [(name, kind) for kind, names in fields for name in names.split()]})


ModelParams = structure(
    (POINTER, "devices buffer_overrides"), (c.c_int32, "gpu_layers split_mode load_mode lazy_mode main_gpu"),
    (POINTER, "tensor_split progress progress_data kv_overrides"),
    (c.c_bool, "vocab_only check_tensors use_extra_bufts no_host no_alloc load_mtp"), (c.c_uint64, "unknown_0 unknown_1"))
ContextParams = structure(
    (c.c_uint32, "n_ctx n_batch n_ubatch n_seq_max n_rs_seq n_outputs_max n_outputs_seq"), (c.c_int32, "n_threads n_threads_batch"),
    (c.c_int32, "context_type rope_scaling pooling attention flash_attention"),
    (c.c_float, "rope_base rope_scale yarn_extension yarn_attention yarn_fast yarn_slow"), (c.c_uint32, "yarn_context"),
    (c.c_float, "defragment"), (POINTER, "callback callback_data"), (c.c_int32, "type_k type_v"), (c.c_size_t, "cache"),
    (POINTER, "abort abort_data"), (c.c_bool, "embeddings offload_kqv no_perf op_offload swa_full kv_unified"), (POINTER, "samplers"),
    (c.c_size_t, "n_samplers"), (POINTER, "other"), (c.c_uint64, "unknown_0 unknown_1"))
Batch = structure(
    (c.c_int32, "n_tokens"), (c.POINTER(c.c_int32), "token"), (POINTER, "embd"), (c.POINTER(c.c_int32), "pos n_seq_id"),
    (c.POINTER(c.POINTER(c.c_int32)), "seq_id"), (c.POINTER(c.c_int8), "logits"))


class Api:
    def __init__(self, threads):
        library = c.CDLL(glob.glob(os.path.join(os.path.dirname(xllamacpp.__file__), "*.so"))[0])
        self.threads, i = threads, c.c_int32
        self.model_defaults = bound(library, "llama_model_default_params", ModelParams)
        self.context_defaults = bound(library, "llama_context_default_params", ContextParams)
        self.load = bound(library, "llama_model_load_from_file", POINTER, c.c_char_p, ModelParams)
        self.new_context = bound(library, "llama_init_from_model", POINTER, POINTER, ContextParams)
        self.new_batch = bound(library, "llama_batch_init", Batch, i, i, i)
        self.decode = bound(library, "llama_decode", i, POINTER, Batch)
        self.logits = bound(library, "llama_get_logits_ith", c.POINTER(c.c_float), POINTER, i)
        self.free = bound(library, "llama_free", None, POINTER)
        vocabulary = bound(library, "llama_model_get_vocab", POINTER, POINTER)
        tokens = bound(library, "llama_vocab_n_tokens", i, POINTER)
        memory, clear = bound(library, "llama_get_memory", POINTER, POINTER), bound(library, "llama_memory_clear", None, POINTER, c.c_bool)
        self.vocab_of = lambda model: tokens(vocabulary(model))
        self.clear = lambda context: clear(memory(context), True)
        bound(library, "llama_backend_init", None)()

    def open(self, path):
        params = self.model_defaults()
        if not params.use_extra_bufts or params.vocab_only or params.no_alloc:
            raise RuntimeError("llama_model_params has another layout in this version")
        params.gpu_layers = 0
        self.model = self.load(path.encode(), params)
        if not self.model:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        self.vocab = self.vocab_of(self.model)

    def batch(self, rows):
        return self.new_batch(rows, 0, 1)

    def context(self, sequences, positions):
        params = self.context_defaults()
        if (params.n_batch, params.type_k, params.type_v, params.offload_kqv, params.n_samplers) != (2048, 1, 1, True, 0):
            raise RuntimeError("llama_context_params has another layout in this version")
        params.n_ctx, params.n_seq_max, params.kv_unified, params.swa_full = sequences * positions, sequences, False, False
        params.n_threads = params.n_threads_batch = self.threads
        return self.new_context(self.model, params)


run(Api, version("xllamacpp"))
