"""The launches of a program: which statements each runs, what it reads and writes, and which results of the host stay there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from tempo_core.ir.graph import Key, Node
from tempo_core.ir.ops import End, Input, Output, Sink, Udf
from tempo_core.runtime.lower.liveness import Effects
from tempo_core.runtime.lower.lower import Lowering
from tempo_core.runtime.staged import host
from tempo_core.runtime.staged.chunks import cut, in_parts, opened
from tempo_core.runtime.staged.edges import awaited_first, early, joined
from tempo_core.runtime.staged.swapping import Walked
from tempo_core.schedule import Block, Execute, If, Loop
from tempo_core.schedule.build import chosen_value
from tempo_core.schedule.tree import Item, flat
from tempo_core.symbolic.domain import is_full_range
from tempo_core.symbolic.expr import Expr, Symbol


class Launches:
    """The host's items of a program, with the stores and inputs of each launch.

    `kept_outputs` are the outputs whose stores live to the end of the program. `donated` are the inputs whose arrays are the program's.
    """

    def __init__(
        self,
        root: Block,
        lowering: Lowering,
        kept_outputs: Collection[Key],
        disable: Collection[str],
        launch_seconds: float | None,
        opened_at: tuple[str | None] | None,
        donated: Collection[str],
        walked: Walked,
    ):
        self.lowering, self.graph, self.kept_outputs, self._disable = lowering, lowering.graph, frozenset(kept_outputs), disable
        self.walked, self.hosted = walked, walked.hosted
        self.outputs: list[tuple[int, int]] = []  # (position, slot); each is fetched at its place, as its store may be used again
        self.whole: list[tuple[int, Key]] = []  # (position, store on the host) of outputs that are all points of it
        self.compared: dict[str, None] = {}  # the loops that may be several launches, with their seconds
        self.slots = 0  # the number of places for operands and results of calls, and for outputs
        chosen = tuple(map(chosen_value, self.graph.chosen))
        items = self._split(root, chosen)
        self.returned: set[Key] = set()  # stores on the host whose values come from functions there
        self.kept = {} if "keep" in disable else self._keep(items)
        self.items = self._arranged(self._without_empty(items), launch_seconds, opened_at)
        self.segments = list(host.segments(self.items))
        for number, segment in enumerate(self.segments):
            segment.number = number
        self.store_keys = self._persistent()
        created = {key for segment in self.segments for key in segment.creates}
        self.passed = [key for key in self.store_keys if key not in self.kept and key not in self.hosted and key not in created]
        # Launches in loops count twice: they run more than once.
        in_loops = {segment.number for segment in self.segments if not set(segment.counters) <= set(chosen)}
        self.readers = Counter(name for each in self.segments for name in each.inputs * (2 if each.number in in_loops else 1))
        split = lowering.unrolled.inputs
        for segment in self.segments:  # the only launch that reads an array, and takes it as one, may have its memory
            segment.donated = tuple(n for n in segment.inputs if n in donated and self.readers[n] == 1 and n not in split)
            segment.inputs = tuple(name for name in segment.inputs if name not in segment.donated)

    def _arranged(
        self, items: list[host.HostItem], launch_seconds: float | None, opened_at: tuple[str | None] | None
    ) -> list[host.HostItem]:
        """The items with segments that are joined with their neighbours, opened where runs can stop, and cut if they take long."""
        graph, lowering = self.graph, self.lowering
        # What ends a step has no effect on stores that would keep its place.
        if "join" not in self._disable and not lowering.ends:
            items = joined(early(items, self._item_effects, self._put_effects), graph)
            items = awaited_first(items, graph, self._item_effects)
        most = {chosen_value(step): lowering.bounds[step.bound_symbol] - 1 for step in graph.chosen}
        if self.hosted:
            around = tuple(host.HostLoop(last, Expr.of(0), Expr.of(number + 1), 1, []) for last, number in most.items())
            items = in_parts(items, self.walked, around, self._stays_whole)
        if opened_at is not None:
            items = opened(items, graph, *opened_at, lowering.unrolled.writes_out)
        if "chunk" not in self._disable and launch_seconds is not None:
            items = cut(
                items, graph, {**lowering.bounds, **most}, launch_seconds, self._stays_whole, lowering.target, self.compared
            )
        return items

    def _stays_whole(self, loop: Loop) -> bool:
        """Whether a loop is not cut into launches: it is written out, or it may end early, which only the device program knows."""
        return self.lowering.unrolled.writes_out(loop) or bool(
            self.lowering.outer or loop.stop.symbols & self.lowering.ends.keys()
        )

    # -- segments and calls -------------------------------------------------------------------------------------------

    def _on_host(self, item: Item) -> bool:
        ops = [self.graph[execute.node].op for execute in host.statements(item)]
        sinks = any(isinstance(op, Sink) and not isinstance(op, End) for op in ops)
        return sinks or any(isinstance(op, Udf) and op.kind == "host" for op in ops)

    def _is_whole(self, node: Node) -> bool:
        """Whether an output is all points of a store on the host."""
        (edge,) = node.inputs
        key = edge.source, edge.output
        if key not in self.hosted or node.domain.steps:
            return False
        steps, slots = self.graph[edge.source].domain.steps, self.hosted[key].storage.slots
        sizes = [self.lowering.bounds[step.bound_symbol] for step in steps]
        return list(slots) == sizes and all(is_full_range(index, step) for index, step in zip(edge.index, steps, strict=True))

    def _slot(self) -> int:
        self.slots += 1
        return self.slots - 1

    def _split(self, block: Block, counters: tuple[Symbol, ...]) -> list[host.HostItem]:
        items: list[host.HostItem] = []
        for child in flat(block):
            node = self.graph[child.node] if isinstance(child, Execute) else None
            if isinstance(child, Execute) and node and isinstance(node.op, Output) and self._is_whole(node):
                self.whole.append((node.op.position, (node.inputs[0].source, node.inputs[0].output)))
            elif isinstance(child, Execute) and node and isinstance(node.op, Output) and (node.id, 0) not in self.kept_outputs:
                fetch = host.Fetch(child, self._slot())
                host.add(items, host.Segment(0, counters, [], [fetch]))
                self.outputs.append((node.op.position, fetch.slot))
            elif not self._on_host(child):
                host.add(items, host.Segment(0, counters, [], [child]))
            elif isinstance(child, Loop):
                inner = (*counters, child.counter)
                items.append(host.HostLoop(child.counter, child.start, child.stop, child.step, self._split(child.body, inner)))
            elif isinstance(child, If):
                then, orelse = (self._split(part or Block(), counters) for part in (child.then, child.orelse))
                items.append(host.HostIf(child.condition, then, orelse))
            elif isinstance(child, Execute) and node:
                slot = self._slot()
                if node.inputs:
                    host.add(items, host.Segment(0, counters, [], [host.Fetch(child, slot)]))
                items.append(host.HostCall(child, slot, isinstance(node.op, Sink)))
                if node.outputs:
                    items.append(host.Segment(0, counters, [host.Put(child, slot, tuple(range(len(node.outputs))))]))
        return items

    def _keep(self, items: list[host.HostItem]) -> dict[Key, tuple[tuple[int, ...], Any]]:
        """The stores of results that stay on the host, with their shapes and dtypes: only launches outside of the loop of the call read them.

        Such a launch takes all points at once. Results that nobody reads are not stored at all.
        """
        readers: dict[Key, list[host.Segment]] = {}
        for segment in host.segments(items):
            for key in {key for item in segment.items for key in self._item_effects(item).touches}:
                readers.setdefault(key, []).append(segment)
        readers |= {key: readers.get(key, []) for _, key in self.whole}
        returning = [call for call in host.calls(items) if not call.is_sink]
        puts = {put.slot: (segment, put) for segment in host.segments(items) for put in segment.puts}
        read_inside: dict[Key, bool] = {}  # whether a launch in the loop of a call reads the result
        for call in returning:
            loops = puts[call.slot][0].counters
            for output in range(len(self.graph[call.execute.node].outputs)):
                key = (call.execute.node, output)
                outer = [s.counters == loops[: len(s.counters)] and len(s.counters) < len(loops) for s in readers.get(key, ())]
                read_inside[key] = read_inside.get(key, False) or not all(outer) or key in self.lowering.unrolled.stores
        for call in returning:
            segment, put = puts[call.slot]
            call.kept = tuple(key[1] for key in put.keys if key in readers and not read_inside[key])
            outputs = tuple(key[1] for key in put.keys if key in readers and read_inside[key])
            others = [each for each in segment.puts if each is not put]
            segment.puts = [*others, replace(put, outputs=outputs)] if outputs else others
        kept = {(call.execute.node, output) for call in returning for output in call.kept}
        self.returned = kept & self.hosted.keys()
        return {key: (self.lowering.shape(key), self.lowering.dtype(key)) for key in sorted(kept - self.returned)}

    def _without_empty(self, items: list[host.HostItem]) -> list[host.HostItem]:
        """The items without launches that do nothing."""
        present = [item for item in items if not (isinstance(item, host.Segment) and not item.puts and not item.items)]
        return [host.inside(item, self._without_empty) for item in present]

    # -- stores -------------------------------------------------------------------------------------------------------

    def _effects(self, segment: host.Segment) -> Effects:
        """The effects of a segment. Puts define the values that host calls return; fetches read."""
        total = self._put_effects(segment)
        for item in segment.items:
            if segment.is_chunk and isinstance(item, Loop):  # a chunk has at least one iteration
                item = item.body
            total = total.then(self._item_effects(item))
        return total

    def _put_effects(self, segment: host.Segment) -> Effects:
        total = Effects()
        for put in segment.puts:
            written = frozenset(put.keys)
            partial = frozenset(k for k in written if self.lowering.liveness.is_store(k))
            total = total.then(Effects(partial, written - partial, written))
        return total

    def _item_effects(self, item: Item | host.Fetch) -> Effects:
        of = self.lowering.liveness
        if isinstance(item, host.Fetch):
            return Effects(of.reads(item.execute))
        return of.of(item)

    def _persistent(self) -> list[Key]:
        """The stores that live between segments: a segment needs them from before, or several segments touch them."""
        effects = {s.number: self._effects(s) for s in self.segments}
        touching = Counter(key for effect in effects.values() for key in effect.touches)
        needed = frozenset(key for effect in effects.values() for key in effect.needs)
        persistent = {key for key, count in touching.items() if key in needed or count > 1} | self.kept_outputs | set(self.kept)
        persistent |= {key for key in touching if key in self.hosted}
        live = self._live(self.kept_outputs | {key for _, key in self.whole})
        for segment in self.segments:
            effect = effects[segment.number]
            segment.writes = tuple(sorted(effect.writes & persistent & live[segment.number]))
            segment.reads = tuple(sorted((effect.needs & persistent) - set(segment.writes)))
            segment.inputs = self._inputs_of(segment)
        if "create" not in self._disable:
            self._create_stores()
        return sorted(persistent)

    def _create_stores(self) -> None:
        """Let launches make the stores that they are the first to touch, but those of the host. One XLA program less makes zeros.

        Such a launch runs once, and before all others that touch the store. Where it returns no such store, no other launch may need it.
        """
        users = Counter(key for segment in self.segments for key in (*segment.writes, *segment.reads))
        touched = {*self.kept, *self.hosted}
        for item in self.items:
            if isinstance(item, host.Segment):
                created = {*item.writes, *(key for key in item.reads if users[key] == 1)}
                item.creates = frozenset(created - touched)
            touched |= {key for segment in host.segments([item]) for key in (*segment.writes, *segment.reads)}

    def _live(self, at_end: frozenset[Key]) -> dict[int, frozenset[Key]]:
        """For each segment, by number, the stores that may be needed after it. `at_end` are needed after the program."""
        live: dict[int, frozenset[Key]] = {}

        def before(items: list[host.HostItem], after: frozenset[Key]) -> frozenset[Key]:
            for item in reversed(items):
                if isinstance(item, (host.Segment, host.Chunks)):
                    segment = item if isinstance(item, host.Segment) else item.segment
                    effect = self._effects(segment)
                    needed = after if isinstance(item, host.Segment) else after | effect.needs
                    live[segment.number] = needed
                    after = (needed if isinstance(item, host.Chunks) else after - effect.defines) | effect.needs
                elif isinstance(item, host.HostLoop):
                    end = after
                    while True:  # an iteration ends before the edge and the next one, or before what follows
                        start = before(item.body, end)
                        needed = end | before(item.edge, start)
                        if needed == end:
                            break
                        end = needed
                    after = after | start  # the first iteration has no edge before it
                elif isinstance(item, host.HostIf):
                    after = before(item.then, after) | before(item.orelse, after)
            return after

        before(self.items, at_end)
        return live

    def _inputs_of(self, segment: host.Segment) -> tuple[str, ...]:
        sources = {edge.source for execute in segment.executes for edge in self.lowering.edges(execute)}
        ops = [self.graph[source].op for source in sources]
        return tuple(sorted(op.name for op in ops if isinstance(op, Input)))

    def live_after(self, segment: host.Segment) -> list[frozenset[Key]]:
        """For each item of a segment, the stores that are needed after it."""
        live = [frozenset(segment.writes)]
        for item in reversed(segment.items[1:]):
            effects = self._item_effects(item)
            live.append((live[-1] - effects.defines) | effects.needs)
        return live[::-1][: len(segment.items)]
