"""The graph as a picture: Graphviz text, or an SVG, laid out by Graphviz if it is installed, else by `layout`."""

from __future__ import annotations

import shutil
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from html import escape
from pathlib import Path

from tempo_core.errors import ConfigError
from tempo_core.ir.graph import Graph
from tempo_core.ir.names.user_lines import Sources
from tempo_core.report.graphs.overview import overview
from tempo_core.report.graphs.picture import Box, Picture, boxes
from tempo_core.report.pages.svg import CHARACTER, LINE, not_written, svg

GAP_ACROSS, GAP_DOWN, MARGIN, SIDE = 28.0, 58.0, 24.0, 30.0
FILLS = ("#eef3fb", "#fdf1e3", "#e9f6ec", "#f6ebf8", "#fbf8df", "#e6f5f6", "#f9e9e9", "#eeeeee")  # one per domain, in turn

Place = tuple[float, float, float, float]  # x and y of the middle, width, height


def draw(graph: Graph, path: str | Path, full: bool = True, sources: Sources | None = None) -> None:
    """Write a picture of `graph`: `.dot` and `.svg` always work, other formats (`.pdf`, `.png`) need Graphviz.

    Unless it is `full`, nodes that belong together share a box (`report/graphs/overview.py`). Raises ConfigError, also if the file cannot be written.
    """
    path = Path(path)
    picture = boxes(graph) if full else overview(graph, sources)
    kind, graphviz = path.suffix.removeprefix("."), shutil.which("dot")
    try:
        if kind == "dot":
            path.write_text(to_dot(picture), encoding="utf-8")
        elif graphviz:
            process = subprocess.run(
                [graphviz, f"-T{kind}", "-o", str(path)], input=to_dot(picture), text=True, capture_output=True
            )
            if process.returncode:
                raise ConfigError(
                    f"Graphviz cannot draw {path}: {process.stderr.strip()}", hint='use .svg or .dot: program.draw("graph.svg")'
                )
        elif kind == "svg":
            path.write_text(to_svg(picture), encoding="utf-8")
        else:
            raise ConfigError(
                f"cannot draw {path}: the format .{kind} needs Graphviz",
                hint='install Graphviz, or use .svg or .dot: program.draw("graph.svg")',
            )
    except OSError as error:
        raise not_written(path, error) from error


def to_dot(picture: Picture) -> str:
    """Graphviz text: boxes coloured by domain, and one arrow per read."""
    fills = _fills(picture)
    lines = [
        "digraph {",
        "  rankdir=TB;",
        '  node [shape=box, style="rounded,filled", fontname="monospace", fontsize=10];',
        '  edge [fontname="monospace", fontsize=9];',
    ]
    for number, box in picture.items():
        shape = ", shape=diamond" if box.is_merge else ""
        lines.append(f'  n{number} [label="{_dot_text(box.lines)}", fillcolor="{fills[number]}"{shape}];')
    for number, box in picture.items():
        for source, label in box.reads:
            lines.append(f"  n{source} -> n{number}" + (f' [label="{_dot_text([label])}"];' if label else ";"))
    return "\n".join([*lines, "}"]) + "\n"


def to_svg(picture: Picture) -> str:
    """A layered picture: operands above their readers; reads that close a cycle are dashed and run upwards."""
    places, back = layout(picture)
    fills = _fills(picture)
    width = max((x + w / 2 for x, _, w, _ in places.values()), default=0.0) + MARGIN + SIDE
    height = max((y + h / 2 for _, y, _, h in places.values()), default=0.0) + MARGIN
    parts = [
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#555"/></marker></defs>'
    ]
    for number, box in picture.items():
        for slot, (source, _) in enumerate(box.reads):
            share = (slot + 1) / (len(box.reads) + 1) - 0.5
            parts.append(_arrow(places[source], places[number], share, (source, number) in back))
    for number, box in picture.items():
        x, y, w, h = places[number]
        parts.append(
            f'<g><title>{escape(box.where or "no line of the program")}</title><rect x="{x - w / 2:.1f}" y="{y - h / 2:.1f}" '
            f'width="{w:.1f}" height="{h:.1f}" rx="5" fill="{fills[number]}" stroke="{"#b33" if box.is_end else "#567"}"/>'
        )
        for row, line in enumerate(box.lines):
            weight = ' font-weight="bold"' if row == 0 else ""
            parts.append(_label(line, x, y - h / 2 + LINE * (row + 1), 11, "#123", weight))
        parts.append("</g>")
    for number, box in picture.items():  # labels last, so that no box or arrow covers them
        for slot, (_, label) in enumerate(box.reads):
            if label:
                x, y, w, h = places[number]
                share = (slot + 1) / (len(box.reads) + 1) - 0.5
                parts.append(_label(label, x + share * w, y - h / 2 - 8 - 11 * (slot % 3), 9, "#933", ""))
    return svg(width, height, parts)


# -- places of the boxes --------------------------------------------------------------------------------------------------


def layout(picture: Picture) -> tuple[dict[int, Place], set[tuple[int, int]]]:
    """A place for each box, in layers by the longest path from a source, and the (source, reader) pairs that run backwards."""
    order, back = _walked(picture)
    layer: dict[int, int] = {}
    for number in order:
        above = [layer[source] for source, _ in picture[number].reads if (source, number) not in back]
        layer[number] = max(above, default=-1) + 1
    layers: dict[int, list[int]] = defaultdict(list)
    for number, depth in layer.items():
        layers[depth].append(number)

    position = {number: float(rank) for row in layers.values() for rank, number in enumerate(row)}
    neighbours: dict[int, list[int]] = defaultdict(list)
    for number, box in picture.items():
        for source, _ in box.reads:
            neighbours[number].append(source)
            neighbours[source].append(number)
    for sweep in range(8):  # each box towards the mean of its neighbours, down and up in turn: fewer crossings
        for depth in sorted(layers, reverse=sweep % 2 == 1):
            near = {n: [position[m] for m in neighbours[n]] or [position[n]] for n in layers[depth]}
            layers[depth].sort(key=lambda n: sum(near[n]) / len(near[n]))
            position.update({number: float(rank) for rank, number in enumerate(layers[depth])})

    sizes = {number: _size(box) for number, box in picture.items()}
    widths = {depth: sum(sizes[n][0] + GAP_ACROSS for n in row) - GAP_ACROSS for depth, row in layers.items()}
    places: dict[int, Place] = {}
    top = MARGIN
    for depth in sorted(layers):
        left = MARGIN + (max(widths.values()) - widths[depth]) / 2
        tallest = max(sizes[n][1] for n in layers[depth])
        for number in layers[depth]:
            w, h = sizes[number]
            places[number] = (left + w / 2, top + tallest / 2, w, h)
            left += w + GAP_ACROSS
        top += tallest + GAP_DOWN
    return places, back


def _walked(picture: Picture) -> tuple[list[int], set[tuple[int, int]]]:
    """A walk along the reads, from each box in turn: all boxes, operands first, and the (source, reader) pairs that close a cycle."""
    order: list[int] = []
    back: set[tuple[int, int]] = set()
    seen: set[int] = set()
    for start in picture:
        path, open_boxes = [(start, iter(picture[start].reads))] if start not in seen else [], {start}
        seen.add(start)
        while path:
            number, reads = path[-1]
            source, _ = next(reads, (None, ""))
            if source is None:
                path.pop()
                open_boxes.discard(number)
                order.append(number)
            elif source in open_boxes:
                back.add((source, number))
            elif source not in seen:
                seen.add(source)
                open_boxes.add(source)
                path.append((source, iter(picture[source].reads)))
    return order, back


# -- texts and shapes -----------------------------------------------------------------------------------------------------


def _fills(picture: Picture) -> dict[int, str]:
    domains: dict[str, int] = {}
    return {number: FILLS[domains.setdefault(box.domain, len(domains)) % len(FILLS)] for number, box in picture.items()}


def _size(box: Box) -> tuple[float, float]:
    return max(map(len, box.lines)) * CHARACTER + 16, len(box.lines) * LINE + 10


def _arrow(source: Place, reader: Place, share: float, backwards: bool) -> str:
    """A curve from the bottom of a box to the top of another; around its side where it runs backwards."""
    (x0, y0, w0, h0), (x1, y1, w1, h1) = source, reader
    if backwards:
        start, end = (x0 + w0 / 2, y0 + 6), (x1 + w1 / 2, y1 - 6)  # apart, for a node that reads itself
        side = max(start[0], end[0]) + SIDE
        curve = f"M{start[0]:.1f} {start[1]:.1f}C{side:.1f} {start[1]:.1f} {side:.1f} {end[1]:.1f} {end[0]:.1f} {end[1]:.1f}"
    else:
        start, end = (x0, y0 + h0 / 2), (x1 + share * w1, y1 - h1 / 2)
        middle = (end[1] - start[1]) / 2
        curve = (
            f"M{start[0]:.1f} {start[1]:.1f}C{start[0]:.1f} {start[1] + middle:.1f} {end[0]:.1f} {end[1] - middle:.1f} "
            f"{end[0]:.1f} {end[1]:.1f}"
        )
    dashes = ' stroke-dasharray="5 3"' if backwards else ""
    return f'<path d="{curve}" fill="none" stroke="#555"{dashes} marker-end="url(#arrow)"/>'


def _label(text: str, x: float, y: float, size: int, colour: str, more: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="middle"{more}>{escape(text)}</text>'


def _dot_text(lines: Sequence[str]) -> str:
    return "\\n".join(line.replace("\\", "\\\\").replace('"', '\\"') for line in lines)
