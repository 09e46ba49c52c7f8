"""What a shell completes for `tempo-llm`: models in folders and in the package, names of recipes, and `key=value` of the recipe that the line names."""

from __future__ import annotations

import typer


def models(incomplete: str) -> list[str]:
    """The checkpoints in `checkpoints/` and in the package. A shell offers files where none has this beginning."""
    from tempo_llm.hub import CHECKPOINTS, shipped_checkpoints

    names = {path.parent.name for folder in (CHECKPOINTS, shipped_checkpoints()) for path in folder.glob("*/config.json")}
    return [name for name in sorted(names) if name.startswith(incomplete)]


def recipes(incomplete: str) -> list[str]:
    """The recipes of language models in `recipes/` and in the package."""
    from tempo_core.runs.recipe import shipped_recipes
    from tempo_llm.training.recipe import KIND

    return [name for name in sorted(shipped_recipes(KIND)) if name.startswith(incomplete)]


def overrides(context: typer.Context, incomplete: str) -> list[str]:
    """The keys of the recipe with their values; none for a recipe that is not there or is wrong."""
    from tempo_core.runs.commands import UserError, assignments
    from tempo_llm.training.recipe import load_recipe

    try:
        recipe = load_recipe(context.params["recipe"])
    except (UserError, KeyError):
        return []
    return assignments(recipe.model_dump(mode="json"), incomplete, context.params.get("overrides") or ())
