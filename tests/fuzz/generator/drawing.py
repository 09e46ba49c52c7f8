"""A program while it is drawn: the units so far, the tensors that they define, and a choice of tensors for a use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import tempo_core as tp
from tempo_core.errors import TempoError
from tests.fuzz.choices import Choices
from tests.fuzz.script import PRELUDE

SHAPES = ("()", "(2,)", "(3,)", "(2, 3)", "(1,)", "()", "(3,)")
STEPS = {1: ("t",), 2: ("i", "t"), 3: ("b", "i", "t"), 4: ("a", "b", "i", "t")}
INNER = "k"  # the step that some programs have for a recurrence which ends inside of their other steps; no other unit uses it
FLOATS = ("float32", "float16", "bfloat16")
INTEGERS = ("int32", "int8", "uint8", "uint32")
KINDS = {"float32": ("float32",), "float": FLOATS, "int": INTEGERS, "bool": ("bool",), "any": (*FLOATS, *INTEGERS, "bool")}


class Drawing:
    """The state of the generator. A new unit is run at once; if Tempo refuses it (for shapes that do not fit, say), it is dropped."""

    def __init__(self, choices: Choices, counts: Sequence[int] = (1, 1, 2, 2, 2, 3, 3)):
        self.choices = choices
        count = choices.pick(counts)
        self.steps = STEPS[count]
        numbers = {3: (1, 2, 3, 4, 5, 5), 4: (1, 2, 3)}.get(count, (1, 2, 3, 4, 5, 6, 9))
        self.bounds = {step: choices.pick(numbers) for step in self.steps}
        self.has_inner = choices.chance(10)
        inner = (INNER,) if self.has_inner else ()
        self.bounds |= {step: choices.pick((1, 2, 4, 6)) for step in inner}
        self.units: list[str] = []
        self.data: dict[str, str] = {}
        self.names: list[str] = []  # names of tensors, in the order of their definitions
        self.features: set[str] = {f"steps: {count}", *(f"bound: {'1' if n == 1 else 'more'}" for n in self.bounds.values())}
        self.refused: Counter[str] = Counter()  # errors of the dropped units, by their features
        self.pending: list[str] = []  # features of the unit that is being drawn
        self.count = 0
        self.broken = False  # a unit raised an error that is not a user's mistake
        self.namespace: dict[str, Any] = {"tp": tp}
        exec(PRELUDE, self.namespace)
        self.context = self.namespace["ctx"] = tp.Context(*self.steps, *inner)
        with self.context as pairs:
            for name, (step, bound) in zip(self.bounds, pairs, strict=True):
                self.namespace[name], self.namespace[name.upper()] = step, bound

    # -- choices ------------------------------------------------------------------------------------------------------

    def chance(self, percent: int) -> bool:
        return self.choices.chance(percent)

    def marked(self, table: dict[str, Any], group: str) -> Any:
        """A random item of a table; its name becomes a feature of the unit."""
        name = self.choices.pick(tuple(table))
        self.mark(f"{group}: {name}")
        return table[name]

    def mark(self, *features: str) -> None:
        self.pending += features

    # -- units --------------------------------------------------------------------------------------------------------

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def tensor(self, name: str) -> tp.Tensor:
        return self.namespace[name]

    def add(self, unit: str, *names: str) -> bool:
        """Run a unit. If Tempo accepts it, keep it and the tensors that it defines."""
        features, self.pending = self.pending, []
        with self.context:
            try:
                exec(compile(unit, "<unit>", "exec"), self.namespace)
            except (TempoError, ZeroDivisionError) as error:
                self.refused.update(f"{feature} ({type(error).__name__})" for feature in features)
                return False
            except Exception:  # an error that is not a user's mistake: the program ends with this unit, to be reported
                self.units.append(unit)
                self.broken = True
                return False
        self.units.append(unit)
        self.features.update(features)
        self.names += names
        return True

    def takes(self, text: str) -> bool:
        """Whether Tempo accepts an expression of a tensor."""
        with self.context:
            try:
                exec(compile(f"_ = {text}", "<expression>", "exec"), self.namespace)
            except (TempoError, ZeroDivisionError) as error:
                self.refused.update([f"result ({type(error).__name__})"])
                return False
        return True

    # -- what fits ----------------------------------------------------------------------------------------------------

    def fits(
        self, name: str, kind: str = "float32", within: Sequence[str] | None = None, static: bool = False, rank: int = 0
    ) -> bool:
        """Whether a tensor has a dtype of the kind, no steps but those `within`, a `static` shape (numbers only) if asked, and at
        least `rank` dimensions."""
        tensor = self.tensor(name)
        if within is not None and not {s.name for s in tensor.domain.steps} <= set(within):
            return False
        if static and not all(size.is_constant for size in tensor.shape):
            return False
        return tensor.dtype in KINDS[kind] and tensor.rank >= rank

    def fitting(self, kind: str = "float32", **conditions: Any) -> list[str]:
        return [name for name in self.names if self.fits(name, kind, **conditions)]

    def value(self, kind: str = "float32", **conditions: Any) -> str:
        """The name of a tensor that fits, a recent one more often; "" if none fits."""
        names = self.fitting(kind, **conditions)
        if not names:
            return ""
        return self.choices.pick(names[-4:] if self.chance(60) else names)

    def moving(self, kind: str = "float32") -> list[str]:
        """Tensors that vary with a step."""
        return [name for name in self.fitting(kind) if self.tensor(name).domain.steps]

    def steps_of(self, name: str) -> tuple[str, ...]:
        return tuple(s.name for s in self.tensor(name).domain.steps)

    def sizes(self, name: str) -> str:
        """A static shape as text."""
        return tuple_text([str(size) for size in self.tensor(name).shape])

    def shape(self) -> str:
        """A shape for a recurrence, mostly that of another tensor."""
        names = self.fitting(static=True)
        return self.sizes(self.choices.pick(names)) if names and self.chance(75) else self.choices.pick(SHAPES)

    def domain(self, at_least: int = 0) -> tuple[str, ...]:
        chosen = tuple(s for s in self.steps if self.chance(65))
        return chosen if len(chosen) >= at_least else self.steps

    def step(self, among: Sequence[str] = ()) -> str:
        return self.choices.pick(among or self.steps)


def tuple_text(items: Sequence[str]) -> str:
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
