"""Mistakes at the surface of `tempo_rl`: recipes, environments, checkpoints. The command prints them without a traceback."""

from __future__ import annotations

from tempo_core.runs.errors import RecipeError, RunError
from tempo_core.runs.errors import UserError as RLError

__all__ = ["CheckpointError", "EnvError", "RLError", "RecipeError", "RunError"]


class EnvError(RLError):
    """An environment that is unknown, lacks a package, or has spaces or an autoreset mode that `tempo_rl` cannot use."""


class CheckpointError(RLError):
    """A checkpoint that is missing, damaged, or of another program."""
