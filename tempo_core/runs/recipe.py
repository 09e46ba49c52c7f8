"""Recipes: YAML with `key=value` overrides, validated by a class of pydantic. An unknown key is refused, with the nearest right one."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from tempo_core.runs.commands import RecipeError
from tempo_core.runs.plain import dump_yaml, read_yaml

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Plain: TypeAlias = Mapping[str, Any]
"""The content of a YAML file: values, lists and further mappings, by name."""

Unit = Annotated[float, Field(ge=0.0, le=1.0)]
NonNegative = Annotated[float, Field(ge=0.0)]
Positive = Annotated[float, Field(gt=0.0)]
Count = Annotated[int, Field(ge=1)]

M = TypeVar("M", bound=BaseModel)


class Strict(BaseModel):
    """Keys of a recipe. A key that the class does not have is an error, and so are a number that is not finite, and `true` for a number."""

    model_config = ConfigDict(extra="forbid", validate_default=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_truth_for_numbers(cls, value: object, info: ValidationInfo) -> object:
        """pydantic would take True for 1."""
        field = cls.model_fields[str(info.field_name)]
        kinds = set(_leaves(field.annotation))
        if kinds & {int, float} and not kinds & {bool, object, Any} and any(isinstance(each, bool) for each in _leaves_of(value)):
            default = field.get_default(call_default_factory=True)
            example = f", such as {info.field_name}={json.dumps(default)}" if isinstance(default, (int, float, list)) else ""
            raise PydanticCustomError("number", "it must be a number{example}", {"example": example})
        return value


def _leaves(annotation: object) -> Iterator[object]:
    """The types in an annotation, such as int and None in `int | None`."""
    parts = get_args(annotation)
    if not parts:
        yield annotation
    for part in parts:
        yield from _leaves(part)


def _leaves_of(value: object) -> Iterator[object]:
    if not isinstance(value, (list, tuple)):
        yield value
        return
    for each in value:
        yield from _leaves_of(each)


class WandbRecipe(Strict):
    """Weights & Biases, when `track` is on; offline without an API key."""

    project: str = "tempo-rl"
    entity: str | None = None
    group: str | None = None
    tags: list[str] = Field(default_factory=list)


# -- files ------------------------------------------------------------------------------------------------------------


def recipe_folders() -> list[Path]:
    """The folders in which a recipe is looked up by name: `recipes/` of the working directory, then the shipped recipes.

    In a wheel the shipped recipes are inside this package; in a checkout they are beside it.
    """
    package = Path(str(resources.files("tempo_core.runs")))
    in_wheel, in_checkout = package / "recipes", package.parents[1] / "recipes"
    return [Path("recipes"), in_wheel if in_wheel.is_dir() else in_checkout]


def shipped_recipes(kind: str) -> dict[str, Path]:
    """The recipes in `recipe_folders` that have the key `kind` at their top, by name."""
    paths: dict[str, Path] = {}
    for folder in recipe_folders():
        for path in sorted(folder.glob("*.yaml")):
            if re.search(rf"^{kind}\s*:", _text(path), re.MULTILINE):
                paths.setdefault(path.stem, path)
    return paths


def find_recipe(name: str, kind: str) -> Path:
    """A recipe's path: `name` itself, or the shipped recipe of that name and kind. Raises `RecipeError`."""
    path = Path(name)
    try:
        if path.is_file():
            return path
    except OSError as error:  # a name of hundreds of letters
        raise RecipeError(f"there is no recipe {name[:40]}...: {error.strerror}") from error
    shipped = shipped_recipes(kind)
    if name in shipped:
        return shipped[name]
    near = difflib.get_close_matches(path.stem, shipped, n=1)
    hint = f"did you mean {shipped[near[0]]}?" if near else f"the shipped recipes are: {', '.join(sorted(shipped)) or 'none'}"
    raise RecipeError(f"there is no recipe {name}", hint=hint)


def read_recipe(path: Path, hint: str) -> Plain:
    """The keys of a recipe file. Raises `RecipeError`; `hint` says what a file without keys should begin with."""
    data = read_yaml(_text(path), str(path))
    if not isinstance(data, dict):
        raise RecipeError(f"{path} holds no keys", hint=hint)
    return data


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path} cannot be read: {error}") from error


def dump_recipe(recipe: BaseModel) -> str:
    """The recipe as YAML, with the value of every key."""
    return dump_yaml(recipe.model_dump(mode="json"))


# -- keys -------------------------------------------------------------------------------------------------------------


def merged(data: Plain, overrides: Iterable[str] = ()) -> dict[str, Any]:
    """Plain data with `key=value` overrides applied, and _ for - in keys. Raises `RecipeError`."""
    values = _plain(data)
    for override in overrides:
        _apply(values, override)
    return values


def check_flags(overrides: Iterable[str], flags: Iterable[str]) -> None:
    """Raise `RecipeError` for a flag of a command, as `key=value`, whose key an override sets to another value."""
    written = merged({}, overrides)
    for flag in flags:
        key, _, text = flag.partition("=")
        value, held = read_yaml(text, key), _value_at(written, key)
        if held is not None and held != value:
            name = f"--{key.replace('.', '-').replace('_', '-')}"
            raise RecipeError(
                f"the flag {name} sets {key} to {_shown(value)}, but an override sets it to {_shown(held)}",
                hint="leave one of them out",
            )


def _value_at(values: Plain, key: str) -> object:
    """The value of a dotted key; None if it is not there."""
    held: object = values
    for part in key.split("."):
        held = held.get(part) if isinstance(held, Mapping) else None
    return held


def validated(model: type[M], values: Plain, where: str) -> M:
    """A recipe from merged values. Raises `RecipeError`, which names `where` the data comes from and the key at fault."""
    _refuse_unknown(values, model, "", where)
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise RecipeError(f"{where}: " + "; ".join(map(_explain, error.errors()))) from error


def _plain(data: Plain) -> dict[str, Any]:
    values = dict[str, Any]()
    for key, value in data.items():
        name = str(key).replace("-", "_")
        if name in values:
            raise RecipeError(f"the key {name} appears twice, once with - and once with _", hint="leave one of them out")
        values[name] = _plain(value) if isinstance(value, Mapping) and key != "kwargs" else value
    return values


def _apply(data: dict[str, Any], override: str) -> None:
    """Set one dotted `key=value`. Values are YAML; keys may be written with - or _."""
    key, sign, text = override.partition("=")
    key = key.strip().removeprefix("--")
    if not sign or not key:
        raise RecipeError(f"{override!r} is not an override", hint="write key=value, such as learning-rate=1e-3")
    value = read_yaml(text, key)
    *outer, last = key.split(".")
    target = data
    for part in outer:
        target = target.setdefault(part.replace("-", "_"), {})
        if not isinstance(target, dict):
            raise RecipeError(f"{key}: {part} has a single value, and no keys inside")
    target[last if outer[-1:] == ["kwargs"] else last.replace("-", "_")] = value


def _refuse_unknown(data: Plain, model: type[BaseModel], prefix: str, where: str) -> None:
    for key, value in data.items():
        field = model.model_fields.get(key)
        if field is None:
            raise RecipeError(f"{where}: unknown key {prefix}{key}", hint=_nearest(key, model, prefix))
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel) and isinstance(value, Mapping):
            _refuse_unknown(value, field.annotation, f"{prefix}{key}.", where)


def _nearest(key: str, model: type[BaseModel], prefix: str) -> str:
    nested = [f"{name}.{key}" for name, f in model.model_fields.items() if key in getattr(f.annotation, "model_fields", {})]
    if nested:
        return f"did you mean {nested[0]}?"
    near = difflib.get_close_matches(key, model.model_fields, n=1, cutoff=0.5)
    return f"did you mean {prefix}{near[0]}?" if near else f"the keys are {', '.join(model.model_fields)}"


def _explain(error: ErrorDetails) -> str:
    location = ".".join(part for part in map(str, error["loc"]) if not part.startswith("("))  # but for tags of unions
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    return f"{location} is {_shown(error['input'])}: {error['msg'][0].lower()}{error['msg'][1:]}"


def _shown(value: object) -> str:
    """A value as recipes have it."""
    return str(value).lower() if isinstance(value, bool) else repr(value)
