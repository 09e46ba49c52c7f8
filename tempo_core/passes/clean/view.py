"""What simplification rules see: a node, and questions about its operands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tempo_core.ir.builder import Builder
from tempo_core.ir.graph import Edge, Graph, Node, constant_number
from tempo_core.ir.ops import Broadcast, Constant, Op
from tempo_core.ir.types import TensorType
from tempo_core.passes.base import read_at


@dataclass(frozen=True)
class View:
    """A node, and the questions that rules ask about its operands."""

    graph: Graph
    node: Node
    build: Builder

    @property
    def op(self) -> Any:
        return self.node.op

    def edge(self, slot: int = 0) -> Edge:
        return self.node.inputs[slot]

    def type(self, slot: int = 0) -> TensorType:
        return self.graph.edge_type(self.node.inputs[slot])

    def operand(self, slot: int = 0) -> Op:
        return self.graph[self.edge(slot).source].op

    def inner(self, slot: int = 0, inner_slot: int = 0) -> Edge | None:
        """The edge by which this node would read input `inner_slot` of operand `slot`. None where no single edge says it."""
        edge = self.edge(slot)
        source = self.graph[edge.source]
        if not all(hasattr(i, "expr") for i in edge.index):
            return None  # for some ops, a slice of the results is not the result of a slice
        return read_at(source.inputs[inner_slot], source.domain, edge)

    def number(self, slot: int) -> int | float | None:
        """The value of operand `slot` if it is one number, repeated."""
        return self.number_of(self.edge(slot))

    def truth(self, slot: int) -> bool | None:
        """The value of operand `slot` if it is one truth value, repeated."""
        node = self.graph[self.edge(slot).source]
        while isinstance(node.op, Broadcast):
            node = self.graph[node.inputs[0].source]
        op = node.op
        return op.data != b"\0" if isinstance(op, Constant) and op.sizes == () and op.dtype == "bool" else None

    def number_of(self, edge: Edge) -> int | float | None:
        """The value that an edge reads if it is one number, repeated."""
        return constant_number(self.graph, edge.source)
