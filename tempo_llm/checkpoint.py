"""Hugging Face checkpoints as input arrays of the program, the weights of the layers stacked to (layers, ...).

A matrix is stored [in, out], so that `x @ w` reads it in order: on CPU a matrix-vector product is then about twice as fast
as with Hugging Face's [out, in]. Matrices are transposed once, here, and not in the decoding loop.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import ml_dtypes
import numpy as np

from tempo_llm.config import LlamaConfig
from tempo_llm.errors import CheckpointError, RequestError, shown
from tempo_llm.files import read_text
from tempo_llm.layer import Delta, Experts, Layer
from tempo_llm.quantized import GROUP, QUANTIZED, Dtype, Matrix, lengths, named, part_name, quantize
from tempo_llm.stacks import Stack, prefix
from tempo_llm.tensor_file import TensorFile

IGNORED_SUFFIX = "rotary_emb.inv_freq"  # a buffer in old checkpoints; its values follow from the configuration
DTYPES: Mapping[str, np.dtype[np.generic]] = {
    "float32": np.dtype(np.float32),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float16": np.dtype(np.float16),
}
EXACT = ("experts.router", "experts.shared_gate", "delta.rate", "delta.decay")  # matrices that are never quantized
FINER = (
    "head",
    "embedding",
    "value",
    "output",
    "down",
)  # matrices that are int8 in a model of int4, by the last part of their names
STACKED = ("experts.gate", "experts.up", "experts.down")  # weights that are a matrix for each expert
NAMES = (*DTYPES, *QUANTIZED)  # of the dtypes of weights
HALF = ("bfloat16", "float16")
EMBEDDING_NAME = "embedding.weight"
ALIGNMENT = 64  # bytes: where JAX, on a CPU, takes arrays of NumPy without a copy
EMBEDDING, FINAL_NORM, HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"


@dataclass(frozen=True)
class Weight:
    """One tensor of the model: its name in the file, its shape, and, if it is a part of a tensor there, which.

    The tensor in the file has so many `groups` of rows, one after the other. The weight has those from `first` on of each group. With `half`
    k, it has each second column, from k on. A name with `*` stands for as many tensors as the shape has rows, one for each.
    """

    source: str
    shape: tuple[int, ...]
    first: int = 0
    rows: int = 0  # of the tensor in the file; 0: as many as the shape has
    groups: int = 1
    half: int | None = None
    is_turned: bool = True

    @property
    def files(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the tensors in the file, by name."""
        if "*" in self.source:
            return {self.source.replace("*", str(row)): self.shape[1:] for row in range(self.shape[0])}
        *inner, last = (self.rows or self.shape[0], *self.shape[1:])
        return {self.source: (*inner, last if self.half is None else 2 * last)}

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Matrices turn from [out, in] to [in, out]; vectors stay."""
        if "*" in self.source:
            return (self.shape[0], *self.shape[:0:-1])
        return self.shape[::-1] if self.is_turned else self.shape

    def read(self, tensor: Callable[[str], np.ndarray]) -> np.ndarray:
        """The weight as it is stored, from tensors of the file by their names."""
        if "*" in self.source:
            return np.stack([tensor(name).T for name in self.files])
        part = self.part(tensor(self.source)).reshape(self.shape)
        return part.T if self.is_turned else part

    def quantized(self, matrix: Callable[[str], Matrix | None]) -> dict[str, np.ndarray] | None:
        """The weight from quantized matrices of the file, by their names; None if one of them is not there."""
        found = [matrix(name) for name in self.files]
        matrices = [each.arrays for each in found if each is not None]
        if len(matrices) < len(found):
            return None
        if "*" in self.source:
            return {name: np.stack([each[name] for each in matrices]) for name in matrices[0]}
        if self.half is not None:
            return {name: np.ascontiguousarray(array[:, self.half :: 2]) for name, array in matrices[0].items()}
        if not self.is_turned:
            return matrices[0]
        rows = {name: self.part(array) for name, array in matrices[0].items()}
        return {name: np.ascontiguousarray(part.reshape(self.shape[0], -1)) for name, part in rows.items()}

    def write(self, weight: np.ndarray, tensors: dict[str, np.ndarray], at: str) -> None:
        """Write the weight as it is stored into tensors of the file, whose names begin with `at`. Those that are not there are made."""
        if "*" in self.source:
            tensors.update({f"{at}{name}": np.ascontiguousarray(row.T) for name, row in zip(self.files, weight, strict=True)})
            return
        ((name, shape),) = self.files.items()
        part = self.part(tensors.setdefault(f"{at}{name}", np.empty(shape, weight.dtype)))
        part[...] = (weight.T if self.is_turned else weight).reshape(part.shape)

    def part(self, array: np.ndarray) -> np.ndarray:
        """A view of the weight's rows, [groups, rows, ...], in the tensor of the file."""
        grouped = array.reshape(self.groups, -1, *array.shape[1:])
        part = grouped[:, self.first : self.first + self.shape[0] // self.groups]
        return part if self.half is None else part[..., self.half :: 2]


def layer_weights(config: LlamaConfig, number: int = 0) -> dict[str, Weight]:
    """The weights of a layer, by their names in `tempo_llm.blocks`. Names in the file are relative to `model.layers.N.`."""
    layer = config.layers[number]
    shapes: dict[str, tuple[int, ...]] = {f"{name}.weight": (config.hidden_size,) for name in layer.norms}
    shapes |= _attention_shapes(config, layer) if layer.delta is None else _delta_shapes(config, layer.delta)
    shapes |= _mlp_shapes(config, layer) if layer.experts is None else {}
    stems = {name: name.rpartition(".") for name in shapes}
    sources = {name: f"{layer.source(stem)}.{kind}" for name, (stem, _, kind) in stems.items()}
    whole, rows = Counter[str](), Counter[str]()
    for name, shape in shapes.items():
        whole[sources[name]] += shape[0]
    weights = {}
    for name, shape in shapes.items():
        source = sources[name]
        groups = dict(layer.groups).get(layer.source(stems[name][0]), 1)
        weights[name] = Weight(source, shape, rows[source], whole[source], groups)
        rows[source] += shape[0] // groups
    return weights if layer.experts is None else weights | _experts_weights(config.hidden_size, layer.experts)


def _attention_shapes(config: LlamaConfig, layer: Layer) -> dict[str, tuple[int, ...]]:
    hidden, head = config.hidden_size, config.head_dim
    queries, keys = config.num_attention_heads * head, config.num_key_value_heads * head
    shapes = _matrices(
        {
            "attention.query": (queries, hidden, layer.bias),
            **({"attention.gate": (queries, hidden, layer.bias)} if layer.gated else {}),
            "attention.key": (keys, hidden, layer.bias),
            "attention.value": (keys, hidden, layer.bias),
            "attention.output": (hidden, queries, layer.output_bias),
        }
    )
    if layer.query_key_norm is not None:
        widths = (head, head) if layer.query_key_norm == "head" else (queries, keys)
        shapes |= {f"attention.{part}.norm.weight": (width,) for part, width in zip(("query", "key"), widths, strict=True)}
    return shapes | ({"attention.sinks": (config.num_attention_heads,)} if layer.sinks else {})


def _mlp_shapes(config: LlamaConfig, layer: Layer) -> dict[str, tuple[int, ...]]:
    hidden, inner = config.hidden_size, config.intermediate_size
    sizes = {"mlp.gate": (inner, hidden), "mlp.up": (inner, hidden), "mlp.down": (hidden, inner)}
    return _matrices({name: (*size, layer.mlp_bias) for name, size in sizes.items()})


def _experts_weights(hidden: int, experts: Experts) -> dict[str, Weight]:
    count, inner = experts.count, experts.width
    if experts.limit is not None:  # gpt-oss: all experts in one tensor, with gate and up in turn
        both, down = "mlp.experts.gate_up_proj", "mlp.experts.down_proj"
        weights = {
            f"router.{kind}": Weight(f"mlp.router.{kind}", shape)
            for kind, shape in (("weight", (count, hidden)), ("bias", (count,)))
        }
        for half, name in enumerate(("gate", "up")):
            weights[name] = Weight(both, (count, hidden, inner), half=half, is_turned=False)
            weights[f"{name}_bias"] = Weight(f"{both}_bias", (count, inner), half=half, is_turned=False)
        weights["down"] = Weight(down, (count, inner, hidden), is_turned=False)
        weights["down_bias"] = Weight(f"{down}_bias", (count, hidden), is_turned=False)
    else:
        sizes = {"gate": (count, inner, hidden), "up": (count, inner, hidden), "down": (count, hidden, inner)}
        weights = {name: Weight(f"mlp.experts.*.{name}_proj.weight", size) for name, size in sizes.items()}
        weights["router.weight"] = Weight("mlp.gate.weight", (count, hidden))
    if experts.shared:
        for name, size in {
            "gate": (experts.shared, hidden),
            "up": (experts.shared, hidden),
            "down": (hidden, experts.shared),
        }.items():
            weights[f"shared.{name}.weight"] = Weight(f"mlp.shared_expert.{name}_proj.weight", size)
        weights["shared_gate.weight"] = Weight("mlp.shared_expert_gate.weight", (1, hidden))
    return {f"experts.{name}": weight for name, weight in weights.items()}


def _delta_shapes(config: LlamaConfig, delta: Delta) -> dict[str, tuple[int, ...]]:
    hidden, keys, values = config.hidden_size, delta.key_heads * delta.key_width, delta.value_heads * delta.value_width
    parts = {"query": keys, "key": keys, "value": values}
    shapes: dict[str, tuple[int, ...]] = {f"delta.{name}.weight": (size, hidden) for name, size in parts.items()}
    shapes |= {"delta.gate.weight": (values, hidden)}
    shapes |= {f"delta.{name}.weight": (delta.value_heads, hidden) for name in ("rate", "decay")}
    shapes |= {f"delta.{name}_taps.weight": (size, 1, delta.taps) for name, size in parts.items()}
    shapes |= {f"delta.{name}": (delta.value_heads,) for name in ("A_log", "dt_bias")}
    return shapes | {"delta.norm.weight": (delta.value_width,), "delta.output.weight": (hidden, values)}


def _matrices(sizes: Mapping[str, tuple[int, int, bool]]) -> dict[str, tuple[int, ...]]:
    """The shapes of matrices [out, in], and of those biases that are there."""
    shapes: dict[str, tuple[int, ...]] = {}
    for name, (size_out, size_in, has_bias) in sizes.items():
        shapes |= {f"{name}.weight": (size_out, size_in), **({f"{name}.bias": (size_out,)} if has_bias else {})}
    return shapes


def load_weights(directory: str | Path, config: LlamaConfig, dtype: str | None = None) -> dict[str, np.ndarray]:
    """All weights of the model in `directory`, by their names in `tempo_llm.llama`, in `dtype`: one of `NAMES`. Without it,
    a quantized checkpoint keeps its own dtype, and others are float32.

    The weights of the layers have shape (layers, ...), with a row for each layer that has the weight. `final_norm.weight` is (hidden,),
    `head.weight` (hidden, vocabulary) and, unless the head is tied to it, `embedding.weight` (vocabulary, hidden).
    With "int8" and "int4", matrices are [..., out, in], quantized as `tempo_llm.quantized` says, with `scale` (and `offset`) beside `weight`;
    other weights are float32, and so are routers.

    Raises one `CheckpointError` that lists every missing tensor, every unused one, and every one of the wrong shape; one for a number that
    is NaN or infinite; and RequestError for another dtype.
    """
    return Checkpoint.opened(directory, config, dtype).read()


@dataclass(frozen=True)
class Checkpoint:
    """The files of a model, whose headers are read: they hold all tensors that the model needs. Its weights are `read` in `dtype`."""

    tensors: Mapping[str, Readable]
    config: LlamaConfig
    dtype: str
    group: int  # of quantized matrices
    is_tied: bool

    @staticmethod
    def opened(directory: str | Path, config: LlamaConfig, dtype: str | None = None) -> Checkpoint:
        """Raises what `load_weights` raises, but for numbers that are not finite."""
        if dtype is not None:
            check_dtype(dtype)
        tensors = open_tensors(Path(directory))
        own = [file.quantized for file in {id(file): file for file in tensors.values()}.values() if file.quantized is not None]
        chosen = dtype or next(iter(own), ("float32", GROUP))[0]
        group = next((size for kind, size in own if kind == chosen), GROUP)
        tied = is_tied(tensors, config)
        check_tensors(tensors, file_shapes(config, tied), directory)
        return Checkpoint(tensors, config, chosen, group, tied)

    def placeholders(self) -> dict[str, np.ndarray]:
        """Arrays of the shapes and dtypes of the weights, which hold one number each and take no memory. No weight is read."""
        weights = {
            key: _placeholder(shape, kind)
            for name, weight in self._single().items()
            for key, (shape, kind) in self._types(name, weight).items()
        }
        for name, of_layers in self._by_layer().items():
            types = self._types(name, next(iter(of_layers.values())))
            weights |= {key: _placeholder((len(of_layers), *shape), kind) for key, (shape, kind) in types.items()}
        return weights

    def read(self) -> dict[str, np.ndarray]:
        """The weights, as `load_weights` gives them."""
        weights: dict[str, np.ndarray] = {}
        for name, weight in self._single().items():
            for key, array in self._stored(name, weight).items():
                memory = _memory(array, 1)
                memory[0] = array
                weights[key] = memory[0]
        for name, of_layers in self._by_layer().items():
            stacked: dict[str, np.ndarray] = {}
            for row, (number, weight) in enumerate(of_layers.items()):
                for key, array in self._stored(name, weight, f"model.layers.{number}.").items():
                    if key not in stacked:
                        stacked[key] = _memory(array, len(of_layers))
                    stacked[key][row] = array
            weights |= stacked
        return weights

    def _stored(self, name: str, weight: Weight, at: str = "") -> dict[str, np.ndarray]:
        return _stored(name, weight, self.tensors, at, self.dtype, self.group)

    def _single(self) -> dict[str, Weight]:
        """The weights that are no layer's."""
        outer = (self.config.vocab_size, self.config.hidden_size)
        return {
            "final_norm.weight": Weight(FINAL_NORM, (self.config.hidden_size,)),
            "head.weight": Weight(EMBEDDING if self.is_tied else HEAD, outer),
            **({} if self.is_tied else {EMBEDDING_NAME: Weight(EMBEDDING, outer, is_turned=False)}),
        }

    def _by_layer(self) -> dict[str, dict[int, Weight]]:
        """The weights of layers by name, those of each layer that has one."""
        weights: dict[str, dict[int, Weight]] = {}
        for number in range(self.config.num_hidden_layers):
            for name, weight in layer_weights(self.config, number).items():
                weights.setdefault(name, {})[number] = weight
        return weights

    def _types(self, name: str, weight: Weight) -> dict[str, tuple[tuple[int, ...], np.dtype[np.generic]]]:
        """The shapes and dtypes of the arrays that `_stored` gives."""
        shape = weight.stored_shape
        if self.dtype not in QUANTIZED or not is_quantized(name, weight):
            return {name: (shape, DTYPES.get(self.dtype, DTYPES["float32"]))}
        *outer, n_in = shape if name == EMBEDDING_NAME else (*shape[:-2], shape[-1], shape[-2])
        arrays = lengths(kind_of(name, self.dtype), n_in, self.group)
        return {
            name if part == "weight" else part_name(name, part): ((*outer, length), np.dtype(kind))
            for part, (length, kind) in arrays.items()
        }


def _placeholder(shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> np.ndarray:
    return np.broadcast_to(np.zeros((), dtype), shape)


def is_placeholder(array: np.ndarray) -> bool:
    """Whether an array holds one number only, whatever its shape."""
    return array.size > 1 and not any(array.strides)


def file_shapes(config: LlamaConfig, tied: bool) -> dict[str, tuple[int, ...]]:
    """The shapes of a checkpoint's tensors, by their names in the file."""
    shapes: dict[str, tuple[int, ...]] = {FINAL_NORM: (config.hidden_size,), EMBEDDING: (config.vocab_size, config.hidden_size)}
    if not tied:
        shapes[HEAD] = shapes[EMBEDDING]
    for number in range(config.num_hidden_layers):
        layer = layer_weights(config, number).values()
        shapes |= {f"model.layers.{number}.{name}": shape for weight in layer for name, shape in weight.files.items()}
    return shapes


def split(weights: Mapping[str, np.ndarray], config: LlamaConfig, stacks: Sequence[Stack]) -> dict[str, np.ndarray]:
    """The weights of `load_weights` by their names in a program with these loops, those of each of its layers apart."""
    if prefix(stacks[0].bodies[0], stacks) == "":
        return dict(weights)
    owners: dict[str, list[int]] = {}  # by the name of a weight: the layers that have it
    for number in range(config.num_hidden_layers):
        for name in layer_weights(config, number):
            for key in {name, part_name(name, "scale"), part_name(name, "offset")} & weights.keys():
                owners.setdefault(key, []).append(number)
    parts = {name: array for name, array in weights.items() if name not in owners}
    for body, repeats in ((body, stack.repeats) for stack in stacks for body in stack.bodies):
        layers = range(body.first, body.first + repeats * body.stride, body.stride)
        names = [name for name, numbers in owners.items() if body.first in numbers]
        parts |= {
            f"{prefix(body, stacks)}.{name}": _rows(weights[name], [owners[name].index(k) for k in layers]) for name in names
        }
    return parts


def _rows(array: np.ndarray, numbers: Sequence[int]) -> np.ndarray:
    """Some rows of an array, without a copy if they lie at equal distances."""
    steps = {second - first for first, second in pairwise(numbers)} or {1}
    if len(steps) > 1 or min(steps) < 1:
        return array[: len(numbers)] if is_placeholder(array) else array[list(numbers)]
    return array[numbers[0] : numbers[-1] + 1 : min(steps)]


def joined(parts: Mapping[str, np.ndarray], stacks: Sequence[Stack]) -> dict[str, np.ndarray]:
    """The weights by the names of `load_weights`, from those that `split` gives."""
    if prefix(stacks[0].bodies[0], stacks) == "":
        return dict(parts)
    rows: dict[str, dict[int, np.ndarray]] = {}  # by the name of a weight: that of each layer
    weights: dict[str, np.ndarray] = {}
    bodies = {prefix(body, stacks): (body, stack.repeats) for stack in stacks for body in stack.bodies}
    for name, array in parts.items():
        at = ".".join(name.split(".")[:2])
        if at not in bodies:
            weights[name] = array
            continue
        body, repeats = bodies[at]
        layers = range(body.first, body.first + repeats * body.stride, body.stride)
        rows.setdefault(name.removeprefix(f"{at}."), {}).update(zip(layers, array, strict=True))
    return weights | {name: np.stack([of_layer[layer] for layer in sorted(of_layer)]) for name, of_layer in rows.items()}


def check_dtype(dtype: str) -> None:
    """Raises RequestError for a dtype that weights cannot have."""
    if not isinstance(dtype, str) or dtype not in NAMES:
        raise RequestError(
            f"the dtype {shown(dtype)} is unknown; weights can be {', '.join(NAMES)}", hint='dtype="bfloat16", for example'
        )


def is_quantized(name: str, weight: Weight) -> bool:
    """Whether a weight is quantized in a quantized model: a matrix that is neither a router, a gate of one number, nor a convolution."""
    if name.removesuffix(".weight") in EXACT:
        return False
    return name in STACKED or (name.endswith(".weight") and len(weight.shape) == 2)


def _stored(name: str, weight: Weight, tensors: Mapping[str, Readable], at: str, dtype: str, group: int) -> dict[str, np.ndarray]:
    """A weight in `dtype`, by name, with its scales and offsets if it has some.

    A matrix that the file has in this very form is taken as it is. One of half precision stays by columns in memory, as files have it:
    programs take it by rows.
    """
    is_narrow = dtype in QUANTIZED and is_quantized(name, weight)
    kind = kind_of(name, dtype)
    if is_narrow:

        def matrix(source: str) -> Matrix | None:
            found = tensors[at + source].matrix(at + source)
            return found.exactly(kind) if found is not None and found.group == group else None

        arrays = weight.quantized(matrix)
        if arrays is not None:
            return named(name, arrays)
    array = weight.read(partial(read_tensor, tensors, at))
    if is_narrow:
        return named(name, quantize(array if name == EMBEDDING_NAME else array.swapaxes(-1, -2), kind, group))
    array = array.astype(DTYPES.get(dtype, DTYPES["float32"]), copy=False)
    return {name: array if dtype in HALF else np.ascontiguousarray(array)}


def _memory(array: np.ndarray, count: int) -> np.ndarray:
    """The memory of `count` arrays that are like this one, a matrix by columns if it is one, where JAX takes them without a copy on a CPU."""
    is_turned = array.ndim == 2 and not array.flags.c_contiguous
    size = count * array.nbytes
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    values = memory[start : start + size].view(array.dtype).reshape(count, *(array.shape[::-1] if is_turned else array.shape))
    return values.swapaxes(-1, -2) if is_turned else values


def kind_of(name: str, dtype: str) -> Dtype:
    """The dtype of a quantized matrix in a model of `dtype`: some are int8 in all."""
    return "int8" if dtype == "int8" or name.removesuffix(".weight").rpartition(".")[2] in FINER else "int4"


def read_tensor(tensors: Mapping[str, Readable], at: str, name: str) -> np.ndarray:
    """The tensor `name` of a layer, whose names begin with `at`, or of the model. Raises CheckpointError for a number that is not finite."""
    name = at + name
    array = tensors[name].read(name)
    finite = np.isfinite(array)
    if not finite.all():
        place = [int(k) for k in np.unravel_index(int(np.argmin(finite)), array.shape)]
        raise CheckpointError(
            f"the tensor {name} is {array[tuple(place)]} at {place}, and {array.size - int(finite.sum())} of its {array.size} numbers "
            "are not finite",
            hint="the checkpoint is damaged, or its training failed: download it again",
        )
    return array


def count_parameters(directory: str | Path) -> tuple[int, int]:
    """The number of parameters in a model's files, and the bytes of these files. Raises CheckpointError."""
    tensors = open_tensors(Path(directory))
    count = sum(math.prod(file.shape(name)) for name, file in tensors.items())
    return count, sum(path.stat().st_size for path in {file.path for file in tensors.values()})


def is_tied(names: Mapping[str, object], config: LlamaConfig) -> bool:
    """Whether the head is the embedding: there is no head tensor, and the configuration does not say "not tied".

    If it does say so, the absent head is an error; the embedding does not silently replace it.
    """
    return HEAD not in names and config.tie_word_embeddings is not False


# -- files ------------------------------------------------------------------------------------------------------------


class Readable(Protocol):
    """A file that holds tensors."""

    path: Path

    def shape(self, name: str) -> tuple[int, ...]: ...

    def read(self, name: str) -> np.ndarray: ...

    @property
    def quantized(self) -> tuple[Dtype, int] | None:
        """The dtype and the group of its matrices, if they are quantized."""

    def matrix(self, name: str) -> Matrix | None:
        """The matrix `name`, if it is quantized by groups. It is [..., out, in]."""


def open_tensors(directory: Path) -> dict[str, Readable]:
    """Each tensor name of the checkpoint, with the file that holds it."""
    if directory.is_file():
        from tempo_llm.gguf_model import GgufTensors

        tensors = GgufTensors(directory)
        return dict.fromkeys(tensors.names, tensors)
    single, index = directory / "model.safetensors", directory / "model.safetensors.index.json"
    if single.exists():
        file = TensorFile(single)
        return dict.fromkeys(file.names, file)
    if index.exists():
        return _open_shards(directory, index)
    hint = "a checkpoint directory holds model.safetensors, or shards with model.safetensors.index.json"
    if list(directory.glob("*.bin")) or list(directory.glob("*.pth")):
        hint += "; PyTorch pickle files are not read: convert them with transformers' save_pretrained"
    raise CheckpointError(f"no weights in {directory}", hint=hint)


def _open_shards(directory: Path, index: Path) -> dict[str, Readable]:
    try:
        weight_map: dict[str, str] = dict(json.loads(read_text(index))["weight_map"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{index} cannot be read: {shown(error, 300)}", hint="it needs an object `weight_map`") from None
    wrong = [shard for shard in weight_map.values() if not isinstance(shard, str) or Path(shard).name != shard or "\0" in shard]
    if wrong:
        raise CheckpointError(
            f"{index} names {shown(wrong[0])}, which is not the name of a file beside it",
            hint="shards lie in the model's own directory",
        )
    shards = sorted(set(weight_map.values()))
    absent = [shard for shard in shards if not os.path.isfile(directory / shard)]  # also False for a name that no file can have
    if absent:
        raise CheckpointError(f"{index} names files that are not there: {_shorten(absent)}", hint="download the missing shards")
    files = {shard: TensorFile(directory / shard) for shard in shards}
    lost = [name for name, shard in weight_map.items() if name not in files[shard].names]
    if lost:
        raise CheckpointError(f"{index} places tensors in files that lack them: {_shorten(lost)}")
    return {name: files[shard] for name, shard in weight_map.items()}


def check_tensors(tensors: Mapping[str, Readable], shapes: Mapping[str, tuple[int, ...]], directory: str | Path) -> None:
    """Compare the tensors with the names and `shapes` that the configuration needs; report all differences in one error."""
    missing = [name for name in shapes if name not in tensors]
    unused = [name for name in tensors if name not in shapes and not name.endswith(IGNORED_SUFFIX)]
    misshapen = [
        f"{name} is {list(tensors[name].shape(name))} and should be {list(shape)}"
        for name, shape in shapes.items()
        if name in tensors and tensors[name].shape(name) != shape
    ]
    groups = {"missing": missing, "unused": unused, "of the wrong shape": misshapen}
    parts = [f"{len(names)} {what}: {_shorten(names)}" for what, names in groups.items() if names]
    if parts:
        raise CheckpointError(
            f"the tensors in {directory} do not fit config.json\n  " + "\n  ".join(parts),
            hint="config.json and the weights must come from the same model",
        )


def _shorten(names: list[str], limit: int = 12) -> str:
    listed = ", ".join(name if len(name) < 100 else f"{name[:97]}..." for name in sorted(names)[:limit])
    return listed if len(names) <= limit else f"{listed}, and {len(names) - limit} more"
