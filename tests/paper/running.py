"""Runs of the paper's programs in every way; dependences as isl sees them; and results of the compiler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import tempo_core as tp
from tempo_core.ir.graph import Graph, Node
from tempo_core.symbolic.domain import Domain, Index
from tempo_core.symbolic.isl.inverse import Inverse, invert
from tests.core.running import OPTIONAL, Case, assert_all_same, compiled, evaluated

LOOPS = tp.Config(disable=("vectorize", "lift"))  # one point after the other, as the equations are written
WAYS: dict[str, tp.Config] = {
    "jax, staged": tp.Config(),
    "jax, staged, loops": LOOPS,
    "jax, interpreted": tp.Config(executor="interpreted"),
    "numpy": tp.Config(backend="numpy"),
    "numpy, loops": tp.Config(backend="numpy", disable=("vectorize",)),
    "numpy, no passes": tp.Config(backend="numpy", disable=OPTIONAL),
}


def assert_agree(case: Case, ways: Sequence[str] = tuple(WAYS)) -> list[Any]:
    """The reference and every executor and backend give the values that the case expects. Returns the reference's values."""
    right = evaluated(case)
    assert_all_same(right, case.expected, case.tolerance)
    for way in ways:
        try:
            assert_all_same(compiled(case, WAYS[way]), right, case.tolerance)
        except AssertionError as error:
            raise AssertionError(f"{way}: {error}") from error
    return right


def rows(values: Any) -> np.ndarray:
    return np.asarray(values, "float32")


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def index_text(index: Sequence[Index]) -> str:
    """An index as the paper writes it: `[t:min(t + 5, T)]`."""
    return f"[{', '.join(map(str, index))}]"


def inverse_of(reader: tp.Tensor, read: tp.Tensor) -> Inverse:
    """The inverse of the index by which `reader`'s points read the node of `read`."""
    return invert(Domain(reader.domain.steps, reader.domain.condition), read.edge.index, read.node.domain)


def slots_of(program: tp.Program, name: str) -> tuple[str, int]:
    """A tensor's store: its kind, and the number of values that it holds."""
    tensors = [t for t in program.plan().tensors if t.name == name]
    assert len(tensors) == 1, f"{name}: {[t.name for t in program.plan().tensors]}"
    return tensors[0].kind, int(np.prod(tensors[0].slots)) if tensors[0].slots else 1


def ancestors(graph: Graph, start: Node) -> set[int]:
    """The nodes that a node depends on, at any points."""
    ids: set[int] = set()
    waiting = [start.id]
    while waiting:
        for edge in graph[waiting.pop()].inputs:
            if edge.source not in ids:
                ids.add(edge.source)
                waiting.append(edge.source)
    return ids
