"""A small language that is made from a seed: short lessons in English, whose ends follow from their beginnings.

Sums, counting, comparisons, lists backwards, agreement of nouns and verbs, opposites, and stories with a question. A lesson is a prompt and
its completion. All is written by this module, so that no licence of others' text applies.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

NUMBERS = ("Two", "Three", "Four", "Five", "Many")
NOUNS = (
    ("goose", "geese"), ("mouse", "mice"), ("child", "children"), ("fox", "foxes"), ("cat", "cats"), ("dog", "dogs"), ("bird", "birds"),
    ("man", "men"), ("woman", "women"), ("wolf", "wolves"), ("pony", "ponies"), ("sheep", "sheep"), ("horse", "horses"), ("fish", "fish"),
    ("baby", "babies"), ("frog", "frogs"), ("duck", "ducks"), ("bear", "bears"),
)  # fmt: skip
VERBS = (
    ("runs", "run"), ("sleeps", "sleep"), ("swims", "swim"), ("eats", "eat"), ("jumps", "jump"), ("sings", "sing"), ("hides", "hide"),
    ("watches", "watch"), ("plays", "play"), ("cries", "cry"), ("is small", "are small"), ("has a home", "have a home"),
)  # fmt: skip
OPPOSITES = (
    ("hot", "cold"), ("big", "small"), ("old", "new"), ("wet", "dry"), ("heavy", "light"), ("clean", "dirty"), ("full", "empty"),
    ("open", "closed"), ("soft", "hard"), ("long", "short"), ("cheap", "dear"), ("strong", "weak"),
)  # fmt: skip
OBJECTS = (
    "ball", "kite", "book", "cup", "drum", "hat", "box", "bag", "lamp", "coat", "boat", "bell", "ring", "bottle", "chair", "door",
)  # fmt: skip
COLOURS = ("red", "blue", "green", "black", "white", "yellow", "brown", "pink")
PEOPLE = ("Anna", "Tom", "Ben", "Lily", "Max", "Eva", "Sam", "Nora", "Paul", "Rosa", "Jack", "Mia")
PLACES = ("park", "school", "garden", "forest", "kitchen", "market", "harbour", "library", "tower", "barn")
STEPS = (("ones", 1), ("twos", 2), ("threes", 3), ("fives", 5), ("tens", 10))


@dataclass(frozen=True)
class Lesson:
    """A text whose end, the completion, follows from its beginning, the prompt. `kind` is a key of `KINDS`."""

    kind: str
    prompt: str
    completion: str

    @property
    def text(self) -> str:
        return self.prompt + self.completion


class Dice:
    """Random choices that are the same in every version of Python: only `random()` has that promise."""

    def __init__(self, seed: int):
        self._random = random.Random(seed)

    def below(self, count: int) -> int:
        """A number from 0 to count - 1."""
        return int(self._random.random() * count)

    def one(self, values: Sequence[T]) -> T:
        return values[self.below(len(values))]

    def some(self, values: Sequence[T], count: int) -> list[T]:
        """Different values, in any order."""
        left = list(values)
        return [left.pop(self.below(len(left))) for _ in range(count)]


def _sum(dice: Dice) -> tuple[str, str]:
    a, b = dice.below(50), dice.below(50)
    if dice.below(3):
        return f"{a} + {b} =", f" {a + b}."
    return f"{max(a, b)} - {min(a, b)} =", f" {abs(a - b)}."


def _counting(dice: Dice) -> tuple[str, str]:
    (word, step), length = dice.one(STEPS), 3 + dice.below(5)
    first = dice.below(100 - step * (length - 1))
    numbers = [first + step * k for k in range(length)]
    if dice.below(4) == 0:
        numbers.reverse()
    return f"Count by {word} from {numbers[0]} to {numbers[-1]}:", f" {', '.join(map(str, numbers))}."


def _comparison(dice: Dice) -> tuple[str, str]:
    a, b = dice.below(100), dice.below(100)
    b = b if a != b else (a + 1) % 100
    is_more = dice.below(2) == 0
    return f"Which is {'more' if is_more else 'less'}, {a} or {b}?", f" {max(a, b) if is_more else min(a, b)}."


def _backwards(dice: Dice) -> tuple[str, str]:
    words = dice.some((OBJECTS, COLOURS, PLACES)[dice.below(3)], 3 + dice.below(2))
    return f"Say {', '.join(words)} backwards:", f" {', '.join(reversed(words))}."


def _agreement(dice: Dice) -> tuple[str, str]:
    (one, many), (does, do), number = dice.one(NOUNS), dice.one(VERBS), dice.one(NUMBERS)
    if dice.below(2):
        return f"One {one} {does}. {number} {many}", f" {do}."
    return f"{number} {many} {do}. One {one}", f" {does}."


def _opposite(dice: Dice) -> tuple[str, str]:
    pair, thing, colour = dice.one(OPPOSITES), dice.one(OBJECTS), dice.one(COLOURS)
    here = dice.below(2)
    return f"The {colour} {thing} is not {pair[here]}. The {colour} {thing} is", f" {pair[1 - here]}."


def _story(dice: Dice) -> tuple[str, str]:
    people, places = dice.some(PEOPLE, 2 + dice.below(2)), dice.some(PLACES, 3)
    things = [f"a {dice.one(COLOURS)} {thing}" for thing in dice.some(OBJECTS, len(people))]
    sentences = [f"{person} has {thing}." for person, thing in zip(people, things, strict=True)]
    sentences += [f"{person} goes to the {place}." for person, place in zip(people, places, strict=False)]
    sentences = dice.some(sentences, len(sentences))
    asked = dice.below(len(people))
    if dice.below(2):
        question, answer = f"Where is {people[asked]}?", f" {people[asked]} is in the {places[asked]}."
    else:
        question, answer = f"What does {people[asked]} have?", f" {people[asked]} has {things[asked]}."
    return f"{' '.join(sentences)} {question}", answer


KINDS: Mapping[str, Callable[[Dice], tuple[str, str]]] = {
    "sum": _sum,
    "counting": _counting,
    "comparison": _comparison,
    "backwards": _backwards,
    "agreement": _agreement,
    "opposite": _opposite,
    "story": _story,
}


def lessons(seed: int) -> Iterator[Lesson]:
    """Lessons without end. The same seed gives the same ones in every process and version."""
    dice, kinds = Dice(seed), list(KINDS)
    while True:
        kind = dice.one(kinds)
        prompt, completion = KINDS[kind](dice)
        yield Lesson(kind, prompt, completion)
