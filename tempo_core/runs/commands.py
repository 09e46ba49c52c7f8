"""What the commands of all libraries do alike: mistakes without a traceback, missing packages, long compilations, completion in a shell."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from tempo_core.compiling import Subject, reporting

MOMENTS = (10.0, 30.0)  # seconds of a compilation; the first line comes with the first report
EVERY = 60.0  # seconds between further lines


class UserError(Exception):
    """Base of the errors that the libraries raise for a user's mistake. `message` says what is wrong, `hint` what to do instead."""

    def __init__(self, message: str, *, hint: str | None = None):
        self.message, self.hint = message, hint
        super().__init__(message if hint is None else f"{message}\n  hint: {hint}")


class RecipeError(UserError):
    """A recipe, or an override, that cannot be used."""


class RunError(UserError):
    """A run directory that cannot be read or written, or a training that had to stop."""


def name_the_extra(error: ModuleNotFoundError, command: str, extra: str, modules: Collection[str]) -> NoReturn:
    """End with exit status 1 and a line on standard error if the module is one of an extra's `modules`. Else raise the error again."""
    if (error.name or "").partition(".")[0] not in modules:
        raise error
    print(f"error: {command} needs {error.name}, which is not installed: pip install 'tempo-dl[{extra}]'", file=sys.stderr)
    raise SystemExit(1)


@contextmanager
def announcing(say: Callable[[str], None]) -> Iterator[None]:
    """Inside, a compilation that takes more than two seconds is said: after 2, 10, 30 and 60 seconds, then every minute."""
    due = 0.0

    def hear(subject: Subject, seconds: float | None) -> None:
        nonlocal due
        if seconds is None:
            due = 0.0
        elif seconds >= due:
            say(f"compiling {subject}: {seconds:.0f} s")
            due = next((moment for moment in MOMENTS if moment > seconds), (seconds // EVERY + 1) * EVERY)

    with reporting(hear):
        yield


def assignments(recipe: Mapping[str, Any], begun: str, earlier: Sequence[str] = ()) -> list[str]:
    """All `key=value` of a recipe that begin with `begun`: keys inside of others as `env.id`, and lists, mappings and null without their value.

    `earlier` are the overrides before it, whose keys are left out. There are none where a value is typed, after `key=`.
    """
    # bash hands on `key=value` as `key`, `=` and `value`
    if earlier and (earlier[-1] == "=" or "=" not in "".join(earlier[-2:])):
        return []
    keys = {word.partition("=")[0] for word in earlier}
    return [text for key, text in _assignments(recipe) if key not in keys and text.startswith(begun)]


def _assignments(recipe: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in recipe.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and value:
            yield from _assignments(value, f"{key}.")
        elif isinstance(value, (bool, int, float)):
            yield key, f"{key}={json.dumps(value)}"
        else:
            yield key, f"{key}={value}" if isinstance(value, str) and value.isprintable() and " " not in value else f"{key}="
