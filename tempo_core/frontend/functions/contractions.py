"""Products of matrices and convolution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, Union

from tempo_core.errors import ShapeError
from tempo_core.frontend.aliases import AxisPairs
from tempo_core.frontend.arguments import checked
from tempo_core.frontend.methods.operands import distinct_axes
from tempo_core.frontend.tensor import Tensor, Value, apply, as_tensor, factors
from tempo_core.ir import ops
from tempo_core.symbolic.expr import Expr, IntoExpr
from tempo_core.symbolic.expr import maximum as greatest

Padding: TypeAlias = Union[str, IntoExpr, Sequence[Union[IntoExpr, tuple[IntoExpr, IntoExpr]]]]
"""Zeros around spatial dimensions: "SAME", "VALID", or numbers of zeros."""


@checked
def tensordot(x: Value, y: Value, axes: AxisPairs = 2) -> Tensor:
    """The product summed over `axes`: a number n (x's last n with y's first n), or a pair (x's axes, y's axes)."""
    a, b = factors(x, y)
    if isinstance(axes, int):
        if not 0 <= axes <= min(a.rank, b.rank):
            raise ShapeError(f"{a!r} and {b!r} cannot be summed over {axes} axes", hint="tp.tensordot(x, y, 1)")
        left, right = tuple(range(a.rank - axes, a.rank)), tuple(range(axes))
    else:
        left, right = (tuple((each,) if isinstance(each, int) else each) for each in axes)
    if len(left) != len(right):
        raise ShapeError(
            f"the product cannot be summed over {len(left)} axes of the first tensor and {len(right)} of the second",
            hint="pair each axis of the first with one of the second: tp.tensordot(x, y, ((0, 1), (1, 2)))",
        )
    return apply(ops.Dot(distinct_axes(a, left), distinct_axes(b, right)), a, b)


@checked
def outer(x: Value, y: Value) -> Tensor:
    """Every element of `x` times every element of `y`: the dimensions of both, one after the other."""
    return tensordot(x, y, 0)


@checked
def inner(x: Value, y: Value) -> Tensor:
    """The product summed over the last axis of both."""
    return tensordot(x, y, (-1, -1))


@checked
def einsum(subscripts: str, *operands: Value) -> Tensor:
    """Einstein's summation: `einsum("bik,bkj->bij", x, y)` multiplies, and sums over letters that the result lacks.

    There may be any number of operands, which are combined from left to right; `...` stands for leading dimensions that broadcast.
    A letter may occur once in an operand (no diagonals). Without `->`, the result has the letters that occur once, in the order of the alphabet.
    """
    terms, result = _subscripts(subscripts, [as_tensor(x) for x in operands])
    parts = [(as_tensor(x), term) for x, term in zip(operands, terms, strict=True)]
    while len(parts) > 1:
        (a, left), (b, right) = parts[0], parts[1]
        later = {letter for _, term in parts[2:] for letter in term} | set(result)
        a, left = _without(a, left, later | set(right))
        b, right = _without(b, right, later | set(left))
        a, b = factors(a, b)
        shared = [letter for letter in left if letter in right]
        ones = [k for k in shared if a.type.shape[left.index(k)] != b.type.shape[right.index(k)]]
        if ones:  # a size of 1 broadcasts
            a, left, b, right = *_stretched(a, left, b, right, ones), *_stretched(b, right, a, left, ones)
            shared = [letter for letter in left if letter in right]
        batch, over = [k for k in shared if k in later], [k for k in shared if k not in later]
        axes = [tuple(term.index(k) for k in group) for group in (over, batch) for term in (left, right)]
        product = apply(ops.Dot(*axes), a, b)
        free = [k for k in left if k not in shared] + [k for k in right if k not in shared]
        parts[:2] = [(product, "".join(batch + free))]
    x, term = _without(*parts[0], set(result))
    return x.transpose(*(term.index(letter) for letter in result)) if result else x


def _stretched(x: Tensor, term: str, other: Tensor, other_term: str, letters: Sequence[str]) -> tuple[Tensor, str]:
    """`x` without those of `letters` along which its size is 1 and the other's is not."""
    gone = [k for k in letters if x.type.shape[term.index(k)] == 1 and other.type.shape[other_term.index(k)] != 1]
    return x.squeeze([term.index(k) for k in gone]), "".join(k for k in term if k not in gone)


def _without(x: Tensor, term: str, letters: set[str]) -> tuple[Tensor, str]:
    """`x` summed over the letters of its term that are not in `letters`."""
    axes = [k for k, letter in enumerate(term) if letter not in letters]
    return (x.sum(axes) if axes else x), "".join(letter for letter in term if letter in letters)


def _subscripts(text: str, operands: Sequence[Tensor]) -> tuple[list[str], str]:
    """A term of letters for each operand, and one for the result; the dimensions of `...` are digits."""
    left, arrow, right = text.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        raise ShapeError(f'einsum "{text}" is for {len(terms)} operands, got {len(operands)}')
    dots = [x.rank - len(term.replace("...", "")) if "..." in term else 0 for x, term in zip(operands, terms, strict=True)]
    deepest = max(dots, default=0)
    signs = "".join(map(str, range(deepest)))  # digits: letters are the user's
    expanded_terms = [term.replace("...", signs[deepest - count :]) for term, count in zip(terms, dots, strict=True)]
    for x, term, user_term in zip(operands, expanded_terms, terms, strict=True):
        if len(term) != x.rank or min(dots) < 0:
            raise ShapeError(f'the term "{user_term}" of einsum "{text}" does not fit {x!r}, which has {x.rank} dimensions')
        if len(set(term)) != len(term):
            raise ShapeError(
                f'the term "{user_term}" of einsum "{text}" has a letter twice', hint="take the diagonal first: tp.diagonal(x)"
            )
    everything = "".join(expanded_terms)
    result = (
        right.replace("...", signs)
        if arrow
        else signs + "".join(sorted(k for k in set(everything) if everything.count(k) == 1 and k.isalpha()))
    )
    if len(set(result)) != len(result) or not set(result) <= set(everything):
        raise ShapeError(f'the result "{right}" of einsum "{text}" has a letter twice, or one that no operand has')
    sizes: dict[str, Expr] = {}
    for x, term in zip(operands, expanded_terms, strict=True):
        for letter, size in zip(term, x.type.shape, strict=True):
            previous = sizes.setdefault(letter, size)
            if previous != size and not (letter.isdigit() and 1 in (previous, size)):
                raise ShapeError(f'the letter {letter} of einsum "{text}" has the sizes {previous} and {size}')
            sizes[letter] = size if previous == 1 else previous
    return expanded_terms, result


@checked
def conv(
    x: Value,
    w: Value,
    stride: int | Sequence[int] = 1,
    padding: Padding = "SAME",
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution, as in deep learning, over as many spatial dimensions as `w` has: 1, 2 or more. Channels come last.

    `x` is `[*batch, *spatial, channels]` with any number of leading dimensions, `w` is `[*kernel, channels // groups, features]`;
    gives `[*batch, *out, features]`. These are JAX's NHWC and HWIO layouts.

    `padding`: "SAME" (one output for every `stride` inputs; of an odd number of zeros, the extra one comes after), "VALID" (no
    zeros), or numbers of zeros: one number for all sides, or for each spatial dimension a number or a pair (before, after). Numbers of
    zeros may be expressions of steps.
    `stride` and `dilation` are ints, or one int for each dimension. Spatial sizes may vary with a step.
    """
    a, b = factors(x, w)
    n = b.rank - 2
    if n < 1 or a.rank < n + 1:
        raise ShapeError(
            f"cannot convolve {a!r} with the kernel {b!r}",
            hint="x needs the shape [*batch, *spatial, channels], and w the shape [*kernel, channels // groups, features]",
        )
    strides, dilations = _per_dimension(stride, n, "stride"), _per_dimension(dilation, n, "dilation")
    sizes = a.type.shape[-n - 1 : -1]
    pairs = _padding(padding, sizes, b.type.shape[:n], strides, dilations)
    for k, (low, high) in enumerate(pairs):
        if low.steps or high.steps:  # the op's own padding is the same at every step
            a = a._pad_axis(a.rank - n - 1 + k, low, high)
            pairs[k] = (Expr.of(0), Expr.of(0))
    lows, highs = tuple(low for low, _ in pairs), tuple(high for _, high in pairs)
    return apply(ops.Conv(strides, lows, highs, dilations, (1,) * n, Expr.of(groups)), a, b)


def _per_dimension(value: int | Sequence[int], n: int, what: str) -> tuple[int, ...]:
    numbers = (value,) * n if isinstance(value, int) else tuple(value)
    if len(numbers) != n or any(v < 1 for v in numbers):
        raise ShapeError(
            f"a convolution over {n} dimensions cannot have the {what} {value}",
            hint=f"give a positive int, or {n} of them: {what}={(1,) * n}",
        )
    return numbers


def _padding(
    padding: Padding, sizes: Sequence[Expr], kernel: Sequence[Expr], strides: Sequence[int], dilations: Sequence[int]
) -> list[tuple[Expr, Expr]]:
    """Zeros before and after each spatial dimension."""
    if isinstance(padding, str):
        if padding.upper() not in ("SAME", "VALID"):
            raise ShapeError(
                f"unknown padding {padding!r}", hint='write padding="SAME", padding="VALID", or pairs: padding=[(1, 1), (0, 2)]'
            )
        margins = []
        for size, taps, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
            outputs = (size + stride - 1) // stride
            total = greatest((outputs - 1) * stride + (taps - 1) * dilation + 1 - size, 0)
            margins.append((total // 2, total - total // 2) if padding.upper() == "SAME" else (Expr.of(0), Expr.of(0)))
        return margins
    amounts = [padding] * len(sizes) if isinstance(padding, (int, Expr)) else padding
    pairs: list[Any] = [(p, p) if isinstance(p, (int, Expr)) else tuple(p) for p in amounts]
    if len(pairs) != len(sizes) or any(len(pair) != 2 for pair in pairs):
        raise ShapeError(
            f"padding {padding} for a convolution over {len(sizes)} dimensions",
            hint="give one pair (before, after) for each dimension: padding=[(1, 1), (0, 2)]",
        )
    return [(Expr.of(low), Expr.of(high)) for low, high in pairs]
