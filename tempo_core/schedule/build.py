"""From a schedule to a program, for bounds that are numbers: a tree of loops, conditions and statements.

Plain loops and sequences are built here. isl's AST builder makes the rest: one loop for each band of time, with conditions
inside. A loop that guards a statement by the loop's counter is then cut into prologue, steady state and epilogue. Branches of a
`Merge` and `Dealloc` may stay under their `If`.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import islpy as isl

from tempo_core.errors import CausalityError, NonAffineError
from tempo_core.ir.graph import Graph
from tempo_core.prices import MOST_COMBINED, copy_weight
from tempo_core.schedule import tree as code
from tempo_core.schedule.constraints import Statement
from tempo_core.schedule.lifetimes import Lifetimes
from tempo_core.schedule.loop_parts import Cuts, begun, cut, rotated
from tempo_core.schedule.memory import with_deallocs
from tempo_core.schedule.polyhedral import Schedule
from tempo_core.schedule.storage import Storage
from tempo_core.schedule.tidy import Limits, inside_limits, simplified, tightened
from tempo_core.symbolic.condition import FALSE, TRUE, Bool, conjunction
from tempo_core.symbolic.domain import Range
from tempo_core.symbolic.expr import Expr, Symbol
from tempo_core.symbolic.isl.sets import CONTEXT
from tempo_core.symbolic.isl.translate import condition_from_ast, condition_within, expression_from_ast


def build_program(
    schedule: Schedule,
    bounds: Mapping[Symbol, int],
    storage: Mapping[tuple[int, int], Storage] | None = None,
    least: Mapping[Symbol, int] | None = None,
) -> code.Block:
    """The program that runs all points of all statements in the order of the schedule, for these bounds.

    With a `storage`, the program also frees the values of outputs with several slots. `least` are the least bounds of a run, 1 where there is none.
    """
    lifetimes = Lifetimes(schedule, bounds)
    times = lifetimes.theta if storage is None else with_deallocs(lifetimes, storage)
    present = {n: time for n, time in times.items() if not time.is_empty()}  # small bounds may leave a branch without points
    if not present:
        return code.Block()
    graph = schedule.constraints.graph
    lows = {step: (least or {}).get(step.bound_symbol, 1) - 1 for step in graph.chosen}
    limits: Limits = {chosen_value(step): (low, bounds[step.bound_symbol] - 1) for step, low in lows.items()}
    if len(times) > len(lifetimes.theta):
        root: code.Item = _in_sequence(present, 0, _Conversion(schedule.constraints.statements))
    else:
        root = _Loops(schedule, present, bounds, lows).item(present, 0, {})
    anew = _anew(graph)
    root = rotated(simplified(tightened(root, limits, anew), limits))
    values = frozenset(chosen_value(step) for step in graph.chosen if step not in graph.ends())

    def weigh(item: code.Item) -> int:
        return sum(copy_weight(graph[leaf.node].op) for leaf in code.leaves(item) if isinstance(leaf, code.Execute))

    updated = frozenset(node.inputs[position].source for node in graph for position in node.op.updated)
    root = cut(root, limits, Cuts(weigh, updated))
    root = simplified(
        tightened(root, limits, anew), limits
    )  # after a cut, the whole body of a loop may stand under one condition
    root = begun(root)
    if values:
        root = tightened(cut(root, limits, Cuts(weigh, updated, values)), limits, anew)
        root = simplified(inside_limits(root, limits), limits)
    check_inner_ends(root, graph)
    if storage is not None:
        root = _batched(root)
    return code.as_block(_named(root, graph, frozenset(value.name for value in limits)))


def _anew(graph: Graph) -> dict[Symbol, frozenset[Symbol]]:
    """By the counter of an outer loop: the inner ends, which are other numbers in each of its iterations."""
    anew: dict[Symbol, frozenset[Symbol]] = {}
    for last, steps in graph.outer().items():
        for step in steps if last in graph.chosen else ():
            count = code.counter(_unnamed(step.name))
            anew[count] = anew.get(count, frozenset()) | {chosen_value(last)}
    return anew


def check_inner_ends(root: code.Item, graph: Graph) -> None:
    """Raise CausalityError if a loop or condition depends on an inner end, and is not at one point of the outer steps."""
    for last, steps in graph.outer().items():
        for item in code.walk(root) if last in graph.chosen else ():
            parts = (
                (item.start, item.stop) if isinstance(item, code.Loop) else (item.condition,) if isinstance(item, code.If) else ()
            )
            if not any(chosen_value(last) in part.symbols for part in parts):
                continue
            point = code.outer_point(item, graph, steps)
            inside = {each.counter for each in code.walk(item) if isinstance(each, code.Loop)}
            if point is None or any(part.symbols & inside for part in point):
                end = graph.ends()[last]
                raise CausalityError(
                    f"the loop that {end.name} ends is not inside of a loop over {', '.join(map(str, steps))}, because of what else reads its values",
                    where=end.where,
                    hint=f"let {steps[-1]} go one way: read x[{steps[-1]} - 1] or x[{steps[-1]}], not later points",
                )


def chosen_value(step: Symbol) -> Symbol:
    """The symbol that stands in a program for the point of a step that a run takes."""
    return code.counter(step.name)


@dataclass(frozen=True)
class _Place:
    """The value of a step inside the loops around: a counter or a number, which lies between `low` and `high`."""

    at: Expr
    low: int
    high: int


class _Loops:
    """The program of a schedule: an entry that is a number makes a sequence, an entry that is a step makes a loop.

    isl builds the rest: groups of statements with times from isl's scheduler. isl could build the whole program, but needs a
    second for the two simple cases.
    """

    def __init__(
        self, schedule: Schedule, times: Mapping[str, isl.Map], bounds: Mapping[Symbol, int], lows: Mapping[Symbol, int]
    ):
        """`lows` are the least points that a run chooses."""
        self.schedule, self.bounds, self.lows = schedule, dict(bounds), lows
        self.statements = schedule.constraints.statements
        self.points = {name: time.domain() for name, time in times.items()}

    def item(self, times: dict[str, isl.Map], entry: int, around: dict[Symbol, _Place]) -> code.Item:
        if entry == self.schedule.depth:
            return code.Block(tuple(self._statement(name, time, around) for name, time in times.items()))
        places: dict[int | None, dict[str, isl.Map]] = {}
        for name, time in times.items():
            value = time.plain_get_val_if_fixed(isl.dim_type.out, entry)
            places.setdefault(None if value.is_nan() else value.to_python(), {})[name] = time
        if None not in places:
            in_order = sorted((place, part) for place, part in places.items() if place is not None)
            return code.Block(tuple(self.item(part, entry + 1, around) for _, part in in_order))
        steps = {self._step(name, entry) for name in times}
        step, way = steps.pop() or (None, 0) if len(steps) == 1 else (None, 0)
        if step is None or step in around:
            return self._by_isl(times, entry, around)
        if step in self.schedule.constraints.graph.chosen:  # no loop: the run says which point
            place = _Place(chosen_value(step).expr, self.lows[step], self.bounds[step.bound_symbol] - 1)
            return self.item(times, entry + 1, {**around, step: place})
        low, high = self._limits(times, step)
        if low == high:
            return self.item(times, entry + 1, {**around, step: _Place(Expr.of(low), low, high)})
        count = code.counter(_unnamed(step.name))
        body = self.item(times, entry + 1, {**around, step: _Place(way * count.expr, low, high)})
        start, stop = (low, high + 1) if way == 1 else (-high, -low + 1)
        return code.Loop(count, Expr.of(start), Expr.of(stop), 1, code.as_block(body))

    def _step(self, name: str, entry: int) -> tuple[Symbol, int] | None:
        """The step that stands at an entry of a statement's time, and 1 or, if it runs backwards, -1. None for any other entry."""
        rows = self.schedule.rows[name]
        if rows is None:
            return None
        for way in (1, -1):
            step = (rows[entry] * way).single_atom
            if isinstance(step, Symbol) and step.is_step:
                return step, way
        return None

    def _limits(self, times: Mapping[str, isl.Map], step: Symbol) -> tuple[int, int]:
        """The least and the greatest value of a step at which a statement runs."""
        lows, highs = [], []
        for name in times:
            k = self.statements[name].node.domain.steps.index(step)
            lows.append(self.points[name].dim_min_val(k).to_python())
            highs.append(self.points[name].dim_max_val(k).to_python())
        return min(lows), max(highs)

    def _statement(self, name: str, time: isl.Map, around: Mapping[Symbol, _Place]) -> code.Item:
        """A statement, under the condition that separates its points from the other points of the loops around."""
        statement, points = self.statements[name], self.points[name]
        steps = statement.node.domain.steps
        fixed_steps = {s: self._fixed(points, k) for k, s in enumerate(steps) if s not in around}
        if None in fixed_steps.values():  # the loops around say which point it is: `i = I - 1`, where the run says what I is
            return self._by_isl({name: time}, self.schedule.depth, around)
        around = {**around, **{step: place for step, place in fixed_steps.items() if place is not None}}
        execute = code.Execute(statement.node.id, statement.branch, tuple(around[s].at for s in steps))
        box = isl.Set.universe(points.get_space())
        for k, step in enumerate(steps):
            box = box.lower_bound_val(isl.dim_type.set, k, isl.Val(around[step].low, CONTEXT))
            box = box.upper_bound_val(isl.dim_type.set, k, isl.Val(around[step].high, CONTEXT))
        if box.is_subset(points):
            return execute
        return code.guarded(self._condition(statement, points, box, execute.point), execute)

    def _condition(self, statement: Statement, points: isl.Set, box: isl.Set, at: tuple[Expr, ...]) -> Bool:
        """The condition under which a point of `box` is one of a statement's `points`, with `at` in place of the statement's steps."""
        steps = statement.node.domain.steps
        divisions = sum(piece.dim(isl.dim_type.div) for piece in points.get_basic_sets())  # as in `t % 3 == 0`
        if statement.is_piece or divisions <= MOST_COMBINED:
            return condition_within(points, box, {step.name: place for step, place in zip(steps, at, strict=True)})
        inside = [part for step in steps for part in (step.expr >= 0, step.expr <= step.bound_expr - 1)]
        *earlier, of_branch = statement.conditions or (TRUE,)
        as_written = conjunction(*inside, statement.node.domain.condition, of_branch, *(~condition for condition in earlier))
        return as_written.substitute({**self.bounds, **dict(zip(steps, at, strict=True))})

    def _fixed(self, points: isl.Set, k: int) -> _Place | None:
        """A step without a loop: its value, if it has the same value at all points."""
        value, greatest = points.dim_min_val(k).to_python(), points.dim_max_val(k).to_python()
        return _Place(Expr.of(value), value, value) if value == greatest else None

    def _by_isl(self, times: Mapping[str, isl.Map], entry: int, around: Mapping[Symbol, _Place]) -> code.Item:
        """isl's program for the remaining entries. For isl, the steps of the loops around are parameters."""
        inside = {}
        context = isl.Set.read_from_str(CONTEXT, "{ : }")
        for step, place in around.items():
            context = context.add_dims(isl.dim_type.param, 1)
            k = context.dim(isl.dim_type.param) - 1
            context = context.set_dim_name(isl.dim_type.param, k, step.name)
            context = context.lower_bound_val(isl.dim_type.param, k, isl.Val(place.low, CONTEXT))
            context = context.upper_bound_val(isl.dim_type.param, k, isl.Val(place.high, CONTEXT))
        for name, time in times.items():
            for k, step in enumerate(self.statements[name].node.domain.steps):
                if step in around:
                    time = time.add_dims(isl.dim_type.param, 1)
                    last = time.dim(isl.dim_type.param) - 1
                    time = time.set_dim_name(isl.dim_type.param, last, step.name)
                    time = time.equate(isl.dim_type.param, last, isl.dim_type.in_, k)
            inside[name] = time.set_tuple_name(isl.dim_type.in_, name)
        return _Conversion(self.statements).of(inside, context, entry, {s.name: p.at for s, p in around.items()})


def _in_sequence(times: Mapping[str, isl.Map], entry: int, conversion: _Conversion) -> code.Item:
    """The program of times from `entry` on: a sequence while the entries are numbers, then isl's program for each part.

    isl could build the sequence too, but its time grows with the square of the length and more.
    """
    places = _by_place(times, entry)
    if places is None:
        return conversion.of(times, None, entry, {})
    return code.Block(tuple(_in_sequence(part, entry + 1, conversion) for part in places))


def _by_place(times: Mapping[str, isl.Map], entry: int) -> list[dict[str, isl.Map]] | None:
    """The times in groups with the same number at `entry`, in order; None unless every statement's time has a number there.

    A value may be freed at a number that depends on the point, `19 + a`: then it is in several groups, with some points in each.
    """
    places: dict[int, dict[str, isl.Map]] = {}
    moving: dict[str, isl.Map] = {}
    for name, time in times.items():
        if entry == time.dim(isl.dim_type.out):
            return None
        value = time.plain_get_val_if_fixed(isl.dim_type.out, entry)
        if not value.is_nan():
            places.setdefault(value.to_python(), {})[name] = time
        elif name.startswith("d"):  # it frees a value
            moving[name] = time
        else:
            return None
    for name, time in moving.items():
        first, last = time.range().dim_min_val(entry), time.range().dim_max_val(entry)
        numbers = range(first.to_python(), last.to_python() + 1) if first.is_int() and last.is_int() else None
        if numbers is None or len(numbers) > len(places) or not places.keys() >= set(numbers):
            return None
        for number in numbers:
            part = time.fix_val(isl.dim_type.out, entry, isl.Val(number, CONTEXT))
            if not part.is_empty():
                places[number][name] = part
    return [part for _, part in sorted(places.items(), key=lambda item: item[0])]


def _without_strides(time: isl.Map) -> isl.Map:
    """A time for strided points (`t % 2 == 0`), extended to all points between them; any other time as it is."""
    points = time.domain()
    whole = points.remove_divs()
    if whole.is_equal(points):
        return time
    entries = isl.PwMultiAff.from_map(time)
    pieces = [entries.get_pw_aff(k).get_pieces() for k in range(time.dim(isl.dim_type.out))]
    if any(len(of_entry) != 1 for of_entry in pieces):
        return time
    each = [isl.Map.from_aff(of_entry[0][1]) for of_entry in pieces]
    return functools.reduce(isl.Map.flat_range_product, each).intersect_domain(whole)


def _numbered(points: isl.Set) -> isl.Set:
    """The set with dimensions named `@0`, `@1`, and so on."""
    for k in range(points.dim(isl.dim_type.set)):
        points = points.set_dim_name(isl.dim_type.set, k, f"@{k}")
    return points


def _ast(times: Mapping[str, isl.Map], context: isl.Set | None = None, entry: int = 0) -> isl.AstNode:
    """isl's AST for statements at these times, which have one length: a loop for each entry that varies, conditions inside."""
    tree = _tree(times, entry, next(iter(times.values())).dim(isl.dim_type.out))
    tree = tree.get_root().map_descendant_bottom_up(_atomic).get_schedule()
    return isl.AstBuild.from_context(context or isl.Set.read_from_str(CONTEXT, "{ : }")).node_from_schedule(tree)


def _atomic(node: isl.ScheduleNode) -> isl.ScheduleNode:
    if node.get_type() == isl.schedule_node_type.band:
        return node.band_member_set_ast_loop_type(0, isl.ast_loop_type.atomic)
    return node


def _tree(times: Mapping[str, isl.Map], entry: int, depth: int) -> isl.Schedule:
    """The schedule tree of times from `entry` on: a sequence where every time has a number there, else a band.

    isl builds an AST from a tree several times faster than from a flat map.
    """
    if entry == depth:
        points = (isl.UnionSet.from_set(time.domain()) for time in times.values())
        return isl.Schedule.from_domain(functools.reduce(isl.UnionSet.union, points))
    places = _by_place(times, entry)
    if places is not None:
        return functools.reduce(isl.Schedule.sequence, [_tree(part, entry + 1, depth) for part in places])
    moving = (isl.PwMultiAff.from_map(time).get_pw_aff(entry).to_union_pw_aff() for time in times.values())
    band = isl.MultiUnionPwAff.from_union_pw_aff(functools.reduce(isl.UnionPwAff.union_add, moving))
    return _tree(times, entry + 1, depth).insert_partial_schedule(band)


class _Conversion:
    """From isl's AST to our program tree. A tuple name in the AST is the name of a statement."""

    def __init__(self, statements: Mapping[str, Statement]):
        self.statements = statements
        self.strided: dict[str, tuple[isl.Set, isl.Set]] = {}  # name -> (points, all points between them)

    def of(self, times: Mapping[str, isl.Map], context: isl.Set | None, entry: int, symbols: dict[str, Expr]) -> code.Item:
        """The program of statements at these times.

        isl does not see strides: with them, isl shifts strided statements against others in the loop, sometimes past
        statements that must run first. So isl gets all points between, and `_guarded` adds the condition.
        """
        whole = {name: _without_strides(time) for name, time in times.items()}
        self.strided = {n: (times[n].domain(), time.domain()) for n, time in whole.items() if time is not times[n]}
        return self.convert(_ast(whole, context, entry), symbols)

    def convert(self, node: isl.AstNode, symbols: dict[str, Expr]) -> code.Item:
        kind = node.get_type()
        if kind == isl.ast_node_type.block:
            children = node.block_get_children()
            return code.Block(tuple(self.convert(children.get_at(k), symbols) for k in range(children.n_ast_node())))
        if kind == isl.ast_node_type.if_:
            orelse = code.as_block(self.convert(node.if_get_else_node(), symbols)) if node.if_has_else_node() else None
            then = code.as_block(self.convert(node.if_get_then_node(), symbols))
            return code.If(condition_from_ast(node.if_get_cond(), symbols), then, orelse)
        if kind == isl.ast_node_type.for_:
            return self._loop(node, symbols)
        return self._leaf(node, symbols)

    def _loop(self, node: isl.AstNode, symbols: dict[str, Expr]) -> code.Item:
        name = node.for_get_iterator().get_id().get_name()
        starts = _cases(node.for_get_init(), symbols)
        if node.for_is_degenerate():
            return _chosen([starts], lambda start: self.convert(node.for_get_body(), {**symbols, name: start}))
        condition = node.for_get_cond()
        stops = _cases(condition.get_op_arg(1), symbols)
        past = 1 if condition.get_op_type() == isl.ast_expr_op_type.le else 0
        step = node.for_get_inc().get_val().to_python()
        count = code.counter(_unnamed(name))
        body = code.as_block(self.convert(node.for_get_body(), {**symbols, name: count.expr}))
        return _chosen([starts, stops], lambda start, stop: code.Loop(count, start, stop + past, step, body))

    def _leaf(self, node: isl.AstNode, symbols: dict[str, Expr]) -> code.Item:
        call = node.user_get_expr()
        name = call.get_op_arg(0).get_id().get_name()
        cases = [_cases(call.get_op_arg(k), symbols) for k in range(1, call.get_op_n_arg())]
        return _chosen(cases, lambda *point: self._guarded(name, point, symbols))

    def _guarded(self, name: str, point: tuple[Expr, ...], symbols: dict[str, Expr]) -> code.Item:
        """A strided statement under the condition that selects its points; any other statement alone."""
        statement = self._statement(name, point)
        if name not in self.strided:
            return statement
        points, whole = (_numbered(part) for part in self.strided[name])
        return code.guarded(
            condition_within(points, whole, {**symbols, **{f"@{k}": at for k, at in enumerate(point)}}), statement
        )

    def _statement(self, name: str, point: tuple[Expr, ...]) -> code.Item:
        if name in self.statements:
            return code.Execute(self.statements[name].node.id, self.statements[name].branch, point)
        node_id, output, _ = name[1:].split("_")
        return code.Dealloc(int(node_id), int(output), point)


def _cases(tree: isl.AstExpr, symbols: dict[str, Expr]) -> list[tuple[Bool, Expr]]:
    """The values of an isl AST expression, each with its condition: two for `c ? a : b`. The conditions exclude each other."""
    if tree.get_type() != isl.ast_expr_type.op:
        return [(TRUE, expression_from_ast(tree, symbols))]
    arguments = [tree.get_op_arg(k) for k in range(tree.get_op_n_arg())]
    if tree.get_op_type() not in (isl.ast_expr_op_type.select, isl.ast_expr_op_type.cond):
        if any(len(_cases(a, symbols)) > 1 for a in arguments):
            raise NonAffineError(f"`{tree.to_C_str()}` has no symbolic expression")
        return [(TRUE, expression_from_ast(tree, symbols))]
    condition = condition_from_ast(arguments[0], symbols)
    chosen = [(condition & c, e) for c, e in _cases(arguments[1], symbols)]
    return chosen + [(~condition & c, e) for c, e in _cases(arguments[2], symbols)]


def _chosen(cases: list[list[tuple[Bool, Expr]]], make: Callable[..., code.Item]) -> code.Item:
    """`make(*values)`, under conditions where an expression has several cases."""
    item: code.Item | None = None
    for case in itertools.product(*cases):
        condition = conjunction(*(c for c, _ in case))
        if condition is not FALSE:
            chosen = make(*(e for _, e in case))
            item = chosen if item is None else code.If(condition, code.as_block(chosen), code.as_block(item))
    assert item is not None, "one of the cases holds"
    return item


# -- names ------------------------------------------------------------------------------------------------------------


def _unnamed(name: str) -> str:
    """What a counter is called until `_named` names it: not as any counter is called then, or one could hide the other."""
    return f"{name}@"


def _named(item: code.Item, graph: Graph, used: frozenset[str]) -> code.Item:
    """The item with counters named after the step that they count, and shifted so that most statements run at the counter.

    `used` are the names of the counters around.
    """
    if not isinstance(item, code.Loop):
        return code.changed(item, lambda part: _named(part, graph, used))
    counted = _counted_step(item, graph)
    if counted is None:
        name, shift = "", -item.start if item.start.is_constant else Expr.of(0)
    else:
        name, shift = counted[0], Expr.of(counted[1])
    if not name or name in used:
        name = next(f"c{k}" for k in range(len(used) + 1) if f"c{k}" not in used)
    count = code.counter(name)
    body = code.as_block(code.substitute(item.body, {item.counter: count.expr - shift}))
    body = code.as_block(_named(simplified(body, {}), graph, used | {name}))
    return code.Loop(count, item.start + shift, item.stop + shift, item.step, body)


def _counted_step(loop: code.Loop, graph: Graph) -> tuple[str, int] | None:
    """The (step, shift) for which most statements of a loop run at `counter + shift`; None without statements."""
    votes: Counter[tuple[str, int]] = Counter()
    for leaf in code.leaves(loop.body):
        if isinstance(leaf, code.Execute):
            for step, part in zip(graph[leaf.node].domain.steps, leaf.point, strict=True):
                shift = part - loop.counter.expr
                if shift.is_constant:
                    votes[step.name, shift.constant] += 1
    if not votes:
        return None
    return max(votes, key=lambda vote: (votes[vote], vote[1] == 0, vote[1]))


def _batched(item: code.Item) -> code.Item:
    """The item with one `Dealloc` of a range in place of each loop that only frees consecutive points."""
    item = code.changed(item, _batched)
    if isinstance(item, code.Block):
        return code.Block(tuple(code.flat(item)))
    if not isinstance(item, code.Loop):
        return item
    freed = [_range_freed(leaf, item) for leaf in item.body.children if isinstance(leaf, code.Dealloc)]
    ranges = tuple(each for each in freed if each is not None)
    return code.Block(ranges) if len(ranges) == len(item.body.children) else item


def _range_freed(leaf: code.Dealloc, loop: code.Loop) -> code.Dealloc | None:
    """One `Dealloc` for all that a loop over `leaf` frees, if the counter moves exactly one coordinate of the point."""
    moving = [k for k, part in enumerate(leaf.point) if loop.counter in part.symbols]
    if len(moving) != 1:
        return None
    part = leaf.point[moving[0]]
    if not isinstance(part, Expr) or loop.step != 1 or not (part - loop.counter.expr).is_constant:
        return None
    offset = part - loop.counter.expr
    freed = Range(loop.start + offset, loop.stop + offset)
    return code.Dealloc(leaf.node, leaf.output, (*leaf.point[: moving[0]], freed, *leaf.point[moving[0] + 1 :]))
