"""A server of the model in the box, in a process of its own, that the tests of this folder share; and an engine in this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.serving import ServerProcess
from tests.cases import needs

needs("starlette", "openai")

KEY = "secret"


@pytest.fixture(scope="session")
def server() -> Iterator[ServerProcess]:
    options = (
        "--rows",
        "4",
        "--queue",
        "24",
        "--api-key",
        KEY,
        "--max-bytes",
        "60000",
        "--max-new-tokens",
        "200",
        "--log-level",
        "warning",
    )
    with ServerProcess(*options, env={"TEMPO_VERIFY": ""}) as process:
        yield process


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Any]:
    import httpx
    import openai

    with (
        httpx.Client(trust_env=False) as http,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0, http_client=http) as made,
    ):
        yield made
