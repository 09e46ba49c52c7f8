"""The rotary settings of a `config.json`, converted to a `Rope`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

import tempo_core as tp
from tempo_core.nn import RopeScaling
from tempo_llm.errors import shown
from tempo_llm.json_files import JsonObject
from tempo_llm.layer import LongRope, Rope
from tempo_llm.values import LARGEST_NUMBER, Values

T = TypeVar("T")


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
SCALES = ("factor", "short_factor", "long_factor", "low_freq_factor", "high_freq_factor")  # what only a scaling has
KINDS = ("full_attention", "sliding_attention")  # of layers, in `layer_types`; newer files may have settings for each


def agreed(values: Values, kind: str | None, read: Callable[[JsonObject, str], T]) -> T:
    """What `read` makes of the rotary settings, an object and the name of its key, for all layers or for those of one kind.

    Older files have them in `rope_scaling`, with `rope_theta` beside it, newer ones in `rope_parameters`, with `rope_theta` inside. If both
    are there, they must say the same. Raises ModelConfigError if they do not.
    """
    parts = dict(_part(values, key, kind) for key in ("rope_scaling", "rope_parameters"))
    parts = {key: part for key, part in parts.items() if part} or {"rope_parameters": {}}
    results = [read(part, key) for key, part in parts.items()]
    if results[0] != results[-1]:
        old, new = ({**part, "rope_type": part.get("rope_type", part.get("type"))} for part in parts.values())
        names = sorted({*old, *new} - {"type"}, key=lambda name: (name != "rope_type", name))
        name = next((name for name in names if old.get(name) != new.get(name)), names[0])
        first, second = parts
        raise values.error(
            f"rope_scaling and rope_parameters do not say the same: {name} is {shown(old.get(name))} in {first}, "
            f"and {shown(new.get(name))} in {second}",
            hint="keep one of the two: rope_parameters, with rope_theta inside, or rope_scaling, with rope_theta beside it",
        )
    return results[0]


def _part(values: Values, key: str, kind: str | None) -> tuple[str, JsonObject]:
    """The rotary settings under a key, and where they are: for all layers, or, if they are an object for each kind of layers, those of this kind."""
    part = values.get(key)
    if part is not None and not isinstance(part, Mapping):
        raise values.error(f"{key} is {shown(part)}; it must be an object, such as {{}}, or null")
    part = part or {}
    kinds = [name for name in part if name in KINDS]
    if not kinds:
        if kind is not None and key == "rope_parameters" and part:
            raise values.error(
                f"{key} has {', '.join(part)}, but the layers of this family are of two kinds",
                hint=f"write {key} with an object for each kind: {' and '.join(KINDS)}",
            )
        return key, {} if kind == KINDS[1] else part  # in older files, `rope_scaling` is of the full layers alone
    others = [name for name in part if name not in KINDS]
    if others:
        raise values.error(f"{key} has {others[0]} beside {kinds[0]}: it must be inside of it")
    for name in kinds:
        if part[name] is not None and not isinstance(part[name], Mapping):
            raise values.error(f"{key} has {shown(part[name])} for {name}; it must be an object, such as {{}}, or null")
    if kind is None:  # a family that turns all layers in the same way
        if any(part[name] != part[kinds[0]] for name in kinds):
            raise values.error(f"{key} has different settings for {' and '.join(kinds)}, but this family has one for all layers")
        kind = kinds[0]
    return f"{key}.{kind}", part.get(kind) or {}


def said(values: Values, part: JsonObject, key: str, name: str, outer: str | None = None) -> object:
    """A setting that stands inside of the rotary settings, or beside them under the name `outer`. Raises ModelConfigError if both differ."""
    outer = name if outer is None else outer
    inside, beside = part.get(name), values.get(outer)
    if inside is not None and beside is not None and inside != beside:
        raise values.error(
            f"{outer} is {shown(beside)}, but {key}.{name} is {shown(inside)}",
            hint=f"keep one of the two: {key}.{name} is the newer key",
        )
    return beside if inside is None else inside


def rope_of(
    values: Values,
    head_width: int,
    theta: float,
    kind: str | None = None,
    share: float | None = None,
    names: Mapping[str, str] = MappingProxyType({}),
    base: str = "rope_theta",
    original: int | None = None,
) -> Rope:
    """The rotary embedding of a model, or of its layers of one kind. `theta` is the default of `rope_theta`, whose name in older files is `base`.

    If heads may be turned in part, `share` is the part by default. `names` are older names of rope types. `original` is the default of
    `original_max_position_embeddings`.
    """

    def read(part: JsonObject, key: str) -> Rope:
        chosen = dict(part)
        for name in ("rope_type", "type"):
            chosen[name] = names.get(str(part.get(name)), part.get(name))
        width = _width(values, said(values, part, key, "partial_rotary_factor"), head_width, share)
        turn = Values({"rope_theta": said(values, part, key, "rope_theta", base)}, values.source).number("rope_theta", theta)
        chosen["original_max_position_embeddings"] = said(values, part, key, "original_max_position_embeddings") or original
        scaling = _scaling(chosen, key, values, width)
        return Rope(width, turn, long=scaling) if isinstance(scaling, LongRope) else Rope(width, turn, scaling)

    return agreed(values, kind, read)


def _width(values: Values, part: object, head_width: int, share: float | None) -> int:
    """How many elements of a head are turned."""
    if share is None and part not in (None, 1, 1.0):
        raise values.error(f"partial_rotary_factor is {shown(part)}, which is not supported: whole heads are turned")
    factor = Values({"partial_rotary_factor": part}, values.source).number(
        "partial_rotary_factor", 1.0 if share is None else share
    )
    width = int(head_width * factor)
    if width % 2 or not 0 < width <= head_width:
        raise values.error(
            f"{shown(part)} of a head of {head_width} elements is {width}, which rotary embedding cannot turn in pairs"
        )
    return width


def _kind(chosen: Mapping[str, Any], key: str, values: Values) -> str:
    """The rope type, under the name `rope_type`, in older files `type`. A scaling without a type is an error, and so is one of the type default."""
    kinds = {name: chosen[name] for name in ("rope_type", "type") if chosen.get(name) is not None}
    if len({str(kind) for kind in kinds.values()}) > 1:
        raise values.error(f"{key}.rope_type is {shown(chosen['rope_type'])}, but {key}.type is {shown(chosen['type'])}")
    kind = next(iter(kinds.values()), "default")
    if not isinstance(kind, str) or kind not in ROPE_TYPES:
        raise values.error(f"rope type {shown(kind)} is not supported; the types are {', '.join(ROPE_TYPES)}")
    scale = next((name for name in SCALES if chosen.get(name) not in (None, 1)), None)
    if kind == "default" and scale is not None:
        words = f"{key}.{next(iter(kinds))} is 'default'" if kinds else f"{key} has no rope_type"
        raise values.error(
            f"{words}, but {key}.{scale} is {shown(chosen[scale])}",
            hint=f"name the type, one of {', '.join(ROPE_TYPES)}, or take {scale} out",
        )
    return kind


def _scaling(chosen: Mapping[str, Any], key: str, values: Values, width: int) -> RopeScaling | LongRope:
    """The scaling in the rotary settings under a key. No settings mean no scaling."""
    kind = _kind(chosen, key, values)
    row = ROPE_TYPES[kind]
    names = [key for key in (*row.required, *row.optional) if key in row.required or chosen.get(key) is not None]
    wrong = [key for key in names if not _is_positive(chosen.get(key))]
    if wrong:
        missing = ", ".join(f"{key} (it is {shown(chosen[key])})" if chosen.get(key) is not None else key for key in wrong)
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
