"""Attention over a temporal step (by index expressions) or over a spatial dimension (by masks), in one module."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import tempo_core.frontend.functions as fn
from tempo_core.errors import IndexingError, ShapeError, user_location
from tempo_core.frontend.tensor import Tensor, of_node
from tempo_core.ir.ops import Merge
from tempo_core.nn.initializers import Initializer
from tempo_core.nn.linear import Linear, check_width
from tempo_core.nn.module import Domain, Module
from tempo_core.nn.patterns import Pattern, Reach, as_pattern, causal
from tempo_core.nn.rope import RoPE
from tempo_core.symbolic.condition import Bool
from tempo_core.symbolic.expr import Expr, Minimum, Symbol

_UNREACHED_SCORE = -1e30  # its exponential is zero beside any other score; it is finite, so that its gradient is too


def read_over(x: Tensor, step: Symbol, part: Expr | slice) -> Tensor:
    """`x` read along one step of its domain at a point or slice, at the identity along the others."""
    return x[tuple(part if s == step else s.expr for s in x.domain.steps)]


def _read_parts(x: Tensor, step: Symbol, parts: Sequence[slice]) -> Tensor:
    """`x` read along a step at several slices, one after the other.

    A slice that ends before a constant point (the first tokens, which every later position reads) reads a copy of x that exists
    only up to that point. So x itself is kept only for as long as the other slices reach it.
    """
    reads = []
    for part in parts:
        end = None if part.stop is None else _constant_end(Expr.of(part.stop))
        source = x
        if len(parts) > 1 and end is not None:
            source = copied_where(x, step.expr < end)
        reads.append(read_over(source, step, part))
    return fn.concatenate(reads)


def copied_where(x: Tensor, condition: Bool) -> Tensor:
    """A copy of `x` that exists only where the condition holds too: of the first points, with a store of its own."""
    where = x.domain.condition & condition
    node = x.context.graph.add(
        Merge(x.type), [replace(x.edge, condition=where)], domain=replace(x.domain, condition=where), where=user_location()
    )
    return of_node(x.context, node).named(f"{x.name}.first").named(f"{x.name}.first")


@dataclass(frozen=True)
class Reached:
    """Keys and values [positions, ..., key heads, head width] that a query attends to. `mask` bool [positions] says which count: None, all.

    Positions may be several dimensions, such as blocks and places. With `by_head`, keys and values are [..., key heads, positions, head width]:
    so nothing is transposed for the products of a query.
    """

    keys: Tensor
    values: Tensor
    mask: Tensor | None = None
    by_head: bool = False


def reached_over(step: Symbol, keys: Tensor, values: Tensor, pattern: Pattern) -> Reached:
    """What each position of a step attends to: keys and values, which vary with the step, at the slices of a pattern."""
    parts = pattern.slices(step.expr, step.bound_expr)
    return Reached(_read_parts(keys, step, parts), _read_parts(values, step, parts))


def _masked(scores: Tensor, mask: Tensor | None) -> Tensor:
    return scores if mask is None else fn.where(mask, scores, _UNREACHED_SCORE)


def _constant_end(stop: Expr) -> int | None:
    """A constant that a slice's end never exceeds, for any bound; None if there is no such constant."""
    atom = stop.single_atom
    candidates = atom.args if isinstance(atom, Minimum) else (stop,)
    return min((c.constant for c in candidates if c.is_constant), default=None)


class GroupedQueryAttention(Module):
    """Attention whose `heads` query heads share `key_heads` heads of keys and values (Ainslie et al., 2023, arXiv:2305.13245).

    `attention(x, over=t)`: x [..., width] at each point attends along the step t: keys and values are read at the slices
    that the pattern gives, and are kept for as long as it reaches them. Without `over`, x is [..., length, width], and
    attends along its length under a mask. Both give x's shape. `pattern` (causal by default) may be overridden in a call.
    Scores are scaled by 1 / sqrt(head_width); with `rope`, queries and keys are turned by their positions first.
    """

    default_name = "attention"

    def __init__(
        self,
        width: int,
        heads: int,
        key_heads: int,
        domain: Domain = (),
        head_width: int | None = None,
        pattern: Pattern | Reach = causal,
        rope: RoPE | None = None,
        bias: bool = False,
        fed: bool = False,
        name: str | None = None,
        dtype: str = "float32",
        initial: Initializer | None = None,
    ):
        super().__init__(name, domain, fed, dtype)
        if heads < 1 or key_heads < 1 or heads % key_heads:
            raise ShapeError(
                f"{heads} query heads cannot share {key_heads} key heads",
                hint="make heads a multiple of key_heads: heads=8, key_heads=2",
            )
        if head_width is None and width % heads:
            raise ShapeError(
                f"the width {width} is not a multiple of {heads} heads", hint="give the width of a head: head_width=64"
            )
        self.width, self.heads, self.key_heads = width, heads, key_heads
        self.head_width = width // heads if head_width is None else head_width
        self.pattern = as_pattern(pattern)
        if rope is not None and rope.width != self.head_width:
            raise ShapeError(f"the rotary embedding turns {rope.width} elements, but a head has {self.head_width}")
        self.rope = rope
        options: dict[str, Any] = {"domain": self.domain, "bias": bias, "fed": fed, "dtype": dtype, "initial": initial}
        self.query = Linear(width, heads * self.head_width, **options)
        self.key = Linear(width, key_heads * self.head_width, **options)
        self.value = Linear(width, key_heads * self.head_width, **options)
        self.output = Linear(heads * self.head_width, width, **options)

    def forward(self, x: Tensor, over: Expr | None = None, pattern: Pattern | Reach | None = None) -> Tensor:
        check_width(self, x, self.width)
        chosen = self.pattern if pattern is None else as_pattern(pattern)
        return self.output(self._along_dimension(x, chosen) if over is None else self._along_step(x, over, chosen))

    def _along_step(self, x: Tensor, over: Expr, pattern: Pattern) -> Tensor:
        step = time_step(x, over, self)
        queries, keys, values = self.projected(x, over)
        return self.mixed(queries, [reached_over(step, keys, values, pattern)])

    def projected(self, x: Tensor, position: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [..., heads, head width], and keys and values [..., key heads, head width], of x [..., width] at a position.

        A subclass may take a position that its own rotary embedding understands.
        """
        queries = self._rotated(self._heads(self.query(x), self.heads), position)
        keys = self._rotated(self._heads(self.key(x), self.key_heads), position).named(_label(self, "keys"))
        return queries, keys, self._heads(self.value(x), self.key_heads).named(_label(self, "values"))

    def mixed(self, queries: Tensor, sources: Sequence[Reached]) -> Tensor:
        """The values of all positions of all sources, mixed by one softmax for each query: [..., heads * head width].

        Several sources, of which some have no positions or only masked ones, need a position that counts in at least one of them.
        """
        lead = queries.shape[:-2]
        grouped = queries.reshape(*lead, self.key_heads, self.heads // self.key_heads, self.head_width)
        if len(sources) == 1 and sources[0].keys.rank == queries.rank + 1 and not sources[0].by_head:
            ((keys, values, mask),) = ((source.keys, source.values, source.mask) for source in sources)
            rank = keys.rank  # (positions, ..., key heads, head width)
            columns = keys.transpose(*range(1, rank), 0)  # (..., key heads, head width, positions)
            rows = values.transpose(*range(1, rank - 1), 0, rank - 1)  # (..., key heads, positions, head width)
            mixed = self.weights(grouped @ columns, mask).astype(rows.dtype) @ rows
        else:
            mixed = self._mixed_together(grouped, sources)
        return mixed.reshape(*lead, self.heads * self.head_width)

    def _mixed_together(self, queries: Tensor, sources: Sequence[Reached]) -> Tensor:
        """One softmax over all positions, relative to the greatest score: queries [..., key heads, queries, head width] to values of this shape."""
        lead = "abcdef"[: queries.rank - 3]
        over = ["xyz"[: source.keys.rank - queries.rank + 1] for source in sources]  # the dimensions of positions
        lying = [f"{lead}k{at}w" if source.by_head else f"{at}{lead}kw" for at, source in zip(over, sources, strict=True)]
        scores = [
            _masked(self.scores(fn.einsum(f"{lead}kqw,{letters}->{lead}kq{at}", queries, source.keys)), source.mask)
            for at, letters, source in zip(over, lying, sources, strict=True)
        ]
        axes = [tuple(range(-len(at), 0)) for at in over]
        rest = self.rest()
        greatest = [fn.expand_dims(each.max(axis), -1) for each, axis in zip(scores, axes, strict=True)]
        top = functools.reduce(fn.maximum, greatest if rest is None else [*greatest, rest])
        total = None if rest is None else fn.exp(rest - top)
        mixed: Tensor | None = None
        for at, letters, axis, each, source in zip(over, lying, axes, scores, sources, strict=True):
            values = source.values
            shares = fn.exp(each - (top if len(axis) == 1 else fn.expand_dims(top, -1)))
            weighed = fn.widened(fn.einsum(f"{lead}kq{at},{letters}->{lead}kqw", shares.astype(values.dtype), values))
            sums = fn.expand_dims(shares.sum(axis), -1)
            mixed, total = weighed if mixed is None else mixed + weighed, sums if total is None else total + sums
        assert mixed is not None and total is not None
        return (mixed / total).astype(sources[0].values.dtype)

    def _along_dimension(self, x: Tensor, pattern: Pattern) -> Tensor:
        if x.rank < 2:
            raise ShapeError(
                f"{self.name or 'attention'} takes [..., length, {self.width}], got {x!r}",
                hint="the last size of x must be the width. To attend along a step: attention(x, over=t)",
            )
        *lead, length, _ = x.shape
        groups, rank = self.heads // self.key_heads, x.rank + 1
        position = fn.expand_dims(fn.arange(length), 1)
        queries = self._rotated(self._heads(self.query(x), self.heads), position)
        keys = self._rotated(self._heads(self.key(x), self.key_heads), position)
        values = self._heads(self.value(x), self.key_heads)

        ahead = tuple(range(rank - 3))
        by_head = queries.transpose(*ahead, rank - 2, rank - 3, rank - 1)  # (..., heads, length, head width)
        grouped = by_head.reshape(*lead, self.key_heads, groups, length, self.head_width)
        columns = fn.expand_dims(keys.transpose(*ahead, rank - 2, rank - 1, rank - 3), rank - 2)
        rows = fn.expand_dims(values.transpose(*ahead, rank - 2, rank - 3, rank - 1), rank - 2)
        weights = self.weights(grouped @ columns, pattern.mask(length)).astype(rows.dtype)
        mixed = weights @ rows  # (..., key heads, groups, length, head width)
        together = mixed.reshape(*lead, self.heads, length, self.head_width).transpose(*ahead, rank - 2, rank - 3, rank - 1)
        return together.reshape(*lead, length, self.heads * self.head_width)

    def weights(self, products: Tensor, mask: Tensor | None = None) -> Tensor:
        """The shares of the positions, float32, from the products of a query with their keys."""
        scores, rest = _masked(self.scores(products), mask), self.rest()
        shares = fn.softmax(scores, -1)
        return shares if rest is None else shares * fn.sigmoid(fn.logsumexp(scores, -1, keepdims=True) - rest)

    def scores(self, products: Tensor) -> Tensor:
        """The scores of positions, float32, from the products of a query with their keys. A subclass may compute others."""
        return fn.widened(products) * self.head_width**-0.5

    def rest(self) -> Tensor | None:
        """A further score of each query, float32 [key heads, queries, 1], whose share of the softmax is dropped. A subclass may have one."""
        return None

    def _heads(self, x: Tensor, heads: int) -> Tensor:
        return x.reshape(*x.shape[:-1], heads, self.head_width)

    def _rotated(self, x: Tensor, position: Any) -> Tensor:
        return x if self.rope is None else self.rope(x, position)


class MultiHeadAttention(GroupedQueryAttention):
    """Attention with keys and values of its own for each head (Vaswani et al., 2017, arXiv:1706.03762)."""

    def __init__(
        self,
        width: int,
        heads: int,
        domain: Domain = (),
        head_width: int | None = None,
        pattern: Pattern | Reach = causal,
        rope: RoPE | None = None,
        bias: bool = False,
        fed: bool = False,
        name: str | None = None,
        dtype: str = "float32",
        initial: Initializer | None = None,
    ):
        super().__init__(width, heads, heads, domain, head_width, pattern, rope, bias, fed, name, dtype, initial)


def time_step(x: Tensor, over: object, module: Module[Any]) -> Symbol:
    """The step `over`, which `x` must vary with."""
    atom = over if isinstance(over, Symbol) else over.single_atom if isinstance(over, Expr) else None
    if not isinstance(atom, Symbol) or not atom.is_step:
        raise IndexingError(
            f"{module.name or type(module).__name__} goes over a step, but over={over!r} is not a step",
            hint="give a step of the context: over=t",
        )
    if atom not in x.domain.steps:
        raise IndexingError(
            f"{module.name or type(module).__name__} goes over the step {atom}, but {x!r} does not vary with {atom}",
            hint="give a tensor that has this step"
            + (f", or go over another step: over={x.domain.steps[-1]}" if x.domain.steps else ""),
        )
    return atom


def _label(module: Module, what: str) -> str:
    return f"{module.name}.{what}" if module.name else what
