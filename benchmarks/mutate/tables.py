"""The tables: their rows, how a row can be wrong, and which tests ought to notice.

A table is a generator of mutants. `dictionary` makes them of a dict, `code` of the functions of a module; a new table is a
few lines in `TABLES`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from dataclasses import replace
from types import CellType, FunctionType, ModuleType
from typing import Any

from benchmarks.mutate.code import Change, changes
from benchmarks.mutate.running import Mutant, Tests
from tempo_core.backends import jax_backend, numpy_backend, shared
from tempo_core.frontend.autodiff import gradients, slopes
from tempo_core.ir import axes, ops, verify
from tempo_core.ir.builder import Builder, literal
from tempo_core.ir.costs import every_op
from tempo_core.ir.graph import Edge
from tempo_core.ir.ops import reduction_ops
from tempo_core.ir.ops.work import Work
from tempo_core.passes.batch import batching
from tempo_core.passes.clean import rules
from tempo_core.passes.shapes import pad
from tempo_core.schedule import storage

Tables = dict[str, Callable[[], Iterator[Mutant]]]
Selection = Callable[[str], tuple[Tests, ...]]  # of a row's name

# A row that is missed only where names are compared is not tested: these do not count for rows removed.
NAMES_ONLY = " and ".join(
    f"not {name}"
    for name in ("has_a_row", "has_a_rule", "has_a_checked_rule", "has_a_slope", "has_a_kernel", "has_an_example", "is_tested")
)


def always(*tests: Tests) -> Selection:
    return lambda row: tests


# -- kinds of tables --------------------------------------------------------------------------------------------------


def dictionary(
    table: str,
    rows: MutableMapping[Any, Any],
    wrong: Callable[[Any, Any], Any],
    change: str,
    values: Selection,
    growth: Selection,
) -> Iterator[Mutant]:
    """Each row wrong (`wrong` takes its key and value), which `values` ought to notice, and gone, which `growth` ought to."""
    for key in list(rows):
        row = getattr(key, "__name__", str(key))
        yield Mutant(table, row, "wrong", change, functools.partial(_put, rows, key, wrong), values(row))
        yield Mutant(table, row, "removed", "no row", functools.partial(rows.pop, key), tuple(map(_without_names, growth(row))))


def _put(rows: MutableMapping[Any, Any], key: Any, wrong: Callable[[Any, Any], Any]) -> None:
    rows[key] = wrong(key, rows[key])


def _without_names(tests: Tests) -> Tests:
    return replace(tests, keyword=f"({tests.keyword}) and {NAMES_ONLY}" if tests.keyword else NAMES_ONLY)


def attribute(table: str, name: str, wrong: Callable[[Any], Any], values: Selection) -> Iterator[Mutant]:
    """A class attribute of each op that has one, wrong."""
    for op in every_op():
        value = vars(op).get(name)
        if value is not None and not isinstance(value, property):
            change = functools.partial(setattr, op, name, wrong(value))
            yield Mutant(table, op.__name__, "wrong", "another", change, values(op.__name__))


def code(
    table: str,
    module: ModuleType,
    tests: Selection,
    *,
    both_ways: bool = False,
    only: Callable[[str], bool] = lambda function: True,
) -> Iterator[Mutant]:
    """Each literal, operator, guard and call in the functions of a module changed, which `tests` ought to notice."""
    for change in changes(module, both_ways=both_ways, only=only):
        way = "removed" if change.is_statement else "code"
        yield Mutant(table, change.function, way, change.text, change.apply, tests(change.function))


# -- wrong results ----------------------------------------------------------------------------------------------------


def one_more(build: Builder, edge: Edge) -> Edge:
    """All numbers one greater; of truth values the others."""
    type = build.type(edge)
    if type.dtype == "bool":
        return build.add(ops.Unary("not"), edge)
    one = literal(build, type.dtype, 1.0)
    return build.add(ops.Binary("add"), edge, build.add(ops.Broadcast(type.shape, ()), one) if type.shape else one)


def last_changed(xp: Any, result: Any) -> Any:
    """An array whose last element is one greater, or the other truth value."""
    if isinstance(result, tuple):
        return (last_changed(xp, result[0]), *result[1:])
    flat = xp.reshape(xp.asarray(result), (-1,))
    other = xp.logical_not(flat) if flat.dtype == bool else (flat + flat.dtype.type(1)).astype(flat.dtype)
    return xp.reshape(xp.where(xp.arange(flat.shape[0]) == flat.shape[0] - 1, other, flat), xp.shape(result))


def _kernel(key: Any, kernel: Callable[..., Any]) -> Callable[..., Any]:
    return lambda at, op, *operands: last_changed(at.xp, kernel(at, op, *operands))


def _function(key: str, function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda xp, *operands: last_changed(xp, function(xp, *operands))


def _points_reversed(key: Any, rule: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def wrong(batch: batching.Batch) -> Edge | None:
        edge = rule(batch)
        if edge is not None:
            return batch.build.add(ops.Flip(0), edge)
        build, node = batch.build, batch.build.graph[batch.build.like.id]  # a function, which was put in place of the node
        build.graph.put(replace(node, inputs=tuple(build.add(ops.Flip(0), e) if build.type(e).rank else e for e in node.inputs)))
        return None

    return wrong


def _padded_one_more(key: Any, rule: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def wrong(work: Any) -> Edge:
        if not work.node.outputs or isinstance(work.op, ops.Udf):  # what the host gets
            work.operands = [one_more(work.build, edge) for edge in work.operands]
            return rule(work)
        return one_more(work.build, rule(work))

    return wrong


def _other_dimension(key: Any, row: axes.Row) -> axes.Row:
    def wrong(op: ops.Op, shapes: Any, result: Any) -> list[axes.Source | None]:
        return [
            source and tuple(None if a is None else (a + 1) % max(len(shape), 1) for a, shape in zip(source, shapes, strict=True))
            for source in row.sources(op, shapes, result)
        ]

    return replace(row, sources=wrong)


def _half_more(key: Any, rule: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *of: [None if g is None else g * 1.5 for g in rule(*of)]


def _one_operation_more(work: Work) -> Work:
    return replace(work, operations=lambda *of: work.operations(*of) + 1)


_NEUTRAL = {0.0: 1.0, 1.0: 0.0, "lowest": 0.0, "highest": 0.0}


# -- other forms of rows ----------------------------------------------------------------------------------------------


def _rules(values: Selection, growth: Selection) -> Iterator[Mutant]:
    """Rows of `rules.RULES`, changed in place: the table by op, and tests, hold the same objects."""
    for rule in rules.RULES:

        def wrong(view: rules.View, apply: Callable[..., Any] = rule.apply) -> Edge | None:
            edge = apply(view)
            return None if edge is None else one_more(view.build, edge)

        def put(apply: Callable[..., Any], rule: Any = rule) -> None:
            object.__setattr__(rule, "apply", apply)

        yield Mutant("rules", rule.name, "wrong", "one more", functools.partial(put, wrong), values(rule.name))
        for text, other in with_other_parameters(rule.apply):
            yield Mutant("rules", rule.name, "wrong", text, functools.partial(put, other), values(rule.name))
        yield Mutant("rules", rule.name, "removed", "never applies", functools.partial(put, lambda view: None), growth(rule.name))


def with_other_parameters(function: Callable[..., Any]) -> Iterator[tuple[str, Callable[..., Any]]]:
    """A function that was made by another, made with another number or truth value each."""
    cells = getattr(function, "__closure__", None) or ()
    for k, cell in enumerate(cells):
        value = cell.cell_contents
        if isinstance(value, (bool, int, float)):
            other = not value if isinstance(value, bool) else value + 1
            closure = (*cells[:k], CellType(other), *cells[k + 1 :])
            changed = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, closure)
            yield f"{function.__code__.co_freevars[k]}={value} -> {other}", changed


def _slope(key: str, slope: Any) -> Any:
    if callable(slope):
        return lambda *of: _times(slope(*of))
    return lambda g, *of: g if len(of) == 2 else (g, g)  # of what has no slope


def _reduce_slope(key: str, slope: Any) -> Any:
    """One and a half times the gradient; of a reduction that has none, as if it were a sum."""
    of = slope if callable(slope) else gradients.REDUCE["sum"]
    return lambda *operands: _times(of(*operands))


def _times(gradients: Any) -> Any:
    return tuple(g * 1.5 for g in gradients) if isinstance(gradients, tuple) else gradients * 1.5


# -- the tables -------------------------------------------------------------------------------------------------------

PASSES = "core/passes"
BACKENDS = "core/backends"

_ARRAY_OPS = {  # keywords of tests of kernels in `test_array_ops.py`, by op
    "Constant": "constant or 64_bits", "Iota": "iota", "Eval": "eval", "Reduce": "reduce or reductions or narrow", "Argmax": "argmax or no_elements",
    "Argsort": "argsort", "CumSum": "cumsum", "CumMax": "cummax or no_elements", "LinearScan": "scan", "DiscountedSum": "discounted",
    "Dot": "dot", "Reshape": "reshape", "Permute": "reshape", "Flip": "reshape", "Concat": "reshape", "Broadcast": "broadcast",
    "Slice": "slice", "Pad": "pad", "Gather": "gather", "Scatter": "scatter",
}  # fmt: skip
_OTHER_KERNELS = {
    "Random": (Tests(f"{BACKENDS}/test_prng.py"), Tests(f"{BACKENDS}/test_backend.py", "traced")),
    "Where": (Tests(f"{BACKENDS}/test_elementwise.py", "where"),),
    "Cast": (Tests(f"{BACKENDS}/test_elementwise.py", "cast"), Tests(f"{BACKENDS}/test_dtypes.py", "cast or Cast")),
    "Conv": (Tests(f"{BACKENDS}/test_conv.py"),),
    "Identity": (Tests(f"{BACKENDS}/test_dtypes.py", "Identity"),),
    "Dataflow": (Tests(f"{BACKENDS}/test_backend.py", "dataflow"),),
    "Udf": (Tests(f"{BACKENDS}/test_backend.py", "udf or vmapped"),),
}


def _kernel_tests(op: str) -> tuple[Tests, ...]:
    dtypes = Tests(f"{BACKENDS}/test_dtypes.py", f"[{op}")
    if op in _ARRAY_OPS:
        return Tests(f"{BACKENDS}/test_array_ops.py", _ARRAY_OPS[op]), dtypes
    return _OTHER_KERNELS.get(op, (dtypes, Tests(f"{BACKENDS}/test_elementwise.py", op.lower())))


def _elementwise_tests(op: str) -> Selection:
    dtypes = f"{BACKENDS}/test_dtypes.py"

    def selection(fn: str) -> tuple[Tests, ...]:
        keyword = f"{fn}]" if fn in ("and", "or", "not") else fn  # words of pytest's own
        return Tests(f"{BACKENDS}/test_elementwise.py", keyword), Tests(dtypes, f"[{op}-{fn}-"), Tests(dtypes, "divide")

    return selection


def _kernel_function_tests(function: str) -> tuple[Tests, ...]:
    """Tests of a function of a backend's module, by its name."""
    name = function.split(".")[0].strip("_")
    op = {
        "cast": "Cast", "supported": "Constant", "constant": "Constant", "evaluated": "Eval", "linear_scan": "LinearScan", "scan_in_order": "LinearScan",
        "scan_as_a_tree": "LinearScan", "composed": "LinearScan", "composed_integers": "LinearScan", "carried_part": "LinearScan",
        "discounted_sum": "DiscountedSum", "discount_weights": "DiscountedSum", "window": "Slice", "padded": "Pad", "sliced": "Slice", "pad": "Pad",
        "batched": "Gather", "batch_grids": "Gather", "scatter": "Scatter", "spread": "Conv", "least": "Reduce", "greatest": "Reduce",
        "dataflow": "Dataflow", "udf": "Udf", "cumulative": "CumSum", "cumsum": "CumSum", "cummax": "CumMax", "wide": "Reduce", "empty_conv": "Conv",
    }.get(name, name.capitalize())  # fmt: skip
    if op in ("Power", "Quotient", "Sigmoid"):
        fns = {"Power": "pow", "Quotient": "mod or floordiv or binary or divide", "Sigmoid": "sigmoid"}[op]
        return Tests(f"{BACKENDS}/test_elementwise.py", fns), Tests(f"{BACKENDS}/test_dtypes.py", fns)
    more = {
        "window": "Pad",
        "cumulative": "CumMax",
        "padded": "Slice",
        "batched": "Scatter",
        "batch_grids": "Scatter",
        "wide": "Dot",
    }.get(name)
    return (*_kernel_tests(op), *(_kernel_tests(more) if more else ()))


def _is_kernel(function: str) -> bool:
    return "Backend" not in function


BATCHING = always(Tests(f"{PASSES}/test_batching.py"), Tests(f"{PASSES}/test_vectorize.py"))
PADDING = always(Tests(f"{PASSES}/test_pad.py"))
AXES = always(Tests("core/ir/test_axes.py"), Tests(f"{PASSES}/test_tile.py"), *BATCHING(""))
STORAGE = always(
    Tests("core/schedule/test_storage.py"),
    Tests("core/schedule/test_lasting.py", "not values_and_slots"),
    Tests("core/schedule/test_random.py"),
)
VERIFIER = always(Tests("core/ir/test_verify.py"))
SIMPLIFY = Tests(f"{PASSES}/test_simplify.py")
CHECKED_RULES = Tests(f"{PASSES}/test_rules.py")


def _rule_tests(row: str) -> tuple[Tests, ...]:
    return replace(CHECKED_RULES, keyword=row), CHECKED_RULES, SIMPLIFY


def _fewer_tests(row: str) -> tuple[Tests, ...]:
    return SIMPLIFY, replace(CHECKED_RULES, keyword=row), Tests(f"{PASSES}/test_vectorize.py")


GRADIENTS = always(Tests("core/test_op_gradients.py"))
SLOPES = always(Tests("core/test_op_gradients.py"), Tests("core/test_points.py"))


def _slope_tests(fn: str) -> tuple[Tests, ...]:
    """Of the checks by finite differences, most of which are about other functions, its own alone."""
    gradients = "core/test_op_gradients.py"
    finite_differences = Tests(gradients, f"finite_differences and -{fn}")
    return finite_differences, Tests(gradients, "not finite_differences"), Tests("core/test_points.py")


TABLES: Tables = {
    "batching": lambda: dictionary("batching", batching.RULES, _points_reversed, "points reversed", BATCHING, BATCHING),
    "batching code": lambda: code("batching code", batching, BATCHING),
    "padding": lambda: dictionary("padding", pad.RULES, _padded_one_more, "one more", PADDING, PADDING),
    "padding neutral": lambda: dictionary(
        "padding neutral", reduction_ops.NEUTRAL, lambda key, value: _NEUTRAL[value], "another", PADDING, PADDING
    ),
    "padding neutral of ops": lambda: attribute(
        "padding neutral of ops", "neutral", lambda value: _NEUTRAL.get(value, 0.0), PADDING
    ),
    "work of ops": lambda: attribute("work of ops", "work", _one_operation_more, always(Tests("core/ir/test_costs.py"))),
    "padding code": lambda: code("padding code", pad, PADDING),
    "axes": lambda: dictionary("axes", axes.ROWS, _other_dimension, "another dimension", AXES, AXES),
    "axes code": lambda: code("axes code", axes, AXES),
    "storage": lambda: code("storage", storage, STORAGE, both_ways=True),
    "verifier": lambda: code("verifier", verify, VERIFIER),
    "rules": lambda: _rules(_rule_tests, _fewer_tests),
    "rules code": lambda: code("rules code", rules, always(SIMPLIFY, CHECKED_RULES)),
    "gradients": lambda: dictionary("gradients", gradients.GRADIENTS, _half_more, "times 1.5", GRADIENTS, GRADIENTS),
    "gradients code": lambda: code("gradients code", gradients, GRADIENTS),
    "slopes unary": lambda: dictionary("slopes unary", slopes.UNARY, _slope, "times 1.5, or one", _slope_tests, _slope_tests),
    "slopes binary": lambda: dictionary("slopes binary", slopes.BINARY, _slope, "times 1.5, or one", _slope_tests, _slope_tests),
    "slopes reduce": lambda: dictionary(
        "slopes reduce", gradients.REDUCE, _reduce_slope, "times 1.5", _slope_tests, _slope_tests
    ),
    "slopes code": lambda: code("slopes code", slopes, SLOPES),
    "kernels numpy": lambda: dictionary(
        "kernels numpy", numpy_backend.NumpyBackend.kernels, _kernel, "last element", _kernel_tests, _kernel_tests
    ),
    "kernels jax": lambda: dictionary(
        "kernels jax", jax_backend.JaxBackend.kernels, _kernel, "last element", _kernel_tests, _kernel_tests
    ),
    **{
        f"kernels {name}": functools.partial(dictionary, f"kernels {name}", rows, _function, "last element", tests, tests)
        for name, rows, tests in [
            ("numpy unary", numpy_backend.UNARY, _elementwise_tests("Unary")),
            ("jax unary", jax_backend.UNARY, _elementwise_tests("Unary")),
            ("binary", shared.BINARY, _elementwise_tests("Binary")),
            ("compare", shared.COMPARE, _elementwise_tests("Compare")),
            ("reduce", shared.REDUCE, always(*_kernel_tests("Reduce"))),
        ]
    },
    "kernels shared code": lambda: code("kernels shared code", shared, _kernel_function_tests, only=_is_kernel),
    "kernels numpy code": lambda: code("kernels numpy code", numpy_backend, _kernel_function_tests, only=_is_kernel),
    "kernels jax code": lambda: code("kernels jax code", jax_backend, _kernel_function_tests, only=_is_kernel),
}

PROMISED_CODE = ("storage", "verifier")  # tables without rows: their code is all there is to change


def is_deep(table: str, way: str) -> bool:
    """Whether a run does this only where it is asked for: a change in the code of a table whose rows are changed as a whole."""
    return way == "code" and table not in PROMISED_CODE


def all_mutants(tables: Iterable[str] = ()) -> list[Mutant]:
    """The mutants of some tables, or of all."""
    return [mutant for table in tables or TABLES for mutant in TABLES[table]()]


__all__ = ["Change", "TABLES", "all_mutants", "is_deep"]
