# Written by `pytest tests/rl/agents/test_keys.py --update-golden` from the recipes in `tempo_rl/recipe.py`.
from typing import Literal, Required, TypedDict

from tempo_rl.recipe import WandbRecipe

class Schedule(TypedDict, total=False):
    """A number that changes over the run."""

    schedule: Required[Literal["linear", "cosine", "steps"]]
    start: float | None
    end: float
    values: list[float]
    at: list[int]

class Keys(TypedDict, total=False):
    """The keys of `Recipe`."""

    seed: int
    seeds: int
    sweep: dict[str, list[float]]
    total_timesteps: int
    num_envs: int
    num_steps: int
    hidden: list[int]
    activation: Literal["tanh", "relu"]
    network: Literal["mlp", "cnn", "gru", "lstm", "attention"]
    attention_window: int | None
    attention_heads: int
    convolutions: list[tuple[int, int, int]]
    channels: Literal["first", "last"] | None
    embedding: int | None
    frames: int
    shared: bool
    norm_obs: bool
    norm_reward: bool
    squash_actions: bool
    policy: str | None
    learning_rate: float | Schedule
    anneal_lr: bool
    gamma: float
    ent_coef: float | Schedule
    max_grad_norm: float | None
    save_every: int
    keep: int
    eval_episodes: int
    eval_max_steps: int
    env_timeout: float
    check_finite: bool
    executor: Literal["staged", "interpreted"]
    disable: list[str]
    memory_limit: int | str | None
    swap: str
    eval_every: int
    jsonl: bool
    tensorboard: bool
    track: bool
    wandb: WandbRecipe

class PPOKeys(Keys, total=False):
    """The keys of `PPORecipe`."""

    fresh_episodes: bool
    gae_lambda: float
    num_minibatches: int
    update_epochs: int
    norm_adv: bool
    clip_coef: float | Schedule
    clip_vloss: bool
    target_kl: float | None
    vf_coef: float

class A2CKeys(Keys, total=False):
    """The keys of `ActorCriticRecipe`."""

    n_step: int | None
    gae_lambda: float
    vf_coef: float

class ReinforceKeys(Keys, total=False):
    """The keys of `ReinforceRecipe`."""

    norm_returns: bool
    baseline: bool
    vf_coef: float

class ReplayKeys(Keys, total=False):
    """The keys of `ReplayRecipe`."""

    buffer_size: int
    batch_size: int
    gradient_steps: int
    learning_starts: int

class DQNKeys(ReplayKeys, total=False):
    """The keys of `DQNRecipe`."""

    target_network_frequency: int
    tau: float
    double_q: bool
    huber_delta: float
    n_step: int
    prioritized: bool
    priority_exponent: float
    importance_exponent: float
    start_e: float
    end_e: float
    exploration_fraction: float

class ContinuousKeys(ReplayKeys, total=False):
    """The keys of `ContinuousRecipe`."""

    q_lr: float | Schedule
    policy_lr: float | Schedule
    tau: float
    policy_frequency: int
    noise_correlation: float

class SACKeys(ContinuousKeys, total=False):
    """The keys of `SACRecipe`."""

    alpha: float
    autotune: bool

class TD3Keys(ContinuousKeys, total=False):
    """The keys of `TD3Recipe`."""

    policy_noise: float
    noise_clip: float
    exploration_noise: float
