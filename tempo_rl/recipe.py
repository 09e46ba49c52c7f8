"""Recipes: validated YAML with `key=value` overrides. Keys have CleanRL's names where CleanRL has them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias, get_args, get_type_hints

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
from tempo_rl.elsewhere import POLICIES, key_here
from tempo_rl.env.registry import is_functional
from tempo_rl.env.source import AnyEnvironment, Source, source_of
from tempo_rl.errors import RecipeError
from tempo_rl.references import foreign_references, load_reference, name_of, reference_to
from tempo_rl.schedule import Rate, ScheduleRecipe, Weight

__all__ = [
    "ALGORITHMS",
    "Recipe",
    "ScheduleRecipe",
    "WandbRecipe",
    "dump_recipe",
    "find_recipe",
    "load_recipe",
    "make_recipe",
    "shipped_recipes",
]


PLAIN = (str, int, float, list, dict, type(None))  # what a file may hold in the place of an id
Vectorization: TypeAlias = Literal["auto", "sync", "async", "vector_entry_point"]


class EnvRecipe(Strict):
    """The environment of a recipe: `PPO(EnvRecipe("FrozenLake-v1", kwargs={"is_slippery": False}))`.

    `id` is an id of Gymnasium's or of a library's ("CartPole-v1", "my_module:Corridor-v0", "brax/ant"), a `module:name`, or, in Python, an
    environment itself: an object, a class, a function that makes one, or an environment in JAX. A class or function at the top level of a
    module has the id `module:name`. `kwargs` are arguments of the class or
    function; `max_episode_steps` among them is the time limit. `vectorization` says how environments on the host are stepped together:
    "sync" in this process, "async" in a process each, "vector_entry_point" by the vector environment that is registered for the id; "auto"
    is "sync" where the id has an environment for one. `wrappers` are `module:Class` references, or classes at the top level of a module,
    applied in order to each environment, or to a vector environment as a whole.

    Raises `EnvError` for what is no environment, and pydantic's `ValidationError` for a value that is not valid.
    """

    id: str = "CartPole-v1"
    kwargs: dict[str, object] = Field(default_factory=dict)
    vectorization: Vectorization = "auto"
    wrappers: list[str] = Field(default_factory=list)
    _source: Source | None = PrivateAttr(None)

    def __init__(
        self,
        id: AnyEnvironment = "CartPole-v1",
        kwargs: Mapping[str, object] | None = None,
        vectorization: Vectorization = "auto",
        wrappers: Sequence[str | Callable[..., object]] = (),
        **unknown: object,
    ) -> None:
        source = None if isinstance(id, PLAIN) else source_of(id, kwargs)
        keys: dict[str, Any] = {"vectorization": vectorization, **unknown}
        keys["id"] = id if source is None else name_of(id) or source.name
        keys["kwargs"] = {} if kwargs is None else dict(kwargs) if isinstance(kwargs, Mapping) else kwargs
        if source is not None and source.arguments is not None:
            keys["kwargs"] = dict(source.arguments)
        keys["wrappers"] = [reference_to(wrapper) for wrapper in wrappers] if isinstance(wrappers, (list, tuple)) else wrappers
        super().__init__(**keys)
        self._source = source

    @property
    def source(self) -> Source | None:
        """Where an environment comes from that Python code gave in place of an id; no file holds it."""
        return self._source

    @property
    def name(self) -> str:
        """What messages call it: the id, or the name of what Python code gave."""
        return self.id if self._source is None else self._source.name

    @model_validator(mode="after")
    def _check_limit(self) -> EnvRecipe:
        limit = self.kwargs.get("max_episode_steps")
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
            raise ValueError(f"env.kwargs.max_episode_steps is {limit!r}: an episode has a whole number of steps, at least 1")
        return self


MEMORIES = ("gru", "lstm", "attention")  # networks that remember


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
    network: Literal["mlp", "cnn", "gru", "lstm", "attention"] = (
        "mlp"  # linear layers; convolutions before them; a memory after them
    )
    attention_window: Annotated[int, Field(ge=2)] | None = (
        None  # steps that a step attends to, with itself; None: all of its rollout
    )
    attention_heads: Count = 4
    convolutions: list[tuple[Count, Count, Count]] = Field(
        default_factory=lambda: [(16, 3, 2), (32, 3, 2)]
    )  # features, kernel, stride
    channels: Literal["first", "last"] | None = (
        None  # the place of pictures' channels; None: the smallest axis, if it is first or last
    )
    embedding: Annotated[int, Field(ge=0)] | None = (
        None  # numbers for each choice in observations; 0: one-hot; None: 64, of many fewer
    )
    frames: Count = 1  # the last observations of an episode that are seen at once
    shared: bool = False  # whether the policy and the value share the hidden layers
    norm_obs: bool = False  # observations by their running mean and variance
    norm_reward: bool = False  # rewards by the running variance of discounted returns
    squash_actions: bool = False  # continuous actions by tanh to their bounds, instead of clipping
    policy: str | None = None  # module:Class, derived from tempo_rl.models:ActorCritic
    learning_rate: Rate = 2.5e-3
    anneal_lr: bool = True
    gamma: Unit = 0.99
    ent_coef: Weight = 0.0
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
    def context(self) -> int:
        """The steps that a step attends to, with itself, if the network is attention."""
        return self.attention_window or self.num_steps

    @property
    def scales_actions(self) -> bool:
        """Whether the policy's actions are numbers between -1 and 1, which are mapped to the bounds of the action space."""
        return False

    @property
    def iterations(self) -> int:
        """The number of iterations, each of acting and then learning. Steps that do not fill an iteration are left out."""
        return self.total_timesteps // (self.num_envs * self.num_steps)

    def defaults_of_length(self) -> dict[str, object]:
        """The defaults that depend on `total_timesteps`, by key."""
        return {}

    def going_on_from(self, before: Recipe) -> Self:
        """The recipe with which a run of `before` goes on: where this one has the default of another length, it has the value of `before`."""
        defaults = {} if self.total_timesteps == before.total_timesteps else self.defaults_of_length()
        held = {key: getattr(before, key) for key, default in defaults.items() if getattr(self, key) == default}
        return self.model_copy(update=held)

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
    def _check_policy(self) -> Recipe:
        if self.policy is not None and ":" not in self.policy:
            network = POLICIES.get(self.policy, "mlp")
            raise ValueError(
                f"policy is {self.policy!r}, but names a class of your own as my_module:MyPolicy. Did you mean network={network}, without policy?"
            )
        return self

    @model_validator(mode="after")
    def _check_evaluations(self) -> Recipe:
        if self.eval_every and not self.eval_episodes:
            raise ValueError(f"eval_every={self.eval_every} needs eval_episodes, such as eval_episodes=20")
        return self

    @model_validator(mode="after")
    def _check_network(self) -> Recipe:
        if self.network in MEMORIES and self.algorithm in ALGORITHMS and self.algorithm != "ppo":
            raise ValueError(
                f"network={self.network} is for ppo, but {self.algorithm} has no memory: write network=mlp and frames=4, for example"
            )
        if self.network == "attention":
            width = (self.hidden or [0])[-1]
            if width % (2 * self.attention_heads) or not width:
                raise ValueError(
                    f"network=attention divides the last width of hidden={self.hidden} into attention_heads={self.attention_heads} heads of an "
                    "even width: write hidden=[64] and attention_heads=4, for example"
                )
            if (self.attention_window or 0) > self.num_steps:
                raise ValueError(
                    f"attention_window={self.attention_window} is more than num_steps={self.num_steps}: a step attends to its rollout alone"
                )
        if self.network == "cnn" and not self.convolutions:
            raise ValueError("network=cnn needs convolutions, such as convolutions=[[16, 3, 2]]")
        return self

    @model_validator(mode="after")
    def _check_functional(self) -> Recipe:
        if is_functional(self.env.id):
            for key, is_set in (
                ("env.wrappers", self.env.wrappers),
                ("env.vectorization", self.env.vectorization not in ("auto", "sync")),
            ):
                if is_set:
                    raise ValueError(f"{key} is for environments on the host, but {self.env.id} runs in JAX")
        return self


def _is_swept(key: str, annotation: object) -> bool:
    """Whether a key is a number of the program that may differ between members: no shape, and nothing of the host's work."""
    kinds = {*_kinds(annotation)}
    return key != "env_timeout" and float in kinds and not kinds & {int, str}


def _kinds(annotation: object) -> Iterator[object]:
    """The types in a union, also in one with metadata, such as a number or a schedule."""
    yield annotation
    for inner in get_args(annotation):
        yield from _kinds(inner)


class PPORecipe(Recipe):
    """Proximal policy optimization."""

    algorithm: Literal["ppo"] = "ppo"
    fresh_episodes: bool = False  # begin new ones in each iteration
    gae_lambda: Unit = 0.95
    num_minibatches: Count = 4
    update_epochs: Count = 4
    norm_adv: bool = True
    clip_coef: Rate = 0.2
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
        if self.network in MEMORIES and self.num_envs % self.num_minibatches:
            raise ValueError(
                f"network={self.network} learns from whole sequences: num_minibatches={self.num_minibatches} does not divide "
                f"num_envs={self.num_envs}"
            )
        if self.norm_adv and self.minibatch_size < 2:
            raise ValueError(f"norm_adv=true needs minibatches of 2 or more; num_minibatches={self.num_minibatches} makes them 1")
        return self


class ActorCriticRecipe(Recipe):
    """N-step advantage actor-critic."""

    algorithm: Literal["actor_critic"] = "actor_critic"
    n_step: Count | None = None  # the rewards in a return; None: all to the end of the rollout
    gae_lambda: Unit = 1.0  # less than 1: returns are a mean over all n (lambda-returns)
    vf_coef: NonNegative = 0.5

    @model_validator(mode="after")
    def _check_returns(self) -> ActorCriticRecipe:
        if self.n_step is not None and self.gae_lambda < 1.0:
            raise ValueError(
                f"n_step={self.n_step} and gae_lambda={self.gae_lambda} are two kinds of returns: leave one of them out"
            )
        if (self.n_step or 0) > self.num_steps:
            raise ValueError(
                f"n_step={self.n_step} is more than num_steps={self.num_steps}: a return ends with its rollout. "
                f"Write num_steps={self.n_step}, or a smaller n_step"
            )
        return self


class ReinforceRecipe(Recipe):
    """REINFORCE on whole rollouts of `num_steps`."""

    algorithm: Literal["reinforce"] = "reinforce"
    norm_returns: bool = True
    baseline: bool = False  # an estimate of the return, learned beside the policy, is subtracted from it
    vf_coef: NonNegative = 0.5


class ReplayRecipe(Recipe):
    """What agents with a replay buffer share. An iteration acts for `num_steps` steps, and then makes `gradient_steps` updates."""

    num_envs: Count = 8
    num_steps: Count = 8
    activation: Literal["tanh", "relu"] = "relu"
    anneal_lr: bool = False
    buffer_size: Count = 10_000  # environment steps, rounded up to whole iterations, from which updates draw
    batch_size: Count = 128
    gradient_steps: Count = 8
    learning_starts: Annotated[int, Field(ge=0)] = 1_000  # environment steps before the first update; of a short run a tenth

    @model_validator(mode="before")
    @classmethod
    def _start_early_in_short_runs(cls, values: Any) -> Any:
        total = values.get("total_timesteps") if isinstance(values, dict) else None
        if not isinstance(total, (int, float)) or not 0 < total < 10_000:
            return values
        return {"learning_starts": _usual_start(int(total)), **values}

    def defaults_of_length(self) -> dict[str, object]:
        return {"learning_starts": _usual_start(self.total_timesteps)}

    @model_validator(mode="after")
    def _check_start(self) -> Self:
        if self.learning_starts > self.total_timesteps:
            raise ValueError(
                f"learning_starts={self.learning_starts} is more than total_timesteps={self.total_timesteps}: nothing would be learned"
            )
        return self

    @property
    def replay_iterations(self) -> int:
        """The iterations from which updates draw, the present one included."""
        return -(-self.buffer_size // (self.num_envs * self.num_steps))


def _usual_start(total_timesteps: int) -> int:
    return min(1_000, total_timesteps // 10)


class DQNRecipe(ReplayRecipe):
    """Deep Q-learning."""

    algorithm: Literal["dqn"] = "dqn"
    learning_rate: Rate = 1e-3
    max_grad_norm: Positive | None = 10.0
    target_network_frequency: Count = 500  # environment steps, rounded up to whole iterations, between two targets
    tau: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0  # 1: the target network becomes a copy; less: it goes a part of the way
    double_q: bool = True
    huber_delta: Positive = (
        10.0  # greater errors weigh as this one; far below the scale of returns, values are medians instead of means
    )
    n_step: Count = 1  # the rewards in a return, fewer at the end of an episode and of the newest steps
    prioritized: bool = False  # rows by the size of their last error, instead of all as likely
    priority_exponent: NonNegative = 0.6  # 0: all as likely
    importance_exponent: Unit = 0.4  # of the correction in the loss; it rises to 1 over the run
    start_e: Unit = 1.0  # the probability of a random action at first,
    end_e: Unit = 0.05  # at the end,
    exploration_fraction: Annotated[float, Field(gt=0.0, le=1.0)] = 0.5  # and the part of the run in which it falls

    @model_validator(mode="after")
    def _check_keys(self) -> DQNRecipe:
        for key, is_set in (("ent_coef", self.ent_coef), ("shared", self.shared)):
            if is_set:
                raise ValueError(f"{key} is for agents with a policy, but DQN has only values of actions: leave it out")
        if self.n_step > self.replay_iterations * self.num_steps:
            raise ValueError(
                f"n_step={self.n_step} is more than the steps of one environment in the replay buffer: "
                f"write buffer_size={self.n_step * self.num_envs} or more"
            )
        return self

    @property
    def target_iterations(self) -> int:
        """The iterations from one target network to the next."""
        return -(-self.target_network_frequency // (self.num_envs * self.num_steps))


class ContinuousRecipe(ReplayRecipe):
    """What SAC and TD3 share. `gradient_steps` are updates of the critics; the policy is updated once after `policy_frequency` of them."""

    num_envs: Count = 4
    num_steps: Count = 16
    gradient_steps: Count = 64
    hidden: list[Count] = Field(default_factory=lambda: [256, 256])
    buffer_size: Count = 1_000_000
    batch_size: Count = 256
    max_grad_norm: Positive | None = None
    q_lr: Rate = 1e-3  # of the critics
    policy_lr: Rate = 3e-4
    tau: Annotated[float, Field(gt=0.0, le=1.0)] = 0.005  # how far target networks move towards the present ones
    policy_frequency: Count = 1
    noise_correlation: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0  # of the noise of exploration from one step to the next

    @property
    def scales_actions(self) -> bool:
        return True

    @property
    def policy_updates(self) -> int:
        """The updates of the policy in an iteration."""
        return self.gradient_steps // self.policy_frequency

    @model_validator(mode="after")
    def _check_continuous(self) -> Self:
        if self.gradient_steps % self.policy_frequency:
            raise ValueError(
                f"policy_frequency={self.policy_frequency} does not divide gradient_steps={self.gradient_steps}: the policy is updated "
                "after so many updates of the critics"
            )
        name = self.algorithm.upper()
        for key, instead in (
            ("learning_rate", "write q_lr and policy_lr"),
            ("ent_coef", "leave it out"),
            ("shared", "leave it out"),
        ):
            if getattr(self, key) != Recipe.model_fields[key].default:
                raise ValueError(f"{key} is not a key of {name}: {instead}")
        if self.squash_actions:
            raise ValueError(f"the actions of {name} are always between their bounds: leave squash_actions out")
        return self


class SACRecipe(ContinuousRecipe):
    """Soft actor-critic."""

    algorithm: Literal["sac"] = "sac"
    alpha: NonNegative = 0.2  # the weight of the entropy,
    autotune: bool = True  # unless it is learned, from 1 on, so that the entropy becomes -1 for each number of an action


class TD3Recipe(ContinuousRecipe):
    """Twin delayed deep deterministic policy gradient."""

    algorithm: Literal["td3"] = "td3"
    q_lr: Rate = 3e-4
    policy_frequency: Count = 2
    policy_noise: NonNegative = 0.2  # the deviation of the noise on the target's actions, of which the bounds are -1 and 1,
    noise_clip: NonNegative = 0.5  # and its largest size
    exploration_noise: NonNegative = 0.1  # the deviation of the noise on actions


ALGORITHMS: dict[str, type[Recipe]] = {
    "ppo": PPORecipe,
    "actor_critic": ActorCriticRecipe,
    "reinforce": ReinforceRecipe,
    "dqn": DQNRecipe,
    "sac": SACRecipe,
    "td3": TD3Recipe,
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
    model, env = _recipe_class(values.get(KIND), where), values.get("env")
    if isinstance(env, str):
        raise RecipeError(f"{where}: env is {env!r}, but it has keys of its own", hint=f"did you mean env.id={env}?")
    for key in values.keys() - model.model_fields.keys():
        if (hint := key_here(key, model.model_fields)) is not None:
            raise RecipeError(f"{where}: unknown key {key}", hint=hint)
    return validated(model, values, where)


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
