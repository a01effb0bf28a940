"""The caller's side of a request: the body that comes in, and the caller who goes away."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from starlette.datastructures import Headers
from starlette.types import Receive, Scope

from serve_app.errors import Code, InvalidRequestError, TooLargeError


class CallerGoneError(Exception):
    """The caller closed the connection. There is nobody left to tell."""


async def read_body(
    scope: Scope, receive: Receive, *, limit_mib: int, idle_s: float = 20.0
) -> bytes:
    """The whole body of a request.

    Args:
        scope: The request.
        receive: Where its body comes from.
        limit_mib: Largest body.
        idle_s: Longest silence between two parts of it.

    Raises:
        TooLargeError: It is, or says that it is, larger than the limit; no more of it is read.
        InvalidRequestError: It stopped coming (408).
        CallerGoneError: The caller went away before it was all there.
    """
    limit = limit_mib * 2**20
    declared = Headers(scope=scope).get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared) > limit:
        raise _too_large(limit_mib)
    parts: list[bytes] = []
    size = 0
    while True:
        try:
            async with asyncio.timeout(idle_s):
                message = await receive()
        except TimeoutError:
            text = f"The request body stopped coming for {idle_s:g} s."
            raise InvalidRequestError(text, status=408, code=Code.REQUEST_TIMEOUT) from None
        if message["type"] == "http.disconnect":
            raise CallerGoneError
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise _too_large(limit_mib)
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts) if len(parts) > 1 else parts[0]


class Watch:
    """Looks whether the caller is still there while work goes on for them.

    Args:
        receive: Where the caller's leaving shows; `None` where the server itself cancels the work
            of a caller who leaves, as Ray Serve does.
    """

    def __init__(self, receive: Receive | None) -> None:
        self._work = asyncio.current_task()
        self._gone = False
        self._watcher: asyncio.Task[None] | None = None
        if receive is not None:
            loop = asyncio.get_running_loop()
            self._watcher = loop.create_task(self._look(receive), name="caller watch")

    def stop(self) -> None:
        """Stop looking: the answer is about to be whole, and every connection ends after that."""
        if self._watcher is not None:
            self._watcher.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Turn the cancellation that a vanished caller caused into what it means.

        Raises:
            CallerGoneError: In place of the cancellation.
        """
        self.stop()
        if self._gone and self._work is not None and isinstance(exc, asyncio.CancelledError):
            self._work.uncancel()
            raise CallerGoneError from None

    async def _look(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        if self._work is not None:
            self._work.cancel()


def _too_large(limit_mib: int) -> TooLargeError:
    return TooLargeError(f"The request body is larger than the limit of {limit_mib} MiB.")
