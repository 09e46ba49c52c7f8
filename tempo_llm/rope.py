"""The rotary settings of a model directory, converted to those of `tp.nn.RoPE`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import tempo_core as tp
from tempo_core.nn import RopeScaling
from tempo_llm.errors import ModelConfigError, shown
from tempo_llm.json_files import JsonObject

LARGEST = 1e30  # larger numbers are not those of float32


@dataclass(frozen=True)
class RopeType:
    """A row of the table: the numbers that this rope type must have in the file, and those that it may have."""

    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


ROPE_TYPES: Mapping[str, RopeType] = {
    "default": RopeType(),
    "linear": RopeType(("factor",)),
    "llama3": RopeType(("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")),
    "yarn": RopeType(
        ("factor",),
        ("original_max_position_embeddings", "beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim"),
    ),
}


def scaling_from_values(values: JsonObject, source: str, context: int) -> RopeScaling:
    """The scaling in a `rope_scaling` or `rope_parameters` object of a model with `context` positions. An empty object means no scaling."""
    kind = values.get("rope_type", values.get("type", "default"))
    row = ROPE_TYPES.get(kind) if isinstance(kind, str) else None
    if row is None:
        raise ModelConfigError(f"{source}: rope type {shown(kind)} is not supported; the types are {', '.join(ROPE_TYPES)}")
    names = [key for key in (*row.required, *row.optional) if key in row.required or values.get(key) is not None]
    wrong = [key for key in names if not _is_number(values.get(key)) or values[key] <= 0]
    if wrong:
        missing = ", ".join(f"{key} (it is {shown(values[key])})" if key in values else key for key in wrong)
        raise ModelConfigError(f"{source}: rope type {shown(kind)} needs {missing}, as a positive number")
    numbers = {key: values[key] for key in names}
    if kind == "yarn":
        scale, whole = numbers.pop("mscale", None), numbers.pop("mscale_all_dim", None)
        if scale is not None and whole is not None and "attention_factor" not in numbers:
            numbers["attention_factor"] = _amplitude(numbers["factor"], scale) / _amplitude(numbers["factor"], whole)
        numbers.setdefault("original_max_position_embeddings", context)
        numbers["truncate"] = values.get("truncate") is not False
    try:
        return RopeScaling(kind, **numbers)
    except tp.errors.TempoError as error:
        raise ModelConfigError(f"{source}: {error.message}") from None


def _amplitude(factor: float, scale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < LARGEST
