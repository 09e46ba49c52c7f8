"""Why steps are loops, and why large stores are kept and how to make them smaller: the beginning of `program.explain()`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import replace

from tempo_core.ir.dependence import feeding
from tempo_core.ir.graph import Key
from tempo_core.ir.names.naming import names, value_names
from tempo_core.ir.names.user_lines import Sources, span
from tempo_core.ir.ops import Output
from tempo_core.passes.keep.checkpoint import loops_back
from tempo_core.report.graphs.picture import place_of
from tempo_core.schedule import Scheduled
from tempo_core.schedule.constraints import Read
from tempo_core.schedule.storage import keepers
from tempo_core.schedule.tree import loop_label, with_loops
from tempo_core.symbolic.condition import TRUE
from tempo_core.symbolic.domain import Index, Range
from tempo_core.symbolic.expr import Symbol

LARGE = 10  # a store of more than this part of the peak is large
LISTED = 4  # reasons of a step, and readers of a store
_OPTION = "an option makes it one: `disable`, `tile` or `checkpoint`"


def loops(scheduled: Scheduled, reasons: Mapping[str, Iterable[str]]) -> str:
    """Each step that stays a loop, with its loops and its reasons; `reasons` are by the names of steps."""
    labels: dict[str, dict[str, None]] = {}
    for execute, around in with_loops(scheduled.root):
        for loop in around:  # a loop that goes back has a counter of its own
            steps = zip(scheduled.graph[execute.node].domain.steps, execute.point, strict=True)
            counted = [step.name for step, at in steps if loop.counter in at.symbols] or [loop.counter.name]
            name = loop.counter.name if loop.counter.name in counted else counted[0]
            labels.setdefault(name, {})[f"`{loop_label(loop)}`"] = None
    lines = []
    for step, its_loops in labels.items():
        lines.append(f"  {step}: {', '.join(its_loops)}")
        lines += [f"    {reason}" for reason in few(reasons.get(step, ())) or [_OPTION]]
    return "\n".join(["steps that stay loops", *lines]) if lines else ""


def large_stores(scheduled: Scheduled, sources: Sources, peak: int) -> dict[Key, str]:
    """For each store of more than a tenth of the peak, which reads keep it, and how to make it smaller."""
    graph, sizes = scheduled.graph, dict[Key, int]()
    for (node_id, output), storage in scheduled.storage.items():
        type = graph[node_id].outputs[output]
        sizes[node_id, output] = type.size_in_bytes(scheduled.bounds) * storage.size if type.is_static else 0
    large = sorted((key for key, size in sizes.items() if size * LARGE > peak), key=lambda key: -sizes[key])
    statements, values, texts = names(graph), value_names(graph), dict[Key, str]()
    back = {step: loops_back(graph, step)[0] for step in graph.order} if large else {}
    for key, reads in keepers(scheduled.schedule, scheduled.bounds, large).items():
        by = []
        for read in reads:
            reader, edge = read.reader.node, replace(read.edge, condition=TRUE, index=tuple(map(_written, read.edge.index)))
            line = span(sources.of(reader)[:1])
            by.append(f"`{statements[reader.id]}`{place_of(graph, reader, edge)}" + (f" ({line})" if line else ""))
        why = f"kept for {', '.join(few(dict.fromkeys(by)))}; " if by else ""
        ways = dict.fromkeys(way for read in reads for way in _smaller(scheduled, key, read, back))
        line = span([sources.of_value(graph[key[0]], key[1])])
        place = f"`{values[key]}`" + (f" ({line})" if line else "")
        texts[key] = f"{place}: {sizes[key]:,} bytes, {why}smaller: {'; and '.join(ways) or 'only with a smaller shape or dtype'}"
    return texts


def _smaller(scheduled: Scheduled, key: Key, read: Read, back: Mapping[Symbol, Set[int]]) -> Iterator[str]:
    """What to write instead, for a read that keeps a store. `back` are the nodes of loops that go back over a step."""
    graph, node, reader, storage = scheduled.graph, scheduled.graph[key[0]], read.reader.node, scheduled.storage[key]
    if isinstance(reader.op, Output):
        yield "ask for a result of fewer points"
        return
    for step, slots, index in zip(node.domain.steps, storage.slots, read.edge.index, strict=True):
        index = _written(index)
        if slots == 1:
            continue
        is_whole = isinstance(index, Range) and not index.start.steps | index.stop.steps
        feeds = is_whole and reader.id in feeding(graph, [graph[n] for n in back[step]])
        if feeds or reader.id in back[step] or reader.name.startswith("grad_"):
            yield f'for the gradient, `Config(checkpoint={{"{step}": {math.isqrt(slots - 1) + 1}}})`'
        elif isinstance(index, Range) and index.start.steps | index.stop.steps:
            yield f"a shorter window in place of `[{index}]`, or a recurrence that carries what is made of it, as `s[{step} + 1] = s + x`"
        elif isinstance(index, Range):
            yield f"a recurrence in place of `[{index}]` that carries what is made of it, as `s[{step} + 1] = s + x`"
        elif index.expr == step.expr:
            yield f'a later loop over {step} reads it: for a gradient, `Config(checkpoint={{"{step}": {math.isqrt(slots - 1) + 1}}})`'
        else:
            yield f"read a nearer point than `[{index}]`: a slot is kept for each point between the write and the read"
    bounds = {symbol for size in node.outputs[key[1]].shape for symbol in size.symbols}
    has_tiles = any(step.bound_symbol in graph.derived for step in node.domain.steps)  # or diagonals
    for step in () if has_tiles or storage.size > 1 else graph.order:
        if step.bound_symbol in bounds:
            yield f'all points of {step} are there at once: `Config(disable=("vectorize({step})",))` has one at a time'


def _written(index: Index) -> Index:
    """An index as it was written: without the size to which a range is filled up."""
    return replace(index, size=None) if isinstance(index, Range) else index


def few(texts: Iterable[str]) -> list[str]:
    """The first texts, and how many there are besides."""
    listed = list(texts)
    return listed[:LISTED] + ([f"{len(listed) - LISTED} more"] if len(listed) > LISTED else [])
