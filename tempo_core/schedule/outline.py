"""A program's text, short: it reads like the algorithm.

    for i in 0:20:
      reset[i]                              @ agent.py:31
      policy, adam: update[i]
      for t in 0:200:
        hidden, action, log_prob[i, t]      @ agent.py:33-36

Neighbouring statements at one point share a line if they are branches of recurrences of one module or optimizer (`policy,
adam: start` for first values, `policy, adam: update` for later values), or values of one object. A statement without a name of the
user's shares the line of a neighbour at its point, which it leads to or follows from. Lines that differ in one number only (layers
that are written out) are one line: `hidden, after[t, 1..27]`. A condition around a single line stands in front of that line. Bounds
that a run chooses have their names: `for t in 0:T`. `schedule/tree.py` prints every statement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypeVar

from tempo_core.ir.graph import Graph, Node
from tempo_core.ir.names.naming import FIRST, NEXT, PART, Naming, Role, head, label
from tempo_core.ir.names.user_lines import Sources, span
from tempo_core.ir.ops import Output, Sink, Udf
from tempo_core.schedule.tree import Block, Execute, If, Item, Leaf, Loop, flat, lines, loop_label
from tempo_core.symbolic.condition import Bool
from tempo_core.symbolic.domain import Index
from tempo_core.symbolic.expr import Expr, Symbol

E = TypeVar("E", Expr, Bool)
COLUMN = 60  # the last column at which the user's lines may start


def outline(root: Block, graph: Graph, sources: Sources | None = None) -> str:
    """The short text of a program; with `sources`, the user's lines stand behind the statements."""
    return _Outline(graph, sources).text(root)


@dataclass(frozen=True)
class _Line:
    text: str
    where: tuple[str, ...] = ()  # the user's lines
    depth: int = 0
    parts: _Parts | None = None  # None for a line that no other statement shares


@dataclass(frozen=True)
class _Parts:
    """What the line of some statements is made of. `is_led`: no statement has a name of the user's, except for recurrences."""

    names: tuple[str, ...]
    point: tuple[str, ...]
    is_led: bool
    is_moved: bool = False  # whether the names are of recurrences only, which take over a value

    @property
    def text(self) -> str:
        return f"{label(self.names)}{_point(self.point)}"


def _bound_of(chosen: Symbol) -> Symbol:
    """The user's bound `T` of the step `T_last`, of which a run takes one point (see `passes/shapes/capacity.py`)."""
    return Symbol(chosen.name.rstrip("_").removesuffix("_last"))


def _point(entries: Sequence[str]) -> str:
    return f"[{', '.join(entries)}]" if entries else ""


class _Outline:
    def __init__(self, graph: Graph, sources: Sources | None):
        self.graph, self.sources, self.naming = graph, sources, Naming(graph)
        self.labels = self.naming.statements()
        self.chosen: dict[str, Expr] = {
            step.name: _bound_of(step).expr - 1 for step in graph.chosen
        }  # by the name of their loops' counters

    def text(self, root: Block) -> str:
        shown = [(f"{'  ' * line.depth}{line.text}", span(line.where)) for line in self._block(root, 0)]
        column = min(COLUMN, max((len(text) for text, where in shown if where), default=0))
        return "\n".join(f"{text:<{column}}  @ {where}" if where else text for text, where in shown)

    def _block(self, block: Block, depth: int) -> Iterator[_Line]:
        return iter(_folded(_joined(list(self._lines(block, depth)))))

    def _lines(self, block: Block, depth: int) -> Iterator[_Line]:
        for key, items in groupby(flat(block), key=self._line_key):
            neighbours = list(items)
            if key is None or len(neighbours) == 1:
                for item in neighbours:
                    yield from self._item(item, depth)
            else:
                yield from self._shared_line(neighbours, depth)

    def _item(self, item: Item, depth: int) -> Iterator[_Line]:
        if isinstance(item, If):
            condition = self._shown(item.condition)
            inside = list(self._block(item.then, depth + 1))
            if len(inside) == 1 and item.orelse is None:
                yield _Line(f"if {condition}: {inside[0].text}", inside[0].where, depth)
                return
            yield _Line(f"if {condition}:", depth=depth)
            yield from inside
            if item.orelse is not None:
                yield _Line("else:", depth=depth)
                yield from self._block(item.orelse, depth + 1)
        elif isinstance(item, Loop):
            shown = replace(item, start=self._shown(item.start), stop=self._shown(item.stop))
            yield _Line(f"{loop_label(shown)}:", depth=depth)
            yield from self._block(item.body, depth + 1)
        elif isinstance(item, Execute):
            yield self._statement(item, depth)
        else:
            assert not isinstance(item, Block)
            yield _Line(next(lines(replace(item, point=()), self.labels))[1] + _point(self._point_of(item)), depth=depth)

    def _bounds_in(self, expression: Expr | Index | Bool) -> dict[Symbol, Expr]:
        return {symbol: self.chosen[symbol.name] for symbol in expression.symbols if symbol.name in self.chosen}

    def _shown(self, expression: E) -> E:
        """An expression in terms of the user's bounds, where a run chooses them."""
        return expression.substitute(self._bounds_in(expression))

    def _entry(self, entry: Expr | Index) -> str:
        return str(entry.substitute(self._bounds_in(entry)))

    def _point_of(self, item: Leaf) -> tuple[str, ...]:
        """The point of a statement, without the steps of bounds that a run chooses."""
        steps = self.graph[item.node].domain.steps
        places = [k for k in range(len(item.point)) if k >= len(steps) or steps[k] not in self.graph.chosen]
        return tuple(self._entry(item.point[k]) for k in places)

    def _statement(self, item: Execute, depth: int) -> _Line:
        """The line of one statement."""
        node, point = self.graph[item.node], self._point_of(item)
        where = tuple(self._where(item))
        text = next(lines(replace(item, point=()), self.labels))[1] + _point(point)
        if self._is_alone(node):
            return _Line(text, where, depth)
        if item.branch is not None:
            return _Line(
                text, where, depth, _Parts((head(node.name),) if node.name else (), point, is_led=True, is_moved=bool(node.name))
            )
        purpose, name = self._purpose(node), self.labels[node.id]
        if purpose is not None or name.startswith((FIRST, NEXT)):
            recurrences = purpose.recurrence if purpose else head(name).removeprefix(FIRST).removeprefix(NEXT)
            return _Line(text, where, depth, _Parts(tuple(recurrences.split(", ")), point, is_led=True, is_moved=True))
        if node.id in self.naming.exact or not (PART in name or "%" in name):
            return _Line(text, where, depth, _Parts(tuple(name.split(", ")), point, is_led=False))
        return _Line(text, where, depth, _Parts((), point, is_led=True))

    def _is_alone(self, node: Node) -> bool:
        return isinstance(node.op, (Output, Sink)) or (isinstance(node.op, Udf) and node.op.kind == "host")

    # -- statements that share a line ---------------------------------------------------------------------------------

    def _line_key(self, item: Item) -> tuple[object, ...] | None:
        """The key of an item: neighbours with one key share a line. None for an item with its own line."""
        if isinstance(item, (Block, Loop, If)):
            return None
        if not isinstance(item, Execute):
            return (type(item),)
        node = self.graph[item.node]
        if item.branch is not None:
            return ("branch", self.naming.role_of(node, item.branch), *map(str, item.point))
        if isinstance(node.op, Output) or self.labels[node.id].startswith("result "):
            return ("output", *self._point_of(item))
        if self._is_alone(node):
            return None
        purpose = self._purpose(node)
        return ("value", purpose.kind if purpose else head(self.labels[node.id]), *map(str, item.point))

    def _purpose(self, node: Node) -> Role | None:
        """The role that a node serves, such as `first policy`; None for a named node, unless it serves first values."""
        purpose = self.naming.purpose(node)
        is_named = node.id in self.naming.exact and not (purpose and purpose.kind == FIRST)
        return None if is_named else purpose

    def _shared_line(self, items: list[Item], depth: int) -> Iterator[_Line]:
        executes = [item for item in items if isinstance(item, Execute)]
        if len(executes) < len(items):
            labels = [self.labels[item.node] for item in items if not isinstance(item, (Block, Loop, If))]
            yield _Line(f"{type(items[0]).__name__.lower()} {label(labels)}", depth=depth)
            return
        nodes, point = [self.graph[execute.node] for execute in executes], self._point_of(executes[0])
        if isinstance(nodes[0].op, Output) or self.labels[nodes[0].id].startswith("result "):
            results = [self.labels[node.id].removeprefix("output ").removeprefix("result ") for node in nodes]
            yield _Line(f"output {label(results)}{_point(point)}", depth=depth)
            return
        if executes[0].branch is not None:
            heads = Counter(head(node.name or self.labels[node.id]) for node in nodes)
            if max(heads.values()) == 1:  # unrelated recurrences
                for item in items:
                    yield from self._item(item, depth)
                return
            kind = "start" if self.naming.role_of(nodes[0], executes[0].branch) == FIRST else "update"
            groups = tuple(heads)
            yield _Line(
                f"{', '.join(groups)}: {kind}{_point(point)}", (), depth, _Parts(groups, point, is_led=True, is_moved=True)
            )
            return
        where = tuple(line for execute in executes for line in self._where(execute))
        purposes = [purpose for purpose in map(self._purpose, nodes) if purpose is not None]
        if purposes:
            groups = tuple(dict.fromkeys(group for purpose in purposes for group in purpose.recurrence.split(", ")))
            yield _Line(f"{', '.join(groups)}: {purposes[0].kind}values{_point(point)}", where, depth)
        else:
            name = _common([self.labels[node.id] for node in nodes])
            is_led = PART in name or "%" in name
            parts = _Parts(() if is_led else tuple(name.split(", ")), point, is_led)
            yield _Line(f"{name}{_point(point)}", where, depth, parts)

    def _where(self, execute: Execute) -> list[str]:
        node = self.graph[execute.node]
        return [] if self.sources is None or self.naming.result(node) else self.sources.of(node, execute.branch)


def _common(names: Sequence[str]) -> str:
    """One name for statements of one head: their common name without `#2`, `#3`, ..., or else the head."""
    plain_names = {name.split("#", 1)[0] for name in names}
    return plain_names.pop() if len(plain_names) == 1 else head(names[0])


def _joined(shown: list[_Line]) -> list[_Line]:
    """The lines, with statements that have no name of the user's in the line of a neighbour at the same point."""
    joined: list[_Line] = []
    for line in shown:
        last = joined[-1] if joined else None
        if (
            last is None
            or last.parts is None
            or line.parts is None
            or last.depth != line.depth
            or last.parts.point != line.parts.point
        ):
            joined.append(line)
            continue
        if last.parts.is_led or (line.parts.is_led and not (line.parts.is_moved and last.parts.is_moved)):
            names = tuple(dict.fromkeys((*last.parts.names, *line.parts.names)))
            parts = _Parts(
                names, line.parts.point, last.parts.is_led and line.parts.is_led, last.parts.is_moved and line.parts.is_moved
            )
            joined[-1] = _Line(parts.text if names else last.text, (*last.where, *line.where), line.depth, parts)
        else:
            joined.append(line)
    return joined


def _folded(shown: list[_Line]) -> list[_Line]:
    """The lines, with one for those that follow each other and differ in a number of the point only: `after[t, 1..27]`."""
    folded: list[_Line] = []
    ends: list[int] = []  # of each line: the greatest number that it stands for, or -1
    for line in shown:
        place = _rising(folded[-1], line, ends[-1]) if folded else None
        if place is None:
            folded.append(line)
            ends.append(-1)
            continue
        last, parts = folded[-1], folded[-1].parts
        assert parts is not None and line.parts is not None
        ends[-1] = int(line.parts.point[place])
        first = parts.point[place].split("..", 1)[0]
        entries = (*parts.point[:place], f"{first}..{ends[-1]}", *parts.point[place + 1 :])
        text = last.text.removesuffix(_point(parts.point)) + _point(entries)
        folded[-1] = _Line(text, tuple(dict.fromkeys((*last.where, *line.where))), line.depth, replace(parts, point=entries))
    return folded


def _rising(last: _Line, line: _Line, end: int) -> int | None:
    """The place of the number that is one greater in a line than in the last one, if nothing else differs."""
    if last.parts is None or line.parts is None or last.depth != line.depth:
        return None
    if last.text.removesuffix(_point(last.parts.point)) != line.text.removesuffix(_point(line.parts.point)):
        return None
    before, after = last.parts.point, line.parts.point
    places = [k for k in range(len(before)) if len(before) == len(after) and before[k] != after[k]]
    if len(places) != 1 or not after[places[0]].isdigit():
        return None
    greatest = end if end >= 0 else int(before[places[0]]) if before[places[0]].isdigit() else -2
    return places[0] if int(after[places[0]]) == greatest + 1 else None
