"""A picture of a graph for people: nodes that belong together share a box.

One box holds the parameters of one module, the state of one optimizer, the values of one of the user's objects, or the inputs
with the same readers. Constants are left out. Between two boxes there is one arrow.
"""

from __future__ import annotations

from collections.abc import Sequence

from tempo_core.ir.graph import Graph, Node
from tempo_core.ir.naming import Naming, head, label
from tempo_core.ir.ops import Constant, Input, Merge, Output, Sink, Udf
from tempo_core.ir.picture import WIDEST, Box, Picture, edge_label
from tempo_core.ir.sources import Sources, span

BoxKey = tuple[str, ...]


def overview(graph: Graph, sources: Sources | None = None) -> Picture:
    """The picture with few boxes. A box has the number of its first node; `sources` gives the user's lines in the boxes."""
    return _Overview(graph, sources or Sources()).picture()


class _Overview:
    def __init__(self, graph: Graph, sources: Sources):
        self.sources = sources
        self.graph, self.naming, self.users = graph, Naming(graph), graph.users()
        self.names = self.naming.statements()
        self.groups: dict[BoxKey, list[Node]] = {}
        for node in graph:
            if not isinstance(node.op, Constant):
                self.groups.setdefault(self._key(node), []).append(node)
        self.number = {node.id: nodes[0].id for nodes in self.groups.values() for node in nodes}

    def picture(self) -> Picture:
        return {nodes[0].id: self._box(nodes) for nodes in self.groups.values()}

    def _key(self, node: Node) -> BoxKey:
        """The key of a node; nodes with one key share a box."""
        if isinstance(node.op, Input):
            return ("input", *sorted({str(reader.id) for reader, _ in self.users[node.id]}))
        if isinstance(node.op, Merge):
            return ("recurrence", head(self.names[node.id]))
        if isinstance(node.op, (Output, Sink)) or (isinstance(node.op, Udf) and node.op.kind == "host"):
            return ("host", str(node.id))
        purpose = self.naming.purpose(node)
        if purpose is not None and (node.id not in self.naming.exact or not node.domain.steps):
            return ("for", purpose.kind, str(node.domain))
        return ("value", head(self.names[node.id]), str(node.domain))

    def _box(self, nodes: Sequence[Node]) -> Box:
        first, number = nodes[0], nodes[0].id
        reads: dict[int, list[str]] = {}
        for node in nodes:
            for edge in node.inputs:
                source = self.number.get(edge.source)
                if source is not None and (source != number or edge.source == node.id):
                    reads.setdefault(source, []).append(edge_label(self.graph, node, edge))
        where = list(dict.fromkeys(node.where for node in nodes if node.where))
        return Box(
            tuple(line if len(line) <= WIDEST else line[: WIDEST - 1] + "…" for line in self._lines(nodes) if line),
            "\n".join(where),
            str(first.domain),
            tuple((source, _one(labels)) for source, labels in reads.items()),
            is_merge=isinstance(first.op, Merge),
            is_end=isinstance(first.op, (Input, Output, Sink)),
        )

    def _lines(self, nodes: Sequence[Node]) -> list[str]:
        """The lines of a box: the name, the user's line, the types, the domain."""
        first = nodes[0]
        lines = span([line for node in nodes for line in self.sources.of(node)])
        at, over = f"@ {lines}" if lines else "", f"over {first.domain}"
        if len(nodes) == 1:
            types = [str(type) for type in first.outputs]
            return [self.names[first.id], at, ", ".join(types if len(types) <= 2 else (*types[:2], "…")), over]
        labels = [self.names[node.id] for node in nodes]
        purposes = [purpose for purpose in map(self.naming.purpose, nodes) if purpose is not None]
        if isinstance(first.op, Merge):
            return [f"{head(labels[0])}: {len(nodes)} recurrences", at, over]
        if isinstance(first.op, Input):
            return [label(labels), f"{len(nodes)} inputs", at, over]
        if len(purposes) == len(nodes):
            groups = dict.fromkeys(group for purpose in purposes for group in purpose.recurrence.split(", "))
            return [f"{', '.join(groups)}: {purposes[0].kind}values", at, over]
        return [head(labels[0]), f"{len(nodes)} statements", at, over]


def _one(labels: Sequence[str]) -> str:
    """The label of an arrow for several reads: their common label, or "" if their labels differ."""
    different = set(labels)
    return different.pop() if len(different) == 1 else ""
