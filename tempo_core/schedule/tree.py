"""The scheduled program: a small tree of loops, conditions and statements, with affine expressions of loop counters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Union

from tempo_core.ir.graph import Graph
from tempo_core.ir.names.naming import names
from tempo_core.symbolic.condition import TRUE, Bool
from tempo_core.symbolic.domain import Range
from tempo_core.symbolic.expr import Expr, IntoExpr, Symbol


@dataclass(frozen=True)
class Block:
    """Items that run one after the other."""

    children: tuple[Item, ...] = ()


@dataclass(frozen=True)
class Loop:
    """`for counter in range(start, stop, step)`; `stop` is exclusive, `step` positive.

    The counter is a new symbol (its `bound` is ""). It has the name of the step that it counts, if there is one.
    """

    counter: Symbol
    start: Expr
    stop: Expr
    step: int
    body: Block


@dataclass(frozen=True)
class If:
    """`then` where `condition` (in loop counters) holds, else `orelse`."""

    condition: Bool
    then: Block
    orelse: Block | None = None


@dataclass(frozen=True)
class Execute:
    """Run node `node` (for a `Merge`: its branch `branch`) at `point`: one expression per step of the node's domain."""

    node: int
    branch: int | None
    point: tuple[Expr, ...]


@dataclass(frozen=True)
class Dealloc:
    """Free the value (or, along a `Range`, the values) of an output: nothing reads it any more."""

    node: int
    output: int
    point: tuple[Expr | Range, ...]


Leaf = Union[Execute, Dealloc]
Item = Union[Block, Loop, If, Leaf]


def counter(name: str) -> Symbol:
    """A loop counter: like a step, but equal to no step of the graph."""
    return Symbol(name, "")


def as_block(item: Item) -> Block:
    return item if isinstance(item, Block) else Block((item,))


def guarded(condition: Bool, item: Item) -> Item:
    """The item, where a condition holds."""
    return item if condition is TRUE else If(condition, as_block(item))


def outer_point(item: Item, graph: Graph, steps: Sequence[Symbol]) -> tuple[Expr, ...] | None:
    """The point of some outer steps at which an item runs, in terms of counters; None if it is not one for all statements with these steps."""
    executes = [(leaf, graph[leaf.node].domain.steps) for leaf in leaves(item) if isinstance(leaf, Execute)]
    points = {
        tuple(at for step, at in zip(over, leaf.point, strict=True) if step in steps)
        for leaf, over in executes
        if set(steps) <= set(over)
    }
    return points.pop() if len(points) == 1 else None


# -- walks ------------------------------------------------------------------------------------------------------------


def parts(item: Item) -> tuple[Item, ...]:
    """The items directly inside of an item, in program order."""
    if isinstance(item, Block):
        return item.children
    if isinstance(item, If):
        return (item.then,) if item.orelse is None else (item.then, item.orelse)
    return (item.body,) if isinstance(item, Loop) else ()


def changed(item: Item, change: Callable[[Item], Item]) -> Item:
    """The item with a change to each of the items directly inside of it."""
    if isinstance(item, Block):
        return Block(tuple(map(change, item.children)))
    if isinstance(item, If):
        orelse = None if item.orelse is None else as_block(change(item.orelse))
        return If(item.condition, as_block(change(item.then)), orelse)
    return replace(item, body=as_block(change(item.body))) if isinstance(item, Loop) else item


def walk(item: Item) -> Iterator[Item]:
    """An item and everything in it, in program order."""
    yield item
    for part in parts(item):
        yield from walk(part)


def with_conditions(
    item: Item, loops: tuple[Loop, ...] = (), conditions: tuple[Bool, ...] = ()
) -> Iterator[tuple[Execute, tuple[Loop, ...], tuple[Bool, ...]]]:
    """The statements of an item, in program order, with the loops around each from the outside in, and the conditions under which it runs."""
    if isinstance(item, Execute):
        yield item, loops, conditions
    inner = (*loops, item) if isinstance(item, Loop) else loops
    for part in parts(item):
        under = () if not isinstance(item, If) else (item.condition if part is item.then else ~item.condition,)
        yield from with_conditions(part, inner, (*conditions, *under))


def with_loops(item: Item) -> Iterator[tuple[Execute, tuple[Loop, ...]]]:
    """The statements of an item, in program order, with the loops around each from the outside in."""
    return ((execute, loops) for execute, loops, _ in with_conditions(item))


def flat(block: Block) -> Iterator[Item]:
    """The items of a block and of the blocks directly inside of it, in order."""
    for child in block.children:
        if isinstance(child, Block):
            yield from flat(child)
        else:
            yield child


def leaves(item: Item) -> Iterator[Leaf]:
    for inner in walk(item):
        if not isinstance(inner, (Block, Loop, If)):
            yield inner


def substitute(item: Item, values: Mapping[Symbol, IntoExpr]) -> Item:
    """The item with counters replaced; conditions that become constant stay (`tidy.simplified` removes them)."""
    item = changed(item, lambda part: substitute(part, values))
    if isinstance(item, Loop):
        return replace(item, start=item.start.substitute(values), stop=item.stop.substitute(values))
    if isinstance(item, If):
        return replace(item, condition=item.condition.substitute(values))
    if isinstance(item, Block):
        return item
    point: tuple[Any, ...] = tuple(part.substitute(values) for part in item.point)
    return replace(item, point=point)


def instances(item: Item, values: Mapping[Symbol, int] | None = None) -> Iterator[tuple[Leaf, tuple[int | range, ...]]]:
    """All leaves with their points, in the order in which they run; ranges of a point are Python ranges."""
    env = dict(values or {})
    if isinstance(item, Loop):
        for value in range(item.start.evaluate(env), item.stop.evaluate(env), item.step):
            yield from instances(item.body, {**env, item.counter: value})
    elif isinstance(item, If):
        chosen = item.then if item.condition.evaluate(env) else item.orelse
        yield from () if chosen is None else instances(chosen, env)
    elif isinstance(item, Block):
        for child in item.children:
            yield from instances(child, env)
    else:
        yield item, tuple(_evaluated(part, env) for part in item.point)


def _evaluated(part: Expr | Range, env: Mapping[Symbol, int]) -> int | range:
    if isinstance(part, Expr):
        return part.evaluate(env)
    return range(part.start.evaluate(env), part.stop.evaluate(env), part.stride)


# -- text -------------------------------------------------------------------------------------------------------------


def text(item: Item, graph: Graph) -> str:
    """The program, readable: nodes have their names from `ir/names/naming.py`, and branches of a `Merge` are `name|branch`.

    for i in 0:20:
      for t in 0:200:
        act[i, t]
    """
    return "\n".join(line for _, line in lines(item, names(graph)))


def loop_label(loop: Loop) -> str:
    """`for t in 0:200`, or `for t in 0:200:2` for every second iteration."""
    return f"for {loop.counter} in {loop.start}:{loop.stop}" + ("" if loop.step == 1 else f":{loop.step}")


def lines(item: Item, labels: Mapping[int, str], depth: int = 0) -> Iterator[tuple[Item, str]]:
    """The lines of the program's text, each with the item that it begins (an `If` begins its `else` too)."""
    pad = "  " * depth
    if isinstance(item, Block):
        for child in item.children:
            yield from lines(child, labels, depth)
    elif isinstance(item, Loop):
        yield item, f"{pad}{loop_label(item)}:"
        yield from lines(item.body, labels, depth + 1)
    elif isinstance(item, If):
        yield item, f"{pad}if {item.condition}:"
        yield from lines(item.then, labels, depth + 1)
        if item.orelse is not None:
            yield item, f"{pad}else:"
            yield from lines(item.orelse, labels, depth + 1)
    else:
        name = labels[item.node]
        if isinstance(item, Execute):
            name += "" if item.branch is None else f"|{item.branch}"
        else:
            name = f"{type(item).__name__.lower()} {name}" + (f".{item.output}" if item.output else "")
        point = ", ".join(map(str, item.point))
        yield item, f"{pad}{name}[{point}]" if item.point else f"{pad}{name}"
