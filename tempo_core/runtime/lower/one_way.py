"""Loops that JAX cannot go through backwards: how often they run is known only inside of the device program.

`marked` gives values on, and puts an error where JAX's own would name no line: at the first reverse derivative of one of them.
Values, forward derivatives and batches pass.
"""

from __future__ import annotations

from typing import Any

from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from tempo_core.errors import GradientError

_one_way = Primitive("tempo_one_way")


def marked(value: Any, message: str, where: str, hint: str) -> Any:
    """`value`, an array. A reverse derivative of it raises a GradientError of this text, at the user's line `where`."""
    return _one_way.bind(value, message=message, where=where, hint=hint)


def _refused(cotangent: Any, value: Any, *, message: str, where: str, hint: str) -> Any:
    raise GradientError(message, where=where or None, hint=hint)


def _batched(operands: Any, axes: Any, **text: str) -> Any:
    return _one_way.bind(*operands, **text), axes[0]


_one_way.def_impl(lambda value, **_: value)
_one_way.def_abstract_eval(lambda value, **_: value)
mlir.register_lowering(_one_way, mlir.lower_fun(lambda value, **_: value, multiple_results=False))
ad.deflinear2(_one_way, _refused)
batching.primitive_batchers[_one_way] = _batched
