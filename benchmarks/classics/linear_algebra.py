"""Linear algebra by hand: factorizations and solvers, column by column or iteration by iteration."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import tempo_core as tp
from benchmarks.classics.classic import Array, Classic, Traced


def positive(random: Any, B: int, N: int) -> Array:
    """Symmetric positive definite matrices."""
    factor = random.normal(size=(B, N, N))
    return factor @ factor.swapaxes(1, 2) / N + np.eye(N)


# -- Cholesky's factorization -------------------------------------------------------------------------------------------------


def cholesky(B: int, N: int) -> Traced:
    """Column j of the factor, from the columns before it."""
    ctx = tp.Context("b", "j")
    with ctx as ((b, n_b), (j, n_j)):
        matrix = tp.input("matrix", (N,), domain=(b, j))  # the column j
        column = tp.recurrence((N,), domain=(b, j), name="column")
        before = column[b, 0:j]
        rest = matrix - before.index(1, j) @ before
        pivot = rest.index(0, j)
        column[b, j] = tp.where(tp.arange(N) >= j, rest / tp.sqrt(pivot), 0.0)
        logdet = tp.log(pivot)[b, 0:n_j].sum(0)
        (gradient,) = tp.grad(logdet[0:n_b].sum(0), wrt=[matrix])
    return Traced(ctx, {n_b: B, n_j: N}, [column, logdet, gradient])


def cholesky_inputs(random: Any, B: int, N: int) -> dict[str, Array]:
    return {"matrix": positive(random, B, N)}


def cholesky_by_columns(matrix: Array) -> Any:
    """A loop over the columns of a factor in place; `matrix` [B, column, row]."""
    number = jnp.arange(matrix.shape[1])

    def total(matrix: Array) -> Any:
        def step(factor: Array, at: Any) -> Any:
            j, column = at
            row = lax.dynamic_index_in_dim(factor, j, 2, keepdims=False)  # entry j of each column
            rest = column - jnp.einsum("bk,bkn->bn", row, factor)
            pivot = lax.dynamic_index_in_dim(rest, j, 1, keepdims=False)
            now = jnp.where(number >= j, rest / jnp.sqrt(pivot)[:, None], 0.0)
            return lax.dynamic_update_index_in_dim(factor, now, j, 1), jnp.log(pivot)

        factor, logs = lax.scan(step, jnp.zeros_like(matrix), (number, matrix.swapaxes(0, 1)))
        logdet = logs.sum(0)
        return logdet.sum(), (factor, logdet)

    (_, results), gradient = jax.value_and_grad(total, has_aux=True)(matrix)
    return *results, gradient


def cholesky_by_outer_products(matrix: Array) -> Any:
    """The rest of the matrix is updated by each column's outer product: no sum over the columns before."""
    number = jnp.arange(matrix.shape[1])

    def total(matrix: Array) -> Any:
        def step(rest: Array, j: Array) -> Any:
            column = lax.dynamic_index_in_dim(rest, j, 1, keepdims=False)
            pivot = lax.dynamic_index_in_dim(column, j, 1, keepdims=False)
            now = jnp.where(number >= j, column / jnp.sqrt(pivot)[:, None], 0.0)
            return rest - now[:, :, None] * now[:, None, :], (now, jnp.log(pivot))

        _, (factor, logs) = lax.scan(step, matrix, number)
        logdet = logs.sum(0)
        return logdet.sum(), (factor.swapaxes(0, 1), logdet)

    (_, results), gradient = jax.value_and_grad(total, has_aux=True)(matrix)
    return *results, gradient


# -- a triangular system --------------------------------------------------------------------------------------------------------


def triangular(B: int, N: int) -> Traced:
    """x[i] = (y[i] - sum over k < i of L[i, k] x[k]) / L[i, i]"""
    ctx = tp.Context("b", "i")
    with ctx as ((b, n_b), (i, n_i)):
        row, y = tp.input("row", (N,), domain=(b, i)), tp.input("y", domain=(b, i))
        x = tp.recurrence((), domain=(b, i), name="x")
        x[b, i] = (y - (row.spatial[0:i] * x[b, 0:i]).sum(0)) / row.index(0, i)
        gradients = tp.grad((x**2)[0:n_b, 0:n_i].sum(), wrt=[row, y])
    return Traced(ctx, {n_b: B, n_i: N}, [x, *gradients])


def triangular_inputs(random: Any, B: int, N: int) -> dict[str, Array]:
    return {"row": np.tril(random.normal(size=(B, N, N)) / N) + np.eye(N), "y": random.normal(size=(B, N))}


def triangular_by_hand(row: Array, y: Array) -> Any:
    N = y.shape[1]

    def total(row: Array, y: Array) -> Any:
        def step(x: Array, at: Any) -> Any:
            i, row, y = at
            before = jnp.where(jnp.arange(N) < i, row, 0.0)
            now = (y - (before * x).sum(1)) / lax.dynamic_index_in_dim(row, i, 1, keepdims=False)
            return lax.dynamic_update_index_in_dim(x, now, i, 1), None

        x, _ = lax.scan(step, jnp.zeros_like(y), (jnp.arange(N), row.swapaxes(0, 1), y.T))
        return (x**2).sum(), x

    (_, x), gradients = jax.value_and_grad(total, (0, 1), has_aux=True)(row, y)
    return x, *gradients


def triangular_by_adjoint(row: Array, y: Array) -> Any:
    """The gradient is another triangular system, solved from the last row: two loops, and one outer product."""
    number = jnp.arange(y.shape[1])
    lower = jnp.where(number[:, None] > number, row, 0.0)
    diagonal = jnp.diagonal(row, axis1=1, axis2=2)

    def solve(matrix: Array, y: Array, order: Array) -> Array:
        def step(x: Array, i: Array) -> Any:
            line = lax.dynamic_index_in_dim(matrix, i, 1, keepdims=False)
            known, pivot = (lax.dynamic_index_in_dim(v, i, 1, keepdims=False) for v in (y, diagonal))
            return lax.dynamic_update_index_in_dim(x, (known - (line * x).sum(1)) / pivot, i, 1), None

        return lax.scan(step, jnp.zeros_like(y), order)[0]

    x = solve(lower, y, number)
    by_y = solve(lower.swapaxes(1, 2), 2 * x, number[::-1])
    return x, jnp.where(number[:, None] >= number, -by_y[:, :, None] * x[:, None, :], 0.0), by_y


# -- Gram and Schmidt -------------------------------------------------------------------------------------------------------------


def gram_schmidt(N: int, M: int) -> Traced:
    """M orthonormal vectors of width N."""
    ctx = tp.Context("j")
    with ctx as ((j, n_j),):
        vector = tp.input("vector", (N,), domain=(j,))
        q = tp.recurrence((N,), domain=(j,), name="q")
        before = q[0:j]
        rest = vector - (before @ vector) @ before
        q[j] = rest / tp.sqrt((rest**2).sum(0))
        weight = tp.input("weight", (N,), domain=(j,))
        (gradient,) = tp.grad((q * weight)[0:n_j].sum(), wrt=[vector])
    return Traced(ctx, {n_j: M}, [q, gradient])


def vectors(random: Any, N: int, M: int) -> dict[str, Array]:
    return {"vector": random.normal(size=(M, N)), "weight": random.normal(size=(M, N))}


def gram_schmidt_by_hand(vector: Array, weight: Array) -> Any:
    def total(vector: Array) -> Any:
        def step(q: Array, at: Any) -> Any:
            j, vector = at
            rest = vector - (q @ vector) @ q
            return lax.dynamic_update_index_in_dim(q, rest / jnp.sqrt((rest**2).sum()), j, 0), None

        q, _ = lax.scan(step, jnp.zeros_like(vector), (jnp.arange(len(vector)), vector))
        return (q * weight).sum(), q

    (_, q), gradient = jax.value_and_grad(total, has_aux=True)(vector)
    return q, gradient


# -- conjugate gradients ------------------------------------------------------------------------------------------------------------


def conjugate_gradients(B: int, N: int, K: int) -> Traced:
    ctx = tp.Context("b", "k")
    with ctx as ((b, n_b), (k, n_k)):
        matrix, y = tp.input("matrix", (N, N), domain=(b,)), tp.input("y", (N,), domain=(b,))
        x = tp.recurrence((N,), domain=(b, k), name="x")
        rest = tp.recurrence((N,), domain=(b, k), name="rest")
        direction = tp.recurrence((N,), domain=(b, k), name="direction")
        image = matrix @ direction
        square = (rest**2).sum(0)
        length = square / (direction * image).sum(0)
        following = rest - length * image
        x[b, 0], rest[b, 0], direction[b, 0] = tp.zeros((N,)), y, y
        x[b, k + 1] = x + length * direction
        rest[b, k + 1] = following
        direction[b, k + 1] = following + (following**2).sum(0) / square * direction
        solution = x[b, n_k - 1]
        (gradient,) = tp.grad((solution**2)[0:n_b].sum(), wrt=[y])
    return Traced(ctx, {n_b: B, n_k: K}, [solution, gradient])


def systems(random: Any, B: int, N: int, K: int) -> dict[str, Array]:
    return {"matrix": positive(random, B, N), "y": random.normal(size=(B, N))}


def conjugate_gradients_by_hand(matrix: Array, y: Array, K: int) -> Any:
    def total(y: Array) -> Any:
        def step(carry: Any, _: None) -> Any:
            x, rest, direction = carry
            image = jnp.einsum("bmn,bn->bm", matrix, direction)
            square = (rest**2).sum(1, keepdims=True)
            length = square / (direction * image).sum(1, keepdims=True)
            following = rest - length * image
            turned = following + (following**2).sum(1, keepdims=True) / square * direction
            return (x + length * direction, following, turned), None

        (x, _, _), _ = lax.scan(step, (jnp.zeros_like(y), y, y), None, length=K - 1)
        return (x**2).sum(), x

    (_, x), gradient = jax.value_and_grad(total, has_aux=True)(y)
    return x, gradient


# -- a tridiagonal system: Thomas's algorithm -----------------------------------------------------------------------------------------


def tridiagonal(B: int, N: int) -> Traced:
    """lower[i] x[i - 1] + middle[i] x[i] + upper[i] x[i + 1] = y[i]"""
    ctx = tp.Context("b", "i")
    with ctx as ((b, n_b), (i, n_i)):
        lower, middle, upper, y = (tp.input(name, domain=(b, i)) for name in ("lower", "middle", "upper", "y"))
        ratio = tp.recurrence((), domain=(b, i), name="ratio")
        rest = tp.recurrence((), domain=(b, i), name="rest")
        pivot = middle - lower * ratio[b, i - 1]
        ratio[b, 0] = upper[b, 0] / middle[b, 0]
        ratio[b, i] = upper / pivot
        rest[b, 0] = y[b, 0] / middle[b, 0]
        rest[b, i] = (y - lower * rest[b, i - 1]) / pivot
        x = tp.recurrence((), domain=(b, i), name="x")
        x[b, n_i - 1] = rest[b, n_i - 1]
        x[b, i] = rest - ratio * x[b, i + 1]
        gradients = tp.grad((x**2)[0:n_b, 0:n_i].sum(), wrt=[middle, y])
    return Traced(ctx, {n_b: B, n_i: N}, [x, *gradients])


def bands(random: Any, B: int, N: int) -> dict[str, Array]:
    values = {name: random.normal(size=(B, N)) for name in ("lower", "upper", "y")}
    return values | {"middle": random.uniform(4.0, 5.0, (B, N)) + np.abs(values["lower"]) + np.abs(values["upper"])}


def tridiagonal_by_hand(lower: Array, middle: Array, upper: Array, y: Array) -> Any:
    lower, upper = lower.T, upper.T

    def total(middle: Array, y: Array) -> Any:
        def forwards(carry: Any, at: Any) -> Any:
            ratio, rest = carry
            lower, middle, upper, y = at
            pivot = middle - lower * ratio
            now = upper / pivot, (y - lower * rest) / pivot
            return now, now

        def backwards(x: Array, at: Any) -> Any:
            ratio, rest = at
            x = rest - ratio * x
            return x, x

        nothing = jnp.zeros(y.shape[:1])
        _, bands = lax.scan(forwards, (nothing, nothing), (lower, middle.T, upper, y.T))
        _, x = lax.scan(backwards, nothing, bands, reverse=True)
        return (x**2).sum(), x.T

    (_, x), gradients = jax.value_and_grad(total, (0, 1), has_aux=True)(middle, y)
    return x, *gradients


BATCH = {
    "tiny": {"B": 2, "N": 4},
    "small": {"B": 1, "N": 8},
    "full": {"B": 4, "N": 128},
}
CLASSICS = [
    Classic(
        "Cholesky",
        cholesky,
        {"columns": cholesky_by_columns, "outer products": cholesky_by_outer_products},
        cholesky_inputs,
        BATCH,
    ),
    Classic(
        "triangular solve",
        triangular,
        {"scan": triangular_by_hand, "adjoint": triangular_by_adjoint},
        triangular_inputs,
        BATCH | {"full": {"B": 16, "N": 512}},
    ),
    Classic(
        "Gram-Schmidt",
        gram_schmidt,
        {"scan": gram_schmidt_by_hand},
        vectors,
        {"tiny": {"N": 5, "M": 3}, "small": {"N": 8, "M": 4}, "full": {"N": 400, "M": 160}},
    ),
    Classic(
        "conjugate gradients",
        conjugate_gradients,
        {"scan": conjugate_gradients_by_hand},
        systems,
        {
            "tiny": {"B": 2, "N": 5, "K": 3},
            "small": {"B": 1, "N": 8, "K": 5},
            "full": {"B": 32, "N": 512, "K": 12},  # many more would divide nothing by nothing
        },
        tolerance=1e-3,
        reason="each iteration divides by what is left of the error",
    ),
    Classic(
        "tridiagonal solve",
        tridiagonal,
        {"scan": tridiagonal_by_hand},
        bands,
        {
            "tiny": {"B": 2, "N": 5},
            "small": {"B": 1, "N": 16},
            "full": {"B": 256, "N": 2000},
            "long": {"B": 1, "N": 100_000},
        },
    ),
]
