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
from tempo_core.ir.graph_text import op_text
from tempo_core.ir.names.naming import Naming
from tempo_core.ir.udf import Fed
from tempo_core.report.graphs.picture import short_name
from tempo_core.runtime.feeds import Feeds
from tempo_core.runtime.interpreted.interpreter import Executed, Interpreter
from tempo_core.schedule import Execute, Loop, Scheduled, leaves
from tempo_core.schedule.tree import lines
from tempo_core.symbolic.domain import Point
from tempo_core.symbolic.expr import Symbol

BranchLines = Mapping[tuple[str, str], Sequence[str]]  # (name, line) of a recurrence: the lines that assign its branches
Target = Union[str, int, Callable[["Step"], Any]]
Array = np.ndarray[Any, np.dtype[Any]]
R = TypeVar("R", covariant=True)  # the results of a run


class Step:
    """A statement that ran: number `number` of its session. `str(step)` shows all about it, for a terminal."""

    def __init__(self, number: int, ran: Executed, program: _Listing):
        self.number, self._ran, self._program = number, ran, program

    @property
    def statement(self) -> str:
        """The statement as in the program's text, at this point: `h|1[3]`."""
        return self._ran.statement

    @property
    def name(self) -> str:
        """The user's name of the tensor; the program's own name if the user gave none."""
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
        """The operation: `tanh`, `branch 1 of h`, `fused: mul, add, tanh`."""
        return _operation(self._ran.node, self._ran.branch)

    @property
    def where(self) -> str:
        """The user's line, as `file:line`."""
        return self._program.where(self._ran.node, self._ran.branch)

    @property
    def values(self) -> tuple[Array, ...]:
        """The values that the statement gave; none for an output or a sink."""
        return () if isinstance(self._ran.node.op, ops.Output) else self._ran.values

    @property
    def operands(self) -> dict[str, Array]:
        """The values that the statement read, by the text of each read: `{"h[2]": ..., "x[0:3]": ...}`."""
        node = self._ran.node
        env = dict(zip(node.domain.steps, self._ran.point, strict=True))
        labels = [self._program.read(edge, env) for edge in node.operands(self._ran.branch)]
        return dict(zip(labels, self._ran.operands, strict=True))

    @property
    def place(self) -> int:
        """The statement's number in the program's text."""
        return self._ran.place

    def __str__(self) -> str:
        at = f"[{', '.join(map(str, self._ran.point))}]" if self._ran.point else ""
        node_label = self._program.shown(self._ran.node)
        labels = [f"{node_label}{f'.{k}' if len(self.values) > 1 else ''}{at}" for k in range(len(self.values))]
        rows = [("reads", label, value) for label, value in self.operands.items()]
        rows += [("gives", label, value) for label, value in zip(labels, self.values, strict=True)]
        width = max((len(label) for _, label, _ in rows), default=0)
        loops = ", ".join(f"{name} = {value}" for name, value in self.loops.items())
        head = f"{self.number:>4}  {self.statement}  {self.operation}" + (f"  ({loops})" if loops else "")
        shown = [head, f"      at     {quoted(self.where)}" if self.where else ""]
        shown += [f"      {kind}  {label:<{width}}  {value_text(value)}" for kind, label, value in rows]
        return "\n".join(filter(None, shown))

    def __repr__(self) -> str:
        return f"<Step {self.number}: {self.statement}>"


class Session(Generic[R]):
    """A run that stops after each statement: `for step in session: print(step)`.

    `next(session)` runs one statement, `until` and `go` run many, and `value` looks at tensors.
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
        """Run one statement. Raises StopIteration at the end. An error of the statement is raised too, and ends the session."""
        try:
            ran = next(self._running)
        except StopIteration:
            self.finished = True
            raise
        self.steps += 1
        self.current = Step(self.steps, ran, self._program)
        return self.current

    def next(self, count: int = 1) -> Step | None:
        """Run `count` statements. Returns the last of them, or None if the program ended before."""
        step = None
        for _ in range(count):
            step = next(self, None)
        return step

    def until(self, target: Target, **point: int) -> Step | None:
        """Run up to the next statement that `target` names, and run it too. Returns it, or None if the program ended before.

        A target is a tensor's name ("h", or "h|1" for a branch), a line of the user's ("train.py:12", or 12), or a function of
        the step that says whether to stop. `point` gives steps of the statement's point: `until("h", t=3)`.
        """
        matches = self._program.matcher(target, point)
        return next((step for step in self if matches(step)), None)

    def stop_at(self, target: Target, **point: int) -> None:
        """Set a breakpoint for `go`: a target as in `until`. `session.breakpoints.clear()` removes all."""
        self.breakpoints.append(self._program.matcher(target, point))

    def go(self) -> Step | None:
        """Run to the next breakpoint. Returns the statement there, or None at the end of the program."""
        return next((step for step in self if any(matches(step) for matches in self.breakpoints)), None)

    def finish(self) -> R:
        """Run to the end, past all breakpoints. Returns the results, in the form in which `run` gives them."""
        for _ in self:
            pass
        return self.results

    @property
    def results(self) -> R:
        """The results of the run, in the form in which `run` gives them. Raises TempoError before the program has ended."""
        if not self.finished:
            raise TempoError("the program has not ended", hint="run it to its end: session.finish()")
        return self._results(self._state.results)

    # -- looking ------------------------------------------------------------------------------------------------------

    def value(self, name: str, **point: int) -> np.ndarray[Any, Any]:
        """A tensor's value at a point: `session.value("w", i=3)`. Steps that are left out have their value at the current statement.

        Raises ArgumentError if the tensor or the point does not exist, or if its value is not there: not yet, or not any more.
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
                values = self._state.stores.values.get((node.id, output), {})
                if coordinates in values:
                    return np.asarray(self._state.stores.backend.to_host(values[coordinates]))
        node = nodes[0]
        place = _at(node, [str({**here, **point}.get(step.name, "?")) for step in node.domain.steps])
        points = [_at(node, list(map(str, at))) for at in sorted(self._state.stores.values.get((node.id, 0), {}))]
        hint = f"its values now: {', '.join(points[-5:])}" if points else "it has no values now"
        raise ArgumentError(
            f"`{name}`{f' at {place}' if place else ''} has no value now: it is not computed yet, or not kept any more", hint=hint
        )

    def _input(self, name: str, point: Mapping[str, int]) -> np.ndarray[Any, Any]:
        """A fed array, or its values at the steps in `point`."""
        array, steps = self._fed[name]
        names = [step.name for step in steps]
        for step in point:
            if step not in names:
                raise ArgumentError(f"the input `{name}` has the steps ({', '.join(names)}), not {step}")
        index = tuple(point.get(step, slice(None)) for step in names)
        try:
            return np.asarray(array)[index]
        except IndexError:
            place = ", ".join(f"{step} = {value}" for step, value in point.items())
            raise ArgumentError(f"the input `{name}` does not exist at {place}") from None

    @property
    def where(self) -> str:
        """The program's loops and statements, with `>` before the current statement, the values of counters, and the user's line."""
        return self._program.text(self.current)

    def __str__(self) -> str:
        return self.where

    def __repr__(self) -> str:
        last = "finished" if self.finished else f"at {self.current.statement}" if self.current is not None else "not begun"
        return f"<Session: {self.steps} statements run, {last}>"


class _Listing:
    """A program's statements: their names, their lines, and their reads."""

    def __init__(self, scheduled: Scheduled, branch_lines: BranchLines):
        self.graph: Graph = scheduled.graph
        self.bounds, self.root, self.branch_lines = scheduled.bounds, scheduled.root, branch_lines
        naming = Naming(scheduled.graph)
        self.labels, self.values = naming.statements(), naming.values()

    def names(self, node: Node) -> tuple[str, ...]:
        """All names of a node: its own name, those of its statements and values, and those of the tensors in an island."""
        values = (self.values.get((node.id, k), "") for k in range(len(node.outputs)))
        return (node.name, self.labels[node.id], *values, *node.name.split(", "))

    def outputs(self, node: Node, name: str) -> list[int]:
        """The outputs of a node that a name means: the outputs with that name, or all outputs if it is the node's name."""
        every = range(len(node.outputs))
        exact = [k for k in every if self.values.get((node.id, k)) == name]
        return exact or (list(every) if name in (node.name, self.labels[node.id]) else [])

    def where(self, node: Node, branch: int | None) -> str:
        assigned = self.branch_lines.get((node.name, node.where), ())
        exact = branch is not None and len(assigned) == len(node.inputs)
        return assigned[branch] if exact and branch is not None else node.where

    def shown(self, node: Node) -> str:
        """The name of a node's values in labels: that of its statements; for an input, its own name."""
        return node.name if isinstance(node.op, ops.Input) else self.labels[node.id]

    def read(self, edge: Edge, env: Mapping[Symbol, int]) -> str:
        """The text of a read at a point: `x[0:3]`."""
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

    # -- names of the user --------------------------------------------------------------------------------------------

    def named(self, name: str, point: Mapping[str, int]) -> list[Node]:
        """The nodes that a name means and whose domain has the point's steps: recurrences first, then the latest.

        Islands come last: they have the names of all their operations.
        """
        candidates = [n for n in self.graph if name in self.names(n)]
        if not candidates:
            raise self._unknown(name, [n.name for n in self.graph if n.name])
        nodes = [n for n in candidates if set(point) <= {s.name for s in n.domain.steps}]
        if not nodes:
            domains = " or ".join(sorted({f"({', '.join(s.name for s in n.domain.steps)})" for n in candidates}))
            raise ArgumentError(f"`{name}` has the steps {domains}, not {', '.join(point)}")
        return sorted(
            nodes,
            key=lambda n: (not isinstance(n.op, ops.Merge), self.labels[n.id] != name, isinstance(n.op, ops.Dataflow), -n.id),
        )

    def matcher(self, target: Target, point: Mapping[str, int]) -> Callable[[Step], bool]:
        """A function that says whether a step fits a target and a point. Raises ArgumentError for one that no statement fits."""
        steps = list(dict.fromkeys(step.name for node, _ in self._statements() for step in node.domain.steps))
        for name in point:
            if name not in steps:
                raise ArgumentError(f"no statement has a step `{name}`", hint=f"the steps are {', '.join(steps) or 'none'}")
        if callable(target):
            fits: Callable[[Step], Any] = target
        elif isinstance(target, int) or target.rpartition(":")[2].isdigit():
            fits = self._line_matcher(str(target))
        else:
            fits = self._name_matcher(target)
        return lambda step: bool(fits(step)) and all(step.point.get(name) == value for name, value in point.items())

    def _statements(self) -> list[tuple[Node, int | None]]:
        statements = [
            (self.graph[item.node], item.branch) for item, _ in lines(self.root, self.labels) if isinstance(item, Execute)
        ]
        return list(dict.fromkeys(statements))

    def _line_matcher(self, target: str) -> Callable[[Step], bool]:
        places = sorted({self.where(node, branch) for node, branch in self._statements()} - {""})

        def matches(where: str) -> bool:
            return where == target or where.endswith((f"/{target}", f":{target}"))

        if not any(map(matches, places)):
            raise ArgumentError(
                f"no statement is on line {target}", hint=f"statements are on {', '.join(map(_short, places[:8]))}"
            )
        return lambda step: matches(step.where)

    def _name_matcher(self, target: str) -> Callable[[Step], bool]:
        def of(node: Node, branch: int | None) -> tuple[str, ...]:
            names = self.names(node)
            return names if branch is None else (*names, f"{self.labels[node.id]}|{branch}")

        all_names = {name for node, branch in self._statements() for name in of(node, branch) if name}
        if target not in all_names:
            raise self._unknown(target, sorted(all_names))
        return lambda step: target in of(step._ran.node, step._ran.branch)

    def _unknown(self, name: str, names: Sequence[str]) -> ArgumentError:
        near = difflib.get_close_matches(name, names, 1)
        where = f"did you mean `{near[0]}`? " if near else ""
        return ArgumentError(
            f"no statement is called `{name}`",
            hint=f"{where}passes rename and remove statements. To see those that you wrote: program.stepping(inputs, as_written=True)",
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
        return "fused: " + ", ".join(map(short_name, op.parts))
    return short_name(op) if isinstance(op, (ops.Unary, ops.Binary, ops.Compare)) else op_text(op)


# -- values -----------------------------------------------------------------------------------------------------------

SHOWN = 8  # values of up to so many elements are shown whole


def value_text(value: Any) -> str:
    """A value on one line: all elements of a small value, the range of a large one."""
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
