"""The generator draws every pattern, every kind of recurrence and gradient, every setting, and every op of the language."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import pytest

import tempo_core as tp
from tempo_core.errors import TempoError
from tempo_core.ir.graph import Graph
from tests.fuzz.choices import Seeded
from tests.fuzz.coverage import drawn_ops, expected, expected_ops, table
from tests.fuzz.generator import EXECUTORS, drawn, forms
from tests.fuzz.generator.drawing import Drawing

PROGRAMS, FEW = 450, 100
SHAPES: tuple[tuple[int, ...], ...] = ((), (2,), (2, 3), (3, 3), (3,), (1,))
TABLES: dict[str, Mapping[str, tuple[str, ...]]] = {
    "float32": {**forms.ANY_SHAPE, **forms.PAIRS, **forms.DEEP, **forms.SIZED},
    "int32": forms.INTEGER,
    "bool": forms.BOOLEAN,
    "bfloat16": forms.HALF,
}


def draw(count: int) -> list[Drawing]:
    return [drawn(Seeded(seed), 8, EXECUTORS[seed % 3])[1] for seed in range(count)]


@pytest.fixture(scope="module")
def drawings() -> list[Drawing]:
    return draw(PROGRAMS)


@pytest.mark.slow
def test_everything_is_drawn(drawings: list[Drawing]) -> None:
    """The first few hundred programs have every feature of the tables, and most of the many rows of ops, sizes and modules."""
    features = Counter(feature for d in drawings for feature in d.features)
    missing = [name for name in expected() if not features[name]]
    rows = [name for name in missing if name.partition(":")[0] in ("op", "size", "module", "optimizer")]
    text = table(features, PROGRAMS)
    assert not [name for name in missing if name not in rows], text
    assert len(rows) <= 20, text


@pytest.mark.slow
def test_no_unit_fails_with_another_error_than_the_users(drawings: list[Drawing]) -> None:
    assert not [d.units[-1] for d in drawings if d.broken]


def test_every_row_is_legal_and_every_op_has_a_row() -> None:
    """A row that fits no shape would never be drawn, and an op without a row would never be tested."""
    ops_drawn = set().union(
        *(drawn_ops(d.context.graph) for d in draw(FEW)), {"Output", "End"}
    )  # the compiler adds outputs, and `checking.py` ends
    illegal = []
    for dtype, rows in TABLES.items():
        for name, texts in rows.items():
            for text in texts:
                graph = next(_legal(text, dtype), None)
                if graph is None:
                    illegal.append(f"{name}: {text}")
                else:
                    ops_drawn |= drawn_ops(graph)
    assert not illegal
    missing = [name for name in expected_ops() if name not in ops_drawn]
    assert not missing, f"add rows to tests/fuzz/generator/forms.py for {missing}"


def _legal(text: str, dtype: str) -> Iterator[Graph]:
    """Graphs of a row, for operands of the shapes that it accepts."""
    for shape in SHAPES:
        ctx = tp.Context("i", "t")
        with ctx as ((i, I), (t, T)):
            x, y = tp.input("x", shape, domain=(t,)), tp.input("y", shape, domain=(i,))
            x, y = (v > 0 if dtype == "bool" else v if dtype == "float32" else tp.floor(v).astype(dtype) for v in (x, y))
            words = {"x": "x", "y": "y", "s": "t", "T": "T", "c": "t >= 1", "n": str(shape[-1] if shape else 1)}
            slices = {"x0": "x" if not shape else "x.sum()", "p": "x[0 : t + 1]", "q": "x[t:T]", "w": "x[0:T]"}
            try:
                eval(text.format(**words, **slices), {"tp": tp, "x": x, "y": y, "t": t, "T": T, "i": i, "I": I})
            except (TempoError, IndexError):  # `x.shape[0]` of a number
                continue
        yield ctx.graph


def test_the_table_names_what_is_missing() -> None:
    text = table(Counter({"pattern: causal": 3}), 10)
    assert "      3   30.0%  pattern: causal" in text
    never = text.splitlines()[-1]
    assert never.startswith("never drawn: ") and "pattern: anti-causal" in never and "pattern: causal" not in never
