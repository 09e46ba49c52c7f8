"""strip: the gradient of a network over many rows runs strip by strip, with everything between its products."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.ir.ops import Dot, Merge, Unary
from tempo_core.passes.tiles.strip import Strip, seconds, strip_size
from tempo_core.schedule import Loop, walk
from tempo_core.symbolic.condition import equal
from tempo_core.symbolic.expr import Expr, Symbol
from tempo_core.target import CPU, H100, Target
from tests import targets
from tests.cases import fast
from tests.core.passes.support import Golden, after, check, ops_of
from tests.core.running import assert_all_same

MIB = 2**20


@pytest.fixture
def small() -> Iterator[None]:
    """Chains of any size run in strips, of 10 rows here and of 4 times below, or of the divisor next to that."""
    with targets.strips(120):
        yield


@pytest.fixture
def of_four() -> Iterator[None]:
    with targets.strips(4 * 184):  # the products of a time write and read 184 bytes
        yield


HEAD = """\
steps i<I t<T
%0 x = Input(name="x", dtype="float32", shape=(T, 2))() : float32[T, 2] over ()
%1 = Eval(value=t)() : int32[] over (t)
%2 x = Gather(axis=0)(%0, %1[t]) : float32[2] over (t)
%3 w = Input(name="w", dtype="float32", shape=(2, 3))() : float32[2, 3] over ()
"""

GRADIENT = """\
%4 h = Dot(left_contract=(1,), right_contract=(0,), left_batch=(), right_batch=())(%2[0:T], %3) : float32[T, 3] over ()
%5 y = Unary(fn="tanh")(%4) : float32[T, 3] over ()
%6 g = Dot(left_contract=(0,), right_contract=(0,), left_batch=(), right_batch=())(%2[0:T], %5) : float32[2, 3] over ()
%7 loss = Reduce(fn="sum", axes=(0, 1))(%5) : float32[] over ()
%8 = Output(position=0)(%6) over ()
%9 = Output(position=1)(%7) over ()
"""

SOFTMAX = """\
%4 s = Dot(left_contract=(1,), right_contract=(1,), left_batch=(), right_batch=())(%0, %2[0:T]) : float32[T, T] over ()
%5 high = Reduce(fn="max", axes=(1,))(%4) : float32[T] over ()
%6 wide = Broadcast(shape=(T, T), axes=(0,))(%5) : float32[T, T] over ()
%7 less = Binary(fn="sub")(%4, %6) : float32[T, T] over ()
%8 p = Unary(fn="exp")(%7) : float32[T, T] over ()
%9 o = Dot(left_contract=(1,), right_contract=(0,), left_batch=(), right_batch=())(%8, %0) : float32[T, 2] over ()
%10 = Output(position=0)(%9) over ()
"""


def numbers(T: int) -> Strip:
    return Strip(((Symbol("T"), T),), Target.at_hand())


@pytest.mark.usefixtures("small")
def test_a_chain_with_its_losses_is_one_loop(golden: Golden) -> None:
    graph = check(golden, "strip", HEAD + GRADIENT, numbers(12), bounds={"I": 1, "T": 12})
    assert [str(n.domain) for n in graph if isinstance(n.op, (Dot, Unary))] == ["(t_tile)"] * 3
    assert graph.decided_for == equal(Symbol("T").expr, Expr.of(12))
    assert len(ops_of(graph, Merge)) == 2, "a running sum of the gradient, and one of the loss"


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("text", "strip"),
    [
        (HEAD + SOFTMAX, numbers(12)),  # the maximum is needed before the last product: it would be a loop of its own
        (HEAD + GRADIENT, numbers(0)),  # nothing is computed
        (HEAD + GRADIENT, Strip(((Symbol("T"), 12),), CPU)),  # all is in cache
        (HEAD + GRADIENT, Strip(((Symbol("I"), 12),), replace(CPU, cache_bytes=1))),  # a run chooses T
        (HEAD + GRADIENT, Strip(((Symbol("T"), 12),), replace(CPU, cache_bytes=1), but=("t",))),
    ],
    ids=["a reduction between products", "no rows", "in cache", "an unknown bound", "the user's own tiles"],
)
def test_what_stays_whole(text: str, strip: Strip) -> None:
    assert not after(text, strip).derived


def test_sizes_of_strips() -> None:
    assert strip_size(250, 310 * MIB, CPU) == 10, "the divisor next to 8.6"
    assert strip_size(256, 310 * MIB, CPU) == 8
    assert strip_size(251, 310 * MIB, CPU) == 1
    assert strip_size(7, 2**20, CPU) == 7 and strip_size(1, 110 * MIB, CPU) == 1


@pytest.mark.parametrize(
    ("strips", "written", "added", "target", "pays"),
    [
        (25, 310 * MIB, 30_000, CPU, True),
        (6, 64 * MIB, 30_000, CPU, False),  # half of it, all that is alive at a time, is in cache
        (7, 7 * 90 * MIB, 0, CPU, False),  # so is no strip
        (25, 310 * MIB, 8 * MIB, CPU, False),  # 25 times 8 MiB to add to
        (100_000, 310 * MIB, 0, CPU, False),  # each with its operations
        (25, 310 * MIB, 30_000, H100, False),  # the memory of a GPU is fast, and each operation is a kernel
        (25, 31_000 * MIB, 30_000, H100, False),
        (25, 31_000 * MIB, 30_000, replace(H100, cache_bytes=1e9), True),
    ],
)  # fmt: skip
def test_strips_pay_by_the_seconds_of_a_target(strips: int, written: int, added: int, target: Target, pays: bool) -> None:
    in_strips, whole = (seconds(count, 10, written, added, target) for count in (strips, 1))
    assert (in_strips < whole) == pays


def compiled(bounds: dict[str, int], config: tp.Config | None = None) -> tp.Program:
    """E updates of two layers in each iteration, over the B rows and T times of a loop, with a mean of the targets."""
    ctx = tp.Context("b", "i", "t", "e")
    with ctx as ((b, B), (i, I), (t, T), (e, E)):
        x, noise = tp.input("x", (3,), domain=(b, i, t)), tp.input("noise", (), domain=(b, i, t))
        h = tp.recurrence((3,), domain=(b, i, t), name="h")
        w, v = tp.recurrence((3, 4), domain=(i, e), name="w"), tp.recurrence((4, 2), domain=(i, e), name="v")
        actor = tp.tanh(h @ w[i, 0]) @ v[i, 0]
        h[b, i, 0] = x[b, i, 0]
        h[b, i, t + 1] = tp.tanh(h + actor.sum() * noise + x[b, i, t + 1])
        seen, wanted = h[0:B, i, 0:T].detach(), (noise * h.sum(0))[0:B, i, 0:T].detach()
        error = (tp.tanh(seen @ w) @ v).sum(2) - (wanted - wanted.mean())
        loss = (error**2).mean()
        loss.backward()
        w[0, 0], v[0, 0] = tp.full((3, 4), 0.3), tp.full((4, 2), -0.2)
        for parameter in (w, v):
            following = parameter - 0.1 * parameter.grad
            parameter[i + 1, 0] = following[i, E - 1]
            parameter[i, e + 1] = following
        results = [loss, tp.abs(error).max((0, 1)), w[I - 1, E - 1], v[I - 1, E - 1]]
    return ctx.compile({B: bounds["B"], I: 2, T: bounds["T"], E: 3}, results, config)


def trained(bounds: dict[str, int], config: tp.Config | None = None) -> tuple[tp.Program, list[np.ndarray]]:
    program = compiled(bounds, config)
    return program, run(program)


def run(program: tp.Program) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    bounds = {str(bound): number for bound, number in program.bounds.items()}
    x = random.normal(size=(5, 2, 30, 3)).astype("float32")[: bounds["B"], :, : bounds["T"]]
    noise = random.normal(size=(5, 2, 30)).astype("float32")[: bounds["B"], :, : bounds["T"]]
    return [np.asarray(each) for each in program.run({"x": x, "noise": noise})]


@pytest.mark.usefixtures("of_four")
@pytest.mark.parametrize(
    "options", fast([{}, {"executor": "interpreted"}, {"backend": "numpy"}, {"disable": ("fuse",)}], {}), ids=str
)
def test_several_updates_over_the_same_rows(options: dict[str, object]) -> None:
    _, expected = trained({"B": 2, "T": 12}, tp.Config(disable=("strip",)))
    program, results = trained({"B": 2, "T": 12}, tp.Config(**options))
    assert set(map(str, program.graph.derived)) == {"T_TILE"}, "stored times lie strip by strip"
    assert_all_same(results, expected)


@pytest.mark.parametrize("bytes", fast([64, 200], 64))
def test_rows_up_to_now(bytes: int) -> None:
    """A loop whose every point learns from the states so far: ranges of a growing length, of which strips read no later point."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (3,), domain=(t,))
        h, w = tp.recurrence((3,), domain=(t,), name="h"), tp.recurrence((3, 4), domain=(t,), name="w")
        v = tp.recurrence((4, 2), domain=(t,), name="v")
        past = h[0 : t + 1].detach()
        loss = ((tp.tanh(past @ w) @ v - past.sum(1, keepdims=True) ** 2) ** 2).mean()
        loss.backward()
        w[0], v[0] = tp.full((3, 4), 0.3), tp.full((4, 2), -0.2)
        w[t + 1], v[t + 1] = w - 0.1 * w.grad, v - 0.1 * v.grad
        h[0] = x[0]
        h[t + 1] = tp.tanh(h + x[t + 1] @ w @ v @ tp.ones((2, 3)))
    data = {"x": np.random.default_rng(0).normal(size=(6, 3)).astype("float32")}
    with targets.strips(bytes):
        programs = [ctx.compile({T: 6}, [loss, w, v, h], tp.Config(disable=off)) for off in ((), ("strip",))]
    assert set(map(str, programs[0].graph.derived)) == {"T_TILE"} and not programs[1].graph.derived
    results, expected = (program.run(data) for program in programs)
    assert_all_same(results, expected)


@pytest.mark.usefixtures("of_four")
def test_views_of_what_is_stored_are_not_stored_again() -> None:
    """The rows are transposed in each of the three updates: in the loop over strips, and in none before it."""
    program = compiled({"B": 2, "T": 12})
    loops = [each.counter.name for each in walk(program.scheduled.root) if isinstance(each, Loop)]
    assert loops.count("t_tile") == 1


@pytest.mark.usefixtures("of_four")
def test_other_bounds_are_decided_anew(tmp_path: Path) -> None:
    """In the same process, and with a cache on disk."""
    config = tp.Config(cache=tmp_path)
    sizes = {12: {"T_TILE": 3}, 10: {"T_TILE": 2}, 3: {}}
    program, _ = trained({"B": 2, "T": 12}, config)
    for T, expected in sizes.items():
        (bound,) = (each for each in program.bounds if str(each) == "T")
        other = program.with_bounds({bound.expr: T})
        again, results = trained({"B": 2, "T": T}, config)
        for each in (other, again):
            assert {str(b): size.evaluate(each.bounds) for b, size in each.graph.derived.items()} == expected
        assert_all_same(run(other), results)
        assert_all_same(results, trained({"B": 2, "T": T}, tp.Config(disable=("strip",)))[1])
    again, _ = trained({"B": 2, "T": 10}, config)
    assert again.reuse is not None


def test_memory_of_one_strip() -> None:
    with targets.numbers(cache_bytes=2**17):
        stripped, whole = (compiled({"B": 64, "T": 256}, tp.Config(disable=off)).plan() for off in ((), ("strip",)))
    assert stripped.peak_device_bytes < 0.7 * whole.peak_device_bytes


def test_explain_gives_the_seconds_of_both_forms() -> None:
    with targets.numbers(cache_bytes=2**10, operation=1e-9):
        text = compiled({"B": 5, "T": 30}).explain()
    assert re.search(r"computed in strips: strips of \d+ of T [\d.e-]+ ms, the whole [\d.e-]+ ms", text), text
    with targets.numbers(cache_bytes=2**10, operation=1.0):
        text = compiled({"B": 5, "T": 30}).explain()
    assert re.search(r"not computed in strips: .*strips of \d+ of T [\d.e+]+ ms, the whole [\d.e+]+ ms", text), text
