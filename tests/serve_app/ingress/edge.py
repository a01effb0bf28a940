"""The ingress without Ray: its application on a real uvicorn port, over a fake upstream."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import uvicorn
from starlette.types import ASGIApp

from deployments.providers import openai_compat
from serve_app import config
from serve_app.ingress.api import build_api
from serve_app.ingress.gateway import Gateway, ProviderLink
from serve_app.runs import Slot
from tests.fakes.slots import FakeSlots
from tests.fakes.upstream import Upstream

Json = dict[str, Any]

#: The provider's name in every configuration here, and the key it sends upstream.
PROVIDER = "fake"
API_KEY = "key-of-the-upstream"

MESSAGES = [{"role": "user", "content": "Say hello."}]

#: Making a context that trusts the system's authorities takes longer than most tests.
_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class RawAnswer:
    """A response as it came over the socket."""

    def __init__(self, data: bytes) -> None:
        head, _, self.body = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        self.status = int(first.split(" ")[1]) if first else 0
        pairs = (line.partition(": ") for line in lines)
        self.headers = {name.lower(): value for name, _, value in pairs}

    @property
    def json(self) -> Json:
        """The body, which is one JSON object."""
        return json.loads(self.body)


@dataclass
class FakeReadiness:
    """Says what the test tells it to say."""

    said: dict[str, str]

    async def missing(self) -> dict[str, str]:
        return self.said


@dataclass
class Edge:
    """A running gateway, and a client that talks to it."""

    gateway: Gateway
    app: ASGIApp
    slots: FakeSlots
    readiness: FakeReadiness
    port: int
    client: httpx.AsyncClient

    @property
    def url(self) -> str:
        """The base URL that an OpenAI client wants."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def quiet(self) -> bool:
        """No call at work at the upstream and no slot in use."""
        pools = self.gateway.pools.values()
        return self.gateway.client.open_streams == 0 and not any(pool.busy for pool in pools)

    async def chat(self, script: str = "hello", **fields: Any) -> httpx.Response:
        """Ask for the upstream's named answer and wait for the whole response."""
        return await self.client.post("/v1/chat/completions", json=body(script, **fields))

    async def raw(self, data: bytes, *, end: bool = False) -> RawAnswer:
        """What comes back for these bytes until the connection is closed; `end` closes our side."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            async with asyncio.timeout(10):
                writer.write(data)
                if end:
                    writer.write_eof()
                return RawAnswer(await reader.read())
        finally:
            writer.close()

    async def get(self, path: str, *headers: bytes) -> RawAnswer:
        """A GET whose path and header lines are sent as they are."""
        lines = [b"GET %s HTTP/1.1" % path.encode(), b"host: x", b"connection: close", *headers]
        return await self.raw(b"\r\n".join(lines) + b"\r\n\r\n")


def body(script: str = "hello", **fields: Any) -> Json:
    """A chat request whose model makes the fake upstream give its named answer."""
    return {"model": f"script:{script}", "messages": MESSAGES, **fields}


def settings_text(
    openai: Json | None = None, models: list[Json] | None = None, url: str = "http://127.0.0.1:9/v1"
) -> str:
    """The text of an `edge.yaml`: any model name goes to the fake, unless `openai` says else."""
    section: Json = {"adapter": PROVIDER} | (openai or {})
    provider = {"name": PROVIDER, "type": "openai_compat", "url": url, "api_key": API_KEY}
    return json.dumps({"openai": section, "models": models or [], "providers": [provider]})


@asynccontextmanager
async def running(
    upstream: Upstream,
    *,
    openai: Json | None = None,
    models: list[Json] | None = None,
    slots: int = 64,
) -> AsyncGenerator[Edge]:
    """A gateway with this `openai:` section and this catalog, until the block ends."""
    settings = config.load(settings_text(openai, models, upstream.url), environ={})
    slot = Slot(PROVIDER, upstream.url, {"authorization": f"Bearer {API_KEY}"})
    source = FakeSlots(slot, count=slots)
    readiness = FakeReadiness({})
    link = ProviderLink(PROVIDER, openai_compat.PROVIDER, source)
    gateway = Gateway(settings, {PROVIDER: link}, readiness)
    app = build_api(gateway)
    async with serving(app) as port:
        address = f"http://127.0.0.1:{port}"
        async with httpx.AsyncClient(base_url=address, verify=_NO_TLS, timeout=10) as client:
            yield Edge(gateway, app, source, readiness, port, client)


@asynccontextmanager
async def serving(app: ASGIApp) -> AsyncGenerator[int]:
    """Serve an application with uvicorn on a free port, which is given.

    uvicorn's own loop is left out: all it does is look for a signal ten times a second.
    """
    settings = uvicorn.Config(app, port=0, log_config=None, access_log=False, lifespan="on")
    settings.load()
    server = uvicorn.Server(settings)
    server.lifespan = settings.lifespan_class(settings)
    await server.startup()
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.servers[0].close()
        for connection in list(server.server_state.connections):
            connection.shutdown()
        tasks = list(server.server_state.tasks)
        if tasks:
            await asyncio.wait(tasks, timeout=2)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.lifespan.shutdown()
        # A closed transport gives its socket back in the loop's next round.
        await asyncio.sleep(0)


async def access_line(records: list[logging.LogRecord]) -> Json:
    """The one line of the access log, parsed; it comes a little after the response's end."""
    await until(lambda: _access_lines(records))
    (line,) = _access_lines(records)
    return json.loads(line)


def _access_lines(records: list[logging.LogRecord]) -> list[str]:
    messages = [record.getMessage() for record in records if record.name == "ray.serve.edge"]
    return [message for message in messages if message.startswith("{")]


async def until(holds: Callable[[], object], limit_s: float = 5.0) -> None:
    """Wait until something is true.

    Raises:
        TimeoutError: It did not come true in time.
    """
    async with asyncio.timeout(limit_s):
        while not holds():  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0.01)
