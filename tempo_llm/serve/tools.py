"""Tools that a model may call: how they are told to it, the schemas of their calls, and the calls in what it wrote."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence

from tempo_llm.serve.problems import Problem
from tempo_llm.serve.schemas import ChatBody, Function, NamedTool
from tempo_llm.tokenizer import Tokenizer

_TOLD = """Functions: {functions}
To call one, answer with JSON: {{"name": ..., "{key}": {{...}}}}

"""


class Tools:
    """The tools of a request. `is_forced`: the answer is a call; else it may be one, if it begins with `{`, or as the template has it."""

    def __init__(self, functions: Sequence[Function], is_forced: bool, template: str):
        self.functions, self.is_forced = functions, is_forced
        self.is_told = "tools" in template  # the template tells of tools by itself
        is_llama = self.is_told and '"parameters"' in template and "<tool_call>" not in template
        self.key = "parameters" if is_llama else "arguments"
        self.is_wrapped = "<tool_call>" in template  # calls may stand between marks

    @staticmethod
    def of(body: ChatBody, tokenizer: Tokenizer) -> Tools | None:
        """None if no tool may be called. Raises Problem."""
        functions, choice = [tool.function for tool in body.tools or ()], body.tool_choice
        if not functions:
            if choice not in (None, "none", "auto"):
                raise Problem(400, "`tool_choice` asks for a call, but there are no `tools`", "tool_choice", "invalid_value")
            return None
        names = [function.name for function in functions]
        if len({*names}) < len(names):
            raise Problem(400, "two of the `tools` have the same name", "tools", "invalid_value")
        if choice == "none":
            return None
        if isinstance(choice, NamedTool):
            functions = [function for function in functions if function.name == choice.function.name]
            if not functions:
                name = choice.function.name[:64]
                raise Problem(
                    400, f"`tool_choice` names {name!r}; the tools are {', '.join(names)}", "tool_choice", "invalid_value"
                )
        template = "" if tokenizer.template is None else tokenizer.template.with_tools(functions)
        return Tools(functions, choice == "required" or isinstance(choice, NamedTool), template)

    @property
    def variables(self) -> dict[str, object]:
        """What a template knows of the tools."""
        return {"tools": [{"type": "function", "function": self._shown(each)} for each in self.functions]} if self.is_told else {}

    def tell(self, messages: list[dict[str, object]]) -> None:
        """Tell of the tools in the first message of a user, if the template does not."""
        first = next((message for message in messages if message["role"] == "user"), None)
        if not self.is_told and first is not None:
            functions = json.dumps([self._shown(each) for each in self.functions], separators=(",", ":"))
            first["content"] = f"{_TOLD.format(functions=functions, key=self.key)}{first['content']}"

    @property
    def schemas(self) -> list[dict[str, object]]:
        """The JSON of a call of each tool. Arguments that a tool does not name are left out, unless its parameters ask for them."""
        return [
            {
                "type": "object",
                "properties": {
                    "name": {"const": each.name},
                    self.key: {"additionalProperties": False, **(each.parameters or {"type": "object"})},
                },
                "required": ["name", self.key],
                "additionalProperties": False,
            }
            for each in self.functions
        ]

    def may_be_call(self, text: str) -> bool:
        """Whether a text that has begun so may become a call."""
        return not text or text[0] == "{" or (self.is_wrapped and text[0] == "<")

    def calls(self, text: str) -> list[dict[str, object]]:
        """The calls that an answer is: none if it is a text, or no whole call."""
        inner = text.strip().removeprefix("<tool_call>").removesuffix("</tool_call>").strip()
        try:
            value = json.loads(inner)
        except ValueError:
            return []
        if not isinstance(value, Mapping) or not isinstance(value.get(self.key), Mapping):
            return []
        if value.get("name") not in [each.name for each in self.functions]:
            return []
        function = {"name": value["name"], "arguments": json.dumps(value[self.key])}
        return [{"id": f"call_{secrets.token_hex(12)}", "type": "function", "function": function}]

    @staticmethod
    def _shown(function: Function) -> dict[str, object]:
        description = {} if function.description is None else {"description": function.description}
        parameters = function.parameters or {"type": "object", "properties": {}}
        return {"name": function.name, **description, "parameters": parameters}
