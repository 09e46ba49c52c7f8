"""The features that the generator can draw, and how often programs have them: a table that shows blind spots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tempo_core.config import CHOICES, PASSES
from tempo_core.ir import ops
from tempo_core.ir.graph import Graph
from tests.fuzz.generator import forms, grids, indices, inner, recurrences, results
from tests.fuzz.generator.ops import MODULES, OPTIMIZERS

# Ops that only passes create; no program of a user has them.
_BY_PASSES = (ops.Dataflow, ops.Update)


def expected() -> list[str]:
    """Every feature that the tables of the generator name."""
    groups = {
        "pattern": (*indices.PATTERNS, "state passing", "future point", "slices of several steps", "a slice and points"),
        "condition": (*indices.CONDITIONS, "of a value", "of an output"),
        "op": (
            *forms.ANY_SHAPE, *forms.PAIRS, *forms.DEEP, *forms.INTEGER, *forms.BOOLEAN, *forms.HALF,
            "contraction", "attention", "a step as a number", "concat of two",
        ),
        "size": tuple(forms.SIZED),
        "convolution": tuple(forms.PAST),
        "dtype": tuple(forms.CASTS),
        "random": (*forms.RANDOM, "categorical of a tensor"),
        "udf": ("jax", "host", "stateful", "two outputs", "pytree", "rules"),
        "recurrence": (
            *recurrences.ALONG, "nested carry of 2 steps", "nested carry of 3 steps", "tp.carry", "rows", "diagonal", "table by diagonals",
            "stencil", "stencil with clamped reads", "sum of outer products", "sum of outer products, backwards",
            "sum of outer products with decay", "growing", "after a place",
            "after a place, with what is ahead",
            "branches only", "mutual", "intervals", "grid of 3 steps",
            "mutual, backwards", "of int32", "of bool", "of int8", "of bfloat16", "of float16",
        ),
        "grid": (*grids.MOVES, "backwards", "two points away"),
        "gradient": ("backward", "grad", "grad of several", "of a gradient", "of a recurrence that learns", "of a network", "through training"),
        "inner end": (*inner.READS, *inner.ENDS, "state passing"),
        "module": tuple(MODULES),
        "optimizer": tuple({name.partition("(")[0] for name in OPTIMIZERS}),
        "updates": ("all", "skipped"),
        "result": results.VIEWS,
        "sink": ("everywhere", "where a condition holds"),
        "pass off": (*PASSES, *CHOICES, "vectorize(step)"),
        "setting": ("seed", "check_numerics", "launch_seconds", "tile", "checkpoint", "host"),
        "steps": ("1", "2", "3"),
        "bound": ("1", "more"),
        "input": ("float32", "int32", "streamed"),
        "shape": ("varies",),
    }  # fmt: skip
    return [f"{group}: {name}" for group, names in groups.items() for name in names]


def expected_ops() -> list[str]:
    """Every op of the language, and every function of those that have several."""
    kinds = [kind for kind in _subclasses(ops.Op) if kind not in _BY_PASSES and kind.__module__.startswith("tempo_core.ir.ops")]
    rows = {ops.Unary: ops.UNARY, ops.Binary: ops.BINARY, ops.Compare: ops.COMPARE, ops.Reduce: ops.REDUCE}
    return [name for kind in kinds for name in (_named(kind, rows[kind]) if kind in rows else [kind.__name__])]


def drawn_ops(graph: Graph) -> set[str]:
    """The ops of a graph, by the names of `expected_ops`."""
    names = {type(node.op).__name__ for node in graph}
    return names | {f"{type(node.op).__name__} {node.op.fn}" for node in graph if isinstance(getattr(node.op, "fn", None), str)}


def table(counts: Counter[str], programs: int) -> str:
    """The features by group, one line each. The last line lists those that no program has."""
    names = sorted({*expected(), *counts}, key=lambda name: (name.partition(": ")[0], -counts[name], name))
    lines = [f"  {counts[name]:6d}  {100 * counts[name] / max(programs, 1):5.1f}%  {name}" for name in names]
    missing = [name for name in expected() if not counts[name]]
    return "\n".join([f"what {programs} programs drew", *lines, f"never drawn: {', '.join(missing) or 'nothing'}"])


def _named(kind: type[ops.Op], names: tuple[str, ...]) -> Iterator[str]:
    return (f"{kind.__name__} {name}" for name in names)


def _subclasses(kind: type[ops.Op]) -> list[type[ops.Op]]:
    return [subclass for direct in kind.__subclasses__() for subclass in (direct, *_subclasses(direct))]
