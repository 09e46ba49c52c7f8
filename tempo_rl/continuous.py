"""Models for continuous control: policies that give actions between -1 and 1, and two critics that value observations with actions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import tempo_core as tp
from tempo_rl.choices import Choices
from tempo_rl.convolutions import Convolution, Convolutions
from tempo_rl.distributions import Deterministic, Distribution, SquashedGaussian
from tempo_rl.env.spaces import Actions, Continuous, Observations
from tempo_rl.errors import EnvError
from tempo_rl.models import ActorCritic, Context, Layers, Network

LOG_STD = (-5.0, 2.0)  # between which the deviation of a squashed Gaussian lies


@dataclass(frozen=True)
class SquashedPolicy(ActorCritic):
    """A policy of `SquashedGaussian`s, whose mean and deviation depend on the observation."""

    outputs_per_action: ClassVar[int] = 2

    @classmethod
    def build(
        cls,
        observations: Observations,
        actions: Actions,
        hidden: Sequence[int] = (256, 256),
        domain: Sequence[tp.Expr] = (),
        critic: bool = True,
        fed: bool = False,
        shared: bool = False,
        activation: str = "relu",
        network: str = "mlp",
        convolutions: Sequence[Convolution] = (),
        embedding: int | None = None,
        context: Context | None = None,
    ) -> Self:
        """A policy with parameters over `domain`, as `ActorCritic.build`, without a value. Raises `EnvError` unless actions are numbers (Box)."""
        if not isinstance(actions, Continuous):
            raise EnvError(
                "this agent needs continuous actions (Box)", hint="train another agent: algorithm=ppo, or algorithm=dqn"
            )
        n_out = cls.outputs_per_action * math.prod(actions.shape)
        layers = Layers.build(
            observations, n_out, hidden, domain, False, fed, False, activation, network, convolutions, embedding, None
        )
        return cls(observations, actions, layers.policy, None, trunk=layers.trunk, encoder=layers.encoder)

    def policy_of(self, features: tp.Tensor) -> Distribution:
        return self.gaussian_of(features)

    def gaussian(self, observation: tp.Tensor) -> SquashedGaussian:
        """The distribution of actions for `observation` (..., *observations.shape)."""
        return self.gaussian_of(self.features(observation))

    def gaussian_of(self, features: tp.Tensor) -> SquashedGaussian:
        mean, spread = self.policy_network(features).split(2, -1)
        low, high = LOG_STD
        return SquashedGaussian(mean, low + 0.5 * (high - low) * (tp.tanh(spread) + 1.0))


@dataclass(frozen=True)
class DeterministicPolicy(SquashedPolicy):
    """A policy that gives one action."""

    outputs_per_action: ClassVar[int] = 1

    def policy_of(self, features: tp.Tensor) -> Deterministic:
        return Deterministic(tp.tanh(self.policy_network(features)))

    def action(self, observation: tp.Tensor) -> tp.Tensor:
        """The action (..., A) for `observation` (..., *observations.shape)."""
        return self.policy_of(self.features(observation)).mean


@dataclass(frozen=True)
class TwinCritics:
    """Two estimates Q(observation, action). Observations are read as `policy` reads them, with convolutions of the critics' own."""

    policy: ActorCritic
    networks: tuple[Network, Network]
    encoder: Convolutions | Choices | None = None

    @staticmethod
    def build(
        policy: ActorCritic,
        hidden: Sequence[int],
        domain: Sequence[tp.Expr],
        activation: str = "relu",
        convolutions: Sequence[Convolution] = (),
        embedding: int | None = None,
    ) -> TwinCritics:
        """Critics with parameters over `domain`, named `q1` and `q2`; with an encoder of their own if the policy has one."""
        encoder: Convolutions | Choices | None = None
        n_in = math.prod(policy.observations.shape)
        if isinstance(policy.encoder, Choices):
            encoder = Choices.build(policy.observations, embedding, domain, False, "critic.embedding")
            n_in = encoder.size
        elif policy.encoder is not None:
            encoder = Convolutions.build(policy.observations, convolutions, domain, False, activation, "critic.convolution")
            n_in = encoder.size
        sizes = (n_in + math.prod(policy.actions.shape), *hidden, 1)
        first, second = (Network.build(name, sizes, 1.0, domain, False, activation) for name in ("q1", "q2"))
        return TwinCritics(policy, (first, second), encoder)

    def __call__(self, observation: tp.Tensor, action: tp.Tensor) -> tuple[tp.Tensor, tp.Tensor]:
        """The estimates, in the batch's shape, for `observation` (..., *observations.shape) and `action` (..., A)."""
        both = tp.concatenate([self.policy.read(observation, self.encoder, None), action], -1)
        first, second = (network(both).squeeze(-1) for network in self.networks)
        return first, second

    def parameters(self) -> dict[str, tp.Tensor]:
        """All parameters by name."""
        parameters = {} if self.encoder is None else self.encoder.parameters()
        return parameters | self.networks[0].parameters() | self.networks[1].parameters()

    def using(self, parameters: Mapping[str, tp.Tensor]) -> TwinCritics:
        """The critics with other tensors as their parameters, by name: target networks."""
        first, second = (network.using(parameters) for network in self.networks)
        return replace(self, networks=(first, second), encoder=None if self.encoder is None else self.encoder.using(parameters))
