"""Strips: products and what lies between them run strip by strip over a dimension, forward, backward and reduction together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tempo_core.ir import ops
from tempo_core.ir.dependence import forward_order, reached
from tempo_core.ir.graph import Graph, Node
from tempo_core.ir.types import ITEM_SIZE, TensorType
from tempo_core.passes.base import Pass
from tempo_core.passes.clean.cse import Cse
from tempo_core.passes.clean.simplify import Simplify
from tempo_core.passes.decisions import note
from tempo_core.passes.tiles.tile import Chosen, Seed, Tiling, dimensions
from tempo_core.symbolic.condition import TRUE, Bool, conjunction, equal
from tempo_core.symbolic.domain import Range, step_order
from tempo_core.symbolic.expr import Expr, Symbol
from tempo_core.target import CPU, Target, compared


@dataclass(frozen=True)
class Strip(Pass):
    """Run chains of products strip by strip over the dimension that the last of them contract, if their results are large.

    Before: the gradient of a weight is a product that contracts all rows (environments and times of a rollout, the positions of
    a text). Its operands are computed from products over the same rows, forward and backward, which are written to memory and read
    again. After: a loop over strips of rows computes them, and adds up what is contracted: the weights' gradients, and the
    losses beside them. What lies between the products stays in cache, and takes the memory of one strip.

    This is done where the `target` takes fewer seconds for it: what lies between the products is in the cache then, but each strip runs all
    operations, reads the weights, and adds to their gradients. `numbers` are the bounds that are known. The size of a strip divides the
    dimension, so that no strip has a part past its end. Steps in `but` are left to `Tile`. The numbers that decided are in
    `Graph.decided_for`: for others, the passes run again. Floats are summed in another order.

    Rewrite (strips of 10): `h = tanh(x[0:T] @ w); g = x[0:T].T @ (c * (1 - h * h))` -> `h[n] = tanh(x[10n : 10n + 10] @ w); ...;
    a[n] = x[10n : 10n + 10].T @ (c * (1 - h[n] * h[n])) + (a[n - 1] if n >= 1 else 0); g = a[T//10 - 1]`
    """

    numbers: tuple[tuple[Symbol, int], ...] = ()
    target: Target = CPU
    but: tuple[str, ...] = ()
    name: str = field(default="strip", init=False)

    def apply(self, graph: Graph) -> Graph:
        deciding = [graph.decided_for]
        stripped = graph
        while chains := list(self._chains(stripped, deciding)):
            stripped = max(chains, key=lambda chain: chain.ranges).run()
        if stripped is not graph:
            stripped = Cse().apply(Simplify().apply(stripped))
        elif len(deciding) > 1:
            stripped = graph.copy()
        stripped.decided_for = conjunction(*deciding)
        return stripped

    def _chains(self, graph: Graph, deciding: list[Bool]) -> Iterator[Stripping]:
        """The chains that pay to run in strips. Adds the numbers that decided to `deciding`."""
        numbers = dict(self.numbers)
        for step in graph.order:
            if step.name not in self.but and step.bound_symbol in numbers:
                for whole in dimensions(graph, step, products_only=True):
                    chain = Stripping(graph, step, whole, numbers, self.target)
                    deciding.append(chain.deciding)
                    if chain.pays:
                        yield chain


def _bytes(type: TensorType, numbers: Mapping[Symbol, int]) -> int:
    return ITEM_SIZE[type.dtype] * math.prod(dim.evaluate(numbers) for dim in type.shape)


def strip_size(rows: int, written: int, target: Target) -> int:
    """How many of the rows a strip has, so that what it writes takes about a third of the cache: a divisor, all rows if they take less."""
    ideal = rows * target.cache_bytes / 3 / max(written, 1)
    divisors = [d for low in range(1, math.isqrt(rows) + 1) if rows % low == 0 for d in (low, rows // low)]
    return min(divisors, key=lambda d: max(d / ideal, ideal / d))


def seconds(strips: int, kernels: int, written: int, added: int, target: Target) -> float:
    """The time of a chain in so many strips, which writes and reads so many bytes between its products, half of them at a time.

    Each strip but one reads weights again that are as large as the gradients to which it adds (`added`), and these.
    """
    between = target.of(strips * kernels, bytes=2 * written, alive=written / strips / 2)
    return between + 3 * (strips - 1) * added / target.memory


class Stripping(Tiling):
    """A tiling of whole chains of products over the dimension `whole`, by a size that divides it."""

    divides = True

    def __init__(self, graph: Graph, step: Symbol, whole: Expr, numbers: Mapping[Symbol, int], target: Target):
        super().__init__(graph, step, whole, 1)
        seeds, chosen = self.choose()
        written = [graph[n].outputs[0] for n in self._written(seeds, chosen)]
        results = [seed.node.outputs[0] for seed in seeds]
        symbols = whole.symbols.union(*(dim.symbols for type in (*written, *results) for dim in type.shape))
        is_chain = bool(seeds) and symbols <= numbers.keys()
        self.seeds, self.pays = seeds, False
        self.deciding = conjunction(*(equal(bound.expr, Expr.of(numbers[bound])) for bound in symbols)) if is_chain else TRUE
        self.ranges = sum(
            self._reads_range(graph[n], chosen[n][1].operands) for n in chosen
        )  # strips of them are there as they lie
        if is_chain:
            bytes, added = (sum(_bytes(type, numbers) for type in types) for types in (written, results))
            rows, kernels = max(1, whole.evaluate(numbers)), len(written) + len(results)
            self.size = strip_size(rows, bytes, target)
            in_strips, at_once = (seconds(rows // size, kernels, bytes, added, target) for size in (self.size, rows))
            self.pays = in_strips < at_once
            self.forms = compared({f"strips of {self.size} of {whole}": in_strips, "the whole": at_once})
            if self.size < rows and not self.pays:
                for seed in seeds:
                    note(seed.node.id, "not computed in strips: {}", self.forms)

    def run(self) -> Graph:
        for seed in self.seeds:
            note(seed.node.id, "computed in strips: {}", self.forms)
        note(self.step.name, "by its price: {}", self.forms)
        return super().run()

    def _written(self, seeds: list[Seed], chosen: Chosen) -> list[int]:
        """The results of products, and their operands that are computed. XLA makes the others a part of what reads them."""
        products = [seed.node for seed in seeds] + [self.graph[n] for n in chosen]
        products = [node for node in products if isinstance(node.op, ops.Dot)]
        around = {node.id for node in products}.union(*([edge.source for edge in node.inputs] for node in products))
        return [n for n in chosen if n in around]

    def _reads_range(self, node: Node, axes: tuple[int | None, ...]) -> bool:
        """Whether a node reads the tiled dimension as a range of steps."""
        return any(
            axis is not None and axis < sum(isinstance(index, Range) for index in edge.index)
            for edge, axis in zip(node.inputs, axes, strict=True)
        )

    def choose(self) -> tuple[list[Seed], Chosen]:
        """The reductions of what is computed from products, and what leads from the first products to them.

        None of them is needed for another one: then there would be several loops, with all that they share kept between them.
        """
        seeds, chosen = super().choose()
        while seeds:
            after = self._after_products(chosen)
            kept = [s for s in seeds if any(edge.source in after for edge in s.node.inputs)]
            needed = self._needed_by(kept)
            kept = [s for s in kept if s.node.id not in needed]
            if len(kept) == len(seeds):
                break
            seeds, chosen = kept, self._chosen(kept)
        if not any(isinstance(seed.node.op, ops.Dot) for seed in seeds):
            return [], {}
        self._follow_readers(seeds, chosen)
        return seeds, chosen

    def _after_products(self, chosen: Chosen) -> set[int]:
        """The chosen nodes that are products, or computed from some."""
        after: set[int] = set()
        for node in self._in_order():
            if node.id in chosen and (isinstance(node.op, ops.Dot) or any(edge.source in after for edge in node.inputs)):
                after.add(node.id)
        return after

    def _needed_by(self, seeds: list[Seed]) -> set[int]:
        """The nodes that reductions need at their own point."""

        def sources(node: Node) -> list[int]:
            return [edge.source for edge in node.inputs if edge.is_own_point(self.graph[edge.source].domain)]

        starts = [source for seed in seeds for source in sources(seed.node)]
        return reached(starts, lambda node_id: sources(self.graph[node_id]))

    def _follow_readers(self, seeds: list[Seed], chosen: Chosen) -> None:
        """Views and elementwise operations on what is stored run in all loops of their readers, and their results are not stored."""
        after = self._after_products(chosen)
        reduced = {seed.node.id for seed in seeds}
        for node in reversed(self._in_order()):
            if node.id in chosen and node.id not in after:
                readers = [reader for reader, _ in self.users[node.id] if reader.id in chosen or reader.id in reduced]
                every = [set(self.steps.get(reader.id, reader.domain.steps)) for reader in readers]
                steps = set(node.domain.steps).union(set.intersection(*every) if every else ())
                self.steps[node.id] = step_order(steps, self.graph.order)

    def _in_order(self) -> list[Node]:
        return [self.graph[n] for n in forward_order(self.graph)]
