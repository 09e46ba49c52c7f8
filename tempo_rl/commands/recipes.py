"""Commands on recipes: to list, copy and check them, and to print the plan of their program."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from tempo_core.runs.plain import dump_yaml
from tempo_rl.commands.app import (
    AsJson,
    CacheDirectory,
    Devices,
    MemoryLimit,
    NoCache,
    Overrides,
    RecipeArgument,
    chosen_cache,
    errors_as_messages,
    others_aside,
    say_imports,
    with_limit,
)
from tempo_rl.errors import RecipeError, RunError
from tempo_rl.recipe import Recipe, dump_recipe, find_recipe, known_part, load_recipe, read_values, shipped_recipes
from tempo_rl.references import foreign_references
from tempo_rl.reports import aligned, say_json
from tempo_rl.streams import echo


def plan(
    recipe: RecipeArgument,
    overrides: Overrides = None,
    full: Annotated[bool, typer.Option("--full", help="Print each statement and each store on its own line.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the memory of all tensors and its peaks, as JSON.")] = False,
    memory_picture: Annotated[
        Path | None,
        typer.Option("--memory-picture", metavar="FILE", help="Draw the memory, moment by moment, as a trace (.json)."),
    ] = None,
    devices: Devices = "1",
    memory_limit: MemoryLimit = None,
    cache: CacheDirectory = None,
    no_cache: NoCache = False,
) -> None:
    """Print the schedule, the stores and the device programs of the compiled program. Nothing is trained."""
    with errors_as_messages():
        with others_aside(as_json):
            loaded = load_recipe(recipe, with_limit(overrides, memory_limit), say_imports)
            from tempo_core.runs.device import use_device

            chosen_devices = use_device(None, devices)
            from tempo_rl.train import plan as make_plan

            text = make_plan(loaded, full, as_json, memory_picture, chosen_cache(cache, no_cache), chosen_devices)
        echo(text)


def list_recipes(as_json: AsJson = False) -> None:
    """List the shipped recipes."""
    with errors_as_messages():
        rows = list[tuple[str, ...]]()
        for name, path in shipped_recipes().items():
            loaded, _ = known_part(*read_values(str(path)))  # without importing what recipes of the working directory name
            if as_json:
                say_json({"recipe": name, **_summary(loaded), "path": path})
            rows.append((name, loaded.algorithm, loaded.env.id, f"{loaded.total_timesteps:,} steps", str(path)))
        for line in [] if as_json else aligned(rows, right=(3,)):
            echo(line)


def copy_recipe(
    recipe: RecipeArgument,
    target: Annotated[Path, typer.Argument(metavar="FILE", help="Where the copy goes; it must not exist.")],
    as_json: AsJson = False,
) -> None:
    """Copy a recipe to FILE, for you to change."""
    with errors_as_messages():
        source = find_recipe(recipe)
        target = target / source.name if target.is_dir() else target
        if target.exists():
            raise RecipeError(f"{target} exists already")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
        except OSError as error:
            raise RunError(f"{target} cannot be written: {error}") from error
    if as_json:
        say_json({"source": source, "target": target})
    else:
        echo(f"{source} -> {target}")


def validate(
    recipe: RecipeArgument,
    overrides: Overrides = None,
    trust: Annotated[bool, typer.Option("--trust", help="Import your own code that the recipe names, and check it too.")] = False,
    memory_limit: MemoryLimit = None,
    as_json: AsJson = False,
    cache: CacheDirectory = None,
    no_cache: NoCache = False,
) -> None:
    """Check a recipe, make its environments, compile its program, and print the recipe with every key resolved.

    If the recipe names your own code, that code is imported and checked with --trust only.
    """
    with errors_as_messages():
        overrides = with_limit(overrides, memory_limit)
        values, where = read_values(recipe, overrides)
        references = foreign_references(values)
        if references and not trust:
            known, others = known_part(values, where)
            if as_json:
                say_json(_validated(known, others, references))
                return
            echo(dump_recipe(known) + (dump_yaml(others) if others else ""), nl=False)
            echo(f"# would import {', '.join(references)}; not imported, so only a part is checked. To check all: --trust")
            return
        from tempo_rl.train import check

        with others_aside(as_json):
            loaded = load_recipe(recipe, overrides, say_imports)
            if not as_json:
                echo(dump_recipe(loaded), nl=False)
            check(loaded, chosen_cache(cache, no_cache))
    if as_json:
        say_json(_validated(loaded, {}, []))
    else:
        echo(f"# valid: {loaded.iterations} iterations of {loaded.num_envs * loaded.num_steps} steps")


def _summary(recipe: Recipe) -> dict[str, object]:
    return {"algorithm": recipe.algorithm, "env": recipe.env.id, "total_timesteps": recipe.total_timesteps}


def _validated(recipe: Recipe, others: Mapping[str, object], references: Sequence[str]) -> dict[str, object]:
    """A recipe that was checked, for programs; only in part, if it would import references."""
    return {
        "valid": True,
        "is_whole": not references,
        "not_imported": references,
        "iterations": recipe.iterations,
        "steps_per_iteration": recipe.num_envs * recipe.num_steps,
        "recipe": {**recipe.model_dump(mode="json"), **others},
    }
