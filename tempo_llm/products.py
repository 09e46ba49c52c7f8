"""Products with narrow weights, in forms that XLA compiles without writing the widened weights out.

XLA on a CPU computes a vector times a matrix in one loop if the matrix is an elementwise function of arrays that have its rows in order, the
vector has at most 16 KB, and the result is one vector. So matrices are [out, in] here, and a product of one row is a few such loops, whose sums
XLA may take in any order ("order" is disabled in `tempo_core.Config`). Many rows are multiplied by blocks of a matrix, each of which is widened
into a cache; bfloat16 as it is, by a processor that multiplies it. Other devices get the whole matrix, widened.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

Array: TypeAlias = np.ndarray  # or JAX's, which has the same methods

VECTOR = 4000  # elements of a vector that XLA multiplies in one loop with a widened matrix
MOST_PARTS = 64  # of a longer one
TOGETHER = 4  # groups whose products are summed before the sum over the elements of a group
FEW_ROWS = 3  # that are multiplied one by one
MANY_ROWS = 128  # from which on results lie by rows, and the two halves of a matrix of 4 bits are one product
OF_BFLOAT16 = ("avx512_bf16", "amx_bf16")  # instructions that multiply it, as Linux names them
BLOCK_BYTES = 2 << 20  # of a block of a matrix, widened


@dataclass(frozen=True)
class Half:
    """Matrices [out, in] of bfloat16 or float16."""

    n_in: int

    def prepared(self, weight: Array) -> tuple[Array]:
        """bfloat16 as its bits: XLA converts slices of bfloat16 before it cuts them, out of a loop, and writes the result."""
        return (jax.lax.bitcast_convert_type(weight, jnp.uint16) if weight.dtype == jnp.bfloat16 else weight,)

    def widened(self, weight: Array) -> Array:
        """[out, in], float32."""
        (prepared,) = self.prepared(weight)
        if prepared.dtype != jnp.uint16:
            return prepared.astype(jnp.float32)
        return jax.lax.bitcast_convert_type(prepared.astype(jnp.uint32) << 16, jnp.float32)

    def of_row(self, x: Array, weight: Array) -> Array:
        """x [in] to [out], of `prepared` arrays. Of long rows, equal parts are multiplied element by element, and summed together.

        A part of each row alone XLA would copy before it widens it.
        """
        count = next((k for k in range(2, MOST_PARTS) if self.n_in % k == 0 and self.n_in // k <= VECTOR), 1)
        if self.n_in > VECTOR and count > 1:
            width = self.n_in // count
            parts, values = self.widened(weight).reshape(-1, count, width), x.reshape(count, width)
            return _times(sum_of([parts[:, k] * values[None, k] for k in range(count)]), _ones(x, width))
        slices = [slice(k, min(k + VECTOR, self.n_in)) for k in range(0, self.n_in, VECTOR)]
        return sum_of([_times(self.widened(weight[:, part]), x[part]) for part in slices])

    def of_rows(self, x: Array, weight: Array) -> Array:
        """x [rows, in] to [out, rows], by a matrix of some of the outputs."""
        return _contracted(self.widened(weight), x)


@dataclass(frozen=True)
class Int8:
    """int8 matrices [out, in], the elements of each group of a row times a float32 scale [out, groups].

    The rows are padded to whole groups.
    """

    n_in: int

    def prepared(self, weight: Array, scale: Array) -> tuple[Array, ...]:
        return weight, scale

    def widened(self, weight: Array, scale: Array) -> Array:
        groups = weight.astype(jnp.float32).reshape(*scale.shape, -1) * scale[..., None]
        return groups.reshape(weight.shape)[..., : self.n_in]

    def of_row(self, x: Array, weight: Array, scale: Array) -> Array:
        groups = scale.shape[1]
        width = weight.shape[1] // groups
        values = _padded(x, weight.shape[1]).reshape(groups, width)

        def scaled(matrix: Any, vector: Any, scales: Any) -> Any:
            return matrix.astype(jnp.float32) * (scales * vector)

        return _by_groups(scaled, weight.reshape(-1, groups, width), values, scale)

    def of_rows(self, x: Array, weight: Array, scale: Array) -> Array:
        return _contracted(self.widened(weight, scale), x)


@dataclass(frozen=True)
class Int4:
    """uint8 matrices [out, in / 2]: the numbers 0 to 15, of which each group has the first half in the low bits of its bytes, the second in the
    high ones. A number is q * scale + offset, both float32 [out, groups].

    The rows are padded to whole groups.
    """

    n_in: int

    def prepared(self, weight: Array, scale: Array, offset: Array) -> tuple[Array, ...]:
        return weight, scale, offset

    def widened(self, weight: Array, scale: Array, offset: Array) -> Array:
        halves = weight.reshape(*scale.shape, 1, -1)
        numbers = jnp.concatenate([halves & 15, halves >> 4], -2).astype(jnp.float32)
        numbers = numbers * scale[..., None, None] + offset[..., None, None]
        return numbers.reshape(*scale.shape[:-1], -1)[..., : self.n_in]

    def of_row(self, x: Array, weight: Array, scale: Array, offset: Array) -> Array:
        groups = scale.shape[1]
        width = weight.shape[1] // groups
        values = _padded(x, 2 * weight.shape[1]).reshape(groups, 2, width)

        def scaled(matrix: Any, vector: Any, scales: Any) -> Any:
            low, high = ((matrix.astype(jnp.int32) >> shift & 15).astype(jnp.float32) for shift in (0, 4))
            return (low * vector[..., 0, :] + high * vector[..., 1, :]) * scales

        products = _by_groups(scaled, weight.reshape(-1, groups, width), values, scale)
        return products + _times(offset, values.sum((1, 2)))

    def of_rows(self, x: Array, weight: Array, scale: Array, offset: Array) -> Array:
        rows, groups = len(x), scale.shape[1]
        width = weight.shape[1] // groups
        values = _padded(x, 2 * weight.shape[1]).reshape(rows, groups, 2, width)
        numbers = weight.reshape(-1, groups, width)
        result = _contracted(offset, values.sum((2, 3)))
        for shift in (0, 1):
            half = (numbers >> 4 * shift & 15).astype(jnp.float32) * scale[..., None]
            result += _contracted(half.reshape(len(half), -1), values[:, :, shift].reshape(rows, -1))
        return result


Form = Half | Int8 | Int4


@dataclass(frozen=True)
class Product:
    """x [in] times a matrix: [out], in x's dtype or in `dtype`. A function for `tp.udf`, whose further operands are the arrays of the matrix."""

    form: Form
    dtype: str | None = None

    def __call__(self, x: Array, *matrix: Array) -> tuple[Array]:
        return (_product(self.form)(x, *matrix).astype(self.dtype or x.dtype),)


@dataclass(frozen=True)
class ExpertProduct:
    """x [chosen or 1, in] times the matrices `chosen` of those in the further operands: [chosen, out], in x's dtype."""

    form: Form

    def __call__(self, x: Array, chosen: Array, *matrices: Array) -> tuple[Array]:
        return (_expert_product(self.form)(x, chosen, *matrices).astype(x.dtype),)


@dataclass(frozen=True)
class Widened:
    """A row of a matrix, [in]: float32."""

    form: Form

    def __call__(self, *row: Array) -> tuple[Array]:
        return (self.form.widened(*row),)


@dataclass(frozen=True)
class Row:
    """Row `number` of a matrix [count, width] of half precision: [width]. XLA on a CPU would widen the whole matrix, before a loop that reads rows."""

    def __call__(self, number: Array, matrix: Array) -> tuple[Array]:
        number, matrix = jax.lax.optimization_barrier((number, matrix))
        return (jax.lax.dynamic_index_in_dim(matrix, number, keepdims=False),)


@functools.cache
def _product(form: Form) -> Callable[..., Any]:
    """x [..., in] times a matrix, in float32. If JAX vectorizes x, the rows of all points are multiplied at once.

    Products of equal shapes, as those of equal layers, are traced once, and called.
    """

    @jax.custom_batching.custom_vmap
    def product(x: Any, *matrix: Any) -> Any:
        rows = x.reshape(-1, x.shape[-1])
        on_cpu: Any = functools.partial(_one_by_one if len(rows) <= FEW_ROWS else _in_blocks, form)
        is_half = all(array.dtype == jnp.bfloat16 for array in (x, *matrix))
        if is_half and len(rows) > FEW_ROWS and multiplies_bfloat16():
            on_cpu = _as_they_are
        result = jax.lax.platform_dependent(rows, *matrix, cpu=on_cpu, default=functools.partial(_whole, form))
        return result.reshape(*x.shape[:-1], -1)

    @product.def_vmap
    def _(size: int, batched: Sequence[Any], x: Any, *matrix: Any) -> tuple[Any, bool]:
        if not any(batched[1:]):
            return product(x, *matrix), True
        return _mapped(product, batched, (x, *matrix)), True

    return jax.jit(product)


@functools.cache
def _expert_product(form: Form) -> Callable[..., Any]:
    """Tokens that choose experts are computed one after the other: each reads only the experts that it has chosen."""

    @jax.custom_batching.custom_vmap
    def product(x: Any, chosen: Any, *matrices: Any) -> Any:
        rows = [x[min(k, len(x) - 1)] for k in range(len(chosen))]
        return jnp.stack(
            [_product(form)(row, *(array[expert] for array in matrices)) for row, expert in zip(rows, chosen, strict=True)]
        )

    @product.def_vmap
    def _(size: int, batched: Sequence[Any], *operands: Any) -> tuple[Any, bool]:
        return _mapped(product, batched, operands), True

    return jax.jit(product)


def _mapped(function: Callable[..., Any], batched: Sequence[Any], operands: Sequence[Any]) -> Any:
    """`function` at one point after the other."""
    varying = [operand for operand, has in zip(operands, batched, strict=True) if has]

    def at(point: Sequence[Any]) -> Any:
        values = iter(point)
        return function(*(next(values) if has else operand for operand, has in zip(operands, batched, strict=True)))

    return jax.lax.map(at, varying)


@functools.cache
def multiplies_bfloat16() -> bool:
    """Whether the processor has instructions for products of bfloat16, as far as the system tells."""
    try:
        words = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split()
    except OSError:
        return False
    return not {*OF_BFLOAT16}.isdisjoint(words)


def _as_they_are(rows: Any, matrix: Any) -> Any:
    """bfloat16 times bfloat16, each product exact, summed in float32."""
    return jax.lax.dot_general(rows, matrix, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)


def _one_by_one(form: Form, rows: Any, *matrix: Any) -> Any:
    """XLA would widen a matrix that does not change in a loop before the loop, if it did not depend on `rows`."""
    rows, matrix = jax.lax.optimization_barrier((rows.astype(jnp.float32), matrix))
    prepared = form.prepared(*matrix)
    return jnp.stack([form.of_row(row, *prepared) for row in rows])


def blocks(n_out: int, n_in: int) -> tuple[int, int]:
    """The number of blocks of a matrix [out, in], and the rows of each. They are as equal as they can be: the last one computes some rows of the
    one before again, and fewer than there are blocks."""
    number = min(n_out, math.ceil(4 * n_out * n_in / BLOCK_BYTES))
    return number, math.ceil(n_out / number)


def _in_blocks(form: Form, rows: Any, *matrix: Any) -> Any:
    """Each block of the matrix depends on its number, too: or XLA would widen the whole before this loop."""
    rows, matrix = jax.lax.optimization_barrier((rows.astype(jnp.float32), matrix))
    count = len(matrix[0])
    number_of_blocks, size = blocks(count, form.n_in)
    by_rows = len(rows) >= MANY_ROWS

    def body(number: Any, result: Any) -> Any:
        number, arrays = jax.lax.optimization_barrier((number, matrix))
        first = jnp.minimum(number * size, count - size)
        block = form.prepared(*(jax.lax.dynamic_slice_in_dim(array, first, size) for array in arrays))
        part = _contracted(rows, form.widened(*block)) if by_rows else form.of_rows(rows, *block)
        return jax.lax.dynamic_update_slice_in_dim(result, part, first, int(by_rows))

    shape = (len(rows), count) if by_rows else (count, len(rows))
    result = jax.lax.fori_loop(0, number_of_blocks, body, jnp.zeros(shape, jnp.float32))
    return result if by_rows else result.T


def _whole(form: Form, rows: Any, *matrix: Any) -> Any:
    return rows.astype(jnp.float32) @ form.widened(*matrix).T


def _by_groups(scaled: Callable[..., Any], matrix: Any, values: Any, scale: Any) -> Any:
    """The sum over groups and their elements of `scaled(matrix [out, groups, width], values [groups, ...], scale [out, groups])`.

    Groups are summed some at a time, element by element; then the elements; then what remains of the groups.
    """
    count, groups, _ = matrix.shape
    together = max(divisor for divisor in range(1, TOGETHER + 1) if groups % divisor == 0)
    rest = groups // together
    matrix, scale = matrix.reshape(count, rest, together, -1), scale.reshape(count, rest, together, 1)
    values = values.reshape(rest, together, *values.shape[1:])
    terms = [scaled(matrix[:, :, k], values[None, :, k], scale[:, :, k]) for k in range(together)]
    products = sum_of(terms)
    sums = _times(products.reshape(count * rest, -1), _ones(values, products.shape[-1])).reshape(count, rest)
    return sums[:, 0] if rest == 1 else _times(sums, _ones(values, rest))


def sum_of(terms: Sequence[Array]) -> Array:
    """The sum, in pairs."""
    while len(terms) > 1:
        pairs = [first + second for first, second in zip(terms[::2], terms[1::2], strict=False)]
        terms = [*pairs, *terms[2 * len(pairs) :]]
    return terms[0]


def _times(matrix: Any, vector: Any) -> Any:
    """matrix [out, in] times vector [in], in the form that XLA computes together with the matrix."""
    return (vector[None] @ matrix.T)[0]


def _ones(values: Any, count: int) -> Any:
    """Ones that XLA cannot know, so that it computes a sum as a product. They are NaN where a value is."""
    flat = values.reshape(-1)
    return jnp.minimum(jnp.abs(jnp.resize(flat, count)) + jnp.float32(1e30), 1)


def _contracted(matrix: Any, x: Any) -> Any:
    """matrix [out, in] times x [rows, in]: [out, rows]."""
    return jax.lax.dot_general(matrix, x, (((1,), (1,)), ((), ())))


def _padded(x: Any, width: int) -> Any:
    return jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, width - x.shape[-1])])
