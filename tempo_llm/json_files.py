"""What the JSON files of a model directory hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

JsonObject: TypeAlias = Mapping[str, Any]
"""A JSON object: texts, numbers, lists and further objects by name."""
