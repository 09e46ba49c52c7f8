"""PPO with attention over the episode so far: acting, learning and playing give the numbers of plain JAX, and it remembers."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tempo_core as tp
from tempo_rl import PPO
from tempo_rl.env.spaces import Discrete, Observations
from tempo_rl.errors import RecipeError
from tempo_rl.evaluate import Policy
from tempo_rl.models import build_model
from tempo_rl.recipe import PPORecipe, make_recipe
from tests.cases import fast
from tests.rl.agents.test_agents import SMALL, Adam, Arrays, numpy_gae, train

ATTENTION = {
    "algorithm": "ppo",
    "network": "attention",
    "hidden": [3, 8],
    "attention_heads": 2,
    "num_minibatches": 1,
    "update_epochs": 2,
}


def heads_of(w: Arrays, name: str, x: Any, position: Any) -> Any:
    """Two heads of width 4, with rotary positions for queries and keys."""
    y = (x @ w[f"memory.attention.{name}.weight"]).reshape(*x.shape[:-1], 2, 4)
    if name == "value":
        return y
    angles = (position[..., None] * 10000.0 ** (-np.arange(2) / 2))[..., None, :]
    first, second = y[..., :2], y[..., 2:]
    return jnp.concatenate(
        [first * jnp.cos(angles) - second * jnp.sin(angles), second * jnp.cos(angles) + first * jnp.sin(angles)], -1
    )


def attended(w: Arrays, obs: Any, done: np.ndarray, final: Any, window: int) -> tuple[Any, Any]:
    """The memory at each step of a rollout (T, B, 8), and after each final observation."""

    def read(x: Any) -> tuple[Any, Any]:
        for k in (0, 1):
            x = jnp.tanh(x @ w[f"trunk.{k}.weight"] + w[f"trunk.{k}.bias"])
        centred = x - x.mean(-1, keepdims=True)
        normal = centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        return x, normal * w["memory.norm.weight"] + w["memory.norm.bias"]

    T = len(obs)
    (x, normal), (last, normal_last) = read(obs), read(final)
    places = np.broadcast_to(np.arange(T)[:, None], done.shape).astype("float32")
    q, k, v = (heads_of(w, name, normal, places) for name in ("query", "key", "value"))
    q1, k1, v1 = (heads_of(w, name, normal_last, places + 1) for name in ("query", "key", "value"))
    episode = np.concatenate([np.zeros((1, done.shape[1])), np.cumsum(done, 0)[:-1]])
    outputs, finals = [], []
    for t in range(T):
        same = episode[: t + 1] == episode[t]  # (s, B)
        near = np.arange(t + 1)[:, None]
        for queries, keys, values, allowed, base, results in (
            (q[t], k[: t + 1], v[: t + 1], same & (near > t - window), x[t], outputs),
            (
                q1[t],
                jnp.concatenate([k[: t + 1], k1[t][None]]),
                jnp.concatenate([v[: t + 1], v1[t][None]]),
                np.concatenate([same & (near > t + 1 - window), np.ones((1, done.shape[1]), bool)]),
                last[t],
                finals,
            ),
        ):
            scores = jnp.einsum("bhw,sbhw->sbh", queries, keys) / 2.0
            shares = jax.nn.softmax(jnp.where(allowed[..., None], scores, -1e30), 0)
            mixed = jnp.einsum("sbh,sbhw->bhw", shares, values).reshape(-1, 8)
            results.append(base + mixed @ w["memory.attention.output.weight"])
    return jnp.stack(outputs), jnp.stack(finals)


def linear(w: Arrays, name: str, h: Any) -> Any:
    return h @ w[f"{name}.0.weight"] + w[f"{name}.0.bias"]


def likely(w: Arrays, h: Any, action: Any) -> tuple[Any, Any]:
    log_p = jax.nn.log_softmax(linear(w, "policy", h))
    return jnp.take_along_axis(log_p, action[..., None], -1)[..., 0], -(jnp.exp(log_p) * log_p).sum(-1)


@pytest.mark.slow
@pytest.mark.parametrize("window", [3, None])
def test_updates_are_those_of_plain_jax(window: int | None) -> None:
    """Two iterations, in which episodes end inside of rollouts: log-probabilities of acting and of learning, values and gradients."""
    recipe = make_recipe(SMALL | ATTENTION | {"attention_window": window})
    assert isinstance(recipe, PPORecipe)
    recorder, w = train(recipe)
    adam = Adam(w)
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        for iteration in range(2):
            d = recorder.rollout(recipe, iteration)
            done = d["terminated"] | d["truncated"]

            @jax.jit
            def remembered(w: Arrays, d: Any = d, done: Any = done) -> tuple[Any, Any]:
                return attended(w, d["obs"], done, d["final_observation"], window or 7)

            played, finals = remembered(w)
            v, next_v = (np.asarray(linear(w, "value", h)[..., 0]) for h in (played, finals))
            advantage = numpy_gae(d, v, next_v, recipe.gamma, recipe.gae_lambda)
            old, returns = likely(w, played, d["action"])[0], advantage + v
            normal = (advantage - advantage.mean()) / (advantage.std() + 1e-8)

            def loss(
                w: Arrays, h: Any = remembered, d: Any = d, old: Any = old, normal: Any = normal, returns: Any = returns
            ) -> Any:
                h, _ = h(w)
                log_prob, entropy = likely(w, h, d["action"])
                ratio = jnp.exp(log_prob - old)
                surrogate = jnp.minimum(ratio * normal, jnp.clip(ratio, 0.8, 1.2) * normal).mean()
                error = (linear(w, "value", h)[..., 0] - returns) ** 2
                return -surrogate - 0.02 * entropy.mean() + recipe.vf_coef * 0.5 * error.mean()

            losses, at = [], jax.jit(jax.value_and_grad(loss))
            for _ in range(2):
                value, gradient = at(w)
                losses.append(float(value))
                w = adam.step(w, gradient, recipe.learning_rate * (1 - iteration / 2), 0.3)  # type: ignore[operator]
            np.testing.assert_allclose(recorder.rows[iteration]["loss"], np.mean(losses), rtol=1e-4, atol=1e-5)
            for name, expected in w.items():
                np.testing.assert_allclose(
                    recorder.parameters[iteration][name], expected, rtol=1e-3, atol=3e-5, err_msg=f"{name} {iteration}"
                )
            w = dict(recorder.parameters[iteration])


def test_acting_and_learning_give_equal_log_probabilities() -> None:
    """Without an update in between, the ratio of the probabilities is 1: its mean deviation from 1 is rounding."""
    keys = {"update_epochs": 1, "attention_window": 3, "learning_rate": 1e-12, "norm_adv": False, "vf_coef": 0.0, "ent_coef": 0.0}
    recorder, _ = train(make_recipe(SMALL | ATTENTION | keys | {"clip_coef": 1e-5}))
    for row in recorder.rows:
        assert row["clipfrac"] == 0 and abs(row["approx_kl"]) < 1e-9


@pytest.mark.parametrize("window", fast([3, None], None))
def test_playing_keeps_the_last_steps_of_its_episode(window: int | None) -> None:
    recipe = make_recipe(SMALL | ATTENTION | {"attention_window": window})
    spaces = Observations((2,), "float32"), Discrete(3)
    with tp.Context("i") as ((i, _),):
        model = build_model(recipe, *spaces, domain=(i,))
    random = np.random.default_rng(0)
    shapes = {name: tuple(map(int, w.shape)) for name, w in model.parameters().items()}
    w = {name: random.normal(size=size).astype("float32") for name, size in shapes.items()}
    policy, obs, done = Policy(recipe, *spaces, w), random.normal(size=(7, 4, 2)).astype("float32"), np.zeros((7, 4), bool)
    done[2, :2] = True
    played = []
    for t in range(7):
        played.append(policy(obs[t]))
        policy.forget(done[t])
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        expected, _ = attended(w, obs, done, obs, window or 7)
        logits = np.asarray(linear(w, "policy", expected))
    np.testing.assert_array_equal(np.array(played), logits.argmax(-1))
    assert len(set(np.array(played).ravel().tolist())) > 1


class Recall:
    """The first observation is 1 or -1, the others are 0. The reward of the fourth and last action is 1 if it names the first observation."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)
    max_episode_steps = 4
    ends_by_time_alone = True

    def initial(self, rng: Any, params: Any = None) -> Any:
        return jnp.stack([jax.random.bernoulli(rng).astype("float32") * 2.0 - 1.0, jnp.float32(0.0)])

    def transition(self, state: Any, action: Any, rng: Any, params: Any = None) -> Any:
        return state + jnp.array([0.0, 1.0], "float32")

    def observation(self, state: Any, rng: Any, params: Any = None) -> Any:
        return jnp.where(state[1] == 0, state[0], 0.0)[None]

    def reward(self, state: Any, action: Any, next_state: Any, rng: Any, params: Any = None) -> Any:
        return jnp.where((state[1] == 3) & ((action == 1) == (state[0] > 0)), 1.0, 0.0)

    def terminal(self, state: Any, rng: Any, params: Any = None) -> Any:
        return jnp.asarray(False)


@pytest.mark.slow
@pytest.mark.parametrize("network", ["attention", "mlp"])
def test_a_first_observation_is_recalled(network: str) -> None:
    """Attention names it every time; a perceptron, which sees only the present, half of the times."""
    keys: Any = {
        "num_envs": 32,
        "num_steps": 16,
        "total_timesteps": 25_600,
        "hidden": [16],
        "learning_rate": 0.01,
        "eval_episodes": 0,
    }
    agent = PPO(Recall, network=network, **keys).train()
    mean = agent.evaluate(200).mean
    assert mean == 1.0 if network == "attention" else 0.3 < mean < 0.7


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "heads": ({"hidden": [6], "attention_heads": 2}, "attention_heads=2 heads of an even width: write hidden="),
    "no width": ({"hidden": []}, "the last width of hidden=\\[\\]"),
    "a long window": ({"attention_window": 8}, "attention_window=8 is more than num_steps=7"),
    "a short window": ({"attention_window": 1}, "attention_window is 1"),
    "another algorithm": ({"algorithm": "actor_critic"}, "network=attention is for ppo"),
    "half a sequence": (
        {"num_minibatches": 4, "num_steps": 8, "total_timesteps": 32},
        "num_minibatches=4 does not divide num_envs=2",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_keys_that_are_refused(case: str) -> None:
    keys, message = REFUSED[case]
    plain = {k: v for k, v in ATTENTION.items() if "algorithm" not in keys or k not in ("num_minibatches", "update_epochs")}
    with pytest.raises(RecipeError, match=message):
        make_recipe(SMALL | plain | keys)
