"""Values that differ from another one at a position of an axis that data decides, or at several.

At such a position a mask `iota == i` is true, and elsewhere it is false. A value is looked at with either in place of the mask: if it is
another value elsewhere, then only what it is at the position has to be written, and a sum of values that are zero elsewhere is one of them.
So `where(iota == i, new, old)`, `old + one_hot(i) * x` and `(1 - one_hot(i)) * old + one_hot(i) * new` are writes. A product with the zeros
of a mask is zero, also if the other factor is infinite or NaN.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from tempo_core.ir import ops
from tempo_core.ir.builder import Builder, literal
from tempo_core.ir.graph import Edge, Graph, Node, compose, constant_number
from tempo_core.ir.types import TensorType
from tempo_core.symbolic.expr import Expr

Axes = tuple[int, ...]  # by dimension of an operand: which dimension of the node it is; -1 for one of size 1 that is none there
Operand = tuple[Edge, Axes]
Value = Edge | int  # small whole numbers, the values of masks, as such
MOST_OPERANDS = 48  # that are looked at between a value and its masks
NUMBERS: dict[str, Callable[[int, int], int]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "and": operator.and_, "or": operator.or_,
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip
ABSORBING = {("mul", 0), ("and", 0), ("or", 1)}
NEUTRAL = {("add", 0), ("mul", 1), ("and", 1), ("or", 0)}


@dataclass(frozen=True)
class Position:
    """The element at `index` along an axis of a node, of which the first `batch` dimensions are those of the index.

    If the index has more dimensions, of the sizes `wide`, these are several positions, and some may be the same.
    """

    axis: int
    batch: int
    index: Edge
    wide: tuple[Expr, ...] = ()


@dataclass(frozen=True)
class Write:
    """`old` with other elements at `index`; `new` gives these, in nodes that it adds to the graph, or None if it cannot."""

    op: ops.Update
    old: Edge
    index: Edge
    new: Callable[[], Edge | None]


class Writes:
    """What a node writes into another value. `pays(size, has_several)` says for which axes that is worthwhile."""

    def __init__(self, graph: Graph, node: Node, pays: Callable[[Expr, bool], bool]):
        self.graph, self.node, self.pays = graph, node, pays
        self.build = Builder(graph, node)
        self.whole: list[Operand] = [(edge, tuple(range(graph.edge_type(edge).rank))) for edge in node.inputs]
        self.operands: dict[Operand, list[Operand]] = {}
        self.masks: dict[Operand, Position] = {}
        self.values: dict[tuple[Operand, Position, bool], Value | None] = {}

    def writes(self) -> Iterator[Write]:
        """The ways to see the node as a write."""
        op, shape = self.node.op, self.node.outputs[0].shape if self.node.outputs else ()
        if isinstance(op, ops.Reshape):
            yield from self._along_several_axes()
        if not shape or not (isinstance(op, ops.Binary) or (isinstance(op, ops.Where) and op.length is None)):
            return
        for at in self._positions():
            old = _folded(op, [self._value(each, at, False) for each in self.whole])
            if isinstance(old, Edge) and self.pays(shape[at.axis], at.batch + len(at.wide) > 0):
                added = self._added(old, at)
                if added is not None:
                    yield Write(ops.Update("add", at.axis, at.batch), old, at.index, functools.partial(self._addend, added, at))
                elif not at.wide:
                    yield Write(ops.Update("set", at.axis, at.batch), old, at.index, functools.partial(self._result, at))
        yield from self._scattered()
        yield from self._combined()

    def update(self) -> Node | None:
        """The node as an update of another value; None if it is something else."""
        for write in self.writes():
            new = write.new()
            if new is not None:
                return replace(self.node, op=write.op, inputs=(write.old, new, write.index))
        return None

    def element(self) -> Edge | None:
        """The value of a sum over an axis of which all elements but one are zero; None if it is something else."""
        op = self.node.op
        if not isinstance(op, ops.Reduce) or op.fn != "sum" or len(op.axes) > 1:
            return None
        x, type = self.whole[0], self.node.outputs[0]
        for at in self._positions():
            size = self.build.type(x[0]).shape[at.axis]
            if at.axis == op.axes[0] and not at.wide and self._value(x, at, False) == 0 and self.pays(size, False):
                value = self._part(x, at)
                if value is not None:
                    inside = self.build.add(ops.Broadcast(type.shape, tuple(range(at.batch))), self.build.within(at.index, size))
                    return self.build.add(ops.Where(), inside, value, self._edge(0, type))
        return None

    def _added(self, old: Edge, at: Position) -> Operand | None:
        """What is added to the old value at the position, or taken away from it, if the node does nothing else."""
        op = self.node.op
        for slot in range(2) if isinstance(op, ops.Binary) and op.fn == "add" else range(1) if _is_difference(op) else ():
            rest = self.whole[1 - slot]
            if (
                self.whole[slot][0] == old
                and not self._holds(self.whole[slot], at)
                and (not at.wide or self._is_linear(rest, at))
            ):
                return rest
        return None

    def _addend(self, added: Operand, at: Position) -> Edge | None:
        part = self._part(added, at)
        return part if part is None or not _is_difference(self.node.op) else self.build.add(ops.Unary("neg"), part)

    def _scattered(self) -> Iterator[Write]:
        """What `scatter` writes at several positions: sums of what is written, where anything is."""
        op, edges = self.node.op, self.node.inputs
        scatter, operands = self._read(edges[1])
        if (
            not isinstance(op, ops.Where)
            or not isinstance(scatter, ops.Scatter)
            or not operands
            or not self.pays(scatter.size, True)
        ):
            return
        if self._are_written(*edges[:2]):
            new = functools.partial(lambda edge: edge, operands[0])
            yield Write(ops.Update("set", scatter.axis, scatter.batch), edges[2], operands[1], new)

    def _combined(self) -> Iterator[Write]:
        """What is scattered by the same function by which the node combines it with a value."""
        for edge, old in zip(self.node.inputs, self.node.inputs[::-1], strict=True):
            scatter, operands = self._read(edge)
            if not isinstance(scatter, ops.Scatter) or getattr(self.node.op, "fn", "") != scatter.fn or not operands:
                continue
            if self.build.type(operands[1]).rank > 0 or self.pays(
                scatter.size, False
            ):  # several positions are no part of other operations
                op = ops.Update(scatter.fn, scatter.axis, scatter.batch)
                yield Write(op, old, operands[1], functools.partial(lambda new: new, operands[0]))

    def _along_several_axes(self) -> Iterator[Write]:
        """A write along an axis that stands for several axes of another value, if the node gives it their shape again."""
        (edge,), shape = self.node.inputs, self.node.outputs[0].shape
        if not edge.is_own_point(self.graph[edge.source].domain):
            return
        for write in Writes(self.graph, self.graph[edge.source], self.pays).writes():
            flat, operands = self._read(write.old)
            axis, count = write.op.axis, len(shape) - self.build.type(edge).rank + 1
            if isinstance(flat, ops.Reshape) and operands and self.build.type(operands[0]).shape == shape and count > 0:
                rest = (*shape[:axis], ops.product(shape[axis : axis + count]), *shape[axis + count :])
                if rest == self.build.type(edge).shape:
                    yield replace(write, op=replace(write.op, axes=count), old=operands[0])

    def _are_written(self, mask: Edge, new: Edge) -> bool:
        """Whether a mask is true where as many as one element of `new` is written: `scatter_add(1, i) > 0`."""
        written, counts, compared = self._read(new)[1], *self._read(mask)
        if isinstance(counts, ops.Broadcast) and compared:
            counts, compared = self._read(compared[0])
        if (
            not written
            or not isinstance(counts, ops.Compare)
            or counts.fn != "gt"
            or not compared
            or self._number(compared[1]) != 0
        ):
            return False
        counter, counted = self._read(compared[0])
        is_count = isinstance(counter, ops.Scatter) and counted and self._number(counted[0]) == 1
        return bool(is_count and counted and replace(counted[1], condition=written[1].condition) == written[1])

    # -- positions ----------------------------------------------------------------------------------------------------

    def _positions(self) -> list[Position]:
        """The positions of masks on which the node depends element by element."""
        waiting = list(self.whole)
        while waiting and len(self.operands) < MOST_OPERANDS:
            each = waiting.pop(0)
            if each not in self.operands:
                at = self._mask(*each)
                self.operands[each] = [] if at else self._elementwise(*each)
                waiting += self.operands[each]
                if at is not None:
                    self.masks[each] = at
        return list(dict.fromkeys(self.masks.values()))

    def _elementwise(self, edge: Edge, axes: Axes) -> list[Operand]:
        """The operands of what an edge reads, if it gives each element from the same element of them."""
        op, operands = self._read(edge)
        if isinstance(op, ops.Broadcast) and operands:
            return [(operands[0], tuple(axes[a] for a in op.axes))]
        if isinstance(op, ops.Reshape) and operands:
            before, after = self.build.type(operands[0]).shape, op.shape
            wide = [a for a, size in enumerate(after) if size != 1]
            if [size for size in before if size != 1] != [after[a] for a in wide]:
                return []
            places = iter(wide)
            return [(operands[0], tuple(-1 if size == 1 else axes[next(places)] for size in before))]
        is_elementwise = isinstance(op, (ops.Unary, ops.Binary, ops.Compare, ops.Cast)) or (
            isinstance(op, ops.Where) and op.length is None
        )
        return [(each, axes) for each in operands or ()] if is_elementwise else []

    def _mask(self, edge: Edge, axes: Axes) -> Position | None:
        """The position at which alone an operand is true, or has something: `iota == i`, `scatter_add(x, i)`."""
        op, operands = self._read(edge)
        at: Position | None = None
        if isinstance(op, ops.Scatter) and operands:
            at = Position(op.axis, op.batch, operands[1], self.build.type(operands[1]).shape[op.batch :])
        elif isinstance(op, ops.Compare) and op.fn == "eq" and operands:
            for slot in range(2):
                axis, (repeated, index) = self._counted_axis(operands[slot]), self._read(operands[1 - slot])
                if (
                    axis is not None
                    and isinstance(repeated, ops.Broadcast)
                    and index
                    and repeated.axes == tuple(range(axis))[: len(repeated.axes)]
                ):
                    at = Position(axis, len(repeated.axes), index[0])
        return replace(at, axis=axes[at.axis]) if at and axes[: at.batch] == tuple(range(at.batch)) else None

    def _counted_axis(self, value: Edge) -> int | None:
        """The axis along which a value counts 0, 1, 2, ..., if it does nothing else."""
        op, operands = self._read(value)
        if isinstance(op, ops.Iota):
            return 0
        if not isinstance(op, ops.Broadcast) or not operands:
            return None
        return op.axes[0] if isinstance(self.graph[operands[0].source].op, ops.Iota) else None

    # -- values at a position and elsewhere ----------------------------------------------------------------------------

    def _holds(self, operand: Operand, at: Position) -> bool:
        """Whether an operand depends on the mask of a position."""
        return self.masks.get(operand) == at or any(self._holds(each, at) for each in self.operands.get(operand, ()))

    def _is_linear(self, operand: Operand, at: Position) -> bool:
        """Whether an operand is a sum over the positions of what it is for each of them."""
        if self.masks.get(operand) == at:
            return True
        op, operands = self.graph[operand[0].source].op, self.operands.get(operand, [])
        linear = [each for each in operands if self._is_linear(each, at)]
        if isinstance(op, ops.Binary) and op.fn == "mul":
            return len(linear) == 1 and not all(self._holds(each, at) for each in operands)
        is_sum = isinstance(op, (ops.Broadcast, ops.Reshape)) or (
            isinstance(op, (ops.Unary, ops.Binary)) and op.fn in ("neg", "add", "sub")
        )
        return is_sum and bool(operands) and len(linear) == len(operands)

    def _value(self, operand: Operand, at: Position, inside: bool) -> Value | None:
        """What an operand is at the position (without its axis), or elsewhere; None if that is no value of the graph."""
        key = operand, at, inside
        if key not in self.values:
            self.values[key] = self._valued(operand, at, inside)
        return self.values[key]

    def _valued(self, operand: Operand, at: Position, inside: bool) -> Value | None:
        edge, axes = operand
        op, operands = self._read(edge)
        if self.masks.get(operand) == at:
            return int(inside) if isinstance(op, ops.Compare) or not inside else operands[0] if operands else None
        if not self._holds(operand, at):
            number = self._number(edge)
            return int(number) if number in (0, 1) else self._gathered(edge, axes, at) if inside else edge
        return self._applied(op, self.operands[operand], self._type(edge, axes, at), axes, at, inside)

    def _result(self, at: Position) -> Edge | None:
        """The elements of the node at the position."""
        axes = tuple(range(self.node.outputs[0].rank))
        type = _at(self.node.outputs[0], axes, at)
        value = self._applied(self.node.op, self.whole, type, axes, at, True)
        return None if value is None else self._edge(value, type)

    def _part(self, operand: Operand, at: Position) -> Edge | None:
        """The elements of an operand at the position."""
        value = self._value(operand, at, True)
        return None if value is None else self._edge(value, self._type(*operand, at))

    def _applied(
        self, op: ops.Op, operands: Sequence[Operand], type: TensorType, axes: Axes, at: Position, inside: bool
    ) -> Value | None:
        """What an op gives for operands at the position or elsewhere."""
        values = [self._value(each, at, inside) for each in operands]
        folded = _folded(op, values)
        if folded is not None or not inside or None in values:
            return folded
        if isinstance(op, ops.Broadcast):
            place, wide = axes.index(at.axis), len(at.wide)
            op = ops.Broadcast(type.shape, tuple(k for a in op.axes for k in _moved(a, place, wide)))
        elif isinstance(op, ops.Reshape):
            op = ops.Reshape(type.shape)
        types = [self._type(*each, at) for each in operands]
        return self.build.add(op, *(self._edge(v, t) for v, t in zip(values, types, strict=True) if v is not None))

    def _gathered(self, edge: Edge, axes: Axes, at: Position) -> Edge | None:
        """What a value that does not depend on the mask has at the position."""
        if at.axis not in axes:
            return edge
        op, operands = self._read(edge)
        place = axes.index(at.axis)
        if isinstance(op, ops.Broadcast) and operands and place not in op.axes:
            shape, kept = self._type(edge, axes, at).shape, tuple(k for a in op.axes for k in _moved(a, place, len(at.wide)))
            return operands[0] if len(kept) == len(shape) else self.build.add(ops.Broadcast(shape, kept), operands[0])
        shares_batch = axes[: at.batch] == tuple(range(at.batch))
        return self.build.add(ops.Gather(place, at.batch), edge, at.index) if shares_batch else None

    def _type(self, edge: Edge, axes: Axes, at: Position) -> TensorType:
        return _at(self.build.type(edge), axes, at)

    def _edge(self, value: Value, type: TensorType) -> Edge:
        if isinstance(value, Edge):
            return value
        number = literal(self.build, type.dtype, value)
        return self.build.add(ops.Broadcast(type.shape, ()), number) if type.shape else number

    def _read(self, edge: Edge) -> tuple[ops.Op, list[Edge] | None]:
        """The op that an edge reads, and the edges by which this node would read the op's operands."""
        source = self.graph[edge.source]
        if isinstance(source.op, ops.Merge) or not all(hasattr(index, "expr") for index in edge.index):
            return source.op, None
        operands = [compose(inner, source.domain.steps, edge.index) for inner in source.inputs]
        return source.op, None if None in operands else [replace(each, condition=edge.condition) for each in operands if each]

    def _number(self, edge: Edge) -> int | float | None:
        return constant_number(self.graph, edge.source)


def _at(type: TensorType, axes: Axes, at: Position) -> TensorType:
    """The type of what is at a position: the dimensions of several positions stand in place of the axis."""
    sizes = (at.wide if a == at.axis else (size,) for a, size in zip(axes, type.shape, strict=True))
    return TensorType(type.dtype, tuple(itertools.chain.from_iterable(sizes)))


def _moved(axis: int, place: int, wide: int) -> tuple[int, ...]:
    """The dimensions of what is at a position that an axis becomes, if the position's axis is `place`."""
    return (axis,) if axis < place else (axis + wide - 1,) if axis > place else tuple(range(place, place + wide))


def _is_difference(op: ops.Op) -> bool:
    return isinstance(op, ops.Binary) and op.fn == "sub"


def _folded(op: ops.Op, values: Sequence[Value | None]) -> Value | None:
    """What an op gives without a computation: one of its operands, or a number."""
    numbers = [value for value in values if isinstance(value, int)]
    if isinstance(op, ops.Where):
        return None if not isinstance(values[0], int) else values[1] if values[0] else values[2]
    if isinstance(op, (ops.Cast, ops.Broadcast, ops.Reshape)):
        return numbers[0] if numbers else None
    if isinstance(op, ops.Unary) and numbers:
        return 1 - numbers[0] if op.fn == "not" else -numbers[0] if op.fn == "neg" else None
    if not isinstance(op, (ops.Binary, ops.Compare)):
        return None
    if len(numbers) == 2:
        return int(NUMBERS[op.fn](*numbers)) if op.fn in NUMBERS else None
    for number, other in (values, values[::-1]):
        if isinstance(number, int) and (op.fn, number) in ABSORBING:
            return number
        if isinstance(number, int) and (op.fn, number) in NEUTRAL:
            return other
    return values[0] if op.fn == "sub" and values[1] == 0 else None


def chain(graph: Graph, edge: Edge, pays: Callable[[Expr, bool], bool]) -> list[int]:
    """The nodes, one after the other, that write into a value of a recurrence, of which `edge` reads the last; none if any does more."""
    writes: list[int] = []
    node = graph[edge.source]
    while not isinstance(node.op, ops.Merge):
        write = next(Writes(graph, node, pays).writes(), None) if node.domain.steps else None
        if write is None or not write.old.index:
            return []
        writes.append(node.id)
        node = graph[write.old.source]
        if not isinstance(node.op, ops.Merge) and not write.old.is_own_point(node.domain):
            return []
    return writes
