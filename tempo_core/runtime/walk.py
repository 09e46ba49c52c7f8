"""A program as a tree that runs from end to end, or is left at the border of a loop and entered again, in this process or in another.

Both executors make such a tree of their items. A place is the path to it: the number of an item among its neighbours, with the loop's
value (or the branch, 0 or 1), then the same inside that item. The last entry of a path is an iteration that has not begun.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, Union

from tempo_core.symbolic.condition import Bool
from tempo_core.symbolic.domain import Index, Point, Range
from tempo_core.symbolic.expr import Expr, Symbol

Evaluator = Callable[[Mapping[Symbol, int]], int]


def evaluator(expression: Expr | Bool, bounds: Mapping[Symbol, int]) -> Evaluator:
    """A function from the values of steps (or counters) to that of the expression. Common indices are computed without a tree walk."""
    fixed = expression.substitute(bounds)
    if isinstance(fixed, Expr):
        constant = fixed.constant
        if fixed.is_constant:
            return lambda env: constant
        atom = (fixed - constant).single_atom
        if isinstance(atom, Symbol):
            return lambda env: env[atom] + constant
    return fixed.evaluate


def span(index: Expr | Index, bounds: Mapping[Symbol, int]) -> Callable[[Mapping[Symbol, int]], range]:
    """A function from the values of steps (or counters) to the points of an index; a single one without a range."""
    if isinstance(index, Range):
        start, stop, stride = evaluator(index.start, bounds), evaluator(index.stop, bounds), index.stride
        return lambda env: range(start(env), stop(env), stride)
    point = evaluator(index.expr if isinstance(index, Point) else index, bounds)
    return lambda env: range(at := point(env), at + 1)


class Running(Protocol):
    """The state of a run. `counters` has the counters of the loops around the place where it is."""

    counters: dict[Symbol, int]


S = TypeVar("S", bound=Running)
Path = tuple[tuple[int, int], ...]


@dataclass(eq=False)
class Leaf(Generic[S]):
    """What runs as a whole. `run` gives what a session shows, or None."""

    run: Callable[[S], Any]


@dataclass(eq=False)
class Branch(Generic[S]):
    """One of two lists of nodes."""

    condition: Evaluator
    then: list[Node[S]]
    orelse: list[Node[S]]


class Loop(Generic[S]):
    """A loop of the program, `item`, with a `counter`, `start`, `stop` and `step`. `steps` are the program's steps that it counts, by name.

    `first` is its first iteration, `later` each other one.
    """

    def __init__(
        self,
        item: Any,
        steps: frozenset[str],
        bounds: Mapping[Symbol, int],
        first: Sequence[Node[S]] = (),
        later: Sequence[Node[S]] = (),
    ):
        self.item, self.steps, self.first, self.later = item, steps, first, later
        self.start, self.stop = evaluator(item.start, bounds), evaluator(item.stop, bounds)

    def values(self, state: S) -> range:
        return range(self.start(state.counters), self.stop(state.counters), self.item.step)


class Pieces(Loop[S]):
    """A loop of which `run(state, first, last)` runs some iterations at once, `item.count` of them.

    `run` returns its seconds, or None if they tell nothing; `next_count(count, seconds)` is the number of iterations for the next time.
    """

    def __init__(
        self,
        item: Any,
        steps: frozenset[str],
        bounds: Mapping[Symbol, int],
        run: Callable[[S, int, int], float | None],
        next_count: Callable[[int, float], int],
    ):
        super().__init__(item, steps, bounds)
        self.run, self.next_count = run, next_count


Node = Union[Leaf[S], Branch[S], Loop[S]]


class Walk(Generic[S]):
    """A run through a tree, from `path` on."""

    def __init__(self, nodes: Sequence[Node[S]], state: S, path: Path = ()):
        self.nodes, self.state, self.path, self.done = nodes, state, path, False
        self._step: str | None = None
        self._left: int | None = None
        self.events = self._through(nodes, path, (), 0)  # what leaves give; None where the run stops

    def go_on(self, step: str | None = None, count: int | None = None) -> None:
        """Run `count` iterations of the loops over `step` (of the outermost loops, for None), or to the end.

        What follows the last iteration runs with it, up to the next such loop.
        """
        if self.done:
            return
        self._step, self._left = step, count
        for event in self.events:
            if event is None:
                return
        self.path, self.done = (), True

    def around(self) -> Iterator[tuple[Loop[S], range]]:
        """The loops around the place, from the outside in, each from its iteration on; that of the last of them has not begun."""
        nodes = self.nodes
        for number, value in self.path:
            node = nodes[number]
            if isinstance(node, Branch):
                nodes = node.then if value else node.orelse
            elif isinstance(node, Loop):
                values = node.values(self.state)
                yield node, range(value, values.stop, values.step)
                nodes = node.first if value == values.start else node.later

    def _through(self, nodes: Sequence[Node[S]], path: Path, before: Path, depth: int) -> Iterator[Any]:
        """Run nodes, and stop before each iteration that is one too many."""
        (start, value), inner = (path[0], path[1:]) if path else ((0, None), ())
        for k, node in enumerate(nodes[start:] if start else nodes, start):
            if isinstance(node, Leaf):
                event = node.run(self.state)
                if event is not None:
                    yield event
            elif isinstance(node, Branch):
                holds = bool(node.condition(self.state.counters) if value is None else value)
                yield from self._through(node.then if holds else node.orelse, inner, (*before, (k, int(holds))), depth)
            else:
                yield from self._loop(node, value, inner, (before, k), depth)
            value, inner = None, ()

    def _counts(self, node: Loop[S], depth: int) -> bool:
        return depth == 0 if self._step is None else self._step in node.steps

    def _loop(self, node: Loop[S], value: int | None, inner: Path, place: tuple[Path, int], depth: int) -> Iterator[Any]:
        (before, number), counters, step = place, self.state.counters, node.item.step
        start = node.start(counters)
        at, is_whole = start if value is None else value, not isinstance(node, Pieces)
        while at < (stop := node.stop(counters)):  # an iteration may find out that it is the last
            here = (*before, (number, at))
            count = 1 if is_whole else min(node.item.count, len(range(at, stop, step)))
            if self._left is not None and not inner:  # whoever goes on after a stop may count other iterations
                while self._left == 0 and self._counts(node, depth):
                    self.path = here
                    yield None
                if self._left is not None and self._counts(node, depth):
                    count = min(count, self._left)
                    self._left -= count
            if isinstance(node, Pieces):
                self._piece(node, at, count, stop)
            else:
                counters[node.item.counter] = at
                yield from self._through(node.first if at == start else node.later, inner, here, depth + 1)
            inner = ()
            at += count * step

    def _piece(self, node: Pieces[S], at: int, count: int, stop: int) -> None:
        """Run some iterations at once. How long they take decides about later ones."""
        after = at + count * node.item.step
        seconds = node.run(self.state, at, min(after, stop))
        if seconds is not None and count == node.item.count and after < stop:
            node.item.count = node.next_count(count, seconds)
