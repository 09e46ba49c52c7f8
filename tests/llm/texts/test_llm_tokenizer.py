"""Tokenizers and chat templates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tempo_llm import Tokenizer, TokenizerError

TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}\n"
    "{% if message.role == 'system' %}[{{ message.content }}]{% else %}<user>{{ message.content }}{% endif %}\n"
    "{% endfor %}\n"
    "{% if add_generation_prompt %}<answer>{% endif %}"
)


@pytest.fixture
def directory(tmp_path: Path, write_tokenizer: Any) -> Path:
    write_tokenizer(tmp_path)
    return tmp_path


def write_settings(directory: Path, **settings: Any) -> None:
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))


def test_raw_text_comes_back(directory: Path) -> None:
    tokenizer = Tokenizer.from_directory(directory)
    ids = tokenizer.encode("the lazy fox, naïve!", raw=True)
    assert ids[0] == 1  # the file's own post-processor adds the begin token
    assert tokenizer.decode([*ids, 2]) == "the lazy fox, naïve!"


def test_each_token_has_a_text(directory: Path) -> None:
    tokenizer = Tokenizer.from_directory(directory)
    ids = tokenizer.encode("a lazy dog", raw=True)
    texts = [tokenizer.token_text(token) for token in ids]
    assert "".join(texts[1:]) == "a lazy dog" and texts[0] == "<s>" and " " in texts[2][:1]
    assert tokenizer.token_text(10**6) == ""


def test_begin_token_is_added_once_where_the_settings_ask_for_it(directory: Path) -> None:
    file = directory / "tokenizer.json"
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, "post_processor": None}))
    write_settings(directory, bos_token={"content": "<s>"}, add_bos_token=False)
    without = Tokenizer.from_directory(directory).encode("a dog", raw=True)
    write_settings(directory, bos_token={"content": "<s>"}, add_bos_token=True)
    assert without[0] != 1
    assert Tokenizer.from_directory(directory).encode("a dog", raw=True) == [1, *without]
    file.write_text(json.dumps(content))
    assert Tokenizer.from_directory(directory).encode("a dog", raw=True) == [1, *without]


@pytest.mark.parametrize("place", ["settings", "named", "file"])
def test_chat_template(directory: Path, place: str) -> None:
    pytest.importorskip("jinja2")
    entry = {
        "settings": TEMPLATE,
        "named": [{"name": "tool", "template": "no"}, {"name": "default", "template": TEMPLATE}],
        "file": "no",
    }
    write_settings(directory, bos_token="<s>", chat_template=entry[place])
    if place == "file":
        (directory / "chat_template.jinja").write_text(TEMPLATE)
    tokenizer = Tokenizer.from_directory(directory)
    assert tokenizer.template is not None
    assert tokenizer.template.render("hi", "be kind") == "<s>[be kind]<user>hi<answer>"
    ids = tokenizer.encode("a dog", raw=False)
    assert ids[:2] == [1, 3] and ids[-1] == 4 and ids.count(1) == 1
    assert tokenizer.decode(ids) == "a dog"
    assert tokenizer.encode("a dog", raw=True) == [1, *ids[2:-1]]


def test_marks_of_what_the_model_wrote_are_rendered_as_they_are(directory: Path) -> None:
    pytest.importorskip("jinja2")
    template = """{% for m in messages %}
{% if m.role == 'assistant' %}
{% generation %}
{% set kind = 'reply' %}
({{ m.content }}/{{ kind }}){% if loop.last %}!{% endif %}
{% endgeneration %}
{{ kind }}{% else %}<{{ m.content }}>{% endif %}
{% endfor %}"""
    write_settings(directory, chat_template=template)
    found = Tokenizer.from_directory(directory).template
    assert found is not None
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert found.render_all([messages]) == [
        "<a>(b/reply)!"
    ]  # names that are set inside are not known outside, as in transformers
    write_settings(directory, chat_template="{% generation %}")
    with pytest.raises(TokenizerError, match=r"chat template fails: TemplateSyntaxError: .*endgeneration"):
        Tokenizer.from_directory(directory).encode("hi", raw=False)


def test_templates_that_refuse_or_break(directory: Path) -> None:
    pytest.importorskip("jinja2")
    write_settings(directory, chat_template="{{ raise_exception('no users here') }}")
    with pytest.raises(TokenizerError, match="refuses this conversation: no users here"):
        Tokenizer.from_directory(directory).encode("hi", raw=False)
    write_settings(directory, chat_template="{% if %}")
    with pytest.raises(TokenizerError, match="chat template fails"):
        Tokenizer.from_directory(directory).encode("hi", raw=False)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "it takes more than 1 seconds"),
        (
            "{% set s = namespace(t='ab') %}{% for a in range(60) %}{% set s.t = s.t ~ s.t %}{% endfor %}",
            "it needs too much memory",
        ),
        ("{{ 'a' * 9999999999 }}", "chat template fails: "),
        ("{{ messages[0].content.nothing.at_all }}", "chat template fails: UndefinedError"),
        ("{{ 1 // 0 }}", "chat template fails: ZeroDivisionError"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "it calls itself without end"),
        ("{{ 'a' * 20000000 }}", "its text is longer than 16777216 characters"),
    ],
)
def test_templates_without_end(directory: Path, monkeypatch: pytest.MonkeyPatch, template: str, message: str) -> None:
    pytest.importorskip("jinja2")
    monkeypatch.setattr("tempo_llm.chat.SECONDS", 1 if "99999" in template else 10)
    write_settings(directory, chat_template=template)
    with pytest.raises(TokenizerError) as caught:
        Tokenizer.from_directory(directory).encode("hi", raw=False)
    assert message in str(caught.value) and str(caught.value).count("\n") == 1


def test_special_tokens_in_a_users_text_are_text(directory: Path) -> None:
    pytest.importorskip("jinja2")
    write_settings(directory, bos_token="<s>", chat_template=TEMPLATE)
    tokenizer = Tokenizer.from_directory(directory)
    text = "a </s><answer> dog <s>"
    for raw in (True, False):
        plain, special = (tokenizer.encode(text, raw=raw, special=special) for special in (False, True))
        assert plain.count(2) == 0 and special.count(2) == 1
        assert plain.count(1) == 1 and special.count(1) == 2
        assert plain.count(4) == (0 if raw else 1) and tokenizer.decode(plain) == text


def test_a_special_token_of_one_character_is_not_lost(directory: Path) -> None:
    file = directory / "tokenizer.json"
    content = json.loads(file.read_text())
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    bar = content["model"]["vocab"]["|"]
    file.write_text(json.dumps({**content, "added_tokens": [*content["added_tokens"], {"id": bar, "content": "|", **flags}]}))
    tokenizer = Tokenizer.from_directory(directory)
    ids = tokenizer.encode("a|b</s>", raw=True)
    assert ids.count(bar) == 1 and 2 not in ids and tokenizer.decode(ids) == "ab</s>"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"chat_template": 5}, "chat_template is int, not a string"),
        ({"chat_template": [1, 2]}, "a list, but not one of names and templates"),
        ({"chat_template": "a" * (2**20 + 1)}, "the chat template has 1048577 characters"),
    ],
)
def test_templates_that_are_none(directory: Path, settings: dict[str, Any], message: str) -> None:
    write_settings(directory, **settings)
    with pytest.raises(TokenizerError, match=message):
        Tokenizer.from_directory(directory)


def test_a_template_cannot_reach_python(directory: Path) -> None:
    pytest.importorskip("jinja2")
    write_settings(directory, chat_template="{{ ''.__class__.__mro__[1].__subclasses__() }}")
    with pytest.raises(TokenizerError, match="chat template fails"):
        Tokenizer.from_directory(directory).encode("hi", raw=False)


def test_no_template(directory: Path) -> None:
    tokenizer = Tokenizer.from_directory(directory)
    assert tokenizer.template is None
    with pytest.raises(TokenizerError, match="no chat template"):
        tokenizer.encode("hi", raw=False)
    with pytest.raises(TokenizerError, match="a system prompt needs a chat template"):
        tokenizer.encode("hi", raw=True, system_prompt="be kind")


def test_missing_and_damaged(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    with pytest.raises(TokenizerError, match=r"no tokenizer.json or tokenizer.model"):
        Tokenizer.from_directory(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(TokenizerError, match=r"tokenizer.json cannot be read"):
        Tokenizer.from_directory(tmp_path)
    write_settings(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("[")
    with pytest.raises(TokenizerError, match="is not a JSON object"):
        Tokenizer.from_directory(tmp_path)


def test_sentencepiece(tmp_path: Path) -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    text = tmp_path / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog\na lazy dog sleeps all day\n" * 20)
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(tmp_path / "tokenizer"), vocab_size=60, model_type="bpe", minloglevel=2
    )
    write_settings(tmp_path, bos_token="<s>", add_bos_token=True)
    tokenizer = Tokenizer.from_directory(tmp_path)
    ids = tokenizer.encode("the lazy dog", raw=True)
    assert ids[0] == 1 and ids.count(1) == 1
    assert tokenizer.decode([*ids, 2]) == "the lazy dog"
    assert "".join(tokenizer.token_text(token) for token in [*ids, 2]) == "<s> the lazy dog</s>"
    if pytest.importorskip("jinja2"):
        write_settings(tmp_path, bos_token="<s>", chat_template="{{ bos_token }}{{ messages[0].content }}</s>")
        ids = Tokenizer.from_directory(tmp_path).encode("the lazy dog", raw=False)
        assert ids[0] == 1 and ids[-1] == 2  # the template spells them out, but they become single tokens
        assert tokenizer.decode(ids) == "the lazy dog"


def test_damaged_sentencepiece(tmp_path: Path) -> None:
    pytest.importorskip("sentencepiece")
    (tmp_path / "tokenizer.model").write_bytes(b"not a model")
    with pytest.raises(TokenizerError, match="cannot be read as a SentencePiece model"):
        Tokenizer.from_directory(tmp_path)
