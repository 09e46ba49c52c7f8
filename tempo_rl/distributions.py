"""Action distributions on recurrent tensors. The last dimension is the action's; the leading ones are batches."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import tempo_core as tp


class Distribution(Protocol):
    """A distribution of actions, as agents use it. Results have the batch's shape; a continuous action has one more dimension."""

    def sample(self) -> tp.Tensor: ...
    def mode(self) -> tp.Tensor: ...
    def log_prob(self, action: tp.Tensor) -> tp.Tensor: ...
    def entropy(self) -> tp.Tensor: ...


@dataclass(frozen=True)
class Categorical:
    """Choices among `logits.shape[-1]` actions; actions are int32."""

    logits: tp.Tensor

    def sample(self) -> tp.Tensor:
        """One draw for every batch element and every point of the logits' domain."""
        return tp.random.categorical(self.logits)

    def mode(self) -> tp.Tensor:
        """The most likely action."""
        return self.logits.argmax(-1)

    def log_prob(self, action: tp.Tensor) -> tp.Tensor:
        """log p(action), by a one-hot sum: its gradient is a product, not a scatter."""
        return (self.logits.log_softmax(-1) * action.one_hot(self.logits.shape[-1])).sum(-1)

    def entropy(self) -> tp.Tensor:
        """-sum p log p, in nats."""
        return -(self.logits.softmax(-1) * self.logits.log_softmax(-1)).sum(-1)


@dataclass(frozen=True)
class MultiCategorical:
    """Independent choices, choice k among `counts[k]`. `logits` (..., sum of counts) are side by side; actions (..., k) are int32."""

    logits: tp.Tensor
    counts: tuple[int, ...]

    def parts(self) -> list[Categorical]:
        """Each choice by itself."""
        ends = [sum(self.counts[: k + 1]) for k in range(len(self.counts))]
        return [Categorical(self.logits.spatial[..., e - n : e]) for n, e in zip(self.counts, ends, strict=True)]

    def sample(self) -> tp.Tensor:
        """One draw of every choice, for every batch element and every point of the logits' domain."""
        return tp.stack([part.sample() for part in self.parts()], -1)

    def mode(self) -> tp.Tensor:
        """The most likely choices."""
        return tp.stack([part.mode() for part in self.parts()], -1)

    def log_prob(self, action: tp.Tensor) -> tp.Tensor:
        """The sum of the choices' log-probabilities."""
        return _sum([part.log_prob(action.spatial[..., k]) for k, part in enumerate(self.parts())])

    def entropy(self) -> tp.Tensor:
        """The sum of the choices' entropies, in nats."""
        return _sum([part.entropy() for part in self.parts()])


def _sum(terms: list[tp.Tensor]) -> tp.Tensor:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


@dataclass(frozen=True)
class EpsilonGreedy:
    """The action of the greatest value, or, with probability `epsilon`, any of the `values.shape[-1]` actions; actions are int32."""

    values: tp.Tensor
    epsilon: tp.Tensor | float

    def sample(self) -> tp.Tensor:
        """One draw for every batch element and every point of the values' domain."""
        points = tuple(step.expr for step in self.values.domain.steps)
        batch, count = self.values.shape[:-1], self.values.shape[-1]
        explores = tp.random.uniform(batch, domain=points) < self.epsilon
        anything = tp.random.categorical(tp.zeros((*batch, count)), domain=points)
        return tp.where(explores, anything, self.mode())

    def mode(self) -> tp.Tensor:
        """The action of the greatest value."""
        return self.values.argmax(-1)

    def log_prob(self, action: tp.Tensor) -> tp.Tensor:
        """log p(action)."""
        return tp.log((self._probabilities() * action.one_hot(self.values.shape[-1])).sum(-1))

    def entropy(self) -> tp.Tensor:
        """-sum p log p, in nats."""
        p = self._probabilities()
        return -(p * tp.log(tp.where(p > 0.0, p, 1.0))).sum(-1)

    def _probabilities(self) -> tp.Tensor:
        count = self.values.shape[-1]
        return self.mode().one_hot(count) * (1.0 - self.epsilon) + self.epsilon * (tp.ones(()) / count)


@dataclass(frozen=True)
class Gaussian:
    """Independent normals of mean `mean` (..., A) and standard deviation exp(`log_std`) (A,)."""

    mean: tp.Tensor
    log_std: tp.Tensor

    def sample(self) -> tp.Tensor:
        """One draw for every batch element and every point of the mean's domain."""
        noise = tp.random.normal(self.mean.shape, domain=tuple(step.expr for step in self.mean.domain.steps))
        return self.mean + tp.exp(self.log_std) * noise

    def mode(self) -> tp.Tensor:
        """The mean."""
        return self.mean

    def log_prob(self, action: tp.Tensor) -> tp.Tensor:
        """The log density of `action` (..., A), summed over A."""
        scaled = (action - self.mean) * tp.exp(-self.log_std)
        return (scaled * scaled * -0.5 - self.log_std - 0.5 * math.log(2 * math.pi)).sum(-1)

    def entropy(self) -> tp.Tensor:
        """Differential entropy in nats, in the batch's shape; all elements of the batch have the same entropy."""
        constant = 0.5 + 0.5 * math.log(2 * math.pi)
        return (self.mean * 0.0 + self.log_std + constant).sum(-1)


@dataclass(frozen=True)
class SquashedGaussian:
    """Actions tanh(x) between -1 and 1, where x has independent normals of mean `mean` and deviation exp(`log_std`), both (..., A).

    Densities are those of the actions: log p(tanh x) = log N(x) - log(1 - tanh² x), summed over A (Haarnoja et al., 2018b, appendix C).
    """

    mean: tp.Tensor
    log_std: tp.Tensor

    def from_noise(self, noise: tp.Tensor) -> tuple[tp.Tensor, tp.Tensor]:
        """The actions (..., A) that standard normal `noise` (..., A) gives, and their log densities, in the batch's shape."""
        x = self.mean + tp.exp(self.log_std) * noise
        normal = noise * noise * -0.5 - self.log_std - 0.5 * math.log(2 * math.pi)
        return tp.tanh(x), (normal - _log_slope(x)).sum(-1)

    def sample_with_log_prob(self) -> tuple[tp.Tensor, tp.Tensor]:
        """One draw for every batch element and every point of the mean's domain, and its log density. Gradients flow through both."""
        return self.from_noise(tp.random.normal(self.mean.shape, domain=tuple(step.expr for step in self.mean.domain.steps)))

    def sample(self) -> tp.Tensor:
        """One draw for every batch element and every point of the mean's domain."""
        return self.sample_with_log_prob()[0]

    def mode(self) -> tp.Tensor:
        """The action tanh(mean), as the field has it. (The density is greatest elsewhere.)"""
        return tp.tanh(self.mean)

    def log_prob(self, action: tp.Tensor) -> tp.Tensor:
        """The log density of `action` (..., A). Of an action next to -1 or 1 it is only roughly known: use `sample_with_log_prob`."""
        x = tp.arctanh(tp.clip(action, -LARGEST_ACTION, LARGEST_ACTION))
        return (Gaussian(self.mean, self.log_std).log_prob(x)) - _log_slope(x).sum(-1)

    def entropy(self) -> tp.Tensor:
        """An estimate from one draw, in nats: there is no closed form."""
        return -self.sample_with_log_prob()[1]


LARGEST_ACTION = 1.0 - 2.0**-23  # next to 1 in float32


def _log_slope(x: tp.Tensor) -> tp.Tensor:
    """log(1 - tanh² x), the log of the derivative of tanh, without overflow."""
    return 2.0 * (math.log(2.0) - x - tp.softplus(-2.0 * x))


@dataclass(frozen=True)
class Deterministic:
    """One action `mean` (..., A), always, with probability 1."""

    mean: tp.Tensor

    def sample(self) -> tp.Tensor:
        """The action."""
        return self.mean

    def mode(self) -> tp.Tensor:
        """The action."""
        return self.mean

    def log_prob(self, action: tp.Tensor) -> tp.Tensor:
        """0 for the action, and -∞ for all others."""
        return tp.where((action == self.mean).all(-1), 0.0, float("-inf"))

    def entropy(self) -> tp.Tensor:
        """0 in the batch's shape."""
        return (self.mean * 0.0).sum(-1)
