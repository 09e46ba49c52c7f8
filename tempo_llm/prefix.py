"""What was computed of the first tokens of a prompt, and from which of its tokens another prompt can go on."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from tempo_llm.types import IntArray


class Extent(NamedTuple):
    """The tokens that an array is of: keys or values of the last `positions` tokens of a prefix, or a state after all of them."""

    positions: int
    reach: int | None
    is_state: bool

    def usable(self, count: int, length: int) -> bool:
        """Whether a prompt can go on behind the first `count` tokens of a prefix of `length` tokens."""
        if self.is_state:
            return count == length
        first = length - self.positions  # the first position whose keys and values are there
        if self.reach is None:
            return first == 0
        return min(self.reach, count) == 0 or max(count - self.reach, 0) >= first


@dataclass(frozen=True, eq=False)
class Kept:
    """One array of a prefix. Raises ValueError for a negative reach, and for keys that have no positions.

    Keys or values are [positions, ...], those of the last tokens of the prefix. A token needs those of `reach` positions before it: None
    stands for all. A state (`is_state`) has any shape, and is the state after all tokens of the prefix.
    """

    array: np.ndarray
    reach: int | None
    is_state: bool = False

    def __post_init__(self) -> None:
        if not self.is_state and self.array.ndim == 0:
            raise ValueError("the array of keys or values has no positions: its shape must be (positions, ...)")
        if self.array.dtype.hasobject:
            raise ValueError("the array holds Python objects, not numbers")
        if self.reach is not None and self.reach < 0:
            raise ValueError(
                f"a reach of {self.reach} positions is not possible: it must be at least 0, or None for all positions"
            )

    @property
    def extent(self) -> Extent:
        return Extent(0 if self.is_state else len(self.array), self.reach, self.is_state)

    def fixed(self) -> Kept:
        """The same, with an array that nobody can write, and that holds no larger array in memory."""
        array = self.array
        if (
            array.flags.writeable
            or not array.flags.c_contiguous
            or not array.dtype.isnative
            or isinstance(array.base, np.ndarray)
        ):
            array = np.array(array, array.dtype.newbyteorder("="), order="C")
            array.flags.writeable = False
        return Kept(array, self.reach, self.is_state)


class Outline:
    """A prefix without its arrays: its tokens [length], and what is there of them."""

    def __init__(self, tokens: Sequence[int], extents: frozenset[Extent]):
        self.tokens: IntArray = np.asarray(tokens, np.int64)
        self.extents = extents

    def usable(self, count: int) -> bool:
        """Whether a prompt that begins with the first `count` tokens can go on from here."""
        length = len(self.tokens)
        return 0 <= count <= length and all(extent.usable(count, length) for extent in self.extents)

    def shared(self, tokens: IntArray) -> int:
        """How many tokens both begin with."""
        length = min(len(tokens), len(self.tokens))
        differs = tokens[:length] != self.tokens[:length]
        return int(differs.argmax()) if differs.any() else length

    def reusable(self, tokens: IntArray, unit: int) -> int:
        """The most tokens of a prompt that need not be computed: a multiple of `unit`, and not the last one.

        Where the largest count cannot be used, no smaller one above 0 can: it needs earlier positions.
        """
        count = max(min(self.shared(tokens), len(tokens) - 1), 0) // unit * unit
        return count if self.usable(count) else 0

    def covers(self, other: Outline) -> bool:
        """Whether all that can be used of the other prefix can be used of this one. Something can be used of the other one."""
        length = len(other.tokens)
        if self.shared(other.tokens) < length:
            return False
        least = bisect_left(range(1, length), True, key=other.usable) + 1  # the counts from here on can be used of it
        return self.usable(least)


@dataclass(frozen=True, eq=False)
class Prefix:
    """What was computed of the `tokens`: the arrays of the layers, by the names of the program's inputs.

    Raises ValueError for keys or values of more positions than there are tokens.
    """

    tokens: tuple[int, ...]
    layers: Mapping[str, Kept]

    def __post_init__(self) -> None:
        for name, kept in self.layers.items():
            if kept.extent.positions > len(self.tokens):
                raise ValueError(f"{name} has {kept.extent.positions} positions, but the prefix has {len(self.tokens)} tokens")

    @cached_property
    def outline(self) -> Outline:
        return Outline(self.tokens, frozenset(kept.extent for kept in self.layers.values()))

    @property
    def nbytes(self) -> int:
        """The bytes of the arrays."""
        return sum(kept.array.nbytes for kept in self.layers.values())

    def usable(self, count: int) -> bool:
        """Whether a prompt that begins with the first `count` tokens can go on from here.

        A state is of all tokens. Keys and values without a reach must be there from the first position on; those with a reach from position
        `count - reach` on.
        """
        return self.outline.usable(count)

    def fixed(self) -> Prefix:
        """The same, with arrays that nobody can write."""
        layers = {name: kept.fixed() for name, kept in self.layers.items()}
        return Prefix(tuple(map(int, self.tokens)), MappingProxyType(layers))
