"""Recipes: validated YAML with `key=value` overrides. Keys have CleanRL's names where CleanRL has them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args, get_type_hints

from pydantic import Field, PrivateAttr, model_validator

from tempo_core.runs.recipe import (
    Count,
    NonNegative,
    Plain,
    Positive,
    Strict,
    Unit,
    WandbRecipe,
    dump_recipe,
    merged,
    read_recipe,
    validated,
)
from tempo_core.runs.recipe import find_recipe as find_of_kind
from tempo_core.runs.recipe import shipped_recipes as shipped_of_kind
from tempo_rl.env.registry import is_functional
from tempo_rl.env.source import Source
from tempo_rl.errors import RecipeError
from tempo_rl.references import foreign_references, load_reference

__all__ = ["ALGORITHMS", "Recipe", "WandbRecipe", "dump_recipe", "find_recipe", "load_recipe", "make_recipe", "shipped_recipes"]


class EnvRecipe(Strict):
    """The environment. `kwargs` are its arguments; `wrappers` are `module:Class` references, applied in order.

    `source` is an environment that Python code gave in place of an id (`tempo_rl.env.source`); no file holds it.
    """

    id: str = "CartPole-v1"
    kwargs: dict[str, object] = Field(default_factory=dict)
    vectorization: Literal["sync", "async"] = "sync"
    wrappers: list[str] = Field(default_factory=list)
    _source: Source | None = PrivateAttr(None)

    @property
    def source(self) -> Source | None:
        return self._source

    @model_validator(mode="after")
    def _check_limit(self) -> EnvRecipe:
        limit = self.kwargs.get("max_episode_steps")
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
            raise ValueError(f"env.kwargs.max_episode_steps is {limit!r}: an episode has a whole number of steps, at least 1")
        return self


class Recipe(Strict):
    """The keys of every algorithm. An iteration is `num_envs * num_steps` environment steps."""

    algorithm: str
    env: EnvRecipe = Field(default_factory=EnvRecipe)
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = 0
    seeds: Count = 1  # how many members train at once, with the seeds seed, seed + 1, ...; of a sweep, for each of its points
    sweep: dict[str, list[float]] = Field(default_factory=dict)  # values of other keys: members for all combinations
    total_timesteps: Count = 400_000
    num_envs: Count = 16
    num_steps: Count = 128
    hidden: list[Count] = Field(default_factory=lambda: [64, 64])
    activation: Literal["tanh", "relu"] = "tanh"  # between layers
    network: Literal["mlp", "cnn", "gru", "lstm"] = "mlp"  # linear layers; convolutions before them; a memory after them
    convolutions: list[tuple[Count, Count, Count]] = Field(
        default_factory=lambda: [(16, 3, 2), (32, 3, 2)]
    )  # features, kernel, stride
    frames: Count = 1  # the last observations of an episode that are seen at once
    shared: bool = False  # whether the policy and the value share the hidden layers
    norm_obs: bool = False  # observations by their running mean and variance
    norm_reward: bool = False  # rewards by the running variance of discounted returns
    squash_actions: bool = False  # continuous actions by tanh to their bounds, instead of clipping
    policy: str | None = None  # module:Class, derived from tempo_rl.models:ActorCritic
    learning_rate: Positive = 2.5e-3
    anneal_lr: bool = True
    gamma: Unit = 0.99
    ent_coef: NonNegative = 0.0
    max_grad_norm: Positive | None = 0.5
    save_every: Annotated[int, Field(ge=0)] = 0  # iterations between numbered checkpoints; 0: ten in a run
    keep: Count = 3  # numbered checkpoints that stay, besides the latest and the best
    eval_episodes: Annotated[int, Field(ge=0)] = 20
    eval_max_steps: Count = 100_000  # of an episode of an evaluation; a longer one ends the evaluation
    env_timeout: Positive = 120.0  # seconds that a call of an environment on the host may take
    check_finite: bool = False  # whether numbers of environments in JAX are checked in each step, as those of the host always are
    executor: Literal["staged", "interpreted"] = "staged"
    disable: list[str] = Field(default_factory=list)  # passes that are switched off
    memory_limit: int | str | None = None  # bytes, or as "2GiB": the fastest form of the program that fits
    swap: str = "auto"  # where values go for which memory_limit leaves no room: "host", a directory, or "off"
    eval_every: Annotated[int, Field(ge=0)] = (
        0  # iterations between evaluations of eval_episodes episodes while training; 0: none
    )
    jsonl: bool = False  # whether metrics.jsonl is written beside metrics.csv
    tensorboard: bool = False
    track: bool = False
    wandb: WandbRecipe = Field(default_factory=WandbRecipe)

    @property
    def iterations(self) -> int:
        """The number of iterations, each of acting and then learning. Steps that do not fill an iteration are left out."""
        return self.total_timesteps // (self.num_envs * self.num_steps)

    @property
    def members(self) -> list[dict[str, float]]:
        """The keys in which the members of the run differ from the recipe, for each member."""
        keys = sorted(self.sweep)  # a checkpoint's recipe has them in this order
        points = [dict(zip(keys, values, strict=True)) for values in itertools.product(*(self.sweep[key] for key in keys))]
        return [{"seed": self.seed + k, **point} for k, point in enumerate(p for p in points for _ in range(self.seeds))]

    @property
    def count(self) -> int:
        """The number of members."""
        return self.seeds * math.prod(map(len, self.sweep.values()))

    def member(self, number: int) -> Self:
        """The recipe of one member, which trains it alone. Raises `RecipeError` for values that it cannot have."""
        if self.count == 1 and not self.sweep:
            return self
        values = {**self.model_dump(mode="json"), **self.members[number], "seeds": 1, "sweep": {}}
        alone = validated(type(self), values, f"member {number}")
        return alone if self.env.source is None else alone.on(self.env.source)

    @model_validator(mode="after")
    def _check_members(self) -> Recipe:
        numbers = [key for key, field in type(self).model_fields.items() if _is_swept(key, field.annotation)]
        for key, values in self.sweep.items():
            if key not in numbers:
                raise ValueError(
                    f"sweep: {key} is not a key that can be swept; those of {self.algorithm} are {', '.join(numbers)}"
                )
            if not values:
                raise ValueError(f"sweep: {key} has no values: give a list, such as [0.001, 0.0003]")
        if self.sweep or self.seeds > 1:
            for number in range(self.count):
                self.member(number)
        return self

    def on(self, source: Source) -> Self:
        """The same recipe on an environment that Python code gave."""
        env = self.env.model_copy()
        env._source = source
        return self.model_copy(update={"env": env})

    @model_validator(mode="after")
    def _check_sizes(self) -> Recipe:
        if self.iterations < 1:
            raise ValueError(
                f"total_timesteps={self.total_timesteps} is less than one iteration of num_envs={self.num_envs} "
                f"x num_steps={self.num_steps} = {self.num_envs * self.num_steps} steps"
            )
        return self

    @model_validator(mode="after")
    def _check_evaluations(self) -> Recipe:
        if self.eval_every and not self.eval_episodes:
            raise ValueError(f"eval_every={self.eval_every} needs eval_episodes, such as eval_episodes=20")
        return self

    @model_validator(mode="after")
    def _check_network(self) -> Recipe:
        if self.network in ("gru", "lstm") and self.algorithm in ALGORITHMS and self.algorithm != "ppo":
            raise ValueError(
                f"network={self.network} is for ppo, but {self.algorithm} has no memory: write network=mlp and frames=4, for example"
            )
        if self.network == "cnn" and not self.convolutions:
            raise ValueError("network=cnn needs convolutions, such as convolutions=[[16, 3, 2]]")
        return self

    @model_validator(mode="after")
    def _check_functional(self) -> Recipe:
        if is_functional(self.env.id):
            for key, is_set in (("env.wrappers", self.env.wrappers), ("env.vectorization", self.env.vectorization != "sync")):
                if is_set:
                    raise ValueError(f"{key} is for environments on the host, but {self.env.id} runs in JAX")
        return self


def _is_swept(key: str, annotation: object) -> bool:
    """Whether a key is a number of the program that may differ between members: no shape, and nothing of the host's work."""
    kinds = {annotation, *get_args(annotation)}
    return key != "env_timeout" and float in kinds and not kinds & {int, str}


class PPORecipe(Recipe):
    """Proximal policy optimization."""

    algorithm: Literal["ppo"] = "ppo"
    fresh_episodes: bool = False  # begin new ones in each iteration
    gae_lambda: Unit = 0.95
    num_minibatches: Count = 4
    update_epochs: Count = 4
    norm_adv: bool = True
    clip_coef: Positive = 0.2
    clip_vloss: bool = False
    target_kl: Positive | None = None  # the rest of an iteration's updates are left out where approx_kl exceeds 1.5 times this
    vf_coef: NonNegative = 0.5

    @property
    def minibatch_size(self) -> int:
        return self.num_envs * self.num_steps // self.num_minibatches

    @model_validator(mode="after")
    def _check_minibatches(self) -> PPORecipe:
        batch = self.num_envs * self.num_steps
        if batch % self.num_minibatches:
            raise ValueError(
                f"num_minibatches={self.num_minibatches} does not divide the batch of num_envs={self.num_envs} "
                f"x num_steps={self.num_steps} = {batch}"
            )
        if self.network in ("gru", "lstm") and self.num_envs % self.num_minibatches:
            raise ValueError(
                f"network={self.network} learns from whole sequences: num_minibatches={self.num_minibatches} does not divide "
                f"num_envs={self.num_envs}"
            )
        if self.norm_adv and self.minibatch_size < 2:
            raise ValueError(f"norm_adv=true needs minibatches of 2 or more; num_minibatches={self.num_minibatches} makes them 1")
        return self


class ActorCriticRecipe(Recipe):
    """N-step advantage actor-critic; n is `num_steps`."""

    algorithm: Literal["actor_critic"] = "actor_critic"
    vf_coef: NonNegative = 0.5


class ReinforceRecipe(Recipe):
    """REINFORCE on whole rollouts of `num_steps`."""

    algorithm: Literal["reinforce"] = "reinforce"
    norm_returns: bool = True
    baseline: bool = False  # an estimate of the return, learned beside the policy, is subtracted from it
    vf_coef: NonNegative = 0.5


class DQNRecipe(Recipe):
    """Deep Q-learning. An iteration acts for `num_steps` steps, and then makes `gradient_steps` updates."""

    algorithm: Literal["dqn"] = "dqn"
    num_envs: Count = 8
    num_steps: Count = 8
    activation: Literal["tanh", "relu"] = "relu"
    learning_rate: Positive = 1e-3
    anneal_lr: bool = False
    max_grad_norm: Positive | None = 10.0
    buffer_size: Count = 10_000  # environment steps, rounded up to whole iterations, from which updates draw
    batch_size: Count = 128
    gradient_steps: Count = 8
    learning_starts: Annotated[int, Field(ge=0)] = 1_000  # environment steps before the first update; of a short run a tenth
    target_network_frequency: Count = 500  # environment steps, rounded up to whole iterations, between two targets
    tau: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0  # 1: the target network becomes a copy; less: it goes a part of the way
    double_q: bool = True
    huber_delta: Positive = (
        10.0  # greater errors weigh as this one; far below the scale of returns, values are medians instead of means
    )
    start_e: Unit = 1.0  # the probability of a random action at first,
    end_e: Unit = 0.05  # at the end,
    exploration_fraction: Annotated[float, Field(gt=0.0, le=1.0)] = 0.5  # and the part of the run in which it falls

    @model_validator(mode="before")
    @classmethod
    def _start_early_in_short_runs(cls, values: Any) -> Any:
        total = values.get("total_timesteps") if isinstance(values, dict) else None
        if not isinstance(total, (int, float)) or not 0 < total < 10_000:
            return values
        return {"learning_starts": int(total) // 10, **values}

    @model_validator(mode="after")
    def _check_keys(self) -> DQNRecipe:
        for key, is_set in (("ent_coef", self.ent_coef), ("shared", self.shared)):
            if is_set:
                raise ValueError(f"{key} is for agents with a policy, but DQN has only values of actions: leave it out")
        if self.learning_starts > self.total_timesteps:
            raise ValueError(
                f"learning_starts={self.learning_starts} is more than total_timesteps={self.total_timesteps}: nothing would be learned"
            )
        return self

    @property
    def replay_iterations(self) -> int:
        """The iterations from which updates draw, the present one included."""
        return -(-self.buffer_size // (self.num_envs * self.num_steps))

    @property
    def target_iterations(self) -> int:
        """The iterations from one target network to the next."""
        return -(-self.target_network_frequency // (self.num_envs * self.num_steps))


ALGORITHMS: dict[str, type[Recipe]] = {
    "ppo": PPORecipe,
    "actor_critic": ActorCriticRecipe,
    "reinforce": ReinforceRecipe,
    "dqn": DQNRecipe,
}


KIND = "algorithm"  # the key that makes a recipe one of `tempo_rl`


def shipped_recipes() -> dict[str, Path]:
    """The recipes of agents in `recipes/` of the working directory and those that are shipped, by name."""
    return shipped_of_kind(KIND)


def find_recipe(name: str) -> Path:
    """A recipe's path: `name` itself, or the shipped recipe of that name. Raises `RecipeError`."""
    return find_of_kind(name, KIND)


def load_recipe(name: str, overrides: Iterable[str] = (), hear: Callable[[list[str]], None] | None = None) -> Recipe:
    """The recipe file `name`, with `key=value` overrides applied. Raises `RecipeError`, naming the key at fault.

    `hear` gets the references to code of the user's own, if there are such, before any of it is imported.
    """
    values, where = read_values(name, overrides)
    references = foreign_references(values)
    if references and hear is not None:
        hear(references)
    return make_recipe(values, (), where)


def read_values(name: str, overrides: Iterable[str] = ()) -> tuple[dict[str, Any], str]:
    """The plain data of the recipe file `name` with overrides, and where it is from. Nothing is imported. Raises `RecipeError`."""
    path = find_recipe(name)
    data = read_recipe(path, "write `algorithm: ppo`, then the keys that differ from their defaults")
    return merged(data, overrides), str(path)


def known_part(values: Plain, where: str) -> tuple[Recipe, dict[str, Any]]:
    """The recipe of those values whose keys are known without importing an algorithm, and the other values. Raises `RecipeError`."""
    algorithm = values.get(KIND)
    if not (isinstance(algorithm, str) and ":" in algorithm):
        return make_recipe(values, (), where), {}
    others = {key: value for key, value in values.items() if key not in Recipe.model_fields}
    return validated(Recipe, {key: value for key, value in values.items() if key not in others}, where), others


def make_recipe(data: Plain, overrides: Iterable[str] = (), where: str = "the recipe") -> Recipe:
    """A validated recipe from plain data. Raises `RecipeError`, which names `where` the data comes from."""
    values = merged(data, overrides)
    return validated(_recipe_class(values.get(KIND), where), values, where)


def _recipe_class(algorithm: object, where: str) -> type[Recipe]:
    """The class of an algorithm's recipe. That of an algorithm of your own is the annotation of its function's parameter `recipe`."""
    if isinstance(algorithm, str) and algorithm in ALGORITHMS:
        return ALGORITHMS[algorithm]
    if not isinstance(algorithm, str) or ":" not in algorithm:
        hint = f"write one of {', '.join(ALGORITHMS)}, or your own as module:function"
        raise RecipeError(f"{where}: algorithm is {algorithm!r}", hint=hint)
    function = load_reference(algorithm)
    try:
        model = get_type_hints(function).get("recipe", Recipe)
    except (NameError, TypeError) as error:
        raise RecipeError(f"{where}: {algorithm} is not an algorithm: {error}", hint=_SIGNATURE) from error
    if not (isinstance(model, type) and issubclass(model, Recipe)):
        raise RecipeError(
            f"{where}: the parameter `recipe` of {algorithm} has the type {model}, which is not a Recipe", hint=_SIGNATURE
        )
    return model


_SIGNATURE = "write def my_algorithm(recipe: Recipe, monitor: Monitor) -> Agent"
