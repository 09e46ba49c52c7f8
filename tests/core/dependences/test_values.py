"""The values that patterns read: by plain NumPy, and the same by the reference, the interpreter and the staged executor."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

import tempo_core as tp
from tests import reference
from tests.cases import first, slow
from tests.core.dependences.equations import EQUATIONS
from tests.core.dependences.patterns import EARLIER, FAST, FAST_EARLIER, READS, Pattern
from tests.core.dependences.support import Setting, kinds_for, read_program, recurrent_program, usable
from tests.core.running import SETTINGS, assert_all_same

BOUNDS = [(2, 5), (1, 1), (3, 2)]  # larger than windows, blocks and delays, and smaller
Build = Callable[[Setting, Pattern, str], tuple[tp.Tensor, np.ndarray]]


def assert_right(s: Setting, outputs: Sequence[tp.Tensor], expected: Sequence[np.ndarray], *settings: str) -> None:
    results = reference.evaluate(s.context, outputs, s.bounds, s.inputs)
    assert_all_same(results, [np.asarray(e, "float32") for e in expected], 1e-4)
    for name in settings:
        assert_all_same(s.context.run(s.bounds, outputs=outputs, inputs=s.inputs, config=SETTINGS[name]), results, 1e-4)


def assert_pattern(build: Build, pattern: Pattern, kind: str) -> None:
    for bounds in BOUNDS:
        s = Setting(*bounds)
        if usable(s, pattern, kind):
            y, expected = build(s, pattern, kind)
            settings = ("numpy", "numpy, no passes") if bounds == (2, 5) else ("numpy",)
            assert_right(s, [y], [expected], *settings)


@pytest.mark.parametrize(("pattern", "kind"), [row if row[0].name in FAST else slow(row) for row in kinds_for(READS)], ids=str)
def test_reads_of_what_is_given(pattern: Pattern, kind: str) -> None:
    assert_pattern(read_program, pattern, kind)


@pytest.mark.parametrize(
    ("pattern", "kind"), [row if row[0].name in FAST_EARLIER else slow(row) for row in kinds_for(EARLIER)], ids=str
)
def test_reads_of_itself(pattern: Pattern, kind: str) -> None:
    assert_pattern(recurrent_program, pattern, kind)


@pytest.mark.parametrize("name", first(6, EQUATIONS))
def test_equations(name: str) -> None:
    for bounds in ((3, 6), (2, 3)):
        s = Setting(*bounds)
        with s.context:
            outputs, expected = EQUATIONS[name](s)
        assert_right(s, outputs, expected, *(n for n in SETTINGS if n != "staged" or bounds == (3, 6)))
