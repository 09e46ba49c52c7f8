"""Chat templates: a model's Jinja text, which wraps messages in the form that the model was trained on."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tempo_llm.errors import TokenizerError
from tempo_llm.files import read_text
from tempo_llm.json_files import JsonObject
from tempo_llm.template_process import WORKER, TemplateProcess

SECONDS = 10  # that a template may take
MEMORY = 2**30  # bytes that its process may have
LONGEST_TEMPLATE, LONGEST_TEXT = 2**20, 2**24  # characters

Message = Mapping[str, str]
"""`{"role": "user", "content": "Hello"}`; the roles are system, user and assistant."""


@dataclass(frozen=True)
class ChatTemplate:
    """A template and the special tokens that it may name, such as `bos_token`. With `tools`, a model may have another one, `tool_use`."""

    text: str
    tokens: Mapping[str, str]
    tool_use: str | None = None

    @staticmethod
    def find(root: Path, settings: JsonObject) -> ChatTemplate | None:
        """The template of a model directory, where `transformers` looks for it: `chat_template.jinja` and `additional_chat_templates/*.jinja`,
        else `chat_template` of tokenizer_config.json, which may be a list of names and templates. None if there is none of the name "default".

        Raises TokenizerError if it is damaged.
        """
        file = root / "chat_template.jinja"
        files = {"default": file} if file.exists() else {}
        files |= {each.stem: each for each in sorted((root / "additional_chat_templates").glob("*.jinja"))}
        texts: Mapping[str, Any] = _named(root, settings.get("chat_template"))
        if files:
            texts = {name: _read(each) for name, each in files.items()}
        for name, text in texts.items():
            source = files.get(name, root / "tokenizer_config.json")
            if text and not isinstance(text, str):
                raise TokenizerError(
                    f"{source}: chat_template is {type(text).__name__}, not a string", hint="to send prompts without it: --raw"
                )
            if text and len(text) > LONGEST_TEMPLATE:
                raise TokenizerError(f"{source}: the chat template has {len(text)} characters; the most are {LONGEST_TEMPLATE}")
        if not texts.get("default"):
            return None
        return ChatTemplate(texts["default"], special_tokens(root, settings), texts.get("tool_use"))

    def with_tools(self, tools: object) -> str:
        """The text for a conversation with these tools, which may be None."""
        return self.text if tools is None or self.tool_use is None else self.tool_use

    def render(self, message: str, system_prompt: str | None = None) -> str:
        """The text of a conversation with one message of the user, up to the place where the model answers."""
        return self.render_all([conversation(message, system_prompt)])[0]

    def render_all(
        self,
        conversations: Sequence[Sequence[Mapping[str, Any]]],
        prompt: bool = True,
        variables: Mapping[str, Any] = MappingProxyType({}),
        process: TemplateProcess | None = None,
    ) -> list[str]:
        """The texts of conversations, each up to the place where the model answers next, or, without `prompt`, to its last message.

        `variables` are further ones that the template may use, such as `tools`, as JSON has them. The `process` of earlier conversations
        renders these too.

        The template runs in a process of its own, in a sandbox, for SECONDS seconds at most. Raises TokenizerError if it fails.
        """
        if importlib.util.find_spec("jinja2") is None:
            raise TokenizerError(
                "this model's chat template needs the package jinja2",
                hint="send prompts without it, --raw, or install it: pip install 'tempo-dl[llm]'",
            )
        known = {"tools": None, "documents": None, **self.tokens, **variables}  # as `transformers` has them
        request = {
            "template": self.with_tools(known["tools"]),
            "conversations": [[_plain(message) for message in messages] for messages in conversations],
            "prompt": prompt,
            "tokens": known,
            "paths": sys.path,
            "bytes": MEMORY,
        }
        try:
            said = _of_one(request) if process is None else process.ask(request)
        except subprocess.TimeoutExpired:
            raise _failed(f"it takes more than {SECONDS} seconds") from None
        except OSError as error:
            raise _failed(f"its process cannot be started: {error}") from None
        answer = _answer(said)
        if "refusal" in answer:
            raise TokenizerError(f"the model's chat template refuses this conversation: {_one_line(answer['refusal'])}")
        texts = answer.get("texts")
        if texts is None:
            raise _failed(answer.get("error", "its process ended"))
        if max(map(len, texts), default=0) > LONGEST_TEXT:
            raise _failed(f"its text is longer than {LONGEST_TEXT} characters")
        return texts


def _of_one(request: JsonObject) -> str:
    """What a process says that renders these conversations alone."""
    command = [sys.executable, "-I", "-S", str(WORKER)]
    text = json.dumps(request)
    done = subprocess.run(
        command, input=text, capture_output=True, encoding="utf-8", errors="replace", timeout=SECONDS, check=False
    )
    return done.stdout


def conversation(message: str, system_prompt: str | None = None) -> list[Message]:
    """A conversation that begins with a user's message."""
    system = [] if system_prompt is None else [{"role": "system", "content": system_prompt}]
    return [*system, {"role": "user", "content": message}]


def special_tokens(root: Path, settings: JsonObject) -> dict[str, str]:
    """The special tokens that have a name, by their names, such as `bos_token`; a model may have some of its own, such as `image_token`.

    They are those of tokenizer_config.json; of special_tokens_map.json in a model without `added_tokens_decoder`, which is an older one.
    """
    file = root / "special_tokens_map.json"
    try:
        old = dict(json.loads(_read(file))) if "added_tokens_decoder" not in settings and file.exists() else {}
    except (ValueError, TypeError, RecursionError) as error:
        raise TokenizerError(f"{file} is not a JSON object: {error}") from None
    values = {**settings, **old}
    found = {name: value for name, value in values.items() if name.endswith("_token")}
    for key in ("extra_special_tokens", "model_specific_special_tokens"):
        found |= values[key] if isinstance(values.get(key), dict) else {}
    return {name: text for name, token in found.items() if (text := token_text(token)) is not None}


def token_text(token: Any) -> str | None:
    """A special token of tokenizer_config.json: a string, or an object with its `content`."""
    if isinstance(token, Mapping):
        token = token.get("content")
    return token if isinstance(token, str) else None


_REASONING = ("reasoning_content", "thinking", "reasoning")  # names of what a model thought, the usual one first


def _plain(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message as `transformers` shows it to a template: without what is None, and with a model's thoughts by the names that templates read."""
    plain = {name: value for name, value in message.items() if value is not None}
    thoughts = next((plain[name] for name in _REASONING if name in plain), None)
    return plain if thoughts is None else {"thinking": thoughts, **plain, "reasoning_content": thoughts}


def _named(root: Path, templates: object) -> dict[str, Any]:
    """The templates in tokenizer_config.json by their names."""
    if not isinstance(templates, list):
        return {"default": templates}
    try:
        return {entry["name"]: entry["template"] for entry in templates}
    except (TypeError, KeyError):
        raise TokenizerError(
            f"{root / 'tokenizer_config.json'}: chat_template is a list, but not one of names and templates"
        ) from None


def _read(file: Path) -> str:
    try:
        return read_text(file)
    except (OSError, UnicodeDecodeError) as error:
        raise TokenizerError(f"{file} cannot be read: {error}", hint="to send prompts without it: --raw") from None


def _answer(text: str) -> dict[str, Any]:
    try:
        answer = json.loads(text)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _failed(reason: str) -> TokenizerError:
    return TokenizerError(f"the model's chat template fails: {_one_line(reason)}", hint="to send prompts without it: --raw")


def _one_line(text: str) -> str:
    return " ".join(text.split())
