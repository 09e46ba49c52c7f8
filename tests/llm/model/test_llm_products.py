"""Products of half precision: their values, and the memory that XLA takes for them on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tempo_llm import products
from tempo_llm.products import Half, Product, Row

WIDTH, COUNT = 512, 3000
MATRIX = np.random.default_rng(0).normal(0, 0.3, (COUNT, WIDTH)).astype(jnp.bfloat16)
BYTES = MATRIX.nbytes


def repeated(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A loop whose iterations each need the last one's result, as tokens do."""
    return lambda x, matrix: lax.fori_loop(0, 3, lambda _, each: function(each, matrix), x)


def temporaries(function: Callable[[Any, Any], Any], x: Any) -> int:
    analysis: Any = jax.jit(function).lower(x, MATRIX).compile().memory_analysis()
    return int(analysis.temp_size_in_bytes)


@pytest.mark.cpu
def test_a_loop_that_reads_rows_does_not_widen_the_matrix() -> None:
    def following(number: Any, matrix: Any) -> Any:
        (row,) = Row()(number, matrix)
        return (row.astype(jnp.float32).sum() * 100).astype(jnp.int32) % COUNT

    assert temporaries(repeated(following), np.int32(1)) < BYTES // 10
    numbers = np.asarray([0, 7, COUNT - 1], np.int32)
    (rows,) = jax.vmap(Row(), in_axes=(0, None))(numbers, MATRIX)
    np.testing.assert_array_equal(rows, MATRIX[numbers])


@pytest.mark.cpu
@pytest.mark.parametrize("rows", [1, 16, 200])
@pytest.mark.parametrize("is_multiplied", [False, True], ids=["widened", "as it is"])
def test_products_in_a_loop_copy_no_matrix(rows: int, is_multiplied: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "multiplies_bfloat16", lambda: is_multiplied)
    monkeypatch.setattr(products, "BLOCK_BYTES", 2**17)
    products._product.cache_clear()
    x = np.random.default_rng(1).normal(0, 1, (rows, WIDTH)).astype(jnp.bfloat16)

    def following(each: Any, matrix: Any) -> Any:
        (y,) = Product(Half(WIDTH))(each, matrix)
        return y[:, :WIDTH]

    results = 3 * 4 * rows * COUNT  # of float32, as they are computed and as they are laid out
    if rows == 1 or not is_multiplied:  # XLA widens the matrix for a processor that does not multiply bfloat16
        assert temporaries(repeated(following), x) < BYTES // 4 + results
    (y,) = jax.jit(Product(Half(WIDTH), "float32"))(x, MATRIX)
    np.testing.assert_allclose(y, x.astype(np.float32) @ MATRIX.astype(np.float32).T, rtol=1e-4, atol=1e-3)
    products._product.cache_clear()


@pytest.mark.parametrize(
    ("n_out", "n_in"), [(768, 768), (2304, 768), (3072, 768), (768, 3072), (3, 3_000_000), (1, 1), (128_256, 3072)]
)
def test_blocks_compute_few_rows_again_and_fit_into_the_cache(n_out: int, n_in: int) -> None:
    number, size = products.blocks(n_out, n_in)
    assert n_out <= number * size < n_out + number
    assert 4 * (size - 1) * n_in < products.BLOCK_BYTES
