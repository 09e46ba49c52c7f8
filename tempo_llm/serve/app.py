"""The HTTP interface: OpenAI's paths, health, metrics, and the page to try it."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tempo_llm.errors import RequestError
from tempo_llm.model import Model
from tempo_llm.serve.answers import Answer, ChatAnswer
from tempo_llm.serve.asked import Asked, Asking
from tempo_llm.serve.engine import Engine
from tempo_llm.serve.grammar import Grammars
from tempo_llm.serve.jobs import Job, Update
from tempo_llm.serve.metrics import Metrics
from tempo_llm.serve.problems import Problem
from tempo_llm.serve.schemas import ChatBody, Common, CompletionBody, parsed

LOG = logging.getLogger("tempo.serve")
PAGE = Path(__file__).with_name("page.html")
OPEN = ("/", "/health")  # paths that need no key


@dataclass(frozen=True)
class Settings:
    """The limits of a server. `seconds` is how long a request may take; `most_bytes` limits its body."""

    name: str
    api_key: str | None = None
    max_new_tokens: int = 1024
    most_bytes: int = 2**20
    seconds: float = 600.0


class Submission:
    """The jobs of a request, and their updates, as they come, in the event loop."""

    def __init__(self, engine: Engine, metrics: Metrics):
        self._engine, self._metrics = engine, metrics
        self._loop = asyncio.get_running_loop()
        self._updates: asyncio.Queue[tuple[int, Update]] = asyncio.Queue()
        self.jobs: list[Job] = []

    def add(self, job: Job) -> None:
        """Submit a job. Raises Problem, and cancels the others, if it is not taken."""
        number = len(self.jobs)
        job.listener = lambda update: self._heard(number, update)
        self.jobs.append(job)
        try:
            failure = self._engine.submit(job)
        except RequestError as error:
            self.cancel()
            raise Problem(400, error.message, None, "invalid_value") from None
        if failure is not None:
            self.cancel()
            raise Problem.of(failure)

    def _heard(self, number: int, update: Update) -> None:
        try:
            self._loop.call_soon_threadsafe(self._updates.put_nowait, (number, update))
        except RuntimeError:  # the loop has ended
            self.jobs[number].cancel()

    async def updates(self) -> AsyncIterator[tuple[int, Update]]:
        """All updates. Raises Problem for one that is an error."""
        left = len(self.jobs)
        while left:
            number, update = await self._updates.get()
            if update.error is not None:
                raise Problem.of(update.error)
            if update.is_last:
                left -= 1
                self._metrics.finished(self.jobs[number])
            yield number, update

    def cancel(self) -> None:
        """Nobody waits any more: rows are freed before the next step."""
        for job in self.jobs:
            job.cancel()
        self._engine.wake()

    @property
    def cached_tokens(self) -> int:
        return sum(job.cached_tokens for job in self.jobs)


class Service:
    """The paths of a server, over an engine."""

    def __init__(self, model: Model, engine: Engine, settings: Settings):
        self.model, self.engine, self.settings = model, engine, settings
        self._tokenizer = model.tokenizer if model.has_tokenizer else None
        self.metrics, self._started = Metrics(engine), int(time.time())
        grammars = Grammars(self._tokenizer, model.config.vocab_size, model.end_ids())
        self._asking = Asking(model, engine.max_context, settings.max_new_tokens, grammars, engine.queue)

    def app(self) -> Starlette:
        paths: dict[str, tuple[str, Callable[[Request], Coroutine[Any, Any, Response]]]] = {
            "/": ("GET", self._page),
            "/health": ("GET", self._health),
            "/metrics": ("GET", self._metrics_text),
            "/v1/models": ("GET", self._models),
            "/v1/models/{name:path}": ("GET", self._model),
            "/v1/completions": ("POST", self._completions),
            "/v1/chat/completions": ("POST", self._chat),
            "/v1/embeddings": ("POST", self._embeddings),
        }
        routes = [Route(path, self._guarded(path, handler), methods=[method]) for path, (method, handler) in paths.items()]

        async def refused(request: Request, error: Exception) -> Response:
            assert isinstance(error, HTTPException)
            path = request.url.path[:200]
            words = {404: f"there is no path {path}", 405: f"{path} does not take {request.method}"}
            problem = Problem(error.status_code, words.get(error.status_code, str(error.detail)))
            return self._refusal("other", problem, error.headers)

        return Starlette(routes=routes, exception_handlers={HTTPException: refused}, lifespan=self._lifespan)

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        yield
        self.engine.drain()
        await run_in_threadpool(self.engine.join, self.settings.seconds)
        self._asking.close()

    def _guarded(
        self, path: str, handler: Callable[[Request], Coroutine[Any, Any, Response]]
    ) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """A handler behind the key, whose problems are answers."""

        async def guarded(request: Request) -> Response:
            try:
                if path not in OPEN:
                    self._check_key(request)
                response = await handler(request)
            except Problem as problem:
                return self._refusal(path, problem)
            except ClientDisconnect:
                self.metrics.gone()
                return Response(status_code=499)
            except Exception:
                LOG.exception("%s has failed", path)
                return self._refusal(path, Problem(500, "the server has failed; see its log", None, "server_error"))
            self.metrics.answered(path, response.status_code)
            return response

        return guarded

    def _refusal(self, path: str, problem: Problem, headers: Any = None) -> Response:
        self.metrics.answered(path, problem.status)
        return JSONResponse(problem.body(), problem.status, {**problem.headers, **dict(headers or {})})

    def _check_key(self, request: Request) -> None:
        key = self.settings.api_key
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if key is None:
            return
        if kind.lower() != "bearer" or not token:
            raise Problem(401, "this server needs a key: Authorization: Bearer KEY", None, "missing_api_key")
        if not hmac.compare_digest(token.strip().encode(), key.encode()):
            raise Problem(401, "the key is not that of this server", None, "invalid_api_key")

    async def _body(self, request: Request) -> bytes:
        """The body. Raises Problem if it is too long, or no JSON by its own word."""
        most = self.settings.most_bytes
        long = Problem(413, f"the body is longer than {most:,} bytes", None, "body_too_long")
        if not request.headers.get("content-type", "").lower().startswith("application/json"):
            raise Problem(415, "the body must be JSON: Content-Type: application/json", None, "invalid_content_type")
        length = request.headers.get("content-length", "0")
        if length.isdecimal() and int(length[:20]) > most:
            raise long
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > most:
                raise long
        return body

    def _check_model(self, name: str) -> None:
        if name != self.settings.name:
            raise Problem(
                404, f"there is no model {name[:100]!r}; this server has {self.settings.name!r}", "model", "model_not_found"
            )

    # -- paths --------------------------------------------------------------------------------------------------------

    async def _page(self, request: Request) -> Response:
        return HTMLResponse(
            PAGE.read_text(encoding="utf-8"),
            headers={"Content-Security-Policy": "default-src 'self' 'unsafe-inline'; img-src data:"},
        )

    async def _health(self, request: Request) -> Response:
        if not self.engine.is_alive:
            return JSONResponse({"status": "the engine has ended"}, 503)
        if self.engine.is_draining:
            return JSONResponse({"status": "shutting down"}, 503)
        return JSONResponse({"status": "ok"})

    async def _metrics_text(self, request: Request) -> Response:
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    def _model_object(self) -> dict[str, object]:
        return {
            "id": self.settings.name,
            "object": "model",
            "created": self._started,
            "owned_by": "tempo",
            "max_model_len": self.engine.max_context,
        }

    async def _models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._model_object()]})

    async def _model(self, request: Request) -> Response:
        self._check_model(request.path_params["name"])
        return JSONResponse(self._model_object())

    async def _embeddings(self, request: Request) -> Response:
        await self._body(request)
        raise Problem(400, f"the model {self.settings.name!r} writes texts, and gives no embeddings", "model", "unsupported")

    async def _completions(self, request: Request) -> Response:
        return await self._answered(request, CompletionBody, self._asking.completion, Answer)

    async def _chat(self, request: Request) -> Response:
        return await self._answered(request, ChatBody, self._asking.chat, ChatAnswer)

    async def _answered(
        self, request: Request, kind: type[Any], asking: Callable[[Any], Asked], answering: type[Answer]
    ) -> Response:
        """Have a request served, whole or streamed. A client that goes away frees its rows."""
        deadline = time.monotonic() + self.settings.seconds
        body: Common = parsed(kind, await self._body(request))
        self._check_model(body.model)
        asked = await run_in_threadpool(asking, body)
        submission = Submission(self.engine, self.metrics)
        for job in await run_in_threadpool(self._jobs, asked, deadline):
            submission.add(job)
        answer = answering(asked, self.settings.name, self._tokenizer)
        if asked.is_streamed:
            headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
            return StreamingResponse(self._events(submission, answer), media_type="text/event-stream", headers=headers)
        gone = asyncio.ensure_future(_disconnected(request))
        work = asyncio.ensure_future(self._whole(submission, answer))
        try:
            await asyncio.wait([gone, work], return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise ClientDisconnect
            return JSONResponse(work.result())
        finally:
            for task in (gone, work):
                task.cancel()
            submission.cancel()

    def _jobs(self, asked: Asked, deadline: float) -> list[Job]:
        def nobody(update: Update) -> None:
            pass

        return [
            Job(
                prompt, new, nobody, asked.sampling, asked.seed, sample, asked.stop_ids, asked.stops,
                asked.logprobs is not None, self._asking.grammar(asked), deadline,
            )
            for prompt, new in zip(asked.prompts, asked.max_new_tokens, strict=True)
            for sample in range(asked.samples)
        ]  # fmt: skip

    async def _whole(self, submission: Submission, answer: Answer) -> dict[str, object]:
        async for number, update in submission.updates():
            answer.take(number, update)
        answer.cached_tokens = submission.cached_tokens
        return answer.whole()

    async def _events(self, submission: Submission, answer: Answer) -> AsyncIterator[str]:
        is_whole = False
        try:
            for chunk in answer.first():
                yield _event(chunk)
            async for number, update in submission.updates():
                answer.take(number, update)
                for chunk in answer.chunks(number, update):
                    yield _event(chunk)
            answer.cached_tokens = submission.cached_tokens
            for chunk in answer.last():
                yield _event(chunk)
            yield "data: [DONE]\n\n"
            is_whole = True
        except Problem as problem:
            yield _event(problem.body())
            yield "data: [DONE]\n\n"
            is_whole = True
        finally:
            submission.cancel()
            if not is_whole:
                self.metrics.gone()


def _event(value: dict[str, object]) -> str:
    return f"data: {json.dumps(value, separators=(',', ':'))}\n\n"


async def _disconnected(request: Request) -> None:
    """Wait until the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
