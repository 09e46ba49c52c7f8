"""Inputs that go to the device in parts: each becomes a function of its steps, whose values are there before the program runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tempo_core.ir import ops
from tempo_core.ir.graph import Graph, Node
from tempo_core.ir.types import TensorType
from tempo_core.ir.udf import Fed
from tempo_core.passes.base import remove_dead
from tempo_core.symbolic.domain import Domain
from tempo_core.symbolic.expr import Symbol


def fed_in_parts(graph: Graph, domains: Mapping[str, tuple[Symbol, ...]], names: Collection[str]) -> Graph:
    """The graph, with the inputs over one of the steps `names` as tensors over their steps. `domains` gives these by input.

    An input is one array, of which each step takes one element (`frontend/inputs.py`). What takes the last becomes the tensor.
    """
    over = {node.id: domains.get(_name(node), ()) for node in graph.inputs()}
    of_node = graph.reader_ids()
    chains = {node.id: _elements(graph, of_node, node, len(over[node.id])) for node in graph.inputs()}
    chosen = [node for node in graph.inputs() if any(step.name in names for step in over[node.id]) and chains[node.id]]
    changed = graph.copy()
    for node in chosen:
        steps, type = over[node.id], node.outputs[0]
        value = TensorType(type.dtype, type.shape[len(steps) :])
        source = ops.Udf(Fed(_name(node), in_parts=True), (value,), "host", name=_name(node))
        for each in chains[node.id]:
            changed.put(replace(each, op=source, inputs=(), domain=Domain(steps), outputs=(value,)))
    return remove_dead(changed) if chosen else graph


def _elements(graph: Graph, of_node: Mapping[int, Sequence[int]], node: Node, count: int) -> list[Node]:
    """What takes one element of so many dimensions of an input; nothing, if something reads it in another way."""
    readers = [node]
    for _ in range(count):
        readers = [graph[number] for each in readers for number in of_node[each.id]]
        if not all(isinstance(reader.op, ops.Gather) and reader.op.axis == 0 for reader in readers):
            return []
    return readers


def _name(node: Node) -> str:
    assert isinstance(node.op, ops.Input)
    return node.op.name
