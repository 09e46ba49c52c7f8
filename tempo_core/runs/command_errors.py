"""Mistakes of users, which a command prints without a traceback."""

from __future__ import annotations


class UserError(Exception):
    """Base of the errors that the libraries raise for a user's mistake. `message` says what is wrong, `hint` what to do instead."""

    def __init__(self, message: str, *, hint: str | None = None):
        self.message, self.hint = message, hint
        super().__init__(message if hint is None else f"{message}\n  hint: {hint}")


class RecipeError(UserError):
    """A recipe, or an override, that cannot be used."""


class RunError(UserError):
    """A run directory that cannot be read or written, or a training that had to stop."""
