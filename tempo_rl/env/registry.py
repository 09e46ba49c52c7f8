"""The environments in JAX that an id names without code of the user's own: recognised without importing anything."""

from __future__ import annotations

from dataclasses import dataclass

# id -> (functional environment, steps after which an episode is truncated: as Gymnasium registers them, or None for those of a rollout)
FUNCTIONAL: dict[str, tuple[str, int | None]] = {
    "phys2d/CartPole-v0": ("gymnasium.envs.phys2d.cartpole:CartPoleFunctional", 200),
    "phys2d/CartPole-v1": ("gymnasium.envs.phys2d.cartpole:CartPoleFunctional", 500),
    "phys2d/Pendulum-v0": ("gymnasium.envs.phys2d.pendulum:PendulumFunctional", 200),
    "jax/Acrobot-v1": ("tempo_rl.env.classic:Acrobot", 500),
    "jax/CartPole-v1": ("tempo_rl.env.classic:CartPole", 500),
    "jax/Catch-v0": ("tempo_rl.env.catch:Catch", 1000),
    "jax/MountainCarContinuous-v0": ("tempo_rl.env.classic:MountainCarContinuous", 999),
    "jax/Pendulum-v1": ("tempo_rl.env.classic:Pendulum", 200),
    "Trivial": ("tempo_rl.env.trivial:Trivial", None),
}


@dataclass(frozen=True)
class Adapter:
    """How environments of a library are made: `PREFIX/NAME` is `adapter(module of the library, NAME, **env.kwargs)`.

    `packages` are the library's packages as Python imports them, the last one with its environments; `install` is what pip installs.
    """

    packages: tuple[str, ...]
    install: str
    adapter: str


ADAPTERS: dict[str, Adapter] = {
    "brax": Adapter(("brax", "brax.envs"), "'tempo-dl[brax]'", "tempo_rl.env.adapters.brax_env:Brax"),
    "craftax": Adapter(("craftax", "craftax.craftax_env"), "craftax", "tempo_rl.env.adapters.craftax:Craftax"),
    "gymnax": Adapter(("gymnax",), "'gymnax>=1.0' six", "tempo_rl.env.adapters.gymnax:Gymnax"),
    "jumanji": Adapter(("jumanji",), "jumanji", "tempo_rl.env.adapters.jumanji:Jumanji"),
    "pgx": Adapter(("pgx",), "pgx", "tempo_rl.env.adapters.pgx:Pgx"),
    "playground": Adapter(("mujoco_playground",), "playground", "tempo_rl.env.adapters.playground:Playground"),
    "xminigrid": Adapter(("xminigrid",), "xminigrid", "tempo_rl.env.adapters.xminigrid:XMiniGrid"),
}

# packages of environments that Gymnasium makes on the host: the start of the entry point, or of the id -> what pip installs
HOST_PACKAGES: dict[str, str] = {
    "gymnasium.envs.mujoco": "'tempo-dl[mujoco]'",
    "gymnasium.envs.box2d": "'gymnasium[box2d]'",
    "gymnasium.envs.toy_text": "'gymnasium[toy-text]'",
    "gymnasium.envs.classic_control": "'gymnasium[classic-control]'",
    "ALE/": "ale-py, and write env.id=ale_py:ALE/...",
}


def is_functional(env_id: str) -> bool:
    """Whether `env_id` names an environment in JAX: a row of `FUNCTIONAL`, or one of a library of `ADAPTERS`.

    What a `module:name` is, is known when it is imported: `tempo_rl.env.source.named`.
    """
    return env_id in FUNCTIONAL or adapter_of(env_id) is not None


def adapter_of(env_id: str) -> Adapter | None:
    """The library that an id such as "brax/ant" names, if it names one."""
    prefix, slash, _ = env_id.partition("/")
    return ADAPTERS.get(prefix) if slash else None


def install_for(env_id: str, entry_point: object) -> str | None:
    """What pip installs for an environment that Gymnasium makes, if that is known."""
    starts = (name for name in HOST_PACKAGES if str(entry_point).startswith(name) or env_id.startswith(name))
    return next((HOST_PACKAGES[name] for name in starts), None)
