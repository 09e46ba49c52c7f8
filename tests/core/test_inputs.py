"""The inputs of a run: arrays of any library, iterators, functions of the steps; all at once, or streamed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import tempo_core as tp
from tempo_core import errors
from tempo_core.symbolic.expr import Expr
from tests.core.running import SETTINGS, Case, assert_all_same, compiled, evaluated

every_setting = pytest.mark.parametrize("setting", SETTINGS)
NUMPY = SETTINGS["numpy"]
VALUES = np.arange(8.0, dtype="float32").reshape(4, 2)
SUMS = VALUES.cumsum(0)


class OnlyArray:
    """A stand-in for a tensor of another library, which NumPy can read."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return VALUES


class OnlyDlpack:
    """A stand-in for a tensor in the memory of a device, which NumPy cannot read."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        raise TypeError("no NumPy here")

    def __dlpack__(self, **options: Any) -> Any:
        return VALUES.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return VALUES.__dlpack_device__()


class Rows:
    """An iterable that can be iterated many times, but is not a sequence."""

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter(VALUES)


WAYS: dict[str, Any] = {
    "array": lambda: VALUES,
    "doubles": lambda: VALUES.astype("float64"),
    "integers": lambda: VALUES.astype("int64"),
    "jax": lambda: jnp.asarray(VALUES),
    "lists": VALUES.tolist,
    "list of arrays": lambda: list(VALUES),
    "an __array__": OnlyArray,
    "a __dlpack__": OnlyDlpack,
    "iterator": lambda: iter(VALUES),
    "generator of lists": lambda: (row.tolist() for row in VALUES),
    "endless generator": lambda: (VALUES[k % 4] for k in itertools.count()),
    "one buffer, again and again": lambda: reused(),
    "iterable": Rows,
    "function": lambda: lambda t: VALUES[t],
    "function to JAX": lambda: lambda t: jnp.asarray(VALUES[t]),
}


def reused() -> Iterator[np.ndarray]:
    buffer = np.empty(2)
    for row in VALUES:
        buffer[:] = row
        yield buffer


class Sums:
    """s[t] = x[0] + ... + x[t], and the compiled programs, which tests share."""

    def __init__(self, streamed: bool):
        self.ctx = tp.Context("t")
        with self.ctx as ((t, T),):
            self.x = tp.input("x", (2,), domain=(t,), streamed=streamed)
            self.s = tp.recurrence((2,), domain=(t,), name="s")
            self.s[0] = self.x[0]
            self.s[t + 1] = self.s + self.x[t + 1]
            self.last = self.s[T - 1]
        self.bounds = {T: 4}
        self.programs: dict[str, tp.Program] = {}

    def program(self, setting: str) -> tp.Program:
        if setting not in self.programs:
            self.programs[setting] = self.ctx.compile(self.bounds, [self.s, self.last], SETTINGS[setting])
        return self.programs[setting]


SHARED = {streamed: Sums(streamed) for streamed in (False, True)}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("setting", ["staged", "numpy"])
@pytest.mark.parametrize("streamed", [False, True])
def test_every_way_to_feed_gives_the_same(way: str, setting: str, streamed: bool) -> None:
    program = SHARED[streamed].program(setting)
    assert_all_same(program.run({"x": WAYS[way]()}), [SUMS, SUMS[-1]])
    compiles = program.compiles
    assert_all_same(program.run({"x": VALUES * 2}), [SUMS * 2, SUMS[-1] * 2])
    assert program.compiles == compiles


@pytest.mark.torch
@pytest.mark.parametrize("streamed", [False, True])
def test_tensors_of_pytorch(streamed: bool) -> None:
    import torch

    program = SHARED[streamed].program("numpy")
    rows = torch.tensor(VALUES)
    for value in (rows, rows.to(torch.bfloat16), rows.double(), list(rows), iter(rows)):
        assert_all_same(program.run({"x": value}), [SUMS, SUMS[-1]])
    with pytest.raises(errors.InputError, match=r"use tensor\.detach\(\)"):
        program.run({"x": rows.requires_grad_()})


@every_setting
@pytest.mark.parametrize("streamed", [False, True])
def test_points_are_asked_for_in_their_order(setting: str, streamed: bool) -> None:
    ctx, points = tp.Context("i", "t"), []

    def value(i: int, t: int) -> int:
        points.append((i, t))
        return 10 * i + t

    with ctx as ((i, I), (t, T)):
        x = tp.input("x", (), "int32", domain=(t, i), streamed=streamed)
        case = Case(ctx, {I: 2, T: 3}, [x * 1, x[i, 0:T].sum(0)], [], {"x": value})
    expected = [np.array([[0, 1, 2], [10, 11, 12]], "int32"), np.array([3, 33], "int32")]
    assert_all_same(compiled(case, SETTINGS[setting]), expected)
    assert points == [(a, b) for a in range(2) for b in range(3)]
    assert_all_same(evaluated(case), expected)


# -- streams ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", ["staged", "numpy"])
def test_a_stream_is_read_as_the_loop_goes(setting: str) -> None:
    ctx, log = tp.Context("t"), []

    def rows() -> Iterator[float]:
        for k in range(4):
            log.append(f"fed {k}")
            yield float(k)

    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,), streamed=True)
        (seen,) = tp.udf(lambda v: (log.append(f"seen {v}") or v,), x * 2, outputs=[tp.spec()], kind="host", stateful=True)
    ctx.run({T: 4}, [seen], {"x": rows()}, SETTINGS[setting])
    assert log == [line for k in range(4) for line in (f"fed {k}", f"seen {2.0 * k}")]


def test_what_a_stream_needs_does_not_grow_with_its_length() -> None:
    shared = SHARED[True]
    (bound,) = shared.bounds
    plans = [shared.ctx.compile({bound: length}, [shared.last]).plan() for length in (4, 4_000_000)]
    assert [plan.bytes for plan in plans] == [3 * 8] * 2
    collected = SHARED[False]
    assert collected.ctx.compile({next(iter(collected.bounds)): 4}, [collected.last]).text() == "s\noutput 0"  # a scan, at once


def test_a_long_stream_leaves_no_values_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    from tempo_core.runtime.interpreted.stores import Stores

    shared, kept = SHARED[True], []
    put = Stores.put
    monkeypatch.setattr(Stores, "put", lambda self, *args: (put(self, *args), kept.append(self.count()))[0])
    (bound,) = shared.bounds
    last = shared.ctx.run({bound: 300}, shared.last, {"x": itertools.repeat((1.0, 2.0))}, NUMPY)
    assert last.tolist() == [300, 600]
    assert len(kept) > 600
    assert max(kept) < 8


@every_setting
def test_what_reads_the_future_of_a_stream_waits_for_it(setting: str) -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,), streamed=True)
        case = Case(ctx, {T: 4}, [x[t:T].sum(0), x - x[T - 1 - t], x[tp.min(t + 1, T - 1)] * x], [], {"x": lambda t: t + 1.0})
    expected = [np.array(v, "float32") for v in ([10, 9, 7, 4], [-3, -1, 1, 3], [2, 6, 12, 16])]
    assert_all_same(compiled(case, SETTINGS[setting]), expected)
    assert_all_same(evaluated(case), expected)


@every_setting
def test_streams_have_gradients(setting: str) -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,), streamed=True, requires_grad=True)
        loss = (x * x)[0:T].sum(0)
        loss.backward()
        case = Case(ctx, {T: 3}, [loss, x.grad], [], {"x": iter([1.0, 2.0, 3.0])})
    assert_all_same(compiled(case, SETTINGS[setting]), [np.float32(14), np.array([2, 4, 6], "float32")])


def test_a_stream_that_no_output_needs_is_not_read() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        tp.input("x", domain=(t,), streamed=True)
        y = tp.input("y", domain=(t,))
    rows = iter([1.0, 2.0])
    assert_all_same(ctx.run({T: 2}, [y * 2], {"x": rows, "y": [1.0, 2.0]}, NUMPY), [np.array([2, 4], "float32")])
    assert_all_same(ctx.run({T: 2}, [y * 2], {"y": [1.0, 2.0]}, NUMPY), [np.array([2, 4], "float32")])
    assert next(rows) == 1.0


def test_an_iterator_goes_on_where_the_last_run_left_it() -> None:
    program, rows = SHARED[True].program("numpy"), (np.full(2, k) for k in itertools.count())
    assert [program.run({"x": rows})[1].tolist() for _ in range(2)] == [[6, 6], [22, 22]]
    again = Rows()
    assert [program.run({"x": again})[1].tolist() for _ in range(2)] == [[12, 16]] * 2


# -- errors -----------------------------------------------------------------------------------------------------------


def endless() -> Iterator[Any]:
    yield from (np.zeros(2) for _ in itertools.count())


WRONG: dict[str, tuple[Any, str, str | None]] = {
    "too short": (lambda: iter(VALUES[:3]), "ended at t = 3, after 3 of 4 values", "give one value for each point"),
    "empty": (lambda: iter([]), "ended at t = 0, after 0 of 4 values", "give one value for each point"),
    "another shape": (
        lambda: iter([np.zeros(2), np.zeros(3)]),
        r"has shape \(3,\) at t = 1, but each value must be float32\[2\]",
        None,
    ),
    "complex": (
        lambda: lambda t: np.zeros(2, "complex64"),
        "has dtype complex64 at t = 0, but its declared dtype is float32",
        None,
    ),
    "words": (lambda: iter(["ab", "cd"]), r"has shape \(\) at t = 0", None),
    "ragged": (lambda: iter([[1.0, [2.0]]]), "is not an array at t = 0", "give an array of shape (2,) and dtype float32"),
    "raises": (lambda: lambda t: [1, 2][t] / 0, "failed at t = 0: ZeroDivisionError: division by zero", None),
    "takes no steps": (lambda: lambda: 1.0, "failed at t = 0: TypeError: .*unexpected keyword argument 't'", None),
    "a dict": (
        lambda: {"a": 1},
        "is of type dict, not an array",
        "give an array of shape (4, 2), an iterator, or a function of the steps",
    ),
    "a word": (
        lambda: "abc",
        "is of type str, not an array",
        "give an array of shape (4, 2), an iterator, or a function of the steps",
    ),
    "ragged lists": (lambda: [[1.0], [2.0, 3.0]], "is not an array", "give an array of shape (4, 2) and dtype float32"),
    "bytes": (
        lambda: b"abc",
        "is of type bytes, not an array",
        "give an array of shape (4, 2), an iterator, or a function of the steps",
    ),
    "nothing": (lambda: None, "is None, not an array", "give an array of shape (4, 2), an iterator, or a function of the steps"),
    "one row": (
        lambda: np.zeros(2),
        r"has shape \(2,\), but its declared type float32\[T, 2\] needs the shape \(4, 2\)",
        None,
    ),
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("what", WRONG)
def test_what_does_not_fit_is_named_with_its_point(what: str, streamed: bool) -> None:
    make, text, hint = WRONG[what]
    program = SHARED[streamed].program("numpy")
    with pytest.raises(errors.InputError, match=f"the input `x` {text}") as raised:
        program.run({"x": make()})
    assert (raised.value.hint or "").startswith(hint or "")
    assert "test_inputs.py" in raised.value.where
    assert_all_same(program.run({"x": VALUES}), [SUMS, SUMS[-1]])  # the failed run has no effect on the next one


def test_an_error_of_the_users_own_is_the_cause() -> None:
    with pytest.raises(errors.InputError) as raised:
        SHARED[True].program("numpy").run({"x": lambda t: VALUES[t + 2]})
    assert isinstance(raised.value.__cause__, IndexError)
    assert "at t = 2" in str(raised.value)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_a_staged_run_that_is_interrupted_can_be_repeated(error: type[BaseException]) -> None:
    ctx, seen = tp.Context("t"), []
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,), streamed=True)
        h = tp.recurrence((), domain=(t,), name="h")
        h[0] = x[0]
        h[t + 1] = h * 2 + x[t + 1]
        tp.sink(lambda value, t: seen.append((t, float(value))), h)
        program = ctx.compile({T: 4}, [h])

    def interrupted(t: int) -> float:
        if t == 2:
            raise error("stop")
        return 1.0

    for _ in range(2):
        with pytest.raises((error, errors.InputError), match="stop"):
            program.run({"x": interrupted})
        assert seen == [(0, 1.0)][: error is MemoryError]  # an interrupt does not wait for values on their way
        seen.clear()
    assert_all_same(program.run({"x": itertools.repeat(1.0)}), [np.array([1, 3, 7, 15], "float32")])
    assert seen == [(0, 1.0), (1, 3.0), (2, 7.0), (3, 15.0)]


def test_names_are_checked() -> None:
    program = SHARED[False].program("numpy")
    with pytest.raises(errors.InputError, match="no input `X`") as raised:
        program.run({"X": VALUES})
    assert raised.value.hint == "its inputs are x"
    with pytest.raises(errors.InputError, match="inputs must be a dict from names to values, not list"):
        program.run([VALUES])  # type: ignore[arg-type]
    with pytest.raises(errors.InputError, match="the input `x` is missing"):
        program.run()


def test_declarations_that_make_no_sense() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        w = tp.input("w")
        with pytest.raises(errors.TempoError, match="the streamed input `x` has no domain"):
            tp.input("x", streamed=True)
        with pytest.raises(
            errors.ShapeError, match=r"the input `x` has the size t \+ 1, but the size of an input must not vary with a step"
        ):
            tp.input("x", (t + 1,), domain=(t,))
        with pytest.raises(errors.TempoError, match="this context has an input `w` already"):
            tp.input("w", domain=(t,), streamed=True)
    with pytest.raises(errors.InputError, match="`w` has no domain, so it takes one array; this value is of type function"):
        ctx.run({T: 1}, [w * 1], {"w": lambda: 1.0}, NUMPY)


# -- descriptions -----------------------------------------------------------------------------------------------------


def test_a_program_tells_its_inputs() -> None:
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        x = tp.input("x", (3, T), domain=(i,))
        n = tp.input("n", (), "int32", domain=(i, t), streamed=True)
        tp.input("unused")
        program = ctx.compile({I: 2, T: 5}, [x.sum() + n], NUMPY)
    assert list(map(str, program.inputs.values())) == ["x: float32[3, 5] over i < 2", "n: int32[] over i < 2, t < 5, streamed"]
    spec = program.inputs["x"]
    assert (spec.declared, spec.whole, spec.steps, spec.dtype) == ("float32[I, 3, T]", (2, 3, 5), ("i",), "float32")
    assert isinstance(T, Expr)
    assert "test_inputs.py" in spec.where
