"""Tensors at other points of their steps, also before the start: `x.before(0.0)[t - 1]` is 0 at t = 0."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from tempo_core.errors import DTypeError, IndexingError, ShapeError, user_location
from tempo_core.frontend.aliases import Key
from tempo_core.frontend.arguments import checked
from tempo_core.frontend.methods.elementwise import where
from tempo_core.frontend.methods.indexing import Indexing
from tempo_core.frontend.methods.nodes import Value, apply, as_tensor, view
from tempo_core.frontend.methods.operands import promote
from tempo_core.ir import ops
from tempo_core.ir.graph import Edge, compose, constant_number
from tempo_core.symbolic.condition import TRUE, Bool, at_least_zero, conjunction
from tempo_core.symbolic.domain import Domain, Index, Point, Range, identity, is_own_point, step_order
from tempo_core.symbolic.expr import Expr, Symbol
from tempo_core.symbolic.proof import extreme, provably_nonnegative, unless_obvious

Tensor = TypeVar("Tensor", bound="Reads[Any]")


class Reads(Indexing[Tensor]):
    """Temporal indexing: `x[t - 1]`, `x[0:t]`, `x[t % 5 == 0]`."""

    read_at: str | None = None  # the user's line, of a read of another tensor
    earlier: Tensor | None = None  # the value at points before the start of a step, which reads of this tensor may reach

    def __getitem__(self, key: Key) -> Tensor:
        """The tensor at other points: `x[t - 1]`, `x[0]`, `x[i, t:T]`, `x[t % 5 == 0]`."""
        indices, condition = self._indices(key)
        read = self._read(indices, condition) if self.earlier is None else self._with_earlier(indices, condition)
        read.read_at = user_location()
        return read

    def _read(self, indices: Sequence[Index], condition: Bool = TRUE) -> Tensor:
        """The tensor at other points, all of which it has."""
        moved, keys = self._moved_around(indices), dict(zip(self.domain.steps, map(as_key, indices), strict=True))
        if moved and any(moved & self.context.around(i.symbols) for s, i in zip(keys, indices, strict=True) if s not in moved):
            inside = self[tuple(s.expr if s in moved else key for s, key in keys.items())]  # of `x[0, K - 1]`: x[t, K - 1]
            return inside[tuple(key if s in moved else s.expr for s, key in keys.items() if s in inside.domain.steps)]
        is_fixed = moved.intersection(self.context.around(self.edge.symbols))
        edge = None if is_fixed else compose(self.edge, self.domain.steps, indices)
        base = self
        if edge is None:  # the edge cannot express the index: read a copy of this tensor instead
            base = apply(ops.Identity(), self)
            edge = replace(base.edge, index=tuple(indices))
        ragged = self._ragged_step(indices)
        if ragged is not None:
            raise IndexingError(
                f"cannot slice {self!r} over {ragged}: its shape varies with {ragged}, and a slice stacks equal shapes",
                hint="reduce the dimension that varies, then slice: x.sum(0)[0:T]",
            )
        points = {s: i.expr for s, i in zip(self.domain.steps, indices, strict=True) if isinstance(i, Point)}
        carried = self.user_condition
        if any(s not in points for s in carried.steps):
            raise IndexingError(
                f"cannot slice {self!r}: it exists only where {carried}, so the slice would have holes",
                hint="slice first, then index with the condition: x[0:T].sum(0)[t % 2 == 0]",
            )
        carried = carried.substitute(points)
        return view(self.context, edge, conjunction(condition, carried))

    def _moved_around(self, indices: Sequence[Index]) -> frozenset[Symbol]:
        """The steps that some bounds vary with, of those that an index reads at another point."""
        around = self.context.around(self.context.outer)
        return frozenset(s for s, i in zip(self.domain.steps, indices, strict=True) if s in around and not is_own_point(i, s))

    @checked
    def before(x: Tensor, value: Value) -> Tensor:
        """The same tensor, which is `value` at all points before the start of a step: `x.before(0.0)[t - 1]` is 0 at t = 0.

        A slice such as `x.before(0.0)[t - 3 : t]` then always has three elements. `value` broadcasts to the shape of x, and may vary
        with steps of x that are read at points of theirs.
        """
        earlier = as_tensor(value, x)
        if promote(earlier.dtype, x.dtype) != x.dtype:
            raise DTypeError(
                f"the value before the start of {x!r} is {earlier.dtype}", hint=f'convert it: value.astype("{x.dtype}")'
            )
        for step in (s for s in earlier.domain.steps if s not in x.domain.steps):
            raise IndexingError(
                f"the value before the start of {x!r} varies with {step}, which is not a step of the tensor",
                hint=f"read it at one point of {step}: value[0]",
            )
        try:
            earlier.broadcast_to(x.type.shape)
        except ShapeError:
            raise ShapeError(
                f"the value before the start of {x!r} has the shape ({', '.join(map(str, earlier.type.shape))})",
                hint="it must broadcast to the shape of the tensor. A number always does: x.before(0.0)",
            ) from None
        result = copy.copy(x)
        result.earlier = earlier.astype(x.dtype)
        return result

    def _with_earlier(x: Tensor, indices: Sequence[Index], condition: Bool) -> Tensor:
        """`x` at other points, of which those before the start of a step have its value there: a branch, or elements of slices."""
        assert x.earlier is not None
        late = unless_obvious(conjunction(*(at_least_zero(i.expr) for i in indices if isinstance(i, Point))))
        if late is TRUE and all(provably_nonnegative(i.start) for i in indices if isinstance(i, Range)):
            return x._read(indices, condition)
        at = dict(zip(x.domain.steps, indices, strict=True))
        for step in (s for s in x.earlier.domain.steps if isinstance(at[s], Range)):
            raise IndexingError(
                f"cannot slice {x!r} over {step}: its value before the start varies with {step}",
                hint=f"read {step} at its own point, then slice the result",
            )
        earlier = x.earlier._read([at[s] for s in x.earlier.domain.steps])
        value = _filled(x, indices, condition, earlier)
        if late is TRUE:
            return value
        graph, parts = x.context.graph, value.domain.condition.parts
        holds = conjunction(condition, *(part for part in parts if part not in late.parts))
        otherwise = earlier.broadcast_to(value.type.shape)
        steps = step_order({*value.domain.steps, *otherwise.domain.steps}, x.context.steps)
        node = graph.add(ops.Merge(value.type), domain=Domain(steps, holds), where=user_location())
        graph.put(replace(node, inputs=(replace(value.edge, condition=late), otherwise.edge)))
        return view(x.context, Edge(node.id, identity(node.domain)), value.user_condition)


def _filled(x: Tensor, indices: Sequence[Index], condition: Bool, earlier: Tensor) -> Tensor:
    """`x` at other points, where elements of slices before the start of a step are `earlier`."""
    value = x._read([_from_start(i) if isinstance(i, Range) else i for i in indices], condition)
    for axis, span in enumerate(i for i in indices if isinstance(i, Range)):
        if span.stride != 1 and not provably_nonnegative(span.start):
            raise IndexingError(
                f"a slice of {x!r} with the stride {span.stride} begins before the start",
                hint="slice all points, and then the result: x[t - 4 : t].spatial[::2]",
            )
        missing = span.length - value.type.shape[axis]
        if missing == 0:
            continue
        value = apply(ops.Pad(axis, missing, Expr.of(0)), value)
        if constant_number(x.context.graph, earlier.edge.source) != 0:
            is_missing = (apply(ops.Iota(span.length)) < missing).reshape((span.length, *(1,) * (value.rank - axis - 1)))
            value = where(is_missing, earlier, value)
    return value


def _from_start(span: Range) -> Range:
    """The part of a slice from the start of the step on."""
    start, stop = (extreme([end, Expr.of(0)], 1) for end in (span.start, span.stop))
    return replace(span, start=start, stop=stop)


def as_key(index: Index) -> Expr | slice[Expr, Expr, int]:
    """An index as a user writes it."""
    return index.expr if isinstance(index, Point) else slice(index.start, index.stop, index.stride)
