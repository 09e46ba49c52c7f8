"""Convolution kernels against sums written out, and whole programs with convolutions."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest

import tempo_core as tp
from tempo_core.ir import ops
from tempo_core.symbolic.expr import Expr
from tests import reference
from tests.cases import fast
from tests.core.backends.support import JAX, NUMPY, check, normal, run
from tests.core.running import SETTINGS, assert_all_same


def conv(strides, padding, dilation, spread, groups) -> ops.Conv:
    low, high = (tuple(map(Expr.of, side)) for side in zip(*padding, strict=True))
    return ops.Conv(strides, low, high, dilation, spread, Expr.of(groups))


def written_out(op: ops.Conv, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The sum of the docstring of `ops.Conv`, element by element, in float64."""
    (declared,) = op.infer((tp.spec(x.shape), tp.spec(w.shape)))
    result = np.zeros(tuple(map(int, declared.shape)))
    n, groups = op.spatial, int(op.groups)
    channels, features = w.shape[n], w.shape[-1] // groups
    for place in np.ndindex(*result.shape[x.ndim - n - 1 : -1]):
        for tap in np.ndindex(*w.shape[:n]):
            at = [p * s + k * d - int(low) for p, s, k, d, low in zip(place, op.strides, tap, op.dilation, op.low, strict=True)]
            source = [a // f for a, f in zip(at, op.spread, strict=True)]
            between = any(a % f for a, f in zip(at, op.spread, strict=True))
            if between or not all(0 <= a < size for a, size in zip(source, x.shape[-n - 1 : -1], strict=True)):
                continue
            for g in range(groups):
                seen = x[(..., *source, slice(g * channels, (g + 1) * channels))].astype("float64")
                block = slice(g * features, (g + 1) * features)
                result[(..., *place, block)] += seen @ w[(*tap, slice(None), block)].astype("float64")
    return result


ONE = [
    conv((stride,), (pad,), (dilation,), (spread,), groups)
    for stride, pad, dilation, spread, groups in itertools.product((1, 3), ((0, 0), (2, 1), (-1, 1)), (1, 2), (1, 2), (1, 2))
]


WIDE = [
    (conv((3, 2), ((2, -1), (0, 0)), (1, 1), (1, 3), 2), ((2, 6, 5, 4), (2, 3, 2, 6))),
    (conv((1, 2), ((1, 0), (0, 1)), (2, 1), (1, 1), 3), ((6, 5, 3), (2, 2, 1, 6))),
]


@pytest.mark.parametrize("op", ONE, ids=str)
def test_one_dimension(op: ops.Conv) -> None:
    groups = int(op.groups)
    x, w = normal(2, 7, 2 * groups), normal(3, 2, 3 * groups, seed=1)
    expected = written_out(op, x, w)
    for backend in (NUMPY, JAX):
        np.testing.assert_allclose(run(backend, op, x, w)[0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "op",
    [
        conv((1, 1), ((1, 1), (0, 1)), (1, 1), (1, 1), 1),
        conv((2, 1), ((0, 0), (-1, 1)), (1, 2), (1, 1), 1),  # on the CPU, XLA's own padding by (-1, 1) gives wrong numbers
        conv((1, 1), ((-1, 1), (-1, 1)), (1, 1), (2, 1), 2),
        conv((3, 2), ((2, -1), (0, 0)), (1, 1), (1, 3), 2),
    ],
    ids=str,
)
@pytest.mark.parametrize("batch", [(), (2,), (2, 1, 3)])
def test_two_dimensions(op: ops.Conv, batch: tuple[int, ...]) -> None:
    groups = int(op.groups)
    x, w = normal(*batch, 6, 5, 2 * groups), normal(2, 3, 2, groups, seed=1)
    check(op, [x, w], written_out(op, x, w), rtol=1e-5)


@pytest.mark.parametrize("dtype", fast(["int32", "uint8"], "uint8"))
@pytest.mark.parametrize(("op", "shapes"), [(op, ((2, 7, 2), (3, 2, 3))) for op in ONE if int(op.groups) == 1] + WIDE)
def test_integers_on_a_gpu(
    op: ops.Conv, shapes: tuple[tuple[int, ...], ...], dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """cuDNN convolves no integers, so they are products there; sums wrap around as elsewhere."""
    x, w = (np.random.default_rng(k).integers(0, 200, shape).astype(dtype) for k, shape in enumerate(shapes))
    expected = written_out(op, x, w).astype("int64").astype(dtype)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    np.testing.assert_array_equal(run(JAX, op, x, w)[0], expected)


def test_no_elements() -> None:
    op = conv((1,), ((0, 0),), (1,), (1,), 1)
    for backend in (NUMPY, JAX):
        assert run(backend, op, normal(0, 5, 2), normal(3, 2, 4))[0].shape == (0, 3, 4)
        assert run(backend, op, normal(2, 2), normal(3, 2, 4))[0].shape == (0, 4)
        cut = conv((1,), ((-4, -3),), (1,), (1,), 1)
        assert run(backend, cut, normal(2, 7, 2), normal(1, 2, 4))[0].shape == (2, 0, 4)


@pytest.mark.parametrize("op", [conv((1,), ((2, 3),), (1,), (2,), 1), conv((2,), ((1, 7),), (3,), (1,), 1)], ids=str)
@pytest.mark.parametrize(("size", "kernel"), [(0, 3), (4, 0), (0, 0)])
def test_where_nothing_is_multiplied_there_are_zeros(op: ops.Conv, size: int, kernel: int) -> None:
    """As many as the op's type says: no elements, at a distance, reach over less than none."""
    x, w = normal(2, size, 2), normal(kernel, 2, 4)
    expected = written_out(op, x, w)
    assert not expected.any()
    check(op, [x, w], expected)


@pytest.mark.parametrize("stride", [1, 3])
def test_gradients_of_a_convolution_without_results_are_zeros(stride: int) -> None:
    ctx = tp.Context("t")
    with ctx as ((_, T),):
        x, w = tp.input("x", (2, 1)), tp.input("w", (3, 1, 2))
        result = tp.conv(x, w, stride, "VALID")
        outputs = tp.grad(result.sum(), wrt=[x, w])
    assert tuple(map(int, result.shape)) == (0, 2)
    inputs = {"x": normal(2, 1), "w": normal(3, 1, 2)}
    for gradients in (
        reference.evaluate(ctx, outputs, {T: 1}, inputs),
        *(ctx.run({T: 1}, outputs=outputs, inputs=inputs, config=setting) for setting in SETTINGS.values()),
    ):
        assert_all_same(gradients, [np.zeros((2, 1), "float32"), np.zeros((3, 1, 2), "float32")])


@pytest.mark.torch
def test_convolution_agrees_with_torch() -> None:
    torch = pytest.importorskip("torch")
    x, w = normal(2, 9, 8, 4), normal(3, 2, 2, 6, seed=1)
    ctx = tp.Context("t")
    with ctx as ((_, T),):
        ours = tp.conv(tp.constant(x), tp.constant(w), stride=(2, 1), padding=[(1, 1), (2, 2)], dilation=(1, 2), groups=2)
        (result,) = ctx.run({T: 1}, outputs=[ours], config=tp.Config(backend="numpy"))
    theirs = torch.nn.functional.conv2d(
        torch.tensor(x).permute(0, 3, 1, 2), torch.tensor(w).permute(3, 2, 0, 1), None, (2, 1), (1, 2), (1, 2), 2
    )
    np.testing.assert_allclose(result, theirs.permute(0, 2, 3, 1).numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(
    "size, kernel, stride, dilation", [(7, 3, 1, 1), (7, 3, 2, 1), (8, 3, 2, 1), (8, 2, 3, 2), (5, 4, 1, 1), (6, 1, 3, 1)]
)
def test_padding_by_name_is_that_of_jax(padding: str, size: int, kernel: int, stride: int, dilation: int) -> None:
    from jax import lax

    x, w = normal(1, size, 2), normal(kernel, 2, 3, seed=1)
    ctx = tp.Context("t")
    with ctx as ((_, T),):
        (result,) = reference.evaluate(ctx, [tp.conv(tp.constant(x), tp.constant(w), stride, padding, dilation)], {T: 1})
    layout = ("NWC", "WIO", "NWC")
    expected = lax.conv_general_dilated(x, w, (stride,), padding, rhs_dilation=(dilation,), dimension_numbers=layout)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_a_network_is_trained_with_kernels_that_vary_with_a_step() -> None:
    """Kernels over i, images over (i, t): vectorized over t as leading dimensions, over i as groups; gradients too."""
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        images = tp.input("images", (T, 3), domain=(i, t))  # a symbolic spatial size
        w = tp.input("w", (3, 3, 2), domain=(i,))
        features = tp.relu(tp.conv(images, w, stride=2))
        both = tp.conv(images[0, t], w)
        loss = (features * features).sum() + both.mean()
        outputs = [features, both, *tp.grad(loss, wrt=[w, images])]
    generator = np.random.default_rng(0)
    inputs = {
        "images": generator.normal(size=(2, 5, 5, 3)).astype("float32"),
        "w": generator.normal(size=(2, 3, 3, 2)).astype("float32"),
    }
    expected = reference.evaluate(ctx, outputs, {I: 2, T: 5}, inputs)
    for setting in SETTINGS.values():
        assert_all_same(ctx.run({I: 2, T: 5}, outputs=outputs, inputs=inputs, config=setting), expected, 1e-4)
