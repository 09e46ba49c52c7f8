"""Chains of products: their factors with a label for each dimension, the orders in which they can be multiplied, and what these cost.

`(A @ B) @ C` has the factors A[i, j], B[j, k] and C[k, l] and the result [i, l]. Batch dimensions are labels that several factors and the
result share; a transposition between two products only reorders labels.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field

from tempo_core.ir.axes import operand_labels, reduced
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.labelled import Labelled, Labels
from tempo_core.ir.ops import product
from tempo_core.prices import MOST_COMBINED
from tempo_core.symbolic.domain import step_order
from tempo_core.symbolic.expr import Expr, Symbol

Tree = int | tuple["Tree", "Tree"]  # the number of a factor, or a product of two trees


@dataclass
class Chain:
    """The products that end in `root`, as `tree` multiplies them; `labels` are those of the result, `sizes` those of labels.

    With `hoists`, a product runs only at the steps that its factors vary with; without, at all points of the root.
    """

    graph: Graph
    root: Node
    hoists: bool
    labels: Labels = ()
    factors: list[Labelled] = field(default_factory=list)
    sizes: list[Expr] = field(default_factory=list)
    tree: Tree = 0

    def steps_of(self, members: frozenset[int]) -> tuple[Symbol, ...]:
        """The steps over which the product of some factors runs."""
        if not self.hoists or len(members) == len(self.factors):
            return self.root.domain.steps
        return step_order(frozenset().union(*(self.factors[k].edge.steps for k in members)), self.graph.order)

    def labels_of(self, members: frozenset[int]) -> frozenset[int]:
        """The labels of the product of some factors: those that the result or another factor has too."""
        inside = frozenset().union(*(self.factors[k].labels for k in members))
        others = (factor.labels for k, factor in enumerate(self.factors) if k not in members)
        return inside & frozenset(self.labels).union(*others) if len(members) > 1 else inside

    def operations_of(self, left: frozenset[int], right: frozenset[int]) -> Expr:
        """The operations of the product of two products, at all points together."""
        every = self.labels_of(left) | self.labels_of(right)
        return 2 * product(tuple(self.sizes[label] for label in sorted(every))) * _points(self.steps_of(left | right))

    def operations(self, tree: Tree) -> Expr:
        """The operations of all products, at all points together. A size that varies with a step stays an expression of it."""
        return sum((self.operations_of(members(left), members(right)) for left, right in products(tree)), Expr.of(0))

    def best(self, values: Mapping[Symbol, int]) -> Tree:
        """The order with the fewest operations at these values of steps and bounds, by dynamic programming.

        No inner product of it is larger than the largest factor or the result, at all points together: if `X1 @ X2` of m times n elements
        were, for the sizes k and p of `X1[m, k] @ X2[k, n] @ Y[n, p]`, then k and p would be less than m and n, and `X2 @ Y` first would
        take fewer operations.
        """
        everything = frozenset(range(len(self.factors)))
        sizes = [size.evaluate(values) for size in self.sizes]
        best: dict[frozenset[int], tuple[int, Tree]] = {frozenset((k,)): (0, k) for k in everything}
        for count in range(2, len(everything) + 1):
            for group in map(frozenset, itertools.combinations(sorted(everything), count)):
                points = math.prod(step.bound_symbol.expr.evaluate(values) for step in self.steps_of(group))
                choices: list[tuple[int, Tree]] = []
                for left, right in _halves(group):
                    work = 2 * points * math.prod(sizes[label] for label in self.labels_of(left) | self.labels_of(right))
                    choices.append((best[left][0] + best[right][0] + work, (best[left][1], best[right][1])))
                best[group] = min(choices, key=lambda choice: choice[0])
        return best[everything][1]


def chain(graph: Graph, root: Node, inner: Container[int]) -> Chain | None:
    """The chain that ends in a node. Products and transpositions in `inner` are parts of it.

    None for fewer than three factors.
    """
    result = Chain(graph, root, hoists=all(len(part.steps) < 2 for part in root.domain.condition.parts))
    result.sizes = list(root.outputs[0].shape)
    result.labels = tuple(range(len(result.sizes)))
    result.tree = _expanded(result, root, result.labels, inner, MOST_COMBINED)
    return result if len(result.factors) > 2 else None


def _expanded(chain: Chain, node: Node, labels: Labels, inner: Container[int], most: int) -> Tree:
    """The factors of a node whose dimensions have these labels, at most so many, and how it multiplies them."""
    shapes = [type.shape for type in chain.graph.input_types(node)]
    sizes = [shapes[0][axis] for axis, *_ in reduced(node.op)]
    fresh = range(len(chain.sizes), len(chain.sizes) + len(sizes))
    chain.sizes += sizes
    sides = operand_labels(node.op, shapes, node.outputs[0].shape, labels, fresh)
    later = range(len(sides) - 1, -1, -1)  # how many operands come after each
    operands = zip(node.inputs, sides, later, strict=True)
    left, *right = [_operand(chain, edge, side, inner, most - count) for edge, side, count in operands]
    return (left, right[0]) if right else left


def _operand(chain: Chain, edge: Edge, labels: Labels, inner: Container[int], most: int) -> Tree:
    if edge.source in inner and len(chain.factors) + 1 < most:
        return _expanded(chain, chain.graph[edge.source], labels, inner, most)
    chain.factors.append(Labelled(edge, labels))
    return len(chain.factors) - 1


def members(tree: Tree) -> frozenset[int]:
    """The factors of a tree."""
    return frozenset((tree,)) if isinstance(tree, int) else members(tree[0]) | members(tree[1])


def products(tree: Tree) -> Iterator[tuple[Tree, Tree]]:
    """All products of a tree, each after those that it multiplies."""
    if not isinstance(tree, int):
        yield from products(tree[0])
        yield from products(tree[1])
        yield tree


def _halves(group: frozenset[int]) -> Iterator[tuple[frozenset[int], frozenset[int]]]:
    """All ways to cut a group in two; the first part has the least member."""
    first, *rest = sorted(group)
    for count in range(len(rest)):
        for chosen in itertools.combinations(rest, count):
            left = frozenset((first, *chosen))
            yield left, group - left


def _points(steps: tuple[Symbol, ...]) -> Expr:
    return product(tuple(step.bound_expr for step in steps))
