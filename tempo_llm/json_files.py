"""The type of the JSON files in a model directory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

JsonObject: TypeAlias = Mapping[str, Any]
"""A JSON object: texts, numbers, lists and further objects by name."""
