"""What the host does in a run, as a small tree: launches of device programs (segments), calls of functions, loops and conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Union

from tempo_core.ir.graph import Key
from tempo_core.schedule import Execute, leaves
from tempo_core.schedule.tidy import Limits, simplified
from tempo_core.schedule.tree import Item, as_block, substitute
from tempo_core.symbolic.condition import Bool
from tempo_core.symbolic.expr import Expr, Symbol


@dataclass(frozen=True, eq=False)
class Fetch:
    """An item of a segment: fetch the operands of a host call or an output, with their values at that place of the program.

    The run keeps them at `slot` until they are used.
    """

    execute: Execute
    slot: int


@dataclass(frozen=True, eq=False)
class Put:
    """Results of the host call at `slot` on their way to the device: its `outputs` are stored at the point of `execute`."""

    execute: Execute
    slot: int
    outputs: tuple[int, ...]

    @property
    def keys(self) -> list[Key]:
        return [(self.execute.node, output) for output in self.outputs]


@dataclass(eq=False)
class Segment:
    """Items that run as one XLA program: first `puts` (results of host calls), then `items`."""

    number: int
    counters: tuple[Symbol, ...]
    puts: list[Put] = field(default_factory=list)
    items: list[Item | Fetch] = field(default_factory=list)
    compiled: Callable[..., Any] | None = None
    reads: tuple[Key, ...] = ()  # stores that it only reads
    writes: tuple[Key, ...] = ()  # stores that it changes, passed by donation
    creates: frozenset[Key] = frozenset()  # those of both kinds that begin here as zeros, and are not passed
    inputs: tuple[str, ...] = ()  # fed arrays that it reads
    donated: tuple[str, ...] = ()  # fed arrays whose memory it may use: no other launch reads them
    is_chunk: bool = False  # its one item is a loop, of which a launch runs some iterations
    lowered: Any = None  # its XLA program before compilation, if `lower_all` has traced it

    @property
    def stores_passed(self) -> tuple[list[Key], list[Key]]:
        """The stores that are arguments: those that it changes, and those that it only reads."""
        return [k for k in self.writes if k not in self.creates], [k for k in self.reads if k not in self.creates]

    @property
    def executes(self) -> list[Execute]:
        """Its statements, and those whose operands it fetches."""
        inside = [execute for item in self.items for execute in statements(item)]
        return [*inside, *(fetch.execute for fetch in self.fetches)]

    @property
    def returned(self) -> list[Key]:
        """The results of host calls that it puts into stores."""
        return [key for put in self.puts for key in put.keys]

    @property
    def fetches(self) -> list[Fetch]:
        return [item for item in self.items if isinstance(item, Fetch)]


@dataclass(eq=False)
class HostCall:
    """A call of a function on the host. Its operands, and then its results, are at `slot`.

    The results in `kept` stay in the memory of the host: device programs read them when the innermost loop around the call is over.
    """

    execute: Execute
    slot: int
    is_sink: bool
    kept: tuple[int, ...] = ()


@dataclass(eq=False)
class HostLoop:
    """A loop. `edge` runs between two iterations, with the later one's counter: the end of the one and the start of the other."""

    counter: Symbol
    start: Expr
    stop: Expr
    step: int
    body: list[HostItem]
    edge: list[HostItem] = field(default_factory=list)


@dataclass(eq=False)
class HostIf:
    condition: Bool
    then: list[HostItem]
    orelse: list[HostItem]


@dataclass(eq=False)
class Chunks:
    """A long loop of the device. Each launch of `segment` runs the iterations `first, first + step, ...` before `last`."""

    counter: Symbol
    segment: Segment
    first: Symbol
    last: Symbol
    start: Expr
    stop: Expr
    step: int
    count: int  # iterations of the next launch
    most: int | None = None  # iterations of a launch, if it has only a part of a store on the device


HostItem = Union[Segment, HostCall, HostLoop, HostIf, Chunks]
Loops = tuple[Union[HostLoop, Chunks], ...]


def placed(items: Sequence[HostItem], loops: Loops = ()) -> Iterator[tuple[Segment | HostCall, Loops]]:
    """All launches and calls in program order, each with the loops around it, the outermost first."""
    for item in items:
        if isinstance(item, HostLoop):
            yield from placed([*item.edge, *item.body], (*loops, item))
        elif isinstance(item, HostIf):
            yield from placed([*item.then, *item.orelse], loops)
        else:
            yield (item.segment, (*loops, item)) if isinstance(item, Chunks) else (item, loops)


def loop_names(loops: Loops) -> str:
    """`i, t`; with `some t` for a loop of which a launch runs some iterations."""
    return ", ".join(f"some {loop.counter.name}" if isinstance(loop, Chunks) else loop.counter.name for loop in loops)


def segments(items: Sequence[HostItem]) -> Iterator[Segment]:
    """All segments, in program order."""
    return (item for item, _ in placed(items) if isinstance(item, Segment))


def calls(items: Sequence[HostItem]) -> Iterator[HostCall]:
    """All calls of functions, in program order."""
    return (item for item, _ in placed(items) if isinstance(item, HostCall))


def inside(item: HostItem, change: Callable[[list[HostItem]], list[HostItem]]) -> HostItem:
    """An item whose inner items are changed: those of a loop or a condition. Others stay as they are."""
    if isinstance(item, HostLoop):
        return replace(item, body=change(item.body), edge=change(item.edge))
    return replace(item, then=change(item.then), orelse=change(item.orelse)) if isinstance(item, HostIf) else item


def add(items: list[HostItem], segment: Segment) -> None:
    """Append a segment to the host's items. Where the last of them is a segment too, they become one.

    Sinks may run after it, as they return nothing.
    """
    for item in reversed(items if not segment.puts else ()):
        if isinstance(item, Segment):
            item.items.extend(segment.items)
            return
        if not (isinstance(item, HostCall) and item.is_sink):
            break
    items.append(segment)


# -- other points -----------------------------------------------------------------------------------------------------


def at(segment: Segment, values: Mapping[Symbol, Expr], counters: tuple[Symbol, ...], limits: Limits) -> Segment:
    """A segment with other counters: the same items, at the points where its counters have these values.

    `limits` of the counters decide conditions.
    """
    puts = [replace(put, execute=execute_at(put.execute, values)) for put in segment.puts]
    items: list[Item | Fetch] = []
    for item in segment.items:
        if isinstance(item, Fetch):
            items.append(replace(item, execute=execute_at(item.execute, values)))
        else:
            items.extend(as_block(simplified(substitute(item, values), limits)).children)
    return Segment(segment.number, counters, puts, items)


def execute_at(execute: Execute, values: Mapping[Symbol, Expr]) -> Execute:
    """A statement at the point where the counters have these values."""
    return Execute(execute.node, execute.branch, tuple(e.substitute(values) for e in execute.point))


def statements(item: Item | Fetch) -> list[Execute]:
    """The statements of an item of a segment."""
    return [] if isinstance(item, Fetch) else [leaf for leaf in leaves(item) if isinstance(leaf, Execute)]
