"""`tempo-llm quantize`: a checkpoint with int8 or int4 matrices, written tensor by tensor."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tempo_core.files import refusal
from tempo_llm.checkpoint import (
    EMBEDDING,
    HEAD,
    Readable,
    check_tensors,
    file_shapes,
    is_quantized,
    is_tied,
    kind_of,
    layer_weights,
    open_tensors,
    read_tensor,
)
from tempo_llm.config import QUANT_METHOD, LlamaConfig
from tempo_llm.errors import RequestError, shown
from tempo_llm.files import read_text
from tempo_llm.quantized import GROUP, GROUPS, QUANTIZED, Arrays, Dtype, quantize
from tempo_llm.tensor_file import SHAPES

COPIED = (
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "generation_config.json",
    "chat_template.jinja",
)
NAMES: Mapping[str, str] = {"float32": "F32", "int8": "I8", "uint8": "U8"}  # of dtypes in a safetensors file


@dataclass(frozen=True)
class Quantization:
    """What `quantize_model` has written: bytes of the tensors before and after, and how many matrices are quantized."""

    matrices: int
    bytes_before: int
    bytes_after: int


def quantize_model(source: Path, target: Path, dtype: str, group: int = GROUP, force: bool = False) -> Quantization:
    """Write the model in the directory `source` to the directory `target`, with matrices of `dtype`, "int8" or "int4", in groups of `group`.

    One tensor at a time is in memory. The directory is whole or not there. Raises RequestError for a source that is quantized already, for a
    target that is there (without `force`), and if it cannot be written; ModelConfigError and CheckpointError.
    """
    if dtype not in QUANTIZED:
        raise RequestError(f"the dtype {shown(dtype)} is unknown; matrices can be {', '.join(QUANTIZED)}", hint="--dtype int8")
    if group not in GROUPS:
        raise RequestError(f"groups of {shown(group)} elements are not supported; they can be {', '.join(map(str, GROUPS))}")
    if source.is_file():
        raise RequestError(
            f"{source} is a GGUF file, which is quantized already, or not a directory", hint=f"use it as it is: --model {source}"
        )
    if (target.exists() or target.is_symlink()) and not force:
        raise RequestError(f"{target} exists", hint="give another directory, or replace it: --force")
    if target.resolve() == source.resolve():
        raise RequestError(f"{target} is the model that is read", hint="give another directory")
    config = LlamaConfig.from_directory(source)
    tensors = open_tensors(source)
    if any(file.quantized for file in tensors.values()):
        raise RequestError(f"{source} is quantized already", hint="quantize the float checkpoint of this model")
    check_tensors(tensors, file_shapes(config, is_tied(tensors, config)), source)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        directory = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise RequestError(f"{target} cannot be written: {refusal(error, target)}") from None
    try:
        result = _write(source, config, tensors, directory, dtype, group)
        directory.chmod(0o755)
        _put(directory, target)
    except OSError as error:
        raise RequestError(
            f"{target} cannot be written: {refusal(error, target)}", hint="nothing is left of it; the source is as it was"
        ) from None
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return result


def _put(directory: Path, target: Path) -> None:
    """Rename a directory to `target`. What is there goes away once the new one is whole."""
    if not (target.exists() or target.is_symlink()):
        directory.rename(target)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=target.parent))
    try:
        target.rename(old / "replaced")
        try:
            directory.rename(target)
        except OSError:
            (old / "replaced").rename(target)
            raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


def _write(
    source: Path, config: LlamaConfig, tensors: Mapping[str, Readable], directory: Path, dtype: Dtype, group: int
) -> Quantization:
    kinds = _matrices(config, dtype, HEAD in tensors)
    described: dict[str, Any] = {}
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {}  # by the name of an array: its dtype and shape
    for name, file in tensors.items():
        shape = file.shape(name)
        if name not in kinds:
            shapes[name] = "float32", shape
            continue
        kind, is_turned = kinds[name]
        *outer, width = shape if not is_turned else (*shape[:-2], shape[-1], shape[-2])
        groups = -(-width // group)
        described[name] = {"dtype": kind, "group": group, "shape": list(shape), "turned": is_turned}
        row = groups * group
        shapes[name] = ("int8", (*outer, row)) if kind == "int8" else ("uint8", (*outer, row // 2))
        shapes |= {
            f"{name}.{part}": ("float32", (*outer, groups)) for part in (("scale",) if kind == "int8" else ("scale", "offset"))
        }
    with (directory / "model.safetensors").open("wb") as output:
        size = _write_tensors(output, shapes, {"format": "pt", SHAPES: json.dumps(described)}, _arrays(tensors, kinds, group))
        output.flush()
        os.fsync(output.fileno())
    values = json.loads(read_text(source / "config.json"))
    values["quantization_config"] = {"quant_method": QUANT_METHOD, "dtype": dtype, "group": group}
    for name in COPIED:
        if (source / name).is_file():
            shutil.copyfile(source / name, directory / name)
    (directory / "config.json").write_text(json.dumps(values, indent=2) + "\n")
    before = sum(path.stat().st_size for path in {file.path for file in tensors.values()})
    return Quantization(len(kinds), before, size)


def _matrices(config: LlamaConfig, dtype: Dtype, has_head: bool) -> dict[str, tuple[Dtype, bool]]:
    """The matrices of a file that are quantized: to what, and whether the file has them as [..., in, out].

    One that holds several weights is int8 if one of them is.
    """
    matrices: dict[str, tuple[Dtype, bool]] = {EMBEDDING: ("int8", False)}
    if has_head:
        matrices[HEAD] = "int8", False
    for number in range(config.num_hidden_layers):
        for name, weight in layer_weights(config, number).items():
            for each in weight.files if is_quantized(name, weight) else ():
                file = f"model.layers.{number}.{each}"
                is_finer = matrices.get(file, ("int4", False))[0] == "int8"
                matrices[file] = "int8" if is_finer else kind_of(name, dtype), not weight.is_turned
    return matrices


def _arrays(
    tensors: Mapping[str, Readable], kinds: Mapping[str, tuple[Dtype, bool]], group: int
) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays of the new file, one tensor after the other."""
    for name in tensors:
        array = read_tensor(tensors, "", name)
        if name not in kinds:
            yield name, array.astype(np.float32)
            continue
        kind, is_turned = kinds[name]
        arrays: Arrays = quantize(array.swapaxes(-1, -2) if is_turned else array, kind, group)
        del array
        yield from ((name if part == "weight" else f"{name}.{part}", each) for part, each in arrays.items())


def _write_tensors(
    file: BinaryIO,
    shapes: Mapping[str, tuple[str, tuple[int, ...]]],
    metadata: Mapping[str, str],
    arrays: Iterator[tuple[str, np.ndarray]],
) -> int:
    """A safetensors file, whose arrays come one after the other, in the order of `shapes`. Gives its size."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name, (dtype, shape) in shapes.items():
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        header[name] = {"dtype": NAMES[dtype], "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    for (expected, (dtype, shape)), (name, array) in zip(shapes.items(), arrays, strict=True):
        assert (name, str(array.dtype), array.shape) == (expected, dtype, tuple(shape)), (name, expected)
        file.write(np.ascontiguousarray(array).data)
    return 8 + len(text) + end
