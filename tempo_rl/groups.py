"""Runs whose recipes differ in the seed alone, as groups, each with a name that says how it differs from the others."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from tempo_rl.recipe import ALGORITHMS, KIND, Recipe
from tempo_rl.rundir import RunDirectory

# Keys that change no number of training. A folder in front of a dot stands for all keys in it.
WITHOUT_EFFECT = (
    "seed", "save_every", "keep", "eval_every", "env_timeout", "check_finite", "memory_limit", "swap", "jsonl", "tensorboard", "track",
    "wandb",
)  # fmt: skip
UNSET = object()

Keys = Mapping[str, object]  # of a recipe; those inside of others have dots, such as `env.id`


@dataclass(frozen=True)
class Group:
    """Runs of one recipe, in the order in which they were named. `keys` are those of the recipe that have an effect.

    Of a run with many members, each member is a run: the file of its metrics.
    """

    runs: tuple[Path, ...]
    keys: Keys
    seeds: tuple[object, ...]
    label: str = ""

    @property
    def env(self) -> str:
        return str(self.keys.get("env.id"))


def groups_of(runs: Sequence[Path], without: str | None = None) -> list[Group]:
    """The groups of some runs. A run that is named twice counts once. The key `without`, and all keys in it, do not tell groups apart.

    Nothing that a recipe names is imported. Raises `RecipeError` for a directory that holds no recipe.
    """
    members: dict[str, list[tuple[Path, Keys, object]]] = {}
    for path in {path.resolve(): path for path in runs}.values():
        for run, of_run, seed in _members_of(path):
            keys = _with_effect(of_run, without)
            members.setdefault(json.dumps(keys, sort_keys=True, default=str), []).append((run, keys, seed))
    groups = [
        Group(tuple(path for path, _, _ in each), each[0][1], tuple(seed for _, _, seed in each)) for each in members.values()
    ]
    labels = labels_of([group.keys for group in groups])
    return [Group(group.runs, group.keys, group.seeds, label) for group, label in zip(groups, labels, strict=True)]


def _members_of(path: Path) -> list[tuple[Path, Keys, object]]:
    """A run with its keys and its seed, or its members: the file of the metrics of each, its keys and its seed."""
    values, keys = RunDirectory(path).values(), keys_of(path)
    seed, sweep = values.get("seed"), values.get("sweep")
    swept: Mapping[str, Sequence[object]] = sweep if isinstance(sweep, Mapping) else {}
    count = values.get("seeds", 1)
    names = sorted(swept)
    points = [dict(zip(names, point, strict=True)) for point in itertools.product(*(swept[name] for name in names))]
    alone = {key: value for key, value in keys.items() if not _is_in(key, ("seeds", "sweep"))}
    if not isinstance(count, int) or count * len(points) == 1:
        return [(path, alone, seed)]
    first = seed if isinstance(seed, int) else 0
    each = [(point, first + k) for point in points for k in range(count)]
    return [(RunDirectory(path).member(k), {**alone, **point}, number) for k, (point, number) in enumerate(each)]


def keys_of(run: Path) -> Keys:
    """The keys of a run's recipe with their values. A key that is younger than the run has its default. Raises `RecipeError`."""
    values = RunDirectory(run).values()
    model = ALGORITHMS.get(str(values.get(KIND)), Recipe)
    defaults = {
        name: TypeAdapter(object).dump_python(field.get_default(call_default_factory=True), mode="json")
        for name, field in model.model_fields.items()
        if not field.is_required()
    }
    return dict(_flattened({**defaults, **values}))


def labels_of(recipes: Sequence[Keys]) -> list[str]:
    """A name for each recipe: the algorithm and the environment if not all have the same, and the keys whose values differ.

    Keys differ between recipes of one algorithm and environment: that another algorithm has other defaults is no news.
    """
    algorithms, envs = ([recipe.get(key) for recipe in recipes] for key in (KIND, "env.id"))
    labels = []
    for recipe, algorithm, env in zip(recipes, algorithms, envs, strict=True):
        alike = [other for other, *kind in zip(recipes, algorithms, envs, strict=True) if kind == [algorithm, env]]
        parts = [str(algorithm)] if len(set(map(str, algorithms))) > 1 else []
        parts += [f"on {env}"] if len(set(map(str, envs))) > 1 else []
        named = [" ".join(parts)] if parts else []
        named += [_text(key, recipe.get(key, UNSET)) for key in _differing(alike)]
        labels.append(", ".join(named) or f"{algorithm} on {env}")
    return labels


def title_of(groups: Sequence[Group]) -> str:
    """What all groups have in common: the algorithm, the environment, both, or nothing."""
    algorithms, envs = ({str(group.keys.get(key)) for group in groups} for key in (KIND, "env.id"))
    parts = [*algorithms] if len(algorithms) == 1 else []
    return " on ".join(parts + ([*envs] if len(envs) == 1 else []))


def _differing(recipes: Sequence[Keys]) -> list[str]:
    """The keys whose values differ, in the order of the recipes."""
    names = dict.fromkeys(key for recipe in recipes for key in recipe)
    return [key for key in names if any(recipe.get(key, UNSET) != recipes[0].get(key, UNSET) for recipe in recipes)]


def _text(key: str, value: object) -> str:
    if value is UNSET:
        return f"{key} unset"
    return f"{key}={value if isinstance(value, str) else json.dumps(value, default=str)}"


def _with_effect(keys: Keys, without: str | None) -> Keys:
    folders = (*WITHOUT_EFFECT, *([] if without is None else [without]))
    return {key: value for key, value in keys.items() if not _is_in(key, folders)}


def _is_in(key: str, folders: Iterable[str]) -> bool:
    return any(key == folder or key.startswith(f"{folder}.") for folder in folders)


def _flattened(values: Mapping[str, object], prefix: str = "") -> Iterable[tuple[str, object]]:
    """Keys inside of others have dots. An empty mapping says nothing."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flattened(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
