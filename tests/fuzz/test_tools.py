"""Tests of the fuzzer: a program is its text; a failure is found, made small and printed as a script that runs."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tempo_core as tp
from tempo_core.compiler import with_outputs
from tests import reference
from tests.fuzz.checking import check
from tests.fuzz.generator import seeded
from tests.fuzz.script import Program
from tests.fuzz.shrinking import shrink

ROOT = Path(__file__).resolve().parents[2]


def test_a_program_is_its_text() -> None:
    """The script builds the graph that the generator built while drawing; another seed gives another program."""
    program = seeded(3)
    built = program.build()
    assert len(built["outputs"]) == len(program.outputs)
    assert seeded(3).text() == program.text() != seeded(4).text()
    assert set(built["fed"](0)) <= set(program.data)


@pytest.fixture
def broken_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong `maximum` in NumPy programs, and a right one in the reference."""
    from tempo_core.backends import shared
    from tempo_core.backends.numpy_backend import NumpyBackend
    from tempo_core.ir import ops

    class Right(NumpyBackend):
        kernels = dict(NumpyBackend.kernels)

    broken = shared.elementwise({**shared.BINARY, "maximum": lambda xp, x, y: xp.minimum(x, y)})
    monkeypatch.setattr(reference, "NumpyBackend", Right)
    monkeypatch.setattr(NumpyBackend, "kernels", {**NumpyBackend.kernels, ops.Binary: broken})


@pytest.mark.slow
def test_a_wrong_result_is_found_and_made_small(broken_maximum: None) -> None:
    """With a kernel broken on purpose, some program fails, and the small program still uses the kernel."""
    for seed in range(200):
        program = seeded(seed)
        if "tp.maximum" in program.text() and check(program).failed:
            small = shrink(program, lambda candidate: check(candidate).failed, tries=30)
            assert "maximum" in small.text() or "relu" in small.text()
            assert len(small.text()) < len(program.text())
            assert check(small).failed
            return
    pytest.fail("no program showed the broken kernel")


def program_with(*units: str, outputs: tuple[str, ...], bound: int = 3, **options: Any) -> Program:
    return Program({"t": bound}, units, outputs, config='tp.Config(backend="numpy")', **options)


@pytest.mark.slow
def test_a_printed_script_runs_and_fails() -> None:
    """The script of a right program passes; if the compiled program gives other values, the script fails with an assertion."""
    right = program_with("x = tp.random.uniform((2,), domain=(t,)) * 2", outputs=("x",))
    wrong = right.script().replace(
        "\nassert_right(",
        "\nright = tp.Program.run\ntp.Program.run = lambda *a, **k: [x + 1 for x in right(*a, **k)]\nassert_right(",
    )
    for script, code in ((right.script(), 0), (wrong, 1)):
        done = subprocess.run(
            [sys.executable, "-"], input=script, text=True, cwd=ROOT, capture_output=True, timeout=120, check=False
        )
        assert done.returncode == code, done.stderr
        assert ("AssertionError" in done.stderr and "output 0" in done.stderr) == bool(code), done.stderr


def test_refusals_are_confirmed_by_brute_force() -> None:
    """A right refusal counts as "refused"; a program that the compiler refuses without reason fails."""
    recurrence = 'h = tp.recurrence((), domain=(t,), name="h")\nh[0] = 1.0\n'
    wrong = {
        "OutOfDomainError": (recurrence + "h[t + 1] = h * 0.5", "x = h[t + 1] * 2", "y = x[0:T].sum(0)"),
        "UncoveredPointError": (recurrence + "h[t, t >= 2] = h[t - 1]", "y = h * 1"),
        "EmptyBranchError": (recurrence + "h[t] = 0.5\nh[t, t >= 2] = h[t - 1]", "y = h * 1"),
        "CausalityError": (recurrence + "h[t] = h[T - t] * 0.5", "y = h * 1"),
    }
    for error, units in wrong.items():
        outcome = check(program_with(*units, outputs=("y",), bound=5))
        assert (outcome.kind, outcome.why) == ("refused", error)


def test_a_refusal_without_reason_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise tp.errors.OutOfDomainError("no")

    program = program_with("x = tp.random.normal((), domain=(t,))", outputs=("x",))
    assert check(program).kind == "same"
    monkeypatch.setattr("tempo_core.compiler.check_program", refused)
    assert check(program).failed


def test_mistakes_by_brute_force() -> None:
    """All kinds of mistakes are found in one program, and none in a program without mistakes."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (4,), domain=(t,))
        right = x[tp.max(t - 1, 0)] + 1
        outside = x[t + 2] * 2
        backwards = x.spatial[t : T - 2].sum(0)
        around = tp.recurrence((), domain=(t,))
        around[0] = 1.0
        around[t] = around[T - t]
        missing = tp.recurrence((), domain=(t,))
        missing[t, t % 2 == 0] = 1.0
        empty = tp.recurrence((), domain=(t,))
        empty[t, t >= 0] = 1.0
        empty[t, t > 5] = 2.0
        assert not reference.mistakes(with_outputs(ctx, [right]), {T: 5})
        mistakes = reference.mistakes(with_outputs(ctx, [outside[0:T].sum(), backwards, around, missing]), {T: 5})
        unused = reference.empty_branches(with_outputs(ctx, [empty, right]))
    assert {error.__name__ for error in mistakes} == {
        "OutOfDomainError", "IndexingError", "CausalityError", "UncoveredPointError",
    }  # fmt: skip
    assert [number for _, number in unused] == [1]


def test_options_are_made_simpler() -> None:
    """Shrinking drops options, passes and bounds that do not matter."""
    program = replace(
        program_with("x = tp.random.normal((), domain=(t,))", "y = tp.tanh(x) + 1", outputs=("x", "y"), bound=4),
        config="tp.Config(backend=\"numpy\", disable=('dce', 'cse'), tile={'t': 2}, seed=7)",
    )
    small = shrink(program, lambda candidate: "cse" in candidate.config and "tanh" in candidate.text())
    assert small.config == "tp.Config(disable=('cse',))"
    assert small.bounds == {"t": 1} and len(small.outputs) == 1 and small.units == ("y = tp.tanh(x)",)


@pytest.mark.parametrize(
    "units",
    [
        # floor(tanh(9) * 3) is 2 or 3, depending on how tanh rounds
        ("x = tp.full((), 9.0) + t", 'y = tp.floor(tp.tanh(x) * 3).astype("int32")', "z = x[0 : t + 1].sum(0)"),
        # a Fourier transform may give 1e-8 for a sum of zeros beside sums of ones
        ("x = (t + 1) * tp.constant([0.0, 1.0])", "y = (x[0 : t + 1].sum(0) > 0).sum()", "z = x[0 : t + 1].sum(0)"),
    ],
    ids=["floor", "a sum of zeros"],
)
def test_what_rounding_decides_is_left_out(units: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum that is off by one is wrong with any rounding."""
    right = tp.Program.run
    for output, kind in (("y", "left out"), ("z", "failed")):
        program = program_with(*units, outputs=(output,))
        assert check(program).kind == "same"
        with monkeypatch.context() as patch:
            patch.setattr(tp.Program, "run", lambda *a, **k: [x + x.dtype.type(1) for x in right(*a, **k)])
            assert check(program).kind == kind
