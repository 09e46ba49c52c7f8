"""SAC and TD3: their updates against plain JAX, their distributions by hand, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tempo_core as tp
from tempo_rl import SAC, TD3
from tempo_rl.agents import build_agent
from tempo_rl.agents.replay import Replay
from tempo_rl.distributions import Deterministic, SquashedGaussian
from tempo_rl.env.spaces import Continuous, Observations
from tempo_rl.env.transition import Transition
from tempo_rl.errors import EnvError, RecipeError
from tempo_rl.monitor import lower
from tempo_rl.recipe import DQNRecipe, SACRecipe, TD3Recipe, make_recipe
from tests.cases import slow
from tests.rl.agents.continuous_losses import CONTINUOUS
from tests.rl.agents.test_agents import Adam, Arrays, Recorder, variance_of_returns
from tests.rl.scripted import ID

ROWS = 28
SMALL = {
    "env": {"id": ID, "kwargs": {"ends": [["terminated", 2], ["truncated", 3], ["terminated", 4]], "continuous": True}},
    "num_envs": 2,
    "num_steps": 7,
    "total_timesteps": 56,
    "hidden": [5],
    "activation": "tanh",
    "buffer_size": ROWS,
    "batch_size": ROWS,
    "learning_starts": 15,
    "q_lr": 0.02,
    "policy_lr": 0.01,
    "tau": 0.1,
}


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[np.ndarray]]:
    """Updates draw all rows of the buffer in turn; the noise of updates is the same in all of them, and listed in the order of its calls."""
    uniform, normal, listed = tp.random.uniform, tp.random.normal, list[np.ndarray]()

    def over(array: np.ndarray, domain: Any) -> tp.Tensor:
        return tp.constant(array) + sum(domain) * tp.zeros(())

    def spaced(shape: Any = (), low: float = 0.0, high: float = 1.0, domain: Any = ()) -> tp.Tensor:
        if shape != (ROWS,):
            return uniform(shape, low, high, domain)
        return over((np.arange(ROWS, dtype=np.float32) + 0.5) / ROWS, domain)

    def drawn(shape: Any = (), domain: Any = ()) -> tp.Tensor:
        if tuple(map(str, shape)) != (str(ROWS), "1"):
            return normal(shape, domain)
        listed.append(np.random.default_rng(len(listed)).normal(size=(ROWS, 1)).astype("float32"))
        return over(listed[-1], domain)

    monkeypatch.setattr(tp.random, "uniform", spaced)
    monkeypatch.setattr(tp.random, "normal", drawn)
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield listed


def of(w: Arrays, *names: str) -> dict[str, Any]:
    """The parameters of some networks."""
    return {name: value for name, value in w.items() if name.startswith(names)}


@pytest.mark.parametrize(
    "extra",
    [
        {"algorithm": "sac", "gradient_steps": 2},
        pytest.param({"algorithm": "sac", "gradient_steps": 2, "autotune": False, "alpha": 0.3}, marks=pytest.mark.slow),
        slow(
            {
                "algorithm": "sac",
                "gradient_steps": 4,
                "policy_frequency": 2,
                "noise_correlation": 0.5,
                "max_grad_norm": 0.5,
                "norm_reward": True,
            }
        ),
        {"algorithm": "td3", "gradient_steps": 4, "policy_noise": 0.4, "norm_reward": True},
    ],
    ids=["sac", "sac_fixed_alpha", "sac_delayed", "td3"],
)
def test_updates_are_those_of_plain_jax(extra: dict[str, Any], draws: list[np.ndarray]) -> None:
    """Four iterations of 14 steps with a buffer of 28; nothing is learned in the first one."""
    recipe = make_recipe(SMALL | extra)
    assert isinstance(recipe, (SACRecipe, TD3Recipe))
    recorder = Recorder()
    agent = build_agent(recipe, recorder)
    recorder.listen(agent.environment.host)  # type: ignore[attr-defined]
    agent.context.run(agent.bounds, outputs=[], config=tp.Config(seed=recipe.seed))
    next_noise, policy_noise = draws if len(draws) == 2 else (draws[0], None)
    critic_loss, policy_loss = CONTINUOUS[recipe.algorithm]
    w = dict(recorder.parameters[0])
    target, norm = w, recipe.max_grad_norm or np.inf

    @jax.jit
    @jax.value_and_grad
    def critic(part: Arrays, w: Arrays, target: Arrays, d: Arrays) -> Any:
        return critic_loss(recipe, {**w, **part}, target, d, next_noise)  # type: ignore[arg-type]

    def policy(part: Arrays, w: Arrays, d: Arrays, which: int) -> Any:
        return policy_loss(recipe, {**w, **part}, w, d, policy_noise)[which] + 0.0  # type: ignore[arg-type]

    policies = [jax.jit(jax.grad(partial(policy, which=which))) for which in (0, 1)]
    optimizers = {name: Adam(of(w, *name), eps=1e-8) for name in (("q",), ("policy",), ("log_alpha",))}
    for iteration in range(4):
        parts = [recorder.rollout(recipe, k) for k in range(max(0, iteration - 1), iteration + 1)]
        rows = ((np.arange(ROWS) + 0.5) / ROWS * 14 * len(parts)).astype(int)
        d = {name: np.concatenate([np.concatenate(part[name]) for part in parts])[rows].astype("float32") for name in parts[0]}
        assert np.abs(d["action"]).max() <= 1
        if recipe.norm_reward:
            d["reward"] = (d["reward"] / np.float32(variance_of_returns(recipe, recorder, iteration) ** 0.5)).clip(-10, 10)
        losses = []
        for update in range(recipe.gradient_steps):
            value, gradient = critic(of(w, "q"), w, target, d)
            losses.append(float(value))
            if not iteration:
                continue
            w = {**w, **optimizers[("q",)].step(of(w, "q"), gradient, recipe.q_lr, norm)}
            is_last = (update + 1) % recipe.policy_frequency == 0
            if is_last:
                new = optimizers[("policy",)].step(of(w, "policy"), policies[0](of(w, "policy"), w, d), recipe.policy_lr, norm)
                if "log_alpha" in w:
                    slope = policies[1](of(w, "log_alpha"), w, d)
                    new |= optimizers[("log_alpha",)].step(of(w, "log_alpha"), slope, recipe.q_lr, np.inf)
                w = {**w, **new}
            if is_last or recipe.algorithm == "sac":
                target = {name: value + recipe.tau * (w[name] - value) for name, value in target.items()}
        np.testing.assert_allclose(recorder.rows[iteration]["loss"], np.mean(losses), rtol=1e-5)
        assert set(w) == set(recorder.parameters[iteration])
        for name, expected in w.items():
            np.testing.assert_allclose(recorder.parameters[iteration][name], expected, rtol=1e-5, atol=1e-5, err_msg=name)
        w = dict(recorder.parameters[iteration])  # so that rounding does not add up
    assert np.abs(w["policy.0.weight"] - recorder.parameters[0]["policy.0.weight"]).max() > 0.01


def test_the_density_of_a_squashed_gaussian() -> None:
    """It integrates to 1, is that of the draws, and stays finite where tanh rounds to 1."""
    ctx = tp.Context("n")
    with ctx as ((n, N),):
        policy = SquashedGaussian(tp.constant([0.4]) + 0.0 * n, tp.constant([-0.3]))
        action, log_prob = policy.sample_with_log_prob()
        again = policy.log_prob(action)
        grid = SquashedGaussian(tp.constant([0.4]), tp.constant([-0.3])).log_prob(tp.input("grid", (999, 1)))
        far = SquashedGaussian(tp.constant([40.0, -40.0]), tp.constant([-5.0, 2.0])).from_noise(tp.constant([0.5, -3.0]))
        outputs = [action, log_prob, again, grid, *far, policy.mode()[0], policy.entropy()]
    places = np.linspace(-0.998, 0.998, 999, dtype="float32")[:, None]
    drawn, density, recovered, on_grid, ends, at_ends, mode, entropy = ctx.run({N: 4000}, outputs, {"grid": places})
    np.testing.assert_allclose(density, recovered, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(np.trapezoid(np.exp(on_grid), places[:, 0]), 1.0, atol=0.01)
    np.testing.assert_allclose(
        [(drawn < x).mean() for x in (-0.5, 0.5)], [0.103, 0.579], atol=0.03
    )  # Φ((arctanh x - 0.4) / e^-0.3)
    np.testing.assert_allclose(ends, [1.0, -1.0])
    x = np.array([40.0 + 0.5 * np.exp(-5), -40 - 3 * np.exp(2)])
    expected = (
        -0.5 * np.array([0.5, 3.0]) ** 2 - np.array([-5, 2]) - 0.5 * np.log(2 * np.pi) - (2 * np.log(2) - 2 * np.abs(x))
    ).sum()
    np.testing.assert_allclose(at_ends, expected, rtol=1e-5)
    np.testing.assert_allclose(mode, np.tanh([0.4]), rtol=1e-6)
    np.testing.assert_allclose(np.mean(entropy), -np.mean(density), atol=0.05)


def test_a_deterministic_policy_has_one_action() -> None:
    ctx = tp.Context()
    with ctx:
        policy = Deterministic(tp.input("mean", (2, 1)))
        outputs = [policy.sample(), policy.mode(), policy.log_prob(tp.constant([[0.5], [0.5]])), policy.entropy()]
    mean = np.array([[0.5], [-0.5]], "float32")
    drawn, mode, log_prob, entropy = ctx.run({}, outputs, {"mean": mean})
    assert (drawn == mean).all() and (mode == mean).all() and log_prob.tolist() == [0.0, -np.inf] and entropy.tolist() == [0, 0]


def test_actions_are_mapped_to_their_bounds_in_a_line() -> None:
    space = Continuous((2,), (-2.0, 0.0), (2.0, 1.0), is_scaled=True)
    outward = space.outward(np.array([[-1.0, -1.0], [0.5, 0.5], [1.0, 3.0]], "float32"))
    np.testing.assert_allclose(outward, [[-2, 0], [1, 0.75], [2, 1]])


@pytest.mark.slow
def test_noise_goes_on_from_step_to_step() -> None:
    """Actions before learning starts are uniform, whatever their correlation; that from one step to the next is the recipe's."""
    keys = {"algorithm": "td3", "num_steps": 1000, "total_timesteps": 2000, "learning_starts": 2000, "gradient_steps": 2}
    for rho in (0.0, 0.9):
        recorder = Recorder()
        agent = build_agent(make_recipe(SMALL | keys | {"noise_correlation": rho}), recorder)
        recorder.listen(agent.environment.host)  # type: ignore[attr-defined]
        agent.context.run(agent.bounds, outputs=[], config=tp.Config())
        actions = np.array(recorder.actions)[..., 0]  # (T, B)
        np.testing.assert_allclose([np.mean(np.abs(actions) < x) for x in (0.25, 0.5, 0.75)], [0.25, 0.5, 0.75], atol=0.1)
        assert abs(np.corrcoef(actions[1:].ravel(), actions[:-1].ravel())[0, 1] - rho) < 0.1
        assert abs(np.corrcoef(actions[:, 0], actions[:, 1])[0, 1]) < 0.2


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a delay": ({"algorithm": "td3", "gradient_steps": 3}, "policy_frequency=2 does not divide gradient_steps=3"),
    "a rate": ({"algorithm": "sac", "learning_rate": 0.1}, "learning_rate is not a key of SAC: write q_lr and policy_lr"),
    "an entropy": ({"algorithm": "td3", "ent_coef": 0.1}, "ent_coef is not a key of TD3: leave it out"),
    "tanh": ({"algorithm": "sac", "squash_actions": True}, "the actions of SAC are always between their bounds"),
    "a memory": ({"algorithm": "sac", "network": "gru"}, "network=gru is for ppo"),
    "a correlation": ({"algorithm": "sac", "noise_correlation": 1.0}, "noise_correlation is 1.0"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_keys_that_are_refused(case: str) -> None:
    keys, message = REFUSED[case]
    with pytest.raises(RecipeError, match=message):
        make_recipe(keys)


@pytest.mark.parametrize("kind", [SAC, TD3])
def test_choices_are_refused(kind: Callable[..., Any]) -> None:
    with pytest.raises(EnvError, match="is for continuous actions, but those of CartPole-v1 are choices"):
        build_agent(kind("CartPole-v1", total_timesteps=640).recipe, Recorder())


@pytest.mark.slow
@pytest.mark.parametrize("kind", [SAC, TD3])
def test_an_agent_predicts_actions_of_the_environment(kind: Callable[..., Any], tmp_path: Any) -> None:
    keys = {"num_envs": 2, "num_steps": 4, "gradient_steps": 2, "total_timesteps": 24, "batch_size": 4, "hidden": [3]}
    agent = kind("Pendulum-v1", eval_episodes=0, norm_obs=True, norm_reward=True, **keys).train()
    greedy, drawn = (agent.predict(np.ones((64, 3)), deterministic=d) for d in (True, False))
    assert greedy.shape == (64, 1) and np.abs(drawn).max() <= 2.0
    assert (greedy == greedy[0]).all() and (drawn == drawn[0]).all() == (kind is TD3)
    assert (kind.load(agent.save(tmp_path / "policy.safetensors")).predict(np.ones(3)) == greedy[0]).all()  # type: ignore[attr-defined]


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_pictures_are_stored_once(dtype: str) -> None:
    """The observation is its own number in time (times two environments, plus the environment); the final one of an episode is 200."""
    recipe = make_recipe(
        {"algorithm": "dqn", "num_envs": 2, "num_steps": 4, "buffer_size": 16, "batch_size": 64, "total_timesteps": 40}
    )
    assert isinstance(recipe, DQNRecipe)
    ctx = tp.Context("i", "t", "b")
    with ctx as ((i, I), (t, T), (b, B)):
        obs = tp.input("obs", (1, 1), dtype, domain=(i, t, b))
        truncated = tp.input("truncated", (), "bool", domain=(i, t, b))
        final = tp.where(truncated, 200.0, obs.astype("float32") + 2.0).astype(dtype)
        unused = tp.zeros(())
        step = Transition(final, unused, truncated, truncated, final, unused, unused)
        replayed = Replay.of(recipe, Observations((1, 1), dtype), i, (T, B), (i,))
        following, weight = replayed.following(obs, step)
        ends = replayed(truncated)
        outputs = [replayed(obs), following, weight + tp.zeros(()) * i, ends]
    numbers = np.arange(40).reshape(5, 4, 2)
    inputs = {"obs": numbers[..., None, None].astype(dtype), "truncated": numbers % 6 == 5}
    now, after, weights, ended = ctx.run({I: 5, T: 4, B: 2}, outputs, inputs)
    assert now.dtype == after.dtype == dtype
    now, after, expected = now[..., 0, 0].astype(int), after[..., 0, 0].astype(int), now[..., 0, 0].astype(int) + 2
    if dtype == "uint8":
        np.testing.assert_array_equal(after, expected)
        assert ((weights == 0) == ended).all() and ended.any()
        np.testing.assert_allclose(weights.mean(-1), 1.0, rtol=1e-6)
    else:
        np.testing.assert_array_equal(after, np.where(ended, 200, expected))
        assert (weights == 1).all()
    for k in range(5):
        oldest, end = 8 * max(0, k - 1), 8 * (k + 1) - (2 if dtype == "uint8" else 0)
        assert set(now[k]) <= set(range(oldest, end)) and len(set(now[k])) > (end - oldest) * 0.7
    with pytest.raises(RecipeError, match=r"pictures are stored once.*\n.*num_steps=2"), tp.Context("i") as ((i, I),):
        Replay.of(recipe.model_copy(update={"num_steps": 1}), Observations((1, 1), "uint8"), i, (I, I), (i,))


@pytest.mark.parametrize("observations", [Observations((3,), "uint8"), Observations((2, 3), "uint8", frames=2)])
def test_bytes_that_are_not_pictures_are_stored_with_their_successors(observations: Observations) -> None:
    recipe = make_recipe({"algorithm": "dqn", "num_envs": 2, "num_steps": 1, "frames": observations.frames})
    assert isinstance(recipe, DQNRecipe)
    with tp.Context("i") as ((i, I),):
        replayed = Replay.of(recipe, observations, i, (I, I), (i,))
        assert not replayed.stores_once and replayed.frames == 1


def test_an_update_without_rows_that_count_is_skipped() -> None:
    """Episodes that a time limit ends after each step until the third iteration; a buffer of two."""
    keys = {"num_envs": 2, "num_steps": 4, "buffer_size": 16, "batch_size": 64, "total_timesteps": 40, "learning_starts": 17}
    recipe = make_recipe({"algorithm": "dqn", **keys})
    assert isinstance(recipe, DQNRecipe)
    ctx = tp.Context("i", "t", "b")
    with ctx as ((i, I), (t, T), (b, B)):
        obs, truncated = tp.input("obs", (1, 1), "uint8", domain=(i, t, b)), tp.input("truncated", (), "bool", domain=(i, t, b))
        unused = tp.zeros(())
        step = Transition(obs, unused, truncated, truncated, obs, unused, unused)
        pictures, numbers = (Replay.of(recipe, Observations(shape, "uint8"), i, (T, B), (i,)) for shape in ((1, 1), (1,)))
        outputs = [tp.where(each.learns(each.following(obs, step)[1]), 1, 0) for each in (pictures, numbers)]
    inputs = {"obs": np.zeros((5, 4, 2, 1, 1), np.uint8), "truncated": np.repeat([1, 1, 1, 0, 0], 8).reshape(5, 4, 2) > 0}
    learns, starts = ctx.run({I: 5, T: 4, B: 2}, outputs, inputs)
    assert learns.tolist() == [0, 0, 0, 1, 1] and starts.tolist() == [0, 0, 1, 1, 1]


def test_stacks_are_made_of_frames_that_are_stored_once() -> None:
    """Episodes of four steps, three frames of which the first is repeated: rows have the stacks that acting saw, at any age of the buffer."""
    keys = {"num_envs": 2, "num_steps": 3, "buffer_size": 12, "batch_size": 64, "frames": 3, "total_timesteps": 36}
    recipe = make_recipe({"algorithm": "dqn", **keys})
    assert isinstance(recipe, DQNRecipe)
    ctx = tp.Context("i", "t", "b")
    with ctx as ((i, I), (t, T), (b, B)):
        obs = tp.input("obs", (3, 1, 1), "uint8", domain=(i, t, b))
        length, truncated = (
            tp.input(name, (), dtype, domain=(i, t, b)) for name, dtype in (("length", "int32"), ("truncated", "bool"))
        )
        unused = tp.zeros(())
        step = Transition(obs, unused, truncated, truncated, obs, unused, length)
        replayed = Replay.of(recipe, Observations((3, 1, 1), "uint8", frames=3), i, (T, B), (i,))
        following, weight = replayed.following(obs, step)
        outputs = [replayed.observed(obs, step), replayed(obs), following, weight + tp.zeros(()) * i]
    number = np.arange(18).repeat(2).reshape(6, 3, 2)  # the step of the run
    age = number % 4
    stacks = np.stack([10 * (number - np.minimum(age, k)) + np.arange(2) for k in (2, 1, 0)], -1)[..., None, None].astype("uint8")
    inputs = {"obs": stacks, "length": (age + 1).astype("int32"), "truncated": age == 3}
    rebuilt, seen, after, weights = ctx.run({I: 6, T: 3, B: 2}, outputs, inputs)
    np.testing.assert_array_equal(rebuilt, seen)
    for k in range(6):
        steps, environments = np.divmod(seen[k, :, -1, 0, 0].astype(int), 10)
        first, last = (0 if k < 2 else 3 * (k - 1) + 2), 3 * (k + 1) - 2  # two earlier frames, and a successor
        assert set(steps) == set(range(first, last + 1))
        goes_on = steps % 4 != 3
        assert ((weights[k] > 0) == goes_on).all()
        np.testing.assert_array_equal(after[k][goes_on], stacks.reshape(18, 2, 3, 1, 1)[steps + 1, environments][goes_on])
    with pytest.raises(RecipeError, match=r"buffer_size=6 holds fewer steps.*\n.*buffer_size=12"), tp.Context("i") as ((i, I),):
        Replay.of(recipe.model_copy(update={"buffer_size": 6}), Observations((3, 1, 1), "uint8", frames=3), i, (I, I), (i,))


def test_final_pictures_are_not_kept() -> None:
    """A buffer of 400 more steps needs 400 more pictures of bytes, and small numbers, also if agents see stacks of three."""

    def bytes_of(buffer_size: int) -> int:
        keys = {
            "network": "cnn",
            "frames": 3,
            "total_timesteps": 8000,
            "buffer_size": buffer_size,
            "num_envs": 2,
            "num_steps": 4,
            "hidden": [8],
        }
        recipe = make_recipe({"algorithm": "dqn", "env": {"id": "jax/Catch-v0"}, **keys})
        return sum(tensor.bytes for tensor in build_agent(recipe, Recorder()).compile().plan().tensors)

    assert 400 * 144 < bytes_of(800) - bytes_of(400) < 400 * (144 + 20)


class Pictures:
    """A dot on a line of eight pixels, which an action moves; in the middle the reward is 1."""

    observation_space = gym.spaces.Box(0, 255, (8, 8), np.uint8)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    max_episode_steps = 5

    def initial(self, rng: Any, params: Any = None) -> Any:
        return jax.random.uniform(rng, (1,)) * 8

    def transition(self, state: Any, action: Any, rng: Any, params: Any = None) -> Any:
        return jnp.clip(state + action, 0.0, 7.9)

    def observation(self, state: Any, rng: Any, params: Any = None) -> Any:
        return jnp.zeros((8, 8), "uint8").at[4, state[0].astype(int)].set(255)

    def reward(self, state: Any, action: Any, next_state: Any, rng: Any, params: Any = None) -> Any:
        return (jnp.abs(next_state[0] - 4) < 1).astype("float32")

    def terminal(self, state: Any, rng: Any, params: Any = None) -> Any:
        return jnp.asarray(False)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [SAC, TD3])
def test_pictures_are_learned_from(kind: Callable[..., Any]) -> None:
    """The critics have convolutions of their own, which learn, as those of the policy do."""
    keys: Any = {"num_envs": 2, "num_steps": 4, "gradient_steps": 4, "total_timesteps": 32, "batch_size": 4, "hidden": [4]}
    seen = list[dict[str, np.ndarray]]()
    agent = kind(Pictures, network="cnn", convolutions=[(2, 3, 2)], eval_episodes=0, **keys)
    agent.train(callbacks=[lambda iteration: seen.append(dict(iteration.parameters))])
    for name in (
        "convolution.0.weight",
        "critic.convolution.0.weight",
        "trunk.0.weight",
        "policy.0.weight",
        "q1.0.weight",
        "q2.1.weight",
    ):
        assert (seen[0][name] != seen[-1][name]).any(), name
    assert agent.predict(np.zeros((8, 8), np.uint8)).shape == (1,)


def test_what_to_try_if_learning_diverges_are_keys_of_the_agent() -> None:
    for algorithm, key in (("sac", "q_lr"), ("td3", "policy_lr"), ("dqn", "learning_rate")):
        hint = lower(make_recipe({"algorithm": algorithm}))
        assert f"lower {key}" in hint or f"and {key}" in hint
