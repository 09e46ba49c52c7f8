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
    assert program.bind({"w": device})._bound["w"] is device
    file = np.memmap(tmp_path / "w", "float32", "w+", shape=W.shape)
    file[...] = W
    file.flush()
    mapped = np.memmap(tmp_path / "w", "float32", "r", shape=W.shape)
    bound = program.bind({"w": mapped})
    assert bound._arrays["w"].base is not None and np.shares_memory(bound._arrays["w"], mapped)
    np.testing.assert_array_equal(bound.run({"x": X}), program.run({"x": X, "w": W}))


def test_weights_of_layers_that_are_written_out_are_split_once() -> None:
    with patch.multiple(prices, LEAST_BYTES_TO_UNROLL=1):
        program, _ = layers(tp.Config())
        bound = program.bind({"w": W})
        parts = bound._bound["w"]
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
    with pytest.raises(errors.InputError, match=r"the input `w` is bound already"):
        bound.run({"x": X, "w": W})
    with pytest.raises(errors.InputError, match=r"the input `w` is bound already"):
        bound.bind({"w": W})
    with pytest.raises(errors.InputError, match=r"the input `x` is not given"):
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
