"""A program's text, short: it reads like the algorithm.

    for i in 0:20:
      reset[i]                              @ agent.py:31
      policy, adam: update[i]
      for t in 0:200:
        hidden, action, log_prob[i, t]      @ agent.py:33-36

Neighbouring statements at one point share a line if they are branches of recurrences of one module or optimizer (`policy,
adam: start` for first values, `policy, adam: update` for later values), or values of one object. A condition around a single
line stands in front of that line. `schedule/program.py` prints every statement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from tempo_core.ir.graph import Graph, Node
from tempo_core.ir.naming import FIRST, Naming, Role, head, label
from tempo_core.ir.ops import Output, Sink, Udf
from tempo_core.ir.sources import Sources, span
from tempo_core.schedule.program import Block, Execute, If, Item, Loop, flat, lines

COLUMN = 60  # the last column at which the user's lines may start


def outline(root: Block, graph: Graph, sources: Sources | None = None) -> str:
    """The short text of a program; with `sources`, the user's lines stand behind the statements."""
    return _Outline(graph, sources).text(root)


@dataclass(frozen=True)
class _Line:
    text: str
    where: str = ""
    depth: int = 0


class _Outline:
    def __init__(self, graph: Graph, sources: Sources | None):
        self.graph, self.sources, self.naming = graph, sources, Naming(graph)
        self.labels = self.naming.statements()

    def text(self, root: Block) -> str:
        shown = [(f"{'  ' * line.depth}{line.text}", line.where) for line in self._block(root, 0)]
        column = min(COLUMN, max((len(text) for text, where in shown if where), default=0))
        return "\n".join(f"{text:<{column}}  @ {where}" if where else text for text, where in shown)

    def _block(self, block: Block, depth: int) -> Iterator[_Line]:
        for key, items in groupby(flat(block), key=self._line_key):
            neighbours = list(items)
            if key is None or len(neighbours) == 1:
                for item in neighbours:
                    yield from self._item(item, depth)
            else:
                yield from self._shared_line(neighbours, depth)

    def _item(self, item: Item, depth: int) -> Iterator[_Line]:
        if isinstance(item, If) and item.orelse is None:
            inside = list(self._block(item.then, depth + 1))
            if len(inside) == 1:
                yield _Line(f"if {item.condition}: {inside[0].text}", inside[0].where, depth)
            else:
                yield _Line(f"if {item.condition}:", depth=depth)
                yield from inside
        elif isinstance(item, If):
            yield _Line(f"if {item.condition}:", depth=depth)
            yield from self._block(item.then, depth + 1)
            yield _Line("else:", depth=depth)
            yield from self._block(item.orelse or Block(), depth + 1)
        elif isinstance(item, Loop):
            yield _Line(next(lines(item, self.labels))[1], depth=depth)
            yield from self._block(item.body, depth + 1)
        else:
            assert not isinstance(item, Block)
            where = self._where(item) if isinstance(item, Execute) else []
            yield _Line(next(lines(item, self.labels))[1], span(where), depth)

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
        if isinstance(node.op, (Output, Sink)) or (isinstance(node.op, Udf) and node.op.kind == "host"):
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
        nodes = [self.graph[execute.node] for execute in executes]
        point = f"[{', '.join(map(str, executes[0].point))}]" if executes[0].point else ""
        if executes[0].branch is not None:
            heads = Counter(head(node.name) for node in nodes)
            if max(heads.values()) == 1:  # unrelated recurrences
                for item in items:
                    yield from self._item(item, depth)
                return
            kind = "start" if self.naming.role_of(nodes[0], executes[0].branch) == FIRST else "update"
            groups = dict.fromkeys(head(node.name) for node in nodes)
            yield _Line(f"{', '.join(groups)}: {kind}{point}", depth=depth)
            return
        where = span([line for execute in executes for line in self._where(execute)])
        purposes = [purpose for purpose in map(self._purpose, nodes) if purpose is not None]
        if purposes:
            groups = dict.fromkeys(group for purpose in purposes for group in purpose.recurrence.split(", "))
            yield _Line(f"{', '.join(groups)}: {purposes[0].kind}values{point}", where, depth)
        else:
            yield _Line(f"{_common([self.labels[node.id] for node in nodes])}{point}", where, depth)

    def _where(self, execute: Execute) -> list[str]:
        node = self.graph[execute.node]
        return [] if self.sources is None or self.naming.result(node) else self.sources.of(node, execute.branch)


def _common(names: Sequence[str]) -> str:
    """One name for statements of one head: their common name without `#2`, `#3`, ..., or else the head."""
    plain_names = {name.split("#", 1)[0] for name in names}
    return plain_names.pop() if len(plain_names) == 1 else head(names[0])
