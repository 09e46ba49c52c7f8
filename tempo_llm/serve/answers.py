"""What came of a request, in the form of OpenAI's interface: whole, or chunk by chunk."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tempo_llm.requests import TokenLogprobs
from tempo_llm.serve.asked import Asked
from tempo_llm.serve.jobs import Update
from tempo_llm.spelling import TextDecoder
from tempo_llm.tokenizer import Tokenizer


@dataclass(frozen=True)
class Spelled:
    """A token with its logarithms of probability, and the bytes that it adds to the text, or, in `top`, would add."""

    token: int
    logprob: float
    data: bytes
    top: tuple[tuple[int, float, bytes], ...]
    start: int  # the characters of the text before it


@dataclass
class Choice:
    """One continuation so far. `decoder` spells the tokens whose log probabilities are shown; those of `hidden` are not."""

    decoder: TextDecoder | None = None
    hidden: frozenset[int] = frozenset()
    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    finish_reason: str | None = None
    shown: int = 0  # characters that a stream has sent
    _spelled: list[Spelled] = field(default_factory=list)
    _told: int = 0  # those of them that are told
    _length: int = 0  # of the text, with what a stop string leaves out

    def take(self, update: Update) -> None:
        self.token_ids += update.token_ids
        self.text += update.text
        self.finish_reason = update.finish_reason
        for token, each in zip(update.token_ids, update.logprobs, strict=False):
            self._spell(token, each)
        if self.decoder is not None and update.finish_reason is not None:
            self._length += len(self.decoder.finish())

    def _spell(self, token: int, logprobs: TokenLogprobs) -> None:
        spell = (lambda other: b"") if self.decoder is None else self.decoder.spell
        if token not in self.hidden or spell(token):
            top = tuple((other, value, spell(other)) for other, value in logprobs.top)
            self._spelled.append(Spelled(token, logprobs.logprob, spell(token), top, self._length))
        if self.decoder is not None:
            self._length += len(self.decoder.write(token))

    def tell(self) -> list[Spelled]:
        """The tokens whose text is certain now, each once. Those behind a text that a stop string ends are not told."""
        is_whole = self.decoder is None or (self.finish_reason is not None and self._length <= len(self.text))
        new = [each for each in self._spelled[self._told :] if is_whole or each.start < len(self.text)]
        self._told += len(new)
        return new


class Answer:
    """The answer to a request. `take` an update of a choice; `whole` at the end, or `chunk`s of a stream on the way."""

    kind, whole_object, chunk_object = "cmpl", "text_completion", "text_completion"

    def __init__(self, asked: Asked, model: str, tokenizer: Tokenizer | None):
        self.asked, self.model, self._tokenizer = asked, model, tokenizer
        self.choices = [self._begun(prompt) for prompt in asked.prompts for _ in range(asked.samples)]
        self.id, self.created = f"{self.kind}-{secrets.token_hex(12)}", int(time.time())
        self.cached_tokens = 0

    def _begun(self, prompt: Sequence[int]) -> Choice:
        is_spelled = self._tokenizer is not None and self.asked.logprobs is not None
        return Choice(self._tokenizer.decoder(prompt) if is_spelled and self._tokenizer else None, self.asked.stop_ids)

    def take(self, number: int, update: Update) -> None:
        self.choices[number].take(update)

    @property
    def usage(self) -> dict[str, object]:
        prompt = sum(map(len, self.asked.prompts))
        written = sum(len(choice.token_ids) for choice in self.choices)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": written,
            "total_tokens": prompt + written,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }

    def whole(self) -> dict[str, object]:
        choices = [self._choice(number, choice) for number, choice in enumerate(self.choices)]
        return {**self._head(self.whole_object), "choices": choices, "usage": self.usage}

    def first(self) -> Iterator[dict[str, object]]:
        """The chunks before any text."""
        yield from ()

    def chunks(self, number: int, update: Update) -> Iterator[dict[str, object]]:
        """The chunks after an update of a choice, which has been taken."""
        choice = {**self._part(number, update.text, update), "finish_reason": update.finish_reason}
        yield {**self._head(self.chunk_object), "choices": [choice], **self._no_usage()}

    def last(self) -> Iterator[dict[str, object]]:
        """The chunks at the end of a stream."""
        if self.asked.has_usage:
            yield {**self._head(self.chunk_object), "choices": [], "usage": self.usage}

    # -- parts --------------------------------------------------------------------------------------------------------

    def _head(self, kind: str) -> dict[str, object]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model, "system_fingerprint": None}

    def _no_usage(self) -> dict[str, object]:
        return {"usage": None} if self.asked.has_usage else {}

    def _choice(self, number: int, choice: Choice) -> dict[str, object]:
        ids = {"token_ids": choice.token_ids} if self.asked.shows_ids else {}
        logprobs = self._logprobs(choice)
        return {"index": number, "text": choice.text, "logprobs": logprobs, "finish_reason": choice.finish_reason, **ids}

    def _part(self, number: int, text: str, update: Update) -> dict[str, object]:
        ids = {"token_ids": list(update.token_ids)} if self.asked.shows_ids else {}
        return {"index": number, "text": text, "logprobs": self._logprobs(self.choices[number]), **ids}

    def _logprobs(self, choice: Choice) -> dict[str, object] | None:
        if self.asked.logprobs is None:
            return None
        spelled = choice.tell()
        return {
            "tokens": [self._text(each.token, each.data, "bytes:") for each in spelled],
            "token_logprobs": [each.logprob for each in spelled],
            "top_logprobs": [self._by_text(each.top[: self.asked.logprobs]) for each in spelled],
            "text_offset": [each.start for each in spelled],
        }

    def _by_text(self, top: Sequence[tuple[int, float, bytes]]) -> dict[str, float]:
        """Log probabilities by the texts of tokens. Of two tokens with one text, the less likely one has its number for a name."""
        found: dict[str, float] = {}
        for token, value, data in top:
            text = self._text(token, data, "bytes:")
            found[f"token_id:{token}" if text in found else text] = value
        return found

    def _text(self, token: int, data: bytes, mark: str) -> str:
        """The text of a token; its bytes behind a mark, as OpenAI writes them, if they are a part of a character; the name of a special token."""
        if self._tokenizer is None:
            return f"token_id:{token}"
        try:
            return data.decode() or self._tokenizer.token_text(token)
        except UnicodeDecodeError:
            return mark + "".join(f"\\x{byte:02x}" for byte in data)


class ChatAnswer(Answer):
    """The same for a chat. An answer that calls a tool is sent as a whole."""

    kind, whole_object, chunk_object = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def first(self) -> Iterator[dict[str, object]]:
        for number in range(len(self.choices)):
            yield self._delta(number, {"role": "assistant", "content": ""}, None, None)

    def chunks(self, number: int, update: Update) -> Iterator[dict[str, object]]:
        choice, reason = self.choices[number], update.finish_reason
        delta: dict[str, object] = {"content": choice.text[choice.shown :]}
        if self.asked.tools is not None and self.asked.tools.may_be_call(choice.text):
            if reason is None:
                return
            calls = self.asked.tools.calls(choice.text)
            if calls:
                delta = {"tool_calls": [{"index": k, **call} for k, call in enumerate(calls)]}
                reason = "tool_calls" if reason == "stop" else reason
        choice.shown = len(choice.text)
        yield self._delta(number, delta, self._logprobs(choice), reason)

    def _delta(self, number: int, delta: dict[str, object], logprobs: Any, reason: str | None) -> dict[str, object]:
        choice = {"index": number, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        return {**self._head(self.chunk_object), "choices": [choice], **self._no_usage()}

    def _choice(self, number: int, choice: Choice) -> dict[str, object]:
        message: dict[str, object] = {"role": "assistant", "content": choice.text, "refusal": None}
        reason = choice.finish_reason
        calls = [] if self.asked.tools is None else self.asked.tools.calls(choice.text)
        if calls:
            message |= {"content": None, "tool_calls": calls}
            reason = "tool_calls" if reason == "stop" else reason
        ids = {"token_ids": choice.token_ids} if self.asked.shows_ids else {}
        return {"index": number, "message": message, "logprobs": self._logprobs(choice), "finish_reason": reason, **ids}

    def _logprobs(self, choice: Choice) -> dict[str, object] | None:
        if self.asked.logprobs is None:
            return None
        return {
            "content": [
                {
                    **self._token(each.token, each.logprob, each.data),
                    "top_logprobs": [self._token(*other) for other in each.top[: self.asked.logprobs]],
                }
                for each in choice.tell()
            ],
            "refusal": None,
        }

    def _token(self, token: int, logprob: float, data: bytes) -> dict[str, object]:
        return {"token": self._text(token, data, ""), "logprob": logprob, "bytes": list(data)}
