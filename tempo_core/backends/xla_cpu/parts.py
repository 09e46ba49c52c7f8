"""Slices and padding one after the other, as one part of an array with zeros around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Piece:
    """Along one axis, element p of the result is element `p - shift` of the array where `first <= p < end`, and zero elsewhere."""

    size: int
    shift: int
    first: int
    end: int

    def window(self, start: int, size: int) -> Piece:
        """The elements `start ... start + size` of the result, with zeros outside of it."""
        first = min(max(self.first - start, 0), size)
        return Piece(size, self.shift - start, first, max(min(self.end - start, size), first))


@dataclass(frozen=True)
class Part:
    """A part of an array, with zeros around it: one piece for each axis.

    >>> part = Part.of((4, 5)).window(0, 1, 3).window(0, -1, 5)
    >>> part.source, part.padding
    (((1, 4), (0, 5)), ((1, 1), (0, 0)))
    """

    pieces: tuple[Piece, ...]

    @staticmethod
    def of(shape: Sequence[int]) -> Part:
        """The whole of an array."""
        return Part(tuple(Piece(size, 0, 0, size) for size in shape))

    def window(self, axis: int, start: int, size: int) -> Part:
        piece = self.pieces[axis].window(start, size)
        return replace(self, pieces=(*self.pieces[:axis], piece, *self.pieces[axis + 1 :]))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(piece.size for piece in self.pieces)

    @property
    def source(self) -> tuple[tuple[int, int], ...]:
        """For each axis, the first element of the array that is in the part, and the end. An empty part begins and ends at 0."""
        return tuple((p.first - p.shift, p.end - p.shift) if p.end > p.first else (0, 0) for p in self.pieces)

    @property
    def padding(self) -> tuple[tuple[int, int], ...]:
        """For each axis, the numbers of zeros before and after the part."""
        return tuple((p.first, p.size - p.end) for p in self.pieces)
