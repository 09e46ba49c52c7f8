"""Mistakes at the surface of `tempo_rl`: recipes, environments, checkpoints. The command prints them without a traceback."""

from __future__ import annotations

from tempo_core.runs.errors import RecipeError, RunError
from tempo_core.runs.errors import UserError as RLError

__all__ = ["CheckpointError", "EnvError", "RLError", "RecipeError", "RunError"]


class EnvError(RLError):
    """An environment that is unknown, lacks a package, fails, or has spaces or an autoreset mode that `tempo_rl` cannot use."""

    def __reduce__(self) -> tuple[object, ...]:
        """It comes from another process with its hint."""
        return _env_error, (self.message, self.hint)


def _env_error(message: str, hint: str | None) -> EnvError:
    return EnvError(message, hint=hint)


class CheckpointError(RLError):
    """A checkpoint that is missing, damaged, or of another program."""
