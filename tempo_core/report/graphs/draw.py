"""The graph as a picture: Graphviz text, or an SVG in layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from tempo_core.ir.graph import Graph
from tempo_core.ir.names.user_lines import Sources
from tempo_core.report.graphs.overview import overview
from tempo_core.report.graphs.picture import Picture, boxes
from tempo_core.report.pages.trace import write

CHARACTER, LINE = 6.7, 15.0  # width and height of a character, in pixels (a monospaced font of 11 px)
GAP_ACROSS, GAP_DOWN, MARGIN, SIDE = 28.0, 58.0, 24.0, 30.0
FILLS = ("#eef3fb", "#fdf1e3", "#e9f6ec", "#f6ebf8", "#fbf8df", "#e6f5f6", "#f9e9e9", "#eeeeee")  # one per domain, in turn

Place = tuple[float, float, float, float]  # x and y of the middle, width, height


def draw(graph: Graph, path: str | Path, full: bool = True, sources: Sources | None = None) -> None:
    """Write a picture of `graph` as `.svg` or `.dot`. Raises ConfigError for another ending, and if the file cannot be written.

    Unless it is `full`, nodes that belong together share a box (`report/graphs/overview.py`).
    """
    picture = boxes(graph) if full else overview(graph, sources)
    makers = {".svg": lambda: to_svg(picture), ".dot": lambda: to_dot(picture)}
    write(
        path,
        makers,
        "the graph",
        'program.draw("graph.svg"); of "graph.dot", Graphviz makes other formats: dot -Tpdf graph.dot -o graph.pdf',
    )


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
    places, fills = layout(picture), _fills(picture)
    arrows, shapes, labels = [], [], []  # labels last, so that no box or arrow covers them
    for number, box in picture.items():
        x, y, w, h = places[number]
        for slot, (source, label) in enumerate(box.reads):
            end = x + ((slot + 1) / (len(box.reads) + 1) - 0.5) * w
            arrows.append(_arrow(places[source], places[number], end))
            labels += [_label(label, end, y - h / 2 - 8 - 11 * (slot % 3), 'font-size="9" fill="#933"')] if label else []
        shapes.append(
            f'<g><title>{escape(box.where or "no line of the program")}</title><rect x="{x - w / 2:.1f}" y="{y - h / 2:.1f}" '
            f'width="{w:.1f}" height="{h:.1f}" rx="5" fill="{fills[number]}" stroke="{"#b33" if box.is_end else "#567"}"/>'
        )
        for row, line in enumerate(box.lines):
            weight = 'font-size="11" fill="#123"' + (' font-weight="bold"' if row == 0 else "")
            shapes.append(_label(line, x, y - h / 2 + LINE * (row + 1), weight))
        shapes.append("</g>")
    width = max((x + w / 2 for x, _, w, _ in places.values()), default=0.0) + MARGIN + SIDE
    height = max((y + h / 2 for _, y, _, h in places.values()), default=0.0) + MARGIN
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" font-family="monospace">'
        '<rect width="100%" height="100%" fill="white"/>'
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#555"/></marker></defs>'
    )
    return "\n".join([head, *arrows, *shapes, *labels, "</svg>\n"])


def layout(picture: Picture) -> dict[int, Place]:
    """A place for each box. Operands are in layers above their readers, but for the operands of one box of each cycle."""
    sizes = {number: (max(map(len, box.lines)) * CHARACTER + 16, len(box.lines) * LINE + 10) for number, box in picture.items()}
    places: dict[int, Place] = {}
    top = MARGIN
    while above := {n: [s for s, _ in box.reads if s != n] for n, box in picture.items() if n not in places}:
        layer = [n for n, sources in above.items() if places.keys() >= set(sources)] or [_on_a_cycle(picture, above)]
        middles = {n: [places[source][0] for source in above[n] if source in places] or [0.0] for n in layer}
        left = -sum(sizes[n][0] + GAP_ACROSS for n in layer) / 2
        tallest = max(sizes[n][1] for n in layer)
        for number in sorted(layer, key=lambda n: sum(middles[n]) / len(middles[n])):  # below what they read: fewer crossings
            w, h = sizes[number]
            places[number] = (left + (w + GAP_ACROSS) / 2, top + tallest / 2, w, h)
            left += w + GAP_ACROSS
        top += tallest + GAP_DOWN
    leftmost = min((x - w / 2 for x, _, w, _ in places.values()), default=0.0)
    return {number: (x - leftmost + MARGIN, y, w, h) for number, (x, y, w, h) in places.items()}


def _on_a_cycle(picture: Picture, above: Mapping[int, Sequence[int]]) -> int:
    """A box, if possible of a recurrence, on a cycle of the boxes left: each of them reads another one."""
    path = [next(iter(above))]
    while path.count(path[-1]) < 2:
        path.append(next(source for source in above[path[-1]] if source in above))
    cycle = path[path.index(path[-1]) :]
    return next((number for number in cycle if picture[number].is_merge), cycle[0])


def _fills(picture: Picture) -> dict[int, str]:
    domains: dict[str, int] = {}
    return {number: FILLS[domains.setdefault(box.domain, len(domains)) % len(FILLS)] for number, box in picture.items()}


def _arrow(source: Place, reader: Place, end: float) -> str:
    """A curve from the bottom of a box to the top of another; around its side where it runs upwards."""
    (x0, y0, w0, h0), (x1, y1, w1, h1) = source, reader
    if y0 < y1:
        start, tip = (x0, y0 + h0 / 2), (end, y1 - h1 / 2)
        middle = (start[1] + tip[1]) / 2
        points, dashes = (start, (x0, middle), (end, middle), tip), ""
    else:
        start, tip = (x0 + w0 / 2, y0 + 6), (x1 + w1 / 2, y1 - 6)  # apart, for a node that reads itself
        side = max(start[0], tip[0]) + SIDE
        points, dashes = (start, (side, start[1]), (side, tip[1]), tip), ' stroke-dasharray="5 3"'
    curve = "M{} {}C{} {} {} {} {} {}".format(*(f"{number:.1f}" for point in points for number in point))
    return f'<path d="{curve}" fill="none" stroke="#555"{dashes} marker-end="url(#arrow)"/>'


def _label(text: str, x: float, y: float, style: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {style} text-anchor="middle">{escape(text)}</text>'


def _dot_text(lines: Sequence[str]) -> str:
    return "\\n".join(line.replace("\\", "\\\\").replace('"', '\\"') for line in lines)
