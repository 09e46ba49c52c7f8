"""Loops over layers of weights: written out on a CPU, with one array for each layer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

import tempo_core as tp
from benchmarks.hlo import parse
from tempo_core import prices
from tempo_core.target import CPU, H100
from tests import reference
from tests.cases import cells
from tests.core.running import SETTINGS, assert_all_same

WIDTH = 128  # a layer's weights are copied in `prices.LEAST_SECONDS_OF_COPIES`
LAYER = WIDTH * WIDTH * 4
WIDE = 2 * WIDTH

cpu_only = pytest.mark.skipif(jax.default_backend() != "cpu", reason="loops stay loops elsewhere")


class Stack:
    """h[t, l + 1] = tanh(h[t, l] @ w[l] + the mean of all inputs of layer l so far + half of the layer's own last state).

    The first layer reads the last layer's result at t - 1, as in decoding: so the loop over l stands inside the loop over t.
    """

    def __init__(self, layers: int = 3, length: int = 5, whole: bool = False, backwards: bool = False):
        self.context = tp.Context("t", "l")
        with self.context as ((t, T), (layer, L)):
            x = tp.input("x", (WIDTH,), domain=(t,))
            w = tp.input("w", (WIDTH, WIDTH), domain=(layer,))
            scale = tp.input("scale", (WIDTH,), domain=(layer,))
            token = tp.recurrence((WIDTH,), domain=(t,), name="token")
            h = tp.recurrence((WIDTH,), domain=(t, layer), name="h")
            state = tp.recurrence((WIDTH,), domain=(t, layer), name="state")
            place = L - 1 - layer if backwards else layer
            mean = h[0 : t + 1, layer].mean(0)
            after = tp.tanh(h @ w[place] + scale[place] * mean + 0.5 * state)
            tp.carry(h, token, after, kept=(t,))
            tp.carry(token, x[0], after[t, L - 1] + x[t + 1])
            state[0, layer] = tp.zeros((WIDTH,))
            state[t + 1, layer] = after
            self.outputs = [after[t, L - 1]]
            if whole:
                self.outputs.append(w[0:L].sum(0))
        self.bounds = {T: length, L: layers}
        random = np.random.default_rng(0)
        self.inputs = {
            "x": random.normal(size=(length, WIDTH)).astype("float32"),
            "w": random.normal(size=(layers, WIDTH, WIDTH)).astype("float32") / 16,
            "scale": random.normal(size=(layers, WIDTH)).astype("float32"),
        }

    def compiled(self, **options: Any) -> tp.Program:
        return self.context.compile(self.bounds, self.outputs, tp.Config(**options))


def instructions(program: tp.Program) -> list[Any]:
    assert program._staged is not None
    modules = [parse(segment.compiled.as_text()) for segment in program._staged.segments]  # type: ignore[union-attr]
    return [i for module in modules for computation in module.computations.values() for i in computation.instructions]


@pytest.mark.parametrize(("form", "sizes"), cells(["plain", "whole", "backwards"], [(3, 5), (1, 5), (3, 1), (1, 1), (2, 2)]))
def test_values(form: str, sizes: tuple[int, int]) -> None:
    layers, length = sizes
    stack = Stack(layers, length, whole=form == "whole", backwards=form == "backwards")
    expected = reference.evaluate(stack.context, stack.outputs, stack.bounds, stack.inputs)
    for options in (*SETTINGS.values(), tp.Config(disable=("unroll",))):
        result = stack.context.compile(stack.bounds, stack.outputs, options).run(stack.inputs)
        assert_all_same(result, expected, 1e-4)


@cpu_only
def test_each_layer_has_arrays_of_its_own() -> None:
    stack = Stack()
    program = stack.compiled()
    program.run(stack.inputs)
    assert program._staged is not None
    assert dict(program._staged.unrolled.inputs) == {"w": 0, "scale": 0}
    (segment,) = program._staged.segments
    assert segment.compiled.memory_analysis().temp_size_in_bytes < LAYER  # type: ignore[union-attr]
    moved = [i for i in instructions(program) if i.opcode in ("copy", "dynamic-slice", "slice", "transpose", "gather")]
    assert max((i.bytes for i in moved), default=0) < LAYER
    # A store of [T, WIDTH] for each layer, and none of [T, L, WIDTH].
    assert not any(shape.sizes[:2] in ((5, 3), (3, 5)) for i in instructions(program) for shape in i.shapes)


@cpu_only
def test_a_loop_over_layers_with_a_loop_over_tiles_inside() -> None:
    stack = Stack(length=8)
    length = next(iter(stack.bounds))
    stack.bounds[length] = tp.upto(8)
    program = stack.compiled(tile={"t": 2}, disable=("lift", "accumulate"))
    assert "for t_tile" in program.text("program", full=True)
    assert program._staged is not None and dict(program._staged.unrolled.inputs) == {"w": 0, "scale": 0}
    kept = stack.compiled(disable=("unroll",))
    for number in (8, 3):
        inputs = {**stack.inputs, "x": stack.inputs["x"][:number]}
        assert_all_same(program.run(inputs, bounds={length: number}), kept.run(inputs, bounds={length: number}), 1e-5)


@cpu_only
def test_the_switch_keeps_the_loop() -> None:
    stack = Stack()
    program = stack.compiled(disable=("unroll",))
    program.run(stack.inputs)
    assert any(shape.sizes == (3, WIDTH, WIDTH) for i in instructions(program) for shape in i.shapes)
    assert "written out" not in program.text("plan")


@cpu_only
def test_the_plan_says_what_it_costs() -> None:
    plan = Stack().compiled().text("plan")
    assert "written out\n  for l in 0:3: 3 times " in plan and "of XLA's compile time" in plan


def loops(stack: Stack) -> int:
    staged = stack.compiled()._staged
    assert staged is not None
    return len(staged.unrolled.loops)


@cpu_only
def test_a_loop_stays_where_nothing_can_be_split_or_much_is_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert loops(Stack()) == 3  # and its copies for the first and the last t, which stand around the loop over t
    assert loops(Stack(whole=True)) == 0  # the weights are read as a whole too
    monkeypatch.setattr(prices, "MOST_OPERATIONS_TO_UNROLL", 40)
    assert loops(Stack()) == 0
    monkeypatch.undo()
    monkeypatch.setattr(prices, "LEAST_SECONDS_OF_COPIES", CPU.of_copy(3 * LAYER))
    assert loops(Stack()) == 0


def outermost(layers: int = 3) -> tuple[tp.Program, dict[str, np.ndarray]]:
    """h[l + 1] = tanh(h[l] @ w[l]): nothing but the loop over l."""
    context = tp.Context("l")
    with context as ((layer, L),):
        w = tp.input("w", (WIDE, WIDE), domain=(layer,))
        h = tp.recurrence((WIDE,), domain=(layer,), name="h")
        after = tp.tanh(h @ w)
        h[0], h[layer + 1] = tp.input("x", (WIDE,)), after
        program = context.compile({L: layers}, [after[L - 1]])
    random = np.random.default_rng(0)
    return program, {
        "x": random.normal(size=WIDE).astype("f4"),
        "w": random.normal(size=(layers, WIDE, WIDE)).astype("f4") / 16,
    }


@cpu_only
def test_an_outermost_loop_is_written_out_for_many_bytes_an_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    program, inputs = outermost()
    (result,) = program.run(inputs)
    expected = inputs["x"]
    for w in inputs["w"]:
        expected = np.tanh(expected @ w)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
    assert program._staged is not None and dict(program._staged.unrolled.inputs) == {"w": 0}
    moved = [i for i in instructions(program) if i.opcode in ("copy", "dynamic-slice", "slice", "transpose", "gather")]
    assert max((i.bytes for i in moved), default=0) < LAYER
    monkeypatch.setattr(prices, "RUNS", CPU.compile / CPU.of_copy(4 * LAYER))  # the body has more than one operation
    program, _ = outermost()
    assert program._staged is not None and not program._staged.unrolled.loops
    assert loops(Stack()) == 3  # an inner loop runs again and again: its price is another one


@cpu_only
def test_a_long_loop_is_written_out_for_many_bytes_an_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prices, "OPERATIONS_OF_A_LONG_LOOP", 1)
    monkeypatch.setattr(prices, "RUNS", 10**9)
    assert loops(Stack()) == 3
    monkeypatch.setattr(prices, "RUNS", CPU.compile / CPU.of_copy(4 * LAYER))
    assert loops(Stack()) == 0


def test_a_gpu_copies_fast() -> None:
    """64 KiB take less than a kernel there."""
    staged = Stack().compiled(target="h100")._staged
    assert staged is not None and not staged.unrolled.loops
    slow = Stack().compiled(target=replace(H100, memory=CPU.memory))._staged
    assert slow is not None and len(slow.unrolled.loops) == 3


@cpu_only
def test_arrays_of_the_device_are_split_without_a_copy() -> None:
    stack = Stack()
    program = stack.compiled()
    assert program._staged is not None
    whole = jax.device_put(stack.inputs["w"])
    parts = program._staged.fed("w", whole)
    first = np.asarray(whole).ctypes.data
    assert [part.unsafe_buffer_pointer() - first for part in parts] == [0, LAYER, 2 * LAYER]


def test_a_range_of_one_step_at_a_point_of_another_is_a_slice() -> None:
    stack = Stack()
    program = stack.compiled(disable=("unroll",))
    program.run(stack.inputs)
    assert not [i for i in instructions(program) if i.opcode == "gather" and i.bytes > WIDTH * 4]


def test_a_range_that_begins_before_the_first_point_where_nobody_needs_it() -> None:
    """The last iteration of a short loop reads `[1 - i : ...]` at i = 2, a number then: it is no place from the end of the store."""
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        x = tp.input("x", (2, 3), domain=(i, t), requires_grad=True)
        y = tp.recurrence((2,), domain=(i, t), name="y")
        mixed = y @ tp.constant([[0.3, -0.5], [0.7, 0.2]])
        y[i, t, i < T] = x[tp.min((i + 1) % 2, I - 1), tp.max(t - 3, 0) : tp.min(t + 2, T)].sum()
        y[i, t] = tp.tanh(mixed + y)[i - 1, t]
        (gradient,) = tp.grad(tp.tanh(y.sum()[0:I, 0:T].sum()), wrt=[x])
    inputs = {"x": np.random.default_rng(0).normal(size=(3, 1, 2, 3)).astype("float32")}
    (result,) = ctx.run({I: 3, T: 1}, [gradient], inputs)
    (expected,) = reference.evaluate(ctx, [gradient], {I: 3, T: 1}, inputs)
    np.testing.assert_allclose(result, expected, rtol=1e-5)
