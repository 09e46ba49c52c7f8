"""Stepping through a program: each statement with its point, the user's line, and the values that it reads and gives."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar, Union

import numpy as np

from tempo_core.errors import ArgumentError, TempoError, quoted
from tempo_core.ir import ops
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.naming import Naming
from tempo_core.ir.picture import short_name
from tempo_core.ir.text import op_text
from tempo_core.ir.udf import Fed
from tempo_core.runtime.feeds import Feeds
from tempo_core.runtime.interpreter import Executed, Interpreter
from tempo_core.schedule import Execute, Loop, Scheduled, leaves
from tempo_core.schedule.program import lines
from tempo_core.symbolic.domain import Point
from tempo_core.symbolic.expr import Symbol

BranchLines = Mapping[tuple[str, str], Sequence[str]]  # (name, line) of a recurrence: the lines that assign its branches
Target = Union[str, int, Callable[["Step"], Any]]
Array = np.ndarray[Any, np.dtype[Any]]
R = TypeVar("R", covariant=True)  # what a run gives


class Step:
    """A statement that ran, the `number`-th of its session. `str(step)` shows all of it, for a terminal."""

    def __init__(self, number: int, ran: Executed, program: _Listing):
        self.number, self._ran, self._program = number, ran, program

    @property
    def statement(self) -> str:
        """As the program's text has it, at this point: `h|1[3]`."""
        return self._ran.statement

    @property
    def name(self) -> str:
        """What the user calls the tensor; the program's own name where they gave none."""
        return self._ran.node.name or self._program.labels[self._ran.node.id]

    @property
    def point(self) -> dict[str, int]:
        """The steps of the tensor's domain at this point."""
        return {s.name: value for s, value in zip(self._ran.node.domain.steps, self._ran.point, strict=True)}

    @property
    def loops(self) -> dict[str, int]:
        """The counters of the loops around the statement, from the outside in."""
        return {counter.name: value for counter, value in self._ran.counters.items()}

    @property
    def operation(self) -> str:
        """What was done: `tanh`, `branch 1 of h`, `fused: mul, add, tanh`."""
        return _operation(self._ran.node, self._ran.branch)

    @property
    def where(self) -> str:
        """The user's line, as `file:line`."""
        return self._program.where(self._ran.node, self._ran.branch)

    @property
    def values(self) -> tuple[Array, ...]:
        """What the statement gave; for an output or a sink, nothing."""
        return () if isinstance(self._ran.node.op, ops.Output) else self._ran.values

    @property
    def operands(self) -> dict[str, Array]:
        """What the statement read, by how it is read: `{"h[2]": ..., "x[0:3]": ...}`."""
        node, branch = self._ran.node, self._ran.branch
        edges = node.inputs if branch is None else (node.inputs[branch],)
        env = dict(zip(node.domain.steps, self._ran.point, strict=True))
        labels = [self._program.read(edge, env) for edge in edges]
        return dict(zip(labels, self._ran.operands, strict=True))

    @property
    def place(self) -> int:
        """The statement's number in the program's text."""
        return self._ran.place

    def __str__(self) -> str:
        at = f"[{', '.join(map(str, self._ran.point))}]" if self._ran.point else ""
        own = self._program.shown(self._ran.node)
        given = [f"{own}{f'.{k}' if len(self.values) > 1 else ''}{at}" for k in range(len(self.values))]
        rows = [("reads", label, value) for label, value in self.operands.items()]
        rows += [("gives", label, value) for label, value in zip(given, self.values, strict=True)]
        width = max((len(label) for _, label, _ in rows), default=0)
        loops = ", ".join(f"{name} = {value}" for name, value in self.loops.items())
        head = f"{self.number:>4}  {self.statement}  {self.operation}" + (f"  ({loops})" if loops else "")
        shown = [head, f"      at     {quoted(self.where)}" if self.where else ""]
        shown += [f"      {kind}  {label:<{width}}  {value_text(value)}" for kind, label, value in rows]
        return "\n".join(filter(None, shown))

    def __repr__(self) -> str:
        return f"<Step {self.number}: {self.statement}>"


class Session(Generic[R]):
    """A run that stops after each statement: `next(session)` runs one, `until` and `go` many, and `value` looks at tensors.

    for step in session: print(step)
    """

    def __init__(
        self,
        scheduled: Scheduled,
        interpreter: Interpreter,
        fed: Feeds,
        results: Callable[[dict[int, Any]], R],
        branch_lines: BranchLines,
        inputs: Mapping[str, tuple[Symbol, ...]],
    ):
        self._program = _Listing(scheduled, branch_lines)
        self._fed = {name: (value, inputs[name]) for name, value in fed.arrays.items()}
        self._state = interpreter.state(fed)
        self._running: Iterator[Executed] = interpreter.steps(self._state)
        self._results = results
        self.steps = 0  # statements that ran
        self.current: Step | None = None  # the last one
        self.finished = False
        self.breakpoints: list[Callable[[Step], bool]] = []

    # -- running ------------------------------------------------------------------------------------------------------

    def __iter__(self) -> Session[R]:
        return self

    def __next__(self) -> Step:
        """Run one statement. Raises StopIteration at the end, and whatever the statement raises, which ends the session."""
        try:
            ran = next(self._running)
        except StopIteration:
            self.finished = True
            raise
        self.steps += 1
        self.current = Step(self.steps, ran, self._program)
        return self.current

    def next(self, count: int = 1) -> Step | None:
        """Run `count` statements: the last of them, or None where the program ended before."""
        step = None
        for _ in range(count):
            step = next(self, None)
        return step

    def until(self, target: Target, **point: int) -> Step | None:
        """Run up to and with the next statement that `target` names: that statement, or None where the program ended before.

        A target is a tensor's name ("h", or "h|1" for a branch), a line of the user's ("train.py:12", or 12), or a function of
        the step that says whether to stop. `point` gives steps of the statement's point: `until("h", t=3)`.
        """
        matches = self._program.matcher(target, point)
        return next((step for step in self if matches(step)), None)

    def stop_at(self, target: Target, **point: int) -> None:
        """Set a breakpoint for `go`: a target as in `until`. `session.breakpoints.clear()` removes all."""
        self.breakpoints.append(self._program.matcher(target, point))

    def go(self) -> Step | None:
        """Run to the next breakpoint: the statement there, or None at the end of the program."""
        return next((step for step in self if any(matches(step) for matches in self.breakpoints)), None)

    def finish(self) -> R:
        """Run to the end, past all breakpoints: what `run` gives."""
        for _ in self:
            pass
        return self.results

    @property
    def results(self) -> R:
        """What `run` gives, once the program has ended."""
        if not self.finished:
            raise TempoError("the program has not ended", hint="session.finish() runs it to its end")
        return self._results(self._state.results)

    # -- looking ------------------------------------------------------------------------------------------------------

    def value(self, name: str, **point: int) -> np.ndarray[Any, Any]:
        """A tensor's value at a point: `session.value("w", i=3)`. Steps that are not given are those of the current statement.

        Raises ArgumentError for a tensor or a point that does not exist, or whose value is not there: not yet, or not any more.
        """
        here = {} if self.current is None else {**self.current.loops, **self.current.point}
        if name in self._fed:
            return self._input(name, point)
        nodes = self._program.named(name, point)
        for node in nodes:
            at = {**here, **point}
            steps = node.domain.steps
            coordinates = tuple(at.get(step.name, -1) for step in steps)
            for output in self._program.outputs(node, name):
                held = self._state.stores.values.get((node.id, output), {})
                if coordinates in held:
                    return np.asarray(self._state.stores.backend.to_host(held[coordinates]))
        node = nodes[0]
        wanted = _at(node, [str({**here, **point}.get(step.name, "?")) for step in node.domain.steps])
        points = [_at(node, list(map(str, at))) for at in sorted(self._state.stores.values.get((node.id, 0), {}))]
        hint = f"kept now: {', '.join(points[-5:])}" if points else "nothing of it is kept now"
        raise ArgumentError(f"`{name}`{f' at {wanted}' if wanted else ''} is not there: not yet, or not any more", hint=hint)

    def _input(self, name: str, point: Mapping[str, int]) -> np.ndarray[Any, Any]:
        """A fed array, or its values at the steps that are given."""
        array, steps = self._fed[name]
        known = [step.name for step in steps]
        for step in point:
            if step not in known:
                raise ArgumentError(f"the input `{name}` has the steps ({', '.join(known)}), not {step}")
        index = tuple(point.get(step, slice(None)) for step in known)
        try:
            return np.asarray(array)[index]
        except IndexError:
            given = ", ".join(f"{step} = {value}" for step, value in point.items())
            raise ArgumentError(f"the input `{name}` does not exist at {given}") from None

    @property
    def where(self) -> str:
        """The program's loops and statements: `>` before the current one, the counters' values, the user's line."""
        return self._program.text(self.current)

    def __str__(self) -> str:
        return self.where

    def __repr__(self) -> str:
        last = "finished" if self.finished else f"at {self.current.statement}" if self.current is not None else "not begun"
        return f"<Session: {self.steps} statements run, {last}>"


class _Listing:
    """A program's statements: their names, their lines, and what they read."""

    def __init__(self, scheduled: Scheduled, branch_lines: BranchLines):
        self.graph: Graph = scheduled.graph
        self.bounds, self.root, self.branch_lines = scheduled.bounds, scheduled.root, branch_lines
        naming = Naming(scheduled.graph)
        self.labels, self.values = naming.statements(), naming.values()

    def names(self, node: Node) -> tuple[str, ...]:
        """All that a node answers to: its own name, its statements', its values', and those of the tensors in an island."""
        values = (self.values.get((node.id, k), "") for k in range(len(node.outputs)))
        return (node.name, self.labels[node.id], *values, *node.name.split(", "))

    def outputs(self, node: Node, name: str) -> list[int]:
        """The outputs of a node that a name means: those called so, or all of them where the name is the node's."""
        every = range(len(node.outputs))
        exact = [k for k in every if self.values.get((node.id, k)) == name]
        return exact or (list(every) if name in (node.name, self.labels[node.id]) else [])

    def where(self, node: Node, branch: int | None) -> str:
        assigned = self.branch_lines.get((node.name, node.where), ())
        exact = branch is not None and len(assigned) == len(node.inputs)
        return assigned[branch] if exact and branch is not None else node.where

    def shown(self, node: Node) -> str:
        """How a node's values are labels: as its statements are, an input by its own name."""
        return node.name if isinstance(node.op, ops.Input) else self.labels[node.id]

    def read(self, edge: Edge, env: Mapping[Symbol, int]) -> str:
        """How an edge reads its source at a point: `x[0:3]`."""
        source, values = self.graph[edge.source], {**self.bounds, **env}
        name = self.shown(source)
        parts = []
        for index in edge.index:
            if isinstance(index, Point):
                parts.append(str(index.expr.evaluate(values)))
            else:
                stride = f":{index.stride}" if index.stride != 1 else ""
                parts.append(f"{index.start.evaluate(values)}:{index.stop.evaluate(values)}{stride}")
        output = f".{edge.output}" if len(source.outputs) > 1 else ""
        return f"{name}{output}" + (f"[{', '.join(parts)}]" if parts else "")

    def text(self, current: Step | None) -> str:
        place, shown = 0, []
        rows = list(lines(self.root, self.labels))
        width = max((len(line) for _, line in rows), default=0)
        for item, line in rows:
            inside = sum(isinstance(leaf, Execute) for leaf in leaves(item)) if isinstance(item, (Loop, Execute)) else 0
            marker, note = " ", ""
            if current is not None and place <= current.place < place + inside:
                if isinstance(item, Loop):
                    note = f"{item.counter} = {current.loops[item.counter.name]}"
                else:
                    marker, note = ">", _short(current.where)
            place += isinstance(item, Execute)
            shown.append(f"{marker} {line:<{width}}  {note}".rstrip())
        return "\n".join(shown)

    # -- what the user names ------------------------------------------------------------------------------------------

    def named(self, name: str, point: Mapping[str, int]) -> list[Node]:
        """The nodes that a name means, those whose domain has the point's steps; recurrences first, then the latest.

        Fused ones come last: the name of one of their operations is theirs too.
        """
        known = [n for n in self.graph if name in self.names(n)]
        if not known:
            raise self._unknown(name, [n.name for n in self.graph if n.name])
        found = [n for n in known if set(point) <= {s.name for s in n.domain.steps}]
        if not found:
            domains = " or ".join(sorted({f"({', '.join(s.name for s in n.domain.steps)})" for n in known}))
            raise ArgumentError(f"`{name}` has the steps {domains}, not {', '.join(point)}")
        return sorted(
            found,
            key=lambda n: (not isinstance(n.op, ops.Merge), self.labels[n.id] != name, isinstance(n.op, ops.Dataflow), -n.id),
        )

    def matcher(self, target: Target, point: Mapping[str, int]) -> Callable[[Step], bool]:
        """Whether a step is what a target and a point mean. Raises ArgumentError for a target that no statement has."""
        if callable(target):
            wanted: Callable[[Step], Any] = target
        elif isinstance(target, int) or target.rpartition(":")[2].isdigit():
            wanted = self._line_matcher(str(target))
        else:
            wanted = self._name_matcher(target)
        return lambda step: bool(wanted(step)) and all(step.point.get(name) == value for name, value in point.items())

    def _statements(self) -> list[tuple[Node, int | None]]:
        found = [(self.graph[item.node], item.branch) for item, _ in lines(self.root, self.labels) if isinstance(item, Execute)]
        return list(dict.fromkeys(found))

    def _line_matcher(self, target: str) -> Callable[[Step], bool]:
        known = sorted({self.where(node, branch) for node, branch in self._statements()} - {""})

        def matches(where: str) -> bool:
            return where == target or where.endswith((f"/{target}", f":{target}"))

        if not any(map(matches, known)):
            raise ArgumentError(
                f"no statement is of line {target}", hint=f"statements are of {', '.join(map(_short, known[:8]))}"
            )
        return lambda step: matches(step.where)

    def _name_matcher(self, target: str) -> Callable[[Step], bool]:
        def of(node: Node, branch: int | None) -> tuple[str, ...]:
            own = self.names(node)
            return own if branch is None else (*own, f"{self.labels[node.id]}|{branch}")

        known = {name for node, branch in self._statements() for name in of(node, branch) if name}
        if target not in known:
            raise self._unknown(target, sorted(known))
        return lambda step: target in of(step._ran.node, step._ran.branch)

    def _unknown(self, name: str, known: Sequence[str]) -> ArgumentError:
        near = difflib.get_close_matches(name, known, 1)
        where = f"did you mean `{near[0]}`? " if near else ""
        return ArgumentError(
            f"no statement is called `{name}`",
            hint=f"{where}passes rename and remove statements: program.stepping(inputs, as_written=True) has those that you wrote",
        )


def _at(node: Node, values: Sequence[str]) -> str:
    return ", ".join(f"{step.name} = {value}" for step, value in zip(node.domain.steps, values, strict=True))


def _short(where: str) -> str:
    """`program.py:12`, from the working directory."""
    return where.removeprefix(os.getcwd() + os.sep)


def _operation(node: Node, branch: int | None) -> str:
    op = node.op
    if isinstance(op, ops.Merge):
        return f"branch {branch}"
    if isinstance(op, ops.Udf):
        return f"fed by `{op.name}`" if isinstance(op.fn, Fed) else f"function `{op.name}`"
    if isinstance(op, ops.Sink):
        return f"sink `{op.name}`"
    if isinstance(op, ops.Output):
        return f"output {op.position}"
    if isinstance(op, ops.Dataflow):
        return "fused: " + ", ".join(short_name(inner) for inner, _, _ in op.body.instructions)
    return short_name(op) if isinstance(op, (ops.Unary, ops.Binary, ops.Compare)) else op_text(op)


# -- values -----------------------------------------------------------------------------------------------------------

SHOWN = 8  # elements of a value that is shown whole


def value_text(value: Any) -> str:
    """A value on one line: all of a small one, the range of a large one."""
    if isinstance(value, list):
        return f"{len(value)} values of different shapes"
    array = np.asarray(value)
    type = f"{array.dtype}[{', '.join(map(str, array.shape))}]"
    if array.size <= SHOWN:
        return f"{type}  {' '.join(np.array2string(array, precision=4, separator=', ').split())}"
    numbers = array.astype(np.float64)
    finite = numbers[np.isfinite(numbers)]
    wrong = f", {array.size - finite.size} not finite" if finite.size < array.size else ""
    if not finite.size:
        return f"{type}  none finite"
    return f"{type}  {finite.min():.4g} to {finite.max():.4g}, mean {finite.mean():.4g}{wrong}"
