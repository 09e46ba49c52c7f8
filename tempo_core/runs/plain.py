"""YAML as recipes have it: numbers such as 1e6, each key once, and no references to other parts of the file."""

from __future__ import annotations

import re
from typing import Any

import yaml

from tempo_core.runs.errors import RecipeError

LONGEST = 100_000  # characters
DEEPEST = 20  # levels of lists and mappings


class _Loader(yaml.SafeLoader):
    """YAML 1.1 calls 1e6 a text, takes the last of equal keys, and has references, with which a short file grows without end."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(
                None, None, "references (*name) are not used in recipes", self.peek_event().start_mark
            )
        self.depth += 1
        if self.depth > DEEPEST:
            raise yaml.composer.ComposerError(None, None, f"more than {DEEPEST} levels", self.peek_event().start_mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice:
            raise yaml.constructor.ConstructorError(None, None, f"the key {twice[0]} is there twice", node.start_mark)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d[\d_]*)(\.[\d_]*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def read_yaml(text: str, where: str) -> object:
    """The value that `text` holds. Raises `RecipeError`, which names `where` the text is from."""
    if len(text) > LONGEST:
        raise RecipeError(f"{where} has {len(text):,} characters, and a recipe at most {LONGEST:,}")
    try:
        return yaml.load(text, _Loader)  # a safe loader: it makes values, lists and mappings only
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise RecipeError(f"{where} is not YAML: {_in_one_line(error)}") from error


def _in_one_line(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"{error.problem}, in line {error.problem_mark.line + 1}"
    return str(error).splitlines()[0] if str(error) else type(error).__name__
