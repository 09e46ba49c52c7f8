"""The plan of a program's memory is true: in a run, resident memory grows by what was planned. Each program is a process."""

from __future__ import annotations

import sys

import pytest

from benchmarks.memory.process import reported
from tests.cases import fast
from tests.core.runtime.memory_programs import PROGRAMS

pytestmark = pytest.mark.cpu
FAST = ("a_memory_map",)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("name", fast(PROGRAMS, *FAST))
def test_memory_grows_as_planned(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XLA_FLAGS", raising=False)  # as users run it
    figures = reported("tests.core.runtime.memory_programs", [name])
    assert figures["planned"] > 200e6
    assert figures["grown"] == pytest.approx(figures["planned"], rel=0.1)
