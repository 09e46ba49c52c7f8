"""The order of the passes, and the hook that runs after each."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence

from tempo_core.ir.graph import Graph
from tempo_core.ir.verify import Verified, verify, verify_cycles
from tempo_core.passes.base import Pass, renumbered
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
from tempo_core.passes.ranges.accumulate import Accumulate
from tempo_core.passes.ranges.lift import Lift
from tempo_core.passes.ranges.shift import Shift
from tempo_core.passes.shapes.capacity import Capacity
from tempo_core.passes.shapes.ended import Ended
from tempo_core.passes.shapes.pad import Pad
from tempo_core.passes.tiles.strip import Strip
from tempo_core.passes.tiles.tile import Tile
from tempo_core.symbolic.expr import Symbol
from tempo_core.target import Target

LOG = logging.getLogger("tempo")
Hook = Callable[[Pass, Graph, float], None]  # (pass, graph after it, seconds)
VARIABLE = "TEMPO_VERIFY"  # "each": everything is checked after each pass


def pipeline(
    disabled: Sequence[str] = (),
    unvectorized: Sequence[str] = (),
    tiles: Sequence[tuple[str, int]] = (),
    least: Sequence[tuple[Symbol, int]] = (),
    ends: bool = False,
    numbers: Sequence[tuple[Symbol, int]] = (),
    checkpoints: Sequence[tuple[str, int]] = (),
    exact: bool = False,
    target: Target | None = None,
) -> list[Pass]:
    """The passes in their order, without the `disabled` ones (by name).

    `tiles` are the steps to tile, with the sizes of tiles; `least` the bounds that are known when the program runs, with their least
    values; with `ends`, the run finds some of them out. `numbers` are the bounds now: of those in `least`, the capacities. Steps with
    `checkpoints` have segments of these sizes. With `exact`, recurrences have no values outside of their points. The `target` is by default the
    device at hand.
    """
    target = target or Target.at_hand()
    fixed = tuple((bound, number) for bound, number in numbers if bound not in dict(least))
    tiling = [Tile(sizes=tuple(tiles)), Simplify(), Cse(), Narrow()] if tiles else []
    capacity = [Capacity(tuple(least)), Simplify(), Cse()] if least else []
    passes = [
        *([Ended()] if ends else []),
        Dce(),
        Simplify(),
        Cse(),
        Narrow(fixed),
        Split(but=tuple(unvectorized)),
        Lift(but=tuple(unvectorized)),
        Accumulate(running=True),
        Shift(but=tuple(unvectorized)),
        Align(),
        Simplify(),
        Cse(),
        Narrow(fixed),
        Associate(but=tuple(unvectorized), loops=not {"vectorize", "pad"}.isdisjoint(disabled)),
        Pad(),
        Precompute(),
        Wavefront(tuple(numbers), but=tuple(unvectorized)),
        Vectorize(but=tuple(unvectorized), masked=tuple(name for name, _ in tiles), exact=exact),
        Simplify(),
        Cse(),
        Narrow(fixed),
        Accumulate(),
        Simplify(),  # what a point adds may be one product: the gradient of a weight, of a part of a batch
        Associate(loops=True),  # chains of such products
        Compact(() if "strip" in disabled else fixed, target, but=tuple(unvectorized), tiles=tuple(tiles)),
        *tiling,
        *([Strip(fixed, target, but=tuple(name for name, _ in tiles))] if fixed else []),
        *([Checkpoint(tuple(checkpoints)), Simplify()] if checkpoints else []),
        Align(fed=True),
        Update(),
        Trim(),
        *capacity,
        Recompute(),
        Fuse(),
    ]
    loops = ("shift", "split", "compact") if "vectorize" in disabled else ()  # in a loop, a window is a slice
    without = {*disabled, *loops}
    return [p for p in passes if p.name not in without]


def unvectorized(graph: Graph, steps: Sequence[str]) -> tuple[str, ...]:
    """The steps that stay loops: `steps`, and those around inner ends, because each of their points has its own number of iterations."""
    return tuple(dict.fromkeys((*steps, *(step.name for outer in graph.outer().values() for step in outer))))


def run(graph: Graph, passes: Sequence[Pass], hook: Hook | None = None) -> Graph:
    """Apply the passes one after the other; `hook` sees each one's result (to verify, print or time it).

    The final graph is numbered anew, so that its text does not depend on how the passes built it.
    """
    for each in passes:
        start = time.perf_counter()
        graph = each.apply(graph)
        if hook is not None:
            hook(each, graph, time.perf_counter() - start)
    return renumbered(graph)


def run_verified(source: Graph, passes: Sequence[Pass], hook: Hook) -> Graph:
    """The graph after the passes, verified. Raises `InvalidGraphError`, which names the pass that broke the graph.

    Verifying a graph takes as long as a pass, and few passes break one. So after each pass only cycles are checked, because a later pass may
    never end on them; everything is checked after the last. If this or a pass fails, the passes run again, and everything is
    checked after each. With TEMPO_VERIFY=each, as in the tests, it is so from the start.
    """

    def then(check: Callable[[Pass, Graph], None]) -> Hook:
        def finished(each: Pass, graph: Graph, seconds: float) -> None:
            hook(each, graph, seconds)
            check(each, graph)

        return finished

    if os.environ.get(VARIABLE) != "each":
        acyclic: Verified = {}
        try:
            graph = run(source, passes, then(lambda each, graph: verify_cycles(graph, after=each.name, verified=acyclic)))
            verify(graph)
        except Exception:
            LOG.debug("a pass failed, or broke the graph: once more, with all checks after each pass", exc_info=True)
        else:
            return graph
    verified: Verified = {}
    return run(source, passes, then(lambda each, graph: verify(graph, after=each.name, verified=verified)))
