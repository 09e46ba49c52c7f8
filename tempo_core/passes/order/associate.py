"""Association: chains of products are multiplied in the order with the fewest operations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tempo_core.ir import ops
from tempo_core.ir.builder import Builder
from tempo_core.ir.graph import Graph, Node
from tempo_core.ir.labelled import Labelled, contraction, repeated
from tempo_core.passes.base import Pass, remove_dead
from tempo_core.passes.batch.vectorize import legal_nodes
from tempo_core.passes.decisions import Ref, note
from tempo_core.passes.order.chains import Chain, Tree, chain, members
from tempo_core.prices import NOMINAL
from tempo_core.symbolic.condition import conjunction
from tempo_core.symbolic.domain import Domain
from tempo_core.symbolic.expr import Expr, Symbol
from tempo_core.symbolic.isl.relation import maximum_over
from tempo_core.symbolic.proof import provably_nonnegative

_DTYPES = ("float32", "float64")  # a product of fewer bits is rounded after each product, so another order may overflow
_MANY = 10**6  # points, where bounds are large


@dataclass(frozen=True)
class Associate(Pass):
    """Multiply the factors of a chain of products in the order with the fewest operations, counted over all points.

    A chain is a tree of `Dot`s, with transpositions between them, whose inner products have no other reader. A product runs only at the
    steps that its factors vary with, so a product of two matrices that stay the same in a loop counts once. Another order is taken
    if it has the fewest operations for all bounds of at least `NOMINAL`, and at all points where sizes vary; otherwise the chain stays as
    it is written. Memory does not grow: see `Chain.best`.
    Running sums (`lift`, `accumulate`) come first: they leave no chain. A size that varies with a step counts as its largest, where
    all points of the step will be computed at once, padded to it: not along the steps in `but`, and nowhere with `loops`.

    Rewrite: `y[] = (A[32, 32] @ B[32, 32]) @ x[32]` -> `y[] = A @ (B @ x)`
    """

    name: str = field(default="associate", init=False)
    but: tuple[str, ...] = ()
    loops: bool = False

    def apply(self, graph: Graph) -> Graph:
        inner = inner_products(graph)
        roots = _roots(graph, inner)
        changed = graph.copy()
        for root in roots:
            products = chain(changed, root, inner)
            if products is not None and root.outputs[0].dtype in _DTYPES:
                products.sizes = [self._computed(products, size) for size in products.sizes]
                _associate(products)
        return remove_dead(changed) if changed.changes else graph

    def _computed(self, products: Chain, size: Expr) -> Expr:
        """The size with which a dimension is computed: the largest of all points, if these are computed at once."""
        root = products.root
        for step in () if self.loops else size.steps:
            if step.name in self.but or root.id not in legal_nodes(products.graph, step, ragged_too=True):
                return size
        return size if self.loops else maximum_over(size, root.domain)


def inner_products(graph: Graph) -> dict[int, Node]:
    """The products, and transpositions, that only one product or transposition reads, once and at its own point, with that reader."""
    readers: dict[int, list[Node | None]] = {node.id: [] for node in graph if isinstance(node.op, (ops.Dot, ops.Permute))}
    for node in graph:
        for edge in node.inputs:
            if edge.source in readers:
                is_inner = node.id in readers and edge.is_own_point(graph[edge.source].domain)
                readers[edge.source].append(node if is_inner else None)
    return {source: nodes[0] for source, nodes in readers.items() if len(nodes) == 1 and nodes[0] is not None}


def _roots(graph: Graph, inner: Mapping[int, Node]) -> list[Node]:
    """The last products of chains, which multiply inner products, and which no product reads, through transpositions or at once."""

    def is_multiplied(node: Node) -> bool:
        reader = inner.get(node.id)
        return reader is not None and (isinstance(reader.op, ops.Dot) or is_multiplied(reader))

    last = {reader.id: reader for reader in inner.values() if isinstance(reader.op, ops.Dot)}
    return [node for node in last.values() if not is_multiplied(node)]


def _associate(products: Chain) -> None:
    trees = _candidates(products)
    if trees == [products.tree]:
        return
    root, written = products.root, products.tree
    costs = {tree: products.operations(tree) for tree in trees}
    best = _least(costs)
    if best is None:
        note(root.id, "multiplied as it is written: no order of its factors has the fewest operations for all large bounds")
    elif best != written:
        factors = [Ref(products.factors[k].edge.source) for k in sorted(members(best))]
        order = "multiplied as `" + _shown(best, is_inside=False) + "`: {} operations in all, not {}"
        note(root.id, order, *factors, costs[best], costs[written])
        _reorder(products, best)


def _candidates(products: Chain) -> list[Tree]:
    """The order as written, and those with the fewest operations at some points and at many."""
    graph = products.graph
    symbols = frozenset[Symbol]().union(*(size.symbols for size in products.sizes), products.root.domain.steps)
    symbols |= {step.bound_symbol for step in (*symbols, *graph.order) if step.is_step}
    numbers = (dict.fromkeys(symbols, bound) | {s: bound - 1 for s in symbols if s.is_step} for bound in (NOMINAL, _MANY))
    return list(dict.fromkeys((products.tree, *map(products.best, numbers))))


def _least(costs: Mapping[Tree, Expr]) -> Tree | None:
    """The first order that never has more operations than another one: at all points, for all large bounds."""
    for tree, cost in costs.items():
        if all(provably_nonnegative(_for_large_bounds(other - cost)) for other in costs.values()):
            return tree
    return None


def _for_large_bounds(difference: Expr) -> Expr:
    """A difference of costs, for bounds of at least `NOMINAL`, in terms of what they are more. One that varies with steps stays."""
    if difference.steps:
        return difference
    return difference.substitute({bound: bound.expr + NOMINAL - 1 for bound in difference.symbols})


def _reorder(products: Chain, tree: Tree) -> None:
    """Multiply the factors in another order. The last product is the root then."""
    graph, root = products.graph, products.root
    result = repeated(Builder(graph, root, root.domain), _product(products, tree), products.labels, ())
    last = graph.nodes.pop(result.source)
    graph.put(replace(last, id=root.id, name=root.name))


def _product(products: Chain, tree: Tree) -> Labelled:
    """The value of a tree. It runs at the points of the root, along the steps with which its factors vary."""
    if isinstance(tree, int):
        return products.factors[tree]
    sides = [_product(products, part) for part in tree]
    kept, wanted = products.labels_of(members(tree)), products.labels
    contracted = tuple(label for label in sides[0].labels if label in sides[1].labels and label not in kept)
    choices = []
    for left, right in (sides, reversed(sides)):
        op, labels = contraction(left.labels, right.labels, contracted, wanted)
        choices.append((op, (left.edge, right.edge), labels))
    in_order = [choice for choice in choices if choice[2] == tuple(label for label in wanted if label in kept)]
    op, operands, labels = (in_order or choices)[0]
    steps = products.steps_of(members(tree))
    parts = (part for part in products.root.domain.condition.parts if part.steps <= set(steps))
    build = Builder(products.graph, products.root, Domain(steps, conjunction(*parts)))
    return Labelled(build.add(op, *operands), labels)


def _shown(tree: Tree, is_inside: bool = True) -> str:
    if isinstance(tree, int):
        return "{}"
    text = f"{_shown(tree[0])} @ {_shown(tree[1])}"
    return f"({text})" if is_inside else text
