"""llama.cpp, through the functions of its C library that `llama-cpp-python` has: a batch for the prompts, then one for each token of all rows.

A GGUF file is written beside the checkpoint. int8 is Q8_0 and int4 is Q4_0: blocks of 32 numbers with a scale.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np

from benchmarks.llm.systems import Unsupported, choose_threads

BATCH = 512  # positions of a prompt at once: llama.cpp's `n_ubatch`
FORMS = {"float32": "F32", "bfloat16": "BF16", "int8": "Q8_0", "int4": "Q4_0"}
NAMES = {  # of a layer's tensors
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def prepare(directory: Path, dtype: str, window: int) -> None:
    """Write the GGUF file, unless it is there."""
    if window:
        raise Unsupported("llama.cpp reads the window of other architectures, not of Llama's")
    if _file(directory, dtype).exists():
        return
    import gguf
    from safetensors import safe_open

    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    part = _file(directory, dtype).with_suffix(".part")
    writer = gguf.GGUFWriter(part, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    form = gguf.GGMLQuantizationType[FORMS[dtype]]
    with safe_open(directory / "model.safetensors", "np") as tensors:
        for name, source, heads in _tensors(config):
            array = tensors.get_tensor(source)
            if heads:  # the two halves of a head that turn together lie side by side in GGUF
                array = array.reshape(heads, 2, -1, array.shape[1]).swapaxes(1, 2).reshape(array.shape)
            kind = form if array.ndim == 2 else gguf.GGMLQuantizationType.F32
            writer.add_tensor(name, gguf.quants.quantize(np.ascontiguousarray(array), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    part.rename(_file(directory, dtype))


def _tensors(config: dict[str, Any]) -> Iterator[tuple[str, str, int]]:
    """The name of each tensor in GGUF and in the checkpoint, and the number of heads whose numbers turn with the position."""
    yield "token_embd.weight", "model.embed_tokens.weight", 0
    yield "output_norm.weight", "model.norm.weight", 0
    if not config["tie_word_embeddings"]:
        yield "output.weight", "lm_head.weight", 0
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for layer in range(config["num_hidden_layers"]):
        for source, name in NAMES.items():
            yield f"blk.{layer}.{name}.weight", f"model.layers.{layer}.{source}.weight", heads.get(name, 0)


def _file(directory: Path, dtype: str) -> Path:
    return directory / f"{dtype}.gguf"


@llama_cpp.llama_log_callback
def _say_nothing(level: int, text: bytes, data: object) -> None:
    pass


def load(directory: Path, dtype: str, window: int) -> Loaded:
    llama_cpp.llama_log_set(_say_nothing, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(str(_file(directory, dtype)).encode(), llama_cpp.llama_model_default_params())
    if not model:
        raise RuntimeError(f"llama.cpp does not load {_file(directory, dtype).name}")
    return Loaded(model, dtype)


class Loaded:
    def __init__(self, model: Any, dtype: str):
        self.model, self.dtype, self.threads = model, dtype, 1
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
        self.context: Any = None
        choose_threads(self, lambda threads: setattr(self, "threads", threads))

    def start(self, prompts: Sequence[Sequence[int]], count: int, times: int) -> list[list[int]]:
        if self.context:
            llama_cpp.llama_free(self.context)
        rows, length = len(prompts), len(prompts[0])
        settings = llama_cpp.llama_context_default_params()
        settings.n_ctx, settings.n_seq_max = rows * (length + 1 + count * times), rows  # the rows share the positions
        settings.n_batch = settings.n_ubatch = BATCH
        settings.n_threads = settings.n_threads_batch = self.threads
        settings.kv_unified = True
        if self.dtype == "float32":  # its fused attention rounds to float16, after which tokens differ
            settings.type_k = settings.type_v = llama_cpp.GGML_TYPE_F32
            settings.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self.context = llama_cpp.llama_init_from_model(self.model, settings)
        if not self.context:
            raise RuntimeError("llama.cpp has no memory for the cache")
        self.at = length
        places = [(row, at) for row in range(rows) for at in range(length)]
        last: dict[int, int] = {}
        for first in range(0, len(places), BATCH):
            part = places[first : first + BATCH]
            asked = [index for index, (_, at) in enumerate(part) if at == length - 1]
            best = self._decode([(prompts[row][at], at, row) for row, at in part], asked)
            last |= {part[index][0]: token for index, token in zip(asked, best, strict=True)}
        self.tokens = [last[row] for row in range(rows)]
        return [[token] for token in self.tokens]

    def advance(self, count: int) -> list[list[int]]:
        rows = range(len(self.tokens))
        steps = []
        for _ in range(count):
            self.tokens = self._decode([(token, self.at, row) for row, token in enumerate(self.tokens)], list(rows))
            self.at += 1
            steps.append(self.tokens)
        return [[step[row] for step in steps] for row in rows]

    def _decode(self, inputs: Sequence[tuple[int, int, int]], asked: Sequence[int]) -> list[int]:
        """The most likely token after each place `asked` for, of inputs (token, position, row)."""
        batch = llama_cpp.llama_batch_init(len(inputs), 0, 1)
        batch.n_tokens = len(inputs)
        for index, (token, at, row) in enumerate(inputs):
            batch.token[index], batch.pos[index], batch.n_seq_id[index], batch.seq_id[index][0] = token, at, 1, row
            batch.logits[index] = index in asked
        failed = llama_cpp.llama_decode(self.context, batch)
        llama_cpp.llama_batch_free(batch)
        if failed:
            raise RuntimeError(f"llama_decode gave {failed}")
        logits = (llama_cpp.llama_get_logits_ith(self.context, index) for index in asked)
        return [int(np.ctypeslib.as_array(each, (self.vocabulary,)).argmax()) for each in logits]
