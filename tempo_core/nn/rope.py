"""Rotary position embedding (Su et al., 2021, arXiv:2104.09864), with the scalings that stretch it to longer contexts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

import tempo_core.frontend.functions as fn
from tempo_core.errors import TempoError
from tempo_core.frontend.aliases import Array
from tempo_core.frontend.tensor import Tensor, Value
from tempo_core.nn.linear import check_width
from tempo_core.nn.module import Module

ROPE_TYPES = ("default", "linear", "llama3", "yarn")


@dataclass(frozen=True)
class RopeScaling:
    """How frequencies are scaled. `linear` divides all by `factor`; `llama3` and `yarn` divide the slow ones and blend between.

    For `llama3`, a frequency is slow when its wavelength (in tokens) exceeds `original_max_position_embeddings / low_freq_factor`,
    and fast when it is below `original_max_position_embeddings / high_freq_factor`. For `yarn` (Peng et al., 2023, arXiv:2309.00071), it is
    slow below `beta_slow` turns in the original context and fast above `beta_fast`, rounded outwards to whole pairs of elements unless
    `truncate` is off; cosines and sines are multiplied by `attention_factor`, by default 0.1 * log(factor) + 1.
    """

    rope_type: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position_embeddings: int = 8192
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    truncate: bool = True

    @property
    def amplitude(self) -> float:
        """What cosines and sines are multiplied by."""
        if self.rope_type != "yarn":
            return 1.0
        return 0.1 * math.log(self.factor) + 1.0 if self.attention_factor is None else self.attention_factor

    def __post_init__(self) -> None:
        if self.rope_type not in ROPE_TYPES:
            raise TempoError(f"rope type {self.rope_type!r} is not supported; supported are {', '.join(ROPE_TYPES)}")
        if self.factor < 1 or (self.rope_type == "llama3" and self.low_freq_factor >= self.high_freq_factor):
            raise TempoError(f"rope needs factor >= 1 and low_freq_factor < high_freq_factor, got {self}")
        if self.rope_type == "yarn" and not 0 < self.beta_slow < self.beta_fast:
            raise TempoError(f"rope needs 0 < beta_slow < beta_fast, got {self}")


def inverse_frequencies(width: int, theta: float = 10000.0, scaling: RopeScaling | None = None) -> Array:
    """Radians per position of each pair of elements: float32 [width / 2]."""
    scaling = scaling or RopeScaling()
    exponents = np.arange(0, width, 2, dtype=np.float32) / np.float32(width)
    frequencies = (1.0 / np.power(np.float32(theta), exponents)).astype(np.float32)
    if scaling.rope_type == "default":
        return frequencies
    slowed = frequencies / np.float32(scaling.factor)
    if scaling.rope_type == "linear":
        return slowed
    if scaling.rope_type == "yarn":
        kept = _kept_by_yarn(width, theta, scaling)
        return (slowed * (1 - kept) + frequencies * kept).astype(np.float32)
    wavelengths = 2 * math.pi / frequencies
    turns = scaling.original_max_position_embeddings / wavelengths  # full turns within the original context
    share = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    share = np.clip(share, 0.0, 1.0)  # 0: slow, divided by the factor; 1: fast, kept
    return ((1 - share) * slowed + share * frequencies).astype(np.float32)


def _kept_by_yarn(width: int, theta: float, scaling: RopeScaling) -> Array:
    """How much of each frequency is kept as it is: 1 for fast pairs of elements, 0 for slow ones, falling along the pairs between."""

    def pair(turns: float) -> float:
        """The pair of elements, perhaps a fraction of one, that makes so many turns in the original context."""
        return width * math.log(scaling.original_max_position_embeddings / (turns * 2 * math.pi)) / (2 * math.log(theta))

    first, last = pair(scaling.beta_fast), pair(scaling.beta_slow)
    if scaling.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, width - 1)
    along = (np.arange(width // 2, dtype=np.float32) - first) / (last - first if last > first else 0.001)
    return 1 - np.clip(along, 0, 1).astype(np.float32)


class RoPE(Module):
    """Turns pairs of elements by angles that grow with the position: element k with element k + width / 2, as Llama does.

    `rope(x, position)`: x [..., width]; the position is a step (over time) or a tensor that broadcasts against the leading
    dimensions of x, such as `tp.arange(length)` for [..., length, width].
    """

    def __init__(self, width: int, theta: float = 10000.0, scaling: RopeScaling | None = None):
        super().__init__()
        if width % 2 or width < 2:
            raise TempoError(
                f"a rotary embedding turns pairs of elements; the width is {width}, not a positive even number",
                hint="give an even width of at least 2: tp.nn.RoPE(64)",
            )
        self.width, self.theta, self.scaling = width, theta, scaling

    def rotation(self, position: Value) -> tuple[Tensor, Tensor]:
        """Cosines and sines of the angles: the shape of `position`, then [width / 2]. Their domain is that of the position."""
        frequencies = fn.constant(inverse_frequencies(self.width, self.theta, self.scaling))
        at = fn.as_tensor(position).astype("float32")
        angles = fn.expand_dims(at, at.rank) * frequencies
        amplitude = 1.0 if self.scaling is None else self.scaling.amplitude
        if amplitude == 1.0:
            return fn.cos(angles), fn.sin(angles)
        return fn.cos(angles) * amplitude, fn.sin(angles) * amplitude

    def forward(self, x: Tensor, position: Value) -> Tensor:
        check_width(self, x, self.width, f"RoPE({x.shape[-1]}) takes this operand" if x.rank else None)
        return self.by(x, *self.rotation(position))

    def by(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """x [..., width], turned by angles of these cosines and sines [..., width / 2]."""
        half = self.width // 2
        first, second = x.spatial[..., :half], x.spatial[..., half:]
        rotated = fn.concatenate([first * cosine - second * sine, second * cosine + first * sine], axis=-1)
        return rotated.astype(x.dtype)
