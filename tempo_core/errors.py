"""Every mistake a user can make, as an exception that names the user's own line, what is wrong and what to write."""

from __future__ import annotations

import os
import traceback

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_JAX = f"{os.sep}jax{os.sep}_src{os.sep}"


def user_location() -> str:
    """`file:line` of the innermost stack frame outside `tempo_core` and JAX: the line that the user wrote."""
    for frame in reversed(traceback.extract_stack()):
        generated = frame.filename == "<string>" and frame.name == "__init__"  # of a dataclass
        if not (generated or _JAX in frame.filename or os.path.abspath(frame.filename).startswith(_PACKAGE)):
            return f"{frame.filename}:{frame.lineno}"
    return "<tempo>"


class TempoError(Exception):
    """Base of all errors that Tempo raises for what the user wrote or fed.

    `message` says which rule was broken; `where` is the user's `file:line`; `hint` says what to write instead.
    """

    def __init__(self, message: str, *, where: str | None = None, hint: str | None = None):
        self.message, self.where, self.hint = message, where or user_location(), hint
        text = f"{message}\n  at {self.where}"
        super().__init__(text if hint is None else f"{text}\n  hint: {hint}")


class ShapeError(TempoError):
    """Shapes, axes or dtypes that do not fit together."""


class DTypeError(TempoError):
    """A dtype that the operation does not take, or that is unknown."""


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
    """A bound that was not given, is unknown, or is too small."""


class InputError(TempoError):
    """A fed array that is missing, unknown, or of the wrong shape or dtype."""


class SymbolicValueError(TempoError, TypeError):
    """A tensor, an expression or a condition where Python needs a number or a truth value: it is known only when a program runs."""


class GradientError(TempoError):
    """A gradient that was asked for and does not exist."""


class NonAffineError(TempoError):
    """An index or condition that is not affine in the steps, so that no schedule can be derived from it."""


class NumericsError(TempoError):
    """A value that is not finite, found with `Config(check_numerics=True)`."""


class ConfigError(TempoError):
    """An unknown or contradictory option."""


class OutOfMemoryPlanError(TempoError):
    """A plan that does not fit the given memory limit."""
