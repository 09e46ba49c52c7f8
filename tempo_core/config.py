"""Options of a compilation: few, each with a reason."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from tempo_core.errors import ConfigError

PASSES = ("simplify", "dce", "cse", "narrow", "lift", "pad", "vectorize", "fuse")


@dataclass(frozen=True)
class Config:
    """How a program is compiled and run.

    seed: of all random numbers; another seed needs no recompilation.
    backend: "jax", or "numpy" (interpreted only).
    executor: "staged" makes XLA programs of all that needs no host; "interpreted" runs statement by statement.
    disable: names of passes to switch off; "vectorize(t)" switches one step of vectorization off.
    memory_limit: refuse a plan whose stores take more, in bytes or as "2GiB"; the error lists the largest.
    check_numerics: raise NumericsError at the first statement whose result is not finite (interpreted).
    """

    seed: int = 0
    backend: str = "jax"
    executor: str = "staged"
    disable: tuple[str, ...] = ()
    memory_limit: int | str | None = None
    check_numerics: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "disable", tuple(self.disable))
        _choose("backend", self.backend, ("jax", "numpy"))
        _choose("executor", self.executor, ("staged", "interpreted"))
        if self.memory_limit is not None:
            object.__setattr__(self, "memory_limit", size_in_bytes(self.memory_limit))
        for item in self.disable:
            name, _, rest = item.partition("(")
            _choose("disable", name, PASSES)
            if rest and (name != "vectorize" or not rest.endswith(")")):
                raise ConfigError(f"disable={item!r}", hint='only vectorization is switched off by step: "vectorize(t)"')

    def disabled(self, name: str) -> bool:
        return name in self.disable

    @property
    def unvectorized_steps(self) -> tuple[str, ...]:
        return tuple(item[len("vectorize(") : -1] for item in self.disable if item.startswith("vectorize("))

    @property
    def interpreted(self) -> bool:
        """NumPy arrays cannot be staged."""
        return self.executor == "interpreted" or self.backend == "numpy" or self.check_numerics


def size_in_bytes(size: int | str) -> int:
    """A number of bytes, or a text such as "2GiB", "512 MiB", "100KB", "4096"."""
    if isinstance(size, int) and not isinstance(size, bool) and size >= 0:
        return size
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", str(size), re.IGNORECASE)
    if match is None:
        raise ConfigError(f"memory_limit={size!r} is no size", hint='a number of bytes, or a text such as "2GiB"')
    number, prefix, binary = match.groups()
    return int(float(number) * (1024 if binary else 1000) ** " kmgt".index(prefix.lower() or " "))


def _choose(option: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        near = difflib.get_close_matches(value, allowed, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"one of {', '.join(allowed)}"
        raise ConfigError(f"{option}={value!r} is unknown", hint=hint)
