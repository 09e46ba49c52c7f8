"""The scheduled program: a small tree of loops, conditions and statements, with affine expressions of loop counters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Union

from tempo_core.ir.graph import Graph
from tempo_core.ir.names.naming import names
from tempo_core.symbolic.condition import Bool
from tempo_core.symbolic.domain import Index
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
    point: tuple[Expr | Index, ...]


Leaf = Union[Execute, Dealloc]
Item = Union[Block, Loop, If, Leaf]


def counter(name: str) -> Symbol:
    """A loop counter: like a step, but equal to no step of the graph."""
    return Symbol(name, "")


def walk(item: Item) -> Iterator[Item]:
    """An item and everything in it, in program order."""
    yield item
    if isinstance(item, Block):
        for child in item.children:
            yield from walk(child)
    elif isinstance(item, Loop):
        yield from walk(item.body)
    elif isinstance(item, If):
        yield from walk(item.then)
        if item.orelse is not None:
            yield from walk(item.orelse)


def with_loops(item: Item, loops: tuple[Loop, ...] = ()) -> Iterator[tuple[Execute, tuple[Loop, ...]]]:
    """The statements of an item, in program order, with the loops around each from the outside in."""
    if isinstance(item, Execute):
        yield item, loops
    elif isinstance(item, Block):
        for child in item.children:
            yield from with_loops(child, loops)
    elif isinstance(item, Loop):
        yield from with_loops(item.body, (*loops, item))
    elif isinstance(item, If):
        yield from with_loops(item.then, loops)
        if item.orelse is not None:
            yield from with_loops(item.orelse, loops)


def flat(block: Block) -> Iterator[Item]:
    """The items of a block and of the blocks directly inside of it, in order."""
    for child in block.children:
        if isinstance(child, Block):
            yield from flat(child)
        else:
            yield child


def leaves(item: Item) -> Iterator[Leaf]:
    for inner in walk(item):
        if isinstance(inner, (Execute, Dealloc)):
            yield inner


def substitute(item: Item, values: Mapping[Symbol, IntoExpr]) -> Item:
    """The item with counters replaced; conditions that become constant stay (`simplify.simplified` removes them)."""
    if isinstance(item, Block):
        return Block(tuple(substitute(c, values) for c in item.children))
    if isinstance(item, Loop):
        start, stop = item.start.substitute(values), item.stop.substitute(values)
        return Loop(item.counter, start, stop, item.step, _block(substitute(item.body, values)))
    if isinstance(item, If):
        orelse = None if item.orelse is None else _block(substitute(item.orelse, values))
        return If(item.condition.substitute(values), _block(substitute(item.then, values)), orelse)
    point = tuple(p.substitute(values) for p in item.point)
    if isinstance(item, Execute):
        return Execute(item.node, item.branch, point)  # type: ignore[arg-type]
    return type(item)(item.node, item.output, point)


def _block(item: Item) -> Block:
    return item if isinstance(item, Block) else Block((item,))


def instances(
    item: Item, visit: Callable[[Leaf, tuple[int | range, ...]], None], values: Mapping[Symbol, int] | None = None
) -> None:
    """Call `visit(leaf, point)` for all leaves in the order in which they run; ranges of a point are Python ranges."""
    env = dict(values or {})
    if isinstance(item, Block):
        for child in item.children:
            instances(child, visit, env)
    elif isinstance(item, Loop):
        for value in range(item.start.evaluate(env), item.stop.evaluate(env), item.step):
            instances(item.body, visit, {**env, item.counter: value})
    elif isinstance(item, If):
        if item.condition.evaluate(env):
            instances(item.then, visit, env)
        elif item.orelse is not None:
            instances(item.orelse, visit, env)
    else:
        visit(item, tuple(_evaluated(p, env) for p in item.point))


def _evaluated(part: Expr | Index, env: Mapping[Symbol, int]) -> int | range:
    if isinstance(part, Expr):
        return part.evaluate(env)
    start, stop = getattr(part, "start", None), getattr(part, "stop", None)
    assert start is not None and stop is not None, f"the point of a statement holds expressions and ranges, not {part}"
    return range(start.evaluate(env), stop.evaluate(env), part.stride)  # type: ignore[union-attr]


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
