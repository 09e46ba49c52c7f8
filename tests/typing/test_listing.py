"""The listing of public names: a user of the core never receives an `Any`; and the names that the listing marks with `Any`."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("mypy", reason="needs mypy: pip install -e '.[dev]'")

from benchmarks.types import CORE, listing

SAMPLE = """
from collections.abc import Callable
from typing import Any

import numpy as np

Numbers = list[Any]
array: np.ndarray[Any, np.dtype[Any]] = np.zeros(3)


def takes(x: Any) -> int: ...
def gives(x: int) -> Any: ...
def gives_an_alias(x: int) -> Numbers: ...
def gives_in_a_pair(x: int) -> tuple[int, dict[str, Any]]: ...
def gives_a_function(x: int) -> Callable[[Any], int]: ...
def gives_a_function_of_any(x: int) -> Callable[[int], Any]: ...
def _private(x: int) -> Any: ...


class Thing:
    def __init__(self, held: Any) -> None:
        self.held = held
        self.count = 3

    @property
    def size(self) -> int: ...
    @property
    def content(self) -> Any: ...
    def get(self) -> Any: ...
    def __getitem__(self, key: str) -> Any: ...
"""
UNTYPED = {
    "gives",
    "gives_an_alias",
    "gives_in_a_pair",
    "gives_a_function_of_any",
    "Thing.held",
    "Thing.content",
    "Thing.get",
    "Thing.__getitem__",
}


def test_the_listing_finds_what_gives_any(tmp_path: Path) -> None:
    (tmp_path / "tempo_rl_sample.py").write_text(SAMPLE, encoding="utf-8")
    names = {n.name.removeprefix("tempo_rl_sample."): n for n in listing(["tempo_rl_sample"], tmp_path)}
    assert {name for name, each in names.items() if each.is_untyped} == UNTYPED
    assert set(names) == UNTYPED | {"Numbers", "array", "takes", "gives_a_function", "Thing", "Thing.count", "Thing.size"}
    assert str(names["takes"]) == "    tempo_rl_sample.takes: (x: Any) -> int"


def test_nothing_that_a_user_of_the_core_receives_is_any() -> None:
    names = listing(CORE)
    assert {"tempo_core.Tensor.sum", "tempo_core.Program.run", "tempo_core.Context.run", "tempo_core.exp"} <= {
        n.name for n in names
    }
    assert {"tempo_core.nn.Linear.__call__", "tempo_core.random.normal", "tempo_core.typing.Value"} <= {n.name for n in names}
    assert [str(n) for n in names if n.is_untyped] == []
