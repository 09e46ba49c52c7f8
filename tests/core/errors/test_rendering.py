"""The text of an error: the mistake, the line with its source, the hint."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

import tempo_core as tp
from tempo_core import errors
from tempo_core.errors import quoted


def test_a_line_is_quoted_with_its_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "program.py"
    file.write_text("import this\n    y = x[t + 1]  # next\n" + "z = " + "x + " * 60 + "x\n")
    assert quoted(f"{file}:2") == f"{file}:2: y = x[t + 1]  # next"
    monkeypatch.chdir(tmp_path)
    assert quoted(f"{file}:2") == "program.py:2: y = x[t + 1]  # next"
    long = quoted(f"{file}:3")
    assert long.endswith("x...") and len(long) < 120
    assert quoted(f"{file}:99") == "program.py:99"
    assert quoted("<stdin>:1") == "<stdin>:1"
    assert quoted("the plan") == "the plan"


def test_a_file_whose_path_begins_like_the_directory_is_not_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    assert quoted(f"{tmp_path}{os.sep}work2{os.sep}a.py:1").startswith(str(tmp_path))


def test_the_parts_of_an_error() -> None:
    error = errors.ShapeError("too wide", where="a.py:3", hint="cut it")
    assert (error.message, error.where, error.hint) == ("too wide", "a.py:3", "cut it")
    assert str(error) == "too wide\n  at a.py:3\n  hint: cut it"
    assert str(errors.GradientError("none", where="a.py:3")) == "none\n  at a.py:3"


def test_errors_can_be_sent_to_other_processes() -> None:
    error = errors.IndexingError("wrong", where="a.py:3", hint="right")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is errors.IndexingError and str(again) == str(error)


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (errors.ArgumentError, TypeError),
        (errors.SymbolicValueError, TypeError),
        (errors.DivisionError, ZeroDivisionError),
        (errors.MissingAttributeError, AttributeError),
    ],
)
def test_what_python_has_an_exception_for_is_that_too(error: type[errors.TempoError], builtin: type[Exception]) -> None:
    assert issubclass(error, builtin) and issubclass(error, errors.TempoError)


def test_attributes_are_asked_for_safely() -> None:
    with tp.Context("t") as ((t, _),):
        x = tp.input("x", domain=(t,))
        assert not hasattr(x, "numpy") and getattr(x, "device", None) is None


def test_the_line_is_the_users_also_through_helpers() -> None:
    def helper(x: tp.Tensor) -> tp.Tensor:
        return x.softmax(3)

    with tp.Context("t") as ((t, _),), pytest.raises(errors.ShapeError, match=r"test_rendering.py:\d+: return x.softmax\(3\)"):
        helper(tp.input("x", (2,), domain=(t,)))


def test_comparisons_in_containers_and_assertions_are_structural() -> None:
    """`if t == 0` is always refused; tuples, dicts, sets and `in` compare expressions as Python programs expect."""
    with tp.Context("i", "t") as ((i, I), (t, T)):
        assert t in (i, t) and t not in (i, T) and {t: 1}.get(t) == 1 and {t, t} == {t}
        assert (t, T) == (t, T) and (t, T) != (i, T) and [T] != [I]
        assert tp.zeros((T, 3)).shape == (T, 3) and tp.zeros((T, 3)).shape == (T, 3)
        grows = tp.zeros((t + 1, 3))
        assert grows.shape == (t + 1, 3) and grows.shape != (t + 2, 3) and grows.shape != (T, 3) and t + 1 in grows.shape
        assert {t - 1: 1, t - 2: 2, -t: 3, -2 * t: 4, grows.shape[0]: 5}[t + 1] == 5
        assert t == t + 0 and t != i  # the steps themselves, not their values
        with pytest.raises(errors.SymbolicValueError):
            _ = 1 if t == i + 1 else 2
        with pytest.raises(errors.SymbolicValueError):
            bool(t == 0)  # a function asks
        with pytest.raises(errors.SymbolicValueError):
            _ = 0 in (i, t)
        with pytest.raises(errors.SymbolicValueError):
            _ = not t == 0  # noqa: SIM201
