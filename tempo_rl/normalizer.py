"""Running means and variances as recurrent state: of observations, and of discounted returns, by which rewards are scaled.

An iteration acts and learns with the statistics from its start; its rollout changes those of the next one. They are part of the program's state, and
those of observations part of a policy, so that evaluation uses them as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tempo_core as tp

START = 1e-4  # the weight of the first mean 0 and variance 1, in samples
LARGEST = 10.0  # of normalised numbers


@dataclass(frozen=True)
class Normalizer:
    """A mean and a variance of one shape. In training they are recurrences over `domain`."""

    name: str
    mean: tp.Tensor
    variance: tp.Tensor
    count: tp.Tensor | None = None

    @staticmethod
    def build(name: str, shape: Sequence[int], domain: Sequence[tp.Expr], fed: bool = False) -> Normalizer:
        """The statistics `name.mean` and `name.variance`. With `fed`, they are inputs of the program."""
        size = tuple(shape)
        if fed:
            return Normalizer(name, *(tp.input(f"{name}.{part}", shape=size) for part in ("mean", "variance")))
        over = tuple(domain)
        mean, variance = (tp.recurrence(size, domain=over, name=f"{name}.{part}") for part in ("mean", "variance"))
        return Normalizer(name, mean, variance, tp.recurrence((), domain=over, name=f"{name}.count"))

    def __call__(self, x: tp.Tensor) -> tp.Tensor:
        """`x` (..., *shape), centred and scaled, and clipped to ±10."""
        return tp.clip((x - self.mean) * self._scale(), -LARGEST, LARGEST)

    def scaled(self, x: tp.Tensor) -> tp.Tensor:
        """`x`, scaled and clipped to ±10, but not centred."""
        return tp.clip(x * self._scale(), -LARGEST, LARGEST)

    def _scale(self) -> tp.Tensor:
        return 1.0 / tp.sqrt(self.variance + 1e-8)

    def values(self) -> dict[str, tp.Tensor]:
        """The statistics that a policy holds, by name."""
        return {f"{self.name}.mean": self.mean, f"{self.name}.variance": self.variance}

    def follow(self, samples: tp.Tensor) -> dict[str, tp.Tensor]:
        """Take in samples (B, T, *shape): the statistics of the next iteration, by name (Chan et al., 1979, for two sets of samples)."""
        assert self.count is not None and isinstance(self.mean, tp.Recurrence) and isinstance(self.variance, tp.Recurrence)
        assert isinstance(self.count, tp.Recurrence)
        samples = samples.detach().astype("float32")
        number = tp.ones(()) * samples.shape[0] * samples.shape[1]
        mean = samples.mean((0, 1))
        variance = ((samples - mean) ** 2).mean((0, 1))
        total, step = self.count + number, mean - self.mean
        following = {
            f"{self.name}.mean": self.mean + step * (number / total),
            f"{self.name}.variance": (
                self.variance * self.count + variance * number + step * step * (self.count * number / total)
            )
            / total,
        }
        tp.carry(self.mean, tp.zeros(self.mean.shape), following[f"{self.name}.mean"])
        tp.carry(self.variance, tp.ones(self.variance.shape), following[f"{self.name}.variance"])
        tp.carry(self.count, START, total)
        return following
