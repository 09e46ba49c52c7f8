"""The server as a process: its socket, its signals, and what it says when it begins and ends."""

from __future__ import annotations

import errno
import ipaddress
import logging
import signal
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import uvicorn

from tempo_llm.errors import RequestError
from tempo_llm.model import Model
from tempo_llm.prefixes import Prefixes
from tempo_llm.serve.app import Service, Settings
from tempo_llm.serve.engine import Engine

LOG = logging.getLogger("tempo.serve")
SHARED_BYTES = 256 * 2**20  # of prompts that are kept for those that begin in the same way


@dataclass(frozen=True)
class Sizes:
    """How much an engine serves: `rows` at a time, of up to `max_context` tokens; `queue` others wait. `fixed_rows` are those of `Engine`."""

    rows: int = 8
    max_context: int = 2048
    queue: int = 256
    fixed_rows: bool = False

    def check(self) -> None:
        """Raises RequestError for sizes that are not possible."""
        for name, value in (("rows", self.rows), ("max-context", self.max_context), ("queue", self.queue)):
            if value < 1:
                raise RequestError(f"--{name} is {value}; it must be at least 1")


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises RequestError."""
    if not 0 <= port <= 65535:
        raise RequestError(f"port {port} does not exist", hint="--port 8000; 0 takes a free one")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        hint = (
            "another program listens there; take another one: --port 0" if error.errno == errno.EADDRINUSE else "--host 127.0.0.1"
        )
        raise RequestError(f"cannot listen at {host} port {port}: {error.strerror or error}", hint=hint) from None
    return listener


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def engine_of(model: Model, sizes: Sizes, prompt_cache: Path | None = None) -> Engine:
    """The engine of a model, with its programs compiled. Raises RequestError for sizes that are not possible."""
    sizes.check()
    generator = model.generator
    digest: Callable[[], str] = lambda: f"{generator.digest()}-rows"  # noqa: E731  other programs round keys otherwise
    prefixes = Prefixes(SHARED_BYTES, prompt_cache, digest)
    tokenizer = model.tokenizer if model.has_tokenizer else None
    shape = (sizes.rows, sizes.max_context, sizes.queue)
    engine = Engine(generator, tokenizer, *shape, prefixes, fixed_rows=sizes.fixed_rows)
    engine.compile()
    return engine


class Server(uvicorn.Server):
    """uvicorn's server; at a signal the engine takes no more requests, and those that are there are finished. A second one ends them."""

    def __init__(self, service: Service, log_level: str = "info"):
        options = {"log_level": log_level, "lifespan": "on", "access_log": log_level in ("debug", "info")}
        super().__init__(uvicorn.Config(service.app(), **options, timeout_keep_alive=30, server_header=False))  # type: ignore[arg-type]
        self._engine = service.engine

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._engine.is_draining:
            self._engine.stop()
        self._engine.drain()
        super().handle_exit(sig, frame)


def serve(
    model: Model, engine: Engine, settings: Settings, listener: socket.socket, log_level: str, say: Callable[[str], None]
) -> None:
    """Serve until a signal comes, and what runs is finished."""
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    engine.start()
    server = Server(Service(model, engine, settings), log_level)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn raises it again at the end
    say(
        f"{settings.name} at http://{shown}:{port}/v1 ({engine.rows} rows of {engine.max_context} tokens, {engine.cache.nbytes / 1e6:,.0f} MB)"
    )
    try:
        server.run(sockets=[listener])
    finally:
        engine.stop()
        engine.join(10)
