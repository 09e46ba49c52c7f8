"""Each pass has its files, tests and documentation: each test names the missing part."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import pytest

from tempo_core.config import PASSES, Config
from tempo_core.passes.base import Pass
from tempo_core.passes.pipeline import pipeline
from tempo_core.schedule.storage import Storage
from tempo_core.symbolic.expr import Symbol
from tests.core.passes.programs import PROGRAMS
from tests.core.passes.test_meaning import ALONE
from tests.fuzz.coverage import expected as generated

ROOT = Path(__file__).resolve().parents[3]
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
NEEDED = ("capacity", "ended")  # have no switch: without them, a program cannot run for bounds that a run chooses, or finds out
ROOMS = ("symbolic", "ir", "frontend", "passes", "schedule", "backends", "runtime", "report")


def classes() -> dict[str, type[Pass]]:
    """The classes of passes, by the names of their files."""
    kinds = {}
    for path in sorted((ROOT / "tempo_core" / "passes").rglob("*.py")):
        module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
        for _, kind in inspect.getmembers(module, inspect.isclass):
            if issubclass(kind, Pass) and kind is not Pass and kind.__module__ == module.__name__:
                kinds[path.stem] = kind
    return kinds


def words(page: str) -> set[str]:
    """The terms of the rows of a page's tables."""
    cells = re.findall(r"^\| ([^|]+?) \|", page, re.MULTILINE)
    return {word.strip() for cell in cells for word in cell.split(",")}


def missing(names: object, there: object) -> list[str]:
    return sorted(set(names) - set(there))  # type: ignore[call-overload]


def test_passes_have_a_switch_and_a_place_in_the_pipeline() -> None:
    in_order = {each.name for each in pipeline(tiles=(("t", 2),), numbers=((Symbol("T"), 4),), checkpoints=(("t", 2),))}
    assert missing(PASSES, in_order) == [], "names in PASSES that are not in the pipeline"
    assert missing(in_order, PASSES) == [], "passes without a name in PASSES, and so without a switch"
    assert missing((kind().name for kind in classes().values()), (*PASSES, *NEEDED)) == [], "passes that no pipeline runs"
    with_capacities = {each.name for each in pipeline(least=((Symbol("T"), 1),), ends=True)}
    assert missing(NEEDED, with_capacities) == [] and missing(with_capacities, (*PASSES, *NEEDED)) == []


@pytest.mark.parametrize("name", PASSES)
def test_a_switch_takes_its_pass_out(name: str) -> None:
    config = Config(disable=(name,), tile={"t": 2}, checkpoint={"t": 2})
    passes = pipeline(config.disable, (), (("t", 2),), numbers=((Symbol("T"), 4),), checkpoints=(("t", 2),))
    assert name not in {each.name for each in passes}


def test_files_are_named_after_their_passes() -> None:
    assert {stem: kind().name for stem, kind in classes().items() if kind().name.replace("-", "_") != stem} == {}
    assert missing(PASSES, classes()) == []


@pytest.mark.parametrize("stem", sorted(classes()))
def test_docstrings_say_what_is_rewritten(stem: str) -> None:
    text = inspect.getdoc(classes()[stem]) or ""
    assert "Rewrite" in text, f"the docstring of {stem} shows no text before and after"
    assert "->" in text


def test_every_pass_runs_alone_on_every_program() -> None:
    assert missing(PASSES, ALONE) == [], "passes without a row in ALONE of test_meaning.py"
    assert {name for name, row in ALONE.items() if row[-1].name != name} == set()


def test_every_pass_has_tests_of_its_own() -> None:
    tests = {path: path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py")}
    tested = {
        stem
        for stem, kind in classes().items()
        for path, text in tests.items()
        if path.name not in ("test_complete.py", "test_meaning.py") and re.search(rf"\b{kind.__name__}\(", text)
    }
    assert missing(classes(), tested) == []


def test_the_fuzzer_switches_every_pass_off() -> None:
    assert missing((f"pass off: {name}" for name in PASSES), generated()) == []


def test_programs_that_are_hard_on_a_pass_name_one() -> None:
    assert missing((program.hard_on for program in PROGRAMS.values()), PASSES) == []


def test_the_glossary_has_a_row_for_every_pass_and_kind_of_store() -> None:
    terms = {word.lower() for word in words(GLOSSARY)}
    assert missing(PASSES, terms) == []
    assert missing(("staged", "interpreted", "mask", "store", "slot", "fold"), terms) == []
    kinds = re.findall(r'"(\w+)"', (inspect.getdoc(Storage) or ""))
    row = next(line for line in GLOSSARY.splitlines() if line.startswith("| store |"))
    assert kinds and [kind for kind in kinds if kind not in row] == []


@pytest.mark.parametrize("room", ROOMS)
def test_a_page_says_which_file_to_read_first(room: str) -> None:
    page = (ROOT / "docs" / "extending" / "README.md").read_text(encoding="utf-8")
    row = next((line for line in page.splitlines() if line.startswith(f"| {room} |")), "")
    assert f"`tempo_core/{room}/" in row, f"no row for {room} under `Which file to read first`"
