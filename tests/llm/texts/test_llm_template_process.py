"""One process renders the templates of many conversations, and a template that hangs or fails is not its last."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tempo_llm.chat import ChatTemplate
from tempo_llm.errors import TokenizerError
from tempo_llm.template_process import TemplateProcess

MESSAGES = [{"role": "user", "content": "one\ntwo {{ 3 }}"}]
ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


@pytest.fixture
def process() -> Iterator[TemplateProcess]:
    pytest.importorskip("jinja2")
    started = TemplateProcess(2.0)
    yield started
    started.close()


def rendered(text: str, process: TemplateProcess | None) -> str:
    return ChatTemplate(text, {"bos_token": "<s>"}).render_all([MESSAGES], True, {"tools": [{"name": "add"}]}, process)[0]


def test_texts_are_those_of_a_process_of_their_own(process: TemplateProcess) -> None:
    text = "{{ bos_token }}{{ messages[0].content }}{{ tools[0].name }}"
    assert [rendered(text, process) for _ in range(3)] == [rendered(text, None)] * 3 == ["<s>one\ntwo {{ 3 }}add"] * 3


@pytest.mark.parametrize(("text", "message"), [("{{ 1 // 0 }}", "ZeroDivisionError"), (ENDLESS, "it takes more than")])
def test_a_template_that_fails_is_not_the_last(process: TemplateProcess, text: str, message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        rendered(text, process)
    assert rendered("{{ messages[0].role }}", process) == "user"


def test_nothing_stays_of_a_conversation(process: TemplateProcess) -> None:
    rendered("{% set kept = 1 %}{% set ns = namespace(x=1) %}", process)
    assert rendered("{{ kept is defined }}{{ ns is defined }}", process) == "FalseFalse"
