"""The costs of a scheduled program: how often each statement runs, what one execution moves, and what lives at a time."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from tempo_core.ir import ops
from tempo_core.ir.graph import Edge, Key, Node
from tempo_core.ir.names.naming import names
from tempo_core.ir.ops import Dataflowed, Merge, Output, Sink, Udf
from tempo_core.runtime.cost.cost import Cost, NoTranslation, StatementCost, Translation
from tempo_core.runtime.cost.kernels import PRICED, ZERO, Island, Kernels, Reading, Value, bytes_of, largest
from tempo_core.runtime.lower.lower import selections
from tempo_core.runtime.staged.stage import Staged
from tempo_core.schedule import Execute, If, Scheduled
from tempo_core.schedule.constraints import at_capacity, constraints_of
from tempo_core.schedule.slots import symbolic_slots
from tempo_core.schedule.tree import walk, with_loops
from tempo_core.symbolic.condition import TRUE
from tempo_core.symbolic.expr import Bounds, Expr, Symbol
from tempo_core.symbolic.isl.counting import Count, summed

Statement = tuple[int, int | None]  # a node, and for a `Merge` its branch


def cost_of(scheduled: Scheduled, staged: Staged | None, in_numbers: bool = False) -> Cost:
    """The costs of a program; `staged` if it runs as XLA programs. If they are asked for `in_numbers` alone, all polynomials are zero."""
    return _Counting(scheduled, staged, in_numbers).cost()


def costs_of_runs(scheduled: Scheduled, staged: Staged | None, lengths: Mapping[Symbol, Symbol]) -> Callable[[Bounds], Cost]:
    """The costs in numbers of runs that choose bounds, as a function of the capacities and of the chosen bounds.

    `lengths` are the chosen bounds by the steps of which a run takes one point. The program is counted once.
    """
    counting = _Counting(scheduled, staged, True, lengths)

    def costs(bounds: Bounds) -> Cost:
        numbers = {bound: n for bound, n in scheduled.bounds.items() if bound not in scheduled.graph.derived}
        counting.bounds = scheduled.graph.all_bounds({**numbers, **bounds})
        return counting.cost()

    return costs


@dataclass(frozen=True)
class _Place:
    """An `Execute` of the tree, its number in program order, and whether it is a selection: it runs wherever its loop runs."""

    execute: Execute
    number: int
    is_selection: bool

    @property
    def statement(self) -> Statement:
        return self.execute.node, self.execute.branch


class _Counting:
    def __init__(
        self,
        scheduled: Scheduled,
        staged: Staged | None,
        in_numbers: bool = False,
        lengths: Mapping[Symbol, Symbol] = MappingProxyType({}),
    ):
        """`lengths` are the chosen bounds of a run, by the steps of which it takes one point: by default their own bounds."""
        self.scheduled, self.graph, self.lengths = scheduled, scheduled.graph, lengths
        self.bounds = {**scheduled.bounds, **{bound: scheduled.bounds[step.bound_symbol] for step, bound in lengths.items()}}
        is_for_one = in_numbers and not lengths
        self.slots = _slots(scheduled) if is_for_one else symbolic_slots(scheduled.schedule, scheduled.bounds, scheduled.storage)
        self.reading = Reading(scheduled, self.slots, None if staged is None else staged.lowering)
        self.stored = {key for key, store in scheduled.storage.items() if store.size > 1}
        self.stored |= set() if staged is None else set(staged.store_keys) & set(scheduled.storage)
        self.is_staged = staged is not None
        selected = {id(child) for item in walk(scheduled.root) if staged and isinstance(item, If) for child in selections(item)}
        self.places: list[_Place] = []
        loops: dict[int, tuple[int, int]] = {}  # the numbers of the first statement in each loop, and of the one after it
        for number, (execute, around) in enumerate(with_loops(scheduled.root)):
            self.places.append(_Place(execute, number, id(execute) in selected))
            loops |= {id(loop): (loops.get(id(loop), (number, 0))[0], number + 1) for loop in around}
        self.loops = list(loops.values())
        statements = constraints_of(self.graph).statements.values()
        ends = {step: bound.expr - 1 for step, bound in lengths.items()}
        self.points = {(s.node.id, s.branch): at_capacity(s, self.graph, ends) for s in statements}
        self.times: dict[tuple[Statement, Expr], Count] = {}
        self.translation = NoTranslation() if in_numbers else Translation(self.graph.derived)

    # -- statements ---------------------------------------------------------------------------------------------------

    @functools.cached_property
    def selections(self) -> set[Statement]:
        return {place.statement for place in self.places if place.is_selection}

    @functools.cached_property
    def statements(self) -> dict[Statement, Kernels]:
        return {place.statement: self._kernels(place.statement, self.selections) for place in self.places}

    def cost(self) -> Cost:
        labels, selections, statements = names(self.graph), self.selections, self.statements
        rows = []
        for statement, kernels in statements.items():
            node, branch = statement
            name = labels[node] + ("" if branch is None else f"|{branch}")
            rows.append(self._row(name, statement, kernels, statement in selections))
        stores = sum((self._bytes(key) for key in sorted(self.stored)), ZERO)
        temporaries = self._temporaries(statements)
        figures = {
            "executions": self.translation.sum(row.times for row in rows),
            "operations": self.translation.sum(row.operations for row in rows),
            "bytes_read": self.translation.sum(row.bytes_read for row in rows),
            "bytes_written": self.translation.sum(row.bytes_written for row in rows),
            "stores": self.translation.sum([self.translation.of(stores)]),
            "temporaries": self.translation.most(temporaries),
        }
        numbers: dict[str, Fraction] = {
            figure: Fraction(sum(row.numbers[figure] for row in rows)) for figure in ("operations", "bytes_read", "bytes_written")
        }
        numbers["executions"] = Fraction(sum(row.numbers["times"] for row in rows))
        numbers["stores"], numbers["temporaries"] = Fraction(stores.evaluate(self.bounds)), _most(temporaries, self.bounds)
        return Cost(**figures, by_statement=tuple(rows), numbers=_numbers(numbers))

    def _row(self, name: str, statement: Statement, kernels: Kernels, is_selection: bool) -> StatementCost:
        of, at = self.translation, self.bounds
        times = self._times(statement, is_selection, Expr.of(1))
        executions = of.count(times)
        sums: dict[str, Any] = {"times": executions}
        numbers: dict[str, Fraction] = {"times": times.evaluate(at)}
        is_exact = times.is_exact
        for figure, each in kernels.sums.items():
            if each.steps:  # shapes that vary: the sum over the points
                over = self._times(statement, is_selection, each)
                sums[figure], numbers[figure], is_exact = of.count(over), over.evaluate(at), is_exact and over.is_exact
            else:
                sums[figure], numbers[figure] = of.sum([executions * of.of(each)]), numbers["times"] * each.evaluate(at)
        for number, size in kernels.sorts:
            sums["operations"] += executions * of.of(number) * of.logarithm(size)
            numbers["operations"] += numbers["times"] * number.evaluate(at) * Fraction(math.log2(max(size.evaluate(at), 1)))
        sums["temporaries"], numbers["temporaries"] = of.most(kernels.alive), _most(kernels.alive, at)
        shown = {figure: value for figure, value in sums.items() if figure not in PRICED}
        return StatementCost(name, **shown, is_exact=is_exact, numbers=_numbers(numbers))

    def _times(self, statement: Statement, is_selection: bool, each: Expr) -> Count:
        """The sum of an expression over the executions of a statement."""
        if (statement, each) not in self.times:
            self.times[statement, each] = self._new_times(statement, is_selection, each)
        return self.times[statement, each]

    def _new_times(self, statement: Statement, is_selection: bool, each: Expr) -> Count:
        node = self.graph[statement[0]]
        lengths = {step.bound_symbol: bound.expr for step, bound in self.lengths.items()}
        box = Expr.of(1)
        for step in node.domain.steps:
            size = self.graph.derived.get(step.bound_symbol, step.bound_expr).substitute(lengths)
            box = box * size if step not in self.graph.chosen else box
        if not each.steps and (is_selection or (statement[1] is None and node.domain.condition is TRUE)):
            return Count(each * box, 1, not is_selection)
        return summed(self.points[statement], node.domain.steps, each, self.bounds)

    def _kernels(self, statement: Statement, selections: set[Statement]) -> Kernels:
        """One execution of a statement. Where shapes vary, its costs are expressions of the statement's own steps."""
        node, branch = self.graph[statement[0]], statement[1]
        kernels = Kernels()
        operands = [self.reading.read(edge, kernels) for edge in node.operands(branch)]
        if isinstance(node.op, Merge):
            self._move(node, operands[0], kernels, statement in selections)
        elif isinstance(node.op, (Output, Sink)):
            for edge, operand in zip(node.inputs, operands, strict=True):
                if not (operand.in_memory and self._is_result(node, edge)):
                    kernels.move(operand.reads, operand.bytes)
        else:
            Island(Dataflowed.of(node.op, self.graph.input_types(node), node.outputs), operands).count(kernels)
            if isinstance(node.op, Udf) and node.op.kind == "host":  # its results are put where they belong
                kernels.move({}, sum(map(bytes_of, node.outputs), ZERO))
        own = node.domain.steps  # values of varying shape that a range reads have other steps
        for figure, each in kernels.sums.items():
            kernels.sums[figure] = size_at_an_end(each, self.bounds, own)
        kernels.sorts = [(size_at_an_end(n, self.bounds), size_at_an_end(size, self.bounds)) for n, size in kernels.sorts]
        kernels.alive = largest([size_at_an_end(size, self.bounds) for size in kernels.alive], self.bounds)
        return kernels

    def _move(self, node: Node, operand: Value, kernels: Kernels, is_selection: bool) -> None:
        """A branch of a recurrence. A value that one register hands to another takes the other's place."""
        size = bytes_of(node.outputs[0])
        if is_selection:
            kernels.move({**operand.reads, "present": size}, size)
            kernels.compute(ops.Where(), (node.outputs[0],), (node.outputs[0],))
        elif not operand.in_memory or self.scheduled.storage[node.id, 0].size > 1:
            kernels.move(operand.reads, size)

    def _is_result(self, node: Node, edge: Edge) -> bool:
        """Whether a read gives a value in no store to the caller: the value itself, without a copy, is the result."""
        key = (edge.source, edge.output)
        return isinstance(node.op, Output) and key in self.scheduled.storage and key not in self.stored

    # -- memory -------------------------------------------------------------------------------------------------------

    def _bytes(self, key: Key) -> Expr:
        """The bytes of a store, or of a value that lives in no store."""
        type = self.graph[key[0]].outputs[key[1]]
        size = bytes_of(type)
        return functools.reduce(operator.mul, self.slots[key], size_at_an_end(size, self.bounds))

    def _temporaries(self, statements: dict[Statement, Kernels]) -> list[Expr]:
        """The bytes of values in no store, at the places of the program where they are the most."""
        first: dict[Key, int] = {}
        last: dict[Key, int] = {}
        early: dict[Key, int] = {}  # the first place that reads a value
        results: set[Key] = set()  # they are the caller's
        for place in self.places:
            node = self.graph[place.execute.node]
            for key in ((e.source, e.output) for e in node.operands(place.execute.branch)):
                results |= {key} if isinstance(node.op, Output) else set()
                early.setdefault(key, place.number)
                last[key] = max(last.get(key, 0), place.number)
            for output in range(len(node.outputs)):
                key = (node.id, output)
                first.setdefault(key, place.number)
                last[key] = max(last.get(key, 0), place.number)
        spans: dict[Key, tuple[int, int]] = {}
        for key, start in first.items():
            if key in self.scheduled.storage and key not in self.stored | results:
                begin, end = min(start, early.get(key, start)), last[key]
                for low, high in self.loops:  # the inner loops last
                    enters = begin < low <= end < high  # from before the loop, into it: until the loop's end
                    leaves = low <= begin < high <= end or (low <= begin and end < high and early.get(key, end) <= start)
                    begin, end = (begin, high - 1) if enters else (low, max(end, high - 1)) if leaves else (begin, end)
                spans[key] = (begin, end)
        sizes = {key: self._bytes(key) for key in spans}
        peaks = []
        for place in self.places:
            alive = sum((sizes[key] for key, (begin, end) in spans.items() if begin <= place.number <= end), ZERO)
            peaks += [alive + each for each in statements[place.statement].alive or [ZERO]]
        return largest([peak for peak in peaks if peak != 0], self.bounds)


def _slots(scheduled: Scheduled) -> dict[Key, tuple[Expr, ...]]:
    """The slots of stores, at the bounds of the program."""
    return {key: tuple(map(Expr.of, store.slots)) for key, store in scheduled.storage.items()}


def _most(sizes: Sequence[Expr], bounds: Mapping[Symbol, int]) -> Fraction:
    return Fraction(max((size.evaluate(bounds) for size in sizes), default=0))


def _numbers(figures: Mapping[str, Fraction]) -> dict[str, int]:
    """Whole numbers; upper bounds are rounded up."""
    numbers = {name: math.ceil(value) for name, value in figures.items()}
    return numbers | {"bytes_moved": numbers["bytes_read"] + numbers["bytes_written"]}


def size_at_an_end(size: Expr, bounds: Mapping[Symbol, int], but: Sequence[Symbol] = ()) -> Expr:
    """A size that varies with steps, at the end of their ranges at which it is larger. It may still vary with the steps in `but`."""
    for step in sorted(size.steps - set(but), key=str):
        ends = [size.substitute({step: end}) for end in (Expr.of(0), step.bound_expr - 1)]
        size = max(ends, key=lambda end: end.evaluate({**bounds, **{s: bounds[s.bound_symbol] - 1 for s in end.steps}}))
    return size
