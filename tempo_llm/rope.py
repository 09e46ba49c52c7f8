"""The rotary settings of a model directory, converted to those of `tp.nn.RoPE`."""

from __future__ import annotations

from collections.abc import Mapping

import tempo_core as tp
from tempo_core.nn import RopeScaling
from tempo_llm.errors import ModelConfigError
from tempo_llm.json_files import JsonObject

_FACTORS: Mapping[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}


def scaling_from_values(values: JsonObject, source: str) -> RopeScaling:
    """The scaling in a `rope_scaling` or `rope_parameters` object. An empty object means no scaling."""
    kind = values.get("rope_type", values.get("type", "default"))
    if kind not in _FACTORS:
        raise ModelConfigError(f"{source}: rope type {kind!r} is not supported; the types are {', '.join(_FACTORS)}")
    factors = _FACTORS[kind]
    missing = [key for key in factors if not isinstance(values.get(key), (int, float))]
    if missing:
        raise ModelConfigError(f"{source}: rope type {kind!r} needs {', '.join(missing)}")
    try:
        return RopeScaling(kind, **{key: values[key] for key in factors})
    except tp.errors.TempoError as error:
        raise ModelConfigError(f"{source}: {error.message}") from None
