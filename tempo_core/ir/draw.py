"""The graph as a picture: Graphviz text, or an SVG, laid out by Graphviz where it is installed and by `layout` where not."""

from __future__ import annotations

import shutil
import subprocess
from collections import defaultdict
from html import escape
from pathlib import Path

from tempo_core.errors import ConfigError
from tempo_core.ir.graph import Edge, Graph, Node, is_identity
from tempo_core.ir.ops import Constant, Dataflow, Input, Merge, Op, Output, Sink, Udf
from tempo_core.ir.text import op_text
from tempo_core.symbolic.condition import TRUE

WIDEST = 44  # characters of a line in a box
CHARACTER, LINE = 6.7, 15.0  # width and height of a character in the SVG, in pixels (a monospaced font of 11 px)
GAP_ACROSS, GAP_DOWN, MARGIN, SIDE = 28.0, 58.0, 24.0, 30.0
FILLS = ("#eef3fb", "#fdf1e3", "#e9f6ec", "#f6ebf8", "#fbf8df", "#e6f5f6", "#f9e9e9", "#eeeeee")  # one a domain, in turn

Place = tuple[float, float, float, float]  # x and y of the middle, width, height


def draw(graph: Graph, path: str | Path) -> None:
    """Write a picture of `graph`: `.dot` and `.svg` always work, other formats (`.pdf`, `.png`) need Graphviz."""
    path = Path(path)
    kind, graphviz = path.suffix.removeprefix("."), shutil.which("dot")
    if kind == "dot":
        path.write_text(to_dot(graph), encoding="utf-8")
    elif graphviz:
        made = subprocess.run([graphviz, f"-T{kind}", "-o", str(path)], input=to_dot(graph), text=True, capture_output=True)
        if made.returncode:
            raise ConfigError(f"Graphviz cannot draw {path}: {made.stderr.strip()}", hint="use .svg or .dot")
    elif kind == "svg":
        path.write_text(to_svg(graph), encoding="utf-8")
    else:
        raise ConfigError(f"cannot draw {path}: the format .{kind} needs Graphviz", hint="use .svg or .dot, or install Graphviz")


def to_dot(graph: Graph) -> str:
    """Graphviz text: a box a node, coloured by domain; an arrow a read, with its index where it is not the identity."""
    fills = _fills(graph)
    lines = [
        "digraph {",
        "  rankdir=TB;",
        '  node [shape=box, style="rounded,filled", fontname="monospace", fontsize=10];',
        '  edge [fontname="monospace", fontsize=9];',
    ]
    for node in graph:
        shape = ", shape=diamond" if isinstance(node.op, Merge) else ""
        lines.append(f'  n{node.id} [label="{_dot_text(node_lines(node))}", fillcolor="{fills[node.id]}"{shape}];')
    for node in graph:
        for edge in node.inputs:
            label = edge_label(graph, node, edge)
            lines.append(f"  n{edge.source} -> n{node.id}" + (f' [label="{_dot_text([label])}"];' if label else ";"))
    return "\n".join([*lines, "}"]) + "\n"


def to_svg(graph: Graph) -> str:
    """A layered picture: operands above their readers; reads that close a cycle are dashed and run up again."""
    places, back = layout(graph)
    fills = _fills(graph)
    width = max((x + w / 2 for x, _, w, _ in places.values()), default=0.0) + MARGIN + SIDE
    height = max((y + h / 2 for _, y, _, h in places.values()), default=0.0) + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" font-family="monospace">',
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#555"/></marker></defs>',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for node in graph:
        for slot, edge in enumerate(node.inputs):
            share = (slot + 1) / (len(node.inputs) + 1) - 0.5
            parts.append(_arrow(places[edge.source], places[node.id], share, (edge.source, node.id) in back))
    for node in graph:
        x, y, w, h = places[node.id]
        parts.append(
            f'<g><title>{escape(node.where or "no line of the program")}</title><rect x="{x - w / 2:.1f}" y="{y - h / 2:.1f}" '
            f'width="{w:.1f}" height="{h:.1f}" rx="5" fill="{fills[node.id]}" stroke="{"#b33" if _is_end(node) else "#567"}"/>'
        )
        for number, line in enumerate(node_lines(node)):
            weight = ' font-weight="bold"' if number == 0 else ""
            parts.append(_label(line, x, y - h / 2 + LINE * (number + 1), 11, "#123", weight))
        parts.append("</g>")
    for node in graph:  # labels last, so that no box or arrow covers them
        for slot, edge in enumerate(node.inputs):
            label = edge_label(graph, node, edge)
            if label:
                x, y, w, h = places[node.id]
                share = (slot + 1) / (len(node.inputs) + 1) - 0.5
                parts.append(_label(label, x + share * w, y - h / 2 - 8 - 11 * (slot % 3), 9, "#933", ""))
    return "\n".join([*parts, "</svg>"]) + "\n"


# -- what stands where ----------------------------------------------------------------------------------------------------


def layout(graph: Graph) -> tuple[dict[int, Place], set[tuple[int, int]]]:
    """A place for each node, in layers by the longest path from a source, and the (source, reader) pairs that run backwards."""
    back = _back_edges(graph)
    layer: dict[int, int] = {}
    for node_id in _topological(graph, back):
        above = [layer[e.source] for e in graph[node_id].inputs if (e.source, node_id) not in back]
        layer[node_id] = max(above, default=-1) + 1
    layers: dict[int, list[int]] = defaultdict(list)
    for node_id, depth in layer.items():
        layers[depth].append(node_id)

    position = {node_id: float(rank) for row in layers.values() for rank, node_id in enumerate(row)}
    neighbours: dict[int, list[int]] = defaultdict(list)
    for node in graph:
        for edge in node.inputs:
            neighbours[node.id].append(edge.source)
            neighbours[edge.source].append(node.id)
    for sweep in range(8):  # each node towards the mean of its neighbours, down and up in turn: fewer crossings
        for depth in sorted(layers, reverse=sweep % 2 == 1):
            near = {n: [position[m] for m in neighbours[n]] or [position[n]] for n in layers[depth]}
            layers[depth].sort(key=lambda n: sum(near[n]) / len(near[n]))
            position.update({node_id: float(rank) for rank, node_id in enumerate(layers[depth])})

    sizes = {node.id: _box(node) for node in graph}
    widths = {depth: sum(sizes[n][0] + GAP_ACROSS for n in row) - GAP_ACROSS for depth, row in layers.items()}
    places: dict[int, Place] = {}
    top = MARGIN
    for depth in sorted(layers):
        left = MARGIN + (max(widths.values()) - widths[depth]) / 2
        tallest = max(sizes[n][1] for n in layers[depth])
        for node_id in layers[depth]:
            w, h = sizes[node_id]
            places[node_id] = (left + w / 2, top + tallest / 2, w, h)
            left += w + GAP_ACROSS
        top += tallest + GAP_DOWN
    return places, back


def _back_edges(graph: Graph) -> set[tuple[int, int]]:
    """The (source, reader) pairs that close a cycle on a walk along the reads, from each node in turn."""
    back: set[tuple[int, int]] = set()
    done: set[int] = set()
    for start in graph:
        path, open_nodes = [(start.id, iter(start.inputs))], {start.id}
        while path and start.id not in done:
            node_id, edges = path[-1]
            edge = next(edges, None)
            if edge is None:
                path.pop()
                open_nodes.discard(node_id)
                done.add(node_id)
            elif edge.source in open_nodes:
                back.add((edge.source, node_id))
            elif edge.source not in done:
                open_nodes.add(edge.source)
                path.append((edge.source, iter(graph[edge.source].inputs)))
    return back


def _topological(graph: Graph, back: set[tuple[int, int]]) -> list[int]:
    waiting = {node.id: sum((edge.source, node.id) not in back for edge in node.inputs) for node in graph}
    users = graph.users()
    order = [node_id for node_id, count in waiting.items() if not count]
    for node_id in order:  # grows while it is walked
        for reader, _ in users[node_id]:
            if (node_id, reader.id) not in back:
                waiting[reader.id] -= 1
                if not waiting[reader.id]:
                    order.append(reader.id)
    return order


# -- texts and shapes -----------------------------------------------------------------------------------------------------


def node_lines(node: Node) -> list[str]:
    """The lines in a node's box: what it is, what it gives, where it runs."""
    kind = op_text(node.op)
    if isinstance(node.op, Dataflow):
        kind = "Dataflow: " + " ".join(short_name(op) for op, _, _ in node.op.body.instructions)
    elif isinstance(node.op, (Udf, Sink, Merge, Input)):  # their types and names are in the lines below
        kind = f"{type(node.op).__name__} {getattr(node.op, 'name', '')}".rstrip()
    elif isinstance(node.op, Constant):
        kind = kind.replace("Constant(" + str(node.outputs[0]) + ", ", "Constant(")
    types = ", ".join(map(str, node.outputs))
    lines = [f"%{node.id} {node.name}".rstrip(), kind, types, f"over {node.domain}"]
    return [line if len(line) <= WIDEST else line[: WIDEST - 1] + "…" for line in lines if line]


def short_name(op: Op) -> str:
    """`tanh` for the tanh of a value, `Slice` for a slice."""
    function = getattr(op, "fn", None)
    return function if isinstance(function, str) else type(op).__name__


def edge_label(graph: Graph, reader: Node, edge: Edge) -> str:
    """`[t - 1] if t >= 1`; empty for a plain read at the reader's own point."""
    source = graph[edge.source]
    plain = is_identity(edge, source, reader.domain) or not edge.index
    index = "" if plain else f"[{', '.join(map(str, edge.index))}]"
    output = f".{edge.output}" if edge.output else ""
    condition = "" if edge.condition is TRUE else f" if {edge.condition}"
    return f"{index}{output}{condition}".strip()


def _fills(graph: Graph) -> dict[int, str]:
    domains: dict[str, int] = {}
    return {node.id: FILLS[domains.setdefault(str(node.domain), len(domains)) % len(FILLS)] for node in graph}


def _is_end(node: Node) -> bool:
    return isinstance(node.op, (Input, Output, Sink))


def _box(node: Node) -> tuple[float, float]:
    lines = node_lines(node)
    return max(map(len, lines)) * CHARACTER + 16, len(lines) * LINE + 10


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


def _dot_text(lines: list[str]) -> str:
    return "\\n".join(line.replace("\\", "\\\\").replace('"', '\\"') for line in lines)
