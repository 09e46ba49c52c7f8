"""How the positions of a text are steps of a program: one by one, a prompt in blocks, and the tokens after a prompt in blocks.

A model is the same over all of them. It asks its time for the position of a point, for the keys and values that a point attends to, and for
the state of a layer before a point.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import tempo_core as tp
from tempo_core import Expr, Tensor
from tempo_core.nn.attention import Reached, copied_where, reached_over
from tempo_core.nn.patterns import Part, Pattern
from tempo_core.typing import Bool as Condition
from tempo_core.typing import IntoExpr
from tempo_llm.errors import PatternError

Place = IntoExpr | slice


class Time(Protocol):
    """A point's position in its text, int32, and the number of tokens that the frequencies of LongRoPE follow from: those of the prompt."""

    @property
    def position(self) -> Tensor | Expr: ...

    @property
    def length(self) -> Tensor | Expr: ...

    @property
    def where(self) -> Condition | None:
        """At which points the model is computed; None: at all."""

    def attended(
        self, layer: tp.nn.GroupedQueryAttention, queries: Tensor, keys: Tensor, values: Tensor, pattern: Pattern
    ) -> Tensor:
        """The values that a point attends to, mixed: [heads * head width], by its queries [heads, head width].

        Keys and values [key heads, head width] are those of all points.
        """
        ...

    def carry(self, layer: tp.nn.Module, state: tp.Recurrence, following: Tensor) -> None:
        """Assign a state: zeros before the first position of a text, and `following` after each."""
        ...


def computed(x: Tensor, time: Time) -> Tensor:
    """x at the points at which the model is computed."""
    return x if time.where is None else x[(*(step.expr for step in x.domain.steps), time.where)]


class Reaching:
    """A time that says what a point attends to."""

    def reached(self, layer: tp.nn.Module, keys: Tensor, values: Tensor, pattern: Pattern) -> list[Reached]:
        """What a point attends to, of keys and values [key heads, head width] of all points."""
        raise NotImplementedError

    def attended(
        self, layer: tp.nn.GroupedQueryAttention, queries: Tensor, keys: Tensor, values: Tensor, pattern: Pattern
    ) -> Tensor:
        return layer.mixed(queries, self.reached(layer, keys, values, pattern))


@dataclass(frozen=True)
class Points(Reaching):
    """Each position is a point of one step."""

    position: Expr
    length: Tensor | Expr
    where: Condition | None = None

    def reached(self, layer: tp.nn.Module, keys: Tensor, values: Tensor, pattern: Pattern) -> list[Reached]:
        (step,) = self.position.steps
        return [reached_over(step, keys, values, pattern)]

    def carry(self, layer: tp.nn.Module, state: tp.Recurrence, following: Tensor) -> None:
        kept = [step.expr for step in state.domain.steps if step.expr.steps != self.position.steps]
        tp.carry(state, tp.zeros(state.shape, state.dtype), following, kept=kept)


@dataclass(frozen=True)
class Past:
    """Keys, values and states of blocks that an earlier run has computed: inputs over (q, s), q up to `count`.

    The first of these blocks stands before the first position, so that there is always one.
    """

    block: Expr  # q
    count: Expr  # Q


@dataclass
class Blocks(Reaching):
    """A prompt as blocks n of places s: position size * n + s, which counts from `size` positions before the first if there is a past.

    `start` is the number of tokens of each prompt; positions after them have no meaning. `most` is the number of positions that a text
    may have. What the model computes here is kept, by its layer, for the tokens that come after the prompt.
    """

    block: Expr
    count: Expr
    place: Expr
    size: int
    start: Tensor
    length: Tensor | Expr
    most: int
    past: Past | None = None
    kept_keys: dict[tp.nn.Module, tuple[Tensor, Tensor]] = field(default_factory=dict)
    patterns: dict[tp.nn.Module, Pattern] = field(default_factory=dict)
    states: dict[tp.nn.Module, Tensor] = field(default_factory=dict)
    after: dict[tp.nn.Module, Tensor] = field(default_factory=dict)

    @property
    def first(self) -> int:
        """The block of position 0."""
        return 0 if self.past is None else 1

    @property
    def position(self) -> Expr:
        return self.at(self.block) + self.place

    def at(self, block: Expr | int) -> Expr | int:
        """The position of the first place of a block."""
        return (block - self.first) * self.size

    @property
    def where(self) -> Condition | None:
        return None if self.past is None else self.block >= self.past.count

    @property
    def _all_places(self) -> slice:
        return slice(0, self.size)

    def reached(self, layer: tp.nn.Module, keys: Tensor, values: Tensor, pattern: Pattern) -> list[Reached]:
        if self.past is not None:
            keys, values = (self._behind_the_past(layer, name, x) for name, x in (("keys", keys), ("values", values)))
        self.kept_keys[layer], self.patterns[layer] = (keys, values), pattern
        rows, parts = tp.zeros((), "int32") + self.position, pattern.parts(self.most)
        if not all(part.is_causal for part in parts):
            raise PatternError(
                f"the attention pattern `{pattern.name}` reaches positions after the present one, which are not there yet",
                hint="end its slices at the present position: lambda t, T: slice(0, t + 1)",
            )
        return [self.source(layer, *self._span(part), rows, part) for part in parts]

    def _span(self, part: Part) -> tuple[Expr | int, Expr]:
        """The blocks up to the present one that a slice of a pattern may reach."""
        n = self.block
        if part.back is not None:
            return tp.max(n + (-part.back // self.size), 0), n + 1
        return 0, n + 1 if part.end is None else tp.min(n + 1, self.end(part))

    def end(self, part: Part) -> int:
        """The number of blocks that hold the first positions, to which a slice of a pattern is confined."""
        assert part.end is not None
        return self.first - (-part.end // self.size)

    def source(
        self,
        layer: tp.nn.Module,
        start: Expr | int,
        stop: Expr,
        rows: Tensor,
        part: Part,
        behind: Tensor | None = None,
        copy: Expr | None = None,
    ) -> Reached:
        """What the positions `rows` attend to of the blocks from `start` to `stop`, by a slice of a pattern.

        Positions `behind` the prompt attend to its positions; those of a prompt to themselves and the positions before them. Of a `copy`, a
        step, they read a copy of the blocks.
        """
        span = slice(start, stop)
        keys, values = (
            self.read_copy(x, copy, span)
            if copy is not None
            else self.read_blocks(x if part.end is None else copied_where(x, self.block < self.end(part)), span)
            for x in self.kept_keys[layer]
        )
        columns = self.at(start) + tp.arange((stop - start) * self.size)
        counts = [columns <= rows if behind is None else columns < behind] if part.is_all or behind is not None else []
        if not part.is_all:
            counts.append(part.inside(rows, columns))
        elif self.past is not None:
            counts.append(columns >= 0)
        inside = functools.reduce(operator.and_, counts)
        if behind is None:
            return Reached(keys.reshape(-1, *keys.shape[2:]), values.reshape(-1, *values.shape[2:]), inside)
        return Reached(_by_head(keys), _by_head(values), inside, by_head=True)

    def read_blocks(self, x: Tensor, blocks: slice) -> Tensor:
        """x at all places of blocks: [blocks, places, ...]."""
        return self.read(x, {self.block: blocks, self.place: self._all_places})

    def read_copy(self, x: Tensor, copy: Expr, blocks: slice) -> Tensor:
        """A copy of x, whose step `copy` stands for the blocks, at all places: [blocks, places, ...]."""
        of_copy = self.read(x, {self.block: tp.min(copy, self.count - 1)})
        places: dict[IntoExpr, Place] = {copy: blocks, self.place: self._all_places}
        return self.read(of_copy, places)

    def read(self, x: Tensor, places: Mapping[IntoExpr, Place]) -> Tensor:
        """x at some places, and at the present ones of its other steps."""
        return x[tuple(places.get(step.expr, step.expr) for step in x.domain.steps)]

    def _behind_the_past(self, layer: tp.nn.Module, name: str, x: Tensor) -> Tensor:
        """x after the blocks of the past, which are an input."""
        assert self.past is not None
        steps = [step.expr for step in x.domain.steps]
        past = tp.input(
            f"past.{layer.name}.{name}",
            x.shape,
            x.dtype,
            domain=(self.past.block, self.place, *(step for step in steps if self._is_of_layers(step))),
        )
        whole = tp.recurrence(x.shape, x.dtype, steps, f"{layer.name}.{name}.whole")
        whole[(*steps, self.block < self.past.count)] = self.read(past, {self.past.block: self.block})
        whole[tuple(steps)] = x
        return whole

    def _is_of_layers(self, step: IntoExpr) -> bool:
        """Whether a step is one over layers."""
        return step not in (self.block, self.place, *(other.expr for other in self.start.domain.steps))

    def outputs(self) -> dict[str, tuple[Tensor, int | None, bool]]:
        """What a later prompt needs that begins with the same blocks, by the names of its inputs.

        Keys and values of blocks [blocks, places, key heads, head width]: all blocks, or the last ones that their pattern reaches. States
        before the last block. With each, its layer's `reach`, and whether it is a state.
        """
        outputs: dict[str, tuple[Tensor, int | None, bool]] = {}
        for layer, (keys, values) in self.kept_keys.items():
            reach = self.reach(layer)
            first = 0 if reach is None else tp.max(self.count - 1 + (-reach // self.size), 0)
            span: dict[IntoExpr, Place] = {self.block: slice(first, self.count), self.place: self._all_places}
            for name, x in (("keys", keys), ("values", values)):
                outputs[f"past.{layer.name}.{name}"] = self.read(x, span), reach, False
        for layer, state in self.states.items():
            before = self.read(state, {self.block: self.count - 1, self.place: 0})
            outputs[f"past.{layer.name}.state"] = before, None, True
        return outputs

    def reach(self, layer: tp.nn.Module) -> int | None:
        """How many positions before a position a layer attends to; None: all."""
        backs = [part.back for part in self.patterns[layer].parts(self.most)]
        return None if None in backs else max(back for back in backs if back is not None)

    def carry(self, layer: tp.nn.Module, state: tp.Recurrence, following: Tensor) -> None:
        steps, n, s = [step.expr for step in state.domain.steps], self.block, self.place
        after = tp.where(self.position < self.start, following, computed(state, self))
        self.after[layer], self.states[layer] = after, state
        if self.past is None:
            state[(*steps, (n <= 0) & (s <= 0))] = tp.zeros(state.shape, state.dtype)
        else:
            past = tp.input(
                f"past.{layer.name}.state", state.shape, state.dtype, domain=[step for step in steps if self._is_of_layers(step)]
            )
            state[(*steps, (n < self.past.count) | ((n <= self.past.count) & (s <= 0)))] = past
            whole = tp.recurrence(state.shape, state.dtype, steps, f"{layer.name}.after")
            whole[(*steps, n < self.past.count)] = past
            whole[tuple(steps)] = after
            self.after[layer] = whole
        state[(*steps, s <= 0)] = self.read(after, {n: n - 1, s: self.size - 1})
        state[tuple(steps)] = self.read(after, {s: s - 1})


def _by_head(x: Tensor) -> Tensor:
    """[blocks, places, key heads, head width] to [key heads, positions, head width]: once for all tokens, and not for each."""
    return x.transpose(2, 0, 1, 3).reshape(x.shape[2], -1, x.shape[3])


@dataclass
class AfterPrompts(Reaching):
    """What comes after prompts that are in blocks.

    Prompts that are `mixed` may have different numbers of blocks; others all end in the last block. The step `copy` is over as many blocks as
    the prompt has: what all tokens read as a whole is copied once, after the prompt.
    """

    copy: Expr
    copies: Expr
    blocks: Blocks
    is_mixed: bool

    @property
    def length(self) -> Tensor | Expr:
        return self.blocks.length

    def of_prompt(self, layer: tp.nn.Module, rows: Tensor, part: Part) -> Reached:
        """What the positions `rows` attend to of the prompt, by a slice of a pattern."""
        start, stop, copy = self._blocks(part)
        return self.blocks.source(layer, start, stop, rows, part, self.blocks.start, copy)

    def state_of_prompt(self, layer: tp.nn.Module) -> Tensor:
        """The state of a layer after the prompt."""
        blocks = self.blocks
        return blocks.read(blocks.after[layer], {blocks.block: blocks.count - 1, blocks.place: blocks.size - 1})

    def _blocks(self, part: Part) -> tuple[Expr | int, Expr, Expr | None]:
        """The blocks of the prompt that a slice of a pattern may reach; if it may reach all, with the step of their copy."""
        count, size = self.blocks.count, self.blocks.size
        if part.back is not None and not self.is_mixed:
            return tp.max(count - 1 + (-part.back // size), 0), count, None
        if part.end is not None:
            return 0, tp.min(count, self.blocks.end(part)), None
        return 0, self.copies, self.copy


@dataclass
class Tokens(AfterPrompts):
    """The tokens after prompts, one by one: token u has the position start + u."""

    number: Expr
    where: Condition | None = None

    @property
    def position(self) -> Tensor:
        return self.blocks.start + self.number

    def reached(self, layer: tp.nn.Module, keys: Tensor, values: Tensor, pattern: Pattern) -> list[Reached]:
        rows, u = self.position, self.number
        sources = []
        for part in pattern.parts(self.blocks.most):
            sources.append(self.of_prompt(layer, rows, part))
            first = 0 if part.back is None else tp.max(u - part.back, 0)
            last = u + 1 if part.end is None else tp.min(u + 1, part.end)
            columns = self.blocks.start + first + tp.arange(last - first)
            inside = None if part.is_all else part.inside(rows, columns)
            ours = (x if part.end is None else copied_where(x, u < part.end) for x in (keys, values))  # the first ones alone
            past_keys, past_values = (self.blocks.read(x, {u: slice(first, last)}) for x in ours)
            sources.append(Reached(past_keys, past_values, inside))
        return sources

    def carry(self, layer: tp.nn.Module, state: tp.Recurrence, following: Tensor) -> None:
        steps, u = [step.expr for step in state.domain.steps], self.number
        state[(*steps, u <= 0)] = self.state_of_prompt(layer)
        state[tuple(steps)] = self.blocks.read(following, {u: u - 1})
