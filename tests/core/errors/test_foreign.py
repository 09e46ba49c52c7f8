"""Tensors and steps in the hands of other libraries and of Python: errors of our own, at the user's line, that say what to write."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tempo_core as tp
from tempo_core import errors

REFUSED = {
    "jnp.exp(x)": "tp.exp(x)",
    "jnp.add(x, 1)": "tp.add(...)",
    "jnp.where(x > 0, x, 0)": "tp.where(...)",
    "jnp.stack([x, x])": "tp.stack(...)",
    "jnp.linalg.norm(x)": "tp.norm(x)",
    "jnp.fft.rfft(x)": "tp.fft.rfft(x)",
    "jnp.dot(x, x)": "tp.udf(lambda v: (jnp.dot(v),), x, ",
    "jax.nn.relu(x)": "tp.relu(x)",
    "jax.lax.exp(x)": "tp.exp(x)",
    "jax.lax.scan(lambda c, v: (c, v), 0.0, x)": "write a recurrence",
    "jax.vmap(lambda v: v + 1)(x)": "write it for one point of a step",
    "jax.grad(lambda v: v.sum())(x)": "tp.grad(x)",
    "np.mean(x)": "tp.mean(x)",
    "np.fft.fft(x)": "tp.fft.fft(x)",
    "np.linalg.norm(x)": "tp.norm(x)",
    "np.interp(x, [0, 1], [0, 1])": "tp.udf(lambda v: (np.interp(v),), x, ",
    "np.add.reduce(x)": "tp.add(...)",
}
WITHOUT_VALUES = {
    "jnp.asarray(x)": "tp.udf, tp.sink",
    "np.asarray(x)": "tp.udf, tp.sink",
    "np.full(3, x)": "tp.udf, tp.sink",
    "float(x)": "tp.udf, tp.sink",
    "f'{x:.3f}'": "tp.udf, tp.sink",
    "x.numpy()": "ctx.run(",
    "len(x)": "x.shape[0]",
    "list(x)": "x.index(0, i)",
    "a, b, c = x": "x.index(0, i)",
    "1 in x": "(x == value).any()",
    "round(x)": "x.round()",
    "list(reversed(x))": "x.flip(0)",
    "1 if x > 0 else 2": "tp.where(x > 0, a, b)",
    "0 < x < 1": "(x > 0) & (x < 1)",
    "max(x, 0)": "tp.where(x > 0, a, b)",
}


def raised(line: str, place: Path) -> errors.TempoError:
    """The error of a line in a file, in a context with an input x over t."""
    place.write_text(line + "\n", encoding="utf-8")
    with pytest.raises(errors.TempoError) as caught, tp.Context("t") as ((t, _),):
        names = {"x": tp.input("x", (3,), domain=(t,)), "jnp": jnp, "jax": jax, "np": np, "tp": tp, "t": t}
        exec(compile(line, str(place), "exec"), names)
    assert caught.value.where == f"{place}:1"
    return caught.value


@pytest.mark.parametrize("line", REFUSED)
def test_functions_of_other_libraries_take_no_tensors(line: str, tmp_path: Path) -> None:
    error = raised(line, tmp_path / "program.py")
    assert isinstance(error, (errors.ArgumentError, errors.ArrayError)) and "takes arrays, not " in error.message
    assert REFUSED[line] in str(error.hint)


@pytest.mark.parametrize("line", WITHOUT_VALUES)
def test_a_tensor_has_no_values_while_the_program_is_built(line: str, tmp_path: Path) -> None:
    assert WITHOUT_VALUES[line] in str(raised(line, tmp_path / "program.py").hint)


def test_a_call_over_several_lines(tmp_path: Path) -> None:
    assert "jnp.exp takes arrays" in raised("jnp.exp(\n    x)", tmp_path / "program.py").message


def test_a_function_of_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with (
        pytest.raises(errors.ArrayError, match=r"torch.exp takes arrays, not a tensor(.|\n)*tp.exp\(x\)"),
        tp.Context("t") as ((t, _),),
    ):
        torch.exp(tp.input("x", (3,), domain=(t,)))


def test_operators_with_an_array_on_the_left_are_ours() -> None:
    with tp.Context("t") as ((t, _),):
        x = tp.input("x", (3,), domain=(t,))
        assert all(isinstance(y, tp.Tensor) for y in (jnp.ones(3) + x, jnp.ones((3, 3)) @ x, np.ones(3) * x, np.add(x, 1)))


# -- what `with` gives ---------------------------------------------------------------------------------------------------


def one_as_two() -> None:
    with tp.Context("t") as (t, T):  # type: ignore[misc]  # here
        del t, T


def one_as_two_pairs() -> None:
    with tp.Context("t") as ((t, T), (i, I)):  # type: ignore[misc]  # here
        del t, T, i, I


def two_as_one() -> None:
    with tp.Context("i", "t") as ((t, T),):  # type: ignore[misc]  # here
        del t, T


def a_pair_in_a_domain() -> None:
    with tp.Context("i", "t") as (i, t):
        del i
        tp.input("x", domain=(t,))  # type: ignore[arg-type]  # here


@pytest.mark.parametrize(
    "mistake, hint",
    [
        (one_as_two, "with ctx as ((t, T),): ..."),
        (one_as_two_pairs, "with ctx as ((t, T),): ..."),
        (two_as_one, "with ctx as ((i, I), (t, T)): ..."),
        (a_pair_in_a_domain, "with ctx as ((i, I), (t, T)): ..."),
    ],
)
def test_steps_that_are_not_taken_apart(mistake: Callable[[], None], hint: str) -> None:
    with pytest.raises(errors.ContextError) as caught:
        mistake()
    assert hint in str(caught.value.hint) and "# here" in str(caught.value)


def test_other_errors_of_a_body_stay_what_they_are() -> None:
    with pytest.raises(ValueError, match="not enough values to unpack"), tp.Context("t"):
        a, b = (1,)
        del a, b
    with pytest.raises(TypeError, match="unsupported operand"), tp.Context("t"):
        _ = 1 + "a"  # type: ignore[operator]


# -- the user's line -----------------------------------------------------------------------------------------------------

PROGRAM = """
import tempo_core as tp
with tp.Context("t") as ((t, T),):
    x = tp.input("x", (3,), domain=(t,))
    y = x.reshape(7)
"""


@pytest.mark.parametrize("run", [importlib.import_module, lambda name: runpy.run_module(name, run_name="__main__")])
def test_a_line_of_a_module_that_is_imported_or_run(
    run: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a_users_program.py").write_text(PROGRAM, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(errors.ShapeError) as caught:
        run("a_users_program")
    assert caught.value.where == f"{tmp_path / 'a_users_program.py'}:5"


class Loading:
    """A module whose code is a call of Tempo: the innermost frame outside of it is in `<frozen importlib._bootstrap>`."""

    def __init__(self, call: Callable[..., Any]):
        self.exec_module = call

    def create_module(self, spec: Any) -> None:
        return None

    def find_spec(self, name: str, *_: Any) -> Any:
        return importlib.util.spec_from_loader(name, self) if name == "a_call_of_tempo" else None  # type: ignore[arg-type]


def test_frames_of_the_import_system_are_not_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    with tp.Context("t"), pytest.raises(errors.TempoError) as caught:
        monkeypatch.setattr(sys, "meta_path", [Loading(functools.partial(tp.reshape, tp.ones((3,)), 7)), *sys.meta_path])
        import a_call_of_tempo  # noqa: F401  # here
    assert caught.value.where.startswith(f"{__file__}:") and "# here" in str(caught.value)


def test_interactive_lines_are_the_users() -> None:
    with pytest.raises(errors.ShapeError) as caught, tp.Context("t"):
        exec(compile("tp.ones((3,)).reshape(7)", "<stdin>", "single"), {"tp": tp})
    assert caught.value.where == "<stdin>:1"


def test_lines_of_libraries_are_not_the_users() -> None:
    with pytest.raises(errors.SymbolicValueError) as caught, tp.Context("t") as ((t, _),):
        np.vectorize(float)([tp.input("x", (), domain=(t,))])  # here
    assert "# here" in str(caught.value) and sys.prefix not in caught.value.where


@pytest.mark.parametrize("read", ["x[t + 1]", "x[10]", "x[t : t + 5]", "(x * 2)[t - 1]"])
def test_a_read_that_is_an_output_is_wrong_at_its_own_line(read: str, tmp_path: Path) -> None:
    place = tmp_path / "program.py"
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        names = {"x": tp.input("x", (3,), domain=(t,)), "t": t}
        exec(compile(f"\ny = {read}\nz = y\n", str(place), "exec"), names)
    for outputs in (names["z"], {"z": names["z"]}, [names["z"].named("z")]):
        with pytest.raises((errors.OutOfDomainError, errors.BoundsError)) as caught:
            ctx.compile({T: 4}, outputs)
        assert caught.value.where == f"{place}:2"
