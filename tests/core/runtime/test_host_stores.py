"""Values that live in the memory of the host, of which the device has a part: results, moves, bytes, files, and runs that stop."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_core import planner
from tempo_core.errors import ArgumentError, ConfigError, InputError
from tempo_core.runtime.cost.usage import ON_HOST, PART
from tempo_core.runtime.staged.host_store import HostStore
from tempo_core.runtime.staged.run import Host, Progress
from tempo_core.runtime.staged.swapping import Move
from tests import targets
from tests.cases import fast
from tests.core.passes.test_checkpoint import data, network
from tests.core.running import assert_all_same

LOOP = ("vectorize(t)",)


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    """Stores of any size move to the host."""
    with targets.numbers(launch=0.0):
        yield


def trained(T: int, **options: Any) -> tp.Program[Any]:
    ctx, bound, outputs = network()
    return ctx.compile({bound: T}, outputs, tp.Config(disable=LOOP, **options))


def normalised(T: int, **options: Any) -> tp.Program[Any]:
    """Mean, variance and normalised rows: three walks over the data, the last with a result a row."""
    ctx = tp.Context("t")
    with ctx as ((t, bound),):
        x = tp.input("x", (8,), domain=(t,))
        mean = x[0:bound].mean(0)
        variance = ((x - mean) ** 2)[0:bound].mean(0)
        y = (x - mean) / tp.sqrt(variance + 1e-6)
    return ctx.compile({bound: T}, {"mean": mean, "y": y}, tp.Config(**options))


def rows(T: int) -> np.ndarray:
    return np.random.default_rng(T).normal(size=(T, 8)).astype("float32")


IN_PARTS = {"host": {"t": 10}, "tile": {"t": 10}, "disable": LOOP}


def held(program: tp.Program[Any]) -> dict[str, tuple[int, int]]:
    """By tensor: the slots on the host, and the points of the part on the device."""
    assert program._staged is not None
    return {program.graph[node].name: (store.slots, store.points) for (node, _), store in program._staged.hosted.items()}


# -- results and moves ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("T", "part"), fast([(7, 1), (7, 3), (40, 10), (41, 10)], (7, 3), (41, 10)))
def test_back_propagation_with_states_on_the_host_has_the_same_bits(T: int, part: int) -> None:
    program = trained(T, host={"t": part})
    (slots, points), of_input = held(program)["h"], held(program)["x"]
    assert slots == of_input[0] == T and part <= points <= part + 1
    assert_all_same(program.run(data(T)), trained(T).run(data(T)), 0.0)


def test_a_part_is_as_large_as_the_reach_of_a_launch() -> None:
    """A window of five points that is read in each iteration, beside the point after it: ten iterations touch fifteen points."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (2,), domain=(t,))
        y = tp.recurrence((2,), domain=(t,), name="y")
        y[0] = x[0]
        y[t + 1] = tp.tanh(y * 0.5 + x[tp.max(t - 4, 0) : t + 1].mean(0))
    config = tp.Config(host={"t": 10}, disable=("vectorize", "lift", "shift"))
    program = ctx.compile({T: 60}, y, config)
    assert held(program)["x"] == (60, 15)
    x = np.random.default_rng(0).normal(size=(60, 2)).astype("float32")
    assert_all_same(program.run({"x": x}), ctx.compile({T: 60}, y).run({"x": x}), 1e-6)


def test_a_launch_has_all_points_of_a_loop_whose_length_is_a_rest() -> None:
    """The tiles of `x[i // 4 * 4:i + 1]` are `i % 4 + 1`."""
    ctx = tp.Context("i")
    with ctx as ((i, bound),):
        x = tp.input("x", (3,), domain=(i,))
        least = x[i // 4 * 4 : i + 1].min(0)
    config = tp.Config(host={"i": 1}, tile={"i": 1}, disable=("vectorize(i)",))
    program, data = (
        ctx.compile({bound: 6}, [least[0:bound]], config),
        np.random.default_rng(0).normal(size=(6, 3)).astype("float32"),
    )
    assert_all_same(program.run({"x": data}), [np.stack([data[k // 4 * 4 : k + 1].min(0) for k in range(6)])])


def test_what_a_launch_reads_as_a_whole_stays_on_the_device() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        h = tp.recurrence((2,), domain=(t,), name="h")
        h[0] = tp.ones((2,))
        h[t + 1] = tp.tanh(h[0 : t + 1].sum(0) * 0.1)
    program = ctx.compile({T: 50}, h[0:T].sum(0), tp.Config(host={"t": 10}, disable=("lift", "vectorize")))
    assert "h" not in held(program)


def test_values_of_functions_on_the_host_stay_there() -> None:
    def observed(x: np.ndarray) -> tuple[np.ndarray]:
        return (np.cos(x).astype("float32"),)

    def program(**options: Any) -> tp.Program[Any]:
        ctx = tp.Context("t")
        with ctx as ((t, T),):
            s = tp.recurrence((3,), domain=(t,), name="s")
            s[0] = tp.ones((3,))
            (o,) = tp.udf(observed, s, outputs=[tp.spec((3,))], kind="host", name="o")
            s[t + 1] = s * 0.9 + o
            back = tp.recurrence((3,), domain=(t,), name="back")
            back[T - 1] = o[T - 1]
            back[t] = tp.tanh(o * 0.5 + back[t + 1] * 0.9)
        return ctx.compile({T: 30}, [back, s], tp.Config(disable=LOOP, **options))

    parts = program(host={"t": 5})
    assert held(parts)["o"][0] == 30 and held(parts)["o"][1] < 30
    assert_all_same(parts.run(), program().run(), 0.0)


def test_a_written_part_moves_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward, states go to the host once and never to the device; backward, they come once and never go."""
    moves: list[tuple[str, int]] = []
    back, put = HostStore._back, HostStore._put
    monkeypatch.setattr(
        HostStore, "_back", lambda self, part, span: (moves.append(("back", span[1] - span[0])), back(self, part, span))[1]
    )
    monkeypatch.setattr(HostStore, "_put", lambda self, span: (moves.append(("put", span[1] - span[0])), put(self, span))[1])
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        h = tp.recurrence((4,), domain=(t,), name="h")
        h[0] = tp.ones((4,))
        h[t + 1] = tp.tanh(h * 0.9)
        g = tp.recurrence((4,), domain=(t,), name="g")
        g[T - 1] = h[T - 1]
        g[t] = tp.tanh(h + g[t + 1])
    program = ctx.compile({T: 80}, g[0], tp.Config(host={"t": 10}, disable=LOOP))
    assert set(held(program).values()) == {(80, 11)}
    program.run()
    assert 79 <= sum(count for kind, count in moves if kind == "back") <= 90
    assert 60 <= sum(count for kind, count in moves if kind == "put") <= 80  # the last part is there still


# -- bytes ------------------------------------------------------------------------------------------------------------


def test_live_bytes_are_those_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """After each launch: on the host what the plan says, on the device not more."""
    program = trained(60, host={"t": 7})
    tensors = program.plan().usage.tensors
    on_host = sum(tensor.bytes for tensor in tensors if tensor.kind == ON_HOST)
    seen: list[int] = []
    launch = Host._launch

    def watched(self: Host, segment: Any) -> Any:
        action = launch(self, segment)
        moment = self.staged.segments.index(segment)
        planned = sum(tensor.bytes for tensor in tensors if tensor.kind == PART and tensor.first <= moment <= tensor.last)

        def run(run: Progress) -> None:
            action(run)
            seen.append(sum(store.device_bytes for store in run.held.values()))
            assert sum(store.host_bytes for store in run.held.values()) == on_host
            assert seen[-1] <= planned

        return run

    monkeypatch.setattr(Host, "_launch", watched)
    program.run(data(60))
    assert len(seen) > 10 and max(seen) > 0
    assert program.plan().peak_device_bytes < trained(60).plan().peak_device_bytes / 2


def test_the_plan_names_what_is_on_the_host() -> None:
    lines = [line.split() for line in trained(60, host={"t": 7}).text("memory").splitlines()]
    stores = {tuple(cells[-3:]) for cells in lines if cells[0] == "h"}
    assert stores == {("host", "60", "2880"), ("part", "8", "384")}


# -- inputs and results in files --------------------------------------------------------------------------------------


def test_results_go_to_a_file(tmp_path: Path) -> None:
    x, path = rows(95), tmp_path / "y.npy"
    y = np.lib.format.open_memmap(path, "w+", np.float32, (95, 8))
    program = normalised(95, **IN_PARTS)
    assert held(program)["x"] == (95, 10) and held(program)["y"] == (95, 10)
    results = program.run({"x": x}, out={"y": y})
    assert results["y"] is y
    expected = normalised(95).run({"x": x})
    np.testing.assert_allclose(np.load(path), expected["y"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(results["mean"], expected["mean"], rtol=1e-5, atol=1e-6)


def test_out_takes_results_of_the_device_too() -> None:
    x, mean = rows(20), np.zeros(8, np.float32)
    results = normalised(20).run({"x": x}, out={"mean": mean})
    assert results["mean"] is mean
    np.testing.assert_allclose(mean, x.mean(0), atol=1e-6)


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ({"z": np.zeros(8, np.float32)}, "out names 'z', which is not a result"),
        ({"mean": np.zeros(7, np.float32)}, r"must be a NumPy array of shape \(8,\) and dtype float32"),
        ({"mean": np.zeros(8, np.float64)}, "dtype float32"),
        ({"mean": [0.0] * 8}, "must be a NumPy array"),
    ],
)
def test_an_array_that_does_not_fit(out: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        normalised(20).run({"x": rows(20)}, out=out)


class Slices:
    """Rows of a file, as safetensors gives them."""

    def __init__(self, rows: np.ndarray, dtype: str = "float32"):
        self.rows, self.asked = rows.astype(dtype), []  # type: ignore[var-annotated]

    def get_shape(self) -> list[int]:
        return list(self.rows.shape)

    def __getitem__(self, place: Any) -> np.ndarray:
        (rows,) = place
        self.asked.append(rows.stop - rows.start)
        return self.rows[place]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16"])
def test_what_gives_slices_is_read_slice_by_slice(dtype: str) -> None:
    slices = Slices(rows(50) * 8, dtype)
    results = normalised(50, **IN_PARTS).run({"x": slices})
    assert max(slices.asked) <= 10 and sum(slices.asked) <= 3 * 50 + 20
    np.testing.assert_allclose(results["mean"], slices.rows.astype("float32").mean(0), rtol=1e-4, atol=1e-5)


def test_an_iterator_is_read_part_by_part_where_its_values_are_read_once() -> None:
    alive: list[int] = []

    def values() -> Iterator[np.ndarray]:
        for row in rows(200):
            alive.append(1)
            yield row

    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (8,), domain=(t,))
        s = tp.recurrence((8,), domain=(t,), name="s")
        s[0] = x[0]
        s[t + 1] = s * 0.9 + x[t + 1]
    program = ctx.compile({T: 200}, s[T - 1], tp.Config(host={"t": 10}, disable=("vectorize", "lift")))
    program.run({"x": values()})
    assert len(alive) == 200
    longest: list[int] = []
    take = tp_feed()._of_iterator

    def watched(self: Any, *arguments: Any) -> Any:
        result = take(self, *arguments)
        longest.append(len(self.latest))
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tp_feed(), "_of_iterator", watched)
        value = program.run({"x": values()})
    assert max(longest) <= 20
    np.testing.assert_array_equal(value, program.run({"x": rows(200)}))


def tp_feed() -> Any:
    from tempo_core.runtime.feeds import PartFeed

    return PartFeed


def test_an_iterator_may_be_read_several_times() -> None:
    program = normalised(35, **IN_PARTS)
    assert_all_same(list(program.run({"x": iter(rows(35))}).values()), list(program.run({"x": rows(35)}).values()), 0.0)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.zeros((34, 8), "float32"), r"has shape \(34, 8\), but its declared type"),
        (iter(rows(34)), "ended at t = 34, after 34 of 35 values"),
        (np.zeros((35, 8), "complex64"), "has dtype complex64"),
        (3, "has shape|is"),
    ],
)
def test_an_input_that_does_not_fit(value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        normalised(35, **IN_PARTS).run({"x": value})


def test_a_slice_that_cannot_be_read() -> None:
    class Broken(Slices):
        def __getitem__(self, place: Any) -> np.ndarray:
            raise OSError("the disk is gone")

    with pytest.raises(InputError, match="failed at 0:10 of t: OSError: the disk is gone"):
        normalised(35, **IN_PARTS).run({"x": Broken(rows(35))})


FROM_DISK = """
import numpy as np, sys, tempo_core as tp
T, W = 4000, 20_000  # 320 MB
x = np.memmap(sys.argv[1], np.float32, "w+", shape=(T, W))
x[::1000, :] = 1.0
x.flush()
del x
x = np.memmap(sys.argv[1], np.float32, "r", shape=(T, W))
y = np.memmap(sys.argv[2], np.float32, "w+", shape=(T, W))
ctx = tp.Context("t")
with ctx as ((t, bound),):
    v = tp.input("x", (W,), domain=(t,))
    mean = v[0:bound].mean(0)
    z = v - mean
config = tp.Config(host={"t": 50}, tile={"t": 50}, disable=("vectorize(t)",))
program = ctx.compile({bound: T}, {"mean": mean, "z": z}, config).compile()

def resident(key):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(key))

before = resident("VmRSS")
results = program.run({"x": x}, out={"z": y})
assert abs(float(results["mean"][0]) - 0.001) < 1e-6
assert abs(float(y[1000, 5]) - 0.999) < 1e-6
print((resident("VmHWM") - before) / 1e3)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="reads the memory of a process from Linux")
def test_data_on_disk_is_never_resident(tmp_path: Path) -> None:
    files = [str(tmp_path / name) for name in ("x", "y")]
    done = subprocess.run([sys.executable, "-c", FROM_DISK, *files], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 100, f"the process grew by {done.stdout} MB for 640 MB of files"


STORE_IN_A_FILE = """
import numpy as np, sys, tempo_core as tp
ctx = tp.Context("t")
with ctx as ((t, T),):
    h = tp.recurrence((64, 64), domain=(t,), name="h")
    h[0] = tp.ones((64, 64))
    h[t + 1] = tp.tanh(h * 0.9 + 0.1)
    g = tp.recurrence((64, 64), domain=(t,), name="g")
    g[T - 1] = h[T - 1]
    g[t] = tp.tanh(h + g[t + 1])
config = tp.Config(host={"t": 200}, swap=sys.argv[1], disable=("vectorize(t)",))
program = ctx.compile({T: 12_000}, g[0], config).compile()

def resident(key):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(key))

before = resident("VmRSS")
program.run()
print((resident("VmHWM") - before) / 1e3)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="reads the memory of a process from Linux")
def test_a_store_in_a_file_takes_no_memory(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", STORE_IN_A_FILE, str(tmp_path)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 60, f"the process grew by {done.stdout} MB for a store of 197 MB"


def test_stores_may_be_files(tmp_path: Path) -> None:
    program = trained(50, host={"t": 7}, swap=tmp_path)
    assert_all_same(program.run(data(50)), trained(50).run(data(50)), 0.0)
    assert list(tmp_path.iterdir()) == []


# -- runs that stop ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", [1, 5, 23])
def test_a_run_stops_and_goes_on_elsewhere(stop: int, tmp_path: Path) -> None:
    program, T = trained(24, host={"t": 5}), 24
    expected = program.run(data(T))
    run = program.start(data(T))
    for _ in range(stop):
        run.advance("t", 1)
    path = run.save(tmp_path / "state")
    assert_all_same(run.finish(), expected, 0.0)
    assert_all_same(trained(24, host={"t": 5}).resume(path).finish(), expected, 0.0)


def test_results_of_a_run_that_has_not_ended_do_not_change_later() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        h = tp.recurrence((2,), domain=(t,), name="h")
        h[0] = tp.ones((2,))
        h[t + 1] = h * 0.5
    run = ctx.compile({T: 20}, h, tp.Config(host={"t": 4}, disable=("vectorize", "lift"))).start()
    run.advance("t", 6)
    early = run.results
    before = np.array(early)
    run.finish()
    np.testing.assert_array_equal(early, before)


# -- options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"host": {"t": 0}}, "the parts of step t have the size 0"),
        ({"host": 3}, "host=3 is not a dict from steps to sizes"),
        ({"swap": "nowhere"}, "swap='nowhere' is not a directory"),
        ({"swap": 3}, "swap='3' is not a directory"),
    ],
)
def test_options_that_are_wrong(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        tp.Config(**options)


def test_a_step_that_the_program_lacks() -> None:
    with pytest.raises(ConfigError, match="host names the step 'k'"):
        trained(5, host={"k": 3})


def test_interpreted_programs_have_all_values_in_one_place() -> None:
    ctx, bound, outputs = network()
    program = ctx.compile({bound: 9}, outputs, tp.Config(backend="numpy", host={"t": 3}))
    assert_all_same(program.run(data(9)), trained(9).run(data(9)), 1e-5)


# -- a limit ----------------------------------------------------------------------------------------------------------


def test_a_limit_of_the_device_moves_values_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TILES": (), "LEVELS": 1}.items():  # fewer forms to try
        monkeypatch.setattr(planner, name, value)
    whole = trained(400)
    limit = whole.plan().peak_device_bytes // 20
    program = trained(400, memory_limit=limit, swap="host")
    assert program.choice is not None and program.choice.form.host
    assert program.plan().peak_device_bytes <= limit
    assert "on the host" in program.explain()
    assert_all_same(program.run(data(400)), whole.run(data(400)), 1e-5)


@pytest.mark.slow
@pytest.mark.cpu
def test_on_a_cpu_the_host_has_no_other_memory() -> None:
    limit = normalised(400).plan().peak_device_bytes // 10
    with pytest.raises(tp.errors.OutOfMemoryPlanError):
        normalised(400, memory_limit=limit)
    assert normalised(400, memory_limit=limit, swap="host").plan().peak_device_bytes <= limit


# -- a store ----------------------------------------------------------------------------------------------------------


def test_a_move_that_touches_nothing_keeps_the_part() -> None:
    program = trained(20, host={"t": 5})
    assert program._staged is not None
    key = next(key for key in program._staged.hosted if program.graph[key[0]].name == "h")
    store = program._staged.host_store(key, program._start(data(20), None, None).fed)
    part = store.take(None)
    assert store.take(None) is part
    store.give(store.take(Move((0, 5), (0, 5), None)) + 1, Move((0, 5), (0, 5), None))
    np.testing.assert_array_equal(store.whole()[:5], 1)
    np.testing.assert_array_equal(store.whole()[5:], 0)
