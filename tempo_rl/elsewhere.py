"""What other libraries call things, and what they are called here: for hints."""

from __future__ import annotations

import difflib
from collections.abc import Container
from typing import TYPE_CHECKING

from tempo_rl.errors import RecipeError

# A key of Stable-Baselines3, CleanRL, RLlib, Tianshou or sample code -> the keys here; the first one that the algorithm has is meant.
KEYS: dict[str, tuple[str, ...]] = {
    "lr": ("learning_rate", "q_lr"),
    "alpha_lr": ("q_lr",),
    "actor_lr": ("policy_lr", "learning_rate"),
    "critic_lr": ("q_lr", "learning_rate"),
    "n_steps": ("num_steps",),
    "rollout_length": ("num_steps",),
    "rollout_steps": ("num_steps",),
    "train_freq": ("num_steps",),
    "steps_per_epoch": ("num_steps",),
    "n_envs": ("num_envs",),
    "num_workers": ("num_envs",),
    "n_epochs": ("update_epochs",),
    "num_epochs": ("update_epochs",),
    "num_sgd_iter": ("update_epochs",),
    "batch_size": ("batch_size", "num_minibatches"),
    "minibatch_size": ("batch_size", "num_minibatches"),
    "n_minibatches": ("num_minibatches",),
    "clip_range": ("clip_coef",),
    "clip_param": ("clip_coef",),
    "epsilon_clip": ("clip_coef",),
    "clip_range_vf": ("clip_vloss",),
    "normalize_advantage": ("norm_adv",),
    "entropy_coef": ("ent_coef",),
    "entropy_coeff": ("ent_coef",),
    "entropy_coefficient": ("ent_coef",),
    "value_coef": ("vf_coef",),
    "vf_loss_coeff": ("vf_coef",),
    "lam": ("gae_lambda",),
    "lambda": ("gae_lambda",),
    "lambda_": ("gae_lambda",),
    "discount": ("gamma",),
    "gradient_clip": ("max_grad_norm",),
    "grad_clip": ("max_grad_norm",),
    "net_arch": ("hidden",),
    "policy_kwargs": ("hidden",),
    "hidden_sizes": ("hidden",),
    "hidden_size": ("hidden",),
    "fcnet_hiddens": ("hidden",),
    "activation_fn": ("activation",),
    "total_steps": ("total_timesteps",),
    "timesteps": ("total_timesteps",),
    "n_timesteps": ("total_timesteps",),
    "max_steps": ("total_timesteps",),
    "replay_size": ("buffer_size",),
    "warmup_steps": ("learning_starts",),
    "start_steps": ("learning_starts",),
    "target_update_interval": ("target_network_frequency", "policy_frequency"),
    "exploration_initial_eps": ("start_e",),
    "exploration_final_eps": ("end_e",),
    "epsilon_start": ("start_e",),
    "epsilon_end": ("end_e",),
    "policy_delay": ("policy_frequency",),
    "target_policy_noise": ("policy_noise",),
    "target_noise_clip": ("noise_clip",),
    "action_noise": ("exploration_noise", "noise_correlation"),
    "polyak": ("tau",),
    "double_dqn": ("double_q",),
    "n_step_returns": ("n_step",),
    "frame_stack": ("frames",),
    "normalize_obs": ("norm_obs",),
    "normalize_reward": ("norm_reward",),
    "tensorboard_log": ("tensorboard",),
    "max_episode_steps": ("env",),
    "env_id": ("env",),
    "env_kwargs": ("env",),
    "eval_freq": ("eval_every",),
    "n_eval_episodes": ("eval_episodes",),
    "save_freq": ("save_every",),
    "n_seeds": ("seeds",),
}
INSIDE = {"max_episode_steps": "env.kwargs.max_episode_steps", "env_id": "env.id", "env_kwargs": "env.kwargs"}
WITHOUT = {
    "verbose": "progress is shown on a terminal; train(progress=True) shows it elsewhere",
    "device": "tempo-rl train --device",
}

POLICIES = {"MlpPolicy": "mlp", "CnnPolicy": "cnn", "MultiInputPolicy": "mlp", "MlpLstmPolicy": "lstm", "CnnLstmPolicy": "lstm"}

METHODS = {
    "learn": "train(total_timesteps=...)",
    "fit": "train()",
    "run": "train()",
    "optimize": "train()",
    "act": "predict(observation)",
    "get_action": "predict(observation)",
    "select_action": "predict(observation)",
    "compute_single_action": "predict(observation)",
    "compute_actions": "predict(observation)",
    "test": "evaluate()",
    "eval": "evaluate()",
    "evaluate_policy": "evaluate()",
    "restore": "load(path)",
    "save_model": "save(path)",
    "save_checkpoint": "save(path)",
    "load_model": "load(path)",
    "reset": "forget()",
    "get_parameters": "parameters",
    "params": "parameters",
    "weights": "parameters",
}


def key_here(name: str, keys: Container[str]) -> str | None:
    """A hint for a key that has another name here, or none."""
    meant = next((key for key in KEYS.get(name, ()) if key in keys), None)
    if meant is not None:
        return f"did you mean {INSIDE.get(name, meant)}?"
    return f"leave it out: {WITHOUT[name]}" if name in WITHOUT else None


class KnowsOtherNames:
    """A class that is made of an environment, and whose errors know what other libraries call its arguments and methods."""

    if not TYPE_CHECKING:  # for which these are mistakes anyway

        def __new__(cls, *arguments, **keys):
            if arguments and isinstance(arguments[0], str) and arguments[0] in POLICIES:
                rest = [*map(_shown, arguments[1:2]), f'network="{POLICIES[arguments[0]]}"']
                raise RecipeError(
                    f"{cls.__name__} takes the environment, and {arguments[0]!r} is not one",
                    hint=f"did you mean {cls.__name__}({', '.join(rest)})? The environment comes first, and mlp is the usual network",
                )
            if len(arguments) > 1:
                raise RecipeError(
                    f"{cls.__name__} takes the environment alone without a name, not {_shown(arguments[1])} too",
                    hint=f"name the keys: {cls.__name__}({_shown(arguments[0])}, num_envs=8)",
                )
            return super().__new__(cls)

        def __getattr__(self, name):
            kind = type(self).__name__
            public = [each for each in dir(type(self)) if not each.startswith("_")]
            near = [METHODS[name]] if name in METHODS else difflib.get_close_matches(name, public, 1)
            hint = f"\n  hint: did you mean agent.{near[0]}?" if near and not name.startswith("_") else ""
            raise AttributeError(f"{kind!r} object has no attribute {name!r}{hint}")


def _shown(argument: object) -> str:
    """An argument as a user writes it."""
    return str(
        getattr(argument, "__name__", None) or (repr(argument) if isinstance(argument, str) else type(argument).__name__ + "()")
    )
