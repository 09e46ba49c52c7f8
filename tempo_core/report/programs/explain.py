"""What the compiler did to each operation of a program, and why.

The passes run again, and note their decisions (`passes/decisions.py`). An operation is followed from the program as it was written to the
statement that computes it, and from there to its loops, its device program, and the store of its values.
"""

from __future__ import annotations

import difflib
from collections import ChainMap, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from tempo_core.errors import ArgumentError
from tempo_core.ir.dependence import forward_order
from tempo_core.ir.graph import Graph, Key, Node
from tempo_core.ir.names.naming import kind_of, names
from tempo_core.ir.names.source_lines import targets
from tempo_core.ir.names.user_lines import Sources, span
from tempo_core.ir.ops import Broadcast, Constant, End, Eval, Input, Iota, Merge, Output, Sink, Udf
from tempo_core.passes.base import Pass
from tempo_core.passes.decisions import Decision, Ref, recording
from tempo_core.report.graphs.picture import place_of
from tempo_core.report.programs import reasons as reason_texts
from tempo_core.runtime.staged.host import statements
from tempo_core.runtime.staged.stage import Staged
from tempo_core.schedule import Loop, Scheduled
from tempo_core.schedule.tree import loop_label, with_loops
from tempo_core.symbolic.condition import Bool

_NUMBERS = (Broadcast, Eval, Iota)
UNNEEDED = "not computed: no result needs it"


@dataclass
class _Story:
    """What happened to an operation. Its value is that of `node` now, in its output `output` (-1: in none); None if it is gone."""

    written: Node
    node: int | None
    output: int = 0
    texts: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        if text not in self.texts:
            self.texts.append(text)


def explanation(
    source: Graph,
    written: Graph,
    passes: Sequence[Pass],
    scheduled: Scheduled,
    staged: Staged | None,
    sources: Sources,
    asked: Mapping[str, Sequence[str]],
    peak: int,
    tensor: str = "",
) -> str:
    """The text for all operations, or for those of one tensor. For all, it begins with the steps that stay loops, and the large stores.

    `source` is the program as it was written, without what no result needs; `written` has that too. `asked` are the reasons of steps
    that options or prices keep loops, `peak` the most bytes at a time.
    """
    stories = {node.id: _Story(node, node.id) for node in source}
    reasons = {step: dict.fromkeys(texts) for step, texts in asked.items()}
    numbers = _follow(source, passes, stories, reasons)
    large = reason_texts.large_stores(scheduled, sources, peak)
    final = _Final(scheduled, staged, large if tensor else {})
    for story in stories.values():
        if story.node is not None:
            for text in final.of(numbers[story.node], story.output):
                story.say(text)
    headings: dict[str, list[_Story]] = {}
    for node in written:
        story = stories.get(node.id) or _Story(node, None, texts=[UNNEEDED])
        headings.setdefault(_heading(story.written, sources), []).append(story)
    chosen = {heading: group for heading, group in headings.items() if not tensor or tensor in _tensors(group)}
    if tensor and not chosen:
        every = sorted({name for group in headings.values() for name in _tensors(group)})
        near = difflib.get_close_matches(tensor, every, 1)
        hint = f"program.explain({near[0]!r})" if near else f"its tensors are {', '.join(every) or 'without names'}"
        raise ArgumentError(f"the program has no tensor {tensor!r}", hint=hint)
    texts = [_section(heading, group) for heading, group in chosen.items()]
    if not tensor:
        stores = [f"stores of more than a tenth of the peak of {peak:,} bytes", *(f"  {text}" for text in large.values())]
        texts = [reason_texts.loops(scheduled, reasons), "\n".join(stores) if large else "", *texts]
    return "\n\n".join(filter(None, texts))


def _follow(
    source: Graph, passes: Sequence[Pass], stories: Mapping[int, _Story], reasons: dict[str, dict[str, None]]
) -> dict[int, int]:
    """Run the passes, and tell the stories; `reasons` of steps to be loops are added. Returns the number in the final graph of each node left."""
    graph = source
    for each in passes:
        with recording() as decisions:
            after = each.apply(graph)
        by_node: dict[int, list[tuple[int, Decision]]] = {}
        for position, decision in enumerate(decisions):
            if isinstance(decision.node, int):
                by_node.setdefault(decision.node, []).append((position, decision))
            else:
                about = (_shown(each, ChainMap(graph.nodes, after.nodes)) for each in decision.about)
                reasons.setdefault(decision.node, {})[decision.text.format(*about)] = None
        for story in stories.values():
            if story.node is not None:
                _tell(story, each, graph, after, by_node)
        graph = after
    return {old: new for new, old in enumerate(forward_order(graph))}


def _tell(
    story: _Story, each: Pass, before: Graph, after: Graph, decisions: Mapping[int, Sequence[tuple[int, Decision]]]
) -> None:
    """What one pass did to one operation."""
    at, last = story.node, -1
    assert at is not None
    first = at
    told: list[Decision] = []
    while (following := next(((k, d) for k, d in decisions.get(at, ()) if k > last), None)) is not None:
        last, decision = following
        told.append(decision)
        if decision.into is not None and at not in after.nodes:
            at, story.output = decision.into, decision.output
    for (text, *others), group in groupby(told, key=lambda d: (d.text, *d.about[1:])):
        firsts: list[object] = []  # sets and dicts are among them
        for thing in (about for decision in group for about in decision.about[:1]):
            if thing not in firsts:
                firsts.append(thing)
        nodes = ChainMap(before.nodes, after.nodes)
        story.say(text.format(", ".join(_shown(each, nodes) for each in firsts), *(_shown(each, nodes) for each in others)))
    if at not in after.nodes:
        story.node = None
        story.say(f"not needed any more after the pass {each.name}: nothing reads it then")
        return
    story.node = at
    if not told and at == first and any(getattr(before[at], k) != getattr(after[at], k) for k in ("op", "domain", "outputs")):
        story.say(each.effect or f"rewritten by the pass {each.name}")


def _shown(about: object, nodes: Mapping[int, Node]) -> str:
    """What a {} in the text of a decision stands for. `nodes` are those before and after the pass."""
    if isinstance(about, Ref):
        node = nodes.get(about.node)
        if node is None:
            return "another value"
        line = span([node.where])
        return f"`{_name(node)}{about.index}`" + (f" ({line})" if line else "")
    if isinstance(about, Mapping):
        return ", ".join(f"{step} = {point}" for step, point in about.items())
    if isinstance(about, (set, frozenset)):
        return ", ".join(sorted(map(str, about)))
    return f"`{about}`" if isinstance(about, Bool) else str(about)


def _name(node: Node) -> str:
    """The user's name for a node, or its operation and the variable that its line assigns."""
    if node.name or isinstance(node.op, Output):
        return node.name or f"output {node.op.position}"  # type: ignore[attr-defined]
    variables = ", ".join(targets(node.where))
    return f"{kind_of(node.op)} in {variables}" if variables else kind_of(node.op)


# -- where an operation ends up ---------------------------------------------------------------------------------------


class _Final:
    """The statements, loops, device programs and stores of the final graph."""

    def __init__(self, scheduled: Scheduled, staged: Staged | None, large: Mapping[Key, str]):
        self.graph, self.storage, self.staged, self.large = scheduled.graph, scheduled.storage, staged, large
        self.labels, self.users = names(self.graph), self.graph.users()
        self.loops: defaultdict[int, dict[str, None]] = defaultdict(dict)
        for execute, loops in with_loops(scheduled.root):
            self.loops[execute.node][" > ".join(map(self._loop, loops)) or "no loop"] = None
        self.programs: defaultdict[int, dict[str, None]] = defaultdict(dict)
        for segment in () if staged is None else staged.segments:
            for execute in (execute for item in segment.items for execute in statements(item)):
                self.programs[execute.node][str(segment.number)] = None

    def of(self, node_id: int, output: int) -> Iterator[str]:
        node = self.graph[node_id]
        if isinstance(node.op, Output):
            return
        if isinstance(node.op, Input):
            yield "fed to the program"
            return
        if isinstance(node.op, End):
            yield "looked at in each iteration: the loop ends after the first one in which it holds"
        elif isinstance(node.op, Sink) or (isinstance(node.op, Udf) and node.op.kind == "host"):
            yield "called on the host" + ("" if self.staged is None else ", between device programs")
        yield self._place(node)
        if output < 0:
            yield "used only inside of that statement, and not kept"
        elif (node_id, output) in self.storage and node.outputs:
            yield self._store(node, output)
            if (node_id, output) in self.large:
                yield f"a large store: {self.large[node_id, output]}"
            spread = None if self.staged is None else self.staged.spread
            if spread is not None and spread.divides(node.outputs[output]):
                yield f"in parts on {len(spread.devices)} devices, by its points of `{spread.step}`"

    def _loop(self, loop: Loop) -> str:
        is_written_out = self.staged is not None and self.staged.unrolled.writes_out(loop)
        return f"`{loop_label(loop)}`" + (" (written out)" if is_written_out else "")

    def _place(self, node: Node) -> str:
        loops = ", and in ".join(self.loops.get(node.id, ["no loop"]))
        numbers = self.programs[node.id]
        device = f", in device program{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}" if numbers else ""
        return f"runs as the statement `{self.labels[node.id]}`, in {loops}{device}"

    def _store(self, node: Node, output: int) -> str:
        key = (node.id, output)
        storage = self.storage[key]
        slots = " x ".join(map(str, storage.slots)) or "1"
        if storage.size == 1:
            kept = "kept in 1 slot, as one of its points lives at a time"
        elif storage.kind == "block":
            kept = f"kept in {slots} slots, as a block: ranges of its points are read"
        else:
            kept = f"kept in a {storage.kind} of {slots} slots, as so many points live at a time"
        if self.staged is not None and len(self.staged.segments) > 1 and key in self.staged.store_keys:
            kept += " (it lives between device programs)"
        return f"{kept}; {self._readers(node, output)}"

    def _readers(self, node: Node, output: int) -> str:
        reads = dict.fromkeys(
            f"`{self.labels[reader.id]}`{place_of(self.graph, reader, reader.inputs[slot])}"
            for reader, slot in self.users[node.id]
            if reader.inputs[slot].output == output
        )
        return f"read by {', '.join(reason_texts.few(reads)) or 'nothing'}"


# -- text -------------------------------------------------------------------------------------------------------------


def _heading(node: Node, sources: Sources) -> str:
    """The tensor that an operation belongs to, and its line."""
    name = node.name or ", ".join(targets(node.where))
    line = span([node.where])
    title = name if name else "an operation without a name"
    return f"{title}  {line}" if line else title


def _tensors(group: Sequence[_Story]) -> set[str]:
    named = {story.written.name for story in group} | {name for story in group for name in targets(story.written.where)}
    return named - {""}


def _section(heading: str, group: Sequence[_Story]) -> str:
    """The operations of a tensor; those with the same story share it.

    Left out are numbers, repeated to the shape of another operand, and what no result needs beside what one needs.
    """
    told = [story for story in group if not isinstance(story.written.op, (Constant, Output))]
    told = [story for story in told if story.written.name or not isinstance(story.written.op, _NUMBERS)] or told
    is_alive = any(story.texts != [UNNEEDED] for story in told)
    stories: dict[tuple[str, ...], list[str]] = {}
    for story in told:
        if story.texts != [UNNEEDED] or not is_alive or story.written.name:
            kind = "recurrence" if isinstance(story.written.op, Merge) else kind_of(story.written.op)
            stories.setdefault(tuple(story.texts), []).append(kind)
    lines = [heading]
    for texts, kinds in stories.items():
        lines.append(f"  {', '.join(dict.fromkeys(kinds))}")
        lines += [f"    {text}" for text in texts]
    return "\n".join(lines) if stories else ""
