"""Mistakes that users make: each raises its own exception, which names the user's line; the texts are under tests/golden/errors."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tempo_core.errors import quoted
from tests.core.errors import mistakes_in_runs, mistakes_in_time, mistakes_in_values  # noqa: F401  (they register themselves)
from tests.core.errors.mistakes import MISTAKES, raised, without_lines, wrong_line


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_raises_its_exception_at_the_users_line(name: str) -> None:
    error, mistake = MISTAKES[name]
    exception = raised(name)
    assert type(exception) is error
    assert exception.where == wrong_line(mistake)
    assert exception.hint
    assert str(exception) == f"{exception.message}\n  at {quoted(exception.where)}\n  hint: {exception.hint}"


@pytest.mark.parametrize("name", MISTAKES)
def test_the_text_of_an_error(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"errors/{name}", without_lines(str(raised(name))))
