"""The core stays small, and its folders tell what is where."""

from __future__ import annotations

from collections import Counter

from tests.structure import CORE, ROOT, circles, docstring, files, folders, lines, most_lines

MOST_FILES = 16


def test_the_core_has_at_most_so_many_lines() -> None:
    assert lines() <= most_lines(), "`core-lines` of pyproject.toml is the limit; a change that raises it says why, beside it"


def test_no_folder_has_too_many_files() -> None:
    assert {folder: len(paths) for folder, paths in folders().items() if len(paths) > MOST_FILES} == {}


def test_no_two_files_have_the_same_name() -> None:
    counts = Counter(path.stem for path in files() if path.stem not in ("__init__", "base"))
    assert [name for name, count in counts.items() if count > 1] == []


def test_the_design_lists_every_folder_with_what_it_is_for() -> None:
    design = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    rows = [f"| `{folder}/` | {docstring(CORE / folder).splitlines()[0]} |" for folder in folders() if folder != "."]
    assert [row for row in rows if row not in design] == []


def test_no_module_imports_itself_through_others() -> None:
    assert circles() == [], "also under TYPE_CHECKING and inside of functions"
