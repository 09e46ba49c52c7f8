"""The agents' updates against plain JAX, on rollouts with episodes that terminate, that are truncated, and that run on."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tempo_core as tp
from tempo_rl.agents import AGENTS, build_agent
from tempo_rl.agents.advantage import bootstrapped_return, generalized_advantage, n_step_return
from tempo_rl.distributions import EpsilonGreedy
from tempo_rl.env.functional_env import FunctionalEnv
from tempo_rl.env.transition import Transition
from tempo_rl.recipe import ALGORITHMS, ActorCriticRecipe, DQNRecipe, PPORecipe, Recipe, ReinforceRecipe, load_recipe, make_recipe
from tempo_rl.rundir import create_run
from tempo_rl.train import train as run_training
from tests.cases import fast, slow
from tests.rl.agents.continuous_losses import CONTINUOUS
from tests.rl.scripted import ID

Arrays = Mapping[str, Any]
SMALL = {
    "env": {"id": ID, "kwargs": {"ends": [["terminated", 2], ["truncated", 3], ["terminated", 4]]}},
    "num_envs": 2,
    "num_steps": 7,
    "total_timesteps": 28,
    "hidden": [5],
    "learning_rate": 0.01,
    "ent_coef": 0.02,
    "max_grad_norm": 0.3,
}


class Recorder:
    """A monitor that keeps its metrics and parameters, and the arrays that pass between a program and its environments."""

    def __init__(self) -> None:
        self.rows: list[Arrays] = []
        self.parameters: list[Arrays] = []
        self.observations: list[np.ndarray] = []
        self.actions: list[np.ndarray] = []
        self.steps: list[Transition] = []

    def finished(self, iteration: int, metrics: Arrays, parameters: Arrays) -> None:
        assert iteration == len(self.rows)
        self.rows.append({k: np.array(v) for k, v in metrics.items()})
        self.parameters.append({k: np.array(v) for k, v in parameters.items()})

    def listen(self, host: Any) -> None:
        reset, step = host.reset, host.step

        def recorded_reset(clock: int = 0) -> np.ndarray:
            self.observations.append(reset(clock))
            return self.observations[-1]

        def recorded_step(action: np.ndarray) -> Transition:
            self.actions.append(np.array(action))
            self.steps.append(step(action))
            self.observations.append(self.steps[-1].observation)
            return self.steps[-1]

        host.reset, host.step = recorded_reset, recorded_step

    def rollout(self, recipe: Recipe, iteration: int) -> dict[str, np.ndarray]:
        """The rollout of an iteration, (T, B, ...) by name."""
        T = recipe.num_steps
        span = slice(iteration * T, (iteration + 1) * T)
        fresh = isinstance(recipe, ReinforceRecipe)  # it resets every iteration, which adds an observation
        first = iteration * (T + 1) if fresh else iteration * T
        parts = {name: np.stack([getattr(s, name) for s in self.steps[span]]) for name in Transition._fields}
        return parts | {"obs": np.stack(self.observations[first : first + T]), "action": np.stack(self.actions[span])}


def train(recipe: Recipe) -> tuple[Recorder, Arrays]:
    """Run `recipe`: the record of the run, and the parameters at its start."""
    recorder = Recorder()
    agent = build_agent(recipe, recorder)
    recorder.listen(agent.environment.host)
    parameters = agent.model.parameters()
    start = {name: w[(0,) * len(w.domain.steps)] for name, w in parameters.items()}
    values = agent.context.run(agent.bounds, outputs=list(start.values()), config=tp.Config(seed=recipe.seed))
    return recorder, {name: np.asarray(value) for name, value in zip(start, values, strict=True)}


# -- the same in plain JAX --------------------------------------------------------------------------------------------


def network(w: Arrays, name: str, x: Any) -> Any:
    hidden = jnp.tanh(x @ w[f"{name}.0.weight"] + w[f"{name}.0.bias"])
    return hidden @ w[f"{name}.1.weight"] + w[f"{name}.1.bias"]


def policy(w: Arrays, obs: Any, action: Any) -> tuple[Any, Any]:
    """Log-probability of the actions, and entropies."""
    log_p = jax.nn.log_softmax(network(w, "policy", obs))
    return jnp.take_along_axis(log_p, action[..., None], -1)[..., 0], -(jnp.exp(log_p) * log_p).sum(-1)


def value(w: Arrays, obs: Any) -> Any:
    return network(w, "value", obs)[..., 0]


class Adam:
    def __init__(self, like: Arrays, eps: float = 1e-5):
        self.eps = eps
        self.m = {k: np.zeros_like(v) for k, v in like.items()}
        self.v = {k: np.zeros_like(v) for k, v in like.items()}
        self.count = 0

    def step(self, w: Arrays, g: Arrays, lr: float, max_norm: float) -> Arrays:
        norm = np.sqrt(sum(float((x**2).sum()) for x in g.values()))
        scale = min(1.0, max_norm / (norm + 1e-6))
        self.count += 1
        new = {}
        for k in w:
            grad = np.asarray(g[k]) * scale
            self.m[k] = 0.9 * self.m[k] + 0.1 * grad
            self.v[k] = 0.999 * self.v[k] + 0.001 * grad**2
            first, second = self.m[k] / (1 - 0.9**self.count), self.v[k] / (1 - 0.999**self.count)
            new[k] = np.asarray(w[k] - lr * first / (np.sqrt(second) + self.eps), np.float32)
        return new


def numpy_gae(d: Arrays, v: np.ndarray, next_v: np.ndarray, gamma: float, lam: float) -> np.ndarray:
    advantage, following = np.zeros_like(v), np.zeros_like(v[0])
    for t in reversed(range(len(v))):
        alive = 1.0 - d["terminated"][t]
        going = 1.0 - (d["terminated"][t] | d["truncated"][t])
        delta = d["reward"][t] + gamma * alive * next_v[t] - v[t]
        following = delta + gamma * lam * going * following
        advantage[t] = following
    return advantage


def ppo_losses(recipe: PPORecipe, w0: Arrays, d: Arrays) -> Callable[[Arrays], Any]:
    v = np.asarray(value(w0, d["obs"]))
    advantage = numpy_gae(d, v, np.asarray(value(w0, d["final_observation"])), recipe.gamma, recipe.gae_lambda)
    returns, old = advantage + v, policy(w0, d["obs"], d["action"])[0]
    normal = (advantage - advantage.mean()) / (advantage.std() + 1e-8) if recipe.norm_adv else advantage

    def loss(w: Arrays) -> Any:
        log_prob, entropy = policy(w, d["obs"], d["action"])
        ratio = jnp.exp(log_prob - old)
        clipped = jnp.clip(ratio, 1 - recipe.clip_coef, 1 + recipe.clip_coef)
        surrogate = jnp.minimum(ratio * normal, clipped * normal).mean()
        error = (value(w, d["obs"]) - returns) ** 2
        if recipe.clip_vloss:
            near = v + jnp.clip(value(w, d["obs"]) - v, -recipe.clip_coef, recipe.clip_coef)
            error = jnp.maximum(error, (near - returns) ** 2)
        return -surrogate - recipe.ent_coef * entropy.mean() + recipe.vf_coef * 0.5 * error.mean()

    return loss


def actor_critic_losses(recipe: ActorCriticRecipe, w0: Arrays, d: Arrays) -> Callable[[Arrays], Any]:
    following = np.asarray(value(w0, d["final_observation"]))
    target, later = np.zeros_like(following), following[-1] * (1.0 - d["terminated"][-1])
    for t in reversed(range(len(target))):
        ended = d["terminated"][t] | d["truncated"][t]
        later = np.where(ended, following[t] * (1.0 - d["terminated"][t]), later)
        later = target[t] = d["reward"][t] + recipe.gamma * later

    def loss(w: Arrays) -> Any:
        log_prob, entropy = policy(w, d["obs"], d["action"])
        advantage = target - value(w, d["obs"])
        policy_loss = -(log_prob * jax.lax.stop_gradient(advantage)).mean()
        return policy_loss + recipe.vf_coef * 0.5 * (advantage**2).mean() - recipe.ent_coef * entropy.mean()

    return loss


def reinforce_losses(recipe: ReinforceRecipe, w0: Arrays, d: Arrays) -> Callable[[Arrays], Any]:
    returns = np.zeros_like(d["reward"])
    following = np.asarray(value(w0, d["final_observation"])) if recipe.baseline else returns
    later = following[-1]
    for t in reversed(range(len(returns))):
        later = np.where(d["truncated"][t], following[t], later)
        later = returns[t] = d["reward"][t] + recipe.gamma * (1.0 - d["terminated"][t]) * later
    weight = returns - np.asarray(value(w0, d["obs"])) if recipe.baseline else returns
    weight = (weight - weight.mean()) / (weight.std() + 1e-8)

    def loss(w: Arrays) -> Any:
        log_prob, entropy = policy(w, d["obs"], d["action"])
        value_loss = 0.5 * ((returns - value(w, d["obs"])) ** 2).mean() if recipe.baseline else 0.0
        return -(log_prob * weight).mean() - recipe.ent_coef * entropy.mean() + recipe.vf_coef * value_loss

    return loss


def dqn_losses(recipe: DQNRecipe, target: Arrays, d: Arrays) -> Callable[[Arrays], Any]:
    """The loss over all rows of `d`."""
    following = np.asarray(network(target, "policy", d["final_observation"]))

    def loss(w: Arrays) -> Any:
        chooser = network(w, "policy", d["final_observation"]) if recipe.double_q else following
        best = jnp.take_along_axis(following, chooser.argmax(-1)[..., None], -1)[..., 0]
        aim = d["reward"] + recipe.gamma * (1.0 - d["terminated"]) * best
        chosen = jnp.take_along_axis(network(w, "policy", d["obs"]), d["action"][..., None], -1)[..., 0]
        size = jnp.abs(chosen - jax.lax.stop_gradient(aim))
        delta = recipe.huber_delta
        return jnp.where(size <= delta, 0.5 * size**2, delta * size - 0.5 * delta**2).mean()

    return loss


LOSSES: dict[str, Callable[..., Callable[[Arrays], Any]]] = {
    "ppo": ppo_losses,
    "actor_critic": actor_critic_losses,
    "reinforce": reinforce_losses,
    "dqn": dqn_losses,
}


def test_every_algorithm_has_an_agent_and_its_losses_here() -> None:
    assert set(AGENTS) == set(ALGORITHMS) == set(LOSSES) | set(CONTINUOUS)
    assert {name: recipe.model_fields["algorithm"].default for name, recipe in ALGORITHMS.items()} == {n: n for n in AGENTS}


@pytest.fixture
def plain_jax() -> Iterator[None]:
    """The reference is plain JAX, with its usual promotions."""
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield


@pytest.mark.usefixtures("plain_jax")
@pytest.mark.parametrize(
    "extra",
    [
        {"algorithm": "ppo", "num_minibatches": 1, "update_epochs": 3},
        pytest.param(
            {
                "algorithm": "ppo",
                "num_minibatches": 1,
                "update_epochs": 3,
                "clip_vloss": True,
                "norm_adv": False,
                "anneal_lr": False,
            },
            marks=pytest.mark.slow,
        ),
        slow({"algorithm": "actor_critic"}),
        pytest.param({"algorithm": "reinforce"}, marks=pytest.mark.slow),
        pytest.param({"algorithm": "reinforce", "baseline": True, "vf_coef": 0.3}, marks=pytest.mark.slow),
    ],
    ids=["ppo", "ppo_value_clipping", "actor_critic", "reinforce", "reinforce_baseline"],
)
def test_updates_are_those_of_plain_jax(extra: dict[str, Any]) -> None:
    """Two iterations, with full-batch epochs, so that the order of the data does not matter."""
    recipe = make_recipe(SMALL | extra)
    recorder, w = train(recipe)
    adam = Adam(w)
    for iteration in range(recipe.iterations):
        d = recorder.rollout(recipe, iteration)
        assert d["terminated"].any() and d["truncated"].any()
        loss = LOSSES[recipe.algorithm](recipe, w, d)
        losses, at = [], jax.jit(jax.value_and_grad(loss))
        for _ in range(getattr(recipe, "update_epochs", 1)):
            lr = recipe.learning_rate * (1 - iteration / 2 if recipe.anneal_lr else 1)
            number, gradient = at(w)
            losses.append(float(number))
            w = adam.step(w, gradient, lr, recipe.max_grad_norm or np.inf)
        np.testing.assert_allclose(recorder.rows[iteration]["loss"], np.mean(losses), rtol=1e-4, atol=1e-5)
        for name, expected in w.items():
            np.testing.assert_allclose(recorder.parameters[iteration][name], expected, rtol=1e-3, atol=2e-5, err_msg=name)
            w = {**w, name: recorder.parameters[iteration][name]}  # so that rounding does not add up


def gru(w: Arrays, x: Any, h: Any) -> Any:
    """The memory after the observation x [..., 2] (a layer of the trunk first)."""
    x = jnp.tanh(x @ w["trunk.0.weight"] + w["trunk.0.bias"])
    a, b = (v @ w[f"memory.{name}.weight"] + w[f"memory.{name}.bias"] for v, name in ((x, "input"), (h, "state")))
    n = h.shape[-1]
    reset, update = (jax.nn.sigmoid(a[..., k * n : (k + 1) * n] + b[..., k * n : (k + 1) * n]) for k in (0, 1))
    new = jnp.tanh(a[..., 2 * n :] + reset * b[..., 2 * n :])
    return (1 - update) * new + update * h


def remembered(w: Arrays, d: Arrays, h: Any) -> tuple[Any, Any, Any]:
    """What is remembered at each step [T, B, ...], what would be after the final observation, and the state after the rollout."""
    outputs, finals = [], []
    for t in range(len(d["obs"])):
        h = gru(w, d["obs"][t], h)
        outputs.append(h)
        finals.append(gru(w, d["final_observation"][t], h))
        h = jnp.where((d["terminated"][t] | d["truncated"][t])[:, None], 0.0, h)
    return jnp.stack(outputs), jnp.stack(finals), h


@pytest.mark.slow
@pytest.mark.usefixtures("plain_jax")
def test_a_memory_learns_through_whole_sequences() -> None:
    """Two iterations of PPO in plain JAX: episodes end inside of rollouts, and go on from one to the next with what they remember."""
    recipe = make_recipe(
        SMALL | {"algorithm": "ppo", "network": "gru", "hidden": [3, 4], "num_minibatches": 1, "update_epochs": 2}
    )
    assert isinstance(recipe, PPORecipe)
    recorder, w = train(recipe)
    adam, start = Adam(w), np.zeros((2, 4), np.float32)

    def linear(w: Arrays, name: str, h: Any) -> Any:
        return h @ w[f"{name}.0.weight"] + w[f"{name}.0.bias"]

    def likely(w: Arrays, h: Any, action: Any) -> tuple[Any, Any]:
        log_p = jax.nn.log_softmax(linear(w, "policy", h))
        return jnp.take_along_axis(log_p, action[..., None], -1)[..., 0], -(jnp.exp(log_p) * log_p).sum(-1)

    for iteration in range(2):
        d = recorder.rollout(recipe, iteration)
        played, finals, following = remembered(w, d, start)
        v, next_v = (np.asarray(linear(w, "value", h)[..., 0]) for h in (played, finals))
        advantage = numpy_gae(d, v, next_v, recipe.gamma, recipe.gae_lambda)
        old, returns = likely(w, played, d["action"])[0], advantage + v
        normal = (advantage - advantage.mean()) / (advantage.std() + 1e-8)

        def loss(w: Arrays, d: Any = d, start: Any = start, old: Any = old, normal: Any = normal, returns: Any = returns) -> Any:
            h, _, _ = remembered(w, d, start)
            log_prob, entropy = likely(w, h, d["action"])
            ratio = jnp.exp(log_prob - old)
            surrogate = jnp.minimum(ratio * normal, jnp.clip(ratio, 0.8, 1.2) * normal).mean()
            error = (linear(w, "value", h)[..., 0] - returns) ** 2
            return -surrogate - recipe.ent_coef * entropy.mean() + recipe.vf_coef * 0.5 * error.mean()

        losses, at = [], jax.jit(jax.value_and_grad(loss))
        for _ in range(2):
            number, gradient = at(w)
            losses.append(float(number))
            w = adam.step(w, gradient, recipe.learning_rate * (1 - iteration / 2), 0.3)
        np.testing.assert_allclose(recorder.rows[iteration]["loss"], np.mean(losses), rtol=1e-4, atol=1e-5)
        for name, expected in w.items():
            np.testing.assert_allclose(recorder.parameters[iteration][name], expected, rtol=1e-3, atol=2e-5, err_msg=name)
        w, start = dict(recorder.parameters[iteration]), np.asarray(following)


@pytest.fixture
def each_row_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Updates of DQN draw all rows of the replay buffer in turn: the numbers from 0 to 1 for its rows are evenly spaced."""
    uniform = tp.random.uniform

    def spaced(shape: Any = (), low: float = 0.0, high: float = 1.0, domain: Any = ()) -> tp.Tensor:
        if shape != (ROWS,):
            return uniform(shape, low, high, domain)
        return tp.constant((np.arange(ROWS, dtype=np.float32) + 0.5) / ROWS)

    monkeypatch.setattr(tp.random, "uniform", spaced)


ROWS = 28


@pytest.mark.slow
def test_updates_beyond_the_divergence_are_not_made() -> None:
    """All rows in each update: three epochs of which the first alone is near enough are one epoch, with the same moments of Adam."""
    keys = {"algorithm": "ppo", "num_minibatches": 1, "learning_rate": 0.1, "total_timesteps": 70}
    one, _ = train(make_recipe(SMALL | keys | {"update_epochs": 1}))
    three, _ = train(make_recipe(SMALL | keys | {"update_epochs": 3, "target_kl": 1e-5}))
    assert np.mean([row["approx_kl"] for row in three.rows]) > 1e-3 > np.mean([row["approx_kl"] for row in one.rows])
    for before, after in zip(one.parameters, three.parameters, strict=True):
        for name, expected in before.items():
            np.testing.assert_allclose(after[name], expected, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.slow
@pytest.mark.usefixtures("plain_jax", "each_row_once")
@pytest.mark.parametrize("double_q", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_q_learning_draws_from_the_last_iterations_and_follows_its_target(double_q: bool) -> None:
    """Four iterations of 14 steps, a buffer of 28, two updates an iteration; the target goes half the way in every second one."""
    keys = {"algorithm": "dqn", "total_timesteps": 56, "buffer_size": 27, "batch_size": ROWS, "gradient_steps": 2}
    keys |= {"learning_starts": 15, "target_network_frequency": 28, "tau": 0.5, "double_q": double_q, "learning_rate": 0.1}
    keys |= {"activation": "tanh", "huber_delta": 20.0}  # rewards are between 0 and 33
    recipe = make_recipe({k: v for k, v in SMALL.items() if k != "ent_coef"} | keys)
    assert isinstance(recipe, DQNRecipe) and (recipe.replay_iterations, recipe.target_iterations) == (2, 2)
    recorder, w = train(recipe)
    adam, target = Adam(w), w
    for iteration in range(4):
        parts = [recorder.rollout(recipe, k) for k in range(max(0, iteration - 1), iteration + 1)]
        loss = dqn_losses(recipe, target, {name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
        losses = []
        for _ in range(2):
            losses.append(float(loss(w)))
            w = adam.step(w, jax.grad(loss)(w), 0.1, 0.3) if iteration else w
        np.testing.assert_allclose(recorder.rows[iteration]["loss"], np.mean(losses), rtol=1e-4, atol=1e-5)
        for name, expected in w.items():
            np.testing.assert_allclose(recorder.parameters[iteration][name], expected, rtol=1e-3, atol=2e-5, err_msg=name)
        w = dict(recorder.parameters[iteration])  # so that rounding does not add up
        if iteration % 2:
            target = {name: (value + w[name]) / 2 for name, value in target.items()}
    assert np.abs(recorder.parameters[0]["policy.0.weight"] - recorder.parameters[3]["policy.0.weight"]).max() > 0.05


@pytest.mark.slow
def test_the_replay_buffer_is_a_window_of_the_past() -> None:
    """The stores of a long run have the size of the buffer, and grow with it alone."""

    def bytes_of(buffer_size: int, iterations: int) -> int:
        keys = {"buffer_size": buffer_size, "total_timesteps": 8 * iterations}
        recipe = make_recipe({"algorithm": "dqn", "env": {"id": "jax/CartPole-v1"}, "num_envs": 2, "num_steps": 4} | keys)
        tensors = build_agent(recipe, Recorder()).compile().plan().tensors
        assert next(tensor.bytes for tensor in tensors if tensor.name == "obs") == buffer_size * 4 * 4
        return sum(tensor.bytes for tensor in tensors)

    row = 4 * 4 + 4 + 4 + 1 + 4 * 4  # observation, action, reward, end, final observation
    assert bytes_of(80, 20) == bytes_of(80, 400)
    assert 80 * row <= bytes_of(160, 400) - bytes_of(80, 400) <= 2 * 80 * row  # the rows, and at most a copy of them


@pytest.mark.slow
def test_exploration_falls_in_a_line_and_stays() -> None:
    keys = {
        "algorithm": "dqn",
        "total_timesteps": 14 * 8,
        "start_e": 0.9,
        "end_e": 0.1,
        "exploration_fraction": 0.5,
        "gradient_steps": 1,
        "batch_size": 2,
    }
    recorder, _ = train(make_recipe({k: v for k, v in SMALL.items() if k != "ent_coef"} | keys))
    np.testing.assert_allclose([row["epsilon"] for row in recorder.rows], [0.9, 0.7, 0.5, 0.3, 0.1, 0.1, 0.1, 0.1], rtol=1e-5)


def test_greedy_actions_but_for_epsilon() -> None:
    ctx = tp.Context("n")
    with ctx as ((n, N),):
        q = tp.input("q", (3,))
        policy = EpsilonGreedy(q + 0.0 * n, 0.3)
        outputs = [policy.sample(), policy.mode(), policy.log_prob(policy.sample())[0], policy.entropy()[0]]
        outputs.append(tp.exp(policy.log_prob(tp.constant(np.int32(0))))[0])
    drawn, best, _, entropy, chance = ctx.run({N: 4000}, outputs, {"q": np.array([1.0, 3.0, 2.0], "float32")})
    assert (best == 1).all()
    np.testing.assert_allclose(np.bincount(drawn) / 4000, [0.1, 0.8, 0.1], atol=0.02)
    p = np.array([0.1, 0.8, 0.1])
    np.testing.assert_allclose([entropy, chance], [-(p * np.log(p)).sum(), 0.1], rtol=1e-5)


@pytest.mark.usefixtures("plain_jax")
def test_minibatches_use_every_row_once_an_epoch() -> None:
    """With updates too small to matter, the mean of the minibatches' losses is the loss of the full batch."""
    tiny = {
        "algorithm": "ppo",
        "num_minibatches": 2,
        "update_epochs": 2,
        "learning_rate": 1e-12,
        "norm_adv": False,
        "vf_coef": 1.0,
    }
    recipe = make_recipe(SMALL | tiny)
    recorder, w = train(recipe)
    expected = float(ppo_losses(recipe, w, recorder.rollout(recipe, 0))(w))  # type: ignore[arg-type]
    np.testing.assert_allclose(recorder.rows[0]["loss"], expected, rtol=1e-4)


@pytest.mark.slow
def test_rollouts_go_on_across_iterations_and_reinforce_starts_afresh() -> None:
    going, _ = train(make_recipe(SMALL | {"algorithm": "actor_critic"}))
    assert len(going.observations) == 15  # one reset, 14 steps
    assert going.observations[7].tolist() == [[2, 2], [2, 2]]  # 2 + 3 steps of earlier episodes, then 2 of the third
    fresh, _ = train(make_recipe(SMALL | {"algorithm": "reinforce"}))
    assert fresh.observations[8].tolist() == [[0, 0], [0, 0]]


@pytest.mark.slow
def test_the_micro_recipe_bootstraps_from_the_last_observation_alone() -> None:
    """Episodes that end with the rollout need the value of one final observation: the same numbers as with all of them."""
    small = ["num_envs=3", "num_steps=4", "total_timesteps=24", "hidden=[5, 4]", "env.kwargs.observation_shape=6"]
    losses = []
    for limit in (4, 3):  # with a limit below the rollout, the program cannot know where episodes end
        recipe = load_recipe("ppo_micro", [*small, f"env.kwargs.max_episode_steps={limit}"])
        recorder = Recorder()
        agent = build_agent(recipe, recorder)
        assert agent.environment.never_ends_within(4) is (limit == 4)
        if limit == 4:
            assert set(agent.model.parameters()) == {
                f"{name}.{part}" for name in ("trunk.0", "trunk.1", "policy.0", "value.0") for part in ("weight", "bias")
            } | {"log_std"}
            agent.compile(tp.Config(executor="interpreted")).run({})
            losses.append([float(row["loss"]) for row in recorder.rows])
    general, other = Recorder(), make_recipe(load_recipe("ppo_micro", small).model_dump())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FunctionalEnv, "never_ends_within", lambda self, num_steps: False)
        build_agent(other, general).compile(tp.Config(executor="interpreted")).run({})
    np.testing.assert_allclose([float(row["loss"]) for row in general.rows], losses[0], rtol=1e-5)
    assert [float(row["episodes"]) for row in general.rows] == [3, 3]


def test_rollouts_of_the_micro_recipe_keep_what_learning_reads() -> None:
    small = ["num_envs=3", "num_steps=7", "total_timesteps=42", "hidden=[5, 4]", "env.kwargs.observation_shape=6"]
    agent = build_agent(load_recipe("ppo_micro", small), Recorder())
    program = agent.compile(tp.Config(backend="numpy"))
    stores = program.scheduled.storage.items()
    types = [program.graph[node].outputs[output] for (node, output), storage in stores if storage.slots == (1, 7)]
    assert {"float32"} == {each.dtype for each in types}, "no flags of ends, and no lengths of episodes"


def test_episode_metrics_are_those_of_the_episodes_that_ended() -> None:
    recorder, _ = train(make_recipe(SMALL | {"algorithm": "actor_critic"}))
    first, second = recorder.rows
    assert (first["episodes"], first["episodic_length"]) == (4, 2.5)
    np.testing.assert_allclose(first["episodic_return"], (1 + 33) / 2)  # rewards 0+1 and 10+11+12
    assert (second["episodes"], second["episodic_length"]) == (6, 3.0)  # lengths 4, 2 and 3


# -- targets, by hand -------------------------------------------------------------------------------------------------


def feed(values: Mapping[str, list[Any]], build: Callable[..., Any]) -> np.ndarray:
    """The T results of `build(step, value, next_value, point)` for one environment and one iteration, with `values` as inputs."""
    ctx = tp.Context("b", "i", "t")
    length = len(values["reward"])
    with ctx as ((b, B), (i, I), (t, T)):
        dtypes = {"terminated": "bool", "truncated": "bool"}
        x = {name: tp.input(name, dtype=dtypes.get(name, "float32"), domain=(b, i, t)) for name in values}
        unused = x["reward"]
        step = Transition(unused, x["reward"], x["terminated"], x["truncated"], unused, unused, unused)
        result = build(step, x["value"], x["next_value"], (b, i, t))
    inputs = {name: np.array(v, dtypes.get(name, "float32")).reshape(1, 1, length) for name, v in values.items()}
    return np.asarray(ctx.run({B: 1, I: 1, T: length}, outputs=[result], inputs=inputs)[0]).reshape(length)


CASES = {
    # gamma = lambda = 0.5, value 1 everywhere, next value 2 everywhere: delta = r + 1 - 1 = r, or r - 1 where terminated
    "runs on": ([4, 8], [0, 0], [0, 0], [4 + 0.25 * 8, 8], [4 + 0.5 * (8 + 1), 8 + 1]),
    "terminated": ([4, 8], [1, 0], [0, 0], [4 - 1, 8], [4, 8 + 1]),
    "truncated": ([4, 8], [0, 0], [1, 0], [4, 8], [4 + 1, 8 + 1]),
    "terminated last": ([4, 8], [0, 1], [0, 0], [4 + 0.25 * 7, 8 - 1], [4 + 0.5 * 8, 8]),
    "truncated last": ([4, 8], [0, 0], [0, 1], [4 + 0.25 * 8, 8], [4 + 0.5 * 9, 9]),
    "both at once": ([4, 8], [1, 0], [1, 0], [4 - 1, 8], [4, 9]),
    "one step": ([4], [0], [0], [4], [5]),
}


@pytest.mark.parametrize("case", CASES)
def test_advantages_and_returns_by_hand(case: str) -> None:
    reward, terminated, truncated, advantage, target = CASES[case]
    values = {"reward": reward, "terminated": terminated, "truncated": truncated}
    values |= {"value": [1] * len(reward), "next_value": [2] * len(reward)}
    result = feed(values, lambda step, v, n, point: generalized_advantage(step, v, n, 0.5, 0.5, point))
    np.testing.assert_allclose(result, advantage)
    result = feed(values, lambda step, v, n, point: bootstrapped_return(step, n, 0.5, point) + 0.0 * v)
    np.testing.assert_allclose(result, target)


def n_step_in_numpy(d: Arrays, values: np.ndarray, n: int, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """N-step returns (T, B) with the values after them, and how many rewards they have, by a loop over the steps of each."""
    returns, counts = np.zeros(values.shape), np.zeros(values.shape, int)
    for t, b in np.ndindex(values.shape):
        for k in range(t, min(t + n, len(values))):
            returns[t, b] += gamma ** (k - t) * d["reward"][k, b]
            counts[t, b] += 1
            if d["terminated"][k, b] or d["truncated"][k, b]:
                break
        last = t + counts[t, b] - 1
        returns[t, b] += gamma ** counts[t, b] * (0.0 if d["terminated"][last, b] else values[last, b])
    return returns, counts


@pytest.mark.parametrize("n", [1, 3, pytest.param(9, marks=pytest.mark.slow)])
def test_n_step_returns_are_those_of_a_loop(n: int) -> None:
    random = np.random.default_rng(n)
    d = {"reward": random.normal(size=(7, 1)), "terminated": np.zeros((7, 1), bool), "truncated": np.zeros((7, 1), bool)}
    d["terminated"][1], d["truncated"][4] = True, True
    following = random.normal(size=(7, 1))
    values = {name: array[:, 0].tolist() for name, array in d.items()} | {
        "value": [0] * 7,
        "next_value": following[:, 0].tolist(),
    }
    result = feed(values, lambda step, v, x, point: n_step_return(step, x, 0.5, n, point) + 0.0 * v)
    np.testing.assert_allclose(result, n_step_in_numpy(d, following, n, 0.5)[0][:, 0], rtol=1e-5)


def test_returns_of_one_step_and_of_the_whole_rollout_are_special_cases() -> None:
    for case in ("runs on", "terminated", "truncated last"):
        reward, terminated, truncated, _, target = CASES[case]
        values: Any = {"reward": reward, "terminated": terminated, "truncated": truncated}
        values |= {"value": [2] * len(reward), "next_value": [2] * len(reward)}
        result = feed(values, lambda step, v, n, point: n_step_return(step, n, 0.5, 5, point) + 0.0 * v)
        np.testing.assert_allclose(result, target)
        result = feed(values, lambda step, v, n, point: generalized_advantage(step, v, n, 0.5, 1.0, point) + v)
        np.testing.assert_allclose(result, target)


@pytest.mark.slow
@pytest.mark.usefixtures("plain_jax")
@pytest.mark.parametrize("keys", [{"n_step": 3}, pytest.param({"gae_lambda": 0.6}, marks=pytest.mark.slow)], ids=str)
def test_actor_critic_learns_from_n_steps_and_from_lambda_returns(keys: dict[str, Any]) -> None:
    recipe = make_recipe(SMALL | {"algorithm": "actor_critic", "anneal_lr": False, "total_timesteps": 14} | keys)
    assert isinstance(recipe, ActorCriticRecipe)
    recorder, w = train(recipe)
    d = recorder.rollout(recipe, 0)
    v, following = np.asarray(value(w, d["obs"])), np.asarray(value(w, d["final_observation"]))
    if recipe.n_step is not None:
        target = n_step_in_numpy(d, following, recipe.n_step, recipe.gamma)[0]
    else:
        target = numpy_gae(d, v, following, recipe.gamma, recipe.gae_lambda) + v

    def loss(w: Arrays) -> Any:
        log_prob, entropy = policy(w, d["obs"], d["action"])
        error = target - value(w, d["obs"])
        actor = -(log_prob * jax.lax.stop_gradient(error)).mean()
        return actor + recipe.vf_coef * 0.5 * (error**2).mean() - recipe.ent_coef * entropy.mean()

    np.testing.assert_allclose(recorder.rows[0]["loss"], loss(w), rtol=1e-5)
    for name, expected in Adam(w).step(w, jax.grad(loss)(w), recipe.learning_rate, 0.3).items():
        np.testing.assert_allclose(recorder.parameters[0][name], expected, rtol=1e-3, atol=2e-5, err_msg=name)


@pytest.mark.slow
@pytest.mark.usefixtures("plain_jax", "each_row_once")
def test_q_learning_from_n_steps() -> None:
    """The loss over all rows of two iterations: returns of up to three steps, which end with episodes and with the newest step."""
    keys = {"algorithm": "dqn", "total_timesteps": 28, "buffer_size": 28, "batch_size": ROWS, "gradient_steps": 1, "n_step": 3}
    keys |= {"learning_starts": 28, "activation": "tanh", "huber_delta": 1000.0, "double_q": False}
    recipe = make_recipe({k: v for k, v in SMALL.items() if k != "ent_coef"} | keys)
    recorder, w = train(recipe)
    parts = [recorder.rollout(recipe, iteration) for iteration in range(2)]
    d = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    best = np.asarray(network(w, "policy", d["final_observation"])).max(-1)
    values = np.asarray(network(w, "policy", d["obs"]))
    error = np.take_along_axis(values, d["action"][..., None], -1)[..., 0] - n_step_in_numpy(d, best, 3, recipe.gamma)[0]
    np.testing.assert_allclose(recorder.rows[1]["loss"], 0.5 * (error**2).mean(), rtol=1e-4)


@pytest.mark.usefixtures("plain_jax", "each_row_once")
@pytest.mark.parametrize("n", fast([1, 3], 3))
def test_a_replay_buffer_normalises_where_it_is_used(n: int) -> None:
    """Losses over all rows of two iterations: observations and rewards of both are normalised by all that came before the second one."""
    keys = {"algorithm": "dqn", "total_timesteps": 56, "buffer_size": 28, "batch_size": ROWS, "gradient_steps": 1, "n_step": n}
    keys |= {"learning_starts": 28, "activation": "tanh", "huber_delta": 1000.0, "double_q": False}
    keys |= {"target_network_frequency": 1000, "norm_obs": True, "norm_reward": True}
    recipe = make_recipe({k: v for k, v in SMALL.items() if k != "ent_coef"} | keys)
    recorder, target = train(recipe)
    for iteration in range(1, 4):
        w = recorder.parameters[iteration - 1]
        mean, variance = (w[f"observation.{part}"] for part in ("mean", "variance"))
        played = np.concatenate([recorder.rollout(recipe, k)["obs"].reshape(-1, 2) for k in range(iteration)])
        np.testing.assert_allclose(mean, played.mean(0), rtol=1e-3)
        both = [recorder.rollout(recipe, k) for k in (iteration - 1, iteration)]  # returns go through iterations
        d = {name: np.concatenate([each[name] for each in both]) for name in both[0]}
        d |= {name: ((d[name] - mean) / np.sqrt(variance)).clip(-10, 10) for name in ("obs", "final_observation")}
        d["reward"] = (d["reward"] / np.sqrt(variance_of_returns(recipe, recorder, iteration))).clip(-10, 10)
        best = np.asarray(network(target, "policy", d["final_observation"])).max(-1)
        values = np.asarray(network(w, "policy", d["obs"]))
        chosen = np.take_along_axis(values, d["action"][..., None], -1)[..., 0]
        errors = chosen - n_step_in_numpy(d, best, n, recipe.gamma)[0]
        np.testing.assert_allclose(recorder.rows[iteration]["loss"], 0.5 * np.square(errors).mean(), rtol=1e-4)


def variance_of_returns(recipe: Recipe, recorder: Recorder, iteration: int) -> float:
    """That of the discounted returns of all steps before an iteration, and of 0.0001 of a step with the variance 1."""
    running, returns = np.zeros(recipe.num_envs), list[np.ndarray]()
    for k in range(iteration):
        d = recorder.rollout(recipe, k)
        for reward, done in zip(d["reward"], d["terminated"] | d["truncated"], strict=True):
            returns.append(running * recipe.gamma + reward)
            running = np.where(done, 0.0, returns[-1])
    x, few = np.array(returns).reshape(-1), 1e-4
    if not iteration:
        return 1.0
    return float((x.var() * x.size + few + x.mean() ** 2 * x.size * few / (x.size + few)) / (x.size + few))


# Their policies get worse now and then after they have learned, and the rounding of sums decides when: the best one of a run counts.
UNSTABLE = ("dqn", "ppo_gru")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("dqn", 400.0),
        ("actor_critic", 450.0),
        ("reinforce_baseline", 300.0),
        ("ppo_gru", 400.0),
        ("ppo_pixels", 4.0),
        ("acrobot", -120.0),
        ("sac", -250.0),
        ("td3", -250.0),
        ("sac_mountain_car", 90.0),
    ],
)
def test_the_recipe_learns(name: str, least: float, seed: int, tmp_path: Path) -> None:
    """The greedy return, of which 500 is the greatest on CartPole, and 5 with the pictures; of -150 on Pendulum, and 95 on the mountain car."""
    run, recipe = create_run(tmp_path / "run"), load_recipe(name, [f"seed={seed}"])
    outcome = run_training(recipe.model_copy(update={"eval_every": recipe.iterations // 10}), run)
    with open(run.evaluations, newline="", encoding="utf-8") as file:
        means = [float(row["return_mean"]) for row in csv.DictReader(file)]
    assert outcome.evaluation is not None and len(means) >= 10
    assert (max(means) if name in UNSTABLE else outcome.evaluation.mean) >= least


@pytest.mark.usefixtures("plain_jax")
@pytest.mark.parametrize("exponents", [(0.7, 0.5), pytest.param((0.0, 1.0), marks=pytest.mark.slow)])
def test_prioritized_rows_are_those_of_a_replay_in_numpy(exponents: tuple[float, float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Four iterations of 14 steps, a buffer of 28 in a ring, three updates of 8 rows an iteration; numbers at random are those of a list."""
    uniform, draws = tp.random.uniform, np.random.default_rng(0).random((4, 3, 8)).astype("float32")

    def listed(shape: Any = (), low: float = 0.0, high: float = 1.0, domain: Any = ()) -> tp.Tensor:
        if shape != (8,):
            return uniform(shape, low, high, domain)
        i, u = domain
        return tp.constant(draws).index(0, i).index(0, u)

    monkeypatch.setattr(tp.random, "uniform", listed)
    alpha, beta = exponents
    keys = {
        "algorithm": "dqn",
        "total_timesteps": 56,
        "buffer_size": 28,
        "batch_size": 8,
        "gradient_steps": 3,
        "learning_starts": 0,
    }
    keys |= {"target_network_frequency": 14, "activation": "tanh", "huber_delta": 5.0, "learning_rate": 0.05, "anneal_lr": False}
    keys |= {"prioritized": True, "priority_exponent": alpha, "importance_exponent": beta, "double_q": False}
    recipe = make_recipe({k: v for k, v in SMALL.items() if k != "ent_coef"} | keys)
    assert isinstance(recipe, DQNRecipe)
    recorder, w = train(recipe)
    adam, target = Adam(w), w
    priority, largest = dict[int, float](), 1.0
    for iteration in range(4):
        parts = [recorder.rollout(recipe, k) for k in range(max(0, iteration - 1), iteration + 1)]
        d = {name: np.concatenate([np.concatenate(part[name]) for part in parts]) for name in parts[0]}
        first = 14 * max(0, iteration - 1)
        priority |= dict.fromkeys(range(14 * iteration, 14 * (iteration + 1)), largest)
        losses = []
        for update in range(3):
            masses = np.array([priority[first + k] ** alpha for k in range(len(d["obs"]))])
            p = masses / masses.sum()
            ring = np.argsort((first + np.arange(len(p))) % 28)
            rows = ring[np.searchsorted(np.cumsum(p[ring]), (np.arange(8) + draws[iteration, update]) / 8, "right")]
            weight = (len(p) * p[rows]) ** -(beta + (1 - beta) * iteration / 4)
            weight, r = weight / weight.max(), {name: part[rows] for name, part in d.items()}
            following = np.asarray(network(target, "policy", r["final_observation"])).max(-1)
            aim = r["reward"] + recipe.gamma * (1.0 - r["terminated"]) * following

            def errors(w: Arrays, r: Any = r, aim: Any = aim) -> Any:
                return jnp.take_along_axis(network(w, "policy", r["obs"]), r["action"][..., None], -1)[..., 0] - aim

            def loss(w: Arrays, weight: Any = weight, errors: Any = errors) -> Any:
                size = jnp.abs(errors(w))
                return (weight * jnp.where(size <= 5, 0.5 * size**2, 5 * size - 12.5)).mean()

            losses.append(float(loss(w)))
            sizes = np.abs(np.asarray(errors(w))) + 1e-6
            priority |= {first + int(row): float(size) for row, size in zip(rows, sizes, strict=True)}
            largest = max(largest, float(sizes.max()))
            w = adam.step(w, jax.grad(loss)(w), 0.05, 0.3)
        np.testing.assert_allclose(recorder.rows[iteration]["loss"], np.mean(losses), rtol=1e-4)
        for name, expected in w.items():
            np.testing.assert_allclose(recorder.parameters[iteration][name], expected, rtol=1e-3, atol=2e-5, err_msg=name)
        target = w = dict(recorder.parameters[iteration])
