"""Random programs: the compiler gives what the reference gives, whatever the passes, the executor and the bounds.

`python -m benchmarks.fuzz --programs 1000 --seed 7` runs as many as one likes.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from tests.fuzz.checking import check, shrink
from tests.fuzz.generator import Program, draw_program

SEEDS = st.integers(0, 2**32 - 1)


def quick(count: int) -> settings:
    """So many programs, the same ones each time; `shrink` makes a failing one small, which it does faster than hypothesis."""
    return settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )


def assert_right(program: Program) -> None:
    outcome = check(program)
    assume(outcome.kind != "left out")
    if outcome.failed:
        small = shrink(program, lambda candidate: check(candidate).failed)
        pytest.fail(f"{check(small).why}\n# run this from the root of the repository:\n{small.script()}", pytrace=False)


@quick(60)
@given(SEEDS)
def test_interpreted_programs(seed: int) -> None:
    assert_right(draw_program(seed))


@quick(12)
@given(SEEDS)
def test_staged_programs(seed: int) -> None:
    assert_right(draw_program(seed, staged=True))


def test_a_program_is_its_text() -> None:
    """What the generator tried while drawing is what the script builds; and a failure is one, not left out."""
    program = draw_program(3)
    built = program.build()
    assert len(built["outputs"]) == len(program.outputs)
    assert draw_program(3).text() == program.text()


def test_a_wrong_result_is_found_and_made_small() -> None:
    """With a kernel broken on purpose, some program fails, and what is left of it still uses the kernel."""
    from tempo_core.backends import shared
    from tempo_core.backends.numpy_backend import NumpyBackend
    from tempo_core.ir import ops

    broken = {**shared.BINARY, "maximum": lambda xp, x, y: xp.minimum(x, y)}
    kernels = {**NumpyBackend.kernels, ops.Binary: shared.elementwise(broken)}

    class Broken(NumpyBackend):
        pass

    Broken.kernels = kernels
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempo_core.compiler.NumpyBackend", Broken)
        for seed in range(100):
            program = draw_program(seed)
            if "maximum" in program.text() and check(program).failed:
                small = shrink(program, lambda candidate: check(candidate).failed)
                assert "maximum" in small.text() or "relu" in small.text()
                assert len(small.units) <= len(program.units)
                return
    pytest.fail("no program showed the broken kernel")
