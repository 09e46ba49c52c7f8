"""The bodies of requests, as OpenAI's interface has them, checked: what is not as it should be is a `Problem` that says so."""

from __future__ import annotations

import difflib
import json
from typing import Annotated, Literal, TypeVar, Union

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tempo_llm.serve.problems import Problem

MOST_STOPS, LONGEST_STOP = 16, 256
MOST_CHOICES = 16
MOST_TOOLS = 64


class Body(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class StreamOptions(Body):
    include_usage: bool = False
    include_obfuscation: bool = False


Stop = Annotated[str, Field(min_length=1, max_length=LONGEST_STOP)]
Token = Annotated[int, Field(ge=0)]


class Common(Body):
    """What both kinds of completions have. The last ones are not OpenAI's."""

    model: str
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0, le=100)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES)] | None = None
    stop: Stop | Annotated[list[Stop], Field(max_length=MOST_STOPS)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**64)] | None = None
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=100)] | None = None
    ignore_eos: bool | None = None
    stop_token_ids: Annotated[list[Token], Field(max_length=64)] | None = None
    return_token_ids: bool | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())


class CompletionBody(Common):
    """The body of /v1/completions."""

    prompt: str | list[str] | list[Token] | list[list[Token]]
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    best_of: int | None = None
    echo: bool | None = None
    suffix: str | None = None


class TextPart(Body):
    type: Literal["text"]
    text: str


class CalledFunction(Body):
    name: str
    arguments: str


class ToolCall(Body):
    id: str
    type: Literal["function"] = "function"
    function: CalledFunction
    index: int | None = None


class ChatMessage(Body):
    """One message. `content` may be parts of text; it may be missing where an assistant calls tools."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None
    name: str | None = None
    refusal: str | None = None
    tool_calls: Annotated[list[ToolCall], Field(max_length=MOST_TOOLS)] | None = None
    tool_call_id: str | None = None


class Function(Body):
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    description: str | None = None
    parameters: dict[str, object] | None = None
    strict: bool | None = None


class Tool(Body):
    type: Literal["function"]
    function: Function


class NamedFunction(Body):
    name: str


class NamedTool(Body):
    type: Literal["function"]
    function: NamedFunction


class JsonSchema(Body):
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")] = "answer"
    description: str | None = None
    schema_: Annotated[dict[str, object], Field(alias="schema")]
    strict: bool | None = None


class TextFormat(Body):
    type: Literal["text", "json_object"]


class SchemaFormat(Body):
    type: Literal["json_schema"]
    json_schema: JsonSchema


class ChatBody(Common):
    """The body of /v1/chat/completions."""

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    tools: Annotated[list[Tool], Field(max_length=MOST_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    response_format: Annotated[Union[TextFormat, SchemaFormat], Field(discriminator="type")] | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    service_tier: str | None = None


B = TypeVar("B", bound=Body)


def parsed(kind: type[B], body: bytes) -> B:
    """The body of a request. Raises Problem."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Problem(400, f"the body is not JSON: {error}", None, "invalid_json") from None
    if not isinstance(value, dict):
        raise Problem(400, f"the body is a JSON {type(value).__name__}; it must be an object", None, "invalid_json")
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise _problem(kind, error) from None
    except RecursionError:
        raise Problem(400, "the body is nested too deeply", None, "invalid_json") from None


def _problem(kind: type[Body], error: ValidationError) -> Problem:
    """The first mistake, in words; of a value that may have several types, that of the type that it comes closest to."""
    errors = error.errors(include_url=False, include_context=False)
    first = max(errors, key=lambda each: (each["loc"][:1] == errors[0]["loc"][:1], len(each["loc"])))
    place = [str(part) for part in first["loc"]]
    name = place[0] if place else None
    shown = ".".join(part for part in place if not _is_kind(part))
    if first["type"] == "missing":
        return Problem(400, f"`{shown}` is missing", shown, "missing_required_parameter")
    if first["type"] == "extra_forbidden" and len(place) == 1:
        near = difflib.get_close_matches(place[0], kind.model_fields, 1)
        hint = f"; did you mean `{near[0]}`?" if near else ""
        return Problem(
            400, f"`{place[0][:80]}` is not a parameter that this server knows{hint}", place[0][:80], "unknown_parameter"
        )
    return Problem(400, f"`{shown}`: {first['msg'][:1].lower()}{first['msg'][1:]}", name, "invalid_value")


def _is_kind(part: str) -> bool:
    """Whether a part of a place is the name of one of several types, and not of a field."""
    return part[:1].isupper() or any(sign in part for sign in "[](){}-") or part in ("str", "int", "float", "dict", "list")
