"""Exceptions of a user's function: chained, with a name and a line; and the program runs again afterwards."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import tempo_core as tp
from tempo_core import errors
from tempo_core.runtime.live import executors, state_file
from tempo_core.runtime.staged import run as staged_run

SETTINGS = {"staged": tp.Config(), "numpy": tp.Config(backend="numpy"), "interpreted": tp.Config(executor="interpreted")}
FED = {"x": np.arange(4.0)}
Made = tuple[tp.Program, dict[str, Any], list[Any]]


@pytest.fixture(params=SETTINGS)
def config(request: pytest.FixtureRequest) -> tp.Config:
    return SETTINGS[request.param]


def counter(config: tp.Config) -> Made:
    """A program whose state depends on a host function `step`, which raises `plan["raises"]` at t = 2, and goes to a sink."""
    plan: dict[str, Any] = {"raises": None}
    seen: list[Any] = []

    def step(value: np.ndarray) -> tuple[np.ndarray]:
        if plan["raises"] is not None and value == 2:
            raise plan["raises"]
        return (value * 2,)

    def log(value: np.ndarray, t: int) -> None:
        if plan.get("sink") is not None and t == 2:
            raise plan["sink"]
        seen.append((t, float(value)))

    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,))
        (doubled,) = tp.udf(step, x, outputs=[tp.spec()], kind="host", stateful=True, name="step")
        total = tp.recurrence((), domain=(t,), name="total")
        total[0] = doubled[0]
        total[t] = total[t - 1] + doubled
        tp.sink(log, total, name="log")
    return ctx.compile({T: 4}, outputs=[total], config=config), plan, seen


@pytest.mark.parametrize("who", ["raises", "sink"])
def test_the_users_exception_is_the_cause(config: tp.Config, who: str) -> None:
    program, plan, _ = counter(config)
    plan[who] = OSError("no such door")
    with pytest.raises(errors.FunctionError) as caught:
        program.run(FED)
    assert caught.value.__cause__ is plan[who]
    what = "user-defined function `step`" if who == "raises" else "sink `log`"
    assert caught.value.message == f"the {what} raised OSError at t = 2: no such door"


@pytest.mark.parametrize("raised", [ValueError("wrong"), KeyboardInterrupt(), SystemExit(3), MemoryError("full")], ids=repr)
@pytest.mark.parametrize("who", ["raises", "sink"])
def test_a_program_runs_again_after_an_exception(config: tp.Config, who: str, raised: BaseException) -> None:
    """Interrupts are not wrapped; after any exception in the middle of a run, the next run starts from the beginning."""
    program, plan, seen = counter(config)
    (expected,) = program.run(FED)
    calls = list(seen)
    plan[who] = raised
    expected_type = errors.FunctionError if isinstance(raised, Exception) else type(raised)
    with pytest.raises(expected_type):
        program.run(FED)
    plan[who] = None
    seen.clear()
    np.testing.assert_array_equal(program.run(FED)[0], expected)
    assert seen == calls == [(0, 0.0), (1, 2.0), (2, 6.0), (3, 12.0)]


def test_sinks_get_what_was_computed_before_an_error_and_nothing_after_their_own() -> None:
    program, plan, seen = counter(tp.Config())
    plan["raises"] = ValueError("wrong")
    with pytest.raises(errors.FunctionError):
        program.run(FED)
    assert seen == [(0, 0.0), (1, 2.0)]
    seen.clear()
    plan.update(raises=None, sink=ValueError("full"))
    with pytest.raises(errors.FunctionError):
        program.run(FED)
    assert seen == [(0, 0.0), (1, 2.0)]


def test_no_sink_is_called_after_an_interrupt() -> None:
    program, plan, seen = counter(tp.Config())
    plan["raises"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        program.run(FED)
    assert len(seen) <= 2  # the values delivered before the interrupt


def one(fn: Callable[..., Any], config: tp.Config, **options: Any) -> Any:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,))
        (y,) = tp.udf(fn, x, outputs=[tp.spec()], name="fn", **options)
        out = (y * 2 + 1).named("out")
    return ctx.run({T: 4}, outputs=[out], inputs=FED, config=config)


def test_a_traced_function_that_fails_is_located_where_it_is_declared(config: tp.Config) -> None:
    """The same for a function inside an island of fused operations."""

    def fails(value: Any) -> Any:
        raise KeyError("missing")

    with pytest.raises(errors.FunctionError, match="the user-defined function `fn` raised KeyError: 'missing'") as caught:
        one(fails, config)
    assert "tp.udf(fn, x, outputs=[tp.spec()]" in str(caught.value)
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize(
    ("fn", "hint"),
    [
        (lambda v: (float(v),), "jnp.where or jax.lax.cond"),
        (lambda v: (v if v > 0 else -v,), "jnp.where or jax.lax.cond"),
        (lambda v: (np.tanh(np.asarray(v)),), "jax.numpy instead of numpy"),
    ],
)
def test_what_cannot_be_traced_has_a_hint(fn: Callable[..., Any], hint: str) -> None:
    with pytest.raises(errors.FunctionError) as caught:
        one(fn, tp.Config())
    assert hint in str(caught.value.hint)


def test_a_tempo_error_of_a_function_has_the_functions_line_too() -> None:
    with pytest.raises(errors.FunctionError, match="raised ContextError") as caught:
        one(lambda v: (tp.zeros(()) + v,), tp.Config(backend="numpy"), kind="host")
    assert isinstance(caught.value.__cause__, errors.TempoError)


# -- memory -----------------------------------------------------------------------------------------------------------


def test_a_device_without_memory_is_an_error_with_the_largest_tensors() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        h = tp.recurrence((10**9,), domain=(t,), name="h")
        h[0] = 1.0
        h[t + 1] = h * 0.5 + t
    program = ctx.compile({T: 10**6}, outputs=[h])  # 4 PB, more than any address space has
    with pytest.raises(errors.OutOfMemoryError, match="more memory than there is") as caught:
        program.run()
    assert "h (result): float32" in caught.value.message
    assert re.search(r"bytes on the device, which has [0-9,]+: [0-9,]+ times smaller, it would fit", caught.value.message)
    assert isinstance(caught.value.__cause__, (MemoryError, jax.errors.JaxRuntimeError))


MESSAGES = [
    MemoryError("Unable to allocate 3.6 PiB for an array with shape (1000000, 1000000000) and data type float32"),
    jax.errors.JaxRuntimeError("INTERNAL: Failed to launch: Out of memory allocating 4000000 bytes.\n" + "a line of JAX\n" * 149),
]


@pytest.mark.parametrize("raised", MESSAGES, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("place", ["run", "start", "advance", "finish", "results", "state", "save"])
def test_too_little_memory_is_the_same_error_wherever_it_ends(
    place: str, raised: Exception, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        h = tp.recurrence((), domain=(t,), name="h")
        h[0] = tp.input("x", domain=(t,))[0]
        h[t + 1] = tp.tanh(h)
    program = ctx.compile({T: 4}, outputs=[h])
    run = program.start(FED)
    run.advance()

    def full(*_: Any, **__: Any) -> Any:
        raise raised

    if place in ("advance", "run", "start"):
        monkeypatch.setattr(staged_run.StagedProgram, "run", full)
        monkeypatch.setattr(executors.StagedExecutor, "settle", full)
    elif place == "save":
        monkeypatch.setattr(state_file.Snapshot, "write", full)
    else:
        monkeypatch.setattr(executors.StagedExecutor, "arrays" if place == "state" else "results", full)
    calls: dict[str, Any] = {
        "run": lambda: program.run(FED), "start": lambda: program.start(FED).advance(), "advance": run.advance, "finish": run.finish,
        "results": lambda: run.results, "state": lambda: run.state, "save": lambda: run.save(tmp_path / "s"),
    }  # fmt: skip
    with pytest.raises(errors.OutOfMemoryError, match=r"more memory than there is \(.*[0-9,]+ bytes on the") as caught:
        calls[place]()
    assert "a line of JAX" not in str(caught.value) and "float32" in caught.value.message and caught.value.hint
    assert caught.value.__cause__ is raised and caught.value.where.startswith(__file__)


def test_other_failures_of_the_device_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    program, _, _ = counter(tp.Config())

    def broken(*_: Any) -> Any:
        raise jax.errors.JaxRuntimeError("INTERNAL: the device is on fire")

    monkeypatch.setattr(program._staged, "run", broken)
    with pytest.raises(jax.errors.JaxRuntimeError, match="on fire"):
        program.run(FED)
