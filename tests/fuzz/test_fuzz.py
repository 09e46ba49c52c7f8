"""Random programs: the compiler gives the values of the reference, with any passes, executor and bounds.

`python -m benchmarks.fuzz --programs 1000 --seed 7` runs any number of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, Phase, assume, given, note, seed, settings

from tests.fuzz.checking import check
from tests.fuzz.generator import programs
from tests.fuzz.script import Program


def quick(count: int) -> settings:
    """Settings for `count` programs, the same ones each time; hypothesis makes a failing one small."""
    return settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )


def assert_right(program: Program) -> None:
    outcome = check(program)
    note(f"# run this from the root of the repository:\n{program.script()}")
    assume(outcome.kind != "left out")
    if outcome.failed:
        pytest.fail(outcome.why, pytrace=False)


@pytest.fixture(scope="module", autouse=True)
def quickly_compiled() -> Iterator[None]:
    """Compiling without XLA's optimizations, which take most of its time and are not tested here."""
    import jax

    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


def batch(number: int, count: int, executor: str) -> Callable[[], None]:
    """A test of so many programs. Batches of other numbers draw others, and run on other cores."""

    @seed(number)
    @quick(count)
    @given(programs(size=6, executor=executor))
    def check_programs(program: Program) -> None:
        assert_right(program)

    return check_programs


test_programs_in_numpy = batch(42, 4, "numpy")
test_interpreted_programs = batch(32, 4, "interpreted")
test_staged_programs = batch(24, 3, "staged")
test_more_programs_in_numpy = pytest.mark.slow(batch(43, 4, "numpy"))
test_more_staged_programs = pytest.mark.slow(batch(23, 4, "staged"))
