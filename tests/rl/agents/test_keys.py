"""The keys of agents in Python: `tempo_rl/keys.pyi`, which type checkers and editors read, says what the recipes say."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel

from tempo_rl.recipe import ALGORITHMS, ContinuousRecipe, Recipe, ReplayRecipe, ScheduleRecipe

NAMES = {recipe: f"{name.upper()}Keys" for name, recipe in ALGORITHMS.items()}
NAMES |= {ALGORITHMS["actor_critic"]: "A2CKeys", ALGORITHMS["reinforce"]: "ReinforceKeys"}
NAMES |= {Recipe: "Keys", ReplayRecipe: "ReplayKeys", ContinuousRecipe: "ContinuousKeys"}
HEAD = """# Written by `pytest tests/rl/agents/test_keys.py --update-golden` from the recipes in `tempo_rl/recipe.py`.
from typing import Literal, Required, TypedDict

from tempo_rl.recipe import WandbRecipe
"""


def written(annotation: Any) -> str:
    """A type as a user writes it: the limits of numbers are left out, and a schedule is a dict."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return written(parts[0])
    if origin is typing.Union or origin is types.UnionType:
        return " | ".join(map(written, parts))
    if origin is typing.Literal:
        return f"Literal[{', '.join(map(json.dumps, parts))}]"
    if origin is not None:
        return f"{origin.__name__}[{', '.join(map(written, parts))}]"
    return {types.NoneType: "None", ScheduleRecipe: "Schedule"}.get(annotation) or annotation.__name__


def keys_of(recipe: type[BaseModel]) -> dict[str, str]:
    types_of = {key: written(field.annotation) for key, field in recipe.model_fields.items() if key not in ("algorithm", "env")}
    needed = {key for key, field in recipe.model_fields.items() if field.is_required()}
    return {key: f"Required[{text}]" if key in needed else text for key, text in types_of.items()}


def class_of(name: str, base: str, what: str, keys: dict[str, str]) -> str:
    lines = [
        f"class {name}({base}, total=False):",
        f'    """{what}"""',
        "",
        *(f"    {key}: {text}" for key, text in keys.items()),
    ]
    return "\n".join(lines) + "\n"


def test_the_typed_keys_are_those_of_the_recipes(golden: Callable[[str, str], None]) -> None:
    parts = [HEAD, class_of("Schedule", "TypedDict", "A number that changes over the run.", keys_of(ScheduleRecipe))]
    for recipe in sorted(NAMES, key=lambda r: len(r.__mro__)):
        base = NAMES.get(recipe.__base__)  # type: ignore[arg-type]
        inherited = {} if base is None else keys_of(recipe.__base__)  # type: ignore[arg-type]
        own = {key: text for key, text in keys_of(recipe).items() if inherited.get(key) != text}
        what = f"The keys of `{recipe.__name__}`."
        parts.append(class_of(NAMES[recipe], base or "TypedDict", what, own))
    golden("../../tempo_rl/keys.pyi", "\n".join(parts))
