"""How programs that are difficult for a pass are declared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tempo_core as tp

Make = Callable[[Any, Any, Any, Any], list[tp.Tensor]]


@dataclass(frozen=True)
class Program:
    """`make(i, I, t, T)` returns the outputs. `hard_on` is the pass under test; `least` is the smallest T for the program."""

    make: Make
    hard_on: str
    least: int = 1

    def build(self) -> tuple[tp.Context, list[tp.Tensor]]:
        ctx = tp.Context("i", "t")
        with ctx as ((i, I), (t, T)):
            return ctx, self.make(i, I, t, T)


def declaring(programs: dict[str, Program]) -> Callable[..., Callable[[Make], Make]]:
    """The decorator that adds a program to these, under its name."""

    def program(hard_on: str, least: int = 1) -> Callable[[Make], Make]:
        def declared(make: Make) -> Make:
            programs[make.__name__] = Program(make, hard_on, least)
            return make

        return declared

    return program


def fed(*shape: Any, domain: Any, name: str = "x", dtype: str = "float32") -> tp.Tensor:
    """An input behind an operation, so that its slices are slices of computed values."""
    value = tp.input(name, shape, dtype, domain)
    return tp.tanh(value) if dtype == "float32" else value
