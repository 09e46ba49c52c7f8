"""The sources of the generator's random choices: hypothesis, which composes and shrinks them, or a seed."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hypothesis import strategies as st

Item = TypeVar("Item")


class Choices(ABC):
    """A source of random choices. Smaller numbers and earlier items are simpler: shrinking moves towards them."""

    @abstractmethod
    def integer(self, low: int, high: int) -> int:
        """A number in low ... high."""

    def pick(self, items: Sequence[Item]) -> Item:
        return items[self.integer(0, len(items) - 1)]

    def chance(self, percent: int) -> bool:
        return self.integer(1, 100) > 100 - percent


class Seeded(Choices):
    """The same choices for the same seed."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)

    def integer(self, low: int, high: int) -> int:
        return self.random.randint(low, high)


class Drawn(Choices):
    """Choices of hypothesis, inside a composite strategy."""

    def __init__(self, draw: Callable[[st.SearchStrategy[int]], Any]):
        self.draw = draw

    def integer(self, low: int, high: int) -> int:
        return int(self.draw(st.integers(low, high)))
