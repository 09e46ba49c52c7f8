"""YAML as recipes have it: numbers such as 1e6, each key once, and no references to other parts of the file."""

from __future__ import annotations

import re
from typing import Any

import yaml

from tempo_core.runs.commands import RecipeError

LONGEST = 100_000  # characters
DEEPEST = 20  # levels of lists and mappings


class _Loader(yaml.SafeLoader):
    """YAML 1.1 calls 1e6 a text, reads 010 as 8 and 1:30 as 90, takes the last of equal keys, and has references, with which a short file
    grows without end.
    """

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
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in lines:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value} appears twice, in line {lines[key.value]} and again", key.start_mark
                )
            lines[key.value] = key.start_mark.line + 1
        return super().construct_mapping(node, deep)

    def construct_number(self, node: yaml.ScalarNode) -> int | float:
        """A number, unless YAML reads it otherwise than people do."""
        text, digits = node.value, node.value.lstrip("+-")
        if ":" in digits:
            problem, instead = "would be minutes and seconds", f"if it is a string, write it in quotes: '{text}'"
        elif LEADING_ZERO.match(digits):
            plain = digits.replace("_", "").lstrip("0") or "0"
            problem = "begins with 0, and would be a number in base 8"
            instead = f"write {'-' * text.startswith('-')}{plain}; or, if it is a string, write it in quotes: '{text}'"
        else:
            return self.construct_yaml_float(node) if node.tag.endswith(":float") else self.construct_yaml_int(node)
        raise yaml.constructor.ConstructorError(None, None, f"{text} {problem}; {instead}", node.start_mark)


LEADING_ZERO = re.compile(r"0[\d_]*\d$")


class _Dumper(yaml.SafeDumper):
    """Writes in quotes each text that `_Loader` would take for a number."""


for _class in (_Loader, _Dumper):
    _class.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d[\d_]*)(\.[\d_]*)?[eE][-+]?\d+$"), list("-+0123456789")
    )
    # YAML takes 08 for a text.
    _class.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?0[\d_]*\d$"), list("-+0"))
for _kind in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _Loader.construct_number)


def dump_yaml(value: object) -> str:
    """Values, lists and mappings as YAML, which `read_yaml` reads. Keys keep their order."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False)


def read_yaml(text: str, where: str) -> object:
    """The value that `text` holds. Raises `RecipeError`, which names `where` the text is from."""
    if len(text) > LONGEST:
        raise RecipeError(f"{where} has {len(text):,} characters, but a recipe may have {LONGEST:,} at most")
    try:
        return yaml.load(text, _Loader)  # a safe loader: it makes values, lists and mappings only
    except yaml.constructor.ConstructorError as error:
        raise RecipeError(f"{where}: {_in_one_line(error, text)}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise RecipeError(f"{where} is not YAML: {_in_one_line(error, text)}") from error


def _in_one_line(error: Exception, text: str) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"{error.problem}, in line {error.problem_mark.line + 1}" if "\n" in text else str(error.problem)
    return str(error).splitlines()[0] if str(error) else type(error).__name__
