"""Every public function with wrong arguments: an error of Tempo at the user's line, with a hint, and no internal exception."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import tempo_core as tp
from tempo_core import errors
from tempo_core.frontend.arguments import KINDS
from tempo_core.frontend.tensor import Tensor
from tests.core.errors import misuses_a_to_f, misuses_g_to_z

MISUSES = misuses_a_to_f.MISUSES | misuses_g_to_z.MISUSES
CASES = [(error, line) for error, lines in MISUSES.items() for line in lines.strip().splitlines()]


def names() -> dict[str, Any]:
    """The names for the lines: a context with steps i, t, inputs over them, a recurrence h, a model; `run` compiles and runs."""
    ctx = tp.Context("i", "t")
    (i, I), (t, T) = ctx.__enter__()
    x, y = tp.input("x", (3,), domain=(i, t)), tp.input("y", (), domain=(t,))
    m, n = tp.input("m", (2, 3)), tp.input("n", (), "int32", domain=(t,))
    h = tp.recurrence((), domain=(t,), name="h")
    h[0] = 0.0
    fed = {"x": np.zeros((2, 4, 3)), "y": np.zeros(4), "m": np.zeros((2, 3)), "n": np.zeros(4, int)}

    def program(*outputs: tp.Tensor, **options: Any) -> tp.Program:
        return ctx.compile({I: 2, T: 4}, outputs=outputs, config=tp.Config(backend="numpy", **options))

    def run(*outputs: tp.Tensor, **options: Any) -> Any:
        return program(*outputs, **options).run(fed)

    host = lambda fn: tp.udf(fn, y, outputs=[tp.spec()], kind="host")  # noqa: E731
    namespace = dict(locals())
    return {**namespace, "tp": tp, "np": np, "jnp": jnp}


@pytest.mark.parametrize(("error", "line"), CASES, ids=[line for _, line in CASES])
def test_a_misuse_is_an_error_with_a_line_and_a_hint(error: str, line: str) -> None:
    code = compile(line, "misuse.py", "exec")
    namespace = names()
    try:
        with pytest.raises(errors.TempoError) as caught:
            exec(code, namespace)
    finally:
        namespace["ctx"].__exit__()
    exception = caught.value
    assert type(exception).__name__ == error
    assert exception.where.endswith("misuse.py:1") or exception.where.startswith(__file__), exception.where
    assert exception.hint
    for inner in ("tempo_core/", "isl", "jaxlib", "object at 0x"):
        assert inner not in str(exception).replace(__file__, "")


UNCHECKED = (
    "Any",
    "Shape",
    "ArrayLike",
    "AxisPairs",
    "Padding",
    "Value | Complex",
    "int | Expr",
)  # any value, or a value that is checked where it is used
WRONG = {"none": None, "text": "text", "object": object(), "dict": {"a": 1}}


def checked_methods() -> dict[str, Any]:
    members = inspect.getmembers(Tensor, inspect.isfunction)
    return {name: f for name, f in members if hasattr(f, "__wrapped__") and not name.startswith("_")}


def public_functions() -> dict[str, Any]:
    functions = {f"tp.{name}": getattr(tp, name) for name in tp.__all__}
    for place, module in {"tp.random": tp.random, "tp.linalg": tp.linalg, "tp.fft": tp.fft}.items():
        functions.update(
            {f"{place}.{name}": f for name, f in vars(module).items() if getattr(f, "__module__", "") == module.__name__}
        )
    functions.update({f"Tensor.{name}": f for name, f in checked_methods().items()})
    return {name: f for name, f in functions.items() if inspect.isfunction(f) and not f.__name__.startswith("_")}


def test_all_public_functions_have_checked_arguments() -> None:
    functions = public_functions()
    assert len(functions) > 100
    assert [name for name, f in functions.items() if not hasattr(f, "__wrapped__")] == []


def test_there_is_a_check_for_every_annotation() -> None:
    unknown = {
        f"{name}: {p.annotation}"
        for name, function in public_functions().items()
        for p in inspect.signature(function).parameters.values()
        if str(p.annotation) not in (*KINDS, *UNCHECKED) and p.name not in ("self", "dtype")
    }
    assert unknown == set(), "give these annotations a row in frontend/arguments.KINDS"


def of_a_tensor(function: Any, x: tp.Tensor) -> tuple[Any, list[inspect.Parameter]]:
    """A function, or a method of `x`, with its parameters."""
    parameters = list(inspect.signature(function).parameters.values())
    is_method = bool(parameters) and parameters[0].name == "self"
    return (functools.partial(function, x), parameters[1:]) if is_method else (function, parameters)


def test_a_function_without_its_arguments_says_which_is_missing() -> None:
    for function in public_functions().values():
        with tp.Context("t") as ((t, _),):
            call, parameters = of_a_tensor(function, tp.input("x", (3,), domain=(t,)))
            needed = [p.name for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
            if needed:
                with pytest.raises(errors.ArgumentError, match=f"the argument `{needed[0]}` of"):
                    call()


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_first_argument_is_an_error_of_ours(wrong: str) -> None:
    """No function takes an object or a dict as its first argument; None and texts are refused unless they have a meaning there."""
    for name, function in public_functions().items():
        with tp.Context("t") as ((t, _),):
            x = tp.input("x", (3,), domain=(t,))
            call, parameters = of_a_tensor(function, x)
            if not parameters or KINDS.get(str(parameters[0].annotation), KINDS["Value"]).fits(WRONG[wrong]):
                continue
            others = [p for p in parameters[1:] if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
            arguments = [x if str(p.annotation) in ("Tensor", "Value") else 0 for p in others]
            try:
                call(WRONG[wrong], *arguments)
            except errors.TempoError as error:
                assert error.hint, name
            else:
                raise AssertionError(f"{name} takes {WRONG[wrong]!r}")


# -- functions of users, whose annotations are checked as ours are ------------------------------------------------------

MODULE = """
from typing import Optional
import tempo_core as tp
from tempo_core import typing
import numpy as np

class Scaled(tp.nn.Module):
    def __init__(self, width: int, names: Optional[str] = None):
        super().__init__()
        self.width = width

    def forward(self, x: tp.Tensor, factor: float = 1.0, shift: typing.Value = 0, axis: "typing.Axes" = None, other: np.ndarray = ()):
        return (x * factor + shift).sum(axis)
"""


@pytest.mark.parametrize("first", ["", "from __future__ import annotations"])
def test_arguments_of_a_users_module_are_checked(first: str) -> None:
    namespace: dict[str, Any] = {"__name__": "a_users_module"}
    exec(compile(first + MODULE, "a_users_module.py", "exec", dont_inherit=True), namespace)
    scaled = namespace["Scaled"]
    with tp.Context("t") as ((t, _),):
        x = tp.input("x", (3,), domain=(t,))
        assert scaled(3)(x, 2.0, t, 0, "anything").shape == ()
        assert scaled(3)(np.ones(3), axis=(0,)).shape == ()  # an array becomes a tensor
        for wrong, what, hint in [
            (lambda: scaled("wide"), "the argument `width` of `Scaled` must be an int, not 'wide'", "Scaled(width, names=None)"),
            (
                lambda: scaled(3, 4),
                "the argument `names` of `Scaled` must be a string or None, not 4",
                "Scaled(width, names=None)",
            ),
            (lambda: scaled(), "the argument `width` of `Scaled` is missing", "Scaled(width, names=None)"),
            (lambda: scaled(3, "a", 4), "`Scaled` takes 2 arguments, got 3", "Scaled(width, names=None)"),
            (lambda: scaled(3)(None), "the argument `x` of `Scaled` must be a tensor, not None", "tp.constant"),
            (lambda: scaled(3)(x, x), "the argument `factor` of `Scaled` must be a number, not <Tensor", "when the program runs"),
            (
                lambda: scaled(3)(x, shift="a"),
                "the argument `shift` of `Scaled` must be a tensor or number, not 'a'",
                "tp.constant",
            ),
            (lambda: scaled(3)(x, axis="a"), "the argument `axis` of `Scaled` must be an axis", "axis=0"),
        ]:
            with pytest.raises(errors.ArgumentError) as caught:
                wrong()
            exception = caught.value
            assert what in exception.message
            assert hint in str(exception.hint) and "self" not in str(exception)


def test_a_hint_shows_no_self() -> None:
    with tp.Context("t") as ((t, T),):
        x = tp.input("x", (3,), domain=(t,))
        program = tp.Context.current().compile({T: 3}, outputs=x, config=tp.Config(backend="numpy"))
        for wrong in (
            lambda: x.sum(0, True, 3),
            lambda: x.softmax(depth=1),
            lambda: program.run({}, 3, {}, 4),
            lambda: x.top_k(),
        ):
            with pytest.raises(errors.ArgumentError) as caught:
                wrong()
            assert caught.value.hint and "self" not in str(caught.value)


def test_a_method_is_the_function_of_its_name() -> None:
    methods = checked_methods()
    assert len(methods) > 75
    assert all(method.__doc__ and method.__name__ == name for name, method in methods.items())
    assert {name for name, method in methods.items() if getattr(tp, name, None) is not method} == {
        *("max", "min"),  # of expressions of steps, as functions
        *("astype", "backward", "before", "index"),  # methods alone
    }
