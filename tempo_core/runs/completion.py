"""What a shell completes of a recipe's overrides: `key=value`, with the values of the recipe."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any


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
