"""The content of a picture of a graph: boxes with lines of text, and the reads between them. `report/graphs/draw.py` draws it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tempo_core.ir.graph import Edge, Graph, Node, is_identity
from tempo_core.ir.graph_text import op_text
from tempo_core.ir.ops import Constant, Dataflow, Input, Merge, Op, Output, Sink, Udf
from tempo_core.report.pages.page import cut
from tempo_core.symbolic.condition import TRUE

WIDEST = 44  # characters of a line in a box


@dataclass(frozen=True)
class Box:
    """A box: its lines of text, the user's line, the domain that gives its colour, and its reads: (source, label)."""

    lines: tuple[str, ...]
    where: str
    domain: str
    reads: tuple[tuple[int, str], ...]
    is_merge: bool = False
    is_end: bool = False


Picture = dict[int, Box]


def boxes(graph: Graph) -> Picture:
    """One box per node and one arrow per read; the arrow shows the index unless it is the identity."""
    return {
        node.id: box_of(
            node, node_lines(node), node.where, [(edge.source, edge_label(graph, node, edge)) for edge in node.inputs]
        )
        for node in graph
    }


def box_of(node: Node, lines: Sequence[str], where: str, reads: Sequence[tuple[int, str]]) -> Box:
    """The box of a node, or of several of which it is the first."""
    shown = tuple(cut(line, WIDEST) for line in lines if line)
    return Box(
        shown, where, str(node.domain), tuple(reads), isinstance(node.op, Merge), isinstance(node.op, (Input, Output, Sink))
    )


def node_lines(node: Node) -> list[str]:
    """The lines in a node's box: its name, its operation, its types, its domain."""
    kind = op_text(node.op)
    if isinstance(node.op, Dataflow):
        kind = "Dataflow: " + " ".join(map(short_name, node.op.parts))
    elif isinstance(node.op, (Udf, Sink, Merge, Input)):  # their types and names are in the lines below
        kind = f"{type(node.op).__name__} {getattr(node.op, 'name', '')}".rstrip()
    elif isinstance(node.op, Constant):
        kind = kind.replace("Constant(" + str(node.outputs[0]) + ", ", "Constant(")
    types = ", ".join(map(str, node.outputs))
    return [f"%{node.id} {node.name}".rstrip(), kind, types, f"over {node.domain}"]


def short_name(op: Op) -> str:
    """`tanh` for the tanh of a value, `Slice` for a slice."""
    function = getattr(op, "fn", None)
    return function if isinstance(function, str) else type(op).__name__


def place_of(graph: Graph, reader: Node, edge: Edge) -> str:
    """` at [t - 1]`: the point of a read; empty for the reader's own point."""
    label = edge_label(graph, reader, edge)
    return f" at {label.partition(']')[0]}]" if label.startswith("[") else ""


def edge_label(graph: Graph, reader: Node, edge: Edge) -> str:
    """`[t - 1] if t >= 1`; empty for a plain read at the reader's own point."""
    source = graph[edge.source]
    plain = is_identity(edge, source, reader.domain) or not edge.index
    index = "" if plain else f"[{', '.join(map(str, edge.index))}]"
    output = f".{edge.output}" if edge.output else ""
    condition = "" if edge.condition is TRUE else f" if {edge.condition}"
    return f"{index}{output}{condition}".strip()
