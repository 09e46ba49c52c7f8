"""The rotary settings of a `config.json`, converted to a `Rope`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tempo_core as tp
from tempo_core.nn import RopeScaling
from tempo_llm.errors import shown
from tempo_llm.layer import LongRope, Rope
from tempo_llm.values import LARGEST_NUMBER, Values


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
    "longrope": RopeType((), ("original_max_position_embeddings", "factor", "attention_factor")),
}
KINDS = ("full_attention", "sliding_attention")  # of layers, in `layer_types`; newer files may have settings for each


def settings(values: Values, kind: str | None = None) -> dict[str, object]:
    """The rotary settings: `rope_scaling` in older files, `rope_parameters` (with `rope_theta` inside) in newer ones.

    If they are an object for each kind of layers, those of the layers of this kind.
    """
    joined: dict[str, object] = {}
    for key in ("rope_scaling", "rope_parameters"):
        part = values.get(key)
        if part is not None and not isinstance(part, Mapping):
            raise values.error(f"{key} is {shown(part)}; it must be an object, such as {{}}, or null")
        part = part or {}
        if kind is not None and any(name in part for name in KINDS):
            part = part.get(kind) or {}
            if not isinstance(part, Mapping):
                raise values.error(f"{key} has {shown(part)} for {kind}; it must be an object, such as {{}}, or null")
        joined |= part
    return joined


def rope_of(values: Values, head_width: int, theta: float, kind: str | None = None, partial: bool = False) -> Rope:
    """The rotary embedding of a model, or of its layers of one kind. `theta` is the default of `rope_theta`.

    If heads may be turned in part, `partial` is on.
    """
    chosen = settings(values, kind)
    share = chosen.get("partial_rotary_factor", values.get("partial_rotary_factor", 1.0))
    if not partial and share not in (None, 1, 1.0):
        raise values.error(f"partial_rotary_factor is {shown(share)}, which is not supported: whole heads are turned")
    width = int(head_width * Values({"partial_rotary_factor": share}, values.source).number("partial_rotary_factor", 1.0))
    if width % 2 or not 0 < width <= head_width:
        raise values.error(
            f"{shown(share)} of a head of {head_width} elements is {width}, which rotary embedding cannot turn in pairs"
        )
    base = Values({**values.values, **chosen}, values.source).number("rope_theta", theta)
    if values.get("original_max_position_embeddings") is not None:
        chosen.setdefault("original_max_position_embeddings", values.size("original_max_position_embeddings"))
    scaling = _scaling(chosen, values, width)
    return Rope(width, base, long=scaling) if isinstance(scaling, LongRope) else Rope(width, base, scaling)


def _scaling(chosen: Mapping[str, Any], values: Values, width: int) -> RopeScaling | LongRope:
    """The scaling in the rotary settings. No settings mean no scaling."""
    kind = chosen.get("rope_type", chosen.get("type", "default"))
    row = ROPE_TYPES.get(kind) if isinstance(kind, str) else None
    if row is None:
        raise values.error(f"rope type {shown(kind)} is not supported; the types are {', '.join(ROPE_TYPES)}")
    names = [key for key in (*row.required, *row.optional) if key in row.required or chosen.get(key) is not None]
    wrong = [key for key in names if not _is_positive(chosen.get(key))]
    if wrong:
        missing = ", ".join(f"{key} (it is {shown(chosen[key])})" if key in chosen else key for key in wrong)
        raise values.error(f"rope type {shown(kind)} needs {missing}, as a positive number")
    numbers = {key: chosen[key] for key in names}
    context = values.size("max_position_embeddings")
    if kind == "longrope":
        return _long(chosen, numbers, values, width, context)
    if kind == "yarn":
        scale, whole = numbers.pop("mscale", None), numbers.pop("mscale_all_dim", None)
        if scale is not None and whole is not None and "attention_factor" not in numbers:
            numbers["attention_factor"] = _amplitude(numbers["factor"], scale) / _amplitude(numbers["factor"], whole)
        numbers.setdefault("original_max_position_embeddings", context)
        numbers["truncate"] = chosen.get("truncate") is not False
    try:
        return RopeScaling(kind, **numbers)
    except tp.errors.TempoError as error:
        raise values.error(error.message) from None


def _long(chosen: Mapping[str, Any], numbers: Mapping[str, float], values: Values, width: int, context: int) -> LongRope:
    """The factors of longrope, one for each pair of elements."""
    factors: list[tuple[float, ...]] = []
    for key in ("short_factor", "long_factor"):
        listed = chosen.get(key)
        if not isinstance(listed, list) or len(listed) != width // 2 or not all(map(_is_positive, listed)):
            raise values.error(
                f"rope type 'longrope' needs {key}, a list of {width // 2} positive numbers; it is {shown(listed)}"
            )
        factors.append(tuple(map(float, listed)))
    original = int(numbers.get("original_max_position_embeddings", context))
    factor = numbers.get("factor", context / original)
    amplitude = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    return LongRope(factors[0], factors[1], original, float(numbers.get("attention_factor", amplitude)))


def _amplitude(factor: float, scale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0


def _is_positive(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < LARGEST_NUMBER
