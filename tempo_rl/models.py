"""Policies and value functions: multilayer perceptrons whose parameters are recurrent tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import tempo_core as tp
from tempo_rl.distributions import Categorical, Distribution, Gaussian
from tempo_rl.env.spaces import Actions, Discrete, Observations


@dataclass(frozen=True)
class Network:
    """Linear layers with tanh between them, read at one `index` of the parameters' domain (None: at the identity)."""

    layers: tuple[Any, ...]
    index: tuple[Any, ...] | None = None

    @staticmethod
    def build(name: str, sizes: Sequence[int], last_gain: float, domain: Sequence[Any], fed: bool) -> Network:
        """Layers `name.0`, `name.1`, ... with orthogonal weights: gain sqrt(2) inside, `last_gain` for the last."""
        count = len(sizes) - 1
        gains = [math.sqrt(2.0)] * (count - 1) + [last_gain]
        return Network(
            tuple(
                tp.nn.Linear(sizes[k], sizes[k + 1], domain=tuple(domain), gain=gains[k], fed=fed, name=f"{name}.{k}")
                for k in range(count)
            )
        )

    def __call__(self, x: Any) -> Any:
        """`x` (..., n_in) -> (..., n_out)."""
        for k, layer in enumerate(self.layers):
            weight, bias = layer.weight, layer.bias
            if self.index is not None:
                weight, bias = weight[self.index], bias[self.index]
            x = x @ weight + bias
            if k < len(self.layers) - 1:
                x = tp.tanh(x)
        return x

    def parameters(self) -> dict[str, Any]:
        return {name: value for layer in self.layers for name, value in layer.parameters().items()}


@dataclass(frozen=True)
class ActorCritic:
    """A policy and a value function that share nothing. `model[i, 0, 0]` reads the parameters at one point."""

    observations: Observations
    actions: Actions
    policy_network: Network
    value_network: Network | None
    log_std: Any = None  # for continuous actions: one parameter an action dimension

    @staticmethod
    def build(
        observations: Observations,
        actions: Actions,
        hidden: Sequence[int] = (64, 64),
        domain: Sequence[Any] = (),
        critic: bool = True,
        fed: bool = False,
    ) -> ActorCritic:
        """A model whose parameters vary over `domain`. With `fed` they are inputs of the program, by name."""
        n_in = math.prod(observations.shape)
        discrete = isinstance(actions, Discrete)
        n_out = actions.count if isinstance(actions, Discrete) else math.prod(actions.shape)
        policy = Network.build("policy", (n_in, *hidden, n_out), 0.01, domain, fed)
        value = Network.build("value", (n_in, *hidden, 1), 1.0, domain, fed) if critic else None
        log_std = None
        if not discrete and fed:
            log_std = tp.input("log_std", shape=(n_out,), domain=())
        elif not discrete:
            log_std = tp.recurrence((n_out,), "float32", domain=tuple(domain), name="log_std")
            log_std[(0,) * len(domain)] = tp.zeros((n_out,))
        return ActorCritic(observations, actions, policy, value, log_std)

    def __getitem__(self, index: tuple[Any, ...]) -> ActorCritic:
        index = index if isinstance(index, tuple) else (index,)
        return replace(
            self,
            policy_network=replace(self.policy_network, index=index),
            value_network=None if self.value_network is None else replace(self.value_network, index=index),
            log_std=None if self.log_std is None else self.log_std[index],
        )

    def policy(self, observation: Any) -> Distribution:
        """The distribution of actions for `observation` (..., *observations.shape)."""
        output = self.policy_network(self._features(observation))
        if self.log_std is None:
            return Categorical(output)
        return Gaussian(output, self.log_std)

    def value(self, observation: Any) -> Any:
        """The value estimate: the batch's shape, without a feature dimension."""
        assert self.value_network is not None, "this model has no value function"
        return self.value_network(self._features(observation)).squeeze(-1)

    def parameters(self) -> dict[str, Any]:
        """All parameters by name, as tensors over the model's domain."""
        found = dict(self.policy_network.parameters())
        if self.value_network is not None:
            found |= self.value_network.parameters()
        if self.log_std is not None:
            found["log_std"] = self.log_std
        return found

    def _features(self, observation: Any) -> Any:
        rank = len(self.observations.shape)
        if rank != 1:
            batch = observation.shape[: observation.rank - rank]
            observation = observation.reshape(*batch, math.prod(self.observations.shape))
        return observation if observation.dtype == "float32" else observation.astype("float32")
