"""Request ids, and the request headers that only a trusted hop may set (clause ERR-3)."""

from __future__ import annotations

import re
import uuid
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER: Final = "x-request-id"

_ALLOWED: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")

#: Headers by which a caller could change how Ray Serve runs a request: its time limit, whether a
#: disconnect ends it, where it goes. Ours are the only ones in force.
_SERVE_HEADERS: Final = frozenset(
    {
        b"x-request-timeout-seconds",
        b"x-request-disconnect-disabled",
        b"x-session-id",
        b"serve_multiplexed_model_id",
        b"serve-multiplexed-model-id",
    }
)


def request_id_of(value: str | None) -> str:
    """The caller's own id where it is fit to be logged, else a new one."""
    if value is not None and _ALLOWED.fullmatch(value):
        return value
    return f"req_{uuid.uuid4().hex}"


def request_id_in(scope: Scope) -> str:
    """The id of a request."""
    return request_id_of(_header(scope, HEADER.encode()))


class RequestId:
    """Gives each request its id.

    Args:
        app: The next application.
        echo: Whether to put the id into the response; Ray Serve does that by itself.
    """

    def __init__(self, app: ASGIApp, *, echo: bool) -> None:
        self._app = app
        self._echo = echo

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = request_id_in(scope)
        scope.setdefault("state", {})["request_id"] = request_id
        if not self._echo:
            await self._app(scope, receive, send)
            return

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = request_id
            await send(message)

        await self._app(scope, receive, send_with_id)


class CleanHeaders:
    """Stands before Ray Serve: one good request id, and none of Serve's own switches."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "http":
            name = HEADER.encode()
            request_id = request_id_in(scope).encode()
            kept = [
                pair
                for pair in scope["headers"]
                if pair[0] != name and pair[0] not in _SERVE_HEADERS
            ]
            scope = {**scope, "headers": [*kept, (name, request_id)]}
        await self._app(scope, receive, send)


def serve_middlewares() -> list[Middleware]:
    """What `RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH` names, so that Serve puts it first."""
    return [Middleware(CleanHeaders)]


def _header(scope: Scope, name: bytes) -> str | None:
    """The one value of a header; `None` where it is missing or given twice."""
    values: list[bytes] = [value for key, value in scope["headers"] if key == name]
    return values[0].decode("latin-1") if len(values) == 1 else None
