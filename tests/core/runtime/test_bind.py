"""Inputs that are bound once: runs take the others, and nothing of the bound ones is copied or checked again."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import jax
import numpy as np
import pytest

import tempo_core as tp
from tempo_core import errors, prices
from tests.core.runtime.test_live import EXECUTORS

X = np.random.default_rng(0).normal(size=(5, 3)).astype("float32")
W = np.random.default_rng(1).normal(size=(2, 3, 3)).astype("float32")


def layers(config: tp.Config) -> tuple[tp.Program[Any], Any]:
    """A recurrence of two layers of weights, over time."""
    ctx = tp.Context("t", "l")
    with ctx as ((t, T), (l, L)):
        x, w = tp.input("x", (3,), domain=(t,)), tp.input("w", (3, 3), domain=(l,))
        unread = tp.input("unread", (2,))
        h = tp.recurrence((3,), domain=(t, l), name="h")
        h[t, 0] = tp.tanh(x @ w[0])
        h[0, l] = tp.tanh(h[0, l - 1] @ w)
        h[t, l] = tp.tanh(h[t, l - 1] @ w + h[t - 1, l])
        del unread
    return ctx.compile({T: 5, L: 2}, h, config), T


@pytest.mark.parametrize("executor", EXECUTORS)
def test_values(executor: str) -> None:
    program, T = layers(EXECUTORS[executor])
    whole = program.run({"x": X, "w": W})
    weights = W.copy()
    bound = program.bind({"w": weights, "unread": np.zeros(2)})
    assert list(bound.inputs) == ["x"] and list(program.inputs) == ["x", "w"]
    weights[...] = 0.0  # the caller's array is the caller's
    np.testing.assert_array_equal(bound.run({"x": X}), whole)
    np.testing.assert_array_equal(bound.bind({"x": X}).run(), whole)
    np.testing.assert_array_equal(bound.start({"x": X}).finish(), whole)
    shorter = bound.with_bounds({T: 3})
    np.testing.assert_array_equal(shorter.run({"x": X[:3]}), program.with_bounds({T: 3}).run({"x": X[:3], "w": W}))


def test_device_programs_are_shared() -> None:
    program, _ = layers(tp.Config())
    program.bind({"w": W}).run({"x": X})
    compiles = program.compiles
    assert compiles
    program.bind({"w": W * 2}).run({"x": X})
    program.run({"x": X, "w": W})
    assert program.compiles == compiles


def test_arrays_of_the_device_and_read_only_arrays_are_not_copied(tmp_path: Path) -> None:
    program, _ = layers(tp.Config(disable=("unroll",)))
    device = jax.numpy.asarray(W)
    assert program.bind({"w": device})._inputs.prepared["w"] is device
    file = np.memmap(tmp_path / "w", "float32", "w+", shape=W.shape)
    file[...] = W
    file.flush()
    mapped = np.memmap(tmp_path / "w", "float32", "r", shape=W.shape)
    bound = program.bind({"w": mapped})
    assert bound._inputs.arrays["w"].base is not None and np.shares_memory(bound._inputs.arrays["w"], mapped)
    np.testing.assert_array_equal(bound.run({"x": X}), program.run({"x": X, "w": W}))


def test_weights_of_layers_that_are_written_out_are_split_once() -> None:
    with patch.multiple(prices, LEAST_SECONDS_OF_COPIES=0.0):
        program, _ = layers(tp.Config())
        bound = program.bind({"w": W})
        parts = bound._inputs.prepared["w"]
        assert [part.shape for part in parts] == [(3, 3)] * 2
        np.testing.assert_array_equal(bound.run({"x": X}), program.run({"x": X, "w": W}))


def test_a_bound_run_is_saved_and_resumed(tmp_path: Path) -> None:
    program, _ = layers(tp.Config())
    bound = program.bind({"w": W})
    run = bound.start({"x": X})
    run.advance()
    path = run.save(tmp_path / "state")
    expected = run.finish()
    np.testing.assert_array_equal(bound.resume(path).finish(), expected)
    np.testing.assert_array_equal(program.resume(path).finish(), expected)
    with pytest.raises(errors.StateError, match=r"the input `w` is not the one of the saved run"):
        program.bind({"w": W + 1}).resume(path)


def test_what_cannot_be_bound() -> None:
    program, _ = layers(tp.Config())
    bound = program.bind({"w": W})
    with pytest.raises(errors.InputError, match=r"no input `y`\n[\s\S]*its inputs are .*\bx\b"):
        program.bind({"y": W})
    with pytest.raises(errors.InputError, match=r"the input `w` is bound already"):
        bound.run({"x": X, "w": W})
    with pytest.raises(errors.InputError, match=r"the input `w` is bound already"):
        bound.bind({"w": W})
    with pytest.raises(errors.InputError, match=r"the input `x` is missing"):
        bound.run()
    with pytest.raises(errors.InputError, match=r"no input `v`"):
        program.bind({"v": W})
    with pytest.raises(errors.InputError, match=r"has shape \(3, 3\)"):
        program.bind({"w": W[0]})
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,), streamed=True)
    with pytest.raises(errors.InputError, match=r"is streamed, and cannot be bound"):
        ctx.compile({T: 2}, x).bind({"x": iter([1.0, 2.0])})


# -- arrays that a run may have for itself ------------------------------------------------------------------------------


def doubling(config: tp.Config) -> tp.Program[Any]:
    """The next state of a large array, and a sum over what it was."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        state, x = tp.input("state", (64, 64)), tp.input("x", (64, 64), domain=(t,))
        s = tp.recurrence((64, 64), domain=(t,), name="s")
        s[0] = state
        s[t + 1] = tp.tanh(s @ x)
    return ctx.compile({T: 5}, {"next": s[T - 1], "sum": state.sum()}, config)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_donated_arrays_are_deleted_and_results_are_equal(executor: str) -> None:
    program = doubling(EXECUTORS[executor])
    random = np.random.default_rng(0)
    state, x = random.normal(size=(64, 64)).astype("float32"), random.normal(size=(5, 64, 64)).astype("float32")
    kept, given = jax.numpy.array(state), jax.numpy.array(state)
    expected = program.run({"state": kept, "x": x})
    results = program.run({"state": given, "x": x}, donate=("state",))
    for name in expected:
        np.testing.assert_array_equal(results[name], expected[name])
    assert given.is_deleted() and not kept.is_deleted()
    with pytest.raises((RuntimeError, ValueError), match="deleted"):  # JAX raises either
        program.run({"state": given, "x": x})
    again = program.run({"state": jax.numpy.array(state), "x": jax.numpy.array(x)}, donate=("x", "state"))
    np.testing.assert_array_equal(again["next"], expected["next"])


def test_a_device_program_writes_into_donated_memory() -> None:
    program = doubling(tp.Config())
    compiles = program.compile().compiles
    for _ in range(2):
        program.run({"state": jax.numpy.ones((64, 64)), "x": np.ones((5, 64, 64), "float32")}, donate=("state",))
    donor = program._programs.of(donated=frozenset({"state"}))
    assert donor.compiles == 1 and program.compiles == compiles + 1
    (segment,), (plain,) = donor.segments, program._staged.segments  # type: ignore[union-attr]
    assert segment.donated == ("state",)
    assert segment.compiled.memory_analysis().alias_size_in_bytes == 64 * 64 * 4  # type: ignore[union-attr]
    assert plain.compiled.memory_analysis().alias_size_in_bytes == 0  # type: ignore[union-attr]


def test_arrays_that_several_launches_read_are_deleted_after_the_last_one() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (3,))
        h = tp.recurrence((3,), domain=(t,), name="h")
        h[0] = x
        (seen,) = tp.udf(lambda value: (value * 2,), h, outputs=[tp.spec((3,))], kind="host", name="seen")
        h[t + 1] = seen + x
    program = ctx.compile({T: 4}, h)
    given = jax.numpy.ones((3,))
    np.testing.assert_array_equal(program.run({"x": given}, donate=["x"])[:, 0], [1, 3, 7, 15])
    assert given.is_deleted() and not any(segment.donated for staged in program._programs for segment in staged.segments)


@pytest.mark.parametrize(
    ("config", "inputs", "donate", "text"),
    [
        (
            {},
            {"state": np.ones((64, 64), "float32")},
            ("state",),
            "is of type ndarray, but only an array on the device can be donated",
        ),
        ({}, {}, ("states",), "the program has no input `states` to donate"),
        ({}, {}, ("x",), "the input `x` is bound, and cannot be donated"),
        ({"check_numerics": True}, {}, ("state",), "the input `state` is read again by check_numerics, and cannot be donated"),
        ({}, {}, "state", "donate"),
    ],
)
def test_what_cannot_be_donated(config: dict[str, Any], inputs: dict[str, Any], donate: Any, text: str) -> None:
    program = doubling(tp.Config(**config)).bind({"x": np.ones((5, 64, 64), "float32")})
    with pytest.raises(errors.TempoError, match=text):
        program.run({"state": jax.numpy.ones((64, 64)), **inputs}, donate=donate)


def test_a_jax_function_has_the_donation_of_jax() -> None:
    function = doubling(tp.Config()).as_jax(carry={"next": "state"})
    step = jax.jit(function, donate_argnums=0)
    x = np.ones((5, 64, 64), "float32")
    state = function.init({"state": np.full((64, 64), 0.01, "float32")})
    expected, _ = function(state, {"x": x})
    following, _ = step(state, {"x": x})
    np.testing.assert_allclose(following.carried["state"], expected.carried["state"], rtol=1e-6)
    assert state.carried["state"].is_deleted() and not following.carried["state"].is_deleted()
