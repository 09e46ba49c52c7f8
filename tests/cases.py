"""Which rows of a table run by default. The others are marked slow where the table is declared: they run with `pytest -m slow`.

A slow row is not even collected where slow tests are left out (`tests/conftest.py`), so a table may have as many as it likes.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Collection, Iterable
from itertools import compress, product
from typing import Any

import pytest


def needs(*packages: str) -> None:
    """Skip this module where a package is not installed. `pytest.importorskip` imports it in each worker, which takes long for some."""
    for name in packages:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"needs {name}", allow_module_level=True)


def slow(row: Any, id: str | None = None) -> Any:
    """A row that is left out by default. A tuple has the values of several parameters."""
    values = row if isinstance(row, tuple) else (row,)
    return pytest.param(*values, marks=pytest.mark.slow, id=id)


def fast(rows: Iterable[Any], *names: Any) -> list[Any]:
    """All rows; only those of `names` run by default. Raises ValueError for a name that is not a row."""
    rows = list(rows)
    if missing := [name for name in names if name not in rows]:
        raise ValueError(f"no such rows: {missing}")
    return [row if row in names else slow(row) for row in rows]


def first(count: int, rows: Iterable[Any]) -> list[Any]:
    """All rows; only the first so-and-so-many run by default."""
    rows = list(rows)
    return [*rows[:count], *map(slow, rows[count:])]


def cells(*tables: Iterable[Any], fast: Callable[..., bool] | Collection[Any] | None = None) -> list[Any]:
    """The rows of all tables with each other, the last table's the fastest.

    Fast are those cells that `fast` has or answers with True. Without `fast`, they lie on diagonals: each row of each table runs with one of
    every other table at least, and few pairs run.
    """
    rows = [list(table) for table in tables]
    longest = max(map(len, rows))
    diagonal = {tuple(table[k % len(table)] for table in rows) for k in range(longest)}
    choose = (lambda *cell: cell in diagonal) if fast is None else fast if callable(fast) else lambda *cell: cell in fast
    return [cell if choose(*cell) else slow(cell) for cell in product(*rows)]


def without_slow_rows(mark: pytest.Mark) -> pytest.Mark:
    """A mark `parametrize` without its slow rows; as it is if no other row is left, so that the whole function is left out."""
    names, rows, *others = mark.args
    rows, ids = list(rows), mark.kwargs.get("ids")
    stays = [not any(each.name == "slow" for each in getattr(row, "marks", ())) for row in rows]
    if not any(stays):
        stays = [True] * len(rows)
    if ids is not None and not callable(ids):
        ids = list(compress(ids, stays))
    return pytest.mark.parametrize(names, list(compress(rows, stays)), *others, **mark.kwargs | {"ids": ids}).mark
