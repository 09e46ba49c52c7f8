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
    """A template and the special tokens that it may name, such as `bos_token`."""

    text: str
    tokens: Mapping[str, str]

    @staticmethod
    def find(root: Path, settings: JsonObject) -> ChatTemplate | None:
        """The template of a model directory: `chat_template.jinja`, else `chat_template` of tokenizer_config.json.

        Raises TokenizerError if it is damaged.
        """
        source, text = root / "tokenizer_config.json", settings.get("chat_template")
        if isinstance(text, list):  # several, by name
            try:
                text = {entry["name"]: entry["template"] for entry in text}.get("default")
            except (TypeError, KeyError):
                raise TokenizerError(f"{source}: chat_template is a list, but not one of names and templates") from None
        file = root / "chat_template.jinja"
        if file.exists():
            source = file
            try:
                text = read_text(file)
            except (OSError, UnicodeDecodeError) as error:
                raise TokenizerError(f"{file} cannot be read: {error}", hint="to send prompts without it: --raw") from None
        if not text:
            return None
        if not isinstance(text, str):
            raise TokenizerError(
                f"{source}: chat_template is {type(text).__name__}, not a string", hint="to send prompts without it: --raw"
            )
        if len(text) > LONGEST_TEMPLATE:
            raise TokenizerError(f"{source}: the chat template has {len(text)} characters; the most are {LONGEST_TEMPLATE}")
        names = ("bos_token", "eos_token", "unk_token", "pad_token")
        return ChatTemplate(text, {name: token for name in names if (token := token_text(settings.get(name)))})

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
        request = {
            "template": self.text,
            "conversations": [[dict(message) for message in messages] for messages in conversations],
            "prompt": prompt,
            "tokens": {**self.tokens, **variables},
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


def token_text(token: Any) -> str | None:
    """A special token of tokenizer_config.json: a string, or an object with its `content`."""
    if isinstance(token, Mapping):
        token = token.get("content")
    return token if isinstance(token, str) else None


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
