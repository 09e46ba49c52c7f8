"""Domains (the points at which an operation runs) and temporal indices (which points of a source an edge reads)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tempo_core.symbolic.condition import TRUE, Bool
from tempo_core.symbolic.expr import Expr, FloorDivide, IntoExpr, Maximum, Minimum, Modulo, Symbol
from tempo_core.symbolic.lazy import lazy


@dataclass(frozen=True)
class Domain:
    """All points `0 <= step < bound` of the ordered `steps` at which `condition` holds."""

    steps: tuple[Symbol, ...] = ()
    condition: Bool = TRUE

    @lazy
    def _hash(self) -> int:
        return hash((self.steps, self.condition))

    def __hash__(self) -> int:
        return self._hash

    def __contains__(self, step: Symbol) -> bool:
        return step in self.steps

    def without(self, step: Symbol) -> Domain:
        return Domain(tuple(s for s in self.steps if s != step), self.condition)

    def __str__(self) -> str:
        steps = f"({', '.join(s.name for s in self.steps)})"
        return steps if self.condition is TRUE else f"{steps} where {self.condition}"


@dataclass(frozen=True)
class Point:
    """One timestep: `x[t - 1]`."""

    expr: Expr

    @property
    def steps(self) -> frozenset[Symbol]:
        return self.expr.steps

    @property
    def symbols(self) -> frozenset[Symbol]:
        return self.expr.symbols

    def substitute(self, values: Mapping[Symbol, IntoExpr]) -> Point:
        return Point(self.expr.substitute(values))

    def __str__(self) -> str:
        return str(self.expr)


@dataclass(frozen=True)
class Range:
    """The timesteps `start, start + stride, ... < stop`; the value read has a leading spatial dimension for them.

    `size`, unless None, is the static number of elements that the reader gets: elements past `stop` are zeros (`passes/shapes/pad.py`
    sets it).
    """

    start: Expr
    stop: Expr
    stride: int = 1
    size: Expr | None = None

    @property
    def true_length(self) -> Expr:
        """The number of timesteps that are really read (every range has `stop >= start`)."""
        return (self.stop - self.start + (self.stride - 1)) // self.stride

    @property
    def length(self) -> Expr:
        """The size of the spatial dimension that the reader sees."""
        return self.true_length if self.size is None else self.size

    @property
    def last(self) -> Expr:
        """The last timestep read."""
        return self.stop - 1 if self.stride == 1 else self.start + (self.true_length - 1) * self.stride

    @property
    def steps(self) -> frozenset[Symbol]:
        return self.start.steps | self.stop.steps

    @property
    def symbols(self) -> frozenset[Symbol]:
        """Those of the points that are read; `size` says nothing about them."""
        return self.start.symbols | self.stop.symbols

    def substitute(self, values: Mapping[Symbol, IntoExpr]) -> Range:
        size = None if self.size is None else self.size.substitute(values)
        return Range(self.start.substitute(values), self.stop.substitute(values), self.stride, size)

    def __str__(self) -> str:
        text = f"{self.start}:{self.stop}" + (f":{self.stride}" if self.stride != 1 else "")
        return text if self.size is None else f"{text} to {self.size}"


Index = Point | Range


def identity(domain: Domain) -> tuple[Point, ...]:
    """The index that reads a source at the reader's own point."""
    return tuple(Point(step.expr) for step in domain.steps)


def is_own_point(index: Index, step: Symbol) -> bool:
    """Whether an index of `step` is the reader's own point."""
    return isinstance(index, Point) and index.expr.single_atom == step


class Ring(NamedTuple):
    """The positions `(t + shift) % size + start` of the points of a step t."""

    shift: Expr
    size: Expr
    start: Expr


def ring_of(at: Expr, step: Symbol) -> Ring | None:
    """A position that goes around a ring as a step goes on.

    >>> t = Symbol("t", "T")
    >>> ring_of((t.expr + 1) % 5 + 2, t)
    Ring(shift=1, size=5, start=2)
    """
    moving = [atom for atom in at.atoms if isinstance(atom, Modulo) and step in Expr.of_atom(atom).symbols]
    if len(moving) != 1:
        return None
    (turn,) = moving
    ring = Ring(turn.numerator - step.expr, turn.denominator, at - Expr.of_atom(turn))
    return None if ring.shift.steps or ring.size.steps or step in ring.start.symbols else ring


def full_range(step: Symbol) -> Range:
    """`0:T` for step t."""
    return Range(Expr.of(0), step.bound_expr)


def is_full_range(index: Index, step: Symbol) -> bool:
    return (
        isinstance(index, Range) and index.stride == 1 and index.start.terms == () and index.stop.terms == step.bound_expr.terms
    )


def index_steps(indices: Iterable[Index]) -> frozenset[Symbol]:
    steps: frozenset[Symbol] = frozenset()
    for index in indices:
        steps |= index.steps
    return steps


def last_needed(index: Index) -> Expr:
    """The last source point that an index needs, as one affine expression for the scheduler. It is not clamped.

    `t:min(t + 5, T)` needs `t + 4`; `t:T` needs `T - 1`; the block `t // 4 * 4:t // 4 * 4 + 4` needs `t + 3` at most. Clamping
    would hide from the scheduler how far reads reach.
    """
    last = index.expr if isinstance(index, Point) else index.last
    for atom in last.atoms:
        if isinstance(atom, (Minimum, Maximum)):
            moving = [a for a in atom.args if a.steps] or list(atom.args)
            last = last + (moving[0] - Expr.of_atom(atom)) * last.coefficient(atom)
            break
    for atom in last.atoms:
        if isinstance(atom, (FloorDivide, Modulo)) and atom.denominator.is_constant and atom.denominator.constant > 0:
            divisor, factor = atom.denominator.constant, last.coefficient(atom)
            if isinstance(atom, Modulo):  # between 0 and divisor - 1
                last = last + Expr.of(max(factor, 0) * (divisor - 1)) - Expr.of_atom(atom) * factor
            elif factor % divisor == 0:  # divisor * (n // divisor) is between n - divisor + 1 and n
                bound = atom.numerator - (0 if factor > 0 else divisor - 1)
                last = last + bound * (factor // divisor) - Expr.of_atom(atom) * factor
    return last


def step_order(steps: Iterable[Symbol], order: tuple[Symbol, ...]) -> tuple[Symbol, ...]:
    """`steps`, sorted as the context declares them."""
    present = set(steps)
    return tuple(s for s in order if s in present)
