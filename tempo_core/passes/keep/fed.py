"""Inputs that go to the device in parts: each becomes a function of its steps, whose values are there before the program runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from tempo_core.ir import ops
from tempo_core.ir.graph import Graph
from tempo_core.ir.types import TensorType
from tempo_core.ir.udf import Fed
from tempo_core.passes.base import remove_dead
from tempo_core.symbolic.domain import Domain
from tempo_core.symbolic.expr import Symbol


def fed_in_parts(graph: Graph, domains: Mapping[str, tuple[Symbol, ...]], names: Collection[str]) -> Graph:
    """The graph, with the inputs over one of the steps `names` as tensors over their steps. `domains` gives these by input.

    An input is one array, of which each step takes one element (`frontend/inputs.py`). What takes the last becomes the tensor.
    """
    chosen = [node for node in graph.inputs() if any(step.name in names for step in domains.get(_name(node.op), ()))]
    if not chosen:
        return graph
    graph = graph.copy()
    for node in chosen:
        steps, readers = domains[_name(node.op)], [node]
        for _ in steps:
            readers = [reader for each in readers for reader in graph if any(edge.source == each.id for edge in reader.inputs)]
        type = node.outputs[0]
        value = TensorType(type.dtype, type.shape[len(steps) :])
        for reader in readers:
            source = ops.Udf(Fed(_name(node.op), in_parts=True), (value,), "host", name=_name(node.op))
            graph.put(replace(reader, op=source, inputs=(), domain=Domain(steps), outputs=(value,)))
    return remove_dead(graph)


def _name(op: ops.Op) -> str:
    assert isinstance(op, ops.Input)
    return op.name
