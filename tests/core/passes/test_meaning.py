"""Each pass keeps the meaning of a program: in the pipeline, alone, and switched off."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest

import tempo_core as tp
from tempo_core import prices
from tempo_core.compiler import result_of, with_outputs
from tempo_core.errors import OutOfDomainError
from tempo_core.ir.graph import Graph
from tempo_core.ir.verify import verify
from tempo_core.passes.base import Pass
from tempo_core.passes.batch.precompute import Precompute
from tempo_core.passes.batch.split import Split
from tempo_core.passes.batch.vectorize import Vectorize
from tempo_core.passes.batch.wavefront import Wavefront
from tempo_core.passes.clean.cse import Cse
from tempo_core.passes.clean.dce import Dce
from tempo_core.passes.clean.narrow import Narrow
from tempo_core.passes.clean.simplify import Simplify
from tempo_core.passes.keep.align import Align
from tempo_core.passes.keep.checkpoint import Checkpoint
from tempo_core.passes.keep.compact import Compact
from tempo_core.passes.keep.fuse import Fuse
from tempo_core.passes.keep.recompute import Recompute
from tempo_core.passes.keep.trim import Trim
from tempo_core.passes.keep.update import Update
from tempo_core.passes.order.associate import Associate
from tempo_core.passes.pipeline import pipeline
from tempo_core.passes.ranges.accumulate import Accumulate
from tempo_core.passes.ranges.lift import Lift
from tempo_core.passes.ranges.shift import Shift
from tempo_core.passes.shapes.pad import Pad
from tempo_core.passes.tiles.strip import Strip
from tempo_core.passes.tiles.tile import Tile
from tempo_core.symbolic.expr import Symbol
from tests import reference, targets
from tests.cases import cells, fast, slow
from tests.core.passes.programs import HARD, PROGRAMS
from tests.core.passes.support import fed
from tests.core.running import assert_same

SIZES = [(3, 5), (1, 1), (2, 1)]  # steps of one point
NUMBERS = tuple(zip((Symbol("I"), Symbol("T")), SIZES[0], strict=True))

ALONE: dict[str, tuple[Pass, ...]] = {
    "dce": (Dce(),),
    "cse": (Cse(),),
    "simplify": (Simplify(),),
    "narrow": (Narrow(),),
    "split": (Split(),),
    "lift": (Lift(),),
    "shift": (Shift(),),
    "align": (Align(), Align(fed=True)),
    "associate": (Associate(loops=True),),
    "pad": (Pad(),),
    "precompute": (Pad(), Precompute()),
    "wavefront": (Pad(), Wavefront()),
    "vectorize": (Pad(), Vectorize()),
    "accumulate": (Accumulate(running=True), Pad(), Accumulate()),
    "compact": (Pad(), Vectorize(), Simplify(), Accumulate(), Compact(tiles=(("t", 2), ("i", 2)))),
    "tile": (Pad(), Vectorize(), Tile(sizes=(("t", 2), ("i", 2)))),
    "strip": (Pad(), Vectorize(), Simplify(), Accumulate(), Simplify(), Strip(NUMBERS)),
    "checkpoint": (Pad(), Checkpoint((("t", 2), ("i", 3)))),
    "trim": (Trim(),),
    "recompute": (Pad(), Recompute()),
    "update": (Pad(), Update()),
    "fuse": (Pad(), Fuse()),
}


class Source:
    """A program as written, for some bounds, with inputs and the values of the reference."""

    def __init__(self, name: str, sizes: tuple[int, int]):
        self.context, self.tensors = PROGRAMS[name].build()
        self.bounds = {Symbol("I"): sizes[0], Symbol("T"): sizes[1]}
        self.graph = with_outputs(self.context, self.tensors)
        self.inputs = fed(self.graph, {str(bound): n for bound, n in self.bounds.items()})
        self.expected = reference.evaluate(self.graph, None, self.bounds, self.inputs)

    def assert_same(self, graph: Graph, after: str) -> None:
        verify(graph, after=after)
        self.assert_equal(reference.evaluate(graph, None, self.bounds, self.inputs), after)

    def assert_equal(self, result: list[Any], after: str) -> None:
        for k, (value, expected, tensor) in enumerate(zip(result, self.expected, self.tensors, strict=True)):
            trimmed = value if isinstance(value, list) else result_of(tensor).former(self.bounds)(value)
            assert_same(trimmed, expected, 1e-4, f"output {k} after {after}")


def alone_by_default(name: str, alone: str) -> bool:
    """Programs that are hard for a pass: with this pass, and with the one of the diagonal of both tables."""
    return name in HARD and (
        PROGRAMS[name].hard_on == alone or list(PROGRAMS).index(name) % len(ALONE) == list(ALONE).index(alone)
    )


@functools.cache
def source(name: str, sizes: tuple[int, int]) -> Source:
    return Source(name, sizes)


FAST = {name: SIZES[number % 3] for number, name in enumerate(PROGRAMS)}  # each program with one pair of sizes


def both() -> Iterator[Any]:
    """Programs and sizes."""
    for name, program in PROGRAMS.items():
        for sizes in (each for each in SIZES if each[1] >= program.least):
            row = (name, sizes)
            if row == ("table_with_limits", (2, 1)):
                reason = "OutOfDomainError: an empty slice begins two points behind its end"
                yield pytest.param(*row, marks=[pytest.mark.slow, pytest.mark.xfail(reason=reason, raises=OutOfDomainError)])
            else:
                yield row if name in HARD and sizes == FAST[name] else slow(row)


@pytest.fixture(autouse=True)
def small_prices(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(prices, "LEAST_ELEMENTS_OF_A_BLOCKED_SUM", 1)
    with targets.strips(64):
        yield


@pytest.mark.parametrize(("name", "sizes"), both())
def test_after_the_passes_of_the_pipeline(name: str, sizes: tuple[int, int]) -> None:
    program = source(name, sizes)
    graph = program.graph
    for each in pipeline(numbers=tuple(program.bounds.items())):
        before, graph = graph, each.apply(graph)
        if graph.nodes != before.nodes:
            program.assert_same(graph, each.name)


@pytest.mark.parametrize(("name", "alone"), cells(PROGRAMS, ALONE, fast=alone_by_default))
def test_a_pass_alone(name: str, alone: str) -> None:
    program = source(name, SIZES[0])
    graph = program.graph
    for each in ALONE[alone]:
        graph = each.apply(graph)
    if graph.nodes != program.graph.nodes:
        program.assert_same(graph, alone)


@pytest.mark.parametrize("name", fast(PROGRAMS, *HARD))
def test_compiled_with_the_pass_on_and_off(name: str) -> None:
    program = source(name, SIZES[0])
    for disabled in ((), (PROGRAMS[name].hard_on,)):
        config = tp.Config(backend="numpy", disable=disabled)
        program.assert_equal(
            program.context.run(program.bounds, outputs=program.tensors, inputs=program.inputs, config=config), f"{disabled} off"
        )
