"""Objects that recipes name as `module:name`, found from the working directory."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from tempo_rl.env.registry import FUNCTIONAL
from tempo_rl.errors import EnvError

Kind = TypeVar("Kind")

# What a recipe from elsewhere may name, by key. A package is no row: even a trusted one has functions that import or unpickle files.
NAMES: dict[str, frozenset[str]] = {
    "algorithm": frozenset(),
    "policy": frozenset({"tempo_rl:ActorCritic", "tempo_rl.models:ActorCritic", "tempo_rl.models:ActionValues"}),
    "env.id": frozenset(reference for reference, _ in FUNCTIONAL.values()),
    "env.wrappers": frozenset(
        f"gymnasium.wrappers:{name}"
        for name in (
            "ClipAction",
            "ClipReward",
            "FlattenObservation",
            "GrayscaleObservation",
            "NormalizeObservation",
            "NormalizeReward",
            "RecordEpisodeStatistics",
            "TimeAwareObservation",
        )
    ),
}


def load_reference(reference: str) -> Callable[..., object]:
    """The object with the name `module:name`. Raises `EnvError` if it does not exist."""
    module, _, name = reference.partition(":")
    find_modules()
    try:
        target: Callable[..., object] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise EnvError(f"{reference!r} cannot be imported: {error}", hint='name it as "package.module:Class"') from error
    return target


def reference_to(target: object) -> object:
    """The `module:Class` name of a class or function at the top level of a module; what is neither stays. Raises `EnvError` for others."""
    if not callable(target):
        return target
    module, name = (str(getattr(target, key, "")) for key in ("__module__", "__qualname__"))
    if getattr(sys.modules.get(module), name, None) is not target:
        raise EnvError(
            f"the wrapper {target!r} has no name in a module, so that no recipe can name it",
            hint="define it at the top level of a module, or give a function that makes the wrapped environment: lambda: Wrapper(MyEnv())",
        )
    return f"{module}:{name}"


def name_of(target: object) -> str | None:
    """The `module:name` of a class or function with which other processes import it; None for what has none, as all in a script has none."""
    module, name = (getattr(target, key, None) for key in ("__module__", "__qualname__"))
    if not isinstance(module, str) or not isinstance(name, str) or module in ("__main__", "builtins") or "." in name:
        return None
    held = sys.modules.get(module)
    is_importable = getattr(held, "__spec__", None) is not None and getattr(held, name, None) is target
    return f"{module}:{name}" if is_importable else None


def find_modules() -> None:
    """Have modules of the user's own found from the working directory, for a command too."""
    if (here := os.getcwd()) not in sys.path:
        sys.path.append(here)


def load_class(reference: str, kind: type[Kind]) -> type[Kind]:
    """The class with the name `module:Class`. Raises `EnvError` unless it is derived from `kind`."""
    target = load_reference(reference)
    if not (isinstance(target, type) and issubclass(target, kind)):
        raise EnvError(f"{reference!r} is not a class derived from {kind.__module__}:{kind.__name__}")
    return target


def foreign_references(recipe: Mapping[str, Any], with_arguments: bool = False) -> list[str]:
    """The `module:name` references of a recipe's plain data that are in no row of `NAMES`: code that it would import.

    `with_arguments` adds the environment's arguments that read like references, for an environment may import them.
    """
    names = [text for key, text in _references(recipe) if text not in NAMES[key]]
    env = recipe.get("env")
    kwargs = env.get("kwargs") if with_arguments and isinstance(env, Mapping) else None
    return names + [text for text in _texts(kwargs) if re.match(r"[\w.]+:[A-Za-z_]", text)]


def _references(recipe: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each reference of a recipe, with its key."""
    env = recipe.get("env") or {}
    env = env if isinstance(env, Mapping) else {}
    wrappers = env.get("wrappers") or ()
    for key, value in (
        ("algorithm", recipe.get("algorithm")),
        ("policy", recipe.get("policy")),
        ("env.id", env.get("id")),
        *(("env.wrappers", wrapper) for wrapper in (wrappers if isinstance(wrappers, list) else ())),
    ):
        if isinstance(value, str) and ":" in value:
            yield key, value


def _texts(value: object) -> Iterator[str]:
    """All texts inside of plain data."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _texts([*value.values()])
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part)
