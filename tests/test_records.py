"""Figures on pages come from records whose benchmarks, and whose peers, are still those that made them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import sources
from benchmarks.sources import RESULTS, Tree, code_of, command, outdated
from docs import recorded
from docs.figures import charts, claims

MICRO, PPO = "micro 512x250", RESULTS / "ppo-two-core-cpu.json"
PEER = "benchmarks/peers/jax_micro.py"
SNIPPET = '''
"""A text."""
import math
from benchmarks.peers import jax_rnn as peer

def used(x: int = 1, *rest, key=None) -> str:
    """Says something."""
    return f"{peer.make(x)!r:>{x}} {LIMIT}"  # and why

LIMIT: float = 2.5
type_of = {"a": (1, 2), **{}}

def unused():
    return type_of
'''


def edited(path: str, old: str, new: str) -> Tree:
    text = (sources.ROOT / path).read_text(encoding="utf-8")
    assert old in text
    return Tree(texts={path: text.replace(old, new, 1)})


@pytest.fixture(scope="module")
def on_pages() -> list[Path]:
    """The records of the front page, of the pages with recorded parts, and of the pictures."""
    names: set[str] = set()
    original = charts.record

    def noted(benchmark: str) -> object:
        names.add(benchmark)
        return original(benchmark)

    with pytest.MonkeyPatch.context() as patch:
        for module in (charts, claims, recorded):
            patch.setattr(module, "record", noted)
        claims.table(claims.rows())
        for page in recorded.PAGES:
            recorded.filled(page.read_text(encoding="utf-8"))
        for chart in charts.CHARTS.values():
            chart.recorded()
    return [path for name in sorted(names) if (path := RESULTS / f"{name}-{charts.MACHINE}.json").exists()]


def test_figures_on_pages_come_from_the_benchmarks_of_today(on_pages: list[Path]) -> None:
    assert len(on_pages) >= 15
    late = [command(path, case) for path in on_pages for case in outdated(path)]
    assert not late, "these benchmarks have changed since they were recorded; record them anew, or say in " + (
        "benchmarks/results/unchanged.txt why they measure the same:\n" + "\n".join(late)
    )


def test_each_case_has_a_hash_and_each_entry_is_there() -> None:
    for path in RESULTS.glob("*-two-core-cpu.json"):
        content = json.loads(path.read_text(encoding="utf-8"))
        for case in content.get("cases", [content]):
            assert case["code"] or path.name.startswith("memory"), (path.name, case.get("case"))
    for kinds in sources.MADE_BY.values():
        for module, _, name in (entry.partition(":") for made_by in kinds.values() for entry in made_by if "{" not in entry):
            where = sources.today()._path(module)
            assert where is not None and (name == sources.ALL or sources.today()._statements(where, name)), f"{module}:{name}"


def test_a_changed_peer_is_noticed() -> None:
    """Those of its cases alone; the message has the command."""
    tree = edited(PEER, "\nimport jax\n", "\nimport jax\n\nSLOWER = 2\n")
    cases = [case["case"] for case in json.loads(PPO.read_text(encoding="utf-8"))["cases"]]
    late = {case for case in cases if tree.code("ppo", case)[0] != code_of("ppo", case)}
    assert late == {case for case in cases if case.startswith("micro")} and late <= {*outdated(PPO, tree)}
    assert (
        command(PPO, MICRO)
        == "python -m benchmarks.ppo --only 'micro 512x250' --add --out benchmarks/results/ppo-two-core-cpu.json"
    )


def test_a_changed_benchmark_is_noticed_where_it_is_used() -> None:
    code = {case: code_of("ppo", case) for case in (MICRO, "functional recipe")}
    for_all = edited("benchmarks/common.py", "run()\n            seconds[name]", "run(), run()\n            seconds[name]")
    assert all(for_all.code("ppo", case)[0] != before for case, before in code.items())
    for_micro = edited("benchmarks/ppo.py", '"JAX by hand": 1, f"', '"JAX by hand": 2, f"')
    assert [for_micro.code("ppo", case)[0] == before for case, before in code.items()] == [False, True]


@pytest.mark.parametrize(("old", "new"), [("\nimport jax\n", "\nimport jax  # remark\n"), ('"""', '"""Another text. ')])
def test_comments_and_docstrings_do_not_count(old: str, new: str) -> None:
    assert edited(PEER, old, new).code("ppo", MICRO)[0] == code_of("ppo", MICRO)


def test_what_prints_does_not_count() -> None:
    tree = edited("benchmarks/common.py", "    print(text, flush=True)", "    print(text, text)")
    assert tree.code("ppo", MICRO)[0] == code_of("ppo", MICRO)


def test_a_classic_is_hashed_with_its_family() -> None:
    definitions = sources.today().code("classics", "heat")[1]
    assert "benchmarks/classics/stencils.py: *" in definitions
    assert not [each for each in definitions if "statistics" in each]


def test_a_hash_is_the_same_on_every_python() -> None:
    peer = "benchmarks/peers/jax_rnn.py"
    tree = Tree(texts={"benchmarks/batch.py": SNIPPET, peer: "def make(x):\n    return x"})
    assert tree.code("batch", "")[0] == "e3e1313109ca"
    reached = sorted(tree._reached([("benchmarks/batch.py", "used")]))
    assert reached == [("benchmarks/batch.py", "LIMIT"), ("benchmarks/batch.py", "used"), (peer, "*")]


def test_a_change_that_measures_the_same_has_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sources, "UNCHANGED", tmp_path / "unchanged.txt")
    sources.UNCHANGED.write_text("# remarks\n", encoding="utf-8")
    tree = edited(PEER, "\nimport jax\n", "\nimport jax\n\nSLOWER = 2\n")
    assert MICRO in outdated(PPO, tree)
    recorded_code = next(case["code"] for case in json.loads(PPO.read_text())["cases"] if case["case"] == MICRO)
    sources.UNCHANGED.write_text(f"{recorded_code} {tree.code('ppo', MICRO)[0]} a constant that nobody reads\n", encoding="utf-8")
    assert MICRO not in outdated(PPO, tree)
    sources.UNCHANGED.write_text(f"{recorded_code} {tree.code('ppo', MICRO)[0]}\n", encoding="utf-8")
    with pytest.raises(ValueError, match="unpack"):
        outdated(PPO, tree)
