"""Effects of a part of a program on stores: which it needs from before, and which it surely defines. From them follows what a loop carries.

If each iteration defines a value before it reads it, the value is a local of the loop's body. Other values are carried. A write
into a store of several slots defines only a part of it, so such a store is always carried.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tempo_core.ir.graph import Graph, Key
from tempo_core.schedule import Block, Execute, If, Loop, Storage
from tempo_core.schedule.tree import Item


@dataclass(frozen=True)
class Effects:
    """`needs`: stores that are read, or partly written, before they are defined. `defines`: surely written. `writes`: perhaps written."""

    needs: frozenset[Key] = frozenset()
    defines: frozenset[Key] = frozenset()
    writes: frozenset[Key] = frozenset()

    @property
    def touches(self) -> frozenset[Key]:
        return self.needs | self.writes

    def then(self, later: Effects) -> Effects:
        return Effects(self.needs | (later.needs - self.defines), self.defines | later.defines, self.writes | later.writes)


class Liveness:
    """Effects of program items, by identity of the item."""

    def __init__(self, graph: Graph, storage: Mapping[Key, Storage]):
        self.graph, self.storage = graph, storage
        self._cache: dict[int, tuple[Item, Effects]] = {}

    def is_store(self, key: Key) -> bool:
        """Whether a value lives in several slots."""
        return self.storage[key].size > 1

    def reads(self, execute: Execute) -> frozenset[Key]:
        """The stores that a statement reads. Constants and inputs are not stores."""
        edges = self.graph[execute.node].operands(execute.branch)
        return frozenset((e.source, e.output) for e in edges if (e.source, e.output) in self.storage)

    def of(self, item: Item) -> Effects:
        entry = self._cache.get(id(item))
        if entry is None or entry[0] is not item:
            entry = self._cache[id(item)] = (item, self._effects(item))
        return entry[1]

    def _effects(self, item: Item) -> Effects:
        if isinstance(item, Block):
            total = Effects()
            for child in item.children:
                total = total.then(self.of(child))
            return total
        if isinstance(item, Loop):
            body = self.of(item.body)
            runs = item.start.is_constant and item.stop.is_constant and item.stop.constant > item.start.constant
            return body if runs else Effects(body.needs | body.writes, frozenset(), body.writes)
        if isinstance(item, If):
            then, other = self.of(item.then), self.of(item.orelse or Block())
            both = then.defines & other.defines
            writes = then.writes | other.writes
            return Effects(then.needs | other.needs | (writes - both), both, writes)
        if isinstance(item, Execute):
            node = self.graph[item.node]
            written = frozenset(node.written)
            partial = frozenset(k for k in written if self.is_store(k))
            return Effects(self.reads(item) | partial, written - partial, written)
        return Effects()
