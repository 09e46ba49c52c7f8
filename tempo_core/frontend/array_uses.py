"""The errors for uses of a tensor as an array: it has no values while the program is built."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, NoReturn

from tempo_core.errors import ArgumentError, MissingAttributeError, SymbolicValueError

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

        def __iter__(self) -> NoReturn:
            raise SymbolicValueError(
                f"cannot iterate over {self!r}",
                hint="to read one timestep: x[0]. To read one element of a dimension: x.index(0, i)",
            )

        def __len__(self) -> NoReturn:
            raise SymbolicValueError(f"the length of {self!r} may be symbolic", hint="read the size of a dimension: x.shape[0]")

    def __array_function__(self, function: Any, *_: object) -> NoReturn:
        raise self._refusal(function.__name__)

    def _refusal(self, function: str) -> ArgumentError:
        return ArgumentError(
            f"np.{function} takes arrays, not {self!r}",
            hint=f"use the function of Tempo: tp.{_TEMPO_NAMES.get(function, function)}(x)",
        )

    def __bool__(self) -> NoReturn:
        raise SymbolicValueError(
            f"{self!r} has no truth value while the program is built",
            hint="to choose by value: tp.where(x > 0, a, b). To choose by timestep: x[t > 0]",
        )
