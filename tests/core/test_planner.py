"""A limit of memory: the fastest form of a program that fits is taken, or the smallest limit that would do is named."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_core import planner
from tempo_core.planner import Candidate, Form
from tempo_core.target import Target
from tests import targets
from tests.cases import fast
from tests.core.passes.test_checkpoint import data, network
from tests.core.running import assert_all_same


@pytest.fixture(autouse=True)
def two_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of segments of segments take most of the time of a choice."""
    monkeypatch.setattr(planner, "LEVELS", 2)


def attention(T: int = 400, **options: Any) -> tp.Program[Any]:
    """Scores of all pairs of points if t is vectorized; those of one point in a loop."""
    ctx = tp.Context("t")
    with ctx as ((t, bound),):
        q, k, v = (tp.input(name, (8,), domain=(t,)) for name in "qkv")
        y = (k[0 : t + 1] @ q).softmax(0) @ v[0 : t + 1]
    return ctx.compile({bound: T}, y, tp.Config(**options))


def vectors(T: int = 400) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {name: random.normal(size=(T, 8)).astype("float32") for name in "qkv"}


def training(T: int = 900, **options: Any) -> tp.Program[Any]:
    ctx, bound, outputs = network()
    return ctx.compile({bound: T}, outputs[:2], tp.Config(**options))


def without_moves(**options: Any) -> tp.Program[Any]:
    """With fewer forms to try: no tiles, and nothing on the host."""
    return training(disable=("tile",), swap="off", **options)


@cache
def shared(make: Callable[..., tp.Program[Any]], **options: Any) -> tp.Program[Any]:
    """A program that several tests compare with."""
    return make(**options)


def peak(program: tp.Program[Any]) -> int:
    return program.plan().peak_device_bytes or program.plan().peak_host_bytes


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    from tempo_core import compiling

    names: list[str] = []
    compile_lowered = compiling.compile_lowered

    def counted(*arguments: Any, **options: Any) -> Any:
        names.append("program")
        return compile_lowered(*arguments, **options)

    monkeypatch.setattr("tempo_core.runtime.staged.stage.compile_lowered", counted)
    return names


def test_what_fits_is_left_as_it_is(compilations: list[str]) -> None:
    program = attention(memory_limit="100MB")
    assert program.choice is not None and program.choice.form == Form() and program.choice.others == ()
    assert len(compilations) == 1
    program.run(vectors())
    assert len(compilations) == 1
    assert attention().choice is None


@pytest.mark.slow
@pytest.mark.parametrize("backend", fast(["jax", "numpy"], "numpy"))
def test_a_step_becomes_a_loop(backend: str) -> None:
    free = shared(attention, backend=backend)
    limit = peak(free) // 4
    program = shared(attention, memory_limit=limit, backend=backend)
    assert program.choice is not None and program.choice.form == Form(loops=("t",))
    assert peak(program) <= limit
    assert_all_same([program.run(vectors())], [free.run(vectors())])


def test_a_gradient_gets_checkpoints() -> None:
    free, loop = training(), shared(training, disable=("vectorize(t)",))
    limit = peak(loop) * 2 // 3
    program = without_moves(memory_limit=limit)
    assert program.choice is not None and dict(program.choice.form.checkpoints).keys() == {"t"}
    assert peak(program) <= limit
    assert_all_same(program.run(data(900)), free.run(data(900)))


@pytest.mark.slow
def test_of_the_forms_that_fit_the_fastest_is_taken() -> None:
    limit = peak(shared(training, disable=("vectorize(t)",)))
    program = training(memory_limit=limit)
    assert program.choice is not None and program.choice.form == Form(loops=("t",)), "checkpoints would run the loop again"


def test_two_steps() -> None:
    def tables(**options: Any) -> tp.Program[Any]:
        ctx = tp.Context("i", "t")
        with ctx as ((i, I), (t, T)):
            x, z = tp.input("x", (6,), domain=(i,)), tp.input("z", (6,), domain=(t,))
            y = tp.tanh(tp.cumsum(tp.sort(x * z, 0), 0)).max(0)
        return ctx.compile({I: 60, T: 70}, y, tp.Config(**options))

    random = np.random.default_rng(0)
    inputs = {name: random.normal(size=(n, 6)).astype("float32") for name, n in (("x", 60), ("z", 70))}
    free = tables()
    limit = peak(free) // 2
    program = tables(memory_limit=limit)
    assert peak(program) <= limit
    assert_all_same([program.run(inputs)], [free.run(inputs)])


@pytest.mark.slow
@pytest.mark.parametrize("make", [attention, without_moves])
def test_a_refusal_names_the_smallest_limit_that_would_do(make: Any) -> None:
    with pytest.raises(tp.errors.OutOfMemoryPlanError, match=r"the smallest of \d+ forms") as error:
        make(memory_limit="4kB")
    match = re.search(r"allow that much, memory_limit=(\d+)", str(error.value))
    assert match is not None and re.search(r"\((input|part)\)", str(error.value))
    program = make(memory_limit=int(match[1]))
    assert peak(program) == int(match[1])


@pytest.mark.slow
def test_what_was_chosen_and_why_is_explained() -> None:
    program = shared(attention, memory_limit=peak(shared(attention, backend="jax")) // 4, backend="jax")
    text = program.explain().split("\n\n")[0]
    lines = text.splitlines()
    assert lines[0].startswith("memory_limit: ") and lines[1].startswith("  chosen: a loop over t: ")
    assert any(re.fullmatch(r"  too large: as without a limit: [\d,]+ bytes, about .* ms", line) for line in lines), text
    assert "memory_limit" not in shared(attention, backend="jax").explain()


@pytest.mark.slow
def test_the_options_of_the_user_stay() -> None:
    program = attention(memory_limit=peak(shared(attention, backend="jax")) // 4, disable=("cse",), seed=3)
    assert "cse" in program.config.disable and program.config.seed == 3 and "vectorize(t)" in program.config.disable


def test_other_bounds_are_chosen_anew() -> None:
    program = attention(T=40, memory_limit="300kB")
    assert program.choice is not None and program.choice.form == Form()
    larger = program.with_bounds({"T": 400})
    assert larger.choice is not None and larger.choice.form == Form(loops=("t",)) and peak(larger) <= 300_000
    assert_all_same([larger.run(vectors())], [shared(attention, backend="jax").run(vectors())])


def test_a_second_start_compiles_nothing(tmp_path: Path, compilations: list[str]) -> None:
    limit = peak(shared(attention, backend="jax")) // 4
    attention(memory_limit=limit, cache=tmp_path)
    compilations.clear()
    attention(memory_limit=limit, cache=tmp_path).run(vectors())
    assert compilations == []


# -- without a limit --------------------------------------------------------------------------------------------------------------


def outer_products(T: int = 2400, **options: Any) -> tp.Program[Any]:
    """The last value of an average of functions of outer products: all of them at once are 39 MB, and a loop keeps one."""
    ctx = tp.Context("t")
    with ctx as ((t, bound),):
        x = tp.input("x", (64,), domain=(t,))
        average = tp.recurrence((64, 64), domain=(t,), name="average")
        average[0] = tp.abs(x[0].expand_dims(1) * x[0])
        average[t] = 0.99 * average[t - 1] + 0.01 * tp.abs(x.expand_dims(1) * x)
    return ctx.compile({bound: T}, average[bound - 1], tp.Config(**options))


def best_paths(rows: int = 16, T: int = 640, states: int = 32, **options: Any) -> tp.Program[Any]:
    """Viterbi: the scores of all pairs of states at all points, from which the way back reads."""
    ctx = tp.Context("b", "t")
    with ctx as ((b, B), (t, bound)):
        move, seen = tp.input("move", (states, states)), tp.input("seen", (states,), domain=(b, t))
        best = tp.recurrence((states,), domain=(b, t), name="best")
        scores = best[b, t - 1].expand_dims(1) + move
        best[b, 0] = seen[b, 0]
        best[b, t] = scores.max(0) + seen
        path = tp.recurrence((), "int32", domain=(b, t), name="path")
        path[b, bound - 1] = best[b, bound - 1].argmax(0)
        path[b, t] = scores.argmax(0)[b, t + 1].index(0, path[b, t + 1])
    return ctx.compile({B: rows, bound: T}, path, tp.Config(**options))


def n_step_learning(T: int = 800, pixels: int = 12_288, **options: Any) -> tp.Program[Any]:
    """The value of pictures, learned from the rewards of the next five points, while a policy that reads it acts."""
    ctx = tp.Context("i", "t")
    with ctx as ((i, iterations), (t, bound)):
        grid = tp.input("grid", (2, pixels))
        w = tp.recurrence((2, pixels), domain=(i,), name="w")
        w[0] = tp.input("w0", (2, pixels))
        place = tp.recurrence((2,), domain=(i, t), name="place")
        picture = tp.abs(grid - place.reshape(2, 1)).max(0)
        value = tp.tanh(w @ picture).sum(0)
        place[0, 0] = tp.zeros((2,))
        place[i, 0] = place[i - 1, bound - 1]
        place[i, t] = tp.sin(place[i, t - 1] + value[i, t - 1].detach())
        rewards = place.sum(0)[i, t : tp.min(t + 5, bound)].sum(0)
        error = (rewards + value[i, tp.min(t + 5, bound - 1)]).detach() - value
        loss = (error**2)[i, 0:bound].mean(0)
        (gradient,) = tp.grad(loss, [w])
        w[i + 1] = w - 0.01 * gradient
    return ctx.compile({iterations: 2, bound: T}, [loss, w], tp.Config(**options))


LOOPS = {"outer products": (outer_products, "t", 40), "n-step": (n_step_learning, "t", 25)}


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_is_taken_where_memory_makes_it_faster(name: str) -> None:
    make, step, times = LOOPS[name]
    program, at_once = make(), make(disable=("loop",))
    assert program.choice is not None and program.choice.form == Form(loops=(step,)), program.choice
    assert at_once.choice is None and peak(at_once) > times * peak(program)


def inputs_of(program: tp.Program[Any]) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    shapes = {name: node.outputs[0].shape for name, node in program.graph.fed().items()}
    return {
        name: random.normal(size=[size.evaluate(program.bounds) for size in shape]).astype("float32")
        for name, shape in shapes.items()
    }


@pytest.mark.parametrize(
    ("make", "sizes"),
    [
        (outer_products, {"T": 9}),
        (best_paths, {"rows": 3, "T": 7, "states": 4}),
        (n_step_learning, {"T": 12, "pixels": 30}),
    ],
)
def test_loops_have_the_same_results(make: Any, sizes: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = make(**sizes)
    monkeypatch.setattr(planner, "LEAST_GAIN", 0.0)
    monkeypatch.setattr(planner, "LEAST_SECONDS_SAVED", -1e9)
    monkeypatch.setattr(Candidate, "is_worse_than", lambda self, other: True)
    with targets.numbers(cache_bytes=1.0):
        program, inputs = make(**sizes), inputs_of(at_once)
    assert at_once.choice is None and program.choice is not None and program.choice.form != Form()
    results = [each if isinstance(each, list) else [each] for each in (program.run(inputs), at_once.run(inputs))]
    assert_all_same(*results)


def weights(T: int, **options: Any) -> tp.Program[Any]:
    """Two layers and their gradients, at all points at once: products of matrices."""
    ctx = tp.Context("t")
    with ctx as ((t, bound),):
        x = tp.input("x", (64,), domain=(t,))
        a, b = tp.input("a", (64, 128)), tp.input("b", (128, 64))
        loss = ((tp.tanh(x @ a) @ b - x) ** 2).sum(0)[0:bound].mean(0)
    return ctx.compile({bound: T}, tp.grad(loss, [a, b]), tp.Config(**options))


@pytest.mark.parametrize("make", [lambda: weights(40_000), lambda: attention(T=2000)], ids=["layers", "attention"])
def test_what_is_faster_at_once_stays(make: Any) -> None:
    program = make()
    assert program.choice is None or program.choice.form == Form()
    assert "for t in" not in program.text("program")


def test_a_small_program_is_not_compiled_twice(compilations: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempo_core.compiler.Planner", None)
    assert outer_products(T=100).choice is None and compilations == []


@pytest.mark.parametrize(
    "options",
    [
        {"disable": ("loop",)},
        {"disable": ("vectorize(t)",)},
        {"disable": ("vectorize",)},
        {"tile": {"t": 64}},
        {"checkpoint": {"t": 64}},
    ],
    ids=str,
)
def test_options_are_not_overruled(options: dict[str, Any]) -> None:
    program = outer_products(**options)
    assert program.choice is None or program.choice.form == Form()
    assert program.config == tp.Config(**options)


@pytest.mark.parametrize(("step", "form"), [("t", Form()), ("i", Form(loops=("t",)))])
def test_a_step_over_which_the_host_is_called_stays(step: str, form: Form) -> None:
    ctx = tp.Context("i", "t")
    with ctx as ((i, iterations), (t, bound)):
        x = tp.input("x", (64,), domain=(i, t))
        average = tp.recurrence((64, 64), domain=(i, t), name="average")
        average[i, 0] = tp.abs(x[i, 0].expand_dims(1) * x[i, 0])
        average[i, t] = 0.99 * average[i, t - 1] + 0.01 * tp.abs(x.expand_dims(1) * x)
        tp.sink(lambda value, *at: None, average[i, bound - 1].sum() if step == "i" else average.sum(), name="seen")
    program = ctx.compile({iterations: 2, bound: 2400}, average[iterations - 1, bound - 1])
    assert (Form() if program.choice is None else program.choice.form) == form


def test_a_limit_that_fits_leaves_a_program_as_it_is() -> None:
    program = outer_products(memory_limit="1GB")
    assert program.choice is not None and program.choice.form == Form()


def test_the_reason_for_a_loop_is_explained() -> None:
    lines = outer_products().explain().split("\n\n")[0].splitlines()
    assert lines[0] == "the form of the program, by its time"
    assert re.fullmatch(r"  chosen: a loop over t: at least [\d,]+ bytes, about .* ms", lines[1]), lines
    assert re.fullmatch(r"  slower: as it is: [\d,]+ bytes, about .* ms", lines[2]), lines


def test_temporaries_that_xla_does_not_need_are_no_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop is slower but for the memory, of which XLA's own figure counts."""
    compile_candidate = Candidate.compile

    def without_temporaries(self: Any) -> None:
        compile_candidate(self)
        self.allocated = 0

    monkeypatch.setattr(Candidate, "compile", without_temporaries)
    monkeypatch.setattr(Target, "_of_statement", lambda *_: 1e-9)
    program = outer_products()
    assert program.choice is not None and program.choice.form == Form()


def test_a_loop_that_needs_more_memory_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Candidate.__post_init__

    def larger(self: Any) -> None:
        begin(self)
        self.allocated += 10**8 * len(self.form.loops)

    monkeypatch.setattr(Candidate, "__post_init__", larger)
    monkeypatch.setattr(Target, "_of_fresh_memory", lambda self, allocated: 1.0 * (allocated < 10**8))
    program = outer_products()
    assert program.choice is not None and program.choice.form == Form()
    assert program.choice.others[0].startswith("needs more memory: a loop over t")


def test_other_bounds_decide_anew() -> None:
    program = outer_products(T=100)
    larger = program.with_bounds({"T": 2400})
    assert larger.choice is not None and larger.choice.form == Form(loops=("t",))
    assert larger.with_bounds({"T": 100}).choice is None


# -- bounds of a run ----------------------------------------------------------------------------------------------------------------


def test_runs_of_a_length_that_each_chooses() -> None:
    def program(**options: Any) -> tp.Program[Any]:
        ctx = tp.Context("t")
        with ctx as ((t, bound),):
            q, k, v = (tp.input(name, (8,), domain=(t,)) for name in "qkv")
            y = (k[0 : t + 1] @ q).softmax(0) @ v[0 : t + 1]
        return ctx.compile({bound: tp.upto(400)}, y, tp.Config(**options))

    free = program()
    limited = program(memory_limit=peak(free) // 3)
    assert peak(limited) <= peak(free) // 3
    assert_all_same([limited.run(vectors(50))], [free.run(vectors(50))])
