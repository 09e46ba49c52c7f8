"""A conversation of several turns is one run, and says what the model would say if it read the whole conversation anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tempo_llm
from tempo_llm import RequestError, Sampling, TokenizerError
from tempo_llm.decoding import Rows
from tests.llm import models, oracle

pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")

TEMPLATE = (
    "<s>{% for m in messages %}{% if m.role == 'user' %}<user>{{ m.content }}<answer>"
    "{% elif m.role == 'assistant' %}{{ m.content }}</s><unk>{% else %}{{ m.content }}{% endif %}{% endfor %}"
)
END = 2


@pytest.fixture(scope="module")
def talkative(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """A model with a chat template, which ends a reply now and then."""
    directory, values, tensors = models.whole_model(tmp_path_factory.mktemp("chat") / "model", eos_token_id=[END])
    (directory / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    return tempo_llm.load(directory, capacity=128), values, tensors


@pytest.mark.slow
def test_turns_are_one_run(talkative: Any) -> None:
    model, values, tensors = talkative
    chat = model.chat("be kind")
    tokens: list[int] = []
    for turn, text in enumerate(("a dog", "the fox </s>", "all day")):
        reply = "".join(chat.say(text, max_new_tokens=6))
        question = model.tokenizer.encode_rendered(f"<user>{model.tokenizer._guarded(text)}<answer>")
        start = [1, *model.tokenizer.encode_rendered("be kind")] if turn == 0 else [END, 0]
        tokens += [*start, *question]
        expected = oracle.greedy(values, tensors, tokens, 6)
        expected = expected[: expected.index(END)] if END in expected else expected
        tokens += expected
        assert reply == model.tokenizer.decode(expected)
        assert chat.messages[-2:] == [{"role": "user", "content": text}, {"role": "assistant", "content": reply}]
        assert chat._tokens[: len(tokens)] == tokens
    assert chat.restarts == 0 and chat.compiles >= 1


@pytest.mark.slow
def test_a_template_that_rewrites_earlier_turns_begins_anew(talkative: Any, tmp_path: Path) -> None:
    model = talkative[0]
    template = "<s>{{ messages | length }}{{ messages[-1].content }}<answer>"
    (tmp_path / "model").mkdir()
    for file in model.directory.iterdir():
        (tmp_path / "model" / file.name).write_bytes(file.read_bytes())
    (tmp_path / "model" / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    other = tempo_llm.load(tmp_path / "model", capacity=128)
    chat = other.chat()
    for turn, text in enumerate(("a dog", "fox")):
        reply = "".join(chat.say(text, max_new_tokens=4))
        ids = other.tokenizer.encode_conversation(chat.messages[:-1])
        expected = oracle.greedy(*talkative[1:], ids, 4)
        expected = expected[: expected.index(END)] if END in expected else expected
        assert reply == other.tokenizer.decode(expected) and chat.restarts == turn


@pytest.mark.slow
def test_draws_follow_the_seed(talkative: Any) -> None:
    replies = ["".join(talkative[0].chat(sampling=Sampling(1.5), seed=seed).say("a dog", max_new_tokens=8)) for seed in (1, 1, 2)]
    assert replies[0] == replies[1] != replies[2]


@pytest.mark.parametrize("turns", [0, 1])
def test_a_reply_that_is_interrupted_at_its_end_is_not_in_the_conversation(
    talkative: Any, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat, afresh = talkative[0].chat(), talkative[0].chat()
    for _ in range(turns):
        "".join(chat.say("a dog", max_new_tokens=6))
    afresh.messages, afresh._tokens = list(chat.messages), list(chat._tokens)
    take = Rows.take

    def interrupted(rows: Rows, *given: Any) -> Any:
        pieces = take(rows, *given)
        if rows.done:
            raise KeyboardInterrupt
        return pieces

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Rows, "take", interrupted)
        "".join(chat.say("the fox", max_new_tokens=6))
    assert "".join(chat.say("all day", max_new_tokens=6)) == "".join(afresh.say("all day", max_new_tokens=6))
    assert chat.messages == afresh.messages


def test_replies_that_are_read_in_turn(talkative: Any) -> None:
    chat = talkative[0].chat()
    left = chat.say("the fox", max_new_tokens=6)
    next(left)
    assert "".join(chat.say("a dog", max_new_tokens=6)) == "".join(talkative[0].chat().say("a dog", max_new_tokens=6))
    with pytest.raises(RequestError, match="another message was sent before this reply was complete"):
        next(left)


@pytest.mark.parametrize(
    ("message", "tokens", "error"),
    [
        (None, 6, "the message is None; it must be a string"),
        ("a dog", 2.5, "max_new_tokens is 2.5"),
        ("a dog", "6", "max_new_tokens is '6'"),
    ],
)
def test_messages_that_mean_nothing(talkative: Any, message: Any, tokens: Any, error: str) -> None:
    with pytest.raises(RequestError, match=error):
        next(talkative[0].chat().say(message, max_new_tokens=tokens))


def test_a_conversation_that_is_too_long(talkative: Any) -> None:
    chat = talkative[0].chat(max_context=20)
    with pytest.raises(RequestError, match="tokens, which fill the context of 20\n  hint: begin another one: /reset"):
        "".join(chat.say("the quick brown fox " * 10))
    assert chat.messages == []
    reply = "".join(chat.say("a dog", max_new_tokens=100))
    assert reply and len(chat._tokens) <= 20 and chat.finish_reason in ("stop", "length")
    assert (chat.finish_reason == "length") == (len(chat._tokens) == 20)
    with pytest.raises(RequestError, match="max_context is 0"):
        talkative[0].chat(max_context=0)


def test_a_model_without_a_template_does_not_talk(tmp_path: Path) -> None:
    directory = models.whole_model(tmp_path / "model")[0]
    with pytest.raises(TokenizerError, match="this model has no chat template"):
        tempo_llm.load(directory).chat()
