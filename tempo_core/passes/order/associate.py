"""Association: chains of products are multiplied in the order with the fewest operations."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace

from tempo_core.ir import ops
from tempo_core.ir.builder import Builder
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.labelled import Labelled, contraction, repeated
from tempo_core.passes.base import Pass, remove_dead
from tempo_core.passes.batch.vectorize import legal_nodes
from tempo_core.passes.decisions import Ref, note
from tempo_core.passes.order.chains import Chain, Tree, chain, members
from tempo_core.prices import NOMINAL
from tempo_core.symbolic.condition import Bool, at_least_zero, conjunction
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
    if it never has more operations than the one as written. Where two orders cross over at one place of a step or a bound, the result is
    a merge of both, each on its side of the place. If that cannot be told, an order that is best for all bounds of at least `NOMINAL`
    is taken; otherwise the chain stays as it is written. Memory does not grow: see `Chain.best`.
    Running sums (`lift`, `accumulate`) come first: they leave no chain. A size that varies with a step counts as its largest, where
    all points of the step will be computed at once, padded to it: not along the steps in `but`, and nowhere with `loops`.

    Rewrite: `y[] = (A[32, 32] @ B[32, 32]) @ x[32]` -> `y[] = A @ (B @ x)`
    Rewrite: `y[t] = (A[32, 16] @ B[16, t]) @ C[t, 8]` -> `y[t] = (A @ B) @ C where t <= 6; y[t] = A @ (B @ C) where t >= 7`
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
    best = _least(costs, lambda cost: cost)
    crossing = None if best is not None else _crossing(costs, written, products.graph.ends().keys())
    if best is None and crossing is None:
        best = _least(costs, _for_large_bounds)
    if best == written:
        return
    if best is not None:
        order = Ordered(products, best)
        note(root.id, order.text + ": {} operations in all, not {}", *order.about, costs[best], costs[written])
        order.replace_root()
        return
    if crossing is None:
        note(root.id, "multiplied as it is written: no order of its factors has the fewest operations for all bounds")
        return
    before, after, symbol, last = crossing
    conditions = at_least_zero(last - symbol.expr), at_least_zero(symbol.expr - last - 1)
    first, second = Ordered(products, before), Ordered(products, after)
    text = first.text + " up to {} = {}, with {} operations in all; then " + second.text + ", with {}"
    note(root.id, text, *first.about, symbol, last, costs[before], *second.about, costs[after])
    branches = (
        replace(order.add(condition), condition=condition) for order, condition in zip((first, second), conditions, strict=True)
    )
    merge = ops.Merge(root.outputs[0])
    products.graph.put(replace(root, op=merge, inputs=tuple(branches)))


def _candidates(products: Chain) -> list[Tree]:
    """The order as written, and those with the fewest operations at few, some and many points."""
    graph = products.graph
    symbols = frozenset[Symbol]().union(*(size.symbols for size in products.sizes), products.root.domain.steps)
    symbols |= {step.bound_symbol for step in (*symbols, *graph.order) if step.is_step}
    trees: dict[Tree, None] = {products.tree: None}
    for step_value, bound_value in ((1, 2), (1, _MANY), (NOMINAL - 1, NOMINAL), (_MANY - 1, _MANY)):
        trees.setdefault(products.best({s: step_value if s.is_step else bound_value for s in symbols}))
    return list(trees)


def _least(costs: Mapping[Tree, Expr], seen: Callable[[Expr], Expr]) -> Tree | None:
    """The first order that never has more operations than another one: at all points, for all bounds."""
    for tree, cost in costs.items():
        if all(provably_nonnegative(seen(other - cost)) for other in costs.values()):
            return tree
    return None


def _for_large_bounds(difference: Expr) -> Expr:
    """A difference of costs, for bounds of at least `NOMINAL`, in terms of what they are more. One that varies with steps stays."""
    if difference.steps:
        return difference
    return difference.substitute({bound: bound.expr + NOMINAL - 1 for bound in difference.symbols})


def _crossing(costs: Mapping[Tree, Expr], written: Tree, ends: Set[Symbol]) -> tuple[Tree, Tree, Symbol, int] | None:
    """Two orders, a step or bound, and its last value up to which the first has fewer operations; after it, the second has.

    The order as written has at least as many everywhere. A bound of `ends`, which a run finds out, is not known in time.
    """
    for before, after in sorted(itertools.permutations(costs, 2), key=lambda pair: written in pair):
        place = _place(costs[before] - costs[after])
        if place is None or place[0] in ends:
            continue
        if any(tree == written or provably_nonnegative(costs[written] - costs[tree]) for tree in (before, after)):
            return before, after, *place
    return None


def _place(difference: Expr) -> tuple[Symbol, int] | None:
    """The symbol and its last value for which a difference is negative or zero: the difference is `(a * symbol - b) * c`, with c >= 0."""
    if len(difference.terms) != 2:
        return None
    (first, factor), (second, constant) = difference.terms
    shared = dict(second)
    powers = {atom: power - shared.pop(atom, 0) for atom, power in first}
    rest = {atom: power for atom, power in powers.items() if power}
    if shared or len(rest) != 1 or not all(isinstance(atom, Symbol) for atom in powers):
        return None
    ((symbol, power),) = rest.items()
    if power != 1 or not isinstance(symbol, Symbol) or not factor > 0 > constant:
        return None
    return symbol, -constant // factor


@dataclass
class Ordered:
    """The products of a chain in another order. `text` with a {} for each of `about` shows it."""

    products: Chain
    tree: Tree

    def __post_init__(self) -> None:
        self.text = "multiplied as `" + _shown(self.tree, is_inside=False) + "`"
        sources = [self.products.factors[k].edge for k in sorted(members(self.tree))]
        self.about = tuple(Ref(edge.source) for edge in sources)

    def replace_root(self) -> None:
        edge = self.add(self.products.root.domain.condition)
        graph, root = self.products.graph, self.products.root
        last = graph.nodes.pop(edge.source)
        graph.put(replace(last, id=root.id, name=root.name))

    def add(self, condition: Bool) -> Edge:
        """The result, over the points of the root at which a condition holds."""
        build = Builder(self.products.graph, self.products.root, self._domain(self.tree, condition))
        return repeated(build, self._product(self.tree, condition), self.products.labels, ())

    def _product(self, tree: Tree, condition: Bool) -> Labelled:
        """The value of a tree."""
        if isinstance(tree, int):
            return self.products.factors[tree]
        sides = [self._product(part, condition) for part in tree]
        kept, wanted = self.products.labels_of(members(tree)), self.products.labels
        contracted = tuple(label for label in sides[0].labels if label in sides[1].labels and label not in kept)
        choices = []
        for left, right in (sides, reversed(sides)):
            op, labels = contraction(left.labels, right.labels, contracted, wanted)
            choices.append((op, (left.edge, right.edge), labels))
        in_order = [choice for choice in choices if choice[2] == tuple(label for label in wanted if label in kept)]
        op, operands, labels = (in_order or choices)[0]
        build = Builder(self.products.graph, self.products.root, self._domain(tree, condition))
        return Labelled(build.add(op, *operands), labels)

    def _domain(self, tree: Tree, condition: Bool) -> Domain:
        """The points at which a product runs: the root's, along the steps with which its factors vary."""
        root, steps = self.products.root.domain, self.products.steps_of(members(tree))
        parts = (root.condition & condition).parts
        return Domain(steps, conjunction(*(part for part in parts if part.steps <= set(steps))))


def _shown(tree: Tree, is_inside: bool = True) -> str:
    if isinstance(tree, int):
        return "{}"
    text = f"{_shown(tree[0])} @ {_shown(tree[1])}"
    return f"({text})" if is_inside else text
