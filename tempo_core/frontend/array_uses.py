"""The errors for uses of a tensor as an array: it has no values while the program is built."""

from __future__ import annotations

import difflib
import functools
import sys
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from tempo_core import errors
from tempo_core.errors import ArgumentError, ArrayError, MissingAttributeError, SymbolicValueError
from tempo_core.frontend.elsewhere import INSTEAD, OF_FFT, OF_LINALG, OF_RANDOM

_TEMPO_NAMES = {"absolute": "abs", "amax": "max", "amin": "min"}
_RUN = "a tensor has values only in a run: ctx.run({T: 10}, outputs=[x])"
_ELSEWHERE = {
    "numpy": _RUN, "item": _RUN, "tolist": _RUN, "cpu": _RUN, "data": _RUN, "T": "write x.transpose()", "view": "write x.reshape(...)",
    "permute": "write x.transpose(1, 0)", "unsqueeze": "write x.expand_dims(axis)", "size": "write x.shape", "dim": "write x.rank",
    "to": "write x.astype(dtype)",
    "float": 'write x.astype("float32")', "int": 'write x.astype("int32")',
    "at": "write x.index_add(positions, updates) or x.scatter(positions, updates)",
    "requires_grad": "mark an input: tp.input(..., requires_grad=True). For any other tensor: tp.grad(loss, [x])",
    "clone": "a tensor never changes, so a copy is not needed: y = x", "copy": "a tensor never changes, so a copy is not needed: y = x",
}  # fmt: skip


def _refusing(text: str, hint: str) -> Callable[..., NoReturn]:
    def refuse(self: object, *_: object) -> NoReturn:
        raise SymbolicValueError(text.format(repr(self)), hint=hint)

    return refuse


class ArrayUses:
    """What an array has and a tensor has not. Each use is an error that says what to write instead."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            near = difflib.get_close_matches(name, [n for n in dir(type(self)) if not n.startswith("_")], 1)
            hint = _ELSEWHERE.get(name) or (f"did you mean .{near[0]}?" if near else "docs/language.md lists what tensors have")
            raise MissingAttributeError(f"{self!r} has no attribute `{name}`", hint=hint)

    def _value(self, *_: object, **__: object) -> NoReturn:
        raise SymbolicValueError(
            f"{self!r} has no value while the program is built",
            hint="to pass values to your own function: tp.udf, tp.sink. To get its values, run the program: ctx.run({T: 10}, outputs=[x])",
        )

    if not TYPE_CHECKING:  # for type checkers, a tensor is not a number, not an array, and not iterable
        __array__ = __float__ = __int__ = __index__ = __complex__ = _value

        __iter__ = _refusing(
            "cannot iterate over {}", "to read one timestep: x[0]. To read one element of a dimension: x.index(0, i)"
        )
        __len__ = _refusing("the length of {} may be symbolic", "read the size of a dimension: x.shape[0]")
        __contains__ = _refusing("cannot look for a value in {}", "write (x == value).any()")
        __round__ = _refusing("cannot round {} to a number", "round each element: x.round()")
        __reversed__ = _refusing("cannot iterate over {}", "to reverse an axis: x.flip(0)")

        def __format__(self, form: str) -> str:
            return repr(self) if not form else self._value()

        @property
        def __jax_array__(self) -> NoReturn:
            asking = sys._getframe(1).f_code  # an operator, which JAX leaves to the tensor then, or C++, which ignores errors
            if asking.co_filename.endswith("array_methods.py") or asking.co_name == "bind":
                raise AttributeError("not an array of JAX")
            called = errors.called_function()
            raise self._value() if called.endswith("array") else ArrayError(*_refused(called, repr(self)))

        @classmethod
        def __torch_function__(cls, *_: object) -> Any:
            return NotImplemented  # PyTorch's error then has the tensor's class in its text (`refused`)

    def __array_function__(self, function: Any, *_: object) -> NoReturn:
        called, name = errors.called_function(), f"{function.__module__.replace('numpy', 'np', 1)}.{function.__name__}"
        raise self._refusal(called if "." in called else name)

    def _refusal(self, function: str) -> ArgumentError:
        return ArgumentError(*_refused(function, repr(self)))

    def __bool__(self) -> NoReturn:
        raise SymbolicValueError(
            f"{self!r} has no truth value while the program is built",
            hint="to choose by value: tp.where(x > 0, a, b). To choose by timestep: x[t > 0]. To join conditions: (x > 0) & (x < 1)",
        )


def refused(error: object, place: TracebackType | None) -> ArrayError | None:
    """The error for a function of another library that refused a tensor: from its own exception, and where that was raised."""
    if isinstance(error, TypeError) and not isinstance(error, errors.TempoError) and "frontend.tensor.Tensor" in str(error):
        return ArrayError(*_refused(errors.called_function(place), "a tensor"), where=errors.user_location(place))
    return None


def _refused(function: str, tensor: str) -> tuple[str, str]:
    """The message, and the hint, of the error for a function of another library, such as `np.fft.rfft`; "" if it is not known which."""
    api: Any = sys.modules["tempo_core.api"]
    path = function.partition(".")[2] or function
    name, text = path.rpartition(".")[2], f"{function or 'a function of another library'} takes arrays, not {tensor}"
    for own in (path, _TEMPO_NAMES.get(name, name)):
        if name and callable(functools.reduce(lambda module, part: getattr(module, part, None), own.split("."), api)):
            return text, f"use the function of Tempo: tp.{own}({'x' if '.' in own or hasattr(api.Tensor, own) else '...'})"
    library = f"to call it with values in a run: tp.udf(lambda v: ({function or 'f'}(v),), x, outputs=[tp.spec((3,))])"
    return text, (INSTEAD | OF_LINALG | OF_FFT | OF_RANDOM).get(name, library)
