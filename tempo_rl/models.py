"""Policies and value functions, whose parameters are recurrent tensors: perceptrons, convolutions, and networks with a memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple, Self, TypeAlias

import numpy as np

import tempo_core as tp
from tempo_rl.attention import Attention
from tempo_rl.choices import Choices
from tempo_rl.convolutions import ACTIVATIONS, Convolution, Convolutions, Index
from tempo_rl.distributions import Categorical, Distribution, EpsilonGreedy, Gaussian, MultiCategorical
from tempo_rl.env.spaces import Actions, Continuous, Discrete, MultiDiscrete, Observations
from tempo_rl.errors import EnvError, RecipeError
from tempo_rl.normalizer import Normalizer
from tempo_rl.recipe import DQNRecipe, Recipe
from tempo_rl.references import load_class

LARGEST = 2**31 - 1  # elements of an array
MEMORIES: Mapping[str, type[tp.nn.GRUCell | tp.nn.LSTMCell]] = {"gru": tp.nn.GRUCell, "lstm": tp.nn.LSTMCell}
Memory: TypeAlias = tp.nn.GRUCell | tp.nn.LSTMCell | Attention


@dataclass(frozen=True)
class Network:
    """Linear layers with tanh or another function between them. Their parameters are read at the point `index` (None: at the reader's own point).

    A trunk has it after its last layer too.
    """

    layers: tuple[tp.nn.Linear, ...]
    index: Index | None = None
    is_trunk: bool = False
    activation: str = "tanh"

    @staticmethod
    def build(
        name: str, sizes: Sequence[int], last_gain: float, domain: Sequence[tp.Expr], fed: bool, activation: str = "tanh"
    ) -> Network:
        """Layers `name.0`, `name.1`, ... with orthogonal weights: `last_gain` for the last layer, sqrt(2) for the others."""
        for n_in, n_out in pairwise(sizes):
            if n_in * n_out > LARGEST:
                raise RecipeError(
                    f"a layer of {n_in:,} x {n_out:,} weights is too large: at most {LARGEST:,}",
                    hint="use smaller layers: hidden=[64, 64]",
                )
        count = len(sizes) - 1
        gains = [math.sqrt(2.0)] * (count - 1) + [last_gain]
        return Network(
            tuple(
                tp.nn.Linear(sizes[k], sizes[k + 1], domain=tuple(domain), gain=gains[k], fed=fed, name=f"{name}.{k}")
                for k in range(count)
            ),
            activation=activation,
        )

    def __call__(self, x: tp.Tensor) -> tp.Tensor:
        """`x` (..., n_in) -> (..., n_out)."""
        for k, layer in enumerate(self.layers):
            x = (layer if self.index is None else layer[self.index])(x)
            if self.is_trunk or k < len(self.layers) - 1:
                x = ACTIVATIONS[self.activation](x)
        return x

    def parameters(self) -> dict[str, tp.Tensor]:
        return {name: value for layer in self.layers for name, value in layer.parameters().items()}

    def using(self, parameters: Mapping[str, tp.Tensor]) -> Network:
        """The network with other tensors as its parameters, by name."""
        return replace(self, layers=tuple(layer.using({n: parameters[n] for n in layer.parameters()}) for layer in self.layers))


class Context(NamedTuple):
    """What the memory of network "attention" attends to: with so many heads, to so many steps. `is_whole`: no rollout has more."""

    heads: int
    window: int
    is_whole: bool


class Layers(NamedTuple):
    """The parts of a model: the networks of its policy and value, and those that they share."""

    policy: Network
    value: Network | None
    trunk: Network | None
    encoder: Convolutions | Choices | None
    memory: Memory | None

    @staticmethod
    def build(
        observations: Observations,
        n_out: int,
        hidden: Sequence[int],
        domain: Sequence[tp.Expr],
        critic: bool,
        fed: bool,
        shared: bool,
        activation: str,
        network: str,
        convolutions: Sequence[Convolution],
        embedding: int | None,
        context: Context | None,
    ) -> Layers:
        """Parts with parameters over `domain`, as `ActorCritic.build` has them; the policy gives `n_out` numbers."""
        encoder: Convolutions | Choices | None = None
        trunk, width = None, 0
        memory: Memory | None = None
        n_in = math.prod(observations.shape)
        if network == "cnn":
            if observations.has_parts:
                raise EnvError(
                    f"network=cnn takes images, not observations {observations.space}", hint="use another network: network=mlp"
                )
            encoder = Convolutions.build(observations, convolutions, domain, fed, activation)
            n_in = encoder.size
        elif observations.counts:
            encoder = Choices.build(observations, embedding, domain, fed)
            n_in = encoder.size
        if network in MEMORIES:
            *hidden, width = hidden or (64,)
        if (shared or network != "mlp") and hidden:
            trunk = replace(Network.build("trunk", (n_in, *hidden), math.sqrt(2.0), domain, fed, activation), is_trunk=True)
            n_in, hidden = hidden[-1], ()
        if network in MEMORIES:
            memory = MEMORIES[network](n_in, width, domain=tuple(domain), fed=fed, name="memory")
            n_in = width
        if network == "attention" and context is not None:
            memory = Attention(n_in, context.heads, context.window, context.is_whole, domain, fed, "memory")
        policy = Network.build("policy", (n_in, *hidden, n_out), 0.01, domain, fed, activation)
        value = Network.build("value", (n_in, *hidden, 1), 1.0, domain, fed, activation) if critic else None
        return Layers(policy, value, trunk, encoder, memory)


@dataclass(frozen=True)
class ActorCritic:
    """A policy and a value function. `model[i, 0, 0]` reads the parameters at one point.

    They share the layers of `encoder`, `trunk` and `memory`, as far as there are such: observations go through convolutions or, if they hold
    choices, an embedding, then through linear layers, then into a recurrent cell, whose state is the memory of the episode.
    """

    observations: Observations
    actions: Actions
    policy_network: Network
    value_network: Network | None
    log_std: tp.Tensor | None = None  # for continuous actions: one number per action dimension
    trunk: Network | None = None
    normalizer: Normalizer | None = None  # of observations
    encoder: Convolutions | Choices | None = None
    memory: Memory | None = None

    @classmethod
    def build(
        cls,
        observations: Observations,
        actions: Actions,
        hidden: Sequence[int] = (64, 64),
        domain: Sequence[tp.Expr] = (),
        critic: bool = True,
        fed: bool = False,
        shared: bool = False,
        activation: str = "tanh",
        network: str = "mlp",
        convolutions: Sequence[Convolution] = (),
        embedding: int | None = None,
        context: Context | None = None,
    ) -> Self:
        """A model with parameters over `domain`. With `fed`, they are inputs of the program with the same names.

        `network` is "mlp", "cnn" (`convolutions` first), "gru" or "lstm" (a cell of the last width of `hidden` instead of the last layer), or
        "attention" (over `context`, after the layers).
        With `shared`, and in all networks but "mlp", the hidden layers are a trunk of policy and value. Choices in observations become rows of
        a table, `embedding` wide (None: 64, or less for more than eight choices), or one-hot if that is 0.
        """
        n_out = _outputs(actions)
        layers = Layers.build(
            observations, n_out, hidden, domain, critic, fed, shared, activation, network, convolutions, embedding, context
        )
        policy, value, trunk, encoder, memory = layers
        if not isinstance(actions, Continuous):
            return cls(observations, actions, policy, value, trunk=trunk, encoder=encoder, memory=memory)
        if fed:
            log_std: tp.Tensor = tp.input("log_std", shape=(n_out,))
            return cls(observations, actions, policy, value, log_std, trunk, encoder=encoder, memory=memory)
        learned = tp.recurrence((n_out,), domain=tuple(domain), name="log_std")
        tp.carry(learned, tp.zeros((n_out,)))
        return cls(observations, actions, policy, value, learned, trunk, encoder=encoder, memory=memory)

    def inputs(self) -> dict[str, tp.Tensor]:
        """All that a policy is made of, by name: the parameters, and the statistics of observations."""
        return self.parameters() | ({} if self.normalizer is None else self.normalizer.values())

    def __getitem__(self, at: tp.Expr | int | Index) -> Self:
        index = at if isinstance(at, tuple) else (at,)
        return replace(
            self,
            policy_network=replace(self.policy_network, index=index),
            value_network=None if self.value_network is None else replace(self.value_network, index=index),
            log_std=None if self.log_std is None else self.log_std[index],
            trunk=None if self.trunk is None else replace(self.trunk, index=index),
            encoder=None if self.encoder is None else replace(self.encoder, index=index),
            memory=None if self.memory is None else self.memory[index],
        )

    def using(self, parameters: Mapping[str, tp.Tensor]) -> Self:
        """The model with other tensors as its parameters, by name: a target network. Its value and its memory stay."""
        return replace(
            self,
            policy_network=self.policy_network.using(parameters),
            encoder=None if self.encoder is None else self.encoder.using(parameters),
            trunk=None if self.trunk is None else self.trunk.using(parameters),
        )

    def policy(self, observation: tp.Tensor) -> Distribution:
        """The distribution of actions for `observation` (..., *observations.shape), without a memory."""
        return self.policy_of(self.features(observation))

    def policy_of(self, features: tp.Tensor) -> Distribution:
        """The distribution of actions for `features`, or for what is remembered."""
        output = self.policy_network(features)
        if isinstance(self.actions, MultiDiscrete):
            return MultiCategorical(output, self.actions.counts)
        if self.log_std is None:
            return Categorical(output)
        return Gaussian(output, self.log_std)

    def value(self, observation: tp.Tensor) -> tp.Tensor:
        """The estimate of the value, in the batch's shape: without a feature dimension. The model has no memory."""
        return self.value_of(self.features(observation))

    def value_of(self, features: tp.Tensor) -> tp.Tensor:
        """The estimate of the value for `features`, or for what is remembered."""
        assert self.value_network is not None, "this model has no value function"
        return self.value_network(features).squeeze(-1)

    @property
    def states(self) -> dict[str, int]:
        """The parts of the memory by name, with their widths; none without a memory."""
        if isinstance(self.memory, Attention):
            return {f"memory.{part}": width for part, width in self.memory.widths.items()}
        return {} if self.memory is None else {f"memory.{part}": self.memory.hidden for part in self.memory.states}

    def remembered(self, features: tp.Tensor, states: Sequence[tp.Tensor]) -> tuple[tp.Tensor, ...]:
        """What is read and then remembered: the state of the memory (..., width) after `features`, its output first."""
        assert self.memory is not None, "this model has no memory"
        if isinstance(self.memory, Attention):
            return self.memory.remembered(features, states)
        after = self.memory(features, *states)
        return after if isinstance(after, tuple) else (after,)

    def parameters(self) -> dict[str, tp.Tensor]:
        """All parameters by name, as tensors over the model's domain."""
        parameters: dict[str, tp.Tensor] = {}
        for part in (self.encoder, self.trunk, self.memory):
            parameters |= {} if part is None else part.parameters()
        parameters |= self.policy_network.parameters()
        if self.value_network is not None:
            parameters |= self.value_network.parameters()
        if self.log_std is not None:
            parameters["log_std"] = self.log_std
        return parameters

    def features(self, observation: tp.Tensor) -> tp.Tensor:
        """The numbers (..., n) of `observation` (..., *observations.shape) that policy, value and memory take."""
        return self.read(observation, self.encoder, self.trunk)

    def read(self, observation: tp.Tensor, encoder: Convolutions | Choices | None, trunk: Network | None) -> tp.Tensor:
        """The same with other layers: a critic's."""
        choices = observation
        if self.normalizer is not None:
            observation = self.normalizer(observation.astype("float32"))
        elif self.observations.dtype == "uint8":
            observation = _from_0_to_1(observation.astype("float32"), self.observations)
        if encoder is not None:
            numbers = observation if observation.dtype == "float32" else observation.astype("float32")
            features = encoder(choices, numbers) if isinstance(encoder, Choices) else encoder(numbers)
            return features if trunk is None else trunk(features)
        rank = len(self.observations.shape)
        if rank != 1:
            batch = observation.shape[: observation.rank - rank]
            observation = observation.reshape(*batch, math.prod(self.observations.shape))
        features = observation if observation.dtype == "float32" else observation.astype("float32")
        return features if trunk is None else trunk(features)


@dataclass(frozen=True)
class ActionValues(ActorCritic):
    """The values Q(observation, action) of all actions, for agents that take the best one. The policy is greedy, but for `epsilon`."""

    epsilon: tp.Tensor | float = 0.0

    @classmethod
    def build(
        cls,
        observations: Observations,
        actions: Actions,
        hidden: Sequence[int] = (64, 64),
        domain: Sequence[tp.Expr] = (),
        critic: bool = True,
        fed: bool = False,
        shared: bool = False,
        activation: str = "tanh",
        network: str = "mlp",
        convolutions: Sequence[Convolution] = (),
        embedding: int | None = None,
        context: Context | None = None,
    ) -> Self:
        """A model with parameters over `domain`, as `ActorCritic.build`. Raises `EnvError` unless an action is one choice (Discrete)."""
        if not isinstance(actions, Discrete):
            raise EnvError(
                "an agent that learns the value of each action needs Discrete actions", hint="train another agent: algorithm=ppo"
            )
        return super().build(
            observations, actions, hidden, domain, False, fed, False, activation, network, convolutions, embedding
        )

    def values(self, observation: tp.Tensor) -> tp.Tensor:
        """The values of all actions, (..., count), for `observation` (..., *observations.shape)."""
        return self.policy_network(self.features(observation))

    def policy(self, observation: tp.Tensor) -> EpsilonGreedy:
        return EpsilonGreedy(self.values(observation), self.epsilon)


def _from_0_to_1(bytes_: tp.Tensor, observations: Observations) -> tp.Tensor:
    """Bytes (..., *shape), float32, scaled by the range that their space declares."""
    low, scale = observations.byte_range
    shifted = bytes_ - tp.constant(low) if np.any(low != 0.0) else bytes_
    return shifted * tp.constant(scale) if np.any(scale != 1.0) else shifted


def _outputs(actions: Actions) -> int:
    """How many numbers a policy network gives."""
    if isinstance(actions, Discrete):
        return actions.count
    return sum(actions.counts) if isinstance(actions, MultiDiscrete) else math.prod(actions.shape)


def build_model(
    recipe: Recipe,
    observations: Observations,
    actions: Actions,
    domain: Sequence[tp.Expr] = (),
    critic: bool = True,
    fed: bool = False,
) -> ActorCritic:
    """The recipe's model: `ActorCritic`, or the subclass that its key `policy` names. Raises `EnvError` for one that does not exist."""
    from tempo_rl.continuous import DeterministicPolicy, SquashedPolicy

    kinds: dict[str, type[ActorCritic]] = {"dqn": ActionValues, "sac": SquashedPolicy, "td3": DeterministicPolicy}
    kind = kinds.get(recipe.algorithm, ActorCritic)
    if recipe.policy is not None:
        kind = load_class(recipe.policy, kind)
    contexts = (
        [Context(recipe.attention_heads, recipe.context, recipe.attention_window is None)]
        if recipe.network == "attention"
        else []
    )
    model = kind.build(
        replace(observations, channels=recipe.channels),
        actions,
        recipe.hidden,
        domain,
        critic,
        fed,
        recipe.shared,
        recipe.activation,
        recipe.network,
        recipe.convolutions,
        recipe.embedding,
        *contexts,
    )
    if isinstance(model, ActionValues) and isinstance(recipe, DQNRecipe):
        model = replace(model, epsilon=recipe.end_e)
    if not recipe.norm_obs:
        return model
    return replace(model, normalizer=Normalizer.build("observation", observations.shape, domain[:1], fed))
