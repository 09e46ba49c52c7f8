"""Programs that are spread over devices: equal to those on one device, each with its part of the work and of the memory."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jax.numpy as jnp
import numpy as np
import pytest

import tempo_core as tp
from tempo_core.errors import ArgumentError, ConfigError
from tempo_core.target import Target
from tests.cases import cells

pytestmark = pytest.mark.cpu

B, T = 20, 6  # bounds
COLLECTIVE = re.compile(r" (all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)(?:-start)?\(")
Traced = tuple[tp.Context, dict[Any, Any], dict[str, tp.Tensor]]


def arrays(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    random = np.random.default_rng(1)
    return [random.normal(size=shape).astype("float32") for shape in shapes]


def collectives(program: tp.Program[Any]) -> list[str]:
    """The collective operations of all device programs."""
    program.compile()
    staged = program._staged
    assert staged is not None
    return [name for segment in staged.segments for name in COLLECTIVE.findall(segment.compiled.as_text())]  # type: ignore[union-attr]


# -- programs ---------------------------------------------------------------------------------------------------------


def rnn() -> Traced:
    """A recurrence for each row, with the gradient of its weights."""
    ctx = tp.Context("b", "t")
    with ctx as ((b, B_), (t, T_)):
        x, w = tp.input("x", (3,), domain=(b, t)), tp.input("w", (3, 3))
        h = tp.recurrence((3,), "float32", domain=(b, t), name="h")
        h[b, 0] = tp.zeros((3,))
        h[b, t + 1] = tp.tanh(h @ w + x[b, t])
        loss = (h[0:B_, 0:T_] ** 2).mean()
        (dw,) = tp.grad(loss, wrt=[w])
    return ctx, {B_: B, T_: T}, {"loss": loss, "dw": dw, "h": h}


def regression() -> Traced:
    """No recurrence: products and a softmax over all rows."""
    ctx = tp.Context("b")
    with ctx as ((b, B_),):
        x, y, w = tp.input("x", (5,), domain=(b,)), tp.input("y", (), "int32", domain=(b,)), tp.input("w", (5, 4))
        chosen = tp.log_softmax(x @ w).index(0, y)
        loss = -chosen[0:B_].mean()
        (dw,) = tp.grad(loss, wrt=[w])
        best = (x @ w)[0:B_].max(0)
    return ctx, {B_: B}, {"loss": loss, "dw": dw, "best": best}


def noisy() -> Traced:
    """Random numbers for each row, which do not depend on the devices; the first row is another case."""
    ctx = tp.Context("b", "t")
    with ctx as ((b, B_), (t, T_)):
        walk = tp.recurrence((), "float32", domain=(b, t), name="walk")
        walk[b, 0] = b * 0.5
        walk[b, t + 1] = walk * 0.9 + tp.random.normal((), domain=(b, t))
        total = walk[0:B_, 0:T_].sum()
        ranks = tp.argsort(walk[0:B_, T_ - 1])
    return ctx, {B_: B, T_: T}, {"walk": walk, "total": total, "ranks": ranks}


def past() -> Traced:
    """Reductions over the past of each row: scans, windows, and the square of all pairs."""
    ctx = tp.Context("b", "t")
    with ctx as ((b, B_), (t, T_)):
        x = tp.input("x", (4,), domain=(b, t))
        scores = (x[b, 0 : t + 1] * x).sum(-1)
        attended = tp.softmax(scores, axis=0) @ x[b, 0 : t + 1]
        ahead = tp.discounted_sum(x[b, t:T_].sum(-1), 0.9, axis=0)
        window = x[b, tp.max(t - 2, 0) : t + 1].max(0)
    return ctx, {B_: B, T_: T}, {"attended": attended, "ahead": ahead, "window": window}


def played() -> Traced:
    """A function on the host steps all rows together."""
    ctx = tp.Context("b", "t")
    with ctx as ((b, B_), (t, T_)):
        w = tp.input("w", (2, 2))
        s = tp.recurrence((2,), "float32", domain=(b, t), name="s")
        (stepped,) = tp.udf(lambda x: (x * 0.5 + 1,), s[0:B_, t] @ w, outputs=[tp.spec((B_, 2))], kind="host", name="step")
        s[b, 0] = tp.ones((2,))
        s[b, t + 1] = tp.tanh(stepped.index(0, b))
        total = s[0:B_, 0:T_].sum()
    return ctx, {B_: B, T_: T}, {"s": s, "total": total}


PROGRAMS: dict[str, tuple[Callable[[], Traced], dict[str, np.ndarray]]] = {
    "rnn": (rnn, dict(zip("xw", arrays((B, T, 3), (3, 3)), strict=True))),
    "regression": (
        regression,
        {**dict(zip("xw", arrays((B, 5), (5, 4)), strict=True)), "y": np.arange(B, dtype="int32") % 4},
    ),
    "noisy": (noisy, {}),
    "past": (past, {"x": arrays((B, T, 4))[0]}),
    "played": (played, {"w": arrays((2, 2))[0]}),
}


def compiled(name: str, devices: int | str, **options: Any) -> tuple[tp.Program[dict[str, Any]], dict[str, np.ndarray]]:
    trace, inputs = PROGRAMS[name]
    ctx, bounds, outputs = trace()
    return ctx.compile(bounds, outputs, tp.Config(devices=devices, **options)), inputs


def assert_close(actual: dict[str, Any], expected: dict[str, Any]) -> None:
    for name, value in expected.items():
        np.testing.assert_allclose(np.asarray(actual[name]), np.asarray(value), rtol=2e-5, atol=1e-5, err_msg=name)


# -- results and collectives ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "devices"), cells(PROGRAMS, [2, 4]))
def test_every_program_gives_what_it_gives_on_one_device(name: str, devices: int) -> None:
    program, inputs = compiled(name, devices)
    assert program.plan().devices == f"b: {B} points on {devices} devices, {B // devices} on each"
    assert program.plan().devices in program.plan().text()
    expected = compiled(name, 1)[0].run(inputs, seed=3)
    assert_close(program.run(inputs, seed=3), expected)
    assert_close(program.run(inputs, seed=3), expected)  # stores are used again


@pytest.mark.parametrize("name", ["rnn", "past"])
def test_every_large_value_stays_on_its_device(name: str) -> None:
    """What belongs to a row is computed where the row is: nothing is gathered, and sums are collectives of small arrays."""
    program, _ = compiled(name, 4)
    assert set(collectives(program)) <= {"all-reduce"}
    staged = program._staged
    assert staged is not None
    for segment in staged.segments:
        shapes = re.findall(r"f32\[([\d,]*)\]", segment.compiled.as_text())  # type: ignore[union-attr]
        assert not any(str(B) in shape.split(",") for shape in shapes), shapes


def test_a_contraction_over_rows_is_one_collective() -> None:
    program, _ = compiled("rnn", 4)
    assert collectives(program) == ["all-reduce"]  # of the loss and of the gradient, together


def test_explain_says_what_is_in_parts() -> None:
    program, _ = compiled("rnn", 2)
    assert "in parts on 2 devices, by its points of `b`" in program.explain("h")
    assert "in parts" not in compiled("rnn", 1)[0].explain("h")


def test_every_device_has_its_part_of_the_work_and_of_the_memory() -> None:
    """Weak scaling: with twice the rows on twice the devices, a device does and keeps as much as before."""
    figures = []
    for devices in (1, 2, 4):
        ctx, bounds, outputs = rnn()
        (rows,) = [bound for bound in bounds if str(bound) == "B"]
        program = ctx.compile({**bounds, rows: 16 * devices}, outputs, tp.Config(devices=devices))
        program.compile()
        staged = program._staged
        assert staged is not None
        programs: list[Any] = [segment.compiled for segment in staged.segments]
        analyses = [each.memory_analysis() for each in programs]
        bytes = sum(a.temp_size_in_bytes + a.argument_size_in_bytes + a.output_size_in_bytes for a in analyses)
        figures.append((sum(each.cost_analysis()["flops"] for each in programs), bytes))
    for operations, bytes in figures[1:]:
        assert operations <= figures[0][0] * 1.1
        assert bytes <= figures[0][1] * 1.1


# -- runs -------------------------------------------------------------------------------------------------------------


def test_a_saved_run_goes_on_with_other_devices(tmp_path: Path) -> None:
    first, inputs = compiled("rnn", 4, disable=("vectorize(t)",))
    run = first.start(inputs, by="t")
    run.advance("t", 2)
    run.save(tmp_path / "state")
    expected = compiled("rnn", 1)[0].run(inputs)
    assert_close(first.resume(tmp_path / "state").finish(), expected)
    second, _ = compiled("rnn", 1, disable=("vectorize(t)",))
    assert_close(second.resume(tmp_path / "state").finish(), expected)


def test_bound_inputs_are_in_parts() -> None:
    program, inputs = compiled("rnn", 4)
    bound = program.bind({"x": inputs["x"]})
    assert_close(bound.run({"w": inputs["w"]}), compiled("rnn", 1)[0].run(inputs))


def test_a_second_program_comes_from_disk(tmp_path: Path) -> None:
    program, inputs = compiled("rnn", 2, cache=tmp_path)
    first = program.run(inputs)
    again, _ = compiled("rnn", 2, cache=tmp_path)
    assert_close(again.run(inputs), first)
    assert again.compiles == 0 and again.loads > 0
    other, _ = compiled("rnn", 4, cache=tmp_path)
    other.run(inputs)
    assert other.compiles > 0


# -- which step, and how many devices ---------------------------------------------------------------------------------


def test_auto_takes_the_devices_that_divide_the_points() -> None:
    with patch.object(Target, "pays_to_spread", lambda *_: True):
        ctx, bounds, outputs = rnn()
        (rows,) = [bound for bound in bounds if str(bound) == "B"]
        for count, devices in ((8, 4), (6, 3), (7, 1)):
            program = ctx.compile({**bounds, rows: count}, outputs, tp.Config(devices="auto"))
            text = f"b: {count} points on {devices} devices, {count // devices} on each"
            assert program.plan().devices == (text if devices > 1 else "")


def test_auto_leaves_small_programs_on_one_device() -> None:
    assert compiled("rnn", "auto")[0].plan().devices == ""


def test_a_program_without_such_a_step_says_why() -> None:
    ctx = tp.Context("t", "u", "r")
    with ctx as ((t, T_), (u, U_), (r, R_)):
        h = tp.recurrence((), "float32", domain=(t,), name="h")
        h[0] = tp.zeros(())
        h[t + 1] = h + 1.0
        x, y = tp.input("x", (), domain=(u,)), tp.input("y", (), domain=(r,))
        outputs = [h, x * 2.0, y * 2.0]
    with pytest.raises(ConfigError) as caught:
        ctx.compile({T_: 4, U_: 5, R_: tp.upto(4)}, outputs, tp.Config(devices=4))
    text = str(caught.value)
    assert "no step of the program can be spread over 4 devices" in text
    assert "t: h reads" in text and "[t - 1]" in text and "test_devices.py" in text
    assert "u: its 5 points are not a multiple of 4" in text
    assert "r: its bound R is chosen by each run" in text
    assert 'Config(devices="auto")' in text


@pytest.mark.parametrize("devices", [0, -1, "all", 1.5, True, None])
def test_a_number_of_devices_is_checked(devices: Any) -> None:
    with pytest.raises(ConfigError, match="is not a number of devices"):
        tp.Config(devices=devices)


def test_interpreted_programs_run_on_one_device() -> None:
    for options in ({"executor": "interpreted"}, {"backend": "numpy"}):
        with pytest.raises(ConfigError, match="interpreted programs run on one device"):
            tp.Config(devices=2, **options)  # type: ignore[arg-type]
        program, inputs = compiled("rnn", "auto", **options)
        assert_close(program.run(inputs), compiled("rnn", 1)[0].run(inputs))


def test_more_devices_than_there_are() -> None:
    with pytest.raises(ConfigError, match=r"devices=16, but JAX has 4 \(cpu\)") as caught:
        compiled("rnn", 16)
    assert "tp.use_cpu_devices(16)" in str(caught.value)


# -- CPU devices, processes -------------------------------------------------------------------------------------------


def test_cpu_devices_are_chosen_before_jax_starts() -> None:
    jnp.zeros(())
    tp.use_cpu_devices(4)  # there are so many
    tp.use_cpu_devices(2)
    with pytest.raises(ConfigError, match="use_cpu_devices\\(64\\) is too late: JAX has started, with 4 CPU devices"):
        tp.use_cpu_devices(64)
    with pytest.raises(ArgumentError, match="0 is not a number of devices"):
        tp.use_cpu_devices(0)


PROCESS = """
import sys
import jax, numpy as np
import tempo_core as tp
from tests.core.runtime.test_devices import PROGRAMS

rank, port, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3]
tp.use_cpu_devices(2)
jax.distributed.initialize(f"127.0.0.1:{port}", 2, rank)
for name, (trace, inputs) in PROGRAMS.items():
    ctx, bounds, outputs = trace()
    program = ctx.compile(bounds, outputs, tp.Config(devices=4))
    np.savez(f"{folder}/{name}-{rank}.npz", **program.run(inputs, seed=3))
try:
    ctx.compile(bounds, outputs, tp.Config(devices=2))
except tp.errors.ConfigError as error:
    assert "the 2 processes have 4 together" in str(error), error
else:
    raise SystemExit("two devices of four were taken")
"""


def test_two_processes_give_what_one_gives(tmp_path: Path) -> None:
    """Two processes with two devices each, through `jax.distributed`: both get all results."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(rank), port, str(tmp_path)],
            env=environment, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in (0, 1)
    ]  # fmt: skip
    try:
        texts = [process.communicate(timeout=240)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], "\n".join(texts)
    for name, (_, inputs) in PROGRAMS.items():
        expected = compiled(name, 1)[0].run(inputs, seed=3)
        for rank in (0, 1):
            with np.load(tmp_path / f"{name}-{rank}.npz") as results:
                assert_close(dict(results), expected)
