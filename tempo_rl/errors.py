"""Mistakes at the surface of `tempo_rl`: recipes, environments, checkpoints. The command prints them without a traceback."""

from __future__ import annotations

import traceback

from tempo_core.runs.commands import RecipeError, RunError
from tempo_core.runs.commands import UserError as RLError

__all__ = ["CheckpointError", "EnvError", "RLError", "RecipeError", "RunError", "own_line"]


class EnvError(RLError):
    """An environment that is unknown, lacks a package, fails, or has spaces or an autoreset mode that `tempo_rl` cannot use."""

    def __reduce__(self) -> tuple[object, ...]:
        """It comes from another process with its hint."""
        return _env_error, (self.message, self.hint)


def _env_error(message: str, hint: str | None) -> EnvError:
    return EnvError(message, hint=hint)


class CheckpointError(RLError):
    """A checkpoint that is missing, damaged, or of another program."""


def own_line(error: BaseException) -> str:
    """Where an error was raised: the innermost line that is not of an installed package or of Tempo; else the innermost one."""
    frames = list(traceback.extract_tb(error.__traceback__))
    of_user = [
        frame for frame in frames if not any(part in frame.filename for part in ("site-packages", "tempo_core", "tempo_rl/"))
    ]
    shown = (of_user or frames)[-1:]
    return f"\n  at {shown[0].filename}:{shown[0].lineno}: {shown[0].line}" if shown else ""
