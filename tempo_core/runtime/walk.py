"""A program as a tree that can be left at the border of a loop, and entered again at the same place, in this process or in another.

Both executors make such a tree of their items. A place is the path to it: the number of an item among its neighbours, with the loop's
value (or the branch, 0 or 1), then the same inside that item. The last entry of a path is an iteration that has not begun.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, Union

S = TypeVar("S")
Path = tuple[tuple[int, int], ...]


@dataclass(eq=False)
class Leaf(Generic[S]):
    """What runs as a whole."""

    run: Callable[[S], None]


@dataclass(eq=False)
class Branch(Generic[S]):
    """One of two lists of nodes."""

    holds: Callable[[S], bool]
    then: list[Node[S]]
    orelse: list[Node[S]]


@dataclass(eq=False)
class Loop(Generic[S]):
    """A loop. `steps` are the names of the program's steps that it counts; `first` is its first iteration, `later` each other one."""

    steps: frozenset[str]
    values: Callable[[S], range]
    enter: Callable[[S, int], None]
    first: list[Node[S]]
    later: list[Node[S]]
    item: Any = None  # what it was made of


@dataclass(eq=False)
class Pieces(Generic[S]):
    """A loop of which `run(state, first, last)` runs some iterations at once. `count` is the number that takes about `wanted` seconds."""

    steps: frozenset[str]
    values: Callable[[S], range]
    run: Callable[[S, int, int], None]
    adapted: Callable[[int, float], int]  # the next count, from the last one and its seconds
    count: int = 1
    item: Any = None


Node = Union[Leaf[S], Branch[S], Loop[S], Pieces[S]]


class Walk(Generic[S]):
    """A run through a tree, from `path` on."""

    def __init__(self, nodes: Sequence[Node[S]], state: S, path: Path = ()):
        self.nodes, self.state, self.path, self.done = nodes, state, path, False
        self._step: str | None = None
        self._left: int | None = 0
        self._places = self._through(nodes, path, (), 0)

    def go_on(self, step: str | None = None, count: int | None = None) -> None:
        """Run `count` iterations of the loops over `step` (of the outermost loops, for None), or to the end.

        What follows the last iteration runs with it, up to the next such loop.
        """
        if self.done:
            return
        self._step, self._left = step, count
        for path in self._places:
            self.path = path
            return
        self.path, self.done = (), True

    def around(self) -> Iterator[tuple[Loop[S] | Pieces[S], range]]:
        """The loops around the place, from the outside in, each from its iteration on; that of the last of them has not begun."""
        nodes = self.nodes
        for number, value in self.path:
            node = nodes[number]
            if isinstance(node, Branch):
                nodes = node.then if value else node.orelse
            elif isinstance(node, (Loop, Pieces)):
                values = node.values(self.state)
                yield node, range(value, values.stop, values.step)
                if isinstance(node, Loop):
                    nodes = node.first if value == values.start else node.later

    def _counts(self, node: Loop[S] | Pieces[S], depth: int) -> bool:
        return depth == 0 if self._step is None else self._step in node.steps

    def _through(self, nodes: Sequence[Node[S]], path: Path, before: Path, depth: int) -> Iterator[Path]:
        """Run nodes, and stop before each iteration that is one too many."""
        (start, value), inner = (path[0], path[1:]) if path else ((0, None), ())
        for k in range(start, len(nodes)):
            node = nodes[k]
            if isinstance(node, Leaf):
                node.run(self.state)
            elif isinstance(node, Branch):
                holds = node.holds(self.state) if value is None else bool(value)
                yield from self._through(node.then if holds else node.orelse, inner, (*before, (k, int(holds))), depth)
            elif isinstance(node, Loop):
                yield from self._loop(node, value, inner, (*before, (k, 0)), depth)
            else:
                yield from self._pieces(node, value, (*before, (k, 0)), depth)
            value, inner = None, ()

    def _waited(self, node: Loop[S] | Pieces[S], depth: int, path: Path) -> Iterator[Path]:
        """Stop before an iteration while it is one too many. Whoever goes on may count other iterations."""
        while self._left == 0 and self._counts(node, depth):
            yield path

    def _loop(self, node: Loop[S], value: int | None, inner: Path, path: Path, depth: int) -> Iterator[Path]:
        values = node.values(self.state)
        at = values.start if value is None else value
        while at < node.values(self.state).stop:  # an iteration may find out that it is the last
            here = (*path[:-1], (path[-1][0], at))
            if not inner:
                yield from self._waited(node, depth, here)
                if self._counts(node, depth) and self._left is not None:
                    self._left -= 1
            node.enter(self.state, at)
            yield from self._through(node.first if at == values.start else node.later, inner, here, depth + 1)
            inner = ()
            at += values.step

    def _pieces(self, node: Pieces[S], value: int | None, path: Path, depth: int) -> Iterator[Path]:
        values = node.values(self.state)
        at = values.start if value is None else value
        while at < values.stop:
            yield from self._waited(node, depth, (*path[:-1], (path[-1][0], at)))
            values = node.values(self.state)  # an iteration may find out that it is the last
            if at >= values.stop:
                return
            count = min(node.count, len(range(at, values.stop, values.step)))
            if self._counts(node, depth) and self._left is not None:
                count = min(count, self._left)
                self._left -= count
            began = time.perf_counter()
            node.run(self.state, at, min(at + count * values.step, values.stop))
            if count == node.count:
                node.count = node.adapted(count, time.perf_counter() - began)
            at += count * values.step
