"""Boxes: where a condition mentions a step together with others (`i < j`), all points of the step are computed, and masks select.

A loop over j has the points i < j of a triangle. At all i at once, it computes a box of vectors: what lies outside of the triangle is never
used. A box reads only where its points read: what is left of `i < j` without i, `j >= 1`, still holds (its shadow).
"""

from __future__ import annotations

import functools
from collections.abc import Set
from dataclasses import replace

from tempo_core import prices
from tempo_core.errors import NonAffineError
from tempo_core.ir import costs, ops
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.passes.base import condition_without, operand_domains
from tempo_core.passes.batch.leading import is_selected
from tempo_core.passes.batch.regions import regions
from tempo_core.symbolic.condition import Bool, conjunction
from tempo_core.symbolic.domain import Domain
from tempo_core.symbolic.expr import Symbol
from tempo_core.symbolic.isl.counting import summed
from tempo_core.symbolic.isl.relation import shadow
from tempo_core.symbolic.isl.sets import bounds_of, domain_set
from tempo_core.symbolic.proof import unless_obvious, within


def steps_beside(graph: Graph, step: Symbol) -> tuple[Symbol, ...]:
    """The steps that conditions mention together with a step."""
    conditions = (
        c for node in graph if step in node.domain for c in (node.domain.condition, *(e.condition for e in node.inputs))
    )
    beside = {other for condition in conditions for part in condition.parts if step in part.steps for other in part.steps}
    return tuple(other for other in graph.order if other in beside - {step})


def in_boxes(graph: Graph, step: Symbol, nodes: Set[int], beside: tuple[Symbol, ...], exact: bool = False) -> Graph | None:
    """The graph, in which `nodes` keep the shadows of their conditions when they lose a step. None if that does not pay.

    None too if a `Merge` has too many regions then, or, with `exact`, if it is not defined in all of its box. The program means the
    same: what is added to a condition follows from it.
    """
    boxes = graph.copy()
    try:
        if not prices.pays_to_fill_boxes([(_work(graph, graph[n]), *_sizes(graph[n].domain, step)) for n in nodes]):
            return None
        for node in [graph[n] for n in nodes if _is_mixed(graph[n].domain.condition, step)]:
            condition = node.domain.condition & shadow(node.domain, (step,))
            boxes.put(replace(node, domain=Domain(node.domain.steps, condition)))
    except NonAffineError:
        return None
    for node in [boxes[n] for n in nodes if isinstance(boxes[n].op, ops.Merge)]:
        edges = list(node.inputs)
        for k, points in enumerate(operand_domains(node, node.domain)):
            if _is_mixed(points.condition, step):
                limits = inside(edges[k], boxes[edges[k].source].domain, {*graph.order} - {step})
                edges[k] = replace(edges[k], condition=edges[k].condition & limits)
        node = boxes.put(node.reading(tuple(edges)))
        is_partial = exact and _is_mixed(node.domain.condition, step)
        if is_partial or (is_selected(node, step) and regions(node, step, beside) is None):
            return None
    return boxes


def _is_mixed(condition: Bool, step: Symbol) -> bool:
    """Whether a part of a condition mentions a step and others."""
    return any(step in part.steps and len(part.steps) > 1 for part in condition.parts)


def inside(edge: Edge, source: Domain, along: Set[Symbol]) -> Bool:
    """Where a read stays inside of the box of its source along some steps. What mentions others is left out."""
    points = edge.points(source)
    limits = (within(index, step) for step, index in edge.by_step(source).items() if step in along)
    parts = (part.substitute(points) for part in source.condition.parts if part.steps <= along & points.keys())
    return unless_obvious(conjunction(*(part for each in (*limits, *parts) for part in each.parts if part.steps <= along)))


def _work(graph: Graph, node: Node) -> int:
    """The approximate operations and results of an execution."""
    results = sum(prices.nominal(ops.product(type.shape)) for type in node.outputs)
    return results + prices.nominal(costs.operations(node.op, graph.input_types(node), node.outputs))


@functools.lru_cache(maxsize=4096)
def _sizes(domain: Domain, step: Symbol) -> tuple[float, float]:
    """How many points a domain has, and how many its box has that has all points of the step."""
    box = Domain(domain.steps, condition_without(domain.condition, step))
    numbers = dict.fromkeys(bounds_of(domain), prices.NOMINAL)
    points, filled = (float(summed(domain_set("", each), each.steps, 1, numbers).evaluate(numbers)) for each in (domain, box))
    return points, filled
