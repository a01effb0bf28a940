"""The caller's side of a request: the body that comes in, and the caller who goes away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starlette.datastructures import Headers
from starlette.types import Receive, Scope

from serve_app.errors import TooLargeError


class CallerGoneError(Exception):
    """The caller closed the connection. There is nobody left to tell."""


async def read_body(scope: Scope, receive: Receive, *, limit_mib: int) -> bytes:
    """The whole body of a request.

    Raises:
        TooLargeError: It is, or says that it is, larger than the limit; no more of it is read.
        CallerGoneError: The caller went away before it was all there.
    """
    limit = limit_mib * 2**20
    declared = Headers(scope=scope).get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared) > limit:
        raise _too_large(limit_mib)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise CallerGoneError
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise _too_large(limit_mib)
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts) if len(parts) > 1 else parts[0]


@asynccontextmanager
async def cancelled_when_gone(receive: Receive) -> AsyncGenerator[None]:
    """Cancel the work inside when the caller closes the connection.

    Serve does the same for its own requests, but a caller can switch that off with a header,
    and other ASGI servers do not do it at all.

    Raises:
        CallerGoneError: In place of the cancellation.
    """
    work = asyncio.current_task()
    if work is None:
        raise RuntimeError("this has to run inside a task")
    gone = False

    async def watch() -> None:
        nonlocal gone
        while (await receive())["type"] != "http.disconnect":
            pass
        gone = True
        work.cancel()

    watcher = asyncio.get_running_loop().create_task(watch(), name="caller watch")
    try:
        yield
    except asyncio.CancelledError:
        if not gone:
            raise
        work.uncancel()
        raise CallerGoneError from None
    finally:
        watcher.cancel()


def _too_large(limit_mib: int) -> TooLargeError:
    return TooLargeError(f"The request body is larger than the limit of {limit_mib} MiB.")
