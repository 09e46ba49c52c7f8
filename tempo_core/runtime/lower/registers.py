"""Values that a loop hands from one iteration to the next: each in an entry of the loop's carry, next to the store that keeps them.

    for i in 1:1000:                      last = x[0]
      x[i] = a[i] + b[i] * x[i - 1]   ->  for i in 1:1000:
                                            last = x[i] = a[i] + b[i] * last

XLA's CPU compiler copies a store in each iteration if the loop reads and writes it. A loop that only writes it writes in place.

    for t in 0:1000:                      last = h[0]
      if t >= 1: h[t] = next[t - 1]   ->  for t in 0:1000:
      next[t] = f(h[t])                     h[t] = last
                                            last = next[t] = f(h[t])

A value that all iterations but the first take over needs no selection, and the loop carries it once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from tempo_core.ir.graph import Edge, Graph, Key
from tempo_core.runtime.lower.liveness import Effects, Liveness
from tempo_core.schedule import Block, Execute, If, Loop, leaves
from tempo_core.schedule.tree import Item, flat
from tempo_core.symbolic.condition import at_least_zero
from tempo_core.symbolic.domain import Point
from tempo_core.symbolic.expr import Expr, IntoExpr, Symbol

Operand = tuple[int, int]  # a statement, by identity, and the position of its operand
Place = tuple[Expr, ...]  # a point, in loop counters


@dataclass(frozen=True)
class Registers:
    """What a loop hands from one iteration to the next, and its `body` without the conditions that are superfluous then.

    The operands `readers` read a value that the iteration before wrote into a store. `last` has these stores, each with the place of
    the write. `merges` get their values at the end of the iteration before. `of_last` has those merges whose value that iteration wrote
    into a store, each with the store. `kept` has the single values that are needed after the loop too: each is what the merge at a
    place of `merges` would take over next.
    """

    body: Block
    last: Mapping[Key, Place] = field(default_factory=dict)
    readers: Mapping[Operand, Key] = field(default_factory=dict)
    merges: tuple[Execute, ...] = ()
    of_last: Mapping[int, Key] = field(default_factory=dict)
    kept: Mapping[Key, int] = field(default_factory=dict)

    def effects(self, liveness: Liveness) -> Effects:
        """The effects of an iteration."""
        total, merges = Effects(), {id(merge) for merge in self.merges}
        for child in self.body.children:
            effects = liveness.of(child)
            if isinstance(child, Execute) and id(child) in merges:
                effects = replace(effects, needs=effects.needs - liveness.reads(child))
            total = total.then(effects)
        return total.then(Effects(self.needs_at_end(liveness)))

    def needs_at_end(self, liveness: Liveness) -> frozenset[Key]:
        """The stores that an iteration reads at its end, for the next one."""
        return frozenset(key for merge in self.merges for key in liveness.reads(merge))


def registers(
    loop: Loop, graph: Graph, liveness: Liveness, bounds: Mapping[Symbol, int], live: Collection[Key], split: Collection[Key] = ()
) -> Registers:
    """The values that the iterations of a loop hand to the next ones. Stores that are `split` into several arrays are left out.

    Merges of a single value that is `live` (needed after the loop) are left out too: the loop carries that value anyway, and a merge
    would carry a copy of it. But a value that the loop updates in place would be copied by a selection. There the merge carries the value,
    if the loop surely runs, and only one merge takes it over.
    """
    updated = {
        (edge.source, edge.output) for leaf in leaves(loop.body) if isinstance(leaf, Execute) for edge in _updated(leaf, graph)
    }
    runs = loop.start.is_constant and loop.stop.is_constant and loop.start.constant < loop.stop.constant
    kept: dict[Key, int] = {}
    children: list[Item] = []
    merges: list[Execute] = []
    written: set[Key] = set()  # by the children before
    for child in flat(loop.body):
        moves = _merges_after_first(child, loop)
        reads = {key for merge in moves for key in liveness.reads(merge)}
        writes = {key for merge in moves for key in liveness.of(merge).writes}
        singles = [key for merge in moves for key in liveness.reads(merge) if key in live and not liveness.is_store(key)]
        is_kept = runs and writes & updated and len(set(singles)) == len(singles) and kept.keys().isdisjoint(singles)
        twice = singles and not is_kept
        if moves and not twice and not (reads | writes) & (written | set(split)) and not reads & writes:
            kept |= {key: len(merges) + n for n, merge in enumerate(moves) for key in liveness.reads(merge) if key in singles}
            children += moves
            merges += moves
        else:
            children.append(child)
        written |= liveness.of(child).writes
    body = Block(tuple(children))
    places = {key: at for key, at in _written_once(body, liveness).items() if key not in split}
    counter, handed = loop.counter, {id(merge) for merge in merges}
    before = {key: tuple(e.substitute({counter: counter.expr - loop.step}) for e in at) for key, at in places.items()}
    readers: dict[Operand, Key] = {}
    of_last: dict[int, Key] = {}
    read: set[Key] = set()  # stores that are read at other places too: a loop that reads and writes a store gains nothing
    for leaf in (leaf for leaf in leaves(body) if isinstance(leaf, Execute)):
        for position, edge in enumerate(graph[leaf.node].operands(leaf.branch)):
            key = (edge.source, edge.output)
            if key not in places:
                continue
            at = place(edge, leaf, graph, bounds)
            if at == before[key] and id(leaf) in handed:
                of_last[id(leaf)] = key
            elif at == before[key]:
                readers[id(leaf), position] = key
            elif at != places[key]:
                read.add(key)
    readers = {operand: key for operand, key in readers.items() if key not in read}
    return Registers(body, {key: places[key] for key in readers.values()}, readers, tuple(merges), of_last, kept)


def _updated(execute: Execute, graph: Graph) -> list[Edge]:
    """What a statement updates in place."""
    node = graph[execute.node]
    return [node.operands(execute.branch)[position] for position in node.op.updated]


def _merges_after_first(item: Item, loop: Loop) -> list[Execute]:
    """The merges that an item executes in all iterations but the first, if it does nothing else."""
    if not isinstance(item, If) or item.orelse is not None:
        return []
    if item.condition != at_least_zero(loop.counter.expr - loop.start - loop.step):
        return []
    children = list(flat(item.then))
    merges = [child for child in children if isinstance(child, Execute) and child.branch is not None]
    return merges if len(merges) == len(children) else []


def _written_once(body: Block, liveness: Liveness) -> dict[Key, Place]:
    """The stores of several slots into which each iteration writes one value, with its place."""
    writers: dict[Key, list[Execute]] = {}
    for leaf in leaves(body):
        if isinstance(leaf, Execute):
            for key in liveness.of(leaf).writes:
                writers.setdefault(key, []).append(leaf)
    children = {id(child) for child in body.children}
    single = {key: executes[0] for key, executes in writers.items() if len(executes) == 1 and liveness.is_store(key)}
    return {key: execute.point for key, execute in single.items() if id(execute) in children}


def place(edge: Edge, execute: Execute, graph: Graph, bounds: Mapping[Symbol, int]) -> Place | None:
    """The point that a statement reads, in loop counters; None if it reads a range."""
    at: dict[Symbol, IntoExpr] = {**bounds, **dict(zip(graph[execute.node].domain.steps, execute.point, strict=True))}
    points = [index.expr.substitute(at) for index in edge.index if isinstance(index, Point)]
    return tuple(points) if len(points) == len(edge.index) else None
