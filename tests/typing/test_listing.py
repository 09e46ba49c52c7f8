"""The listing of public names: a user receives nothing without a type; and what the listing calls `Any`."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("mypy", reason="needs mypy: pip install -e '.[dev]'")

from benchmarks.types import CORE, library_modules, listing

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


def test_the_listing_finds_what_gives_any() -> None:
    names = {n.name.removeprefix("tempo_rl_sample."): n for n in listing(["tempo_rl_sample"], Path(__file__).parent)}
    assert {name for name, each in names.items() if each.is_untyped} == UNTYPED
    assert set(names) == UNTYPED | {"Numbers", "array", "takes", "gives_a_function", "Thing", "Thing.count", "Thing.size"}
    assert str(names["takes"]) == "    tempo_rl_sample.takes: (x: Any) -> int"


def test_nothing_that_a_user_receives_is_any() -> None:
    names = listing([*CORE, *library_modules("tempo_rl"), *library_modules("tempo_llm")])
    assert {"tempo_core.Tensor.sum", "tempo_core.Program.run", "tempo_core.Context.run", "tempo_core.exp"} <= {
        n.name for n in names
    }
    assert {"tempo_core.nn.Linear.__call__", "tempo_core.random.normal", "tempo_core.typing.Value"} <= {n.name for n in names}
    assert {"tempo_rl.train.Outcome.result", "tempo_llm.generate.Generator.generate"} <= {n.name for n in names}
    assert [str(n) for n in names if n.is_untyped] == []
