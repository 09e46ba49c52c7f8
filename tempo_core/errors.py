"""The errors of users, as exceptions. Each names the user's line, says what is wrong, and says what to write instead."""

from __future__ import annotations

import functools
import itertools
import linecache
import os
import sys
from types import CodeType, FrameType, TracebackType

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_STANDARD = os.path.dirname(os.__file__) + os.sep
_LIBRARIES = tuple(f"-packages{os.sep}{name}{os.sep}" for name in ("jax", "numpy", "torch"))
_WIDTH = 100  # the largest length of a quoted line of source


@functools.lru_cache(maxsize=4096)
def _is_users_file(filename: str) -> bool:
    is_standard = filename.startswith(("<frozen ", _STANDARD)) and "-packages" not in filename
    return not (is_standard or any(map(filename.__contains__, _LIBRARIES)) or os.path.abspath(filename).startswith(_PACKAGE))


def is_users(frame: FrameType) -> bool:
    """Whether a stack frame runs code outside `tempo_core`, Python's standard library, JAX, NumPy and PyTorch."""
    code = frame.f_code
    generated = code.co_filename == "<string>" and code.co_name == "__init__"  # the generated __init__ of a dataclass
    return not generated and _is_users_file(code.co_filename)


def _users_place(place: TracebackType | None) -> tuple[CodeType, int, int] | None:
    """The code, the line and the instruction of the user's innermost frame: of a traceback, or else of the stack."""
    inside: tuple[CodeType, int, int] | None = None
    while place is not None:
        inside = (place.tb_frame.f_code, place.tb_lineno, place.tb_lasti) if is_users(place.tb_frame) else inside
        place = place.tb_next
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and not is_users(frame):
        frame = frame.f_back
    return inside or (None if frame is None else (frame.f_code, frame.f_lineno, frame.f_lasti))


def user_location(place: TracebackType | None = None) -> str:
    """`file:line` of the line that the user wrote: in the innermost of the user's frames."""
    found = _users_place(place)
    return "<tempo>" if found is None else f"{found[0].co_filename}:{found[1]}"


def called_function(place: TracebackType | None = None) -> str:
    """What the user's line calls, as it is written there: `jnp.exp`; "" if its text cannot be read."""
    if (found := _users_place(place)) is None:
        return ""
    line, last, start, end = next(itertools.islice(found[0].co_positions(), found[2] // 2, None))
    text = linecache.getline(found[0].co_filename, line or 0).encode()[start : end if last == line else None]
    name, call, _ = text.decode().partition("(")
    return name if call else ""


def quoted(where: str) -> str:
    """A `file:line` as errors show it: relative to the working directory if the file lies there, with the line's text if it can be read.

    `/home/me/program.py:12` in `/home/me` is `program.py:12: y = x[t + 1]`.
    """
    file, _, line = where.rpartition(":")
    if not line.isdigit():
        return where
    text = linecache.getline(file, int(line)).strip()
    here = os.getcwd() + os.sep
    shown = f"{file.removeprefix(here)}:{line}"
    return f"{shown}: {text if len(text) <= _WIDTH else text[: _WIDTH - 3] + '...'}" if text else shown


class TempoError(Exception):
    """The base class of all errors about a user's program or inputs.

    `message` says which rule was broken; `where` is the user's `file:line`; `hint` says what to write instead.
    """

    usual_hint: str | None = None  # for errors of the class that have no other hint

    def __init__(self, message: str, hint: str | None = None, *, where: str | None = None):
        super().__init__(message)
        self.message, self.where, self.hint = message, where or user_location(), hint or self.usual_hint

    def __str__(self) -> str:
        text = f"{self.message}\n  at {quoted(self.where)}"
        return text if self.hint is None else f"{text}\n  hint: {self.hint}"


class MissingRow(NotImplementedError):
    """A table that has no row for an op or a function. This is a mistake in Tempo, not in the user's program.

    The test of that row fails, with its name. Tests that merely need the row are skipped (`tests/conftest.py`).
    """


class ArgumentError(TempoError, TypeError):
    """An argument of the wrong kind, where a tensor, shape, step, number or name is expected."""


class ArrayError(TempoError):
    """A tensor in a function of JAX or PyTorch, which takes arrays: a tensor has no values while the program is built."""


class DivisionError(TempoError, ZeroDivisionError):
    """An index that divides by zero, or a modulus that is not positive."""

    usual_hint = "divide by a positive number: t // 2, t % 2"


class MissingAttributeError(TempoError, AttributeError):
    """An attribute or method that does not exist."""


class ContextError(TempoError):
    """Tensors or steps outside of a context, or of two contexts."""


class ShapeError(TempoError):
    """Shapes, axes or dtypes that do not fit together."""

    usual_hint = "print(x) shows the shape of x. To change it: x.reshape(...), x.expand_dims(axis), x.transpose(...)"


class DTypeError(TempoError):
    """A dtype that the operation does not take, or that is unknown."""

    usual_hint = 'a comparison gives a bool: x > 0. To convert numbers: x.astype("float32")'


class IndexingError(TempoError):
    """A temporal or spatial index that makes no sense for the tensor."""


class OutOfDomainError(TempoError):
    """A read of a point outside the source's domain."""


class UncoveredPointError(TempoError):
    """A point of a recurrence that no branch defines."""


class EmptyBranchError(TempoError):
    """A branch of a recurrence that never defines a point."""


class CausalityError(TempoError):
    """Values that depend on themselves: a cycle with no delay, for which no schedule exists."""


class BoundsError(TempoError):
    """A bound that is missing, unknown, or too small."""


class InputError(TempoError):
    """A fed array that is missing, unknown, or of the wrong shape or dtype."""


class SymbolicValueError(TempoError, TypeError):
    """A tensor, an expression or a condition where Python needs a number or a truth value. Its value exists only when a program runs."""


class GradientError(TempoError):
    """A request for a gradient that does not exist."""


class NonAffineError(TempoError):
    """An index or condition that is not affine in the steps, so that no schedule can be derived from it."""


class FunctionError(TempoError):
    """A user-defined function or sink that raised: the user's own exception is its `__cause__`."""


class NumericsError(TempoError):
    """A value that is not finite, in a run with `Config(check_numerics=True)`."""


class ConfigError(TempoError):
    """An unknown or contradictory option."""


class StateError(TempoError):
    """A run's state that cannot be saved, or a saved state that is damaged or of another program."""


class OutOfMemoryPlanError(TempoError):
    """A plan that does not fit in the memory limit."""


class OutOfMemoryError(TempoError):
    """A run for which the device (or the host) had too little memory."""
