"""Options of a compilation: few, each with a reason."""

from __future__ import annotations

import difflib
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
    check_numerics: raise NumericsError at the first statement whose result is not finite (interpreted).
    """

    seed: int = 0
    backend: str = "jax"
    executor: str = "staged"
    disable: tuple[str, ...] = ()
    check_numerics: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "disable", tuple(self.disable))
        _choose("backend", self.backend, ("jax", "numpy"))
        _choose("executor", self.executor, ("staged", "interpreted"))
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


def _choose(option: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        near = difflib.get_close_matches(value, allowed, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"one of {', '.join(allowed)}"
        raise ConfigError(f"{option}={value!r} is unknown", hint=hint)
