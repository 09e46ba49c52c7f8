"""Chat templates: a model's Jinja text, which wraps a user's message in the form that the model was trained on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from tempo_llm.errors import TokenizerError
from tempo_llm.json_files import JsonObject


@dataclass(frozen=True)
class ChatTemplate:
    """A template and the special tokens that it may name, such as `bos_token`."""

    text: str
    tokens: Mapping[str, str]

    @staticmethod
    def find(root: Path, settings: JsonObject) -> ChatTemplate | None:
        """The template of a model directory: `chat_template.jinja`, else `chat_template` of tokenizer_config.json."""
        text = settings.get("chat_template")
        if isinstance(text, list):  # several, by name
            text = {entry["name"]: entry["template"] for entry in text}.get("default")
        file = root / "chat_template.jinja"
        if file.exists():
            text = file.read_text(encoding="utf-8")
        if not text:
            return None
        names = ("bos_token", "eos_token", "unk_token", "pad_token")
        return ChatTemplate(text, {name: token for name in names if (token := token_text(settings.get(name)))})

    def render(self, message: str, system_prompt: str | None = None) -> str:
        """The text of a conversation with one message of the user, up to the place where the model answers."""
        try:
            import jinja2
            import jinja2.sandbox
        except ImportError:
            raise TokenizerError(
                "this model's chat template needs the package jinja2", hint="pip install 'tempo-dl[llm]', or use --raw"
            ) from None
        messages = [] if system_prompt is None else [{"role": "system", "content": system_prompt}]
        messages.append({"role": "user", "content": message})
        # A template is downloaded code: the sandbox keeps it away from Python objects.
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = lambda layout: datetime.now().strftime(layout)
        try:
            return environment.from_string(self.text).render(messages=messages, add_generation_prompt=True, **self.tokens)
        except jinja2.TemplateError as error:
            raise TokenizerError(
                f"the model's chat template fails: {error}", hint="use --raw to send the prompt without it"
            ) from None


def token_text(token: Any) -> str | None:
    """A special token of tokenizer_config.json: a string, or an object with its `content`."""
    if isinstance(token, Mapping):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _refuse(message: str) -> NoReturn:
    raise TokenizerError(f"the model's chat template refuses this conversation: {message}")
