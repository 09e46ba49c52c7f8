"""Linear algebra of small matrices, `[..., rows, columns]`, by XLA's own operations: `tp.linalg.solve(a, b)`.

The last two dimensions are the matrices; those before them, and the points of steps, are many matrices at once. Results have JAX's
gradients, of every order. Numbers of 16 bits, and integers, are computed in float32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tempo_core.errors import ShapeError
from tempo_core.frontend.arguments import checked
from tempo_core.frontend.elsewhere import OF_LINALG, missing_from
from tempo_core.frontend.functions import library
from tempo_core.frontend.methods.operands import broadcast_shapes, promote
from tempo_core.frontend.tensor import Tensor, Value, as_tensor
from tempo_core.ir import ops
from tempo_core.ir.types import TensorType, is_float
from tempo_core.symbolic.expr import Expr, minimum

Sizes = tuple[Expr, ...]


def _decomposed(name: str, x: Tensor, *results: Sizes, work: int, **options: bool) -> list[Tensor]:
    """A function of matrices, whose results have these sizes after the leading dimensions, in `work` times rows times columns squared."""
    batch, columns, wide = x.type.shape[:-2], x.type.shape[-1], _computed(x.dtype)
    types = [TensorType(wide, (*batch, *sizes)) for sizes in results]
    cost = work * ops.elements((*x.type.shape, columns))
    made = library(f"numpy.linalg.{name}", (x.astype(wide),), *types, cost=cost, **options)
    return [each.astype(_resulting(x.dtype)) for each in made]


def _computed(dtype: str) -> str:
    return "float64" if dtype == "float64" else "float32"


def _resulting(dtype: str) -> str:
    return dtype if is_float(dtype) else "float32"


def _matrix(name: str, x: Tensor, is_square: bool = True) -> tuple[Expr, Expr]:
    """The numbers of rows and columns. Raises ShapeError for what is not a matrix, or not a square one."""
    if x.rank < 2 or (is_square and x.type.shape[-1] != x.type.shape[-2]):
        what = "square matrices" if is_square else "matrices"
        raise ShapeError(
            f"`{name}` takes {what} [..., {'n, n' if is_square else 'rows, columns'}], got {x!r}", hint="tp.eye(3) is one"
        )
    return x.type.shape[-2], x.type.shape[-1]


def _solved(name: str, path: str, a: Tensor, b: Tensor, **options: bool) -> Tensor:
    n, _ = _matrix(name, a)
    columns = b.expand_dims(1) if b.rank == 1 else b
    if b.rank == 0 or columns.type.shape[-2] != n:
        raise ShapeError(
            f"`{name}` of {a!r} takes [{n}] or [..., {n}, columns], got {b!r}",
            hint="several vectors are columns: b.swapaxes(-1, -2)",
        )
    dtype = promote(a.dtype, b.dtype)
    wide, batch = _computed(dtype), broadcast_shapes(a.type.shape[:-2], columns.type.shape[:-2])
    left = a.astype(wide).broadcast_to((*batch, n, n))
    right = columns.astype(wide).broadcast_to((*batch, *columns.type.shape[-2:]))
    cost = ops.elements((*left.type.shape, n + columns.type.shape[-1]))
    (x,) = library(path, (left, right), right.type, cost=cost, **options)
    return (x.squeeze(-1) if b.rank == 1 else x).astype(_resulting(dtype))


@checked
def solve(a: Tensor, b: Value) -> Tensor:
    """x with `a @ x = b`, for square matrices `a` [..., n, n] and `b` [n] or [..., n, columns]; leading dimensions broadcast.

    A singular matrix gives infinite numbers or NaN.
    """
    return _solved("solve", "numpy.linalg.solve", a, as_tensor(b, a))


@checked
def solve_triangular(a: Tensor, b: Value, lower: bool = False, trans: bool = False, unit_diagonal: bool = False) -> Tensor:
    """`solve` of the upper or lower triangle of `a`, or of its transpose with `trans`. With `unit_diagonal`, ones stand for the diagonal."""
    options = {"left_side": True, "lower": lower, "transpose_a": trans, "unit_diagonal": unit_diagonal}
    return _solved("solve_triangular", "lax.linalg.triangular_solve", a, as_tensor(b, a), **options)


@checked
def cholesky(a: Tensor) -> Tensor:
    """The lower triangle L with `L @ L.T = a`, for symmetric positive definite matrices [..., n, n]; NaN for others.

    As in JAX, the mean of `a` and its transpose counts.
    """
    return _decomposed("cholesky", a, _matrix("cholesky", a), work=1)[0]


@checked
def inv(a: Tensor) -> Tensor:
    """The inverse of square matrices [..., n, n]. For `inv(a) @ b`, `solve(a, b)` is faster and more precise."""
    return _decomposed("inv", a, _matrix("inv", a), work=2)[0]


@checked
def det(a: Tensor) -> Tensor:
    """The determinant of square matrices [..., n, n], `[...]`."""
    _matrix("det", a)
    return _decomposed("det", a, (), work=1)[0]


@checked
def slogdet(a: Tensor) -> tuple[Tensor, Tensor]:
    """The sign of the determinant of square matrices [..., n, n], and the logarithm of its absolute value, `[...]` each."""
    _matrix("slogdet", a)
    sign, logarithm = _decomposed("slogdet", a, (), (), work=1)
    return sign, logarithm


@checked
def qr(a: Tensor) -> tuple[Tensor, Tensor]:
    """Q with orthonormal columns and R, an upper triangle, with `Q @ R = a` [..., m, n]: `[..., m, k]` and `[..., k, n]` for k = min(m, n).

    It has a gradient where m >= n.
    """
    m, n = _matrix("qr", a, is_square=False)
    q, r = _decomposed("qr", a, (m, minimum(m, n)), (minimum(m, n), n), work=4)
    return q, r


@checked
def eigh(a: Tensor) -> tuple[Tensor, Tensor]:
    """The eigenvalues of symmetric matrices [..., n, n], ascending, `[..., n]`, and their eigenvectors, the columns of `[..., n, n]`.

    As in JAX, the mean of `a` and its transpose counts. The gradient by eigenvectors is not finite where eigenvalues are equal.
    """
    n, _ = _matrix("eigh", a)
    values, vectors = _decomposed("eigh", a, (n,), (n, n), work=9)
    return values, vectors


@checked
def svd(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """U, S and V with `U * S @ V = a` [..., m, n]: `[..., m, k]`, `[..., k]` and `[..., k, n]` for k = min(m, n).

    These are the reduced factors, NumPy's with `full_matrices=False`. S is in descending order.
    """
    m, n = _matrix("svd", a, is_square=False)
    k = minimum(m, n)
    u, s, v = _decomposed("svd", a, (m, k), (k,), (k, n), work=14, full_matrices=False)
    return u, s, v


NAMES = ("cholesky", "det", "eigh", "inv", "qr", "slogdet", "solve", "solve_triangular", "svd")

if not TYPE_CHECKING:  # for which it would be a name for everything
    __getattr__ = missing_from("tp.linalg", NAMES, OF_LINALG)
