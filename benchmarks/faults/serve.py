"""Requests to a server, from a seed: random ones, of which some are cancelled, and malformed ones. `python -m benchmarks.faults serve --help`.

Random requests go to `tempo-llm serve`, many at a time: completions and chats, whole and streamed, of random lengths, with random settings.
Some clients go away before the answer, or in the middle of it. Then each request whose answer came is sent again, alone: the answer must be the
same. In the end no row may be taken, and the process may not have grown. Each malformed request must get a status of 400 to 499 with a reason.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.release.record import Record
from benchmarks.serving import ServerProcess, metric
from benchmarks.sources import code_of
from tempo_core.files import write_whole

WORDS = [
    "one",
    "two",
    "three",
    "red",
    "blue",
    "cat",
    "dog",
    "house",
    "12",
    "30",
    "+",
    "=",
    "what",
    "is",
    "the",
    "opposite",
    "of",
    "hot",
    "?",
    ".",
    "count",
    "from",
    "3",
    "to",
    "9",
    "Tom",
    "has",
    "a",
    "and",
    "ran",
    "home",
    "hello",
]
SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "maximum": 99}, "ok": {"type": "boolean"}},
    "required": ["n", "ok"],
}


@dataclass
class Sent:
    """A request and what came of it. `cut` is after how many chunks, or seconds, its client goes away; None: it stays."""

    path: str
    body: dict[str, Any]
    cut: float | None
    answer: Any = None
    status: int = 0


@dataclass
class Tally:
    """What was seen, and what was wrong."""

    answered: int = 0
    cancelled: int = 0
    refused: int = 0
    different: list[str] = field(default_factory=list)
    malformed: int = 0
    wrong: list[str] = field(default_factory=list)


def random_request(source: random.Random, model: str, context: int = 256) -> Sent:
    """A request that is right."""
    body: dict[str, Any] = {"model": model, "seed": source.randrange(2**31), "temperature": source.choice((0, 0, 0.7, 1.0))}
    words = " ".join(source.choice(WORDS) for _ in range(source.choice((1, 3, 8, 20, 45))))
    if source.random() < 0.25:  # begins as others do
        words = "Tom has a cat and a dog and a house. " * 3 + words
    body["max_tokens"] = source.choice((1, 2, 5, 16, 40, 60))
    is_chat = source.random() < 0.4
    if source.random() < 0.25 and body["temperature"]:
        body |= source.choice(({"top_p": 0.8}, {"top_k": 7}, {"min_p": 0.05}))
    if source.random() < 0.15:
        body |= source.choice(({"presence_penalty": 1.0}, {"frequency_penalty": 0.5}, {"logit_bias": {"5": 3, "7": -100}}))
    if source.random() < 0.15:
        body["stop"] = source.choice((".", ["\n", "a"], "the"))
    if source.random() < 0.1:
        body["n"] = 2
    if source.random() < 0.1:
        body |= {"logprobs": True, "top_logprobs": 2} if is_chat else {"logprobs": 2}
    if is_chat:
        body["messages"] = [{"role": "user", "content": words}]
        if source.random() < 0.15:
            body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
    else:
        body["prompt"] = words
    body["stream"] = source.random() < 0.5
    cut = source.choice((0, 1, 3, 10) if body["stream"] else (0.0, 0.01, 0.1, 0.3)) if source.random() < 0.2 else None
    return Sent("/v1/chat/completions" if is_chat else "/v1/completions", body, cut)


async def send(client: Any, sent: Sent) -> None:
    """Send a request, and keep its answer: the text, reason and tokens of each choice."""
    if not sent.body["stream"]:
        try:
            response = await client.post(sent.path, json=sent.body, timeout=300 if sent.cut is None else max(sent.cut, 1e-3))
        except Exception:
            if sent.cut is None:
                raise
            return
        sent.status = response.status_code
        answer = response.json()
        sent.answer = [_choice(choice) for choice in answer["choices"]] if response.status_code == 200 else answer
        return
    async with client.stream("POST", sent.path, json=sent.body, timeout=300) as response:
        sent.status = response.status_code
        if response.status_code != 200:
            sent.answer = json.loads(await response.aread())
            return
        choices: dict[int, dict[str, Any]] = {}
        count = 0
        async for line in response.aiter_lines():
            if sent.cut is not None and count >= sent.cut:
                return
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            count += 1
            for choice in json.loads(line[len("data: ") :])["choices"]:
                kept = choices.setdefault(choice["index"], {"text": "", "finish_reason": None})
                kept["text"] += (choice["delta"].get("content") or "") if "delta" in choice else choice["text"]
                kept["finish_reason"] = choice["finish_reason"] or kept["finish_reason"]
        if sent.cut is None:
            sent.answer = [choices[number] for number in sorted(choices)]


def _choice(choice: dict[str, Any]) -> dict[str, Any]:
    text = choice["message"]["content"] if "message" in choice else choice["text"]
    return {"text": text, "finish_reason": choice["finish_reason"]}


async def send_all(url: str, key: str, requests: list[Sent], at_a_time: int) -> None:
    import httpx

    gate = asyncio.Semaphore(at_a_time)
    limits = httpx.Limits(max_connections=at_a_time, max_keepalive_connections=at_a_time)
    async with httpx.AsyncClient(
        base_url=url, headers={"Authorization": f"Bearer {key}"}, limits=limits, trust_env=False
    ) as client:

        async def one(sent: Sent) -> None:
            async with gate:
                await send(client, sent)

        await asyncio.gather(*(one(sent) for sent in requests))


def check_random(server: ServerProcess, key: str, count: int, seed: int, at_a_time: int, tally: Tally) -> None:
    """Send random requests at once, and those that were answered again, one after the other."""
    source = random.Random(seed)
    requests = [random_request(source, server.name) for _ in range(count)]
    asyncio.run(send_all(server.url, key, requests, at_a_time))
    again = [Sent(sent.path, sent.body, None) for sent in requests if sent.cut is None]
    asyncio.run(send_all(server.url, key, again, 1))
    answered = [sent for sent in requests if sent.cut is None]
    tally.cancelled += count - len(answered)
    for sent, alone in zip(answered, again, strict=True):
        tally.answered += sent.status == 200
        tally.refused += sent.status != 200
        if sent.status != alone.status or sent.answer != alone.answer:
            tally.different.append(f"{json.dumps(sent.body)}: {sent.answer} beside others, {alone.answer} alone")


# -- malformed --------------------------------------------------------------------------------------------------------

WRONG: list[Any] = [
    None,
    True,
    -1,
    2.5,
    10**30,
    1e308,
    "",
    "x",
    "\0",
    [],
    [1],
    [None],
    {},
    {"a": {}},
    [[]],
    [["a"]],
    "a" * 5000,
    [[1, -5]],
]
FIELDS = ["model", "prompt", "messages", "max_tokens", "temperature", "top_p", "n", "stop", "seed", "logit_bias", "stream", "stream_options", "tools",
          "tool_choice", "response_format", "logprobs", "top_logprobs", "best_of", "echo", "suffix", "top_k", "presence_penalty", "prompts"]  # fmt: skip
LITERAL: list[tuple[str, str, bytes, dict[str, str]]] = [
    ("POST", "/v1/completions", b"", {}),
    ("POST", "/v1/completions", b"{", {}),
    ("POST", "/v1/completions", b"[]", {}),
    ("POST", "/v1/completions", b"null", {}),
    ("POST", "/v1/completions", b"\xff\xfe", {}),
    ("POST", "/v1/completions", b"[" * 9000, {}),
    ("POST", "/v1/completions", b'{"a":' * 3000, {}),
    ("POST", "/v1/completions", b"NaN", {}),
    ("POST", "/v1/completions", b"prompt=x", {"Content-Type": "application/x-www-form-urlencoded"}),
    ("GET", "/v1/completions", b"", {}),
    ("PUT", "/v1/chat/completions", b"{}", {}),
    ("DELETE", "/v1/models", b"", {}),
    ("GET", "/v1/models/other", b"", {}),
    ("GET", "/v2/models", b"", {}),
    ("GET", "/../etc/passwd", b"", {}),
    ("POST", "/v1/embeddings", b'{"model": "x", "input": "a"}', {}),
    ("POST", "/v1/completions", b"{}", {"Authorization": "Bearer wrong"}),
    ("POST", "/v1/completions", b"{}", {"Authorization": "Basic eDp5"}),
    ("POST", "/v1/completions", b" " * 3_000_000, {}),
]


def malformed(source: random.Random, model: str) -> tuple[str, str, bytes, dict[str, str]]:
    """A request with at least one mistake, or with a wrong value that happens to be right: method, path, body and headers."""
    if source.random() < 0.2:
        return source.choice(LITERAL)
    is_chat = source.random() < 0.5
    body: dict[str, Any] = {"model": model, "max_tokens": 1}
    body |= {"messages": [{"role": "user", "content": "a"}]} if is_chat else {"prompt": "a"}
    for name in source.sample(FIELDS, source.choice((1, 1, 2))):
        body[name] = source.choice(WRONG)
    if source.random() < 0.2:
        body = {name: value for name, value in body.items() if name not in ("model", source.choice(("prompt", "messages")))}
    if is_chat and source.random() < 0.3:
        body["messages"] = [
            source.choice([{}, {"role": "x", "content": "a"}, {"role": "user"}, {"role": "user", "content": 5}, "a", None])
        ]
    path = "/v1/chat/completions" if is_chat else "/v1/completions"
    return "POST", path, json.dumps(body).encode(), {"Content-Type": "application/json"}


def check_malformed(server: ServerProcess, key: str, count: int, seed: int, tally: Tally) -> None:
    """Send malformed requests until so many were refused. What is answered with 200 was right by chance, and does not count."""
    import httpx

    source = random.Random(seed)
    with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as client:
        while tally.malformed < count:
            method, path, body, headers = malformed(source, server.name)
            response = client.request(method, path, content=body, headers={"Authorization": f"Bearer {key}", **headers})
            if response.status_code == 200:
                continue
            tally.malformed += 1
            shown = f"{method} {path} {body[:200]!r}: {response.status_code} {response.text[:300]}"
            try:
                error = response.json()["error"]
            except (ValueError, KeyError, TypeError):
                tally.wrong.append(shown)
                continue
            has_form = (
                error.keys() == {"message", "type", "param", "code"} and isinstance(error["message"], str) and error["message"]
            )
            if not 400 <= response.status_code < 500 or not has_form:
                tally.wrong.append(shown)


def metrics_of(server: ServerProcess, key: str) -> str:
    import httpx

    return httpx.get(f"{server.url}/metrics", headers={"Authorization": f"Bearer {key}"}, trust_env=False).text


def held_bytes(server: ServerProcess, key: str) -> float:
    """The resident memory of a server, but for what it keeps of prompts."""
    return server.resident_bytes - metric(metrics_of(server, key), "tempo_shared_prefix_bytes")


def settled(server: ServerProcess, key: str, seconds: float = 10.0) -> list[str]:
    """What is left of requests after all have ended; empty, if nothing is."""
    begun = time.monotonic()
    while True:
        text = metrics_of(server, key)
        left = [f"{name} is {value:g}" for name in ("tempo_rows_busy", "tempo_requests_waiting") if (value := metric(text, name))]
        if not left or time.monotonic() - begun > seconds:
            return left
        time.sleep(0.1)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults serve", description=__doc__)
    parser.add_argument("--count", type=int, default=2000, help="random requests [2000]")
    parser.add_argument("--malformed", type=int, default=300, help="malformed requests [300]")
    parser.add_argument("--at-a-time", type=int, default=16, help="clients [16]")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the counts, machine and versions as JSON")
    options = parser.parse_args(arguments)
    record = Record("serve")
    tally, key = Tally(), "secret"
    with ServerProcess("--rows", "8", "--fixed-rows", "--api-key", key, "--log-level", "warning") as server:
        check_random(server, key, 50, options.seed + 1, options.at_a_time, Tally())  # so that all that is kept is there
        before = held_bytes(server, key), server.open_files
        begun = time.monotonic()
        check_random(server, key, options.count, options.seed, options.at_a_time, tally)
        seconds = time.monotonic() - begun
        check_malformed(server, key, options.malformed, options.seed, tally)
        left = settled(server, key)
        grown, files = held_bytes(server, key) - before[0], server.open_files - before[1]
        status = server.end()
    print(
        f"{tally.answered} answered, {tally.cancelled} cancelled, {tally.refused} refused, in {seconds:.0f} s; {len(tally.different)} differ alone"
    )
    print(f"{tally.malformed} malformed, {len(tally.wrong)} of them without a status of 400 to 499 and a reason")
    print(
        f"resident memory {grown / 1e6:+.1f} MB, open files {files:+d}; left: {', '.join(left) or 'nothing'}; exit status {status}"
    )
    for line in (*tally.different[:20], *tally.wrong[:20]):
        print(line)
    is_wrong = bool(tally.different or tally.wrong or tally.refused or left or status)
    if options.out is not None:
        record.status = "failed" if is_wrong else "done"
        counts = {
            "answered": tally.answered, "cancelled": tally.cancelled, "refused": tally.refused, "different_alone": len(tally.different),
            "malformed": tally.malformed, "malformed_without_a_reason": len(tally.wrong), "rows_left": len(left), "files_left": files,
        }  # fmt: skip
        details = {
            "at_a_time": options.at_a_time,
            "seconds_of_random_requests": round(seconds, 1),
            "megabytes_grown": round(grown / 1e6, 1),
        }
        made_by = {"benchmark": "faults serve", "code": code_of("faults serve", "")}
        content = {**made_by, "seed": options.seed, **record.values(), "counts": counts, "details": details}
        write_whole(options.out, (json.dumps(content, indent=1) + "\n").encode())
    return is_wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
