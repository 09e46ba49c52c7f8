"""Functions that JAX computes, linear algebra and Fourier transforms: values, gradients of two orders, errors, and draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.errors import ArgumentError, ShapeError
from tempo_core.ir import ops
from tests import reference
from tests.cases import first
from tests.core.gradient_checks import assert_gradients
from tests.core.running import assert_all_same

STEPS = 3
_draw = np.random.default_rng(2)
INPUTS = {
    "a": _draw.normal(size=(STEPS, 2, 3, 3)).astype("float32"),
    "b": _draw.normal(size=(STEPS, 3)).astype("float32"),
    "c": _draw.normal(size=(STEPS, 3, 2)).astype("float32"),
    "x": _draw.normal(size=(STEPS, 2, 5)).astype("float32"),
    "n": _draw.integers(-3, 4, (STEPS, 3, 3)).astype("int32"),
}


def gram(a: Any) -> Any:
    """Positive definite matrices, in both languages."""
    return a @ a.swapaxes(-1, -2) + np.eye(3, dtype="float32")


def both(z: Any) -> Any:
    return tp.stack([z.real, z.imag]) if isinstance(z, tp.Complex) else np.stack([z.real, z.imag]).astype("float32")


def recomposed(svd: Any, module: Any) -> Any:
    """What does not depend on the signs of the factors of a matrix."""
    u, s, v = svd
    return module.concatenate([u * s @ v, s.reshape(1, -1)], 0)


L = np.linalg
CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {  # ours and NumPy's, of the inputs by name
    "solve, a vector": (lambda a, b: tp.linalg.solve(a, b), lambda a, b: L.solve(a, np.broadcast_to(b, (2, 3))[..., None])[..., 0]),
    "solve, columns": (lambda a, c: tp.linalg.solve(a, c), lambda a, c: L.solve(a, np.broadcast_to(c, (2, 3, 2)))),
    "solve_triangular": (lambda a, b: tp.linalg.solve_triangular(gram(a), b), lambda a, b: L.solve(np.triu(gram(a)), np.stack([b, b])[..., None])[..., 0]),
    "solve_triangular, transposed": (
        lambda a, c: tp.linalg.solve_triangular(gram(a), c, lower=True, trans=True),
        lambda a, c: L.solve(np.tril(gram(a)).swapaxes(-1, -2), np.stack([c, c])),
    ),
    "cholesky": (lambda a: tp.linalg.cholesky(gram(a)), lambda a: L.cholesky(gram(a))),
    "inv": (lambda a: tp.linalg.inv(gram(a)), lambda a: L.inv(gram(a))),
    "det": (lambda a: tp.linalg.det(a), L.det),
    "slogdet": (lambda a: tp.stack(list(tp.linalg.slogdet(a))), lambda a: np.stack(L.slogdet(a))),
    "qr": (lambda c: tp.abs(tp.concatenate(list(tp.linalg.qr(c)))), lambda c: np.abs(np.concatenate(L.qr(c)))),
    "eigh": (lambda a: tp.abs(tp.linalg.eigh(gram(a))[1]) * tp.linalg.eigh(gram(a))[0].expand_dims(-2),
        lambda a: np.abs(L.eigh(gram(a))[1]) * L.eigh(gram(a))[0][:, None]),
    "svd": (lambda c: recomposed(tp.linalg.svd(c), tp), lambda c: recomposed(L.svd(c, full_matrices=False), np)),
    "of integers": (lambda n: tp.linalg.det(n), lambda n: L.det(n).astype("float32")),
    "fft": (lambda x: both(tp.fft.fft(x)), lambda x: both(np.fft.fft(x))),
    "fft, longer, the first axis": (lambda x: both(tp.fft.fft(x, 4, 0)), lambda x: both(np.fft.fft(x, 4, 0))),
    "ifft of complex": (lambda x: both(tp.fft.ifft(tp.Complex(x, x * x), 3)), lambda x: both(np.fft.ifft(x + 1j * x * x, 3))),
    "rfft": (lambda x: both(tp.fft.rfft(x)), lambda x: both(np.fft.rfft(x))),
    "irfft": (lambda x: tp.fft.irfft(tp.Complex(x, -x)), lambda x: np.fft.irfft(x - 1j * x).astype("float32")),
    "irfft, odd": (lambda x: tp.fft.irfft(tp.fft.rfft(x) * (2 - 1j), 5), lambda x: np.fft.irfft(np.fft.rfft(x) * (2 - 1j), 5).astype("float32")),
    "complex arithmetic": (
        lambda x: both(
            x * (2 - tp.Complex(x, x + 1)) * tp.Complex(x, 1 - x) / (tp.Complex.polar(2.0, x) + 3j)
            - 1j / tp.Complex(x, x * 0 + 2).conj() * 2 + -tp.Complex(x, x).exp() / 2
        ),
        lambda x: both(x * (2 - (x + 1j * x + 1j)) * (x + 1j - 1j * x) / (2 * np.exp(1j * x) + 3j) - 1j / (x - 2j) * 2 + -np.exp(x + 1j * x) / 2),
    ),
    "abs, angle": (lambda x: abs(tp.fft.fft(x)) + tp.fft.fft(x).angle(), lambda x: (np.abs(np.fft.fft(x)) + np.angle(np.fft.fft(x))).astype("float32")),
}  # fmt: skip


def program(names: list[str]) -> tuple[tp.Context, dict[Any, int], dict[str, tp.Tensor], list[tp.Tensor]]:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        leaves = {name: tp.input(name, value.shape[1:], value.dtype.name, domain=(t,)) for name, value in INPUTS.items()}
        outputs = [CASES[name][0](*map(leaves.__getitem__, operands(name))) for name in names]
    return ctx, {T: STEPS}, leaves, outputs


def operands(name: str) -> tuple[str, ...]:
    code = CASES[name][0].__code__
    return code.co_varnames[: code.co_argcount]


@pytest.mark.parametrize("name", CASES)
def test_a_function_is_numpys(name: str) -> None:
    """At all points at once, and with leading dimensions."""
    ctx, bounds, _, outputs = program([name])
    (whole,) = reference.evaluate(ctx, outputs, bounds, INPUTS)
    expected = np.stack([CASES[name][1](*(INPUTS[x][t] for x in operands(name))) for t in range(STEPS)])
    assert whole.dtype == np.float32 and whole.shape == expected.shape
    np.testing.assert_allclose(whole, expected, rtol=2e-4, atol=2e-4)
    for config in (tp.Config(), tp.Config(backend="numpy")):
        compiled = ctx.compile(bounds, outputs, config)
        assert_all_same(compiled.run(INPUTS), [whole], 1e-3)
        functions = [part for node in compiled.graph for part in node.op.parts if isinstance(part, ops.Udf)]
        assert functions or name == "complex arithmetic"
        assert all(part.cost for part in functions)


DIFFERENTIATED = {
    **{name: CASES[name][0] for name in CASES if "integers" not in name and name not in ("eigh", "angle")},
    "eigenvalues": lambda a: tp.linalg.eigh(gram(a))[0],
}


@pytest.mark.parametrize("name", first(5, DIFFERENTIATED))
def test_gradients_are_finite_differences(name: str) -> None:
    """Of the function, and of its gradient."""
    code = DIFFERENTIATED[name].__code__
    names = code.co_varnames[: code.co_argcount]
    arrays = {each: INPUTS[each][0].astype("float64") for each in names}
    ctx = tp.Context("t")
    with ctx as ((_, T),):
        leaves = [tp.input(each, array.shape) for each, array in arrays.items()]
        result = DIFFERENTIATED[name](*leaves)
        weights = np.random.default_rng(7).normal(size=tuple(map(int, result.shape)))
        firsts = assert_gradients(ctx, (result * weights).sum(), leaves, {T: 1}, arrays)
        total = sum(((g * g).sum() for g in firsts[1:]), (firsts[0] * firsts[0]).sum())
        assert_gradients(ctx, total, leaves, {T: 1}, arrays)


def test_a_loop_of_solutions() -> None:
    """A recurrence, one point after the other, with its gradient."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        a, start = tp.input("a", (3, 3)), tp.input("start", (3,))
        h = tp.recurrence((3,), domain=(t,))
        h[0] = start
        h[t + 1] = tp.tanh(tp.linalg.solve(gram(a), h) + tp.fft.irfft(tp.fft.rfft(h), 3))
        loss = (h[0:T] ** 2).sum()
        outputs = [h[0:T], *tp.grad(loss, [a, start])]
    arrays = {"a": INPUTS["a"][0, 0], "start": INPUTS["b"][0]}
    assert_all_same(ctx.run({T: 6}, outputs=outputs, inputs=arrays), reference.evaluate(ctx, outputs, {T: 6}, arrays), 1e-3)


REFUSED: dict[str, tuple[Callable[[tp.Tensor], Any], type[Exception], str]] = {
    "square": (lambda a: tp.linalg.inv(a), ShapeError, r"`inv` takes square matrices \[..., n, n\]"),
    "rank": (lambda a: tp.linalg.svd(a.index(0, 0)), ShapeError, r"`svd` takes matrices \[..., rows, columns\]"),
    "right side": (lambda a: tp.linalg.solve(a @ a.transpose(), tp.ones(4)), ShapeError, r"takes \[2\] or \[..., 2, columns\]"),
    "count": (lambda a: tp.fft.fft(a, 0), ArgumentError, "`fft` of 0 elements"),
    "complex": (
        lambda a: tp.fft.rfft(tp.Complex(a, a)),
        ArgumentError,
        "`x` of `rfft` must be a tensor or number, not a Complex",
    ),  # type: ignore[arg-type]
    "part": (lambda a: tp.Complex(a, 1.0), ArgumentError, "a part of a complex number is 1.0"),  # type: ignore[arg-type]
    "operand": (lambda a: tp.Complex(a, a) + "a", ArgumentError, "'a' is not a complex tensor"),  # type: ignore[operator]
    "integers": (lambda a: tp.random.randint((2,), 3, 3), ArgumentError, "there are no integers from 3 to 2"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    build, error, message = REFUSED[name]
    with tp.Context("t"), pytest.raises(error, match=message) as caught:
        build(tp.ones((2, 3)))
    assert "test_library.py" in str(caught.value)


def test_draws() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        draws = [
            tp.random.gumbel((1000,), (t,)), tp.random.exponential((1000,), (t,)), tp.random.bernoulli(0.25, (1000,), (t,)),
            tp.random.randint((1000,), -3, 5, (t,)),
        ]  # fmt: skip
    gumbel, exponential, bernoulli, integers = ctx.run({T: 20}, outputs=draws)
    assert abs(gumbel.mean() - 0.5772) < 0.03 and abs(gumbel.var() - np.pi**2 / 6) < 0.1
    assert abs(exponential.mean() - 1) < 0.03 and abs(exponential.var() - 1) < 0.1 and exponential.min() >= 0
    assert abs(bernoulli.mean() - 0.25) < 0.02
    assert set(np.unique(integers)) == set(range(-3, 5)) and integers.dtype == np.int32
    assert abs(np.bincount(integers.ravel() + 3) / integers.size - 0.125).max() < 0.01
    assert (gumbel[0] != gumbel[1]).all()
