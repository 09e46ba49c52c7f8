"""From the body of a request to jobs: the prompt's tokens, the settings, and the limits."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tempo_llm.chat import SECONDS
from tempo_llm.errors import LlmError, RequestError
from tempo_llm.model import Model
from tempo_llm.requests import check_tokens
from tempo_llm.sampling import Sampling, model_settings
from tempo_llm.serve.grammar import Grammars
from tempo_llm.serve.jobs import Grammar
from tempo_llm.serve.problems import Problem
from tempo_llm.serve.schemas import ChatBody, ChatMessage, Common, CompletionBody, SchemaFormat, TextFormat
from tempo_llm.serve.tools import Tools
from tempo_llm.template_process import TemplateProcess

COMPLETION_TOKENS = 16  # of /v1/completions without `max_tokens`, as OpenAI has it
MOST_PROMPTS = 64


@dataclass(frozen=True)
class Asked:
    """One request: its prompts, each continued `samples` times, and how."""

    prompts: Sequence[Sequence[int]]
    max_new_tokens: Sequence[int]
    sampling: Sampling
    seed: int
    samples: int
    stop_ids: frozenset[int]
    stops: Sequence[str]
    logprobs: int | None  # how many of the most likely tokens are shown beside the one that was taken; None: nothing is
    is_streamed: bool
    has_usage: bool  # a stream ends with the numbers of tokens
    shows_ids: bool
    tools: Tools | None = None
    schema: Mapping[str, object] | str | None = None  # of the answer; "object": any JSON object


class Asking:
    """What a model is asked, by the settings of a server. Methods raise Problem."""

    def __init__(self, model: Model, max_context: int, max_new_tokens: int, grammars: Grammars, most_texts: int):
        """`most_texts` are those that one request may ask for."""
        self.most_texts = most_texts
        self.model, self.max_context, self.max_new_tokens, self.grammars = model, max_context, max_new_tokens, grammars
        self._templates = TemplateProcess(SECONDS)
        settings = model_settings(model.directory) if model.directory.is_dir() else {}
        self._defaults: dict[str, Any] = {"temperature": 1.0, **settings}

    def close(self) -> None:
        self._templates.close()

    def completion(self, body: CompletionBody) -> Asked:
        if body.echo:
            raise _unsupported("echo", "the prompt is not repeated")
        if body.suffix:
            raise _unsupported("suffix", "texts are continued at their end alone")
        if body.best_of not in (None, body.n or 1):
            raise _unsupported("best_of", "it must be `n`: all continuations are given")
        prompts = self._prompts(body.prompt)
        new = [self._new_tokens(prompt, body.max_tokens or COMPLETION_TOKENS, "max_tokens") for prompt in prompts]
        return self._asked(body, prompts, new, body.logprobs)

    def chat(self, body: ChatBody) -> Asked:
        tokenizer = self.model.tokenizer
        tools = Tools.of(body, tokenizer)
        prompt = self._conversation(body, tools)
        if body.top_logprobs is not None and not body.logprobs:
            raise Problem(400, "`top_logprobs` needs `logprobs`: true", "top_logprobs", "invalid_value")
        most = body.max_completion_tokens or body.max_tokens
        new = self._new_tokens(prompt, most, "max_completion_tokens" if body.max_completion_tokens else "max_tokens")
        schema: Mapping[str, object] | str | None = None
        if isinstance(body.response_format, SchemaFormat):
            schema = body.response_format.json_schema.schema_
        elif isinstance(body.response_format, TextFormat) and body.response_format.type == "json_object":
            schema = "object"
        if tools is not None and schema is not None:
            raise Problem(400, "`response_format` and `tools` exclude each other here", "response_format", "unsupported")
        logprobs = (body.top_logprobs or 0) if body.logprobs else None
        return self._asked(body, [prompt], [new], logprobs, tools, schema)

    def _conversation(self, body: ChatBody, tools: Tools | None) -> list[int]:
        """The tokens of a conversation. Templates find the arguments of past calls as objects, as in `transformers`.

        Some templates write arguments as they are, and so need a text: where one fails with objects, it gets texts.
        """
        problem: LlmError | None = None
        for has_objects in (True, False):
            messages = [_message(message, number, has_objects) for number, message in enumerate(body.messages)]
            if tools is not None:
                tools.tell(messages)
            try:
                variables = {} if tools is None else tools.variables
                return self.model.tokenizer.encode_messages(messages, variables, self._templates)
            except LlmError as error:
                problem = problem or error
            if not any(message.tool_calls for message in body.messages):
                break
        assert problem is not None
        raise Problem(400, problem.message, "messages", "invalid_value")

    def grammar(self, asked: Asked) -> Grammar | None:
        """A matcher of its own for one job."""
        if asked.tools is not None:
            return self.grammars.of_calls(asked.tools.schemas, not asked.tools.is_forced, asked.tools.is_wrapped)
        if isinstance(asked.schema, Mapping):
            return self.grammars.of_schema(asked.schema, "response_format")
        return None if asked.schema is None else self.grammars.any_object()

    def _asked(
        self,
        body: Common,
        prompts: Sequence[Sequence[int]],
        new: Sequence[int],
        logprobs: int | None,
        tools: Tools | None = None,
        schema: Mapping[str, object] | str | None = None,
    ) -> Asked:
        if body.stream_options is not None and not body.stream:
            raise Problem(400, "`stream_options` needs `stream`: true", "stream_options", "invalid_value")
        if body.stops:
            self._needs_tokenizer("stop")
        try:
            ends = self.model.end_ids(body.stop_token_ids or (), bool(body.ignore_eos))
        except RequestError as error:
            raise Problem(400, error.message, "stop_token_ids", "invalid_value") from None
        if len(prompts) * (body.n or 1) > self.most_texts:
            raise Problem(
                400,
                f"{len(prompts)} prompts with `n` {body.n or 1} are more texts than wait here at a time, {self.most_texts}",
                "n",
                "invalid_value",
            )
        seed = secrets.randbits(63) if body.seed is None else body.seed
        return Asked(
            prompts, new, self._sampling(body), seed, body.n or 1, frozenset(ends), body.stops, logprobs, bool(body.stream),
            body.stream_options is not None and body.stream_options.include_usage, bool(body.return_token_ids), tools, schema,
        )  # fmt: skip

    def _sampling(self, body: Common) -> Sampling:
        names = ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
        given: dict[str, Any] = {name: getattr(body, name) for name in names if getattr(body, name) is not None}
        if body.top_k is not None:
            given["top_k"] = max(body.top_k, 0)  # -1 is no limit, as in vLLM
        biases = {}
        for token, bias in (body.logit_bias or {}).items():
            if not token.isdecimal() or len(token) > 9 or int(token) >= self.model.config.vocab_size:
                most = self.model.config.vocab_size - 1
                raise Problem(
                    400, f"`logit_bias` has the token {token[:20]!r}; tokens are 0 to {most}", "logit_bias", "invalid_value"
                )
            biases[int(token)] = bias
        try:
            return Sampling(**{**self._defaults, **given}, logit_bias=biases)
        except RequestError as error:
            raise Problem(400, error.message, next(iter(given), None), "invalid_value") from None

    def _prompts(self, prompt: str | Sequence[Any]) -> list[list[int]]:
        if isinstance(prompt, str):
            each: list[Any] = [prompt]
        elif prompt and all(isinstance(part, int) for part in prompt):
            each = [prompt]
        else:
            each = list(prompt)
        if not each:
            raise Problem(400, "`prompt` is empty", "prompt", "invalid_value")
        if len(each) > MOST_PROMPTS:
            raise Problem(400, f"`prompt` has {len(each)} prompts; the most are {MOST_PROMPTS}", "prompt", "invalid_value")
        try:
            return [self._ids(part) for part in each]
        except LlmError as error:
            raise Problem(400, error.message, "prompt", "invalid_value") from None

    def _ids(self, prompt: str | Sequence[int]) -> list[int]:
        if isinstance(prompt, str):
            self._needs_tokenizer("prompt")
            ids = self.model.tokenizer.encode(prompt, raw=True)
        else:
            ids = check_tokens(prompt, "prompt", self.model.config)
        if not ids:
            raise Problem(400, "`prompt` has no tokens", "prompt", "invalid_value")
        return ids

    def _needs_tokenizer(self, param: str) -> None:
        if not self.model.has_tokenizer:
            raise Problem(400, f"`{param}` is a text, and this model has no tokenizer: give token ids", param, "unsupported")

    def _new_tokens(self, prompt: Sequence[int], most: int | None, param: str) -> int:
        """How many tokens a text may get. Raises Problem if they do not fit."""
        room = self.max_context - len(prompt)
        if room < 1 or (most is not None and most > room):
            more = "" if most is None else f" and {most} new ones"
            raise Problem(
                400,
                f"a prompt of {len(prompt)} tokens{more} do not fit this server's context of {self.max_context} tokens",
                param if room >= 1 else None,
                "context_length_exceeded",
            )
        if most is not None and most > self.max_new_tokens:
            raise Problem(400, f"`{param}` is {most}; this server gives at most {self.max_new_tokens}", param, "invalid_value")
        return min(room, self.max_new_tokens) if most is None else most


def _message(message: ChatMessage, number: int, has_objects: bool) -> dict[str, object]:
    """A message as templates know it. The arguments of its calls are objects, or texts as in the request."""
    content = message.content
    if isinstance(content, list):
        content = "".join(part.text for part in content)
    if content is None and not message.tool_calls:
        raise Problem(400, f"`messages.{number}.content` is missing", "messages", "missing_required_parameter")
    role = "system" if message.role == "developer" else message.role
    given: dict[str, object] = {"role": role, "content": content or ""}
    if message.tool_calls:
        calls = [call.model_dump(exclude={"index"}) for call in message.tool_calls]
        for place, call in enumerate(calls if has_objects else ()):
            function, where = call["function"], f"messages.{number}.tool_calls.{place}.function.arguments"
            function["arguments"] = _arguments(function["arguments"], where)
        given["tool_calls"] = calls
    if message.tool_call_id is not None:
        given["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        given["name"] = message.name
    return given


def _arguments(text: str, place: str) -> dict[str, Any]:
    """The arguments of a past call. Clients write none of them as a text without anything, or as null."""
    try:
        value = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise Problem(400, f"`{place}` is not JSON: {error}", "messages", "invalid_value") from None
    if not isinstance(value, dict) and value is not None:
        words = f"`{place}` is a JSON {type(value).__name__}; it must be an object"
        raise Problem(400, words, "messages", "invalid_value")
    return value or {}


def _unsupported(param: str, why: str) -> Problem:
    return Problem(400, f"`{param}` is not supported: {why}", param, "unsupported")
