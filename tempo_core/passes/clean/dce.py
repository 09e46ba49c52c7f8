"""Dead code elimination."""

from __future__ import annotations

from dataclasses import dataclass, field

from tempo_core.ir.graph import Graph
from tempo_core.passes.base import Pass, remove_dead


@dataclass(frozen=True)
class Dce(Pass):
    """Keep the nodes that outputs, sinks and stateful functions need. Afterwards every node is one of these, or an ancestor of one.

    Rewrite: `a = exp(x); b = log(x); output(b)` -> `b = log(x); output(b)`
    """

    name: str = field(default="dce", init=False)

    def apply(self, graph: Graph) -> Graph:
        return remove_dead(graph)
