"""Shapes: reshaping, transposing, broadcasting, cutting, repeating."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from tempo_core.errors import ShapeError
from tempo_core.frontend.aliases import Axes, Shape
from tempo_core.frontend.arguments import checked, is_int
from tempo_core.frontend.base import BaseTensor
from tempo_core.frontend.methods.nodes import Nodes, Value, apply, as_tensor
from tempo_core.frontend.methods.operands import axes_of, broadcast_shapes, one_axis, promote, shape_of
from tempo_core.ir import ops
from tempo_core.symbolic.expr import Expr, IntoExpr

Tensor = TypeVar("Tensor", bound="Shapes[Any]")


class Shapes(Nodes[Tensor]):
    """The methods of tensors that change the shape."""

    @checked
    def reshape(x: Tensor, *shape: Shape) -> Tensor:
        """The same elements in another shape; one size may be -1."""
        target = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        sizes = [Expr.of(-1) if is_int(s) and s == -1 else shape_of(s)[0] for s in target]
        unknown = [k for k, s in enumerate(sizes) if s.is_constant and s.constant == -1]
        if len(unknown) > 1:
            raise ShapeError(f"only one size can be -1 in a reshape of {x!r}")
        if unknown:
            rest = ops.product(tuple(s for k, s in enumerate(sizes) if k != unknown[0]))
            whole = ops.product(x.type.shape)
            quotient = whole // rest if rest != 0 else Expr.of(0)
            if quotient * rest != whole:
                quotient = _symbolic_quotient(whole, rest, x)
            sizes[unknown[0]] = quotient
        elif ops.product(tuple(sizes)) != ops.product(x.type.shape):
            symbolic = next((size for size in x.type.shape if not size.is_constant), None)
            raise ShapeError(
                f"cannot reshape {x!r} to ({', '.join(map(str, sizes))}): it has {ops.product(x.type.shape)} elements, not {ops.product(tuple(sizes))}",
                hint=f"write {symbolic} itself, not the number that it will have: x.reshape({symbolic}, -1)"
                if symbolic is not None
                else "the product of the sizes must stay the same. One size may be -1: x.reshape(-1)",
            )
        return x if tuple(sizes) == x.type.shape else apply(ops.Reshape(tuple(sizes)), x)

    @checked
    def flatten(x: Tensor) -> Tensor:
        """All elements, in row-major order, along one axis."""
        return x.reshape(ops.product(x.type.shape))

    @checked
    def transpose(x: Tensor, *axes: int | Sequence[int]) -> Tensor:
        """`x` with its axes in the order of `axes`; reversed by default."""
        first = axes[0] if len(axes) == 1 else None
        names: Any = tuple(first) if isinstance(first, (tuple, list)) else axes
        order = tuple(one_axis(x, a) for a in names) if names else tuple(reversed(range(x.rank)))
        if sorted(order) != list(range(x.rank)):
            raise ShapeError(
                f"cannot transpose {x!r} by {names}",
                hint=f"name each of its {x.rank} axes once: x.transpose({', '.join(map(str, reversed(range(x.rank))))})",
            )
        return x if order == tuple(range(x.rank)) else apply(ops.Permute(order), x)

    @checked
    def swapaxes(x: Tensor, first: int, second: int) -> Tensor:
        """`x` with two axes exchanged."""
        a, b = one_axis(x, first), one_axis(x, second)
        order = list(range(x.rank))
        order[a], order[b] = b, a
        return x.transpose(order)

    @checked
    def moveaxis(x: Tensor, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
        """`x` with some axes moved to other places; the others keep their order."""
        origins = [one_axis(x, a) for a in ((source,) if isinstance(source, int) else source)]
        places = [one_axis(x, a) for a in ((destination,) if isinstance(destination, int) else destination)]
        if len(origins) != len(places) or len(set(origins)) != len(origins) or len(set(places)) != len(places):
            raise ShapeError(
                f"cannot move the axes {source} of {x!r} to {destination}", hint="give each axis one new place: x.moveaxis(0, -1)"
            )
        order = [a for a in range(x.rank) if a not in origins]
        for place, origin in sorted(zip(places, origins, strict=True)):
            order.insert(place, origin)
        return x.transpose(*order) if x.rank else x

    @checked
    def expand_dims(x: Tensor, axis: int) -> Tensor:
        """`x` with a new dimension of size 1 at `axis`."""
        if not -x.rank - 1 <= axis <= x.rank:
            raise ShapeError(f"a new axis {axis} does not fit into {x!r}", hint=f"axes go from {-x.rank - 1} to {x.rank}")
        at = axis % (x.rank + 1)
        return x.reshape((*x.type.shape[:at], 1, *x.type.shape[at:]))

    @checked
    def squeeze(x: Tensor, axis: Axes = None) -> Tensor:
        """`x` without the axes in `axis`, whose sizes are 1; by default without all axes of size 1."""
        axes = [a for a in range(x.rank) if x.type.shape[a] == 1] if axis is None else axes_of(x, axis)
        for a in axes:
            if x.type.shape[a] != 1:
                raise ShapeError(
                    f"cannot squeeze axis {a} of {x!r}: its size is {x.type.shape[a]}",
                    hint="only an axis of size 1 can be removed. To read one position of another axis: x.index(axis, i)",
                )
        return x.reshape(tuple(s for a, s in enumerate(x.type.shape) if a not in axes))

    @checked
    def broadcast_to(x: Tensor, shape: Shape) -> Tensor:
        """`x` repeated to `shape` by NumPy's rule."""
        target = shape_of(shape)
        if x.type.shape == target:
            return x
        if broadcast_shapes(x.type.shape, target) != target:
            raise ShapeError(
                f"{x!r} does not broadcast to ({', '.join(map(str, target))})",
                hint="it repeats only sizes of 1, and adds sizes on the left. To repeat any other: x.repeat(3, axis)",
            )
        offset = len(target) - x.rank
        kept = [k for k in range(x.rank) if x.type.shape[k] == target[k + offset]]
        if len(kept) != x.rank:
            x = x.reshape(tuple(x.type.shape[k] for k in kept))
        return apply(ops.Broadcast(target, tuple(k + offset for k in kept)), x)

    @checked
    def flip(x: Tensor, axis: int | Sequence[int] = 0) -> Tensor:
        """The elements of an axis, or of several, in reverse order."""
        for each in axes_of(x, axis):
            x = apply(ops.Flip(each), x)
        return x

    @checked
    def split(x: Tensor, parts: int | Sequence[IntoExpr], axis: int = 0) -> list[Tensor]:
        """`x` cut along `axis`: into `parts` equal parts, or at the positions in `parts`, which may be expressions."""
        at = one_axis(x, axis)
        size = x.type.shape[at]
        if isinstance(parts, (int, np.integer)):
            count = int(parts)
            if count < 1:
                raise ShapeError(
                    f"{x!r} cannot be split into {count} parts", hint="give a number of parts of at least 1: x.split(3)"
                )
            length = size // count
            if length * count != size:
                raise ShapeError(
                    f"axis {axis} of {x!r} does not divide into {count} equal parts",
                    hint="give the positions of the cuts: x.split([2, 5])",
                )
            ends = [length * k for k in range(count + 1)]
        else:
            ends = [Expr.of(0), *map(Expr.of, parts), size]
        return [apply(ops.Slice(at, start, stop), x) for start, stop in itertools.pairwise(ends)]

    @checked
    def repeat(x: Tensor, times: IntoExpr, axis: int | None = None) -> Tensor:
        """Each element `times` times in a row along `axis` (of all elements, flattened, by default)."""
        if axis is None:
            return x.flatten().repeat(times, 0)
        at, count = one_axis(x, axis), Expr.of(times)
        shape = (*x.type.shape[: at + 1], count, *x.type.shape[at + 1 :])
        spread = apply(ops.Broadcast(shape, tuple(k for k in range(len(shape)) if k != at + 1)), x)
        return spread.reshape((*x.type.shape[:at], x.type.shape[at] * count, *x.type.shape[at + 1 :]))

    @checked
    def tile(x: Tensor, times: Shape) -> Tensor:
        """The whole of `x` repeated along its last axes, with one number in `times` for each. More numbers than axes add axes in front."""
        counts = shape_of(times)
        rank = max(len(counts), x.rank)
        counts = (*(Expr.of(1),) * (rank - len(counts)), *counts)
        sizes = (*(Expr.of(1),) * (rank - x.rank), *x.type.shape)
        shape = tuple(part for pair in zip(counts, sizes, strict=True) for part in pair)
        spread = apply(ops.Broadcast(shape, tuple(range(1, 2 * rank, 2))), x.reshape(sizes))
        return spread.reshape(tuple(c * s for c, s in zip(counts, sizes, strict=True)))

    @staticmethod
    def _promoted(*values: Value) -> list[Tensor]:
        """Operands as tensors of one dtype."""
        like = next((v for v in values if isinstance(v, BaseTensor)), None)
        tensors = [as_tensor(v, like) for v in values]
        dtype = functools.reduce(promote, [t.dtype for t in tensors])
        return [t.astype(dtype) for t in tensors]

    @staticmethod
    def _aligned(*values: Value) -> list[Tensor]:
        """Operands as tensors of one dtype and one shape."""
        tensors = promoted(*values)
        shape = broadcast_shapes(*(t.type.shape for t in tensors))
        return [t.broadcast_to(shape) for t in tensors]

    def _pad_axis(x: Tensor, axis: int, low: IntoExpr, high: IntoExpr) -> Tensor:
        """Zeros before and after the elements of one axis."""
        return apply(ops.Pad(one_axis(x, axis), Expr.of(low), Expr.of(high)), x)


aligned, promoted = Shapes[Any]._aligned, Shapes[Any]._promoted


def _symbolic_quotient(whole: Expr, rest: Expr, x: BaseTensor) -> Expr:
    """`whole / rest`, if each is a single product."""
    if len(whole.terms) == 1 and len(rest.terms) == 1:
        (numerator, a), (denominator, b) = whole.terms[0], rest.terms[0]
        powers = dict(numerator)
        for atom, power_of in denominator:
            powers[atom] = powers.get(atom, 0) - power_of
        if a % b == 0 and all(p >= 0 for p in powers.values()):
            result = Expr.of(a // b)
            for atom, power_of in powers.items():
                for _ in range(power_of):
                    result = result * Expr.of_atom(atom)
            return result
    raise ShapeError(
        f"cannot compute the size -1 in a reshape of {x!r}: {whole} elements divided by {rest}",
        hint="write a size in place of -1: x.reshape(3, T)",
    )
