"""The front page is true: its pictures and figures are those of the records, and each claim has a file that proves it."""

from __future__ import annotations

import itertools
import json
import re
from html import unescape
from pathlib import Path

from docs.figures import claims, example
from docs.figures.charts import CHARTS
from docs.figures.execution import traced

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
FIGURES = ROOT / "docs" / "figures"


def one_line(text: str) -> str:
    return " ".join(text.split())


def prose(page: str) -> str:
    """The page without code, results, commands and the places of links."""
    page = claims.TABLE.sub("", page)
    page = re.sub(r"```.*?```", "", page, flags=re.DOTALL)
    page = page.replace(page[page.index("## The command lines") : page.index("Compiled programs are kept")], "")
    return one_line(page)


def test_results_are_those_of_the_records() -> None:
    assert claims.with_results(README, claims.rows()) == README, "write them: python -m docs.figures"
    assert len(claims.rows()) >= 10 and len(claims.highlights(claims.rows())) == 5


def test_the_page_of_claims_is_up_to_date() -> None:
    assert claims.page(claims.rows()) == claims.PAGE.read_text(encoding="utf-8"), "write it: python -m docs.figures"


def test_each_claim_stands_on_the_front_page_and_has_its_files() -> None:
    page = one_line(README)
    assert len(claims.sentences()) >= 20
    for sentence, files in claims.sentences():
        assert sentence in page, f"README.md does not say: {sentence}"
        assert files, f"nothing proves: {sentence}"
        for file in files:
            assert (ROOT / file).is_file(), f"{file} is not there; it proves: {sentence}"
    for row in claims.rows():
        assert (ROOT / row.path).is_file()


def test_no_number_of_the_front_page_is_without_a_claim() -> None:
    page = prose(README)
    for sentence, _ in claims.sentences():
        page = page.replace(sentence, " ")
    page = re.sub(
        r"<img[^>]*>|\]\([^)]*\)|`[^`]*`|!\[[^]]*\]|SOSP 2025|Stable-Baselines3|Qwen 2|Apache 2\.0|\(sections? [0-9 and]+\)",
        " ",
        page,
    )
    numbers = [page[max(match.start() - 60, 0) : match.end() + 20] for match in re.finditer(r"\d", page)]
    assert not numbers, "these numbers of README.md stand in no line of docs/figures/sentences.txt"


def test_charts_show_the_records() -> None:
    for name, chart in CHARTS.items():
        path, series = FIGURES / f"{name}.svg", chart.recorded()
        if series is None:
            assert not path.exists(), f"{name}: a picture without a record"
            continue
        described = re.search(r"<dc:description>(.*?)</dc:description>", path.read_text(encoding="utf-8"), re.DOTALL)
        assert described, name
        assert json.loads(unescape(described[1])) == json.loads(json.dumps(series)), f"{name}: draw it: python -m docs.figures"


def test_the_picture_shows_the_program_of_the_front_page() -> None:
    assert example.picture() == (FIGURES / "program.svg").read_text(encoding="utf-8"), "draw it: python -m docs.figures"
    trace = traced(example.program(example.code()), example.TENSORS)
    assert {name: trace.slots[name] for name in ("x", "reward")} == {"x": 4, "reward": 5}
    columns = {name: {point: column for column, point in runs} for name, runs in trace.runs.items()}
    behind = {columns["value"][t] - columns["reward"][t] for t in range(example.LENGTH)}
    assert behind == {4}
    for lives in trace.lives.values():  # a slot holds one value at a time
        by_slot: dict[int, list[tuple[int, int]]] = {}
        for life in sorted(lives, key=lambda life: life.written):
            by_slot.setdefault(life.slot, []).append((life.written, life.read))
        for spans in by_slot.values():
            assert all(earlier[1] <= later[0] for earlier, later in itertools.pairwise(spans))


def test_all_pictures_of_the_front_page_are_there() -> None:
    shown = re.findall(r"(?:!\[[^]]+\]\(|<img src=\")(docs/figures/\w+\.svg)[)\"]", README)
    assert "docs/figures/program.svg" in shown
    assert not [path for path in shown if not (ROOT / path).is_file()]
