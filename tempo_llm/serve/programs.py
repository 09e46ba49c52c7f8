"""The programs of a server: a token of each of some rows, and a block of the prompt of one row. They read a cache that lies outside of them.

Keys and values go into the cache after a program has run (`cache.py`), so a program never copies it. A row's position, its pattern and its
state are its own: what a program computes of a row does not depend on the other rows. Programs of other numbers of rows round otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tempo_core as tp
from tempo_core import Expr, Tensor
from tempo_core.nn.patterns import Pattern
from tempo_core.typing import Bool as Condition
from tempo_llm.blocks import Attending
from tempo_llm.errors import PatternError
from tempo_llm.generate import Generator
from tempo_llm.llama import Llama, counts, loop_names
from tempo_llm.serve.rows import SHORT_BLOCK
from tempo_llm.serve.tiles import TILE, TiledAttention
from tempo_llm.stacks import stacks_of

Program = tp.Program[dict[str, np.ndarray]]


@dataclass
class Cached:
    """Points whose earlier positions are in a cache of `rows` rows of `places` positions: a token of each of some of these rows, r, or the
    places s of a block of one row.

    `place` is s; None for tokens. What goes into the cache of a layer, and its state after a point, is kept by its name.
    """

    rows: int
    places: int
    most: int  # positions that a text of the model may have
    start: Tensor  # the position of the first place
    length: Tensor | Expr
    place: Expr | None = None
    size: int = 1
    stop: Tensor | None = None  # the position after the last token of a block; for tokens: 1 if the row takes part
    where: Condition | None = None
    kinds: dict[str, int] = field(default_factory=dict)  # patterns by name
    patterns: list[Pattern] = field(default_factory=list)
    outputs: dict[str, Tensor] = field(default_factory=dict)
    inputs: dict[str, Tensor] = field(default_factory=dict)  # those that layers share

    @property
    def position(self) -> Tensor:
        return self.start if self.place is None else self.start + self.place

    def attended(
        self, layer: tp.nn.GroupedQueryAttention, queries: Tensor, keys: Tensor, values: Tensor, pattern: Pattern
    ) -> Tensor:
        """What queries [heads, head width] attend to, of the cache and of the points themselves: [heads * head width]."""
        assert isinstance(layer, Attending)
        (step,) = (each for each in keys.domain.steps if self._is_of_layers(each.expr))
        number = self._kind(pattern)
        rows = self.position
        columns, near = tp.arange(self.places), self.start + tp.arange(self.size)
        far = pattern.inside(rows, columns, self.most) & (columns < self.start)
        reads = pattern.inside(rows, near, self.most) & (near <= rows)
        if self.place is None:
            around = [x.expand_dims(0) for x in (keys, values)]
        else:
            around = [
                x[tuple(slice(0, self.size) if s.expr == self.place else s.expr for s in x.domain.steps)] for x in (keys, values)
            ]
        layers = step.bound_expr
        shape = (layers, self.rows, layer.key_heads, self.places, layer.head_width)
        caches = []
        for name, x in (("keys", keys), ("values", values)):
            self.outputs[f"{layer.name}.{name}"] = x
            caches.append(tp.input(f"cache.{layer.name}.{name}", shape, x.dtype))
        row = self._input("row", domain=() if self.place is not None else (self.start.domain.steps[0].expr,))
        tiles, count = self._input(f"tiles.{number}", (self.places // TILE,)), self._input(f"count.{number}")
        groups = layer.heads // layer.key_heads
        rest = layer.rest()
        function = TiledAttention(layer.layer.scale, layer.layer.score_cap, self.place is None)
        (mixed,) = tp.udf(
            function,
            queries.reshape(layer.key_heads, groups, layer.head_width),
            *around,
            reads,
            far,
            tiles,
            count,
            tp.zeros((), "int32") + step.expr,
            row,
            *caches,
            *([] if rest is None else [rest]),
            outputs=[tp.spec((layer.key_heads, groups, layer.head_width), queries.dtype)],
            batch=function.batch,
            name="attended",
        )
        return mixed.reshape(layer.heads * layer.head_width)

    def carry(self, layer: tp.nn.Module, state: tp.Recurrence, following: Tensor) -> None:
        steps = [step.expr for step in state.domain.steps]
        kept = [step for step in steps if self._is_of_layers(step) or self.place is None]
        before = tp.input(f"state.{layer.name}", state.shape, state.dtype, domain=kept)
        assert self.stop is not None
        if self.place is None:
            state[tuple(steps)] = before
            self.outputs[f"{layer.name}.state"] = tp.where(self.stop > 0, following, state)
            return
        after = tp.where(self.position < self.stop, following, state)
        state[(*steps, self.place <= 0)] = before
        state[tuple(steps)] = after[tuple(s - 1 if s == self.place else s for s in steps)]
        self.outputs[f"{layer.name}.state"] = after[tuple(self.size - 1 if s == self.place else s for s in steps)]

    def _input(self, name: str, shape: tuple[int, ...] = (), domain: tuple[Any, ...] = ()) -> Tensor:
        """An input of whole numbers, which is declared once for all layers."""
        if name not in self.inputs:
            self.inputs[name] = tp.input(name, shape, "int32", domain=domain)
        return self.inputs[name]

    def _is_of_layers(self, step: Any) -> bool:
        others = [s.expr for s in self.start.domain.steps] if self.place is None else [self.place]
        return not any(step == other for other in others)

    def _kind(self, pattern: Pattern) -> int:
        if pattern.name not in self.kinds:
            if not all(part.is_causal for part in pattern.parts(self.most)):
                raise PatternError(
                    f"the attention pattern `{pattern.name}` reaches positions after the present one, which are not there yet",
                    hint="end its slices at the present position: lambda t, T: slice(0, t + 1)",
                )
            self.kinds[pattern.name] = len(self.patterns)
            self.patterns.append(pattern)
        return self.kinds[pattern.name]


@dataclass(frozen=True)
class Traced:
    """A program, and the attention patterns whose tiles it is told, in their order."""

    program: Program
    patterns: tuple[Pattern, ...]

    def caches(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """The shapes and dtypes of the caches, by the names of their inputs."""
        return {name: (spec.whole, spec.dtype) for name, spec in self.program.inputs.items() if name.startswith("cache.")}

    def states(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """The same of states."""
        return {name: (spec.whole, spec.dtype) for name, spec in self.program.inputs.items() if name.startswith("state.")}

    def bound(self, weights: Mapping[str, np.ndarray]) -> Traced:
        """The same with the weights bound to it."""
        return Traced(
            self.program.bind({name: array for name, array in weights.items() if name in self.program.inputs}), self.patterns
        )


@dataclass(frozen=True)
class Programs:
    """The programs of a server: those of tokens by their numbers of rows, and those of blocks by their sizes. The cache has `places` positions."""

    tokens: dict[int, Traced]
    blocks: dict[int, Traced]
    places: int

    @staticmethod
    def of(generator: Generator, rows: int, max_context: int, fixed_rows: bool) -> Programs:
        """With `fixed_rows`, there is one program of tokens, of all rows."""
        places = -(-max_context // TILE) * TILE
        tokens = token_programs(generator, rows, places, (rows,) if fixed_rows else sizes_of(rows))
        return Programs(tokens, {size: block_program(generator, rows, places, size) for size in (SHORT_BLOCK, TILE)}, places)


def sizes_of(rows: int) -> tuple[int, ...]:
    """The numbers of rows for which a server of `rows` rows has programs: 1, 2, 4, ..., and all."""
    return (*(1 << k for k in range((rows - 1).bit_length())), rows)


def token_programs(generator: Generator, rows: int, places: int, sizes: Sequence[int]) -> dict[int, Traced]:
    """By each of some sizes n, a token of n rows: `row`, `token`, `position`, `length` and `active` int32 [n] to `logits` [n, vocabulary].

    `row` is that of the cache; in the program of all rows, 0 to rows - 1. `length` is how many tokens the prompt of a row has. A row that is
    not `active` keeps its state. Further inputs are `tiles.K` and `count.K` for pattern K, the caches and the states; further outputs go into
    them.
    """
    stacks = stacks_of(generator.config, generator.attention)
    context = tp.Context("r", *loop_names(stacks))
    with context as ((r, R), *layers):
        token, position, length, active = (
            tp.input(name, (), "int32", domain=(r,)) for name in ("token", "position", "length", "active")
        )
        model = Llama(generator.config, stacks, [layer for layer, _ in layers], generator.form)
        time = Cached(rows, places, generator.config.max_position_embeddings, position, length, stop=active)
        outputs = {"logits": model.logits(model.after(token, (r,), time)), **time.outputs}

    def program(size: int) -> Program:
        return context.compile({R: size, **counts(stacks, layers)}, outputs, generator.compile_config)

    return {size: Traced(program(size), tuple(time.patterns)) for size in sizes}


def block_program(generator: Generator, rows: int, places: int, size: int) -> Traced:
    """A block of the prompt of one row: `token` int32 [size], from the position `start` to before `stop`, of the row `row`.

    `length`, and the further inputs and outputs, are as those of `token_program`; states are those of the row.
    """
    stacks = stacks_of(generator.config, generator.attention)
    context = tp.Context("s", *loop_names(stacks))
    with context as ((s, S), *layers):
        token = tp.input("token", (), "int32", domain=(s,))
        start, stop, length = (tp.input(name, (), "int32") for name in ("start", "stop", "length"))
        model = Llama(generator.config, stacks, [layer for layer, _ in layers], generator.form)
        time = Cached(rows, places, generator.config.max_position_embeddings, start, length, s, size, stop)
        model.after(token, (s,), time)
        bounds = {S: size, **counts(stacks, layers)}
    return Traced(context.compile(bounds, time.outputs, generator.compile_config), tuple(time.patterns))
