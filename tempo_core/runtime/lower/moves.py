"""Loops that only move values, point by point, from where they are into stores: all their iterations are one write.

    for t in 0:512:
      first keys[t]         ->   keys[0:512] = the first 512 of the array that has them
      keys|0[t]

What such a loop moves is known before it runs: no iteration reads what another one writes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from tempo_core.ir.graph import Edge, Graph, Key
from tempo_core.ir.ops import End, Merge, Output
from tempo_core.prices import only_moves
from tempo_core.runtime.lower.liveness import Liveness
from tempo_core.runtime.lower.registers import operands
from tempo_core.runtime.lower.unroll import Unrolled
from tempo_core.schedule import Block, Execute, Loop, Storage
from tempo_core.schedule.tidy import simplified
from tempo_core.schedule.tighten import tightened
from tempo_core.schedule.tree import Item
from tempo_core.symbolic.domain import Point
from tempo_core.symbolic.expr import Expr, Symbol


@dataclass(frozen=True)
class Group:
    """Statements inside the same loops: the loop that is one write, and those of `inner` that are a part of this write.

    `written_out` are the values of the counters of other inner loops, for each of which there is a write.
    """

    executes: tuple[Execute, ...]
    inner: tuple[Loop, ...] = ()
    written_out: tuple[dict[Symbol, int], ...] = field(default_factory=lambda: ({},))


@dataclass(frozen=True)
class Moves:
    """What a loop moves, and what is left of the loop without it."""

    groups: tuple[Group, ...]
    rest: Item


@dataclass(frozen=True)
class _Scene:
    """What the questions about a loop are about. `live` are the stores that are needed after it."""

    loop: Loop
    graph: Graph
    liveness: Liveness
    unrolled: Unrolled
    bounds: dict[Symbol, int]
    live: Collection[Key]

    def storage(self, key: Key) -> Storage:
        return self.liveness.storage[key]


def moves(
    loop: Loop, graph: Graph, liveness: Liveness, unrolled: Unrolled, bounds: dict[Symbol, int], live: Collection[Key]
) -> Moves | None:
    """The part of a loop that only moves values, apart from the rest; None if there is none."""
    scene = _Scene(loop, graph, liveness, unrolled, bounds, live)
    groups = {id(child): group for child in loop.body.children if (group := _group(child, scene)) is not None}
    while groups:
        children = [child for child in loop.body.children if id(child) in groups]
        others = Block(tuple(child for child in loop.body.children if id(child) not in groups))
        refused = [child for child in children if not _is_apart(child, groups[id(child)], children, others, scene)]
        if not refused:
            rest = simplified(tightened(replace(loop, body=others), {}), {}) if others.children else Block()
            return Moves(_joined(children, groups), rest)
        for child in refused:
            del groups[id(child)]
    return None


def _group(item: Item, scene: _Scene) -> Group | None:
    """The statements of a part of a body, if they only move values."""
    if isinstance(item, Execute):
        return Group((item,)) if _only_moves(item, scene.graph) else None
    if not isinstance(item, Loop) or item.step != 1 or not item.start.is_constant or not item.stop.is_constant:
        return None
    executes = item.body.children
    if not all(isinstance(child, Execute) and _only_moves(child, scene.graph) for child in executes):
        return None
    statements = tuple(child for child in executes if isinstance(child, Execute))
    if scene.unrolled.writes_out(item):
        points = range(item.start.constant, item.stop.constant)
        return Group(statements, (), tuple({item.counter: at} for at in points))
    return Group(statements, (item,))


def _only_moves(execute: Execute, graph: Graph) -> bool:
    """Whether a statement computes nothing: it takes parts of values, repeats them, or gives them other shapes."""
    op = graph[execute.node].op
    return not isinstance(op, (Output, End)) and only_moves(op)


def _joined(children: Sequence[Item], groups: dict[int, Group]) -> tuple[Group, ...]:
    """The statements outside of inner loops, as one group, and then those of each inner loop."""
    alone = tuple(child for child in children if isinstance(child, Execute))
    inner = (groups[id(child)] for child in children if isinstance(child, Loop))
    return (*([Group(alone)] if alone else []), *inner)


def _is_apart(child: Item, group: Group, children: Sequence[Item], others: Block, scene: _Scene) -> bool:
    """Whether a part of a body may run for all iterations before the other parts: they do not read or write what it writes, or write
    what it reads; and no iteration of it reads what another one writes.
    """
    effects, rest = scene.liveness.of(child), scene.liveness.of(others)
    if effects.writes & rest.touches or effects.needs & rest.writes:
        return False
    counters = (scene.loop.counter, *(loop.counter for loop in group.inner), *group.written_out[0])
    alone = [each for each in children if isinstance(each, Execute)]
    statements = alone if isinstance(child, Execute) else list(group.executes)
    elsewhere = [
        each for each in children if each is not child and not (isinstance(each, Execute) and isinstance(child, Execute))
    ]
    if any(effects.touches & scene.liveness.of(each).writes for each in elsewhere):
        return False
    points = {(e.node, output): e.point for e in statements for output in range(len(scene.graph[e.node].outputs))}
    for execute in group.executes:
        for output in range(1 if execute.branch is not None else len(scene.graph[execute.node].outputs)):
            if not _takes_every_point(execute, (execute.node, output), counters, scene):
                return False
        for edge in operands(execute, scene.graph):
            key = edge.source, edge.output
            if key in points and not _is_of_this_iteration(edge, execute, statements, scene):
                return False
            if key in scene.unrolled.stores and not _is_in_one_part(edge, execute, group, scene):
                return False
    return True


def _takes_every_point(execute: Execute, key: Key, counters: Sequence[Symbol], scene: _Scene) -> bool:
    """Whether each iteration writes a slot of its own, next to that of the iteration before. A value of one slot must be a local."""
    if not scene.liveness.is_store(key):
        return key not in scene.live and not isinstance(scene.graph[execute.node].op, Merge)
    storage, steps = scene.storage(key), scene.graph[execute.node].domain.steps
    left = set(counters)
    for axis, (step, at) in enumerate(zip(steps, execute.point, strict=True)):
        moving = at.symbols & set(counters)
        if not moving:
            continue
        (counter, *more) = moving
        whole = storage.slots[axis] >= scene.bounds[step.bound_symbol] and storage.lasting_along(axis) is None
        if more or not whole or not (at - counter.expr).is_constant or counter not in left:
            return False
        left.discard(counter)
    return not left and (key not in scene.unrolled.stores or _axis_is_written_out(execute, key, scene))


def _axis_is_written_out(execute: Execute, key: Key, scene: _Scene) -> bool:
    """Whether the point along which a store is split is no counter of the loop."""
    return scene.loop.counter not in execute.point[scene.unrolled.stores[key]].symbols


def _is_in_one_part(edge: Edge, execute: Execute, group: Group, scene: _Scene) -> bool:
    """Whether a read of a split store is of one of its arrays, whatever the iteration."""
    index = edge.index[scene.unrolled.stores[edge.source, edge.output]]
    if not isinstance(index, Point):
        return False
    env = dict(zip(scene.graph[execute.node].domain.steps, execute.point, strict=True))
    moving = {scene.loop.counter, *(loop.counter for loop in group.inner)}
    return not index.expr.substitute(env).symbols & moving


def _is_of_this_iteration(edge: Edge, execute: Execute, statements: Sequence[Execute], scene: _Scene) -> bool:
    """Whether a read is of the value that an earlier statement of the same iteration writes."""
    steps = scene.graph[execute.node].domain.steps
    env = dict(zip(steps, execute.point, strict=True))
    at: list[Expr] = []
    for index in edge.index:
        if not isinstance(index, Point):
            return False
        at.append(index.expr.substitute(env))
    before = statements[: next(k for k, each in enumerate(statements) if each is execute)]
    return any(each.node == edge.source and tuple(each.point) == tuple(at) for each in before)
