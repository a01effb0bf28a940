"""Every failure as the envelope, and every request as one line of the access log."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from datetime import UTC, datetime
from typing import Any

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve_app.errors import GatewayError, MethodNotAllowedError
from serve_app.ingress.caller import CallerGoneError
from serve_app.ingress.gateway import Gateway
from serve_app.wire.errors import envelope

logger = logging.getLogger("ray.serve.edge")

#: The status that stands in the log for a caller who went away.
_GONE_STATUS = 499

#: From here on the failure is also in the replica's own log.
_FAILED_STATUS = 500

_WRONG_METHOD = 405


class Failures:
    """Turns what is raised before the first byte into a response, and logs each request."""

    def __init__(self, app: ASGIApp, *, gateway: Gateway) -> None:
        self._app = app
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state: dict[str, Any] = scope.setdefault("state", {})
        began = time.monotonic()
        status = 0

        async def send_noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_noting)
        except (CallerGoneError, asyncio.CancelledError) as error:
            status = _GONE_STATUS
            if isinstance(error, asyncio.CancelledError):
                raise
        except Exception as error:
            failure = as_failure(error, state)
            if status:
                raise  # too late for a status: the server breaks the connection off
            await respond(failure, send_noting, allow=_allowed(error))
        finally:
            fields = _fields(scope, state, status, time.monotonic() - began)
            self._gateway.access_log.add(fields)
            if status >= _FAILED_STATUS:
                logger.warning("a request failed", extra=fields)


async def respond(error: GatewayError, send: Send, *, allow: str = "") -> None:
    """Send an error as a response; `allow` names the methods that a path does take."""
    body = envelope(error)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"x-iop-source", error.source.encode()),
        *error_headers(error),
    ]
    if allow:
        headers.append((b"allow", allow.encode()))
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def error_headers(error: GatewayError) -> list[tuple[bytes, bytes]]:
    """Headers that go with an error."""
    headers: list[tuple[bytes, bytes]] = []
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if error.retry_after_s is not None or error.status in {429, 503}:
        wait_s = max(1, math.ceil(error.retry_after_s or 1))
        headers.append((b"retry-after", str(wait_s).encode()))
    if error.should_retry is False:
        headers.append((b"x-should-retry", b"false"))
    if error.provider is not None:
        headers.append((b"x-iop-provider", error.provider.encode()))
    return headers


def as_failure(error: Exception, state: dict[str, Any]) -> GatewayError:
    """Whatever was raised, as an error of ours; what is unexpected is logged and not shown."""
    request_id = state.get("request_id")
    if isinstance(error, GatewayError):
        failure = error
    elif isinstance(error, HTTPException) and error.status_code == _WRONG_METHOD:
        failure = MethodNotAllowedError("This path does not take this method.")
    else:
        logger.error("internal fault", exc_info=error, extra={"request_id": request_id})
        failure = GatewayError(f"The gateway failed. Report the request id {request_id}.")
    state["error"] = failure
    return failure


def _allowed(error: Exception) -> str:
    """The methods that the router names in its own 405."""
    headers = error.headers if isinstance(error, HTTPException) else None
    return (headers or {}).get("Allow", "")


def _fields(scope: Scope, state: dict[str, Any], status: int, took_s: float) -> dict[str, Any]:
    """What the log says of a request. Neither headers nor bodies are ever in it."""
    error: GatewayError | None = state.get("error")
    fields = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "request_id": state.get("request_id"),
        "method": scope["method"],
        "path": scope["path"][:200],
        "status": status,
        "duration_ms": round(took_s * 1000, 1),
        "model": state.get("model"),
        "provider": state.get("provider"),
        "error_code": error.code.value if error else None,
        "error_source": error.source if error else None,
    }
    return {name: value for name, value in fields.items() if value is not None}
