"""The values of a `config.json`, read one by one and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tempo_llm.errors import ModelConfigError, shown
from tempo_llm.json_files import JsonObject

LARGEST_NUMBER = 1e30  # larger numbers are not those of float32
LARGEST: Mapping[str, int] = {  # larger numbers are mistakes
    "vocab_size": 2**24,
    "hidden_size": 2**20,
    "intermediate_size": 2**22,
    "num_hidden_layers": 2**12,
    "num_attention_heads": 2**16,
    "num_key_value_heads": 2**16,
    "head_dim": 2**16,
    "max_position_embeddings": 2**28,
    "original_max_position_embeddings": 2**28,
}


@dataclass(frozen=True)
class Values:
    """The object in a `config.json`; errors name its `source`. A key that is absent, or null, has the default of the call."""

    values: JsonObject
    source: str = "config.json"

    def get(self, key: str, default: object = None) -> object:
        value = self.values.get(key)
        return default if value is None else value

    def error(self, message: str, hint: str | None = None) -> ModelConfigError:
        return ModelConfigError(f"{self.source}: {message}", hint=hint)

    def either(self, key: str, older: str) -> object:
        """A value that has two names in two generations of files. Raises ModelConfigError if both are there and differ."""
        value, old = self.get(key), self.get(older)
        if value is not None and old is not None and value != old:
            raise self.error(
                f"{key} is {shown(value)}, but {older} is {shown(old)}", hint=f"keep one of the two: {key} is the newer key"
            )
        return old if value is None else value

    def size(self, key: str, default: int | None = None) -> int:
        """A positive integer."""
        value = self.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.error(f"{key} is {shown(value)}; it must be a positive integer")
        if key in LARGEST and value > LARGEST[key]:
            raise self.error(f"{key} is {shown(value)}; no model has more than {LARGEST[key]}")
        return value

    def count(self, key: str, default: int) -> int:
        """A whole number of at least 0."""
        value = self.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self.error(f"{key} is {shown(value)}; it must be a whole number of at least 0")
        return value

    def number(self, key: str, default: float) -> float:
        """A positive number."""
        value = self.get(key, default)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < LARGEST_NUMBER:
            raise self.error(f"{key} is {shown(value)}; it must be a positive number")
        return float(value)

    def number_or_none(self, key: str) -> float | None:
        """A positive number, or None for null and for a key that is absent."""
        return None if self.get(key) is None else self.number(key, 1.0)

    def flag(self, key: str) -> bool:
        value = self.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.error(f"{key} is {shown(value)}; it must be true or false")
        return bool(value)

    def token_ids(self, key: str) -> tuple[int, ...]:
        """Absent, an int or a list of ints."""
        ids = self.get(key, [])
        ids = ids if isinstance(ids, list) else [ids]
        if not all(isinstance(i, int) and not isinstance(i, bool) and i >= 0 for i in ids):
            raise self.error(f"{key} is {shown(ids)}; it must be an integer or a list of integers")
        return tuple(ids)
