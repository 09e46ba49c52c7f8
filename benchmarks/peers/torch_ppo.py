"""PPO in PyTorch, in the style of CleanRL: a Python loop over the steps of a vector environment, one optimizer.

It has the environments, networks, initial values, hyperparameters and treatment of truncated episodes of `tempo_rl`'s PPO. The
values of a rollout are computed in one batch after it, which is faster than one step at a time.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import log_softmax, one_hot


class Training:
    """`run(iterations)` trains from fresh parameters and returns the metrics of the last iteration."""

    def __init__(self, recipe: Any, environment: Any, iterations: int):
        self.recipe, self.environment, self.iterations = recipe, environment, iterations
        self.n_obs, self.n_actions = math.prod(environment.observations.shape), environment.actions.count

    def choose_threads(self) -> int:
        """Set the number of PyTorch's threads to the faster choice on this machine: all cores, or one, as networks are small."""
        seconds = {}
        for threads in sorted({1, torch.get_num_threads()}):
            torch.set_num_threads(threads)
            self.run()
            start = time.perf_counter()
            self.run()
            seconds[threads] = time.perf_counter() - start
        fastest = min(seconds, key=seconds.__getitem__)
        torch.set_num_threads(fastest)
        return fastest

    def run(self) -> dict[str, float]:
        recipe = self.recipe
        torch.manual_seed(recipe.seed)
        policy = network((self.n_obs, *recipe.hidden, self.n_actions), 0.01)
        value = network((self.n_obs, *recipe.hidden, 1), 1.0)
        parameters = [*policy.parameters(), *value.parameters()]
        optimizer = torch.optim.Adam(parameters, lr=recipe.learning_rate, eps=1e-5)
        obs = self.environment.reset()
        metrics: dict[str, float] = {}
        for iteration in range(self.iterations):
            if recipe.anneal_lr:
                optimizer.param_groups[0]["lr"] = recipe.learning_rate * (1 - iteration / self.iterations)
            obs, rollout, metrics = self._act(policy, obs)
            metrics |= self._learn(policy, value, parameters, optimizer, rollout)
        return metrics

    @torch.no_grad()
    def _act(self, policy: nn.Module, obs: np.ndarray) -> tuple[np.ndarray, dict[str, torch.Tensor], dict[str, float]]:
        steps: list[tuple[Any, ...]] = []
        for _ in range(self.recipe.num_steps):
            seen = torch.from_numpy(obs.astype(np.float32))
            logits = policy(seen)
            distribution = torch.distributions.Categorical(logits=logits, validate_args=False)
            action = distribution.sample()
            step = self.environment.step(action.numpy())
            steps.append((seen, action, distribution.log_prob(action), *map(torch.from_numpy, map(np.array, step[1:6]))))
            obs = step.observation
        names = ("obs", "action", "log_prob", "reward", "terminated", "truncated", "final_obs", "episode_return")
        rollout = {name: torch.stack(part) for name, part in zip(names, zip(*steps, strict=True), strict=True)}
        done = rollout["terminated"] | rollout["truncated"]
        ended = rollout["episode_return"][done]
        return obs, rollout | {"done": done}, {"episodic_return": float(ended.mean()) if len(ended) else math.nan}

    @torch.no_grad()
    def _advantages(self, value: nn.Module, rollout: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        recipe = self.recipe
        now, following = value(rollout["obs"])[..., 0], value(rollout["final_obs"].float())[..., 0]
        delta = rollout["reward"] + recipe.gamma * following.masked_fill(rollout["terminated"], 0.0) - now
        decay = recipe.gamma * recipe.gae_lambda * (~rollout["done"]).float()
        advantage, last = torch.empty_like(delta), torch.zeros(recipe.num_envs)
        for t in reversed(range(recipe.num_steps)):
            last = delta[t] + decay[t] * last
            advantage[t] = last
        return advantage, now

    def _learn(
        self, policy: nn.Module, value: nn.Module, parameters: list[Any], optimizer: Any, rollout: dict[str, torch.Tensor]
    ) -> dict[str, float]:
        recipe, losses = self.recipe, []
        advantages, values = self._advantages(value, rollout)
        batch = recipe.num_envs * recipe.num_steps
        data = (rollout["obs"], rollout["action"], rollout["log_prob"], advantages, advantages + values, values)
        flat = [x.reshape(batch, *x.shape[2:]) for x in data]
        for _ in range(recipe.update_epochs):
            for rows in torch.randperm(batch).split(recipe.minibatch_size):
                obs, action, old_log_prob, advantage, target, old_value = (x[rows] for x in flat)
                if recipe.norm_adv:
                    advantage = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)
                every = log_softmax(policy(obs), -1)
                log_ratio = (every * one_hot(action, self.n_actions)).sum(-1) - old_log_prob
                ratio = log_ratio.exp()
                clipped = ratio.clamp(1 - recipe.clip_coef, 1 + recipe.clip_coef)
                policy_loss = torch.maximum(-advantage * ratio, -advantage * clipped).mean()
                predicted = value(obs)[:, 0]
                error = (predicted - target) ** 2
                if recipe.clip_vloss:
                    near = old_value + (predicted - old_value).clamp(-recipe.clip_coef, recipe.clip_coef)
                    error = torch.maximum(error, (near - target) ** 2)
                entropy = -(every.exp() * every).sum(-1).mean()
                loss = policy_loss - recipe.ent_coef * entropy + recipe.vf_coef * 0.5 * error.mean()
                optimizer.zero_grad()
                loss.backward()
                if recipe.max_grad_norm is not None:
                    nn.utils.clip_grad_norm_(parameters, recipe.max_grad_norm)
                optimizer.step()
                losses.append(loss.detach())
        return {"loss": float(torch.stack(losses).mean())}


def network(sizes: tuple[int, ...], last_gain: float) -> nn.Sequential:
    """Linear layers with tanh between them; orthogonal weights of gain sqrt(2), `last_gain` for the last; zero biases."""
    layers: list[nn.Module] = []
    for k in range(len(sizes) - 1):
        last = k == len(sizes) - 2
        linear = nn.Linear(sizes[k], sizes[k + 1])
        nn.init.orthogonal_(linear.weight, last_gain if last else math.sqrt(2.0))
        nn.init.zeros_(linear.bias)
        layers += [linear] if last else [linear, nn.Tanh()]
    return nn.Sequential(*layers)
