"""Whether a rule applies to a graph and keeps its values, up to what it says."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np

from tempo_core.backends.base import numpy_dtype
from tempo_core.errors import DTypeError
from tempo_core.ir import ops
from tempo_core.ir.builder import Builder
from tempo_core.ir.graph import Edge, Graph
from tempo_core.ir.types import is_float
from tempo_core.ir.verify import verify
from tempo_core.passes.clean.rules import ROUNDING, RULES, SIGN_OF_ZERO, Rule, View
from tempo_core.symbolic.domain import Domain, full_range
from tests import reference
from tests.core.passes.rule_graphs import BOUNDS, Generator, Make, special

ROWS: dict[str, Rule] = {rule.name: rule for rule in RULES}


def ordinary(dtype: str) -> np.ndarray:
    """Numbers with finite sums and products; most sums of special numbers are NaN."""
    return special(dtype) if not is_float(dtype) else np.array([0.5, -1.0, 2.0, -2.5, 0.25]).astype(numpy_dtype(dtype))


def fed(graph: Graph, numbers: Callable[[str], np.ndarray]) -> dict[str, np.ndarray]:
    """Numbers of a kind for the inputs of a graph: equal for equal graphs, different for different ones."""
    results = {}
    for node in graph.inputs():
        assert isinstance(node.op, ops.Input)
        draw = np.random.default_rng([len(graph), zlib.crc32(node.op.name.encode())])
        results[node.op.name] = draw.choice(numbers(node.op.dtype), tuple(size.evaluate(BOUNDS) for size in node.op.shape))
    return results


def assert_equal_up_to(result: np.ndarray, expected: np.ndarray, up_to: str) -> None:
    """Equal, with NaN for NaN and the same signs of zeros, except for what `up_to` says."""
    assert result.dtype == expected.dtype and result.shape == expected.shape
    if result.dtype.kind in "biu":
        np.testing.assert_array_equal(result, expected)
        return
    wide, right = result.astype("float64"), expected.astype("float64")
    if up_to == ROUNDING:
        precision = {"bfloat16": 2e-2, "float16": 2e-3}.get(result.dtype.name, 1e-5)
        np.testing.assert_allclose(wide, right, rtol=precision, atol=precision)
        return
    np.testing.assert_array_equal(wide, right)
    if up_to != SIGN_OF_ZERO:
        numbers = ~np.isnan(right)  # the sign of NaN has no meaning
        np.testing.assert_array_equal(np.signbit(wide)[numbers], np.signbit(right)[numbers])


def check(rule: Rule, generator: Generator, make: Make) -> None:
    """For the generator's dtypes, the rule must apply to the graphs drawn and keep their values; for other dtypes it must not apply."""
    applies = make.dtype in generator.dtypes
    try:
        edge = generator.draw(make)
    except DTypeError:
        assert not applies, f"{rule.name}: the generator has no graph of {make.dtype}, and says that it has"
        return
    graph, node = make.graph, make.graph[edge.source]
    assert type(node.op) is rule.op, f"{rule.name}: the generator ends with {type(node.op).__name__}"
    replaced = rule.replacement(View(graph, node, Builder(graph, node)))
    if not applies:
        assert replaced is None, f"{rule.name} applies to {make.dtype} too: its generator is to say so"
        return
    assert replaced is not None, f"{rule.name} does not apply to what its generator draws for {make.dtype}"
    assert_same_values(graph, edge, replaced, rule.up_to)


def assert_same_values(graph: Graph, edge: Edge, replaced: Edge, up_to: str) -> None:
    """What a rule puts in the place of a node has its type and its values, at each point."""
    node = graph[edge.source]
    assert replaced.source != node.id
    assert graph.edge_type(replaced) == node.outputs[0]
    for position, value in enumerate((edge, replaced)):
        copy = graph.add(ops.Identity(), [value], domain=node.domain)  # in the node's own steps
        graph.add(ops.Output(position), [Edge(copy.id, tuple(map(full_range, node.domain.steps)))], domain=Domain())
    verify(graph)
    with np.errstate(all="ignore"):
        for numbers in (special, ordinary):
            expected, result = reference.evaluate(graph, None, BOUNDS, fed(graph, numbers))
            assert_equal_up_to(result, expected, up_to)
