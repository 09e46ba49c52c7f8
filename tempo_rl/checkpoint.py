"""Checkpoints: all that a run needs to go on, in one safetensors file, which is whole or refused.

A checkpoint holds the parameters, the recipe, the numbers of the run so far, and the state of the running program: the optimizer, the
random state, the clocks, the environments. A policy that was saved alone (`PPO.save`) has no state of a program.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import safetensors
import safetensors.numpy

import tempo_core as tp
from tempo_core.files import refusal, write_whole
from tempo_rl.env.saved import Plain
from tempo_rl.errors import CheckpointError
from tempo_rl.recipe import Recipe, make_recipe
from tempo_rl.references import foreign_references

FORMAT = "tempo-rl-3"
_PARAMETER, _PROGRAM = "parameter/", "program"


class Numbers(TypedDict, total=False):
    """Numbers of a run that a resumed one goes on from."""

    best: float | None  # the best mean return so far
    seconds: float
    recent_returns: list[float]
    members: list[list[float]]  # the same of each member, of a run with many


@dataclass(frozen=True)
class Checkpoint:
    """Parameters by name, the recipe that trained them, and the iterations and environment steps of training so far.

    `program` is the state of the program; None in a checkpoint that cannot be resumed. At the end of a run it is `behind` = 1 iteration
    behind the parameters: a state after the last iteration could not go on to more.
    """

    parameters: dict[str, np.ndarray]
    recipe: Recipe
    iterations: int
    env_steps: int
    progress: Numbers = field(default_factory=Numbers)
    program: tp.Snapshot | None = None
    behind: int = 0
    untrusted: tuple[str, ...] = ()  # references of the environment that may not be imported
    spaces: Plain | None = None  # of the environment, as `tempo_rl.env.saved` has them; None in files from before there were any

    def at_program(self) -> Checkpoint:
        """The checkpoint at the iteration of the program's state, which goes on from there."""
        steps = self.recipe.num_envs * self.recipe.num_steps
        return replace(self, iterations=self.iterations - self.behind, env_steps=self.env_steps - self.behind * steps, behind=0)


def for_member(checkpoint: Checkpoint, member: int | None = None) -> Checkpoint:
    """The policy of one member of a run with many, by default of the one with the best recent returns; another run's as it is.

    Raises `CheckpointError` for a member that the run does not have.
    """
    recipe = checkpoint.recipe
    if member is not None and not 0 <= member < recipe.count:
        raise CheckpointError(f"there is no member {member}", hint=f"the members are 0 to {recipe.count - 1}")
    if recipe.count == 1:
        return checkpoint
    chosen = best_member(checkpoint.progress) if member is None else member
    parameters = {name: np.array(value[chosen]) for name, value in checkpoint.parameters.items()}
    numbers = checkpoint.iterations, checkpoint.env_steps
    return Checkpoint(parameters, recipe.member(chosen), *numbers, spaces=checkpoint.spaces)


def best_member(progress: Numbers) -> int:
    """The member with the best mean of its recent returns; the first one before any episode has ended."""
    means = [float(np.mean(returns)) if returns else -np.inf for returns in progress.get("members", [[]])]
    return int(np.argmax(means))


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> Path:
    """Write under a temporary name, sync, then rename: a file with the name `path` is always complete. `checkpoints/` of a run
    is created, and no directory above it: a run that was renamed is not begun anew. Raises `CheckpointError`.
    """
    meta = {
        "recipe": checkpoint.recipe.model_dump(mode="json"),
        "iterations": checkpoint.iterations,
        "env_steps": checkpoint.env_steps,
        "progress": dict(checkpoint.progress),
        "behind": checkpoint.behind,
        "spaces": checkpoint.spaces,
    }
    arrays = {f"{_PARAMETER}{name}": np.ascontiguousarray(value) for name, value in checkpoint.parameters.items()}
    if checkpoint.program is not None:
        arrays[_PROGRAM] = np.frombuffer(checkpoint.program.encoded(), np.uint8)
    text = json.dumps(meta, sort_keys=True)
    header = {"format": FORMAT, "tempo_rl": text, "checksum": _checksum(arrays, text)}
    try:
        path.parent.mkdir(exist_ok=True)
        write_whole(path, safetensors.numpy.save(arrays, metadata=header))
    except OSError as error:
        raise CheckpointError(f"the checkpoint {path} cannot be written: {refusal(error, path)}") from error
    except MemoryError as error:
        raise CheckpointError(f"the checkpoint {path} cannot be written: there is too little memory for a copy of it") from error
    return path


def load_checkpoint(
    path: Path,
    trust: bool = True,
    allowed: Collection[str] = (),
    env: Mapping[str, Any] | None = None,
    without_env: bool = False,
) -> Checkpoint:
    """The checkpoint in `path`. Raises `CheckpointError` if it is missing, damaged, not a checkpoint of tempo-rl, or not finite.

    Without `trust`, a checkpoint is refused, and nothing imported, whose recipe names objects that are neither in
    `tempo_rl.references.NAMES` nor `allowed`. `env` are keys of another environment that take the place of those of the recipe, and that may
    name any object. The checkpoint then has no spaces. `without_env` loads a checkpoint with spaces, whose environment alone is not trusted:
    its references are `untrusted`, and who makes the environment calls `require_trust` before.
    """
    if not path.is_file():
        raise CheckpointError(f"there is no checkpoint {path}")
    try:
        with safetensors.safe_open(str(path), framework="numpy") as file:
            header = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} ({path.stat().st_size} bytes) cannot be read: {error}",
            hint="the file is truncated, or not a safetensors file; use an earlier checkpoint",
        ) from error
    if header.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} is a safetensors file, but not a checkpoint of this tempo-rl",
            hint=f"its format is {header.get('format', 'unknown')!r}, and must be {FORMAT!r}",
        )
    if _checksum(arrays, header.get("tempo_rl", "")) != header.get("checksum"):
        raise CheckpointError(f"{path} is damaged: its checksum is not that of its content", hint="use an earlier checkpoint")
    try:
        meta: Any = json.loads(header["tempo_rl"])
        if not isinstance(meta, dict) or not isinstance(meta["recipe"], dict):
            raise CheckpointError(f"{path} has damaged metadata: its recipe has no keys")
        if env is not None:
            meta |= {"recipe": {**meta["recipe"], "env": {**(meta["recipe"].get("env") or {}), **env}}, "spaces": None}
            allowed = [*allowed, *foreign_references({"env": env}, True)]
        foreign = [] if trust else [name for name in foreign_references(meta["recipe"], True) if name not in allowed]
        untrusted = (
            tuple(foreign_references({"env": meta["recipe"].get("env")}, True)) if without_env and meta.get("spaces") else ()
        )
        require_trust(path, [name for name in foreign if name not in untrusted])
        recipe = make_recipe(meta["recipe"], where=str(path))
        iterations, env_steps, progress = int(meta["iterations"]), int(meta["env_steps"]), Numbers(**meta["progress"])
        behind, spaces = int(meta.get("behind", 0)), meta.get("spaces")
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{path} has damaged metadata: {error}") from error
    parameters = {name.removeprefix(_PARAMETER): array for name, array in arrays.items() if name.startswith(_PARAMETER)}
    for name, value in parameters.items():
        _check_parameter(path, name, value)
    try:
        program = tp.Snapshot.decoded(arrays[_PROGRAM].tobytes(), f"the state in {path}") if _PROGRAM in arrays else None
    except tp.errors.StateError as error:
        raise CheckpointError(error.message, hint="use an earlier checkpoint") from error
    return Checkpoint(
        parameters, recipe, iterations, env_steps, progress, program, behind, tuple(set(untrusted) & set(foreign)), spaces
    )


def require_trust(path: Path, references: Sequence[str]) -> None:
    """Raise `CheckpointError` if there are references that a checkpoint may not import."""
    if references:
        raise CheckpointError(
            f"to load {path} would import {', '.join(references)}",
            hint="this runs code. If you trust its maker: --trust, or trust=True in Python",
        )


def _check_parameter(path: Path, name: str, value: np.ndarray) -> None:
    if not np.issubdtype(value.dtype, np.floating):
        raise CheckpointError(f"{path}: the parameter {name} is of {value.dtype}, but parameters must be floats")
    if not np.isfinite(value).all():
        raise CheckpointError(f"{path}: the parameter {name} is not finite", hint="use an earlier checkpoint")


def _checksum(arrays: Mapping[str, np.ndarray], text: str) -> str:
    """A checksum of all but the program's state, which has its own."""
    total = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        total.update(f"{name} {array.dtype} {array.shape}".encode())
        if name != _PROGRAM:
            total.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return total.hexdigest()
