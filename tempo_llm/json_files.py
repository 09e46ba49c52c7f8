"""JSON: the type of the files in a model directory, and what users write."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

JsonObject: TypeAlias = Mapping[str, object]
"""A JSON object: texts, numbers, lists and further objects by name."""


class DoubledKeyError(ValueError):
    """An object has a key twice, and JSON does not say which value counts."""


def parse_json(text: str) -> object:
    """The value of a text that a user wrote. Raises DoubledKeyError, ValueError and RecursionError."""
    value: object = json.loads(text, object_pairs_hook=_unique)
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise DoubledKeyError(f"the key {twice!r} is there twice")
    return values
