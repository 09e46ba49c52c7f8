"""Writes at positions that data decides, into values that loops carry: a table, a queue, a tape."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tempo_core.ir import ops
from tempo_core.ir.builder import Builder
from tempo_core.ir.graph import Edge, Graph, Node, constant_number
from tempo_core.passes.base import Pass, read_at, remove_dead
from tempo_core.passes.decisions import note
from tempo_core.prices import pays_to_update


@dataclass(frozen=True)
class Update(Pass):
    """Let a recurrence whose next value differs at some positions of an axis write there alone, and not all elements.

    Rewrite: `where(iota == i, new, old)` -> `update_set(old, new, i)`
    Rewrite: `where(iota == i & c, new, old)` -> `update_set(old, where(c, new, old[i]), i)`
    Rewrite: `where(scatter_add(1, i) > 0, scatter_add(new, i), old)` -> `update_set(old, new, i)`
    Rewrite: `old + scatter_add(new, i)` -> `update_add(old, new, i)`
    """

    name: str = field(default="update", init=False)

    def apply(self, graph: Graph) -> Graph:
        updated = graph.copy()
        for merge in graph:
            if isinstance(merge.op, ops.Merge) and merge.domain.steps:
                for edge in merge.inputs:
                    for node in _chain(updated, edge):
                        note(node.id, "written at positions that data decides: the other elements stay where they are")
                        updated.put(node)
        return graph if updated.nodes == graph.nodes else remove_dead(updated)


def _chain(graph: Graph, edge: Edge) -> list[Node]:
    """The updates, one after the other, by which a recurrence gets its next value from the one before; none if it does so otherwise."""
    updates: list[Node] = []
    node = graph[edge.source]
    while not isinstance(node.op, ops.Merge):
        update = _Writes(graph, node).update() if node.domain.steps else None
        if update is None:
            return []
        updates.append(update)
        old = update.inputs[0]
        node = graph[old.source]
        if not old.index or not old.is_own_point(node.domain):
            return []
    return updates


def writes_at_positions(graph: Graph, edge: Edge) -> bool:
    """Whether a recurrence gets its next value by updates."""
    return bool(_chain(graph, edge))


@dataclass(frozen=True)
class _Position:
    """The elements at `index` along `axis`, of which the first `batch` dimensions are those of the index; where `also` holds."""

    axis: int
    batch: int
    index: Edge
    also: Edge | None = None


class _Writes:
    """A node that gives a value with other elements at some positions."""

    def __init__(self, graph: Graph, node: Node):
        self.graph, self.node, self.build = graph, node, Builder(graph, node)

    def update(self) -> Node | None:
        """The node as an update of its old value; None if it is something else."""
        op = self.node.op
        if isinstance(op, ops.Binary) and op.fn == "add":
            return next(self._additions(), None)
        if not isinstance(op, ops.Where) or op.length is not None:
            return None
        mask, new, old = self.node.inputs
        at = self._position(mask)
        if at is None:
            return self._scattered(mask, new, old)
        if not pays_to_update(self.build.type(old).shape[at.axis], at.batch > 0):
            return None
        part = self._part(new, at)
        if at.also is not None:
            part = self.build.add(ops.Where(), self._part(at.also, at), part, self._part(old, at))
        return self._as("set", at.axis, at.batch, old, part, at.index)

    def _as(self, fn: str, axis: int, batch: int, old: Edge, new: Edge, index: Edge) -> Node:
        return replace(self.node, op=ops.Update(fn, axis, batch), inputs=(old, new, index))

    def _additions(self) -> Iterator[Node]:
        for slot in range(2):
            scatter, operands = self._read(self.node.inputs[slot])
            if isinstance(scatter, ops.ScatterAdd) and operands is not None and self._pays(scatter, operands[1]):
                yield self._as("add", scatter.axis, scatter.batch, self.node.inputs[1 - slot], *operands)

    def _scattered(self, mask: Edge, new: Edge, old: Edge) -> Node | None:
        """What `scatter` writes: sums of updates, where at least one update is."""
        scatter, operands = self._read(new)
        if not isinstance(scatter, ops.ScatterAdd) or operands is None or not self._pays(scatter, operands[1]):
            return None
        counts, compared = self._read(mask)
        if isinstance(counts, ops.Broadcast) and compared is not None:
            counts, compared = self._read(compared[0])
        if not isinstance(counts, ops.Compare) or counts.fn != "gt" or compared is None or self._number(compared[1]) != 0:
            return None
        counter, counted = self._read(compared[0])
        is_count = isinstance(counter, ops.ScatterAdd) and counted is not None and self._number(counted[0]) == 1
        if not is_count or counted is None or replace(counted[1], condition=operands[1].condition) != operands[1]:
            return None
        return self._as("set", scatter.axis, scatter.batch, old, *operands)

    def _pays(self, scatter: ops.ScatterAdd, index: Edge) -> bool:
        return pays_to_update(scatter.size, self.build.type(index).rank > 0)

    # -- masks --------------------------------------------------------------------------------------------------------

    def _position(self, mask: Edge) -> _Position | None:
        """The position that a mask is for: `iota == i`, perhaps under a condition."""
        op, operands = self._read(mask)
        if operands is None:
            return None
        if isinstance(op, ops.Binary) and op.fn == "and":
            for slot in range(2):
                at = self._position(operands[slot])
                if at is not None:
                    also, other = at.also, operands[1 - slot]
                    return replace(at, also=other if also is None else self.build.add(op, also, other))
        if isinstance(op, ops.Broadcast):
            at = self._position(operands[0])
            if at is None or op.axes[: at.batch] != tuple(range(at.batch)):
                return None
            return replace(at, axis=op.axes[at.axis], also=None if at.also is None else self.build.add(op, at.also))
        if isinstance(op, ops.Compare) and op.fn == "eq":
            for slot in range(2):
                axis, index = self._counted_axis(operands[slot]), self._read(operands[1 - slot])
                if axis is not None and isinstance(index[0], ops.Broadcast) and index[1] is not None:
                    axes = index[0].axes
                    if len(axes) <= axis and axes == tuple(range(len(axes))):
                        return _Position(axis, len(axes), index[1][0])
        return None

    def _counted_axis(self, value: Edge) -> int | None:
        """The axis along which a value counts 0, 1, 2, ..., if it does nothing else."""
        op, operands = self._read(value)
        if isinstance(op, ops.Iota):
            return 0
        if not isinstance(op, ops.Broadcast) or operands is None:
            return None
        return op.axes[0] if isinstance(self.graph[operands[0].source].op, ops.Iota) else None

    def _part(self, value: Edge, at: _Position) -> Edge:
        """What a value has at the position."""
        op, operands = self._read(value)
        if not isinstance(op, ops.Broadcast) or at.axis in op.axes or operands is None:
            return self.build.add(ops.Gather(at.axis, at.batch), value, at.index)
        shape = (*op.shape[: at.axis], *op.shape[at.axis + 1 :])
        axes = tuple(axis - (axis > at.axis) for axis in op.axes)
        return operands[0] if len(axes) == len(shape) else self.build.add(ops.Broadcast(shape, axes), operands[0])

    def _read(self, edge: Edge) -> tuple[ops.Op, list[Edge] | None]:
        """The op that an edge reads, and the edges by which this node would read the op's operands."""
        source = self.graph[edge.source]
        if isinstance(source.op, ops.Merge) or not all(hasattr(index, "expr") for index in edge.index):
            return source.op, None
        operands = [read_at(inner, source.domain, edge) for inner in source.inputs]
        return source.op, [each for each in operands if each is not None] if None not in operands else None

    def _number(self, edge: Edge) -> int | float | None:
        return constant_number(self.graph, edge.source)
