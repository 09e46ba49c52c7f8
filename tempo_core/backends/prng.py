"""Random numbers as a pure function of (seed, stream, coordinates, element), the same for NumPy and JAX.

The generator is counter-based: Threefry-2x32 with 20 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
SC '11). The first key is (seed, stream). All coordinates of a point but the last are mixed into the key, two in each block. The block
cipher then encrypts (element, last coordinate). A point of three steps costs two blocks; in a small program, these rounds are
most of the work of XLA's compiler. There is no state: any order of evaluation, and any batching of points, gives the same
numbers. Integer arithmetic wraps, so bits and uniform numbers are equal bit for bit on both libraries. Normal numbers differ by
the rounding of log and cos.

Two forms are for XLA's compiler. The key of a point is computed apart from the block that uses it (`_apart`): each word of a round is
used twice, and LLVM's loop vectorizer follows all uses of values that several elements share. Two blocks in one kernel take three times
as long as in two, and up to minutes. And the number of a group is added to the key, not to the state, because XLA's algebraic
simplifier reorders sums of a value, a scalar and a constant without end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental.xla_metadata import set_xla_metadata

Array = Any
MOST_KEYS = 65_536  # points whose keys are computed apart; with more of them, running takes longer than compiling

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)


def threefry2x32(xp: Any, key: tuple[Array, Array], counter: tuple[Array, Array]) -> tuple[Array, Array]:
    """Encrypt the two words of `counter` with `key`: two uint32 arrays of one shape (or scalars)."""
    schedule = (key[0], key[1], key[0] ^ key[1] ^ _PARITY)
    a, b = counter[0] + schedule[0], counter[1] + schedule[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            a = a + b
            b = (b << np.uint32(rotation)) | (b >> np.uint32(32 - rotation))
            b = b ^ a
        a = a + schedule[(group + 1) % 3]
        b = b + (schedule[(group + 2) % 3] + np.uint32(group + 1))
    return a, b


def _word(xp: Any, number: Any) -> Array:
    """An integer, or an array of integers, as uint32 modulo 2**32."""
    if isinstance(number, (int, np.integer)):
        return xp.asarray(np.uint32(int(number) & 0xFFFFFFFF))
    return xp.asarray(number).astype(np.uint32)


def random_words(
    xp: Any, seed: Any, stream: int, coordinates: Sequence[Array], blocks: int, seeded: bool = False
) -> tuple[Array, Array]:
    """`blocks` pairs of words at each point: two uint32 arrays `[*c, blocks]` for int32 coordinates of shape `c`.

    `seed` is an int (taken modulo 2**32) or a uint32 scalar. If it is `seeded`, the first coordinate is added to it.
    """
    with np.errstate(over="ignore"):  # wrapping is intended; NumPy warns about it for scalars
        key = (_word(xp, seed), _word(xp, stream))
        words = [_word(xp, c) for c in coordinates]
        if seeded:
            key = (key[0] + words[0], xp.broadcast_to(key[1], words[0].shape))
            words = words[1:] or [xp.zeros_like(words[0])]
        zero = xp.zeros(words[0].shape if words else (), np.uint32)
        outer, last = words[:-1], words[-1] if words else zero
        for position in range(0, len(outer), 2):  # two coordinates in each block
            pair = (outer[position], outer[position + 1] if position + 1 < len(outer) else zero)
            spread = (xp.broadcast_to(key[0], zero.shape), xp.broadcast_to(key[1], zero.shape))
            key = _apart(xp, spread, pair)
        shape = (*zero.shape, blocks)
        keys = (xp.broadcast_to(_column(xp, key[0], zero), shape), xp.broadcast_to(_column(xp, key[1], zero), shape))
        elements = xp.broadcast_to(xp.arange(blocks, dtype=np.uint32), shape)
        return threefry2x32(xp, keys, (elements, xp.broadcast_to(last[..., None], shape)))


def _apart(xp: Any, key: tuple[Array, Array], counter: tuple[Array, Array]) -> tuple[Array, Array]:
    """The key of each point by one block, in kernels of its own.

    XLA takes a barrier away before it fuses on a CPU, and a function that is not inlined stays. It holds the keys in memory.
    """
    if xp is np:
        return threefry2x32(xp, key, counter)
    if not key[0].shape or key[0].size > MOST_KEYS or jax.default_backend() != "cpu":
        return jax.lax.optimization_barrier(threefry2x32(xp, key, counter))
    with set_xla_metadata(inlineable="false"):
        return _block(key, counter)


@jax.jit
def _block(key: tuple[Array, Array], counter: tuple[Array, Array]) -> tuple[Array, Array]:
    return threefry2x32(jax.numpy, key, counter)


def _column(xp: Any, word: Array, like: Array) -> Array:
    """The word of a key at each point, with a dimension for elements."""
    return xp.broadcast_to(word, like.shape)[..., None]


def random(
    xp: Any, kind: str, seed: Any, stream: int, coordinates: Sequence[Array], shape: Sequence[int], seeded: bool = False
) -> Array:
    """Random numbers `[*c, *shape]` for int32 coordinates of shape `c` (`()` where there are none).

    "bits": uint32; "uniform": float32 in [0, 1), multiples of 2**-24; "normal": float32, finite, at most 6.7 away from 0.
    The number at an element depends only on the seed, the stream, the point's coordinates and the element's row-major index.
    """
    count = math.prod(shape)
    first, second = random_words(xp, seed, stream, coordinates, -(-count // 2), seeded)  # each block gives two elements
    batch = first.shape[:-1]
    if kind == "normal":
        first, second = _box_muller(xp, first, second)
    pairs = xp.stack([first, second], axis=-1).reshape((*batch, 2 * first.shape[-1]))
    numbers = pairs[..., :count].reshape((*batch, *shape))
    return _uniform(numbers) if kind == "uniform" else numbers


def _uniform(bits: Array) -> Array:
    """Numbers in [0, 1), from the upper 24 bits, so that none rounds up to 1."""
    return (bits >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


def _box_muller(xp: Any, first: Array, second: Array) -> tuple[Array, Array]:
    """Two independent standard normal numbers from two words."""
    positive = (first.astype(np.float32) + np.float32(1.0)) * np.float32(2.0**-32)  # (0, 1]: the logarithm is finite
    radius = xp.sqrt(xp.maximum(np.float32(-2.0) * xp.log(positive), np.float32(0.0)))
    angle = np.float32(2.0 * math.pi) * _uniform(second)
    return radius * xp.cos(angle), radius * xp.sin(angle)
