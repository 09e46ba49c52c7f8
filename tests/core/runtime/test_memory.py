"""The memory of a run: every tensor, the peaks with their places, table, JSON and picture; temporaries are XLA's figure, from one compilation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import tempo_core as tp
from tempo_core.runtime.staged.stage import Staged

SCORES = 200 * 200 * 4  # bytes


def traced() -> tuple[tp.Context, Any, Any]:
    """A program without stores between its device programs: two products, with a matrix of all pairs of points between them."""
    context = tp.Context("t")
    with context as ((t, T),):
        x = tp.input("x", (64,), domain=(t,))
        scores = tp.tanh(x[0:T] @ x).named("scores")
        y = (scores @ x[0:T]).named("y")
    return context, T, y


def pairs(limit: int | str | None = None, **options: Any) -> tp.Program[Any]:
    context, T, y = traced()
    return context.compile({T: 200}, {"y": y}, tp.Config(memory_limit=limit, **options))


def lengths(**options: Any) -> tp.Program[Any]:
    """The same program, of which each run chooses the number of points."""
    context, T, y = traced()
    return context.compile({T: tp.upto(200)}, {"y": y}, tp.Config(**options))


def rollouts(**options: Any) -> tp.Program[Any]:
    """Three device programs around a function on the host."""
    context = tp.Context("t")
    with context as ((t, T),):
        x = tp.recurrence((8, 8), domain=(t,), name="x")
        x[0] = 1.0
        (seen,) = tp.udf(lambda value: (value * 2,), tp.tanh(x @ x) @ x, outputs=[tp.spec((8, 8))], kind="host", name="seen")
        x[t + 1] = seen
    return context.compile({T: 5}, {"x": x}, tp.Config(**options))


def staged(program: tp.Program[Any]) -> Staged:
    assert program._staged is not None
    return program._staged


def xla_bytes(program: tp.Program[Any]) -> list[int]:
    """XLA's own figure of the temporaries of each device program."""
    compiled: list[Any] = [segment.compiled for segment in staged(program).segments]
    return [each.memory_analysis().temp_size_in_bytes for each in compiled]


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The programs that JAX compiles during a test, whoever asks for it."""
    compiled: list[Any] = []
    compile = jax.stages.Lowered.compile

    def counted(lowered: Any, *arguments: Any, **options: Any) -> Any:
        compiled.append(lowered)
        return compile(lowered, *arguments, **options)

    monkeypatch.setattr(jax.stages.Lowered, "compile", counted)
    return compiled


def test_the_plan_counts_inputs_results_and_temporaries() -> None:
    plan = pairs().plan()
    kinds = {tensor.kind for tensor in plan.usage.tensors}
    assert {"input", "result", "temporary"} <= kinds
    assert next(t for t in plan.usage.tensors if t.kind == "input" and t.place == "device").bytes == 200 * 64 * 4
    assert plan.peak_device_bytes >= SCORES > plan.bytes
    assert plan.peak_device.statement and "test_memory.py" in plan.peak_device.line
    assert plan.peak_device_bytes == sum(t.bytes for t in plan.usage.alive(plan.peak_device, "device"))
    assert plan.peak_host_bytes == 2 * 200 * 64 * 4  # the fed array and the result


@pytest.mark.parametrize("make", [pairs, lengths, rollouts])
def test_temporaries_are_the_figure_of_xla(make: Any) -> None:
    for program in (make(), make(disable=("vectorize",))):
        usage = program.plan().usage
        numbers = [at for at, moment in enumerate(usage.moments) if moment.name.startswith("device program")]
        temporaries = [sum(t.bytes for t in usage.tensors if t.kind == "temporary" and t.first == at) for at in numbers]
        assert temporaries == xla_bytes(program) and sum(temporaries) > 0
        assert all(moment.is_exact for moment in usage.moments)


@pytest.mark.cpu
def test_the_temporaries_of_all_devices_count() -> None:
    context = tp.Context("b")
    with context as ((b, B),):
        x, w = tp.input("x", (64,), domain=(b,)), tp.input("w", (64, 64))
        y = tp.tanh(x @ w) @ w
    program = context.compile({B: 64}, y, tp.Config(devices=4))
    (row,) = (tensor for tensor in program.plan().usage.tensors if tensor.kind == "temporary")
    assert [row.bytes] == [4 * bytes for bytes in xla_bytes(program)]


def test_the_temporaries_of_a_device_program_are_its_stores_and_one_row() -> None:
    plan = pairs().plan()
    (row,) = (t for t in plan.usage.tensors if t.kind == "temporary")
    assert row.name == "temporaries of device program 0" and row.line == plan.peak_device.line
    context = tp.Context("t")
    with context as ((t, T),):
        x = tp.recurrence((256,), domain=(t,), name="x")
        x[0] = tp.ones((256,))
        x[t + 1] = tp.tanh(x[tp.max(t - 3, 0) : t + 1].mean(0) + 0.5 * x)
    rows = [t for t in context.compile({T: 100}, x[T - 1]).plan().usage.tensors if t.kind == "temporary"]
    assert [(row.name, row.slots, row.bytes) for row in rows[:1]] == [("x", (4,), 4 * 1024)]


def test_the_run_after_a_plan_compiles_nothing(compilations: list[Any]) -> None:
    for make, count in ((pairs, 1), (rollouts, 3)):
        compilations.clear()
        program = make()
        plan = program.plan()
        assert plan.bytes >= 0 and plan.compiles == count and repr(program) and program.text("memory")
        assert compilations == [], "stores, device programs and the schedule need no compilation"
        first = plan.peak_device_bytes
        assert len(compilations) == program.compiles == count
        inputs = {"x": np.ones((200, 64), np.float32)} if make is pairs else None
        program.run(inputs)
        program.compile().run(inputs)
        assert program.plan().peak_device_bytes == first
        assert len(compilations) == program.compiles == count


def test_nothing_is_compiled_without_a_limit_or_a_plan(compilations: list[Any]) -> None:
    pairs()
    assert compilations == []
    program = pairs("1GiB")
    assert len(compilations) == 1
    program.run({"x": np.ones((200, 64), np.float32)})
    assert len(compilations) == program.compiles == 1


def test_a_plan_leaves_its_programs_in_the_cache(tmp_path: Path, compilations: list[Any]) -> None:
    first = pairs(cache=tmp_path).plan().peak_device_bytes
    assert len(compilations) == 1
    second = pairs("1GiB", cache=tmp_path)
    assert second.plan().peak_device_bytes == first
    second.run({"x": np.ones((200, 64), np.float32)})
    assert len(compilations) == 1 and second.loads == 1 and second.compiles == 0


def test_a_limit_is_compared_with_the_figure_of_xla() -> None:
    peak = pairs().plan().peak_device_bytes
    as_it_is, smaller = pairs(peak).choice, pairs(peak - 1).choice
    assert as_it_is is not None and not as_it_is.form.steps and as_it_is.others == ()
    assert smaller is not None and smaller.form.steps
    assert f"too large: as without a limit: {peak:,} bytes" in smaller.others[0]


def test_a_form_that_does_not_fit_without_temporaries_is_not_compiled(compilations: list[Any]) -> None:
    with pytest.raises(tp.errors.OutOfMemoryPlanError, match="bytes on the device, the smallest of") as error:
        pairs(102_399, swap="off")  # inputs and results alone take 102,400 bytes
    assert "memory_limit allows 102,399" in str(error.value) and "test_memory.py" in str(error.value)
    assert len(compilations) <= 2, "the two smallest forms, for the limit that would do"


def test_a_run_without_memory_says_what_it_needs_and_compiles_nothing(compilations: list[Any]) -> None:
    error = pairs().plan().out_of_memory("out of memory")
    assert compilations == [] and "temporaries of device program 0 (temporary): uint8[" in error.message
    usage = pairs().plan().count(False)
    (row,) = (t for t in usage.tensors if t.kind == "temporary")
    assert SCORES <= row.bytes <= 4 * SCORES
    assert not usage.moments[0].is_exact


def test_a_backend_that_does_not_say_gets_a_coarse_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax.stages.Compiled, "memory_analysis", lambda compiled: None)
    plan = pairs().plan()
    assert plan.peak_device_bytes >= SCORES and ", of which the temporaries are a coarse estimate" in plan.table()


def test_a_numpy_program_lives_on_the_host(compilations: list[Any]) -> None:
    plan = pairs(backend="numpy").plan()
    assert plan.peak_device_bytes == 0 and plan.peak_host_bytes >= SCORES
    with pytest.raises(tp.errors.OutOfMemoryPlanError, match="bytes on the host"):
        pairs("50kB", backend="numpy")
    assert compilations == []


def test_a_store_lives_from_the_launch_that_makes_it_to_the_end() -> None:
    plan = rollouts().plan()
    assert [str(moment) for moment in plan.usage.moments if "function" in str(moment)] == ["function seen, once each t"]
    end = len(plan.usage.moments) - 1
    assert all(tensor.last == end for tensor in plan.usage.tensors if tensor.kind in ("register", "window", "block"))
    assert plan.peak_host_bytes >= 2 * 8 * 8 * 4  # the operand and the result of the call


def test_json_and_trace_have_the_same_tensors(tmp_path: Path) -> None:
    plan = pairs().plan()
    read = json.loads(plan.json())
    assert read["peak_device_bytes"] == plan.peak_device_bytes
    assert read["moments"][read["peak_device_moment"]]["device_bytes"] == plan.peak_device_bytes
    assert {"name", "shape", "dtype", "kind", "slots", "bytes", "place", "first", "last", "line"} <= read["tensors"][0].keys()
    plan.draw(tmp_path / "memory.json")
    assert [path.name for path in tmp_path.iterdir()] == ["memory.json"]
    events = json.loads((tmp_path / "memory.json").read_text())["traceEvents"]
    in_all = [event["args"] for event in events if event["ph"] == "C"]
    assert in_all == [{"device": moment["device_bytes"], "host": moment["host_bytes"]} for moment in read["moments"]]
    of_tensors = [event for event in events if event["ph"] == "X" and event["tid"] > 1]
    assert len({event["tid"] for event in of_tensors}) == len(of_tensors), "tensors share a track"
    for at, moment in enumerate(read["moments"]):
        alive = [event["args"] for event in of_tensors if event["ts"] <= 1000 * at < event["ts"] + event["dur"]]
        assert sum(tensor["bytes"] for tensor in alive if tensor["place"] == "device") == moment["device_bytes"]
    assert {"input", "temporary", "result"} <= {event["args"]["kind"] for event in of_tensors}
    with pytest.raises(tp.errors.ConfigError, match=r"only \.json"):
        plan.draw(tmp_path / "memory.png")
    with pytest.raises(tp.errors.ConfigError, match=f"memory.json cannot be written: there is no directory {tmp_path}/none"):
        plan.draw(tmp_path / "none" / "memory.json")


def test_device_programs_of_a_step_that_is_not_there() -> None:
    plan = pairs().plan()
    assert plan.programs_per("") == plan.compiles == 1 and plan.programs_per("t") == 0
    for name in ("q", "t, q", "T"):
        with pytest.raises(tp.errors.ArgumentError, match=f"the program has no step `{name[-1]}`") as raised:
            plan.programs_per(name)
        assert raised.value.hint == "its steps are t"


def test_the_table_lists_what_is_in_memory_at_the_peak() -> None:
    short, full = pairs().text("peak"), pairs().text("peak", full=True)
    assert short.startswith("peak on the device: ") and "\npeak on the host: " in short
    assert "moments" in full and short.count("\n") < 40 and "estimate" not in short


@pytest.mark.parametrize("run", [False, True], ids=["compiled bounds", "bounds of a run"])
@pytest.mark.parametrize("options", [{}, {"executor": "interpreted"}, {"disable": ("vectorize",)}], ids=str)
def test_results_are_counted_with_the_points_that_they_have(options: dict[str, Any], run: bool) -> None:
    context = tp.Context("t", "s")
    with context as ((t, T), (s, S)):
        x = tp.input("x", (8,), domain=(t, s))
        h = tp.recurrence((8,), domain=(t, s), name="h")
        h[0, s] = x[0, s]
        h[t + 1, s] = tp.tanh(h[t, s] + x[t + 1, s])
        outputs = {
            "last": h[T - 1, S - 1],
            "row": h[T - 1],
            "all": h,
            "part": h[3:7, 0],
            "some": h[t, s, t > 3],
            "even": h[0:T:2, 0],
        }
    bounds = {T: tp.upto(50, at_least=7) if run else 50, S: 5}
    program = context.compile(bounds, outputs, tp.Config(**options))
    results = program.run({"x": np.zeros((50, 5, 8), np.float32)})
    counted = [tensor.bytes for tensor in program.plan().usage.tensors if tensor.kind == "result" and tensor.place == "host"]
    assert sorted(counted) == sorted(np.ma.getdata(results[name]).nbytes for name in outputs)
