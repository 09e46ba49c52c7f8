"""Profiles: all time has a row, rows have the users' names and lines, and what the program does is what it does without a profiler."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import tempo_core as tp
from tempo_core.errors import ArgumentError, ConfigError, InputError
from tempo_core.report.pages.trace import flame
from tempo_core.report.programs.profile import KINDS, LAUNCHING, OUTSIDE, PYTHON, Entry, Frame, Profile
from tempo_core.report.programs.timeline import CALL, OTHER_WORK

FED = {"x": np.linspace(-1, 1, 48).reshape(6, 8).astype("float32")}
CONFIGS = {
    "staged": tp.Config(),
    "interpreted": tp.Config(executor="interpreted"),
    "numpy": tp.Config(backend="numpy"),
    "in several launches": tp.Config(launch_seconds=0.0),
    "with a look at numerics": tp.Config(check_numerics=True),
}


def recurrence(calls: list[float] | None = None, sinks: list[float] | None = None, config: tp.Config | None = None) -> tp.Program:
    """h[t + 1] = tanh(h / 2 + x), its sums y, and with `calls` a function on the host of each sum."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (8,), domain=(t,))
        h = tp.recurrence((8,), domain=(t,), name="h")
        h[0] = x[0]
        h[t + 1] = (h * 0.5 + x[t + 1]).tanh()
        y = h.sum(0)
        if calls is not None:
            (twice,) = tp.udf(lambda v: (calls.append(float(v)) or v * 2,), y, outputs=[tp.spec(())], kind="host", name="twice")
        if sinks is not None:
            tp.sink(lambda v, t: sinks.append(float(v)), y)
    return ctx.compile({T: 6}, {"y": y if calls is None else twice}, config)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("on_host", [False, True], ids=["device", "host"])
def test_rows_add_up_to_the_run_and_to_the_costs(config: tp.Config, on_host: bool) -> None:
    program = recurrence([] if on_host else None, config=config)
    profile = program.profile(FED)
    np.testing.assert_array_equal(profile.results["y"], program.run(FED)["y"])
    cost = program.cost().numbers
    for by in KINDS:
        rows = profile.rows(by)
        assert sum(row.seconds for row in rows) == pytest.approx(profile.seconds, rel=1e-9)
        assert abs(sum(row.operations for row in rows) - cost["operations"]) <= len(rows)
        assert abs(sum(row.bytes_moved for row in rows) - cost["bytes_moved"]) <= len(rows)
    assert profile.plain_seconds is not None


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_rows_have_the_users_tensors_lines_and_loops(config: tp.Config) -> None:
    profile = recurrence([], config=config).profile(FED)
    tensors = {row.name: row for row in profile.rows("tensor")}
    assert {"h", "y", "twice", PYTHON} <= set(tensors)
    assert tensors["twice"].launches == 6
    lines = {row.name for row in profile.rows("line")}
    first = recurrence.__code__.co_firstlineno
    assert f"test_profile.py:{first + 6}" in lines, "the line of h[t + 1]"
    assert f"test_profile.py:{first + 7}" in lines, "the line of y"
    loops = {row.name: row for row in profile.rows("loop")}
    inside = [row for name, row in loops.items() if name.startswith("for t in ")]
    assert inside and sum(row.launches for row in inside) >= 5
    assert set(loops) - {row.name for row in inside} <= {OUTSIDE, PYTHON, OTHER_WORK}


def test_time_on_the_device_belongs_to_statements_in_their_loop() -> None:
    profile = recurrence().profile(FED)
    entries = [entry for entry in profile.entries if entry.name in ("h", "next h") and entry.seconds]
    assert {entry.loop for entry in entries} & {"for t in 0:5", "for t in 0:6"}
    assert {frame.text for entry in entries for frame in entry.path if frame.kind == "device program"} == {"device program 0"}
    assert all(entry.launches == 1 for entry in entries)


def test_a_program_runs_before_its_profile_only_if_nobody_sees_it() -> None:
    calls: list[float] = []
    recurrence(calls).profile(FED)
    assert len(calls) == 12, "a function without state: once to warm up, once for the profile"
    sinks: list[float] = []
    profile = recurrence(sinks=sinks).profile(FED)
    assert len(sinks) == 6
    assert profile.plain_seconds is None
    collected = recurrence().profile({"x": iter(FED["x"])})
    np.testing.assert_array_equal(collected.results["y"], profile.results["y"])


def test_values_that_are_fed_while_a_program_runs_have_a_row() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (), domain=(t,), streamed=True)
        h = tp.recurrence((), domain=(t,), name="h")
        h[0] = x[0]
        h[t + 1] = h + x[t + 1]
    program = ctx.compile({T: 4}, {"h": h})
    profile = program.profile({"x": iter(np.ones(4, "float32"))})
    np.testing.assert_array_equal(profile.results["h"], [1, 2, 3, 4])
    assert {row.name: row.launches for row in profile.rows("tensor")}["x"] >= 4
    assert [entry for entry in profile.entries if entry.source.startswith(CALL) and entry.name == "x" and entry.launches == 4]
    assert profile.plain_seconds is None, "an iterator gives its values once"


def test_a_profile_changes_nothing() -> None:
    program = recurrence()
    before = program.run(FED)["y"]
    compiled = program.compiles
    program.profile(FED)
    assert program.compiles == compiled
    np.testing.assert_array_equal(program.run(FED)["y"], before)
    again = program.profile(FED)
    assert {row.name for row in again.rows("loop")} == {row.name for row in program.profile(FED).rows("loop")}


def test_bound_inputs_stay_bound() -> None:
    program = recurrence().bind(FED)
    np.testing.assert_array_equal(program.profile().results["y"], program.run()["y"])


def test_mistakes() -> None:
    program = recurrence()
    with pytest.raises(InputError, match="`x`"):
        program.profile({})
    profile = program.profile(FED)
    with pytest.raises(ArgumentError, match="no rows by 'step'"):
        profile.rows("step")
    with pytest.raises(ConfigError, match=r"cannot draw the profile as profile\.pdf: only \.json is written"):
        profile.draw("profile.pdf")
    with pytest.raises(ConfigError, match=r"profile\.json cannot be written: there is no directory"):
        profile.draw("/nowhere/profile.json")


def test_a_profiler_that_records_nothing_leaves_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    program = recurrence()
    program.profile(FED)
    monkeypatch.setattr(jax.profiler, "TraceAnnotation", lambda name: nullcontext())
    profile = program.profile(FED)
    assert {row.name for row in profile.rows("tensor") if row.seconds} == {PYTHON}
    assert profile.seconds > 0


def test_two_profiles_at_a_time(tmp_path: Path) -> None:
    program = recurrence()
    jax.profiler.start_trace(str(tmp_path))
    try:
        with pytest.raises(ConfigError, match="JAX's profiler does not start"):
            program.profile(FED)
    finally:
        jax.profiler.stop_trace()
    assert program.profile(FED).seconds > 0


# -- tables and pictures ----------------------------------------------------------------------------------------------


@pytest.fixture
def fixed() -> Profile[Any]:
    """A profile with fixed times: an island with two lines, a kernel of two statements, a launch, and a function on the host."""
    loop, program = Frame("loop", "for t in 0:10"), Frame("device program", "device program 0")
    entries = (
        Entry((program, loop), "h", "model.py:3", "h, y", 0.004, "0", 1, "0 fusion"),
        Entry((program, loop), "y", "model.py:4", "h, y", 0.001, "0", 1, "0 fusion"),
        Entry((program,), "w", "model.py:2", "w", 0.0005, "0", 1),
        Entry((program,), LAUNCHING, "", "", 0.0005, "0", 1),
        Entry((loop,), "env.step", "model.py:9", "env.step", 0.002, f"{CALL}7", 10),
        Entry((), "z", "model.py:5", "z", 0.0),
        Entry((), PYTHON, "", "", 0.002),
    )
    counts = {"h, y": (1000, 5000), "w": (64, 256), "z": (3, 12), "env.step": (0, 80)}
    return Profile(None, 0.01, 0.008, 1.5, entries, counts)


def test_the_tables(fixed: Profile[Any], golden: Callable[[str, str], None]) -> None:
    golden("runtime/profile.txt", str(fixed))


def test_figures_of_a_statement_are_divided_among_its_rows(fixed: Profile[Any]) -> None:
    rows = {row.name: row for row in fixed.rows("tensor")}
    assert (rows["h"].operations, rows["y"].operations, rows["z"].operations) == (800, 200, 3)
    assert (rows["h"].is_divided, rows["w"].is_divided) == (True, False)
    assert rows["env.step"].launches == 10
    (loop,) = (row for row in fixed.rows("loop") if row.name == "for t in 0:10")
    assert (loop.operations, loop.is_divided) == (1000, False), "a loop holds the whole kernel"
    assert sum(row.bytes_moved for row in fixed.rows("line")) == 5000 + 256 + 12 + 80


def test_json(fixed: Profile[Any]) -> None:
    read = json.loads(fixed.to_json())
    assert read["seconds"] == 0.01
    assert [row["name"] for row in read["rows"]["loop"]] == ["for t in 0:10", PYTHON, OUTSIDE]
    assert read["entries"][0]["path"] == ["device program 0", "for t in 0:10"]


def test_the_flame_picture(fixed: Profile[Any], tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    path = tmp_path / "profile.json"
    fixed.draw(path)
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    golden("runtime/profile_trace.txt", "".join(f"{e['ts']:8.1f} {e['dur']:8.1f} us  {e['name']}\n" for e in events))
    assert [p.name for p in tmp_path.iterdir()] == ["profile.json"]
    bars = {event["name"]: event for event in events}
    program, whole = bars["device program 0"], bars["program"]
    assert whole["dur"] == pytest.approx(1e6 * fixed.seconds)
    assert program["dur"] == pytest.approx(0.6 * whole["dur"])
    for inner in ("h  model.py:3", "w  model.py:2", LAUNCHING):
        start, end = bars[inner]["ts"], bars[inner]["ts"] + bars[inner]["dur"]
        assert program["ts"] <= start < end <= program["ts"] + program["dur"] + 0.01


def test_bars_of_one_place_are_one_bar() -> None:
    stacks = [(["program", "f", "x"], 1.0), (["program", "g"], 4.0), (["program", "f", "y"], 2.0), (["program", "f", "x"], 3.0)]
    bars = [(event["name"], event["ts"], event["dur"]) for event in flame(stacks)]
    assert bars == [("program", 0, 10e6), ("f", 0, 6e6), ("x", 0, 4e6), ("y", 4e6, 2e6), ("g", 6e6, 4e6)]


@pytest.mark.gpu
def test_the_kernels_of_a_gpu_belong_to_statements() -> None:
    profile = recurrence().profile(FED)
    assert [e for e in profile.entries if e.seconds and e.statement and any(f.kind == "device program" for f in e.path)]
    assert sum(row.seconds for row in profile.rows("line")) == pytest.approx(profile.seconds, rel=1e-9)
