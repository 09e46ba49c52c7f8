"""Launches that are neighbours across a loop's edge become one, and the launch that the host waits for comes first.

    for t in 0:T:          choose(0)                      choose(0)
      choose(t)            for t in 0:T:                  for t in 0:T:
      call(t)         ->     (t >= 1) store(t-1)     or     (t >= 1) choose(t)
      store(t)                        choose(t)             (t >= 1) store(t-1)
                             call(t)                        call(t)
                           store(T-1)                     store(T-1)

`choose`, `call` and `store` were two launches an iteration, and are one. The third form is for a `store` that takes so long that
the host should not wait for it: then `call(t)` runs on the host while the device stores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tempo_core import prices
from tempo_core.ir.graph import Graph, Key
from tempo_core.runtime.lower.liveness import Effects
from tempo_core.runtime.staged.host import Fetch, HostCall, HostItem, HostLoop, Segment, add, at, execute_at, inside, statements
from tempo_core.schedule import Loop
from tempo_core.schedule.tree import Item, walk
from tempo_core.symbolic.expr import Expr

EffectsOf = Callable[["Item | Fetch"], Effects]


def joined(items: Sequence[HostItem], graph: Graph) -> list[HostItem]:
    """The items, with the launches at the edges of loops joined where their second copy is cheap to compile."""
    result: list[HostItem] = []
    for item in items:
        item = inside(item, lambda inner: joined(inner, graph))
        if isinstance(item, Segment):
            add(result, item)
        elif isinstance(item, HostLoop):
            _join(item, result, graph)
        else:
            result.append(item)
    return result


def _join(loop: HostLoop, result: list[HostItem], graph: Graph) -> None:
    """Append a loop to `result`, perhaps with its first launch before it and its last launch after it."""
    body = list(loop.body)
    sinks: list[HostCall] = []
    while body and isinstance(body[-1], HostCall) and body[-1].is_sink:
        sinks.insert(0, body.pop())  # type: ignore[arg-type]
    first, last = (body[0], body[-1]) if body else (None, None)
    # The first launch of the next iteration overwrites what this one's first launch has fetched: such sinks get it before.
    before_edge = [sink for sink in sinks if isinstance(first, Segment) and _fetches(first, sink.slot)]
    if not (
        len(body) > 1
        and isinstance(first, Segment)
        and isinstance(last, Segment)
        and _runs_often(loop)
        and all(_is_cheap(s, graph) for s in (first, last))
        and sinks[: len(before_edge)] == before_edge  # else the sinks would change their order
    ):
        result.append(loop)
        return
    outer = tuple(c for c in first.counters if c is not loop.counter)
    start, count = loop.start.constant, (loop.stop.constant - 1 - loop.start.constant) // loop.step
    final = start + count * loop.step
    before, later = {loop.counter: loop.counter.expr - loop.step}, {loop.counter: (start + loop.step, final)}
    edge: list[HostItem] = [at(last, before, first.counters, later)]
    add(edge, at(first, {}, first.counters, later))
    sinks = sinks[len(before_edge) :]
    edge += [replace(sink, execute=execute_at(sink.execute, before)) for sink in sinks]
    end = {loop.counter: Expr.of(final)}
    add(result, at(first, {loop.counter: Expr.of(start)}, outer, {}))
    result.append(replace(loop, body=[*body[1:-1], *before_edge], edge=edge))
    result.append(at(last, end, outer, {}))
    result += [replace(sink, execute=execute_at(sink.execute, end)) for sink in sinks]


def _fetches(segment: Segment, slot: int) -> bool:
    return any(isinstance(item, Fetch) and item.slot == slot for item in segment.items)


def _runs_often(loop: HostLoop) -> bool:
    """Whether a loop surely runs more than once."""
    return loop.start.is_constant and loop.stop.is_constant and loop.stop.constant - loop.start.constant > loop.step


def _is_cheap(segment: Segment, graph: Graph) -> bool:
    """Whether a second copy of a segment compiles quickly."""
    items = [item for item in segment.items if not isinstance(item, Fetch)]
    if any(isinstance(inner, Loop) for item in items for inner in walk(item)):
        return False
    return sum(len(graph[leaf.node].op.parts) for item in items for leaf in statements(item)) <= prices.MOST_COPIED_OPERATIONS


# -- before a call and after it ---------------------------------------------------------------------------------------


def early(items: Sequence[HostItem], effects: EffectsOf, puts: Callable[[Segment], Effects]) -> list[HostItem]:
    """The items, with all that does not need a call's results in the launch before the call.

    The device runs it while the host is in the call, and values of the step need no store to wait for the next launch.
    """
    result: list[HostItem] = []
    for item in items:
        item = inside(item, lambda inner: early(inner, effects, puts))
        before = result[-2] if len(result) > 1 and isinstance(result[-1], HostCall) else None
        if isinstance(item, Segment) and isinstance(before, Segment):
            stays, total = [], puts(item)
            for each in item.items:
                effect = effects(each)
                if effect.touches & total.writes or effect.writes & total.touches:
                    stays.append(each)
                    total = total.then(effect)
                else:
                    before.items.append(each)
            item.items = stays
        if not (isinstance(item, Segment) and not item.items and not item.puts):
            result.append(item)
    return result


# -- what the host waits for ------------------------------------------------------------------------------------------


def awaited_first(items: Sequence[HostItem], graph: Graph, effects: EffectsOf, later: Sequence[HostItem] = ()) -> list[HostItem]:
    """The items, with segments in two launches where the host waits for the first, and the second takes long. `later` follow them."""
    result: list[HostItem] = []
    for k, item in enumerate(items):
        if isinstance(item, HostLoop):
            edge = awaited_first(item.edge, graph, effects, item.body)
            result.append(replace(item, body=awaited_first(item.body, graph, effects), edge=edge))
        else:
            item = inside(item, lambda inner: awaited_first(inner, graph, effects))
            result += _parts(item, [*items[k + 1 :], *later], graph, effects)
    return result


def _parts(item: HostItem, later: Sequence[HostItem], graph: Graph, effects: EffectsOf) -> list[HostItem]:
    """A segment as one or two launches."""
    call = next((other for other in later if not (isinstance(other, HostCall) and other.is_sink)), None)
    if isinstance(call, HostLoop) and call.body:
        call = call.body[0]
    if not (isinstance(item, Segment) and isinstance(call, HostCall)):
        return [item]
    needed, rest = _split(item, call.slot, effects)
    rest_ops = (op for part in rest for leaf in statements(part) for op in graph[leaf.node].op.parts)
    if not needed or not any(op.cost_class in prices.LONG for op in rest_ops):
        return [item]
    return [Segment(item.number, item.counters, item.puts, needed), Segment(item.number, item.counters, [], rest)]


def _split(segment: Segment, slot: int, effects: EffectsOf) -> tuple[list[Item | Fetch], list[Item | Fetch]]:
    """The items that the operands of the call at `slot` need, and the others, which can run after them."""
    needed: list[Item | Fetch] = []
    rest: list[Item | Fetch] = []
    read: set[Key] = set()
    written: set[Key] = set()
    for item in reversed(segment.items):
        effect = effects(item)
        operand = isinstance(item, Fetch) and item.slot == slot
        # An item stays ahead of later ones that read what it writes, or write what it touches.
        if operand or effect.writes & read or effect.touches & written:
            needed.insert(0, item)
            read |= effect.needs
            written |= effect.writes
        else:
            rest.insert(0, item)
    return needed, rest
