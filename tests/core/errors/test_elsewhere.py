"""Names of other libraries: the error says what to write here."""

from __future__ import annotations

import re

import pytest

import tempo_core as tp
from tempo_core.errors import MissingAttributeError
from tempo_core.frontend.elsewhere import INSTEAD, OF_FFT, OF_LINALG, OF_RANDOM


@pytest.mark.parametrize("name", INSTEAD)
def test_a_name_that_is_missing(name: str) -> None:
    with pytest.raises(MissingAttributeError, match=f"tp has no `{name}`") as error:
        getattr(tp, name)
    assert error.value.hint == INSTEAD[name] and "test_elsewhere.py" in str(error.value)


INSIDE = {"random": OF_RANDOM, "linalg": OF_LINALG, "fft": OF_FFT}


@pytest.mark.parametrize("module, name", [(module, name) for module, names in INSIDE.items() for name in names])
def test_a_name_that_a_module_lacks(module: str, name: str) -> None:
    with pytest.raises(MissingAttributeError, match=f"tp.{module} has no `{name}`"):
        getattr(getattr(tp, module), name)


@pytest.mark.parametrize("hint", sorted({hint for table in (INSTEAD, *INSIDE.values()) for hint in table.values()}))
def test_hints_name_what_exists(hint: str) -> None:
    for path in re.findall(r"tp\.((?:\w+\.)*\w+)", hint):
        value = tp
        for part in path.split("."):
            assert hasattr(value, part), f"{hint}: there is no tp.{path}"
            value = getattr(value, part)


def test_a_name_with_a_slip() -> None:
    with pytest.raises(MissingAttributeError, match=r"did you mean tp\.softmax\?"):
        tp.sofmax  # noqa: B018


def test_what_has_no_name_here() -> None:
    with pytest.raises(AttributeError, match="tp has no `bla`"):
        tp.bla  # noqa: B018
    assert not hasattr(tp, "_bla") and getattr(tp, "bla", None) is None
