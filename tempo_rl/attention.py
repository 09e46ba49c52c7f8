"""A memory that attends to the episode so far: over a step of time, as slices; and from call to call, as a cache of the last positions."""

from __future__ import annotations

from collections.abc import Sequence

import tempo_core as tp
from tempo_core.nn.attention import Reached


class Attention(tp.nn.Module):
    """`x + attention(norm(x))`: a layer of a transformer (Vaswani et al., 2017), with rotary positions, over the last `window` steps.

    A step attends to itself and to the earlier steps of its episode, the last `window` in all. Rollouts are contexts of their own: a step does not
    attend to an earlier rollout.
    """

    default_name = "memory"

    def __init__(
        self,
        width: int,
        heads: int,
        window: int,
        whole: bool = False,
        domain: Sequence[tp.Expr] = (),
        fed: bool = False,
        name: str | None = None,
    ):
        """`width` is that of x. With `whole`, the window is never shorter than a rollout, so that slices begin with it."""
        super().__init__(name, tuple(domain), fed)
        self.hidden, self.window, self.whole = width, window, whole
        self.norm = tp.nn.LayerNorm(width, domain=tuple(domain), fed=fed)
        self.attention = tp.nn.MultiHeadAttention(width, heads, domain=tuple(domain), rope=tp.nn.RoPE(width // heads), fed=fed)

    def forward(self, x: tp.Tensor, episode: tp.Tensor, t: tp.Expr) -> tp.Tensor:
        """The memory after `x` (..., width) at each point of its domain, along the step t.

        `episode` (...), int32 over the same steps, is the same number for all steps of an episode.
        """
        queries, keys, values = self.attention.projected(self.norm(x), t)
        return self._mixed(x, queries, [self._past(keys, values, episode, t, t + 1, t)])

    def after(self, final: tp.Tensor, x: tp.Tensor, episode: tp.Tensor, t: tp.Expr) -> tp.Tensor:
        """The memory after an observation `final` (..., width) that follows `x`, and belongs to its episode."""
        _, keys, values = self.attention.projected(self.norm(x), t)
        queries, key, value = self.attention.projected(self.norm(final), t + 1)
        return self._mixed(
            final,
            queries,
            [self._past(keys, values, episode, t + 1, t + 1, t), Reached(key.expand_dims(0), value.expand_dims(0))],
        )

    def _past(self, keys: tp.Tensor, values: tp.Tensor, episode: tp.Tensor, at: tp.Expr, end: tp.Expr, t: tp.Expr) -> Reached:
        """The steps before `end` that the step `at` attends to."""
        span = slice(0 if self.whole else tp.max(at - self.window + 1, 0), end)

        def read(x: tp.Tensor) -> tp.Tensor:
            return x[tuple(span if step.expr == t else step.expr for step in x.domain.steps)]

        same = tp.moveaxis(read(episode) == episode, 0, -1)
        return Reached(read(keys), read(values), same.expand_dims(-2).expand_dims(-2))

    def _mixed(self, x: tp.Tensor, queries: tp.Tensor, sources: list[Reached]) -> tp.Tensor:
        return x + self.attention.output(self.attention.mixed(queries, sources))

    # -- from call to call ----------------------------------------------------------------------------------------------

    @property
    def widths(self) -> dict[str, int]:
        """The parts of the cache with their widths: the last output, earlier keys and values, and the number of steps so far."""
        earlier = (self.window - 1) * self.hidden
        return {"output": self.hidden, "keys": earlier, "values": earlier, "count": 1}

    def remembered(self, x: tp.Tensor, states: Sequence[tp.Tensor]) -> tuple[tp.Tensor, ...]:
        """The parts of the cache after `x` (B, width); they are zeros before an episode."""
        _, keys, values, count = states
        queries, key, value = self.attention.projected(self.norm(x), count)
        all_keys, all_values = (
            tp.concatenate([tp.moveaxis(past.reshape(x.shape[0], self.window - 1, *new.shape[1:]), 1, 0), new.expand_dims(0)])
            for past, new in ((keys, key), (values, value))
        )
        is_held = tp.arange(self.window).astype("float32") >= self.window - 1.0 - count  # (B, window)
        output = self._mixed(x, queries, [Reached(all_keys, all_values, is_held.expand_dims(-2).expand_dims(-2))])
        later = [tp.moveaxis(each.spatial[1:], 0, 1).reshape(x.shape[0], -1) for each in (all_keys, all_values)]
        return (output, *later, count + 1.0)
