"""Every function of tensors against NumPy's or JAX's of the same meaning: by the reference, and compiled and vectorized.

The functions of floats are those of `points.py`. The cases here are about other arguments, dtypes and shapes.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np
import pytest

import tempo_core as tp
from tempo_core.errors import ArgumentError, DTypeError, ShapeError, TempoError
from tempo_core.ir.types import DTYPES
from tests import reference
from tests.core.points import SMOOTH
from tests.core.running import assert_all_same

STEPS = 3
_draw = np.random.default_rng(11)
INPUTS: dict[str, np.ndarray] = {  # each over t
    "a": _draw.normal(size=(STEPS, 3, 4)).astype("float32"),
    "b": _draw.normal(size=(STEPS, 3, 4)).astype("float32"),
    "m": _draw.normal(size=(STEPS, 4, 4)).astype("float32"),
    "v": _draw.normal(size=(STEPS, 4)).astype("float32"),
    "w": _draw.normal(size=(STEPS, 4, 3)).astype("float32"),
    "n": _draw.integers(-5, 6, (STEPS, 3, 4)).astype("int32"),
    "u": _draw.integers(0, 256, (STEPS, 3, 4)).astype("uint8"),
    "k": _draw.integers(0, 4, (STEPS, 3, 2)).astype("int32"),
    "f": _draw.integers(0, 2, (STEPS, 3, 4)).astype("bool"),
    "s": np.array([[-np.inf, 1.0, np.nan, np.inf], [0.0, 2.0, 2.0, -1.0], [np.nan, np.nan, 3.0, -np.inf]], "float32"),
}
Case = tuple[Callable[..., Any], Callable[..., Any]]


def scattered(x: np.ndarray, at: list[int], values: np.ndarray, add: bool = False) -> np.ndarray:
    x = x.copy()
    for k, position in enumerate(at):
        x[position] = x[position] + values[k] if add else values[k]
    return x


def at_pairs(function: np.ufunc | None, x: np.ndarray, at: np.ndarray, values: np.ndarray) -> np.ndarray:
    x = x.copy()
    for i, j, value in zip(at.ravel(), at.ravel()[::-1], values.ravel(), strict=False):
        if i < 3:
            x[i, j] = value if function is None else function(x[i, j], value)
    return x


# name: ours and NumPy's, of the inputs by name
CASES: dict[str, Case] = {
    "hypot": (lambda a, b: tp.hypot(a, b * 0), lambda a, b: np.hypot(a, b * 0)),
    "logaddexp": (lambda s: tp.logaddexp(s, s) + tp.logaddexp(s, 0.5), lambda s: np.logaddexp(s, s) + np.logaddexp(s, np.float32(0.5))),
    "isnan, isinf, isfinite": (
        lambda s: tp.stack([tp.isnan(s), tp.isinf(s), tp.isfinite(s)]), lambda s: np.stack([np.isnan(s), np.isinf(s), np.isfinite(s)])
    ),
    "nan_to_num": (tp.nan_to_num, np.nan_to_num),
    "nan_to_num of numbers": (lambda s: tp.nan_to_num(s, 1, 2, 3), lambda s: np.nan_to_num(s, nan=1, posinf=2, neginf=3)),
    "isclose": (lambda s: tp.isclose(s, s + 1e-7), lambda s: np.isclose(s, s + np.float32(1e-7))),
    "clip": (lambda a: tp.clip(a, high=0.5) + a.clip(0, 1), lambda a: np.clip(a, None, 0.5) + np.clip(a, 0, 1)),
    "round, trunc": (lambda a: tp.round(a * 3) + tp.trunc(a * 3), lambda a: np.round(a * 3) + np.trunc(a * 3)),
    "remainder, floor_divide": (lambda n, k: tp.remainder(n, 3) + tp.floor_divide(n, -4), lambda n, k: n % 3 + n // -4),
    "logical of numbers": (
        lambda n, u: (tp.logical_and(n, u) ^ tp.logical_not(n)) | tp.logical_xor(n, u),
        lambda n, u: (np.logical_and(n, u) ^ np.logical_not(n)) | np.logical_xor(n, u),
    ),
    "bitwise": (lambda n, u: (~n & 7) | (n ^ 3) + (~u).astype("int32"), lambda n, u: (~n & 7) | (n ^ 3) + (~u).astype("int32")),
    "leaky_relu, elu": (
        lambda a: tp.leaky_relu(a, 0.1) + tp.elu(a, 2.0),
        lambda a: np.where(a > 0, a, 0.1 * a) + np.where(a > 0, a, 2 * np.expm1(np.minimum(a, 0))),
    ),
    "log_sigmoid": (lambda a: tp.log_sigmoid(a * 50), lambda a: -np.logaddexp(0, -a * 50)),
    "relu keeps NaN": (tp.relu, lambda s: np.maximum(s, 0)),
    "var, std": (lambda a: tp.var(a, 1) + tp.std(a, 1, ddof=1) + a.var(), lambda a: a.var(1) + a.std(1, ddof=1) + a.var()),
    "norm": (
        lambda a: tp.norm(a, 1) + tp.norm(a, 1, ord=1) + tp.norm(a, ord=math.inf),
        lambda a: np.linalg.norm(a, axis=1) + np.abs(a).sum(1) + np.abs(a).max(),
    ),
    "count_nonzero": (lambda n: tp.count_nonzero(n, 0), lambda n: np.count_nonzero(n, 0).astype("int32")),
    "any, all of numbers": (lambda n: tp.any(n, 0) & tp.all(n, 0), lambda n: n.any(0) & n.all(0)),
    "sums of narrow integers": (lambda u: u.sum(0) + u.prod(), lambda u: u.sum(0, dtype="uint32") + u.prod(dtype="uint32")),
    "argmin": (
        lambda a, n, u, f: tp.argmin(a, 0) + tp.argmin(n, 0) + tp.argmin(u, 0) + tp.argmin(f, 0),
        lambda a, n, u, f: sum(x.argmin(0) for x in (a, n, u, f)).astype("int32"),
    ),
    "argmin, argmax of NaN": (lambda s: tp.argmin(s) * 10 + tp.argmax(s), lambda s: np.int32(s.argmin() * 10 + s.argmax())),
    "cumprod": (lambda a: tp.cumprod(a, 1) + tp.cumprod(a, 0, reverse=True), lambda a: np.cumprod(a, 1) + np.cumprod(a[::-1], 0)[::-1]),
    "cumprod of integers": (lambda n: tp.cumprod(n, 1), lambda n: np.cumprod(n, 1, dtype="int32")),
    "cummax, cummin": (
        lambda n, a: tp.cummax(n, 1) + tp.cummin(n, 0, reverse=True) + tp.cummin(a, 1),
        lambda n, a: np.maximum.accumulate(n, 1) + np.minimum.accumulate(n[::-1], 0)[::-1] + np.minimum.accumulate(a, 1),
    ),
    "cummax of NaN": (lambda s: tp.cummax(s), np.maximum.accumulate),
    "sort": (lambda a: tp.sort(a, 0) + tp.sort(a, descending=True), lambda a: np.sort(a, 0) - np.sort(-a, 1)),
    "sort of NaN and infinite": (tp.sort, np.sort),
    "sort of unsigned": (lambda u: tp.sort(u, descending=True), lambda u: np.sort(u)[:, ::-1]),
    "top_k": (lambda a: tp.top_k(a, 2)[0] * tp.top_k(a, 2)[1], lambda a: np.sort(a)[:, :-3:-1] * np.argsort(-a)[:, :2].astype("float32")),
    "median": (lambda a: tp.median(a, 1) + tp.median(a, 0).sum(), lambda a: np.median(a, 1) + np.median(a, 0).sum()),
    "take_along_axis": (lambda a, k: tp.take_along_axis(a, k), lambda a, k: np.take_along_axis(a, k, 1)),
    "take_along_axis, broadcast": (lambda a: tp.take_along_axis(a, tp.constant([[2, 0]]), 1), lambda a: a[:, [2, 0]]),
    "index_add": (lambda a, b: tp.index_add(a, [2, 0, 2], b), lambda a, b: scattered(a, [2, 0, 2], b, True)),
    "scatter": (lambda a, b: tp.scatter(a, [2, 0, 2], b), lambda a, b: scattered(a, [2, 0, 2], b)),
    "scatter of integers, one number": (lambda n: n.scatter([[1, 2], [1, 1]], 9, axis=1), lambda n: np.where(np.isin(np.arange(4), [1, 2]), 9, n)),
    "scatter of bools at one place": (lambda f: tp.scatter(f, 1, True), lambda f: scattered(f, [1], [True])),
    **{
        f"scatter, {mode}": (
            lambda a, b, k, *, mode=mode: a.scatter((k.flatten(), k.flatten().flip(0)), b.flatten().spatial[0:6], (0, 1), mode),
            lambda a, b, k, *, function=function: at_pairs(function, a, k, b),
        )
        for mode, function in {"set": None, "add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}.items()
    },
    "take of two axes": (lambda a, k: tp.take(a, (k, k - 1), (0, 1)), lambda a, k: a[np.minimum(k, 2), np.maximum(k - 1, 0)]),
    "segment_sum, segment_prod": (
        lambda a: tp.segment_sum(a, [1, 0, 1], 3) + tp.segment_prod(a, [1, 0, 1], 3),
        lambda a: np.stack([2 * a[1], a[0] + a[2] + a[0] * a[2], np.ones(4, "float32")]),
    ),
    "segment_max, segment_min": (
        lambda n: tp.segment_max(n, [1, 3, 1], 2) - tp.segment_min(n, [1, 0, 1], 2),
        lambda n: np.stack([np.iinfo("int32").min - n[1], np.maximum(n[0], n[2]) - np.minimum(n[0], n[2])]),
    ),
    "bincount": (lambda k: tp.bincount(k, 3), lambda k: np.bincount(k.ravel(), minlength=4)[:3].astype("int32")),
    "bincount, weights": (lambda n, a: tp.bincount(n, 5, a), lambda n, a: np.bincount(n[n >= 0], a[n >= 0], 6)[:5].astype("float32")),
    "histogram": (lambda n, v: tp.histogram(n * 0.2, tp.sort(v))[0], lambda n, v: np.histogram(n * np.float32(0.2), np.sort(v))[0].astype("int32")),
    "searchsorted": (
        lambda n, a: tp.searchsorted(tp.sort(n.flatten()), n - 1) + tp.searchsorted(tp.sort(n.flatten()), a * 3, "right"),
        lambda n, a: (np.searchsorted(np.sort(n.ravel()), n - 1) + np.searchsorted(np.sort(n.ravel()), a * 3, "right")).astype("int32"),
    ),
    "searchsorted of NaN": (lambda s: tp.searchsorted(tp.sort(s), s), lambda s: np.searchsorted(np.sort(s), s).astype("int32")),
    "one_hot": (lambda k: tp.one_hot(k, 3, axis=1), lambda k: np.moveaxis((k[..., None] == np.arange(3)), -1, 1).astype("float32")),
    "tril, triu": (lambda a: tp.tril(a, 1) - tp.triu(a, -1), lambda a: np.tril(a, 1) - np.triu(a, -1)),
    "diagonal, trace": (
        lambda m: tp.diagonal(m, -1).sum() + tp.trace(m) + m.diagonal(2).sum(),
        lambda m: np.diagonal(m, -1).sum() + np.trace(m) + np.diagonal(m, 2).sum(),
    ),
    "eye": (lambda: tp.eye(3, 4, offset=-1), lambda: np.eye(3, 4, -1, "float32")),
    "pad by a number": (lambda a: tp.pad(a, 1), lambda a: np.pad(a, 1)),
    "pad by a pair": (lambda n: tp.pad(n, (0, 2)), lambda n: np.pad(n, (0, 2))),
    "pad by pairs": (lambda f: tp.pad(f, ((1, 0), (0, 3))), lambda f: np.pad(f, ((1, 0), (0, 3)))),
    "roll": (lambda a: tp.roll(a, 1) + tp.roll(a, -5, 1), lambda a: np.roll(a, 1, 0) + np.roll(a, -5, 1)),
    "repeat, tile": (lambda a: tp.repeat(a, 2, 1) + tp.tile(a, (1, 2)), lambda a: np.repeat(a, 2, 1) + np.tile(a, (1, 2))),
    "repeat of all, tile to more dimensions": (lambda v: tp.repeat(v, 3) + tp.tile(v, (2, 3)), lambda v: np.repeat(v, 3) + np.tile(v, (2, 3))),
    "split": (lambda a: tp.split(a, np.int64(2), 1)[1] * tp.split(a, [1, 3], 1)[1], lambda a: a[:, 2:] * a[:, 1:3]),
    "swapaxes, moveaxis": (lambda a: tp.swapaxes(a, 0, 1) + tp.moveaxis(a, 0, -1), lambda a: 2 * a.T),
    "squeeze, expand_dims": (lambda a: tp.expand_dims(tp.expand_dims(a, 0), -1).squeeze() + a.expand_dims(1).squeeze(1), lambda a: 2 * a),
    "flip": (lambda a: a.flip((0, 1)), np.flip),
    "arange": (lambda: tp.arange(2, 9, 3), lambda: np.arange(2, 9, 3, dtype="int32")),
    "zeros_like, ones_like, full_like": (lambda n: n * 0 + tp.zeros_like(n) + tp.ones_like(n) * tp.full_like(n, 7), lambda n: np.full_like(n, 7)),
    "tensordot": (lambda a, b: tp.tensordot(a, b, ((0, 1), (0, 1))), lambda a, b: np.tensordot(a, b, ((0, 1), (0, 1)))),
    "outer, inner": (lambda v: tp.outer(v, v) + tp.inner(v, v), lambda v: np.outer(v, v) + np.inner(v, v)),
    "matmul of integers, of bools": (lambda n, f: n @ n.transpose() + f @ f.transpose(), lambda n, f: n @ n.T + f.astype("int32") @ f.astype("int32").T),
    "einsum, attention": (lambda a, b, m: tp.einsum("qd,kd,de->qke", a, b, m), lambda a, b, m: np.einsum("qd,kd,de->qke", a, b, m)),
    "einsum, batches": (lambda a, b: tp.einsum("bi,bi->b", a, b), lambda a, b: np.einsum("bi,bi->b", a, b)),
    "einsum, implicit": (lambda a, m: tp.einsum("ij,jk", a, m), lambda a, m: a @ m),
    "einsum, one operand": (lambda a: tp.einsum("ij->j", a), lambda a: a.sum(0)),
    "einsum, dots": (
        lambda a, m: tp.einsum("...j,...kj->...k", a.expand_dims(0), tp.stack([m, m]).expand_dims(1)),
        lambda a, m: np.einsum("...j,...kj->...k", a[None], np.stack([m, m])[:, None]),
    ),
    "methods": (lambda a: (a.sin() + a.square() - a.floor()).softplus(), lambda a: np.logaddexp(0, np.sin(a) + a * a - np.floor(a))),
}  # fmt: skip
OF = {"relu keeps NaN": "s", "sort of NaN and infinite": "s", "nan_to_num": "s", "hypot": "ab"}

for function in SMOOTH.values():
    OF[f"{function.name}, of floats"] = "w" if function.vector else "ab"[: function.operands]
    CASES[f"{function.name}, of floats"] = (function.ours, jax.jit(function.jax))


def names(name: str) -> list[str]:
    function = CASES[name][0]
    return list(OF.get(name) or function.__code__.co_varnames[: function.__code__.co_argcount])


@pytest.fixture(scope="module")
def results() -> dict[str, list[Any]]:
    """All functions in one program: by the reference, and compiled with both backends."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        leaves = {name: tp.input(name, value.shape[1:], value.dtype.name, domain=(t,)) for name, value in INPUTS.items()}
        outputs = [tp.stop_gradient(CASES[name][0](*(leaves[x] for x in names(name)))) for name in CASES]
        outputs = [x if t in [s.expr for s in x.domain.steps] else tp.broadcast_to(x, x.shape) for x in outputs]
    by_setting = {"reference": reference.evaluate(ctx, outputs, {T: STEPS}, INPUTS)}
    for name, config in {"numpy": tp.Config(backend="numpy"), "staged": tp.Config()}.items():
        by_setting[name] = ctx.run({T: STEPS}, outputs=outputs, inputs=INPUTS, config=config)
    return by_setting


@pytest.mark.parametrize("name", CASES)
def test_a_function_is_numpys(results: dict[str, list[Any]], name: str) -> None:
    with np.errstate(all="ignore"), jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        expected = [CASES[name][1](*(INPUTS[x][t] for x in names(name))) for t in range(STEPS)]
    position = list(CASES).index(name)
    whole = results["reference"][position]
    expected = np.stack(expected) if names(name) else expected[0]
    assert whole.shape == expected.shape
    np.testing.assert_allclose(whole, expected, rtol=3e-5, atol=3e-5)
    assert whole.dtype == expected.dtype or whole.dtype.name == "float32"
    for other in ("numpy", "staged"):
        assert_all_same([results[other][position]], [whole], 1e-4)


def test_the_page_of_functions_names_them_all() -> None:
    page = (Path(__file__).parents[2] / "docs" / "functions.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+)`", page))
    others = {
        "udf",
        "sink",
        "spec",
        "input",
        "recurrence",
        "promote",
        "upto",
        "use_cpu_devices",
    }  # these are in docs/language.md, or in the table of dtypes
    functions = {name for name in tp.__all__ if inspect.isfunction(getattr(tp, name))}
    inside = {*tp.random.NAMES, *tp.linalg.NAMES, *tp.fft.NAMES}
    assert (functions | inside) - others <= named
    assert named - functions - inside <= {"reverse", *tp.errors.__dict__} | set(DTYPES)


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_search_in_a_slice_of_steps(side: str) -> None:
    """The numbers before each point: as many as there are."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x, y = tp.input("x", (), domain=(t,)), tp.input("y", (2,), domain=(t,))
        outputs = [tp.searchsorted(x[0 : t + 1], y, side)[0:T]]
    nan = np.nan
    arrays = {"x": np.float32([-1, 0, 0, 2, nan]), "y": np.float32([[0, nan], [-1, 0], [0, 3], [2, 1], [nan, 3]])}
    expected = [np.searchsorted(arrays["x"][: k + 1], arrays["y"][k], side) for k in range(5)]
    for config in (tp.Config(), tp.Config(backend="numpy")):
        np.testing.assert_array_equal(ctx.run({T: 5}, outputs=outputs, inputs=arrays, config=config)[0], expected)


REFUSED: dict[str, tuple[Callable[[tp.Tensor], Any], type[Exception], str]] = {
    "mode of scatter": (lambda a: a.scatter(0, 1.0, 0, "sub"), ArgumentError, "unknown mode 'sub' of `scatter`"),
    "axes apart": (
        lambda a: a.expand_dims(0).take((0, 0), (0, 2)),
        ShapeError,
        r"the axes \(0, 2\) of .* do not follow one another",
    ),
    "positions of axes": (lambda a: a.scatter(0, 1.0, (0, 1)), ShapeError, r"0 does not index the axes \(0, 1\)"),
    "labels": (lambda a: tp.bincount(a, 3), DTypeError, "labels are integers"),
    "side": (lambda a: tp.searchsorted(a.index(0, 0), a, "middle"), ArgumentError, "unknown side 'middle'"),
    "rows of edges": (lambda a: tp.searchsorted(a, a), ShapeError, "not one row of numbers"),
    "squeeze of a size": (lambda a: a.squeeze(0), ShapeError, "its size is 3"),
    "axis": (lambda a: a.sum(2), ShapeError, "has no axis 2"),
    "an axis twice": (lambda a: a.sum((0, 0)), ShapeError, r"axis 0 of .* is named twice in \(0, 0\)"),
    "an axis by two names": (lambda a: a.mean((1, 0, -1)), ShapeError, r"the axes 1 and -1 of .* are the same one, named twice"),
    "flipped twice": (lambda a: a.flip((1, 1)), ShapeError, "axis 1 of .* is named twice"),
    "tensordot, an axis twice": (lambda a: tp.tensordot(a, a, ((0, 0), (0, 0))), ShapeError, "axis 0 of .* is named twice"),
    "tensordot, too many axes": (lambda a: tp.tensordot(a, a, 3), ShapeError, "cannot be summed over 3 axes"),
    "tensordot, counts": (lambda a: tp.tensordot(a, a, ((0,), (0, 1))), ShapeError, "1 axes of the first tensor and 2"),
    "unequal parts": (lambda a: tp.split(a, 3, 1), ShapeError, "3 equal parts"),
    "no parts": (lambda a: tp.split(a, 0, 1), ShapeError, "into 0 parts"),
    "too many": (lambda a: tp.top_k(a, 5), ShapeError, "4 elements"),
    "diagonal outside": (lambda a: a.diagonal(7), ShapeError, "lies outside"),
    "triangle of a vector": (lambda a: tp.tril(a.sum(0)), ShapeError, "1 dimensions"),
    "moved twice": (lambda a: tp.moveaxis(a, (0, 0), (0, 1)), ShapeError, "give each axis one new place"),
    "ranks": (lambda a: tp.take_along_axis(a, tp.arange(3)), ShapeError, "same number of dimensions"),
    "no such norm": (lambda a: tp.norm(a, ord=3), ArgumentError, "order 3"),
    "negative arange": (lambda a: tp.arange(0, 3, -1), ArgumentError, "positive"),
    "bits of floats": (lambda a: ~a, DTypeError, "bools or integers"),
    "einsum, a letter twice": (lambda a: tp.einsum("ii->i", a), ShapeError, "has a letter twice"),
    "einsum, rank": (lambda a: tp.einsum("ijk->i", a), ShapeError, "does not fit"),
    "einsum, operands": (lambda a: tp.einsum("ij,jk->ik", a), ShapeError, "for 2 operands, got 1"),
    "einsum, sizes": (lambda a: tp.einsum("ij,ij", a, a.transpose()), ShapeError, "has the sizes"),
    "einsum, unknown letter": (lambda a: tp.einsum("ij->k", a), ShapeError, "no operand has"),
    "conv, channels": (lambda a: tp.conv(a, tp.ones((2, 3, 5))), ShapeError, "channels"),
    "conv, features": (lambda a: tp.conv(a, tp.ones((2, 2, 5)), groups=2), ShapeError, "do not divide"),
    "conv, rank": (lambda a: tp.conv(a, tp.ones((4, 5))), ShapeError, "kernel"),
    "conv, padding": (lambda a: tp.conv(a, tp.ones((2, 4, 5)), padding="FULL"), ShapeError, "unknown padding"),
    "conv, pairs": (lambda a: tp.conv(a, tp.ones((2, 4, 5)), padding=[(1, 1), (1, 1)]), ShapeError, "1 dimensions"),
    "conv, stride": (lambda a: tp.conv(a, tp.ones((2, 4, 5)), stride=0), ShapeError, "stride 0"),
    "conv, kernel too large": (lambda a: tp.conv(a, tp.ones((9, 4, 5)), padding="VALID"), ShapeError, "larger than"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused_at_the_users_line(name: str) -> None:
    build, error, message = REFUSED[name]
    with tp.Context("t") as ((t, _),):
        a = tp.input("a", (3, 4), domain=(t,))
        with pytest.raises(error) as raised:
            build(a)
    refusal = cast("TempoError", raised.value)
    assert re.search(message, f"{refusal.message}; {refusal.hint}")  # not in the whole text, which quotes the row above
    assert refusal.where is not None and refusal.where.startswith(__file__)
