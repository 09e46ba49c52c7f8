"""Prefixes of prompts with numbers that follow from their tokens, and how tests compare them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import ml_dtypes
import numpy as np

from tempo_llm.prefixes import Kept, Prefix

FLOAT32, FLOAT16 = np.dtype(np.float32), np.dtype(np.float16)
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
PLENTY = 2**20


def array(tokens: Sequence[int], *shape: int, dtype: np.dtype[np.generic] = FLOAT32, name: str = "") -> np.ndarray:
    """Numbers that are those of these tokens, and of no others."""
    return np.random.default_rng([*tokens, *name.encode()]).integers(-99, 99, shape).astype(dtype)


def prefix_of(tokens: Sequence[int], window: int | None = None, reach: int = 3, state: bool = False) -> Prefix:
    """A prefix with full keys; with keys of the last `window` tokens, if there is one; and with a state."""
    length = len(tokens)
    layers = {"keys": Kept(array(tokens, length, 2, dtype=BFLOAT16), None)}
    if window is not None:
        layers["window"] = Kept(array(tokens, window, 3, dtype=FLOAT16, name="window"), reach)
    if state:
        layers["state"] = Kept(array(tokens, 2, 2, name="state"), None, is_state=True)
    return Prefix(tuple(tokens), layers)


def assert_same(left: Prefix, right: Prefix) -> None:
    assert left.tokens == right.tokens and left.layers.keys() == right.layers.keys()
    for name, kept in left.layers.items():
        other = right.layers[name]
        assert (kept.reach, kept.is_state, kept.array.dtype) == (other.reach, other.is_state, other.array.dtype)
        np.testing.assert_array_equal(kept.array, other.array, strict=True)


def files(directory: Path) -> list[Path]:
    return sorted(directory.iterdir())
