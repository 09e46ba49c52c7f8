"""Long loops of the device, cut into launches: between two of them, signals are served.

    launch: for k in 0:1000000: body      ->      while first < 1000000:
                                                    launch: for k in first:last: body
                                                    first, last = last, ...

`first` and `last` are arguments of the launch, so chunks of all lengths are one XLA program. The stores are donated from launch to
launch: a border copies nothing. The first chunks are short; the times that they take decide how long the next ones are.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from tempo_core.ir import costs
from tempo_core.ir.graph import Graph, Node
from tempo_core.ir.ops import Dataflow, Merge, Types
from tempo_core.ir.ops.work import CALL, PRODUCT
from tempo_core.prices import MOST_TIMES_A_LAUNCH, copy_weight, is_dear
from tempo_core.runtime.cost.kernels import bytes_of
from tempo_core.runtime.staged.host import Chunks, Fetch, HostItem, HostLoop, Segment, inside, statements
from tempo_core.runtime.staged.swapping import Around, Walked, iterations
from tempo_core.schedule import Block, Execute, If, Loop
from tempo_core.schedule.tree import Item, counter, loop_label
from tempo_core.symbolic.expr import Symbol, minimum
from tempo_core.target import Target, compared

Env = Mapping[Symbol, int]
P = TypeVar("P")


def cut(
    items: Sequence[HostItem],
    graph: Graph,
    bounds: Mapping[Symbol, int],
    wanted: float,
    stays_whole: Callable[[Loop], bool],
    target: Target,
    texts: dict[str, None],
) -> list[HostItem]:
    """The items, with loops that run longer than `wanted` seconds as launches of about that length. Seconds are noted in `texts`.

    If a single iteration may be so long, each is an iteration of the host, and the loops inside it are cut.
    """
    rough = functools.partial(rough_seconds, graph=graph, target=target)

    def inner(loop: Loop | HostLoop, env: Env) -> Env:
        return {**env, loop.counter: _middle(loop, env)}

    def count(loop: Loop, env: Env) -> int | None:
        if stays_whole(loop):
            return None
        seconds = rough(loop, env=env)
        if seconds <= wanted * MOST_TIMES_A_LAUNCH:
            return None
        texts[compared({f"{loop_label(loop)} at once": seconds, "a launch at most": wanted})] = None
        each = rough(loop.body, env=inner(loop, env))
        return 0 if each > wanted > 0 else max(int(wanted / 10 / max(each, 1e-9)), 1)

    return _in_launches(items, bounds, inner, count)


def opened(items: Sequence[HostItem], graph: Graph, step: str | None, stays_whole: Callable[[Loop], bool]) -> list[HostItem]:
    """The items, with the device's loops over `step` as launches of some of their iterations: a run can stop between two.

    For None, these are the outermost loops. Loops around such a loop become loops of the host.
    """

    def is_wanted(loop: Loop, is_outermost: bool) -> bool:
        return is_outermost if step is None else step in counted_steps(loop.counter, statements(loop), graph)

    def count(loop: Loop, is_outermost: bool) -> int | None:
        if stays_whole(loop):
            return None
        if is_wanted(loop, is_outermost):
            return 1
        return 0 if any(is_wanted(each, False) for each in _loops(loop.body)) else None

    return _in_launches(items, True, lambda loop, is_outermost: False, count)


def in_parts(items: Sequence[HostItem], walked: Walked, around: Around, stays_whole: Callable[[Loop], bool]) -> list[HostItem]:
    """The items, with loops that walk through stores on the host as launches that each have a part of them on the device."""

    def inner(loop: Loop | HostLoop, around: Around) -> Around:
        return (*around, loop)

    def count(loop: Loop, around: Around) -> int | None:
        return None if stays_whole(loop) else iterations(walked, loop, around)

    return _in_launches(items, around, inner, count, True)


def _in_launches(
    items: Sequence[HostItem],
    place: P,
    inner: Callable[[Loop | HostLoop, P], P],
    count: Callable[[Loop, P], int | None],
    has_most: bool = False,
) -> list[HostItem]:
    """The items, with some loops of the device in launches. `place` is what is known around them, `inner(loop, place)` in a loop.

    `count(loop, place)` is the number of iterations of the first launch (of any, if it `has_most`); 0 if each iteration is one of the
    host; None for a loop that stays whole.
    """

    def of_segment(segment: Segment, place: P) -> list[HostItem]:
        result: list[HostItem] = []
        rest: list[Item | Fetch] = []  # items that run in one launch with their neighbours

        def finish() -> None:
            if rest or (segment.puts and not result):
                result.append(Segment(segment.number, segment.counters, [] if result else segment.puts, list(rest)))
            rest.clear()

        for item in segment.items:
            first = count(item, place) if isinstance(item, Loop) else None
            if first is None or not isinstance(item, Loop):
                rest.append(item)
                continue
            finish()
            if first:
                result.append(_chunks(item, segment, first, first if has_most else None))
            else:
                body = Segment(segment.number, (*segment.counters, item.counter), [], list(item.body.children))
                parts = of_segment(body, inner(item, place))
                result.append(HostLoop(item.counter, item.start, item.stop, item.step, parts))
        finish()
        return result

    result: list[HostItem] = []
    for item in items:
        if isinstance(item, Segment):
            result += of_segment(item, place)
        else:
            outer = inner(item, place) if isinstance(item, HostLoop) else place
            result.append(inside(item, functools.partial(_in_launches, place=outer, inner=inner, count=count, has_most=has_most)))
    return result


def counted_steps(counter: Symbol, executes: Iterable[Execute], graph: Graph) -> frozenset[str]:
    """The names of the steps that a loop's counter counts, in the points of the statements inside the loop."""
    steps = set()
    for execute in executes:
        for step, at in zip(graph[execute.node].domain.steps, execute.point, strict=True):
            if counter in at.symbols:
                steps.add(step.name)
    return frozenset(steps)


def _loops(item: Item) -> Iterator[Loop]:
    """The loops in an item that are in no condition, the outer ones first."""
    if isinstance(item, Loop):
        yield item
        yield from _loops(item.body)
    elif isinstance(item, Block):
        for child in item.children:
            yield from _loops(child)


def _chunks(loop: Loop, segment: Segment, count: int, most: int | None) -> Chunks:
    first, last = counter(f"first {loop.counter.name}"), counter(f"last {loop.counter.name}")
    stop = last.expr if loop.stop.is_constant else minimum(last.expr, loop.stop)  # the loop may end inside of a piece
    piece = Loop(loop.counter, first.expr, stop, loop.step, loop.body)
    launch = Segment(segment.number, (*segment.counters, first, last), [], [piece], is_chunk=True)
    return Chunks(loop.counter, launch, first, last, loop.start, loop.stop, loop.step, count, most)


def next_count(count: int, seconds: float, wanted: float, most: int | None = None) -> int:
    """The iterations of the next launch, if `count` of them took `seconds`."""
    if seconds < wanted / 2:
        return 2 * count if most is None else min(2 * count, most)
    return max(count // 2, 1) if seconds > 2 * wanted else count


# -- estimates --------------------------------------------------------------------------------------------------------


def rough_seconds(item: Item | Fetch, graph: Graph, env: Mapping[Symbol, int], target: Target) -> float:
    """A rough estimate of how long an item runs on a target. `env` has the bounds, and values of the counters around it."""
    if isinstance(item, Block):
        return sum(rough_seconds(child, graph, env, target) for child in item.children)
    if isinstance(item, Loop):
        trips = max(-((item.start.evaluate(env) - item.stop.evaluate(env)) // item.step), 0)
        return trips * rough_seconds(item.body, graph, {**env, item.counter: _middle(item, env)}, target)
    if isinstance(item, If):
        return max(rough_seconds(block, graph, env, target) for block in (item.then, item.orelse or Block()))
    if not isinstance(item, Execute):
        return 0.0
    node = graph[item.node]
    point = {step: e.evaluate(env) for step, e in zip(node.domain.steps, item.point, strict=True)}
    # An island has its types; a merge moves values.
    operands = () if isinstance(node.op, (Dataflow, Merge)) else graph.input_types(node)
    return _of_statement(node, operands, {**env, **point}, target)


def _of_statement(node: Node, operands: Types, env: Mapping[Symbol, int], target: Target) -> float:
    """The seconds of one execution: its kernels are the operations that XLA makes no part of their readers."""
    uses = [(node.op, operands, node.outputs)]
    if isinstance(node.op, Dataflow):
        types = node.op.body.slot_types
        uses = [
            (op, tuple(types[k] for k in used), tuple(types[k] for k in made)) for op, used, made in node.op.body.instructions
        ]
    sums: Counter[str] = Counter(bytes=sum(bytes_of(type).evaluate(env) for type in node.outputs))
    for op, inputs, outputs in uses:
        inputs, outputs = (inputs[1:], inputs[1:]) if op.updated else (inputs, outputs)  # in place: the rest stays where it is
        number = costs.operations(op, inputs, outputs).evaluate(env)
        sums["operations"] += number
        sums["products" if op.cost_class == PRODUCT else "dear" if is_dear(op) else "plain"] += number
        if not isinstance(op, (*costs.PARTS, *costs.OF_THEIR_READER)):
            sums["times"] += copy_weight(op) if op.cost_class == CALL else 1
            sums["bytes"] += sum(bytes_of(type).evaluate(env) for type in (*inputs, *outputs))
    return target.of(max(sums["times"], 1), sums["operations"], sums["products"], sums["dear"], sums["bytes"])


def _middle(loop: Loop | HostLoop, env: Mapping[Symbol, int]) -> int:
    """A typical value of a loop's counter."""
    return (loop.start.evaluate(env) + max(loop.stop.evaluate(env) - 1, loop.start.evaluate(env))) // 2
