"""The profile of a staged program: its device programs, compiled with names, run under JAX's profiler."""

from __future__ import annotations

import functools
import hashlib
import re
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Any

from jax.profiler import annotate_function

from tempo_core.backends.base import Backend
from tempo_core.backends.scopes import Scope, naming
from tempo_core.ir import graph_text as ir_text
from tempo_core.ir.ops import Sink, Udf
from tempo_core.ir.udf import Fed
from tempo_core.report.programs.hlo import HloText
from tempo_core.report.programs.profile import LAUNCHING, OWN, PYTHON, Entry, Frame, Places, on_host
from tempo_core.report.programs.timeline import CALL, LAUNCH, OTHER_WORK, Timeline, tracing
from tempo_core.runtime.feeds import Feeds
from tempo_core.runtime.numerics import Watch
from tempo_core.runtime.staged.host import Chunks, HostCall, placed
from tempo_core.runtime.staged.run import StagedProgram
from tempo_core.schedule import Scheduled
from tempo_core.target import Target

_PROGRAM = re.compile(r"tempo_[0-9a-f]+_(\d+)")


class ProfiledProgram:
    """A staged program whose operations and functions can be found again on the profiler's timeline.

    Its XLA programs are those of the program itself, with names in their metadata. They are compiled for themselves: a cache may hold
    programs with other names, or without.
    """

    def __init__(
        self,
        scheduled: Scheduled,
        backend: Backend,
        check_numerics: bool = False,
        disable: Collection[str] = (),
        launch_seconds: float | None = None,
        target: Target | None = None,
    ):
        began = time.perf_counter()
        graph = scheduled.graph.copy()
        for node in graph:
            op = node.op
            if isinstance(op, (Udf, Sink)) and on_host(node):
                graph.put(replace(node, op=replace(op, fn=annotate_function(op.fn, f"{CALL}{node.id}"))))
        marked_program = replace(scheduled, graph=graph)
        self.staged = StagedProgram(marked_program, type(backend)(), check_numerics, disable, launch_seconds, target)
        text = scheduled.text() + ir_text.to_text(scheduled.graph, full_constants=False)
        with naming(hashlib.sha256(text.encode()).hexdigest()[:16]) as scopes:
            self.staged.lower_all()
        self.loops = scopes.loops
        self.staged.compile_all()
        self.texts: dict[int, HloText] = {}
        for segment in self.staged.segments:
            compiled: Any = segment.compiled
            self.texts[segment.number] = HloText(compiled.as_text())
            segment.compiled = annotate_function(compiled, f"{LAUNCH}{segment.number}")
        # By mark: the host's loops around a launch or call, and of a launch its program.
        self.paths: dict[str, tuple[Frame, ...]] = {}
        self.pieces: set[str] = set()  # the labels of loops of which a launch runs some iterations
        for item, around in placed(self.staged.items):
            loops = tuple(Frame("loop", _label(loop.counter, loop.start, loop.stop, loop.step)) for loop in around)
            if isinstance(item, HostCall):
                self.paths.setdefault(f"{CALL}{item.execute.node}", loops)
            else:
                self.paths[f"{LAUNCH}{item.number}"] = (*loops, Frame("device program", f"device program {item.number}"))
            self.pieces |= {_label(loop.counter, loop.first, loop.last, loop.step) for loop in around if isinstance(loop, Chunks)}
        self.compile_seconds = time.perf_counter() - began

    def run(self, fed: Feeds, seed: int, watch: Watch | None) -> dict[int, Any]:
        for node in self.staged.graph:
            if isinstance(node.op, Udf) and isinstance(node.op.fn, Fed):
                fed.streams[node.op.fn.name].wrap(functools.partial(annotate_function, name=f"{CALL}{node.id}"))
        return self.staged.run(fed, seed, watch)

    def measured(self, run: Callable[[], Any], places: Places) -> tuple[Any, float, list[Entry]]:
        """What a run gives, its seconds, and its entries."""
        with tracing() as timeline:
            results = run()
        return results, timeline.total / 1e9, list(self._entries(timeline, places))

    def _entries(self, timeline: Timeline, places: Places) -> Iterator[Entry]:
        measured: dict[str, set[str]] = {}
        for module, operation in timeline.operations:
            measured.setdefault(module, set()).add(operation)
        for (module, operation), nanoseconds in timeline.operations.items():
            program = _PROGRAM.search(module)
            if program is None or int(program[1]) not in self.texts:
                work = module.removeprefix("jit_").replace("_", " ") or operation
                yield Entry((Frame("device program", OTHER_WORK),), OTHER_WORK, "", "", nanoseconds / 1e9, work)
                continue
            mark, shares = f"{LAUNCH}{program[1]}", self.texts[int(program[1])].shares(operation, measured[module])
            for scope, share in shares.items():
                kernel = f"{program[1]} {operation}" if len(shares) > 1 else ""
                inside = (Frame("loop", label) for loop in scope.loops if (label := self.loops[loop]) not in self.pieces)
                path = (*self.paths[mark], *inside)
                entry = Entry(path, OWN, "", "", nanoseconds / 1e9 * share, mark, timeline.counts[mark], kernel)
                yield places.named(entry, scope)
        for mark, nanoseconds in timeline.marks.items():
            called = (int(mark.removeprefix(CALL)), None) if mark.startswith(CALL) else None
            entry = Entry(self.paths.get(mark, ()), LAUNCHING, "", "", nanoseconds / 1e9, mark, timeline.counts[mark])
            yield places.named(entry, Scope((), called))
        yield Entry((), PYTHON, "", "", timeline.idle / 1e9)


def _label(counter: object, start: object, stop: object, step: int) -> str:
    return f"for {counter} in {start}:{stop}" + ("" if step == 1 else f":{step}")
