"""Values before the start: `x.before(0.0)[t - 1]` is 0 at t = 0."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

from tempo_core.errors import DTypeError, IndexingError, ShapeError, user_location
from tempo_core.frontend.arguments import checked
from tempo_core.frontend.functions.core import as_tensor, cast, promote
from tempo_core.frontend.functions.elementwise import where
from tempo_core.frontend.functions.shapes import arange, broadcast_to, reshape
from tempo_core.frontend.tensor import Tensor, Value, apply, computes, view
from tempo_core.ir import ops
from tempo_core.ir.graph import Edge, constant_number
from tempo_core.symbolic.condition import TRUE, Bool, at_least_zero, conjunction
from tempo_core.symbolic.domain import Domain, Index, Point, Range, identity, step_order
from tempo_core.symbolic.expr import Expr
from tempo_core.symbolic.proof import extreme, provably_nonnegative, unless_obvious


@computes
@checked
def before(x: Tensor, value: Value) -> Tensor:
    """The same tensor, which is `value` at all points before the start of a step: `x.before(0.0)[t - 1]` is 0 at t = 0."""
    earlier = as_tensor(value, x)
    if promote(earlier.dtype, x.dtype) != x.dtype:
        raise DTypeError(f"the value before the start of {x!r} is {earlier.dtype}", hint=f'convert it: value.astype("{x.dtype}")')
    for step in (s for s in earlier.domain.steps if s not in x.domain.steps):
        raise IndexingError(
            f"the value before the start of {x!r} varies with {step}, which is not a step of the tensor",
            hint=f"read it at one point of {step}: value[0]",
        )
    try:
        broadcast_to(earlier, x.type.shape)
    except ShapeError:
        raise ShapeError(
            f"the value before the start of {x!r} has the shape ({', '.join(map(str, earlier.type.shape))})",
            hint="it must broadcast to the shape of the tensor. A number always does: x.before(0.0)",
        ) from None
    result = copy.copy(x)
    result.earlier = cast(earlier, x.dtype)
    return result


@computes
def with_earlier(x: Tensor, indices: Sequence[Index], condition: Bool) -> Tensor:
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
    otherwise = broadcast_to(earlier, value.type.shape)
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
            is_missing = reshape(arange(span.length) < missing, (span.length, *(1,) * (value.rank - axis - 1)))
            value = where(is_missing, earlier, value)
    return value


def _from_start(span: Range) -> Range:
    """The part of a slice from the start of the step on."""
    start, stop = (extreme([end, Expr.of(0)], 1) for end in (span.start, span.stop))
    return replace(span, start=start, stop=stop)
