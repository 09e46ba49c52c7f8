"""A picture of a graph for people: nodes that belong together share a box.

One box holds the parameters of one module, the state of one optimizer, the values of one of the user's objects, the copies of one
statement, or the inputs that the same boxes read. A statement without a name of the user's is in the box of the recurrence that it leads
to, or of its only reader. Constants are left out. Between two boxes there is one arrow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tempo_core.ir.graph import Graph, Node
from tempo_core.ir.names.naming import FIRST, NEXT, PART, Naming, head, label
from tempo_core.ir.names.user_lines import Sources, span
from tempo_core.ir.ops import Constant, Input, Merge, Output, Sink, Udf
from tempo_core.report.graphs.picture import Box, Picture, box_of, edge_label

BoxKey = tuple[str, ...]


def overview(graph: Graph, sources: Sources | None = None) -> Picture:
    """The picture with few boxes. A box has the number of its first node; `sources` gives the user's lines in the boxes."""
    return _Overview(graph, sources or Sources()).picture()


class _Overview:
    def __init__(self, graph: Graph, sources: Sources):
        self.sources = sources
        self.graph, self.naming, self.users = graph, Naming(graph), graph.users()
        self.names = self.naming.statements()
        self.recurrences = {
            head(self.names[node.id]) for node in graph if isinstance(node.op, Merge) and node.id in self.naming.exact
        }
        shown = [node for node in graph if not isinstance(node.op, Constant)]
        own_keys = {node.id: self._key(node) for node in shown if not isinstance(node.op, Input)}
        key_of = dict(own_keys)
        for node in reversed(shown):  # readers first, as they may move too
            if self._is_led(node):
                key_of[node.id] = self._home(node, key_of)
        for node in shown:
            if isinstance(node.op, Input):
                readers = {str(key_of.get(reader.id)) for reader, _ in self.users[node.id]}
                own_keys[node.id] = key_of[node.id] = ("input", *sorted(readers))
        moved = {number for number, key in key_of.items() if own_keys[number] != key}
        self.groups: dict[BoxKey, list[Node]] = {}
        for node in sorted(shown, key=lambda node: node.id in moved):  # the last of a box
            self.groups.setdefault(key_of[node.id], []).append(node)
        self.main = {key: [node for node in nodes if node.id not in moved] or nodes for key, nodes in self.groups.items()}
        self.number = {node.id: nodes[0].id for nodes in self.groups.values() for node in nodes}

    def picture(self) -> Picture:
        return {nodes[0].id: self._box(nodes, self.main[key]) for key, nodes in self.groups.items()}

    def _key(self, node: Node) -> BoxKey:
        """The key of a node; nodes with one key share a box."""
        if isinstance(node.op, Merge):
            return ("recurrence", head(self.names[node.id]))
        if isinstance(node.op, Output):
            return ("output", *sorted({str(edge.source) for edge in node.inputs}))
        if isinstance(node.op, Sink) or (isinstance(node.op, Udf) and node.op.kind == "host"):
            return ("host", str(node.id))
        purpose = self.naming.purpose(node)
        if purpose is not None and (node.id not in self.naming.exact or not node.domain.steps):
            return ("for", purpose.kind, str(node.domain))
        if node.id in self.naming.exact and node.where:
            return ("value", self.names[node.id].split("#", 1)[0], node.where.rsplit(":", 1)[0])  # copies of one statement too
        return ("value", head(self.names[node.id]), str(node.domain))

    def _is_led(self, node: Node) -> bool:
        """Whether a statement has no name of the user's, and no box with others like it."""
        if isinstance(node.op, Merge):
            return node.id not in self.naming.exact
        if isinstance(node.op, (Input, Output, Sink)) or (isinstance(node.op, Udf) and node.op.kind == "host"):
            return False
        name = self.names[node.id]
        return PART in name or "%" in name or name.startswith((FIRST, NEXT)) or bool(self.naming.result(node))

    def _home(self, node: Node, key_of: Mapping[int, BoxKey]) -> BoxKey:
        """The box of a statement without a name: that of its recurrence, or of its only reader."""
        key, name = key_of[node.id], self.names[node.id]
        purpose = self.naming.purpose(node)
        if key[0] == "for" and purpose is not None and purpose.recurrence not in self.recurrences:
            return key  # of several modules or optimizers
        if name.startswith((FIRST, NEXT)) or PART in name:
            led = name.split(PART, 1)[1] if PART in name else head(name).removeprefix(FIRST).removeprefix(NEXT)
            for each in led.split(", "):
                if head(each) in self.recurrences:
                    return ("recurrence", head(each))
        readers = {key_of[reader.id] for reader, _ in self.users[node.id]}
        return readers.pop() if len(readers) == 1 else key

    def _box(self, nodes: Sequence[Node], main: Sequence[Node]) -> Box:
        number = main[0].id
        reads: dict[int, list[str]] = {}
        for node in nodes:
            for edge in node.inputs:
                source = self.number.get(edge.source)
                if source is not None and (source != number or edge.source == node.id):
                    reads.setdefault(source, []).append(edge_label(self.graph, node, edge))
        where = list(dict.fromkeys(node.where for node in nodes if node.where))
        return box_of(main[0], self._lines(main), "\n".join(where), [(source, _one(labels)) for source, labels in reads.items()])

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
        if len(purposes) == len(nodes) and not isinstance(first.op, (Merge, Input)):
            groups = dict.fromkeys(group for purpose in purposes for group in purpose.recurrence.split(", "))
            return [f"{', '.join(groups)}: {purposes[0].kind}values", at, over]
        noun = "recurrences" if isinstance(first.op, Merge) else "inputs" if isinstance(first.op, Input) else "statements"
        return [label(labels) if noun == "inputs" else head(labels[0]), f"{len(nodes)} {noun}", at, over]


def _one(labels: Sequence[str]) -> str:
    """The label of an arrow for several reads: their common label, or "" if their labels differ."""
    different = set(labels)
    return different.pop() if len(different) == 1 else ""
