"""The application called as ASGI calls it, over an upstream client that has its bytes ready.

Without sockets, so that an answer can be tried with every cut there is.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from starlette.types import ASGIApp, Message, Scope

from deployments.providers import openai_compat
from serve_app import config
from serve_app.config import Timeouts
from serve_app.ingress.api import build_api
from serve_app.ingress.gateway import Gateway, ProviderLink
from serve_app.runs import Slot
from serve_app.upstream.client import UpstreamClient, UpstreamStream
from tests.fakes.slots import FakeSlots
from tests.serve_app.ingress.edge import PROVIDER, FakeReadiness, Json, body, settings_text

_IDS = re.compile(rb'(?P<key>"id":|"created":)("chatcmpl-[0-9a-f]{32}"|\d+)')


class CannedStream(UpstreamStream):
    """The pieces of an answer, then its end or a failure."""

    def __init__(self, pieces: Sequence[bytes], end: Exception | None) -> None:
        self.whole = False
        self._pieces = list(pieces)
        self._end = end

    async def read(self) -> bytes:
        if self._pieces:
            return self._pieces.pop(0)
        if self._end is not None:
            raise self._end
        return b""

    def got_event(self) -> None:
        pass

    def got_finish(self) -> None:
        pass

    def close(self) -> None:
        pass


class CannedClient(UpstreamClient):
    """Answers every call with `pieces`, then with `end`: a failure, or the stream's own."""

    pieces: Sequence[bytes] = ()
    end: Exception | None = None

    async def post(
        self, slot: Slot, path: str, body: bytes, *, timeouts: Timeouts, request_id: str
    ) -> UpstreamStream:
        return CannedStream(self.pieces, self.end)


class CannedEdge:
    """The application, and what it answers to a chat call."""

    def __init__(self, app: ASGIApp, client: CannedClient) -> None:
        self._app = app
        self._client = client

    async def ask(
        self, *pieces: bytes, stream: bool, end: Exception | None = None
    ) -> tuple[int, bytes]:
        """Status and body of an answer whose upstream sends these pieces; ids are made equal."""
        self._client.pieces, self._client.end = pieces, end
        request = json.dumps(body(stream=stream, stream_options={"include_usage": True})).encode()
        sent: list[Message] = []
        asked = False

        async def receive() -> Message:
            nonlocal asked
            if asked:
                await asyncio.Event().wait()
            asked = True
            return {"type": "http.request", "body": request}

        async def send(message: Message) -> None:
            sent.append(message)

        await self._app(_scope(), receive, send)
        answer = b"".join(message.get("body", b"") for message in sent)
        return sent[0]["status"], _IDS.sub(rb"\g<key>0", answer)


def _scope() -> Scope:
    path = "/v1/chat/completions"
    scope: Json = {"type": "http", "method": "POST", "path": path, "headers": [], "root_path": ""}
    return scope


@asynccontextmanager
async def canned() -> AsyncGenerator[CannedEdge]:
    """The application with a client that needs no upstream."""
    source = FakeSlots(Slot(PROVIDER, "http://nowhere"))
    link = ProviderLink(PROVIDER, openai_compat.PROVIDER, source)
    settings = config.load(settings_text(), environ={})
    gateway = Gateway(settings, {PROVIDER: link}, FakeReadiness({}))
    client = gateway.client = CannedClient(gateway.background)
    try:
        yield CannedEdge(build_api(gateway), client)
    finally:
        await gateway.close()
