"""The picture of a program: its text, when each statement runs, and what each store holds at that time. One SVG.

Everything is read from the compiled program: the order in which its statements run, the points that each of them reads, and the slots
of its stores. It is for programs with one step, whose tensors have at most one store each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import islpy as isl

from tempo_core.ir.names.naming import exact_names
from tempo_core.program import Program
from tempo_core.schedule import Execute, Loop, instances
from tempo_core.schedule.tree import Item, Leaf
from tempo_core.symbolic.expr import Symbol
from tempo_core.symbolic.isl.sets import CONTEXT, fixed

CELL, SLOT, LINE, MARGIN, LABEL, GAP = (
    24,
    17,
    20,
    24,
    74,
    34,
)  # pixels: a column, a slot, a line of text, borders, names, between parts
CHARACTER = 7.9  # the width of a character of the program's text
COLORS = ("#3b6fb6", "#d9822b", "#3d8f4e", "#9a5fb0", "#c8453f")  # by tensor


@dataclass
class Life:
    """A value in a store: the point that it belongs to, its slot, and the columns in which it is written and read last."""

    point: int
    slot: int
    written: int
    read: int


@dataclass
class Trace:
    """What runs in each column of the picture: an iteration of a loop, or what runs between two loops."""

    columns: int = 0
    runs: dict[str, list[tuple[int, int]]] = field(default_factory=dict)  # by tensor: (column, point)
    lives: dict[str, list[Life]] = field(default_factory=dict)  # by tensor
    slots: dict[str, int] = field(default_factory=dict)  # by tensor


def traced(program: Program, tensors: Sequence[str]) -> Trace:
    """Follow the tensors of these names through the program."""
    scheduled = program.scheduled
    named = {number: name for number, name in exact_names(scheduled.graph).items() if name in tensors}
    stores = {name: scheduled.storage[number, 0] for number, name in named.items()}
    reads: dict[tuple[int, int | None], list[tuple[str, Any]]] = {}  # by statement
    for read in scheduled.schedule.constraints.reads:
        if read.edge.source in named:
            relation = fixed(read.relation, scheduled.bounds)
            reads.setdefault((read.reader.node.id, read.reader.branch), []).append((named[read.edge.source], relation))
    trace, alive = Trace(), dict[tuple[str, int], Life]()

    def visit(leaf: Leaf, point: tuple[int | range, ...]) -> None:
        assert isinstance(leaf, Execute), "the picture is of a program that frees nothing"
        for name, relation in reads.get((leaf.node, leaf.branch), ()):
            for source in _points_read(relation, point):
                alive[name, source].read = trace.columns
        if leaf.node in named:
            (at,) = point
            assert isinstance(at, int)
            name = named[leaf.node]
            slot = stores[name].slot(0, at) if stores[name].slots else 0
            trace.runs.setdefault(name, []).append((trace.columns, at))
            alive[name, at] = Life(at, slot, trace.columns, trace.columns)

    def run(item: Item, values: dict[Symbol, int]) -> None:
        for leaf, point in instances(item, values):
            visit(leaf, point)

    before_a_loop = False
    for item in scheduled.root.children:
        if isinstance(item, Loop):
            trace.columns += before_a_loop
            start, stop = (bound.evaluate(dict(scheduled.bounds)) for bound in (item.start, item.stop))
            for value in range(start, stop, item.step):
                run(item.body, {**scheduled.bounds, item.counter: value})
                trace.columns += 1
        else:
            run(item, dict(scheduled.bounds))
        before_a_loop = not isinstance(item, Loop)
    trace.columns += before_a_loop
    for (name, _), life in alive.items():
        trace.lives.setdefault(name, []).append(life)
    trace.slots = {name: stores[name].size for name in trace.lives}
    return trace


def _points_read(relation: Any, point: tuple[int | range, ...]) -> list[int]:
    """The points along the step that a statement reads at one of its points."""
    for k, at in enumerate(point):
        assert isinstance(at, int)
        relation = relation.fix_val(isl.dim_type.in_, k, isl.Val(at, CONTEXT))
    points: list[int] = []
    relation.range().foreach_point(lambda each: points.append(each.get_coordinate_val(isl.dim_type.set, 0).to_python()))
    return points


def svg(code: str, schedule: str, trace: Trace, note: str) -> str:
    """On the left the program's text and its schedule; on the right what runs in each column, and below it the slots of each store."""
    lines, loops = code.rstrip().splitlines(), schedule.rstrip().splitlines()
    left = MARGIN + max(map(len, lines)) * CHARACTER + GAP
    colors = dict(zip(trace.runs, COLORS, strict=False))
    width = left + LABEL + trace.columns * CELL + MARGIN
    parts, top = [_text(MARGIN, MARGIN + 12, "the program", "title")], MARGIN + 34.0
    for number, line in enumerate(lines):
        parts.append(_text(MARGIN, top + number * LINE, line, "code"))
    below = top + len(lines) * LINE + GAP / 2
    parts.append(_text(MARGIN, below, "its schedule", "title"))
    for number, line in enumerate(loops):
        parts.append(_text(MARGIN, below + 22 + number * LINE * 0.9, line, "code"))
    parts.append(_text(left, MARGIN + 12, "when each statement runs, and for which t", "title"))
    y = MARGIN + 22.0
    for name, runs in trace.runs.items():
        parts.append(_text(left, y + 16, name, "code"))
        parts += [_cell(left + LABEL + column * CELL, y + 2, CELL - 2, CELL - 4, colors[name], str(at)) for column, at in runs]
        y += CELL
    y += GAP
    parts.append(_text(left, y - 8, "what each store holds meanwhile: a row a slot", "title"))
    for name, lives in trace.lives.items():
        slots = trace.slots[name]
        parts.append(_text(left, y + 13, name, "code"))
        parts.append(_text(left, y + 28, f"{slots} slots" if slots > 1 else "1 slot", "note"))
        for life in lives:
            written = {other.written for other in lives if other.slot == life.slot and other is not life}
            read = life.read - (life.read in written)  # the next value of the slot is written in the column of the last read
            span = (read - life.written + 1) * CELL - 2
            parts.append(
                _cell(
                    left + LABEL + life.written * CELL, y + life.slot * SLOT, span, SLOT - 2, colors[name], str(life.point), True
                )
            )
        y += max(slots * SLOT, 32) + 10
    parts.append(_text(left, y + 12, note, "note"))
    height = max(y + 12, below + 22 + len(loops) * LINE * 0.9) + MARGIN
    return "\n".join([_HEAD.format(width=f"{width:.0f}", height=f"{height:.0f}"), *parts, "</svg>\n"])


_HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">
<style>
  .code {{ font: 13px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #24292f; white-space: pre }}
  .title {{ font: bold 13px system-ui, "DejaVu Sans", sans-serif; fill: #57606a }}
  .note {{ font: 11.5px system-ui, "DejaVu Sans", sans-serif; fill: #57606a }}
  .point {{ font: 11px ui-monospace, Menlo, "DejaVu Sans Mono", monospace; fill: white; text-anchor: middle }}
  .kept {{ font: 11px ui-monospace, Menlo, "DejaVu Sans Mono", monospace; fill: #24292f }}
</style>
<rect width="100%" height="100%" rx="8" fill="#f6f8fa"/>"""


def _text(x: float, y: float, text: str, style: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{style}" xml:space="preserve">{escape(text)}</text>'


def _cell(x: float, y: float, width: float, height: float, color: str, text: str, kept: bool = False) -> str:
    """A box with a number: what runs, or (`kept`, paler) a value in its slot from its column on."""
    shade = f'fill="{color}" fill-opacity="0.25" stroke="{color}"' if kept else f'fill="{color}"'
    label = _text(x + 5, y + 11.5, text, "kept") if kept else _text(x + width / 2, y + 14, text, "point")
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="2" {shade}/>{label}'
