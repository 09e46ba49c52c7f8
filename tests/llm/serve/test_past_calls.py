"""Past calls of tools in a conversation: templates find their arguments as objects, as they do in `transformers`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, cast

import pytest

import tempo_llm
from tempo_llm.serve.asked import Asking
from tempo_llm.serve.problems import Problem
from tempo_llm.serve.schemas import ChatBody, parsed

USER = {"role": "user", "content": "hi"}
FOUND = (  # a template that writes calls as JSON
    "{% for m in messages %}{% if m.tool_calls %}{% for c in m.tool_calls %}<tool_call>"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}</tool_call>{% endfor %}'
    "{% else %}[{{ m.role }}] {{ m.content }}\n{% endif %}{% endfor %}{% if add_generation_prompt %}[assistant] {% endif %}"
)
EACH = "{%% for m in messages %%}{%% for c in m.tool_calls or [] %%}{%% set a = c.function.arguments %%}%s{%% endfor %%}{%% endfor %%}"
WORDS = EACH % "{% for key, value in a.items() %}{{ key }}={{ value }};{% endfor %}"
JOINED = EACH % "{{ '!' + a }}"
EITHER = EACH % "{{ a if a is string else 'object' }}"


def asking(tmp_path: Path, template: str) -> Asking:
    directory = tmp_path / "model"
    shutil.copytree("checkpoints/tiny-llama", directory, dirs_exist_ok=True)
    settings = json.loads((directory / "tokenizer_config.json").read_text())
    (directory / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": template}))
    return Asking(tempo_llm.load(directory), 200, 50, cast(Any, None), 4)


def conversation(arguments: str) -> list[dict[str, Any]]:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    answers = [{"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c", "content": "4"}]
    return [USER, *answers]


def prompt(tmp_path: Path, template: str, arguments: str) -> list[int]:
    asks = asking(tmp_path, template)
    try:
        body = {"model": "m", "messages": conversation(arguments), "max_tokens": 2}
        return list(asks.chat(parsed(ChatBody, json.dumps(body).encode())).prompts[0])
    finally:
        asks.close()


def text(tmp_path: Path, template: str, arguments: str) -> str:
    ids = prompt(tmp_path, template, arguments)
    return tempo_llm.load(tmp_path / "model").tokenizer.decode(ids)


def test_arguments_are_an_object(tmp_path: Path) -> None:
    """With the arguments as a text, the template would encode them twice: 77 tokens."""
    assert len(prompt(tmp_path, FOUND, '{"a": 1}')) == 73
    assert '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>[tool] 4' in text(tmp_path, FOUND, '{"a":1}')


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("arguments", ['{"a": 1}', '{"b": ["é", null, {"c": 1.5}], "a": "\\"x\\""}', "{}"])
def test_tokens_are_those_of_transformers(tmp_path: Path, arguments: str) -> None:
    from transformers import AutoTokenizer

    ids = prompt(tmp_path, FOUND, arguments)
    messages = conversation(arguments)
    messages[1]["tool_calls"][0]["function"]["arguments"] = json.loads(arguments)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    assert ids == tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)


@pytest.mark.parametrize(
    ("template", "arguments", "written"),
    [
        (WORDS, '{"a": 1, "b": "x"}', "a=1;b=x;"),
        (WORDS, '{"</s>": "</s>"}', "</s>=</s>;"),  # a special token that is spelled out is a text, in a name too
        (WORDS, "", ""),
        (WORDS, "null", ""),
        (JOINED, '{"a":  1}', '!{"a":  1}'),  # a template that fails with objects has the text of the request
        (EITHER, '{"a": 1}', "object"),
    ],
)
def test_what_templates_write_of_arguments(tmp_path: Path, template: str, arguments: str, written: str) -> None:
    ids = prompt(tmp_path, f"{template}.", arguments)
    assert tempo_llm.load(tmp_path / "model").tokenizer.decode(ids) == f"{written}."
    assert not {*ids} & {*tempo_llm.load(tmp_path / "model").config.eos_ids}


@pytest.mark.parametrize(
    ("template", "arguments", "message"),
    [
        (WORDS, '{"a": ', "`messages.1.tool_calls.0.function.arguments` is not JSON"),
        (WORDS, "[1]", "`messages.1.tool_calls.0.function.arguments` is a JSON list; it must be an object"),
        ("{{ raise_exception('no tools') }}", "{}", "refuses this conversation: no tools"),
        ("{{ messages[1].tool_calls[0].function.arguments.a // 0 }}", '{"a": 1}', "ZeroDivisionError"),  # the first mistake
    ],
)
def test_arguments_that_are_mistakes(tmp_path: Path, template: str, arguments: str, message: str) -> None:
    with pytest.raises(Problem) as caught:
        prompt(tmp_path, template, arguments)
    assert caught.value.status == 400 and message in caught.value.message
