"""Algebraic simplification: the engine. The rules are data, in `passes/clean/rules.py`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from tempo_core.ir.builder import Builder
from tempo_core.ir.graph import Edge, Graph
from tempo_core.passes.base import Pass, redirect, remove_dead
from tempo_core.passes.clean.rules import View, rules_of
from tempo_core.passes.decisions import note


@dataclass(frozen=True)
class Simplify(Pass):
    """Apply the rules of `passes/clean/rules.py` until none applies. Values stay the same up to float reassociation.

    Rewrite: `a = x * 1; b = reshape(reshape(a))` -> `b = reshape(x)`
    """

    name: str = field(default="simplify", init=False)
    effect: ClassVar[str] = "rewritten by algebraic rules"
    rounds: int = 20

    def apply(self, graph: Graph) -> Graph:
        graph = graph.copy()
        for _ in range(self.rounds):
            changed = self._round(graph)
            graph = remove_dead(graph)
            if not changed:
                break
        return graph

    def _round(self, graph: Graph) -> bool:
        replacements: dict[int, Edge] = {}
        for node in graph:
            rules = rules_of(node.op)
            if not rules:
                continue
            view = View(graph, node, Builder(graph, node))
            for rule in rules:
                result = rule.replacement(view)
                if result is not None and result.source != node.id:
                    replacements[node.id] = result
                    note(node.id, "rewritten by the rule {}: {}", rule.name, rule.algebra, into=result.source)
                    break
        return redirect(graph, replacements)
