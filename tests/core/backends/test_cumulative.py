"""Cumulative sums and maxima in blocks: the numbers of NumPy for every length around a block, in both directions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tempo_core.backends.jax_backend import JaxBackend
from tempo_core.backends.shared import least
from tempo_core.backends.xla_cpu.cumulative import in_blocks
from tempo_core.ir import ops
from tempo_core.prices import MOST_WRITTEN_OUT as BLOCK
from tests.core.backends.support import array, check

LENGTHS = (1, BLOCK, BLOCK + 1, 3 * BLOCK - 1)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 2])
def test_blocks_give_the_numbers_of_one_element_after_the_other(length, reverse, axis):
    shape = [3, 2, 4]
    shape[axis] = length
    x = np.random.default_rng(0).integers(-50, 50, shape).astype(np.int32)
    turned = np.flip(x, axis) if reverse else x
    for combine, neutral, expected in [
        (jnp.add, 0, np.cumsum(turned, axis, dtype=np.int32)),
        (jnp.maximum, least(x.dtype), np.maximum.accumulate(turned, axis)),
    ]:
        expected = np.flip(expected, axis) if reverse else expected
        np.testing.assert_array_equal(in_blocks(combine, jnp.asarray(x), axis, reverse, neutral), expected)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "int8", "uint8", "bool"])
def test_long_maxima_of_every_dtype(dtype):
    x = np.random.default_rng(1).normal(size=(BLOCK**2 + 5, 2)) * 40
    numbers = (np.abs(x) if dtype == "uint8" else x) > 30 if dtype == "bool" else (np.abs(x) if dtype == "uint8" else x)
    held = array(numbers, dtype)
    check(ops.CumMax(0), [held], np.maximum.accumulate(np.asarray(held).astype(np.float32), 0))
    check(ops.CumMax(0, True), [held], np.maximum.accumulate(np.asarray(held).astype(np.float32)[::-1], 0)[::-1])


def test_infinities_and_nan_stay_where_they_are():
    x = np.ones(BLOCK**2, np.float32)
    x[10], x[30], x[40] = np.inf, -np.inf, np.nan
    with np.errstate(invalid="ignore"):
        sums, reversed_sums = np.cumsum(x), np.cumsum(x[::-1])[::-1]
    check(ops.CumSum(0), [x], sums)
    check(ops.CumSum(0, True), [x], reversed_sums)
    check(ops.CumMax(0), [x], np.maximum.accumulate(x))
    lowest = np.full(BLOCK**2, -np.inf, np.float32)
    check(ops.CumMax(0), [lowest], lowest)


def test_the_sum_of_a_narrow_dtype_is_rounded_once():
    check(ops.CumSum(0), [array(np.ones(200), "bfloat16")], array(np.arange(1, 201), "bfloat16"))


@pytest.mark.cpu
def test_a_long_scan_on_a_cpu_is_no_tree():
    kernels = JaxBackend.kernels
    for op in (ops.CumSum(0), ops.CumMax(0)):
        long = jax.jit(lambda x, op=op: kernels[type(op)](None, op, x)).lower(np.zeros((640, 4), np.float32)).compile().as_text()
        assert "while" in long and "reduce-window" not in long
