"""Random recurrent tensors: `tp.random.normal(shape, domain=(t,))`. The numbers depend on (run seed, call, point), not on the schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tempo_core.errors import ArgumentError, ShapeError
from tempo_core.frontend.aliases import Domain, Shape
from tempo_core.frontend.arguments import checked
from tempo_core.frontend.base_context import BaseContext
from tempo_core.frontend.elsewhere import OF_RANDOM, missing_from
from tempo_core.frontend.functions import constant
from tempo_core.frontend.inputs import domain_steps
from tempo_core.frontend.methods.operands import shape_of
from tempo_core.frontend.tensor import Tensor, Value, apply, as_tensor, evaluate
from tempo_core.ir.ops import Random
from tempo_core.ir.types import is_float
from tempo_core.symbolic.domain import step_order
from tempo_core.symbolic.expr import IntoExpr


def _draw(kind: str, shape: Shape, domain: Domain) -> Tensor:
    context = BaseContext.current()
    sizes = shape_of(shape)
    # The steps of sizes count too: a size that varies with a step needs new numbers at each of its points.
    steps = {*domain_steps(domain), *(step for size in sizes for step in size.steps)}
    coordinates = [evaluate(step.expr) for step in step_order(steps, context.steps)]
    return apply(Random(kind, context.next_stream(), sizes), *coordinates)


@checked
def uniform(shape: Shape = (), low: float = 0.0, high: float = 1.0, domain: Domain = ()) -> Tensor:
    """Uniform float32 numbers in [low, high), new ones at each point of `domain`."""
    if not low < high:
        raise ArgumentError(
            f"there are no uniform numbers from {low} to {high}",
            hint="low must be less than high: tp.random.uniform((3,), 0.0, 1.0)",
        )
    drawn = _draw("uniform", shape, domain)
    return drawn if (low, high) == (0.0, 1.0) else drawn * (high - low) + low


@checked
def normal(shape: Shape = (), domain: Domain = ()) -> Tensor:
    """Standard normal float32 numbers, new ones at each point of `domain`."""
    return _draw("normal", shape, domain)


@checked
def bits(shape: Shape = (), domain: Domain = ()) -> Tensor:
    """Uniform uint32 numbers: a shape of (2,) makes a key for `jax.random`."""
    return _draw("bits", shape, domain)


@checked
def gumbel(shape: Shape = (), domain: Domain = ()) -> Tensor:
    """Float32 numbers of the standard Gumbel distribution, new ones at each point of `domain`."""
    return -(-(_draw("uniform", shape, domain) + 1e-20).log() + 1e-20).log()


@checked
def exponential(shape: Shape = (), domain: Domain = ()) -> Tensor:
    """Exponential float32 numbers of mean 1, new ones at each point of `domain`."""
    return -(-_draw("uniform", shape, domain)).log1p()


@checked
def bernoulli(p: Value = 0.5, shape: Shape = (), domain: Domain = ()) -> Tensor:
    """Bools that are True with probability `p`, which broadcasts with the shape; new ones at each point of `domain`."""
    return _draw("uniform", shape, domain) < p


@checked
def randint(shape: Shape, low: int, high: int, domain: Domain = ()) -> Tensor:
    """Int32 numbers from `low` to `high - 1`, all as likely (up to `(high - low) / 2**32`), new ones at each point of `domain`."""
    if not low < high:
        raise ArgumentError(
            f"there are no integers from {low} to {high - 1}", hint="low must be less than high: tp.random.randint((3,), 0, 10)"
        )
    return (_draw("bits", shape, domain) % constant(high - low, "uint32")).astype("int32") + low


@checked
def permutation(size: IntoExpr, domain: Domain = ()) -> Tensor:
    """A random order of `0, ..., size - 1` as int32, a new one at each point of `domain`."""
    return _draw("bits", (size,), domain).argsort()


@checked
def categorical(logits: Tensor, domain: Domain | None = None) -> Tensor:
    """Positions of the last axis drawn with probability softmax(logits), as int32; by Gumbel's trick.

    There are new draws at each point of the logits' domain, or of `domain` if that is wider.
    """
    logits = as_tensor(logits)
    if logits.rank == 0 or not is_float(logits.dtype):
        raise ShapeError(
            f"categorical draws from the last axis of logits, got {logits!r}", hint="floats [..., choices], such as log(p)"
        )
    steps = [s.expr for s in logits.domain.steps] if domain is None else domain
    return (logits + gumbel(logits.type.shape, steps).astype(logits.dtype)).argmax(-1)


NAMES = ("bernoulli", "bits", "categorical", "exponential", "gumbel", "normal", "permutation", "randint", "uniform")

if not TYPE_CHECKING:  # for which it would be a name for everything
    __getattr__ = missing_from("tp.random", NAMES, OF_RANDOM)
