"""PPO: Tempo's recipes against hand-written programs for the same work.

functional: `recipes/ppo_functional.yaml` (environment in JAX) against one jitted JAX program, in milliseconds per iteration
micro:      `recipes/ppo_micro.yaml` (one update on the whole batch) against one jitted JAX program, and one whose gradient is cut into strips
host:       `recipes/ppo.yaml` (Gymnasium) against a JAX loop, and a PyTorch loop in the style of CleanRL, in environment steps per second

    python -m benchmarks.ppo [--quick] [--out FILE]
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.common import Results, arguments, compared, in_turn, say, show

# (name, environments, steps, iterations per run)
FUNCTIONAL = [("recipe", 32, 64, 20), ("512x250", 512, 250, 4)]
FUNCTIONAL_QUICK = [("quick", 8, 16, 2)]
# (name, environments, steps, iterations per run, options of the recipe)
MICRO: list[tuple[str, int, int, int, list[str]]] = [
    ("512x250", 512, 250, 4, []),
    ("64x250", 64, 250, 8, []),
    ("2048x250", 2048, 250, 2, []),
    ("512x50", 512, 50, 8, []),
    ("512x1000", 512, 1000, 2, []),
    ("512x250, 3 layers", 512, 250, 4, ["hidden=[64, 64, 64]"]),
    ("32x250, images", 32, 250, 2, ["env.kwargs.observation_shape=[3, 64, 64]", "env.kwargs.pictures=true"]),
    ("32x250, images of floats", 32, 250, 2, ["env.kwargs.observation_shape=[3, 64, 64]"]),
]
MICRO_QUICK: list[tuple[str, int, int, int, list[str]]] = [("quick", 8, 16, 2, [])]
HOST = [("recipe", 32, 64, 4), ("8x128", 8, 128, 4)]
HOST_QUICK = [("quick", 8, 16, 2)]


class LastMetrics:
    """A monitor that keeps the metrics of the last iteration."""

    def __init__(self) -> None:
        self.metrics: dict[str, float] = {}

    def finished(self, iteration: int, metrics: Mapping[str, Any], parameters: Mapping[str, Any]) -> None:
        self.metrics = {name: float(value) for name, value in metrics.items()}


def main() -> None:
    options = arguments(__doc__ or "")
    results = Results("ppo", options)
    for name, envs, steps, iterations in FUNCTIONAL_QUICK if options.quick else FUNCTIONAL:
        if results.selects(f"functional {name}"):
            functional(results, f"functional {name}", envs, steps, iterations)
    for name, envs, steps, iterations, settings in MICRO_QUICK if options.quick else MICRO:
        if results.selects(f"micro {name}"):
            micro(results, f"micro {name}", envs, steps, iterations, settings)
    for name, envs, steps, iterations in HOST_QUICK if options.quick else HOST:
        if results.selects(f"host {name}"):
            host(results, f"host {name}", envs, steps, iterations)
    results.finish()


def recipe_of(name: str, envs: int, steps: int, iterations: int, settings: Sequence[str] = ()) -> Any:
    from tempo_rl.recipe import load_recipe

    sizes = {"num_envs": envs, "num_steps": steps, "total_timesteps": envs * steps * iterations}
    return load_recipe(name, [*(f"{key}={value}" for key, value in sizes.items()), *settings])


def build_ours(recipe: Any) -> tuple[Any, Any, LastMetrics, float]:
    """The agent, its compiled program, its monitor, and the seconds that tracing, passes and scheduling took."""
    from tempo_rl.agents import build_agent
    from tempo_rl.train import compile_config

    monitor = LastMetrics()
    start = time.perf_counter()
    agent = build_agent(recipe, monitor)
    program = agent.compile(compile_config(recipe))
    return agent, program, monitor, time.perf_counter() - start


# -- environments in JAX ----------------------------------------------------------------------------------------------


def functional(results: Results, name: str, envs: int, steps: int, iterations: int) -> None:
    """Milliseconds per iteration, and seconds of compiling."""
    import jax

    from benchmarks.peers.jax_ppo import make_training
    from tempo_rl.env.functional_env import make_single

    recipe = recipe_of("ppo_functional", envs, steps, iterations)
    _, program, monitor, ours_front = build_ours(recipe)
    program.run({})  # compiles
    xla = program.compile_seconds - sum(program.timing.values())

    single = make_single(recipe.env.id)
    start = time.perf_counter()
    lowered = make_training(recipe, single, iterations).lower(np.uint32(0))
    traced = time.perf_counter()
    train = lowered.compile()
    compiled = time.perf_counter()
    peer_results: dict[str, Any] = {}

    def peer() -> None:
        peer_results["metrics"] = jax.device_get(train(np.uint32(recipe.seed)))[1]

    play = environment_only(single, envs, steps, iterations)
    sides = {
        "tempo": lambda: program.run({}),
        "JAX by hand": peer,
        "environment only": lambda: np.asarray(play(np.uint32(recipe.seed))),
    }
    figures = compared(in_turn(sides, results.options.turns), iterations, 1e3)
    show(f"{name}: {envs} environments x {steps} steps, {iterations} iterations a run", figures, "ms/iteration")
    compile_seconds = {
        "tempo": {"trace, passes, schedule": ours_front, "xla": xla, "total": ours_front + xla},
        "JAX by hand": {"trace": traced - start, "xla": compiled - traced, "total": compiled - start},
    }
    say("  compile seconds: " + "; ".join(f"{who} " + parts_of(parts) for who, parts in compile_seconds.items()))
    peer_return = float(peer_results["metrics"]["episodic_return"][-1])
    returns = {"tempo": monitor.metrics["episodic_return"], "JAX by hand": peer_return}
    say("  return in the last iteration: " + ", ".join(f"{who} {value:.1f}" for who, value in returns.items()))
    memory = {"JAX by hand": train.memory_analysis().temp_size_in_bytes}
    results.add(
        name,
        envs=envs,
        steps=steps,
        iterations=iterations,
        ms_per_iteration=figures,
        compile_seconds=compile_seconds,
        last_return=returns,
        temporary_bytes=memory,
    )


def micro(results: Results, name: str, envs: int, steps: int, iterations: int, settings: Sequence[str]) -> None:
    """Milliseconds per iteration, and bytes: of arguments, results and temporaries together."""
    import jax

    from benchmarks.peers.jax_micro import make_training
    from tempo_rl.env.functional_env import make_single

    recipe = recipe_of("ppo_micro", envs, steps, iterations, settings)
    _, program, monitor, _ = build_ours(recipe)
    program.run({})  # compiles
    single = make_single(recipe.env.id, recipe.num_steps, **recipe.env.kwargs)
    strips = next(count for count in range(25, 0, -1) if steps % count == 0)
    peers = {"JAX by hand": 1, f"JAX by hand, {strips} strips": strips}
    trained = {
        who: make_training(recipe, single, iterations, count).lower(np.uint32(0)).compile() for who, count in peers.items()
    }
    returns: dict[str, float] = {}

    def by_hand(who: str) -> Any:
        def run() -> None:
            returns[who] = float(jax.device_get(trained[who](np.uint32(recipe.seed)))[1]["episodic_return"][-1])

        return run

    sides = {"tempo": lambda: program.run({}), **{who: by_hand(who) for who in peers}}
    figures = compared(in_turn(sides, results.options.turns), iterations, 1e3)
    show(f"{name}: {envs} environments x {steps} steps, {iterations} iterations a run", figures, "ms/iteration")
    returns = {"tempo": monitor.metrics["episodic_return"], **returns}
    say("  return in the last iteration: " + ", ".join(f"{who} {value:.1f}" for who, value in returns.items()))
    memory = {"tempo": program.plan().peak_device_bytes}
    for who, compiled in trained.items():
        sizes = compiled.memory_analysis()
        memory[who] = sizes.argument_size_in_bytes + sizes.output_size_in_bytes + sizes.temp_size_in_bytes
    say("  megabytes: " + ", ".join(f"{who} {size / 1e6:.0f}" for who, size in memory.items()))
    results.add(
        name,
        envs=envs,
        steps=steps,
        iterations=iterations,
        settings=list(settings),
        ms_per_iteration=figures,
        last_return=returns,
        bytes=memory,
    )


def environment_only(single: Any, envs: int, steps: int, iterations: int) -> Any:
    """A jitted function of a seed, which plays the environments with random actions and returns the sum of all their results."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    reset, advance = jax.vmap(single.initial), jax.vmap(single.step)

    def play(seed: Any) -> Any:
        def step(state: Any, key: Any) -> tuple[Any, Any]:
            action_key, env_key = jax.random.split(key)
            action = jax.random.randint(action_key, (envs,), 0, single.actions.count)
            state, *results = advance(state, action, jax.random.bits(env_key, (envs, 2), "uint32"))
            return state, sum(x.astype(jnp.float32).sum() for x in results)  # XLA would not compute an unread result

        first, key = jax.random.split(jax.random.key(seed))
        state, _ = reset(jax.random.bits(first, (envs, 2), "uint32"))
        return lax.scan(step, state, jax.random.split(key, steps * iterations))[1].sum()

    return jax.jit(play)


def parts_of(parts: Mapping[str, float]) -> str:
    return ", ".join(f"{what} {seconds:.1f}" for what, seconds in parts.items())


# -- environments on the host -----------------------------------------------------------------------------------------


def host(results: Results, name: str, envs: int, steps: int, iterations: int) -> None:
    """Environment steps per second."""
    from benchmarks.peers import jax_host_ppo
    from tempo_rl.env.vector import make_host

    recipe = recipe_of("ppo", envs, steps, iterations)
    agent, program, monitor, front = build_ours(recipe)
    jax_env, torch_env, plain_env = (make_host(recipe.env.id, envs, recipe.seed) for _ in range(3))
    by_hand, peer_results = jax_host_ppo.Training(recipe, jax_env, iterations), {}
    random = np.random.default_rng(0)

    def play() -> None:
        plain_env.reset()
        for _ in range(steps * iterations):
            plain_env.step(random.integers(0, plain_env.actions.count, envs))

    program.run({})  # compiles
    xla = program.compile_seconds - sum(program.timing.values())

    def jax_peer() -> None:
        peer_results["JAX by hand"] = by_hand.run()

    sides: dict[str, Any] = {"tempo": lambda: program.run({}), "JAX by hand": jax_peer}
    try:
        from benchmarks.peers.torch_ppo import Training
    except ModuleNotFoundError as error:
        results.skip(f"{name}: PyTorch by hand ({error}; pip install 'tempo-dl[torch]')")
    else:
        training = Training(recipe, torch_env, iterations)
        threads = training.choose_threads()
        say(f"{name}: PyTorch runs with {threads} threads, the fastest of what was tried")

        def peer() -> None:
            peer_results["PyTorch by hand"] = training.run()

        sides["PyTorch by hand"] = peer
    sides["environment only"] = play
    seconds = in_turn(sides, results.options.turns)
    figures = compared(seconds, iterations, 1e3)
    show(f"{name}: {envs} environments x {steps} steps, {iterations} iterations a run", figures, "ms/iteration")
    rates = {who: envs * steps * iterations / statistics.median(runs) for who, runs in seconds.items()}
    say("  environment steps a second: " + ", ".join(f"{who} {rate:,.0f}" for who, rate in rates.items()))
    returns = {"tempo": monitor.metrics["episodic_return"]}
    returns |= {side: metrics["episodic_return"] for side, metrics in peer_results.items()}
    say("  return in the last iteration: " + ", ".join(f"{who} {value:.1f}" for who, value in returns.items()))
    for environment in (agent.environment, jax_env, torch_env, plain_env):
        environment.close()
    results.add(
        name,
        envs=envs,
        steps=steps,
        iterations=iterations,
        ms_per_iteration=figures,
        steps_per_second=rates,
        compile_seconds={"tempo": {"trace, passes, schedule": front, "xla": xla, "total": front + xla}},
        last_return=returns,
    )


if __name__ == "__main__":
    main()
