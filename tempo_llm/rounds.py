"""Speculative decoding (Leviathan et al., 2023, arXiv:2211.17192) as one more time of a model: rounds of several tokens, of which some stay.

In a round, the model is computed at the last token that is sure and at those that a draft expects after it. The position of a place depends
on how many tokens of earlier rounds stayed, which is data. Keys and values are states with a slot for each position: a round writes its own
from its first position on, and so the next round overwrites what did not stay. Of other states, those after each place of a round are there,
and the next round goes on with the one after the last token that stayed.
"""

from __future__ import annotations

from dataclasses import dataclass

import tempo_core as tp
from tempo_core import Expr, Tensor
from tempo_core.nn.attention import Reached
from tempo_core.nn.patterns import Part, Pattern
from tempo_core.typing import Bool as Condition
from tempo_llm.times import AfterPrompts


@dataclass
class Rounds(AfterPrompts):
    """Rounds u of `places` k: the token that is sure, then drafted ones.

    Before the model is computed, a row has `total` new tokens (over u and the rows): the last of them is at place 0. Of the round before,
    `accepted` drafted tokens stayed. There are at most `most_new` new tokens. With `is_drafting`, the places come one after the other,
    since the token at each is chosen from what the model gives at the one before.
    """

    number: Expr
    place: Expr
    places: int
    total: Tensor
    accepted: Tensor
    most_new: int
    is_drafting: bool = False
    where: Condition | None = None

    @property
    def position(self) -> Tensor:
        return self.blocks.start + self._first + self.place

    @property
    def _first(self) -> Tensor:
        """The number, among the new tokens, of that at place 0."""
        return self.total - 1

    def reached(self, layer: tp.nn.Module, keys: Tensor, values: Tensor, pattern: Pattern) -> list[Reached]:
        rows, sources = self.position, []
        for number, part in enumerate(pattern.parts(self.blocks.most)):
            sources.append(self.of_prompt(layer, rows, part))
            slots = self.slots(part)
            numbers = self._numbers(part, slots)
            columns = self.blocks.start + numbers
            inside = (numbers >= 0) & (columns <= rows if part.is_all else part.inside(rows, columns))
            name = f"{layer.name}.new{number or ''}"
            kept_keys = self._written(f"{name}.keys", keys, part, slots)
            kept_values = self._written(f"{name}.values", values, part, slots)
            sources.append(Reached(kept_keys, kept_values, inside, by_head=True))
        return sources

    def slots(self, part: Part) -> int:
        """How many positions of new tokens a slice of a pattern needs: those that it reaches, and the places of a round but one."""
        if part.back is not None:
            return min(part.back, self.most_new) + self.places
        return min(self.most_new + self.places, part.end or self.most_new + self.places)

    def _numbers(self, part: Part, slots: int) -> Tensor:
        """Which new token is in each slot after the round, int32 [slots]: slots are used in turn, unless they hold the first tokens alone."""
        if part.back is None:
            return tp.arange(slots)
        last = self._first + (self.places - 1)
        return last - (last - tp.arange(slots)) % slots

    def _written(self, name: str, x: Tensor, part: Part, slots: int) -> Tensor:
        """x [key heads, head width] in its slots [key heads, slots, head width], after the present round, or, in drafting, place."""
        u, k, read = self.number, self.place, self.blocks.read
        steps = [step.expr for step in x.domain.steps if self.is_drafting or step.expr != k]
        heads, width = x.shape
        before = tp.recurrence((heads, slots, width), x.dtype, steps, name)
        if self.is_drafting:
            fresh, numbers = x.expand_dims(1), (self._first + k).expand_dims(0)
        else:
            fresh, numbers = read(x, {k: slice(0, self.places)}).transpose(1, 0, 2), self._first + tp.arange(self.places)
        after = tp.scatter(before, numbers if part.back is None else numbers % slots, fresh, 1)
        is_first = (u <= 0) & (k <= 0) if self.is_drafting else u <= 0
        before[(*steps, is_first)] = tp.zeros(before.shape, before.dtype)
        if self.is_drafting:
            before[(*steps, k <= 0)] = read(after, {u: u - 1, k: self.places - 1})
            before[tuple(steps)] = read(after, {k: k - 1})
        else:
            before[tuple(steps)] = read(after, {u: u - 1})
        return after

    def carry(self, layer: tp.nn.Module, state: tp.Recurrence, following: Tensor) -> None:
        self.go_on(state, self.state_of_prompt(layer), following)

    def go_on(self, state: tp.Recurrence, start: Tensor, following: Tensor) -> None:
        """Assign a state: `start` before the first round, then `following` after the last token that stayed."""
        steps, u, k = [step.expr for step in state.domain.steps], self.number, self.place
        state[(*steps, (u <= 0) & (k <= 0))] = start
        after_each = self.blocks.read(following, {u: u - 1, k: slice(0, self.places)})
        state[(*steps, k <= 0)] = after_each.index(0, self.accepted)
        state[tuple(steps)] = self.blocks.read(following, {k: k - 1})
