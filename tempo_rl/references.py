"""Objects that recipes name as `module:name`, found from the working directory."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from tempo_rl.errors import EnvError

Kind = TypeVar("Kind")
TRUSTED = ("gymnasium", "brax", "tempo_rl")  # packages whose objects a recipe from elsewhere may name


def load_reference(reference: str) -> Callable[..., object]:
    """The object with the name `module:name`. Raises `EnvError` if it does not exist."""
    module, _, name = reference.partition(":")
    if (here := os.getcwd()) not in sys.path:
        sys.path.append(here)
    try:
        target: Callable[..., object] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise EnvError(f"{reference!r} cannot be imported: {error}", hint='write "package.module:Class"') from error
    return target


def load_class(reference: str, kind: type[Kind]) -> type[Kind]:
    """The class with the name `module:Class`. Raises `EnvError` unless it is derived from `kind`."""
    target = load_reference(reference)
    if not (isinstance(target, type) and issubclass(target, kind)):
        raise EnvError(f"{reference!r} is not a class derived from {kind.__module__}:{kind.__name__}")
    return target


def foreign_references(recipe: Mapping[str, Any]) -> list[str]:
    """The `module:name` references of a recipe's plain data that are not of Gymnasium, Brax or `tempo_rl`."""
    return [text for text in _references(recipe) if text.partition(":")[0].partition(".")[0] not in TRUSTED]


def _references(recipe: Mapping[str, Any]) -> Iterator[str]:
    env = recipe.get("env") or {}
    env = env if isinstance(env, Mapping) else {}
    wrappers = env.get("wrappers") or ()
    for value in (
        recipe.get("algorithm"),
        recipe.get("policy"),
        env.get("id"),
        *(wrappers if isinstance(wrappers, list) else ()),
    ):
        if isinstance(value, str) and ":" in value:
            yield value
