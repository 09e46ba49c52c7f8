"""Mistakes at the surface of `tempo_rl`: recipes, environments, checkpoints. The command prints them without a traceback."""

from __future__ import annotations


class RLError(Exception):
    """Base of the errors that `tempo_rl` raises for a user's mistake. `hint` says what to do instead."""

    def __init__(self, message: str, *, hint: str | None = None):
        self.message, self.hint = message, hint
        super().__init__(message if hint is None else f"{message}\n  hint: {hint}")


class RecipeError(RLError):
    """A recipe, or an override, that cannot be used."""


class EnvError(RLError):
    """An environment that is unknown, lacks a package, or has spaces or an autoreset mode that `tempo_rl` cannot use."""


class CheckpointError(RLError):
    """A checkpoint that is missing, damaged, or of another program."""


class RunError(RLError):
    """A run directory that cannot be read or written, or a training that had to stop."""
