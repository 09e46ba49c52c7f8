"""Writes at positions that data decides, into values that loops carry: a table, a queue, a tape."""

from __future__ import annotations

from dataclasses import dataclass, field

from tempo_core.ir import ops
from tempo_core.ir.graph import Graph
from tempo_core.ir.writes import Writes, chain
from tempo_core.passes.base import Pass, redirect, remove_dead
from tempo_core.passes.decisions import note
from tempo_core.passes.shapes.ended import without_waiting
from tempo_core.prices import pays_to_update


@dataclass(frozen=True)
class Update(Pass):
    """Let a recurrence whose next value differs at some positions of an axis write there alone, and not all elements.

    Rewrite: `where(iota == i, new, old)` -> `update_set(old, new, i)`
    Rewrite: `where(iota == i & c, new, old)` -> `update_set(old, where(c, new, old[i]), i)`
    Rewrite: `(1 - one_hot(i)) * old + one_hot(i) * new` -> `update_set(old, new, i)`
    Rewrite: `old + one_hot(i) * new` -> `update_add(old, new, i)`
    Rewrite: `where(scatter_add(1, i) > 0, scatter_add(new, i), old)` -> `update_set(old, new, i)`
    Rewrite: `old + scatter_add(new, i)` -> `update_add(old, new, i)`
    Rewrite: `sum(one_hot(i) * x)` -> `x[i]`
    """

    name: str = field(default="update", init=False)

    def apply(self, graph: Graph) -> Graph:
        updated = graph.copy()
        for merge in graph:
            if isinstance(merge.op, ops.Merge) and merge.domain.steps:
                for edge in merge.inputs:
                    node = without_waiting(graph[edge.source])
                    written = node.inputs[0] if isinstance(node.op, ops.Identity) else edge
                    for node_id in chain(graph, written, pays_to_update):
                        update = Writes(updated, updated[node_id], pays_to_update).update()
                        if update is not None:
                            note(node_id, "written at positions that data decides: the other elements stay where they are")
                            updated.put(update)
        sums = [node for node in graph if node.domain.steps and isinstance(node.op, ops.Reduce)]
        elements = {node.id: Writes(updated, node, pays_to_update).element() for node in sums}
        redirect(updated, {node_id: edge for node_id, edge in elements.items() if edge is not None})
        return graph if updated.nodes == graph.nodes else remove_dead(updated)
