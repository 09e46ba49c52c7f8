"""Runs that live: they stop between iterations, show and save their state, and go on in another process, with the same results."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_core import errors
from tests.core.running import assert_same

EXECUTORS = {
    "staged": tp.Config(),
    "staged, short launches": tp.Config(launch_seconds=1e-6),
    "interpreted, JAX": tp.Config(executor="interpreted"),
    "interpreted, NumPy": tp.Config(backend="numpy"),
    "interpreted, no passes": tp.Config(backend="numpy", disable=("vectorize", "fuse", "lift")),
}
X = np.random.default_rng(0).normal(size=(6, 2)).astype("float32")


def learning(config: tp.Config, I: int = 4) -> tp.Program[Any]:
    """Weights that learn from a noisy recurrence, once an iteration."""
    ctx = tp.Context("i", "t")
    with ctx as ((i, n_i), (t, n_t)):
        x = tp.input("x", (2,), domain=(t,))
        w, h = tp.recurrence((2,), domain=(i,), name="w"), tp.recurrence((2,), domain=(i, t), name="h")
        w[0] = tp.full((2,), 0.5)
        h[i, 0] = x[0] * w
        h[i, t + 1] = tp.tanh(h * w + x[t + 1] + tp.random.normal((2,), domain=(i, t)) * 0.1)
        w[i + 1] = w * 0.9 + h[i, n_t - 1] * 0.1
        loss = h[i, 0:n_t].sum()
    return ctx.compile({n_i: I, n_t: 6}, {"loss": loss, "w": w}, config)


class Environment:
    """An environment with a hidden position, which is its state."""

    def __init__(self) -> None:
        self.position = np.zeros((), "float32")
        self.random = np.random.default_rng(7)

    def step(self, action: np.ndarray) -> tuple[np.ndarray]:
        self.position = (self.position * 0.5 + action + self.random.normal()).astype("float32")
        return (self.position,)

    def state(self) -> dict[str, Any]:
        words = np.frombuffer(json.dumps(self.random.bit_generator.state).encode(), np.uint8)
        return {"position": self.position, "random": words}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        self.position = np.asarray(arrays["position"], "float32")
        self.random.bit_generator.state = json.loads(arrays["random"].tobytes().decode())


def acting(config: tp.Config, step: Callable[..., Any], seen: Callable[..., Any] = lambda *_, **__: None) -> tp.Program[Any]:
    """A policy that plays in an environment on the host, and learns once an iteration; a sink sees the rewards."""
    ctx = tp.Context("i", "t")
    with ctx as ((i, n_i), (t, n_t)):
        bias = tp.input("bias", (), domain=(i,), streamed=True)
        w = tp.recurrence((), domain=(i,), name="w")
        w[0] = tp.full((), 0.25)
        observation = tp.recurrence((), domain=(i, t), name="observation")
        (reply,) = tp.udf(step, observation * w, outputs=[tp.spec()], kind="host", stateful=True, name="step")
        observation[i, 0] = bias
        observation[i, t + 1] = reply
        w[i + 1] = w + tp.tanh(reply[i, 0:n_t].mean()) * 0.1
        tp.sink(seen, reply, name="seen")
    return ctx.compile({n_i: 3, n_t: 4}, [w, reply], config)


def same(values: Any, others: Any, tolerance: float = 0.0) -> None:
    pairs = zip(values, others, strict=True) if isinstance(values, list) else ((values[k], others[k]) for k in others)
    for value, other in pairs:
        if tolerance:
            assert_same(value, other, tolerance)
        else:
            np.testing.assert_array_equal(value, other)


# -- going on ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_run_by_iterations_is_the_whole_run(executor: str, tmp_path: Path) -> None:
    """Stopped, saved and resumed at every place: the results are those of the run that was not stopped, bit for bit."""
    program = learning(EXECUTORS[executor])
    whole = program.run({"x": X}, seed=3)
    for step, count, number in ((None, 1, 4), ("t", 4, 5), ("t", 7, 3), ("i", 3, 2)):
        run = program.start({"x": X}, seed=3)
        stops = 0
        while not run.done:
            resumed = program.resume(run.save(tmp_path / "state"))
            run.advance(step, count)
            resumed.advance(step, count)
            assert resumed.done == run.done
            assert run.state.keys() == resumed.state.keys()
            for name, array in run.state.items():
                np.testing.assert_array_equal(resumed.state[name], array, err_msg=name)
            stops += 1
        ended = program.resume(run.save(tmp_path / "state"))
        assert ended.done
        same(ended.finish(), run.finish())
        assert stops == number or executor == "interpreted, no passes"  # which has more loops
        same(run.finish(), resumed.finish())
        same(run.finish(), whole, 1e-6)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_functions_streams_and_sinks_go_on(executor: str, tmp_path: Path) -> None:
    def fed() -> Iterator[float]:
        return iter([0.5, -1.0, 2.0])

    seen: list[float] = []
    environment = Environment()
    whole = acting(EXECUTORS[executor], environment.step).run({"bias": fed()})
    for stop in (1, 2):
        environment = Environment()
        seen.clear()
        program = acting(EXECUTORS[executor], environment.step, lambda reply, **_: seen.append(float(reply)))
        run = program.start({"bias": fed()})
        run.advance(count=stop)
        assert len(seen) == 4 * stop, "sinks have all values before a run stops"
        path = run.save(tmp_path / "state")
        environment.position += 100.0  # the environment of another process, which went elsewhere
        resumed = program.resume(path, {"bias": fed()})
        same(resumed.finish(), whole)
        assert len(seen) == 12


def test_the_callers_arrays_are_the_callers() -> None:
    program = learning(tp.Config())
    x = X.copy()
    run = program.start({"x": x}, seed=3)
    run.advance()
    x[...] = 0.0
    same(run.finish(), program.run({"x": X}, seed=3), 1e-6)


def test_results_so_far_and_state_have_names() -> None:
    for executor in ("staged", "interpreted, NumPy"):
        run = learning(EXECUTORS[executor]).start({"x": X}, seed=3)
        assert run.results == {"loss": None, "w": None} and not run.done
        run.advance(count=2)
        w, state = run.results["w"], run.state
        assert w.shape == (4, 2) and w[:2].all() and not w[3].any()
        assert state["seed"] == 3 and state["seed"].dtype == np.uint32
        assert any(name.startswith(("store/w", "store/next w")) for name in state)
        assert all(isinstance(array, np.ndarray) for array in state.values())
        run.finish()
        assert run.results["w"].all() and run.done
        run.advance()  # nothing is left
        assert run.done


def test_a_state_holds_what_is_alive(tmp_path: Path) -> None:
    """Between two iterations that learn, nothing of a rollout or of the first weights is read any more; within one, the rollout is."""
    program = learning(tp.Config(disable=("lift",)))
    outer, inner = program.start({"x": X}, seed=3), program.start({"x": X}, seed=3)
    outer.advance("i", 2)
    inner.advance("t", 7)

    def stores(run: tp.Run[Any]) -> set[str]:
        return {name for name, array in run.state.items() if name.startswith("store/") and array.size}

    assert not {name for name in stores(outer) if name.startswith("store/h")}
    assert {name for name in stores(inner) if name.startswith("store/h")}
    sizes = {name: run.save(tmp_path / name, inputs=False).stat().st_size for name, run in (("outer", outer), ("inner", inner))}
    whole = program.run({"x": X}, seed=3)
    for run in (outer, inner):
        same(run.finish(), whole)
    for name in sizes:
        same(program.resume(tmp_path / name, {"x": X}).finish(), whole)
    ended = outer.state  # the results alone are left
    assert not {name for name in ended if name.startswith("store/") and "w" not in name and "loss" not in name}, ended.keys()


def test_a_snapshot_stays_as_it_is_while_the_run_goes_on(tmp_path: Path) -> None:
    program = learning(tp.Config())
    run = program.start({"x": X}, seed=3)
    run.advance("i", 2)
    snapshot = run.snapshot()
    before = snapshot.encoded()
    whole = run.finish()
    snapshot.write(tmp_path / "s")
    for source in (snapshot, snapshot, tp.Snapshot.decoded(before), tmp_path / "s"):  # twice from the same one
        same(program.resume(source).finish(), whole)
    kept = tp.Snapshot.decoded(before).arrays
    assert snapshot.arrays.keys() == kept.keys() and all(np.array_equal(snapshot.arrays[name], kept[name]) for name in kept)
    for damaged in (before[:20], before[:-1], before[:-1] + bytes([before[-1] ^ 1]), b""):
        with pytest.raises(tp.errors.StateError, match=r"the state (\(\d+ bytes\) cannot be read|is damaged)"):
            tp.Snapshot.decoded(damaged)


@pytest.mark.parametrize("path", [3, None, b"run", ["run"]])
def test_what_is_no_path_is_refused(path: Any) -> None:
    program = learning(tp.Config())
    with pytest.raises(tp.errors.ArgumentError, match="is not a path"):
        program.resume(path)
    with pytest.raises(tp.errors.ArgumentError, match="is not a path"):
        program.start({"x": X}).save(path)


def test_a_state_into_nowhere_is_one_line_and_makes_no_directory(tmp_path: Path) -> None:
    snapshot = tp.Snapshot({}, {})
    with pytest.raises(tp.errors.StateError) as raised:
        snapshot.write(tmp_path / "none" / "state")
    where = f"{tmp_path / 'none'}"
    assert raised.value.message == f"the state cannot be written to {where}/state: there is no directory {where}"
    assert raised.value.hint == f"os.makedirs({where!r})" and not list(tmp_path.iterdir())


def test_a_program_without_loops_is_one_piece(tmp_path: Path) -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,))
        y = (x * 2.0)[0:T].sum()
    program = ctx.compile({T: 3}, y)
    run = program.start({"x": np.ones(3, "float32")})
    resumed = program.resume(run.save(tmp_path / "state"))
    run.advance()
    assert run.done and run.finish() == resumed.finish() == 6.0
    with pytest.raises(errors.StateError, match=r"no loop over `t`: all its points are computed at once"):
        program.start({"x": np.ones(3, "float32")}).advance(t, 2)
    with pytest.raises(errors.StateError, match=r"no loop over `t`"):
        program.start({"x": np.ones(3, "float32")}, by=t)


# -- refusals ---------------------------------------------------------------------------------------------------------


def test_wrong_steps_and_counts_are_refused() -> None:
    program = learning(tp.Config())
    run = program.start({"x": X})
    with pytest.raises(errors.StateError, match=r"has no step `k`"):
        run.advance("k")
    with pytest.raises(errors.StateError, match=r"at least one iteration, not by 0"):
        run.advance(count=0)
    run.advance()
    with pytest.raises(errors.StateError, match=r"between iterations of the outermost loops, not of `t`") as caught:
        run.advance("t")
    assert "by=t" in str(caught.value.hint)
    inner = program.start({"x": X}, by="t")
    inner.advance()  # an iteration of the outermost loop
    inner.advance("t", 2)
    assert not inner.done


@pytest.mark.slow
def test_a_saved_state_of_another_program_is_refused(tmp_path: Path) -> None:
    run = learning(tp.Config()).start({"x": X}, seed=1)
    run.advance()
    path = run.save(tmp_path / "state")
    with pytest.raises(errors.StateError, match=r"bound I is 5 here, and 4 in the file"):
        learning(tp.Config(), I=5).resume(path)
    with pytest.raises(errors.StateError, match=r"executor is interpreted with numpy here, and staged with jax in the file"):
        learning(tp.Config(backend="numpy")).resume(path)
    with pytest.raises(errors.StateError, match=r"passes that are switched off"):
        learning(tp.Config(disable=("fuse",))).resume(path)
    with pytest.raises(errors.StateError, match=r"the input `x` is not the one of the saved run"):
        learning(tp.Config()).resume(path, {"x": X + 1})
    with pytest.raises(errors.StateError, match=r"there is no file"):
        learning(tp.Config()).resume(tmp_path / "nothing")


def test_inputs_may_stay_outside_of_the_file(tmp_path: Path) -> None:
    program = learning(tp.Config())
    run = program.start({"x": X}, seed=1)
    run.advance()
    small, large = run.save(tmp_path / "small", inputs=False), run.save(tmp_path / "large")
    assert small.stat().st_size < large.stat().st_size
    with pytest.raises(errors.InputError, match=r"the input `x` is missing"):
        program.resume(small)
    with pytest.raises(errors.StateError, match=r"not the one of the saved run"):
        program.resume(small, {"x": X[::-1].copy()})
    same(program.resume(small, {"x": X}).finish(), run.finish())


@pytest.mark.parametrize("damage", ["truncated", "a changed byte", "empty", "text"])
def test_a_damaged_file_is_refused(damage: str, tmp_path: Path) -> None:
    program = learning(tp.Config())
    run = program.start({"x": X})
    run.advance()
    path = run.save(tmp_path / "state")
    data = bytearray(path.read_bytes())
    if damage == "a changed byte":
        data[-3] ^= 1
    path.write_bytes({"truncated": bytes(data[:-9]), "empty": b"", "text": b"not a state"}.get(damage, bytes(data)))
    with pytest.raises(errors.StateError, match=r"damaged|cannot be read"):
        program.resume(path)


def test_a_file_that_cannot_be_written_leaves_the_earlier_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = learning(tp.Config())
    run = program.start({"x": X})
    run.advance()
    path = run.save(tmp_path / "state")
    earlier = path.read_bytes()
    run.advance()

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(errors.StateError, match=r"cannot be written .*No space left"):
        run.save(path)
    assert path.read_bytes() == earlier and list(tmp_path.iterdir()) == [path]


def test_functions_that_do_not_say_their_state_cannot_be_saved(tmp_path: Path) -> None:
    program = acting(tp.Config(), lambda action: (np.asarray(action * 0.5, "float32"),))
    run = program.start({"bias": np.zeros(3, "float32")})
    run.advance()
    with pytest.raises(
        errors.StateError, match=r"the function `step` on the host is stateful, and does not say what its state is"
    ):
        run.save(tmp_path / "state")
    run.finish()


def test_a_run_that_failed_does_not_go_on(tmp_path: Path) -> None:
    calls = [0]

    def fails(action: np.ndarray) -> tuple[np.ndarray]:
        calls[0] += 1
        if calls[0] == 7:
            raise ValueError("the seventh call")
        return (action,)

    run = acting(tp.Config(), fails).start({"bias": np.zeros(3, "float32")})
    run.advance()
    with pytest.raises(errors.FunctionError, match=r"the seventh call"):
        run.advance()
    with pytest.raises(errors.StateError, match=r"has failed, and cannot go on"):
        run.advance()
    with pytest.raises(errors.StateError, match=r"has failed"):
        run.save(tmp_path / "state")


# -- other processes --------------------------------------------------------------------------------------------------

SCRIPT = textwrap.dedent("""
    import sys, numpy as np
    from tests.core.runtime.test_live import X, learning
    import tempo_core as tp
    from pathlib import Path
    program, path = learning(tp.Config(backend="numpy"), I=400), Path(sys.argv[1])
    run = program.resume(path) if path.exists() else program.start({"x": X}, seed=5)
    print("ready", flush=True)
    while not run.done:
        run.advance()
        run.save(path)
    np.save(sys.argv[2], run.finish()["w"])
""")


@pytest.mark.slow
def test_a_killed_process_leaves_a_state_to_go_on_from(tmp_path: Path) -> None:
    """Killed again and again, at any moment: each process goes on where the last saved state was."""
    path, out = tmp_path / "state", tmp_path / "w.npy"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
    for attempt in range(3):
        command = [sys.executable, "-c", SCRIPT, str(path), str(out)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            if attempt < 2:
                time.sleep(0.3 + 0.05 * attempt)
                process.send_signal(signal.SIGKILL)
            assert process.wait(120) == (-signal.SIGKILL if attempt < 2 else 0)
    expected = learning(tp.Config(backend="numpy"), I=400).run({"x": X}, seed=5)["w"]
    np.testing.assert_array_equal(np.load(out), expected)


def test_what_a_run_compiles_counts() -> None:
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        x = tp.recurrence((), domain=(i, t), name="x")
        x[i, 0] = tp.ones(()) * i
        x[i, t + 1] = x * 2.0
    program = ctx.compile({I: 2, T: 3}, x, tp.Config(cache=False, disable=("vectorize(t)", "vectorize(i)")))
    before = program.compiles, program.compile_seconds
    run = program.start(by=t)
    run.advance(t)
    assert program.compiles > before[0] and program.compile_seconds > before[1]
    compiles = program.compiles
    run.finish()
    program.start(by=t).finish()
    assert program.compiles >= compiles > 0
