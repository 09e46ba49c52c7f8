"""Shapes: broadcasting, reshaping, transposing, cutting, padding, concatenating; tensors of one value."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from tempo_core.errors import ArgumentError, ShapeError
from tempo_core.frontend.aliases import ArrayLike, Shape, Widths
from tempo_core.frontend.arguments import checked, is_int, shown
from tempo_core.frontend.base import BaseTensor
from tempo_core.frontend.functions.core import as_tensor, cast, constant, one_axis, promote, shape_of
from tempo_core.frontend.tensor import Tensor, Value, apply
from tempo_core.ir import ops
from tempo_core.symbolic.expr import Expr, IntoExpr


def broadcast_shapes(*shapes: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """NumPy's broadcast rule on symbolic sizes: equal, or one of them 1."""
    rank = max(map(len, shapes))
    result = []
    for position in range(rank):
        sizes = [s[position - rank + len(s)] for s in shapes if position - rank + len(s) >= 0]
        wide = [s for s in sizes if s != 1] or sizes[:1]
        if any(s != wide[0] for s in wide):
            text = " and ".join(f"({', '.join(map(str, s))})" for s in shapes)
            other = next(s for s in wide if s != wide[0])
            raise ShapeError(
                f"the shapes {text} do not broadcast: {wide[0]} and {other} differ", hint=_broadcasting(wide[0], other, shapes)
            )
        result.append(wide[0])
    return tuple(result)


def _broadcasting(size: Expr, other: Expr, shapes: Sequence[tuple[Expr, ...]]) -> str:
    """A hint for two sizes that do not broadcast."""
    if not (size.is_constant and other.is_constant):
        return "the two sizes must be equal at every step. Read slices of one length: x[0:T], y[0:T]"
    if any(size in s and other not in s and len(shapes[0]) != len(shapes[1]) for s in shapes[:2]) and len(shapes) == 2:
        return "sizes are compared from the right: they must be equal, or one of them 1. To add a size of 1: x.expand_dims(axis)"
    return "two sizes fit if they are equal, or if one of them is 1: x.expand_dims(axis) adds a size of 1"


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
        x = reshape(x, tuple(x.type.shape[k] for k in kept))
    return apply(ops.Broadcast(target, tuple(k + offset for k in kept)), x)


def aligned(*values: Value) -> list[Tensor]:
    """Operands as tensors of one dtype and one shape."""
    like = next((v for v in values if isinstance(v, BaseTensor)), None)
    tensors = [as_tensor(v, like) for v in values]
    dtype = tensors[0].dtype
    for other in tensors[1:]:
        dtype = promote(dtype, other.dtype)
    shape = broadcast_shapes(*(t.type.shape for t in tensors))
    return [broadcast_to(cast(t, dtype), shape) for t in tensors]


@checked
def full(shape: Shape, value: ArrayLike, dtype: str = "float32") -> Tensor:
    """A tensor of one value; sizes may be symbolic."""
    return broadcast_to(constant(value, dtype), shape_of(shape))


@checked
def zeros(shape: Shape, dtype: str = "float32") -> Tensor:
    """A tensor of zeros; sizes may be symbolic."""
    return full(shape, 0, dtype)


@checked
def ones(shape: Shape, dtype: str = "float32") -> Tensor:
    """A tensor of ones; sizes may be symbolic."""
    return full(shape, 1, dtype)


@checked
def full_like(x: Tensor, value: ArrayLike, dtype: str | None = None) -> Tensor:
    """A tensor of one value with the shape of `x`, and by default its dtype."""
    return full(x.type.shape, value, dtype or x.dtype)


@checked
def zeros_like(x: Tensor, dtype: str | None = None) -> Tensor:
    """Zeros with the shape of `x`, and by default its dtype."""
    return full_like(x, 0, dtype)


@checked
def ones_like(x: Tensor, dtype: str | None = None) -> Tensor:
    """Ones with the shape of `x`, and by default its dtype."""
    return full_like(x, 1, dtype)


@checked
def arange(start: IntoExpr, stop: IntoExpr | None = None, step: int = 1) -> Tensor:
    """`start, start + step, ...`, all below `stop`, as int32; with one argument, `0, ..., start - 1`. Ends may vary with a step."""
    if stop is None:
        return apply(ops.Iota(*shape_of(start)))
    first, last = Expr.of(start), Expr.of(stop)
    if step < 1:
        raise ArgumentError(
            f"the step of arange is {step}; it must be positive", hint="to reverse the order: tp.arange(n).flip(0)"
        )
    size = last - first if step == 1 else (last - first + (step - 1)) // step
    if size.is_constant and size.constant < 0:
        size = Expr.of(0)
    return apply(ops.Iota(size)) * step + first


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


def _symbolic_quotient(whole: Expr, rest: Expr, x: Tensor) -> Expr:
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


flatten, expand_dims, squeeze, flip = Tensor.flatten, Tensor.expand_dims, Tensor.squeeze, Tensor.flip
transpose, swapaxes, moveaxis = Tensor.transpose, Tensor.swapaxes, Tensor.moveaxis
repeat, tile = Tensor.repeat, Tensor.tile


@checked
def concatenate(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """The tensors one after the other along `axis`."""
    parts = [as_tensor(t) for t in tensors]
    if not parts:
        raise ArgumentError(
            "there is nothing to put together: the list of tensors is empty", hint="give at least one tensor: [x, y]"
        )
    dtype = parts[0].dtype
    for part in parts[1:]:
        dtype = promote(dtype, part.dtype)
    parts = [cast(p, dtype) for p in parts]
    return parts[0] if len(parts) == 1 else apply(ops.Concat(one_axis(parts[0], axis)), *parts)


@checked
def stack(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """The tensors along a new axis."""
    return concatenate([t.expand_dims(axis) for t in aligned(*tensors)] if tensors else [], axis)


@checked
def pad(x: Tensor, widths: Widths) -> Tensor:
    """Zeros around `x`, as NumPy's `pad` with its defaults.

    `widths` is the number of zeros at both ends of every axis, or a pair (before, after) for every axis, or one such pair for each
    axis: `tp.pad(x, ((0, 0), (2, 1)))` adds two zeros before and one after the elements of axis 1.
    """
    for axis, (low, high) in enumerate(_widths(x, widths)):
        for amount in (low, high):
            if amount.is_constant and amount.constant < 0:
                raise ShapeError(
                    f"{x!r} is padded by {amount} elements", hint="pad by 0 or more. To cut elements off: x.spatial[1:]"
                )
        if low != 0 or high != 0:
            x = pad_axis(x, axis, low, high)
    return x


def _widths(x: BaseTensor, widths: Widths) -> list[tuple[Expr, Expr]]:
    """The numbers of zeros before and after the elements of each axis. Raises ShapeError."""
    if not x.rank:
        raise ShapeError(f"{x!r} has no axis to pad", hint="tp.pad(x.reshape(1), (0, 2))")
    if not isinstance(widths, (tuple, list)):
        return [(Expr.of(widths), Expr.of(widths))] * x.rank  # type: ignore[arg-type]
    pairs = [each for each in widths if isinstance(each, (tuple, list))]
    if not pairs and len(widths) == 2:
        return [(Expr.of(widths[0]), Expr.of(widths[1]))] * x.rank  # type: ignore[arg-type]
    if len(pairs) != len(widths) or len(pairs) != x.rank or any(len(pair) != 2 for pair in pairs):
        example = ", ".join(["(1, 1)", *["(0, 0)"] * (x.rank - 1)]) + ("," if x.rank == 1 else "")
        raise ShapeError(
            f"{x!r} has {x.rank} {'axis' if x.rank == 1 else 'axes'}, and `pad` needs a pair (before, after) for each: got {shown(widths)}",
            hint=f"tp.pad(x, ({example})), or one pair for every axis: tp.pad(x, (1, 1))",
        )
    return [(Expr.of(low), Expr.of(high)) for low, high in pairs]


def pad_axis(x: Tensor, axis: int, low: IntoExpr, high: IntoExpr) -> Tensor:
    """Zeros before and after the elements of one axis."""
    return apply(ops.Pad(one_axis(x, axis), Expr.of(low), Expr.of(high)), x)


@checked
def split(x: Tensor, parts: int | Sequence[IntoExpr], axis: int = 0) -> list[Tensor]:
    """`x` cut along `axis`: into `parts` equal parts, or at the positions in `parts`, which may be expressions."""
    at = one_axis(x, axis)
    size = x.type.shape[at]
    if isinstance(parts, (int, np.integer)):
        count = int(parts)
        if count < 1:
            raise ShapeError(f"{x!r} cannot be split into {count} parts", hint="give a number of parts of at least 1: x.split(3)")
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
