"""A limit of memory: the fastest form of a program that fits is taken, or the smallest limit that would do is named."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.planner import Form
from tests.core.passes.test_checkpoint import data, network
from tests.core.running import assert_all_same


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


@pytest.mark.parametrize("backend", ["jax", "numpy"])
def test_a_step_becomes_a_loop(backend: str) -> None:
    free = attention(backend=backend)
    limit = peak(free) // 4
    program = attention(memory_limit=limit, backend=backend)
    assert program.choice is not None and program.choice.form == Form(loops=("t",))
    assert peak(program) <= limit
    assert_all_same([program.run(vectors())], [free.run(vectors())])


def test_a_gradient_gets_checkpoints() -> None:
    free, loop = training(), training(disable=("vectorize(t)",))
    limit = peak(loop) * 2 // 3
    program = training(memory_limit=limit)
    assert program.choice is not None and dict(program.choice.form.checkpoints).keys() == {"t"}
    assert peak(program) <= limit
    assert_all_same(program.run(data(900)), free.run(data(900)))


def test_of_the_forms_that_fit_the_fastest_is_taken() -> None:
    limit = peak(training(disable=("vectorize(t)",)))
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


@pytest.mark.parametrize("make", [attention, training])
def test_a_refusal_names_the_smallest_limit_that_would_do(make: Any) -> None:
    with pytest.raises(tp.errors.OutOfMemoryPlanError, match=r"the smallest of \d+ forms") as error:
        make(memory_limit="4kB")
    match = re.search(r"allow that much, memory_limit=(\d+)", str(error.value))
    assert match is not None and re.search(r"\((input|part)\)", str(error.value))
    program = make(memory_limit=int(match[1]))
    assert peak(program) == int(match[1])


def test_what_was_chosen_and_why_is_explained() -> None:
    program = attention(memory_limit=peak(attention()) // 4)
    text = program.explain().split("\n\n")[0]
    lines = text.splitlines()
    assert lines[0].startswith("memory_limit: ") and lines[1].startswith("  chosen: a loop over t: ")
    assert any(re.fullmatch(r"  too large: as without a limit: [\d,]+ bytes, about .* ms", line) for line in lines), text
    assert "memory_limit" not in attention().explain()


def test_the_options_of_the_user_stay() -> None:
    program = attention(memory_limit=peak(attention()) // 4, disable=("cse",), seed=3)
    assert "cse" in program.config.disable and program.config.seed == 3 and "vectorize(t)" in program.config.disable


def test_other_bounds_are_chosen_anew() -> None:
    program = attention(T=40, memory_limit="300kB")
    assert program.choice is not None and program.choice.form == Form()
    larger = program.with_bounds({"T": 400})
    assert larger.choice is not None and larger.choice.form == Form(loops=("t",)) and peak(larger) <= 300_000
    assert_all_same([larger.run(vectors())], [attention().run(vectors())])


def test_a_second_start_compiles_nothing(tmp_path: Path, compilations: list[str]) -> None:
    limit = peak(attention()) // 4
    attention(memory_limit=limit, cache=tmp_path)
    compilations.clear()
    attention(memory_limit=limit, cache=tmp_path).run(vectors())
    assert compilations == []


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
