"""A random program as text: the generator draws a script, so that a failure is a script that anyone can run."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass, field, replace
from typing import Any

PRELUDE = """
import numpy as np

import tempo_core as tp


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def integers(seed, *shape):
    return np.random.default_rng(seed).integers(-3, 4, size=shape).astype("int32")


def affine(x):
    return (x * 0.5 + 1.0,)


def split(x):
    return x * 2.0, x.sum()


def weighed(tree):
    return (tree["x"] * 0.5 + tree["pair"][0] * tree["pair"][1],)


def affine_batch(size, batched, x):
    return affine(x)


def affine_slope(operands, results, gradients):
    return (gradients[0] * 0.5,)


calls = [0]


def counted(x):
    calls[0] += 1
    return (x + np.float32(calls[0]),)


seen = []


def see(value, **point):
    seen.append((tuple(point.values()), value))
"""

RUN = """
from tests.fuzz.checking import assert_right

assert_right(globals())  # compiled, interpreted and differentiated, against tests.reference
"""


@dataclass(frozen=True)
class Program:
    """A program as text: `units` are statements, or recurrences with all their branches.

    If there is a `leaf`, the first output is its gradient, and the second is the loss. `sunk` is an output that goes to a sink too,
    over the steps of its domain. `features` has the features of the program, for the coverage table.
    """

    bounds: dict[str, int]  # by step name
    units: tuple[str, ...]
    outputs: tuple[str, ...]
    data: dict[str, str] = field(default_factory=dict)  # input name -> expression of its array, in `n` and `again`
    config: str = "tp.Config()"
    leaf: str = ""
    sunk: str = ""
    checks: tuple[str, ...] = ()  # the expensive checks, only for some programs
    features: frozenset[str] = frozenset()

    def text(self) -> str:
        """The script that builds the program: it defines ctx, outputs, bounds, fed, config, leaf, sunk, checks and detached.

        `fed(again)` gives the inputs; another number `again` gives other inputs.
        """
        names = ", ".join(f'"{step}"' for step in self.bounds)
        pairs = ", ".join(f"({step}, {step.upper()})" for step in self.bounds)
        body = textwrap.indent("\n".join(self.units), "    ")
        bounds = ", ".join(f"{step.upper()}: n[{step!r}]" for step in self.bounds)
        inputs = ", ".join(f'"{name}": {array}' for name, array in self.data.items() if f'tp.input("{name}"' in body)
        return (
            f"{PRELUDE}\n\nn = {self.bounds!r}\nctx = tp.Context({names})\nwith ctx as ({pairs},):\n{body}\n"
            f"    outputs = [{', '.join(self.outputs)}]\n"
            f"bounds = {{{bounds}}}\nconfig = {self.config}\nleaf, sunk = {self.leaf!r}, {self.sunk_position()}\n"
            f"checks = {self.checks!r}\n"
            f"detached = {'detach()' in body or 'stop_gradient(' in body}  # gradients are not slopes\n\n\n"
            f"def fed(again):\n    return {{{inputs}}}\n"
        )

    def sunk_position(self) -> int | None:
        return self.outputs.index(self.sunk) if self.sunk and f"tp.sink(see, {self.sunk}" in "\n".join(self.units) else None

    def script(self) -> str:
        """The program with its check at the end, to be run from the root of the repository."""
        return f"{self.text()}\n{RUN}"

    def build(self) -> dict[str, Any]:
        """The names that the script defines, with their values."""
        namespace: dict[str, Any] = {"__name__": "program"}
        exec(compile(self.text(), "<program>", "exec"), namespace)
        return namespace

    def without(self, unit: int) -> Program:
        return replace(self, units=self.units[:unit] + self.units[unit + 1 :])

    def uses(self, name: str) -> int:
        """The number of units that use the name of a tensor."""
        return sum(1 for unit in self.units if re.search(rf"\b{name}\b", unit))
