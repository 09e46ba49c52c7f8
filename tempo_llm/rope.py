"""Rotary position embedding: the frequencies of a model, with the scalings that stretch them to longer contexts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tempo_llm.errors import ModelConfigError

ROPE_TYPES = ("default", "linear", "llama3")


@dataclass(frozen=True)
class RopeScaling:
    """How frequencies are scaled. `linear` divides all by `factor`; `llama3` divides the slow ones and blends between.

    A frequency is slow when its wavelength (in tokens) exceeds `original_max_position_embeddings / low_freq_factor`, and
    fast when it is below `original_max_position_embeddings / high_freq_factor`.
    """

    rope_type: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position_embeddings: int = 8192

    @staticmethod
    def from_values(values: Mapping[str, Any], source: str) -> RopeScaling:
        """The scaling in a `rope_scaling` or `rope_parameters` object; an empty one means none."""
        kind = values.get("rope_type", values.get("type", "default"))
        if kind not in ROPE_TYPES:
            raise ModelConfigError(f"{source}: rope type {kind!r} is not supported; known are {', '.join(ROPE_TYPES)}")
        needed = {
            "default": (),
            "linear": ("factor",),
            "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
        }[kind]
        missing = [key for key in needed if not isinstance(values.get(key), (int, float))]
        if missing:
            raise ModelConfigError(f"{source}: rope type {kind!r} needs {', '.join(missing)}")
        scaling = RopeScaling(kind, **{key: values[key] for key in needed})
        if scaling.factor < 1 or (kind == "llama3" and scaling.low_freq_factor >= scaling.high_freq_factor):
            raise ModelConfigError(f"{source}: rope needs factor >= 1 and low_freq_factor < high_freq_factor, got {scaling}")
        return scaling


def inverse_frequencies(head_dim: int, theta: float, scaling: RopeScaling) -> np.ndarray:
    """Radians per token of each pair of elements: float32 [head_dim / 2]."""
    exponents = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    frequencies = (1.0 / np.power(np.float32(theta), exponents)).astype(np.float32)
    if scaling.rope_type == "default":
        return frequencies
    slowed = frequencies / np.float32(scaling.factor)
    if scaling.rope_type == "linear":
        return slowed
    wavelengths = 2 * math.pi / frequencies
    turns = scaling.original_max_position_embeddings / wavelengths  # full turns within the original context
    share = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    share = np.clip(share, 0.0, 1.0)  # 0: slow, divided by the factor; 1: fast, kept
    return ((1 - share) * slowed + share * frequencies).astype(np.float32)
