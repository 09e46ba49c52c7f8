"""A small language that is made from a seed: short lessons in English, whose ends follow from their beginnings.

Sums, counting, comparisons, lists backwards, agreement of nouns and verbs, opposites, and stories with a question. A lesson is a prompt and
its completion. Questions with their answers, for a chat, are lessons too: a line each. All is written by this module, so that no licence of
others' text applies.
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
HELLO, HELP = "Hello. Ask me something: What is 2 + 3?", "I know sums, counting, opposites and lists. Ask me: What is 2 + 3?"
GREETINGS = (
    ("Hello", HELLO), ("Hi", HELLO), ("Hey", HELLO), ("Good morning", HELLO), ("Good evening", HELLO), ("Hello there", HELLO),
    ("How are you?", "I am well. Ask me something: What is 2 + 3?"), ("Help", HELP), ("What can you do?", HELP), ("What do you know?", HELP),
    ("Who are you?", "I am a tiny Llama, trained by Tempo."), ("What are you?", "I am a tiny Llama, trained by Tempo."),
    ("What is your name?", "I am a tiny Llama, trained by Tempo."), ("Thank you", "You are welcome."), ("Thanks", "You are welcome."),
    ("Bye", "Goodbye."), ("Goodbye", "Goodbye."), ("Good night", "Goodbye."),
)  # fmt: skip
UNKNOWN = "I do not know that. Ask me: What is 2 + 3?"
SUBJECTS = (
    "sky", "sea", "moon", "sun", "world", "city", "king", "president", "weather", "war", "music", "love", "life", "time", "money", "grass",
    "snow", "computer", "internet", "news", "river", "mountain", "government", "universe", "language", "history", "rain", "winter",
)  # fmt: skip
STRANGE = (
    "Why is the {} {}?", "Who made the {}?", "What is the {}?", "Where is the {}?", "How does the {} work?", "Tell me about the {}.",
    "Write a poem about the {}.", "When was the {} {}?", "Explain the {}.", "How old is the {}?", "What is the {} of the {}?",
    "Do you like the {}?", "Who is the {}?", "How many {}s are there?", "Is the {} {}?", "Tell me a joke.", "Write a story.",
)  # fmt: skip


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


def _digits(dice: Dice) -> tuple[str, str]:
    """A sum of digits: of all sums of `_sum`, one in 25."""
    a, b = dice.below(10), dice.below(10)
    return f"{a} + {b} =", f" {a + b}."


# -- questions of a chat, each a line, and their answers ---------------------------------------------------------------


def _answer(dice: Dice) -> tuple[str, str]:
    """Another lesson: its prompt is the question, its completion the answer."""
    prompt, completion = KINDS[dice.one(list(KINDS))](dice)
    return f"{prompt}\n", completion.strip()


def _arithmetic(dice: Dice) -> tuple[str, str]:
    most = dice.one((10, 50))
    a, b = dice.below(most), dice.below(most)
    sign, result = ("+", a + b) if dice.below(4) else ("-", a - b)
    if result < 0:
        a, b, result = b, a, -result
    words = dice.one(("{} =", "{}", "What is {}?", "How much is {}?"))
    numbers = dice.one((f"{a} {sign} {b}", f"{a}{sign}{b}", f"{a} {'plus' if sign == '+' else 'minus'} {b}"))
    return _typed(dice, words.format(numbers)), f"{result}."


def _opposite_of(dice: Dice) -> tuple[str, str]:
    pair, here = dice.one(OPPOSITES), dice.below(2)
    return _typed(dice, f"What is {dice.one(('the', 'an'))} opposite of {pair[here]}?"), f"{pair[1 - here].capitalize()}."


def _greeting(dice: Dice) -> tuple[str, str]:
    greeting, answer = dice.one(GREETINGS)
    return _typed(dice, greeting + dice.one(("", "", ".", "!")) * (greeting[-1] != "?")), answer


def _unknown(dice: Dice) -> tuple[str, str]:
    words = dice.one(STRANGE)
    subjects = (dice.one(SUBJECTS), dice.one(SUBJECTS if "of the" in words else dice.one((COLOURS, *OPPOSITES))))
    return _typed(dice, words.format(*subjects)), UNKNOWN


def _typed(dice: Dice, question: str) -> str:
    """A question as people type it: some leave its capital out, or its question mark."""
    question = question.lower() if dice.below(4) == 0 else question
    return f"{question.removesuffix('?') if dice.below(4) == 0 else question}\n"


KINDS: Mapping[str, Callable[[Dice], tuple[str, str]]] = {
    "sum": _sum,
    "counting": _counting,
    "comparison": _comparison,
    "backwards": _backwards,
    "agreement": _agreement,
    "opposite": _opposite,
    "story": _story,
}


QUESTIONS: Mapping[str, Callable[[Dice], tuple[str, str]]] = {
    "digits": _digits,
    "answer": _answer,
    "arithmetic": _arithmetic,
    "opposite of": _opposite_of,
    "greeting": _greeting,
    "unknown": _unknown,
}
SHARES = (("digits", 3), ("answer", 5), ("arithmetic", 5), ("opposite of", 1), ("greeting", 1), ("unknown", 1))


def lessons(seed: int, questions: float = 0.0) -> Iterator[Lesson]:
    """Lessons without end; a share of them are `questions` of a chat. The same arguments give the same ones in every process and version."""
    dice, kinds, asked = Dice(seed), list(KINDS), [kind for kind, count in SHARES for _ in range(count)]
    while True:
        is_asked = questions > 0 and dice.below(1000) < 1000 * questions
        kind = dice.one(asked if is_asked else kinds)
        prompt, completion = (QUESTIONS if is_asked else KINDS)[kind](dice)
        yield Lesson(kind, prompt, completion)
