"""The model in a GGUF file: its configuration, its tensors by their names in Hugging Face's checkpoints, and its tokenizer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tempo_llm.chat import ChatTemplate
from tempo_llm.errors import CheckpointError, ModelConfigError, TokenizerError, shown
from tempo_llm.gguf import GgufFile
from tempo_llm.quantized import Dtype, Matrix
from tempo_llm.tokenizer import Tokenizer

GROUP = 32
ARCHITECTURES = ("llama", "qwen2", "qwen3")
SIZES: Mapping[str, str] = {  # keys of config.json, by those of the metadata, without the architecture
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "context_length": "max_position_embeddings",
    "rope.freq_base": "rope_theta",
}
SCALINGS: Mapping[str, str] = {  # keys of rope_scaling, likewise
    "rope.scaling.factor": "factor",
    "rope.scaling.original_context_length": "original_max_position_embeddings",
    "rope.scaling.attn_factor": "attention_factor",
    "rope.scaling.yarn_beta_fast": "beta_fast",
    "rope.scaling.yarn_beta_slow": "beta_slow",
}
OUTER: Mapping[str, str] = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
INNER: Mapping[str, str] = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
FACTORS = "rope_freqs.weight"  # the divisors of the rotary frequencies
_LAYER = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
BYTE, CONTROL, UNKNOWN, USER = 6, 3, 2, 4  # kinds of tokens
# How texts are cut before byte-pair encoding, by `tokenizer.ggml.pre`.
CUTS: Mapping[str, str | None] = {
    "default": None,  # that of GPT-2
    "gpt-2": None,
    "llama-bpe": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}  # fmt: skip


def is_gguf(path: str | Path) -> bool:
    """Whether a path is a file, and so a GGUF file if it is a model at all."""
    return Path(path).is_file()


def config_values(path: str | Path) -> dict[str, object]:
    """The metadata of a GGUF file as the values of a `config.json`. Raises ModelConfigError and CheckpointError."""
    file = GgufFile(path)
    kind = file.metadata.get("general.architecture")
    if kind not in ARCHITECTURES:
        raise ModelConfigError(
            f"{path}: the architecture {shown(kind)} is not supported in GGUF files; these are: {', '.join(ARCHITECTURES)}",
            hint="use the checkpoint of this model in Hugging Face's format",
        )
    if file.metadata.get(f"{kind}.expert_count"):
        raise ModelConfigError(
            f"{path}: mixtures of experts are not supported in GGUF files", hint="use the model's own checkpoint"
        )
    found = {name: file.metadata[f"{kind}.{key}"] for key, name in SIZES.items() if f"{kind}.{key}" in file.metadata}
    if "head_dim" not in found and f"{kind}.rope.dimension_count" in file.metadata:
        found["head_dim"] = file.metadata[f"{kind}.rope.dimension_count"]
    embedding = file.entries.get("token_embd.weight")
    if embedding is None:
        raise ModelConfigError(
            f"{path} has no tensor token_embd.weight", hint="take the first file of a model in several ones, or join them"
        )
    values: dict[str, Any] = {"model_type": kind, "vocab_size": embedding.shape[0], **found}
    values["attention_bias"] = "blk.0.attn_q.bias" in file.entries
    if kind == "llama" and not values["attention_bias"]:
        del values["attention_bias"]
    scaling = _scaling(file, kind)
    if scaling:
        values["rope_scaling"] = scaling
    for name in ("bos", "eos"):
        if (token := file.metadata.get(f"tokenizer.ggml.{name}_token_id")) is not None:
            values[f"{name}_token_id"] = token
    ends = [file.metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")]
    if any(token is not None for token in ends):
        values["eos_token_id"] = sorted({token for token in ends if token is not None})
    return values


def _scaling(file: GgufFile, kind: str) -> dict[str, Any]:
    if FACTORS in file.entries:  # longrope with the same factors for all texts
        factors = file.read(FACTORS).astype(float).reshape(-1).tolist()
        return {"rope_type": "longrope", "short_factor": factors, "long_factor": factors, "attention_factor": 1.0}
    rope_type = file.metadata.get(f"{kind}.rope.scaling.type", "none")
    if rope_type == "none":
        return {}
    settings = {name: file.metadata[f"{kind}.{key}"] for key, name in SCALINGS.items() if f"{kind}.{key}" in file.metadata}
    return {"rope_type": rope_type, **settings}


class GgufTensors:
    """The tensors of a GGUF file under their names in Hugging Face's checkpoints."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._file = GgufFile(path)
        metadata: Mapping[str, Any] = self._file.metadata
        kind = metadata.get("general.architecture")
        # The rows of queries and keys of Llama are in another order: the two elements that are turned together lie side by side.
        self._heads = {
            "q_proj": metadata.get(f"{kind}.attention.head_count", 1),
            "k_proj": metadata.get(f"{kind}.attention.head_count_kv", metadata.get(f"{kind}.attention.head_count", 1)),
        }
        self._is_permuted = kind == "llama"
        self._sources = {_hugging_face(name): name for name in self._file.entries if name != FACTORS}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._sources)

    @property
    def bytes(self) -> int:
        return self.path.stat().st_size

    @property
    def quantized(self) -> tuple[Dtype, int] | None:
        """int4 if no matrix of a layer has more bits, else int8; None if the matrices are floats."""
        kinds = [self._file.entries[source].kind for name, source in self._sources.items() if ".layers." in name]
        bits = {kind.size * 8 / kind.elements for kind in kinds if kind.plain is None}
        if not bits:
            return None
        return ("int4" if max(bits) < 5 else "int8"), GROUP

    def shape(self, name: str) -> tuple[int, ...]:
        return self._file.entries[self._sources[name]].shape

    def matrix(self, name: str) -> Matrix | None:
        matrix = self._file.matrix(self._sources[name])
        if matrix is None:
            return None
        return Matrix({part: self._in_order(name, array) for part, array in matrix.arrays.items()}, matrix.width)

    def read(self, name: str) -> np.ndarray:
        return self._in_order(name, self._file.read(self._sources[name]))

    def _in_order(self, name: str, rows: np.ndarray) -> np.ndarray:
        heads = self._heads.get(name.split(".")[-2]) if self._is_permuted and "." in name else None
        if heads is None:
            return rows
        if not isinstance(heads, int) or heads < 1 or len(rows) % (2 * heads):
            raise CheckpointError(f"{self.path}: {name} has {len(rows)} rows, which {shown(heads)} heads cannot share")
        return np.ascontiguousarray(rows.reshape(heads, -1, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape))


def _hugging_face(name: str) -> str:
    """A tensor's name in Hugging Face's checkpoints; a name that is not known stays."""
    match = _LAYER.fullmatch(name)
    if match is None:
        return OUTER.get(name, name)
    number, inner, kind = match.groups()
    return f"model.layers.{number}.{INNER[inner]}.{kind}" if inner in INNER else name


def tokenizer_of(path: str | Path) -> Tokenizer | None:
    """The tokenizer in a GGUF file's metadata; None if it has none. Raises TokenizerError for one that is not supported."""
    metadata: Mapping[str, Any] = GgufFile(path).metadata
    kind, tokens = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.tokens")
    if kind is None or kind == "none":
        return None
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise TokenizerError(f"{path}: its tokenizer has no list of tokens", hint="download the file again")
    types = metadata.get("tokenizer.ggml.token_type", [1] * len(tokens))
    if len(types) != len(tokens):
        raise TokenizerError(f"{path}: its tokenizer has {len(tokens)} tokens, but {len(types)} kinds of tokens")
    if kind == "gpt2":
        fast = _byte_pairs(path, metadata, tokens)
    elif kind == "llama":
        fast = _pieces(path, metadata, tokens, types)
    else:
        raise TokenizerError(
            f"{path}: the tokenizer {shown(kind)} is not supported; the tokenizers are gpt2 and llama",
            hint="give token ids, or use the checkpoint of this model in Hugging Face's format",
        )
    from tokenizers import AddedToken

    fast.add_special_tokens(
        [AddedToken(token, normalized=False) for token, type in zip(tokens, types, strict=True) if type == CONTROL]
    )
    fast.add_tokens([AddedToken(token, normalized=False) for token, type in zip(tokens, types, strict=True) if type == USER])
    settings: dict[str, Any] = {"add_bos_token": metadata.get("tokenizer.ggml.add_bos_token", kind == "llama")}
    for name, key in {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}.items():
        token = metadata.get(f"tokenizer.ggml.{key}_token_id")
        if isinstance(token, int) and 0 <= token < len(tokens):
            settings[name] = tokens[token]
    templates = {"default": metadata.get("tokenizer.chat_template"), "tool_use": metadata.get("tokenizer.chat_template.tool_use")}
    settings["chat_template"] = [{"name": name, "template": text} for name, text in templates.items()]
    return Tokenizer.of_fast(fast, settings, ChatTemplate.find(Path(path), settings))


def _byte_pairs(path: str | Path, metadata: Mapping[str, Any], tokens: list[str]) -> Any:
    """Byte-pair encoding, as GPT-2's."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    before = metadata.get("tokenizer.ggml.pre", "default")
    if before not in CUTS:
        raise TokenizerError(
            f"{path}: texts are cut in the way {shown(before)}, which is not supported; the ways are {', '.join(CUTS)}",
            hint="use the checkpoint of this model in Hugging Face's format",
        )
    try:
        merges = [(first, second) for first, second in (merge.split(" ", 1) for merge in metadata["tokenizer.ggml.merges"])]
        vocabulary = {token: number for number, token in enumerate(tokens)}
        fast = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=before == "llama-bpe"))
    except Exception as error:  # the package raises a bare Exception for every fault
        raise TokenizerError(f"{path}: its tokenizer cannot be read: {type(error).__name__} {str(error)[:200]}") from None
    cut = CUTS[before]
    if cut is None:
        fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        split = pre_tokenizers.Split(Regex(cut), "isolated")
        fast.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    fast.decoder = decoders.ByteLevel()
    return fast


def _pieces(path: str | Path, metadata: Mapping[str, Any], tokens: list[str], types: list[int]) -> Any:
    """SentencePiece's byte-pair encoding: of two neighbours, those are joined first whose piece has the best score."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    scores = metadata.get("tokenizer.ggml.scores")
    if not isinstance(scores, list) or len(scores) != len(tokens):
        raise TokenizerError(
            f"{path}: its tokenizer has {len(tokens)} tokens, but not as many scores", hint="download the file again"
        )
    vocabulary = {token: number for number, token in enumerate(tokens)}
    plain = [number for number, type in enumerate(types) if type not in (BYTE, CONTROL, UNKNOWN)]
    merges: list[tuple[float, int, int, tuple[str, str]]] = []
    for number in plain:
        token = tokens[number]
        for cut in range(1, len(token)):
            first, second = vocabulary.get(token[:cut]), vocabulary.get(token[cut:])
            if first is not None and second is not None:
                merges.append((-scores[number], first, second, (token[:cut], token[cut:])))
    unknown = next((tokens[number] for number, type in enumerate(types) if type == UNKNOWN), None)
    fast = Tokenizer(
        models.BPE(
            vocab=vocabulary,
            merges=[pair for *_, pair in sorted(merges)],
            unk_token=unknown,
            fuse_unk=True,
            byte_fallback=BYTE in types,
        )
    )
    has_space = metadata.get("tokenizer.ggml.add_space_prefix", True)
    steps = [*([normalizers.Prepend("▁")] if has_space else []), normalizers.Replace(" ", "▁")]
    fast.normalizer = normalizers.Sequence(steps)
    after = [
        decoders.Replace("▁", " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
        *([decoders.Strip(" ", 1, 0)] if has_space else []),
    ]
    fast.decoder = decoders.Sequence(after)
    return fast
