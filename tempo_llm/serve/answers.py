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
from tempo_llm.tokenizer import Tokenizer


@dataclass
class Choice:
    """One continuation so far."""

    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish_reason: str | None = None
    shown: int = 0  # characters that a stream has sent

    def take(self, update: Update) -> None:
        self.token_ids += update.token_ids
        self.text += update.text
        self.logprobs += update.logprobs
        self.finish_reason = update.finish_reason


class Answer:
    """The answer to a request. `take` an update of a choice; `whole` at the end, or `chunk`s of a stream on the way."""

    kind, whole_object, chunk_object = "cmpl", "text_completion", "text_completion"

    def __init__(self, asked: Asked, model: str, tokenizer: Tokenizer | None):
        self.asked, self.model, self._tokenizer = asked, model, tokenizer
        self.choices = [Choice() for _ in range(len(asked.prompts) * asked.samples)]
        self.id, self.created = f"{self.kind}-{secrets.token_hex(12)}", int(time.time())
        self.cached_tokens = 0

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
        logprobs = self._logprobs(choice.token_ids, choice.logprobs, 0)
        return {"index": number, "text": choice.text, "logprobs": logprobs, "finish_reason": choice.finish_reason, **ids}

    def _part(self, number: int, text: str, update: Update) -> dict[str, object]:
        before = len(self.choices[number].text) - len(update.text)
        ids = {"token_ids": list(update.token_ids)} if self.asked.shows_ids else {}
        return {"index": number, "text": text, "logprobs": self._logprobs(update.token_ids, update.logprobs, before), **ids}

    def _logprobs(self, ids: Sequence[int], logprobs: Sequence[TokenLogprobs], start: int) -> dict[str, object] | None:
        if self.asked.logprobs is None:
            return None
        shown = [(token, each) for token, each in zip(ids, logprobs, strict=True) if token not in self.asked.stop_ids]
        texts = [self._text(token) for token, _ in shown]
        tops = [{self._text(token): value for token, value in each.top[: self.asked.logprobs]} for _, each in shown]
        offsets = [start + sum(map(len, texts[:k])) for k in range(len(texts))]
        values = [each.logprob for _, each in shown]
        return {"tokens": texts, "token_logprobs": values, "top_logprobs": tops, "text_offset": offsets}

    def _text(self, token: int) -> str:
        return f"token_id:{token}" if self._tokenizer is None else self._tokenizer.token_text(token)


class ChatAnswer(Answer):
    """The same for a chat. An answer that calls a tool is sent as a whole."""

    kind, whole_object, chunk_object = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def first(self) -> Iterator[dict[str, object]]:
        for number in range(len(self.choices)):
            yield self._delta(number, {"role": "assistant", "content": ""}, None, None)

    def chunks(self, number: int, update: Update) -> Iterator[dict[str, object]]:
        choice, reason = self.choices[number], update.finish_reason
        logprobs = self._logprobs(update.token_ids, update.logprobs, 0)
        delta: dict[str, object] = {"content": choice.text[choice.shown :]}
        if self.asked.tools is not None and self.asked.tools.may_be_call(choice.text):
            if reason is None:
                return
            calls = self.asked.tools.calls(choice.text)
            if calls:
                delta = {"tool_calls": [{"index": k, **call} for k, call in enumerate(calls)]}
                reason = "tool_calls" if reason == "stop" else reason
        choice.shown = len(choice.text)
        yield self._delta(number, delta, logprobs, reason)

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
        logprobs = self._logprobs(choice.token_ids, choice.logprobs, 0)
        return {"index": number, "message": message, "logprobs": logprobs, "finish_reason": reason, **ids}

    def _logprobs(self, ids: Sequence[int], logprobs: Sequence[TokenLogprobs], start: int) -> dict[str, object] | None:
        if self.asked.logprobs is None:
            return None
        shown = [(token, each) for token, each in zip(ids, logprobs, strict=True) if token not in self.asked.stop_ids]
        return {
            "content": [
                {
                    **self._token(token, each.logprob),
                    "top_logprobs": [self._token(other, value) for other, value in each.top[: self.asked.logprobs]],
                }
                for token, each in shown
            ],
            "refusal": None,
        }

    def _token(self, token: int, logprob: float) -> dict[str, object]:
        text = self._text(token)
        return {"token": text, "logprob": logprob, "bytes": list(text.encode())}
