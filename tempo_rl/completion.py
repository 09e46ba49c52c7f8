"""What a shell completes for `tempo-rl`: the names of recipes, and `key=value` of the recipe that the line names. No code of a user's is imported."""

from __future__ import annotations

import typer

from tempo_core.runs.commands import UserError, assignments


def recipes(incomplete: str) -> list[str]:
    """The recipes that `tempo-rl ls` lists. A shell offers files where none has this beginning."""
    from tempo_rl.recipe import shipped_recipes

    return [name for name in sorted(shipped_recipes()) if name.startswith(incomplete)]


def overrides(context: typer.Context, incomplete: str) -> list[str]:
    """The keys of the recipe with their values; none for a recipe that is not there or is wrong."""
    from tempo_rl.recipe import known_part, read_values

    try:
        recipe, _ = known_part(*read_values(context.params["recipe"]))
    except (UserError, KeyError):
        return []
    return assignments(recipe.model_dump(mode="json"), incomplete, context.params.get("overrides") or ())
