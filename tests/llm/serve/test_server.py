"""A real server and the real client."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

import tempo_llm
from benchmarks.faults import serve as faults
from benchmarks.serving import ServerProcess, metric
from tests.cases import slow
from tests.llm.serve.conftest import KEY

HEADERS = {"Authorization": f"Bearer {KEY}"}
QUESTION = [{"role": "user", "content": "What is 12 + 30?"}]


@pytest.fixture(scope="module")
def model() -> tempo_llm.Model:
    return tempo_llm.load("tiny-llama")


def get(server: ServerProcess, path: str, **options: Any) -> httpx.Response:
    return httpx.get(f"{server.url}{path}", headers=HEADERS, trust_env=False, timeout=30, **options)


def post(server: ServerProcess, path: str, body: Any, **options: Any) -> httpx.Response:
    return httpx.post(f"{server.url}{path}", json=body, headers=HEADERS, trust_env=False, timeout=60, **options)


# -- what is answered -----------------------------------------------------------------------------------------------------


def test_models(client: Any) -> None:
    (model,) = client.models.list().data
    assert model.id == "tiny-llama" and client.models.retrieve("tiny-llama").id == "tiny-llama"


@pytest.mark.parametrize("prompt", [slow("12 + 30 ="), "Tom has a cat. " * 9, "x"])
def test_an_answer_is_that_of_generate(client: Any, model: tempo_llm.Model, prompt: str) -> None:
    (expected,) = model.generate(prompt, 24).completions
    answer = client.completions.create(model="tiny-llama", prompt=prompt, max_tokens=24, temperature=0)
    (choice,) = answer.choices
    assert (choice.text, choice.finish_reason) == (expected.text, expected.finish_reason)
    assert answer.usage.prompt_tokens == len(expected.prompt_ids)
    assert answer.usage.completion_tokens == len(expected.token_ids)


@pytest.mark.slow
def test_draws_are_those_of_generate(client: Any, model: tempo_llm.Model) -> None:
    """With settings of all kinds, and what is reported of the tokens."""
    sampling = tempo_llm.Sampling(1.0, top_p=0.9, presence_penalty=1.0, logit_bias={40: 1.5})
    expected = model.generate("hello", 12, sampling=sampling, samples=2, seed=5, logprobs=2).completions
    settings = {"temperature": 1, "top_p": 0.9, "presence_penalty": 1, "logit_bias": {"40": 1.5}, "seed": 5, "logprobs": 2}
    answer = client.completions.create(model="tiny-llama", prompt="hello", max_tokens=12, n=2, **settings)
    assert [choice.text for choice in answer.choices] == [each.text for each in expected]
    for choice, each in zip(answer.choices, expected, strict=True):
        assert each.logprobs is not None
        shown = choice.logprobs.token_logprobs
        assert shown == pytest.approx([one.logprob for one in each.logprobs][: len(shown)], abs=1e-4)
        assert all(len(top) == 2 for top in choice.logprobs.top_logprobs)


def test_a_stream_is_the_whole_in_pieces(client: Any) -> None:
    whole = client.chat.completions.create(model="tiny-llama", messages=QUESTION, temperature=0)
    options = {
        "model": "tiny-llama",
        "messages": QUESTION,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    chunks = list(client.chat.completions.create(**options))
    pieces = [choice.delta.content or "" for chunk in chunks for choice in chunk.choices]
    assert "".join(pieces) == whole.choices[0].message.content == "42."
    assert len([piece for piece in pieces if piece]) > 1
    assert chunks[-1].usage == whole.usage and chunks[-2].choices[0].finish_reason == "stop"


def test_several_prompts_and_token_ids(client: Any, model: tempo_llm.Model) -> None:
    prompts = ["12 + 30 =", "hello"]
    ids = [model.tokenizer.encode(prompt, raw=True) for prompt in prompts]
    texts, tokens = (
        client.completions.create(model="tiny-llama", prompt=prompt, max_tokens=6, temperature=0) for prompt in (prompts, ids)
    )
    assert [choice.text for choice in texts.choices] == [choice.text for choice in tokens.choices]
    assert [choice.index for choice in texts.choices] == [0, 1]


def test_stop_ends_before_the_string(client: Any) -> None:
    whole = client.completions.create(model="tiny-llama", prompt="12 + 30 =", max_tokens=8, temperature=0).choices[0]
    answer = client.completions.create(model="tiny-llama", prompt="12 + 30 =", max_tokens=8, temperature=0, stop=["2"]).choices[0]
    assert (answer.text, answer.finish_reason) == (whole.text[: whole.text.index("2")], "stop")


def test_logprobs_of_a_chat(client: Any) -> None:
    chat = client.chat.completions.create(model="tiny-llama", messages=QUESTION, temperature=0, logprobs=True, top_logprobs=1)
    content = chat.choices[0].logprobs.content
    assert "".join(each.token for each in content) == "42." and all(each.top_logprobs[0].token == each.token for each in content)


def test_a_bias_forces(client: Any, model: tempo_llm.Model) -> None:
    (token,) = model.tokenizer.encode_behind("7")
    options = {"model": "tiny-llama", "prompt": "12 + 30 =", "max_tokens": 4, "temperature": 0}
    assert client.completions.create(**options, logit_bias={str(token): 100}).choices[0].text == "7777"


SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 10, "maximum": 99}, "ok": {"type": "boolean"}},
    "required": ["n", "ok"],
    "additionalProperties": False,
}


def test_json_follows_its_schema(client: Any) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
    for seed in range(3):
        options = {"model": "tiny-llama", "messages": QUESTION, "temperature": 1.5, "seed": seed}
        text = client.chat.completions.create(**options, response_format=form).choices[0].message.content
        value = json.loads(text)
        assert 10 <= value["n"] <= 99 and value["ok"] in (True, False) and value.keys() == {"n", "ok"}


TOOL = {"name": "add", "parameters": {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}}


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_tool_is_called(client: Any, is_streamed: bool) -> None:
    options = {"model": "tiny-llama", "messages": QUESTION, "temperature": 0, "tools": [{"type": "function", "function": TOOL}]}
    answer = client.chat.completions.create(**options, tool_choice="required", stream=is_streamed)
    if is_streamed:
        parts = [choice for chunk in answer for choice in chunk.choices]
        (call,) = (call for part in parts for call in part.delta.tool_calls or [])
        reason = parts[-1].finish_reason
    else:
        (call,), reason = answer.choices[0].message.tool_calls, answer.choices[0].finish_reason
    assert call.function.name == "add" and json.loads(call.function.arguments)["a"] in (1, 2) and reason == "tool_calls"


def test_tools_that_are_not_called_leave_a_text(client: Any) -> None:
    options = {"model": "tiny-llama", "messages": QUESTION, "temperature": 0, "tools": [{"type": "function", "function": TOOL}]}
    message = client.chat.completions.create(**options, tool_choice="none").choices[0].message
    assert message.tool_calls is None and message.content == "42."


def test_a_grammar_is_for_its_row_alone(server: ServerProcess) -> None:
    """Rows with a schema beside rows without one."""
    requests = []
    for number in range(8):
        body: dict[str, Any] = {"model": "tiny-llama", "messages": QUESTION, "temperature": 0, "max_tokens": 40, "stream": False}
        if number % 2:
            body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
        requests.append(faults.Sent("/v1/chat/completions", body, None))
    import asyncio

    asyncio.run(faults.send_all(server.url, KEY, requests, 8))
    texts = [sent.answer[0]["text"] for sent in requests]
    assert texts[::2] == ["42."] * 4 and all(json.loads(text).keys() == {"n", "ok"} for text in texts[1::2])


def test_prompts_share_their_first_blocks(client: Any, server: ServerProcess) -> None:
    before = metric(get(server, "/metrics").text, "tempo_prompt_tokens_shared_total")
    prompt = "Ten geese swim in a lake. " * 12
    first, second = (
        client.completions.create(model="tiny-llama", prompt=prompt + end, max_tokens=4, temperature=0) for end in "ab"
    )
    shared = second.usage.prompt_tokens_details.cached_tokens
    assert first.usage.prompt_tokens_details.cached_tokens == 0 and shared >= 64 and shared % 64 == 0
    assert metric(get(server, "/metrics").text, "tempo_prompt_tokens_shared_total") == before + shared


def test_the_page_is_there_and_asks_no_network(server: ServerProcess) -> None:
    page = httpx.get(server.url, trust_env=False)
    assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
    assert "//" not in page.text.replace("<!doctype html>", "") or not any(
        sign in page.text for sign in ("http://", "https://", "src=", "@import")
    )


def test_health_and_metrics(server: ServerProcess) -> None:
    assert httpx.get(f"{server.url}/health", trust_env=False).json() == {"status": "ok"}
    text = get(server, "/metrics").text
    assert metric(text, "tempo_rows") == 4 and metric(text, "tempo_cache_bytes") > 0
    assert metric(text, "tempo_time_to_first_token_seconds_count") > 0


# -- what is refused ------------------------------------------------------------------------------------------------------

RIGHT: dict[str, Any] = {"model": "tiny-llama", "prompt": "a", "max_tokens": 1}
REFUSED: list[tuple[dict[str, Any], int, str | None, str]] = [
    ({"model": "other"}, 404, "model", "this server has 'tiny-llama'"),
    ({"max_tokens": 0}, 400, "max_tokens", "greater than or equal to 1"),
    ({"max_tokens": 201}, 400, "max_tokens", "at most 200"),
    ({"prompt": "a " * 300}, 400, "max_tokens", "context of 256 tokens"),
    ({"prompt": [1, 512]}, 400, "prompt", "the model knows 512 tokens"),
    ({"prompt": []}, 400, "prompt", "empty"),
    ({"temperature": -1}, 400, "temperature", "greater than or equal to 0"),
    ({"temperatur": 1}, 400, "temperatur", "did you mean `temperature`?"),
    ({"logit_bias": {"512": 1}}, 400, "logit_bias", "tokens are 0 to 511"),
    ({"stop": [""]}, 400, "stop", "at least 1 character"),
    ({"n": 17}, 400, "n", "less than or equal to 16"),
    ({"n": 5, "prompt": ["a"] * 5}, 400, "n", "more texts than wait here at a time, 24"),
    ({"echo": True}, 400, "echo", "not supported"),
    ({"suffix": "b"}, 400, "suffix", "not supported"),
    ({"best_of": 3}, 400, "best_of", "not supported"),
    ({"stream_options": {"include_usage": True}}, 400, "stream_options", "needs `stream`"),
]


def test_a_mistake_has_a_reason(server: ServerProcess) -> None:
    for change, status, param, words in REFUSED:
        response = post(server, "/v1/completions", {**RIGHT, **change})
        error = response.json()["error"]
        assert response.status_code == status and error["param"] in (param, None) and words in error["message"], error


CHATS: list[tuple[dict[str, Any], str]] = [
    ({"messages": []}, "at least 1 item"),
    ({"messages": [{"role": "user"}]}, "`messages.0.content` is missing"),
    ({"messages": [{"role": "system", "content": "a"}]}, "this model knows no system prompt"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "messages.0.content"),
    ({"top_logprobs": 2}, "needs `logprobs`"),
    ({"tool_choice": "required"}, "there are no `tools`"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "nothing"}}}},
        "cannot be followed",
    ),
]


def test_a_mistake_of_a_chat_has_a_reason(server: ServerProcess) -> None:
    for change, words in CHATS:
        body = {"model": "tiny-llama", "messages": QUESTION, "max_tokens": 2, **change}
        response = post(server, "/v1/chat/completions", body)
        assert response.status_code == 400 and words in response.json()["error"]["message"], response.text


def test_embeddings_are_refused(client: Any) -> None:
    import openai

    with pytest.raises(openai.BadRequestError, match="gives no embeddings"):
        client.embeddings.create(model="tiny-llama", input="a")


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer other"}, {"Authorization": "Basic x"}], ids=str)
def test_a_key_is_needed(server: ServerProcess, headers: dict[str, str]) -> None:
    response = httpx.get(f"{server.url}/v1/models", headers=headers, trust_env=False)
    assert response.status_code == 401 and response.json()["error"]["type"] == "authentication_error"


def test_a_long_body_is_refused(server: ServerProcess) -> None:
    response = post(server, "/v1/completions", {**RIGHT, "prompt": "a" * 70000})
    assert response.status_code == 413 and "60,000 bytes" in response.json()["error"]["message"]


def test_a_full_queue_is_refused_and_what_it_held_is_served(server: ServerProcess) -> None:
    import asyncio

    body = {**RIGHT, "max_tokens": 60, "temperature": 0, "stream": False, "ignore_eos": True}
    requests = [faults.Sent("/v1/completions", body, None) for _ in range(60)]
    asyncio.run(faults.send_all(server.url, KEY, requests, 60))
    statuses = {sent.status for sent in requests}
    assert statuses <= {200, 429} and sum(sent.status == 200 for sent in requests) >= 24
    assert len({json.dumps(sent.answer) for sent in requests if sent.status == 200}) == 1
    assert faults.settled(server, KEY) == []


def test_only_this_machine_is_served(server: ServerProcess) -> None:
    assert server.url.startswith("http://127.0.0.1:")
    port = int(server.url.rpartition(":")[2])
    lines = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    listening = [line.split()[1] for line in lines if line.split()[3] == "0A" and line.split()[1].endswith(f":{port:04X}")]
    assert listening == [f"0100007F:{port:04X}"]


# -- clients that go away -------------------------------------------------------------------------------------------------


def test_a_client_that_goes_away_frees_its_row(server: ServerProcess) -> None:
    body = {**RIGHT, "max_tokens": 200, "ignore_eos": True, "stream": True}
    with httpx.Client(base_url=server.url, headers=HEADERS, trust_env=False) as http:
        for _ in range(4):
            with http.stream("POST", "/v1/completions", json=body) as response:
                next(response.iter_lines())
    assert faults.settled(server, KEY, 5) == []
    assert metric(get(server, "/metrics").text, "tempo_requests_cancelled_total") >= 1


def test_random_requests_beside_others_and_alone(server: ServerProcess) -> None:
    tally = faults.Tally()
    faults.check_random(server, KEY, 40, 7, 8, tally)
    assert tally.different == [] and tally.refused == 0 and tally.answered > 20
    assert faults.settled(server, KEY) == []


def test_malformed_requests_have_a_reason(server: ServerProcess) -> None:
    tally = faults.Tally()
    faults.check_malformed(server, KEY, 60, 3, tally)
    assert tally.wrong == [] and tally.malformed == 60


def test_sigterm_finishes_what_runs_and_refuses_what_is_new() -> None:
    with ServerProcess("--rows", "1", "--log-level", "error", env={"TEMPO_VERIFY": ""}) as server:
        body = {"model": "tiny-llama", "prompt": "a", "max_tokens": 250, "ignore_eos": True, "stream": True, "temperature": 0}
        with httpx.stream("POST", f"{server.url}/v1/completions", json=body, trust_env=False, timeout=60) as response:
            lines = response.iter_lines()
            next(lines)
            server.process.terminate()
            time.sleep(0.1)
            with pytest.raises(httpx.ConnectError):
                httpx.get(f"{server.url}/health", trust_env=False)
            rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]" and json.loads(rest[-2][6:])["choices"][0]["finish_reason"] == "length"
        assert server.process.wait(20) == 0
