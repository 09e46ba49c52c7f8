"""Text before a pass and after it, and a check that both have the same meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tempo_core.backends.base import numpy_dtype
from tempo_core.ir.graph import Graph
from tempo_core.ir.graph_text import to_text
from tempo_core.ir.ops import Input
from tempo_core.ir.verify import verify
from tempo_core.passes.base import Pass, renumbered
from tempo_core.symbolic.expr import Symbol
from tests import reference
from tests.core.running import assert_all_same
from tests.graph_parser import parse

Golden = Callable[[str, str], None]
BOUNDS = {"B": 2, "I": 3, "T": 5}


def fed(graph: Graph, bounds: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Random arrays for the inputs of a graph, the same for the same names and shapes."""
    numbers = {Symbol(name): value for name, value in bounds.items()}
    arrays = {}
    for node in graph.inputs():
        assert isinstance(node.op, Input)
        shape = tuple(size.evaluate(numbers) for size in node.op.shape)
        generator = np.random.default_rng(sum(map(ord, node.op.name)))
        dtype = numpy_dtype(node.op.dtype)
        values = (
            generator.normal(size=shape) if dtype.kind == "f" else generator.integers(0, 2 if dtype.kind == "b" else 5, shape)
        )
        arrays[node.op.name] = values.astype(dtype)
    return arrays


def outputs(graph: Graph, bounds: Mapping[str, int]) -> list[Any]:
    """The graph's outputs, by the reference."""
    return reference.evaluate(graph, None, {Symbol(name): n for name, n in bounds.items()}, fed(graph, bounds))


def after(text: str, *passes: Pass, functions: Mapping[str, Any] | None = None) -> Graph:
    """The graph of `text` after some passes, with new numbers; it is verified before and after."""
    graph = parse(text, functions)
    verify(graph)
    for each in passes:
        graph = each.apply(graph)
        verify(graph, after=each.name)
    return renumbered(graph)


def check(
    golden: Golden,
    name: str,
    text: str,
    *passes: Pass,
    bounds: Mapping[str, int] | None = None,
    same: bool = True,
    **functions: Any,
) -> Graph:
    """Compare "text before, text after" with `tests/golden/passes/<name>.txt`, and the values of the two graphs for some numbers."""
    before, changed = parse(text, functions), after(text, *passes, functions=functions)
    shown = f"# before {', '.join(p.name for p in passes)}\n\n{to_text(before)}\n# after\n\n{to_text(changed)}"
    golden(f"passes/{name}.txt", shown)
    if same:
        bounds = BOUNDS if bounds is None else bounds
        assert_all_same(outputs(changed, bounds), outputs(before, bounds))
    return changed


def ops_of(graph: Graph, *kinds: type) -> list[Any]:
    """The ops of some kinds, in the graph's order."""
    return [node.op for node in graph if isinstance(node.op, kinds)]
