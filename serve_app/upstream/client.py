"""The HTTP client to upstreams: one call, its bytes, its time limits.

aiohttp's own exceptions and nothing else are translated here, once.

Time limits are watched by one ticker for all open streams instead of a timer a read: at
thousands of chunks a second that is the difference between nothing and a good part of a core.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from io import BytesIO
from typing import Final

import aiohttp

from serve_app.config import Timeouts
from serve_app.errors import (
    Code,
    GatewayError,
    UpstreamError,
    UpstreamProtocolError,
    UpstreamTimeoutError,
    UpstreamUnavailableError,
)
from serve_app.runs import Slot
from serve_app.streams.upstream_error import error_of
from serve_app.upstream.background import Background
from serve_app.upstream.retry_after import parse_retry_after

_TICK_S: Final = 0.2
_MAX_ERROR_BODY: Final = 64 * 2**10
_MAX_WHOLE_BODY: Final = 64 * 2**20
#: A larger request is written in pieces, so that other requests get their turn in between.
_LARGE_BODY: Final = 2**20


class UpstreamStream:
    """The bytes of one answer. Read until `b""`, and close in any case."""

    def __init__(
        self,
        response: aiohttp.ClientResponse,
        *,
        provider: str,
        timeouts: Timeouts,
        sent_at: float,
        on_close: Callable[[UpstreamStream], None],
    ) -> None:
        self._response = response
        self._content = response.content
        self._provider = provider
        self._timeouts = timeouts
        self._sent_at = sent_at
        self._on_close = on_close
        self._loop = asyncio.get_running_loop()
        self._waiting_since: float | None = None
        self._first_event_due = sent_at + timeouts.first_token_s if timeouts.first_token_s else None
        self._idle_s = timeouts.idle_s
        self._lost_ticks = 0
        #: True where the answer is one JSON body instead of a stream of events.
        self.whole = response.content_type == "application/json"

    async def read(self) -> bytes:
        """The next bytes; `b""` at the end.

        Raises:
            UpstreamError: The connection broke, or a time limit passed.
        """
        self._waiting_since = self._loop.time()
        try:
            if self.whole:
                return await self._read_whole()
            return await self._content.readany()
        except GatewayError:
            raise
        except (aiohttp.ClientError, OSError, RuntimeError) as error:
            # The last is what aiohttp raises where the connection was closed between two reads.
            raise self._lost(error) from error
        finally:
            self._waiting_since = None

    def got_event(self) -> None:
        """The first event has come: from now on only silence counts."""
        self._first_event_due = None

    def got_finish(self) -> None:
        """The answer is whole; what may still come is not worth a long wait."""
        self._idle_s = min(self._idle_s, 5.0) if self._idle_s else 5.0

    def close(self) -> None:
        """End the call. An answer that was not read to its end is cancelled at the upstream."""
        self._on_close(self)
        self._response.close()

    def tick(self, now: float) -> None:
        """Check the time limits and the connection of a stream that is being waited for."""
        since = self._waiting_since
        if since is None:
            return
        due, total_s = self._first_event_due, self._timeouts.total_s
        if due is not None and now > due:
            self._fail(self._late("sent no event", self._timeouts.first_token_s))
        elif due is None and self._idle_s and now - since > self._idle_s:
            self._fail(self._late("was silent", self._idle_s))
        elif total_s and now - self._sent_at > total_s:
            self._fail(self._late("did not finish", total_s))
        elif self._is_lost():
            # A broken chunk header closes the connection without waking the reader.
            self._lost_ticks += 1
            if self._lost_ticks > 1:
                self._fail(self._lost(None))

    async def _read_whole(self) -> bytes:
        """All of a body that is not a stream, then its end."""
        parts: list[bytes] = []
        size = 0
        while part := await self._content.readany():
            parts.append(part)
            size += len(part)
            if size > _MAX_WHOLE_BODY:
                message = f"The provider '{self._provider}' sent an answer that is too large."
                raise UpstreamProtocolError(message, provider=self._provider)
        return b"".join(parts)

    def _is_lost(self) -> bool:
        connection = self._response.connection
        if connection is None or self._content.at_eof():
            return False
        transport = connection.transport
        return transport is None or transport.is_closing()

    def _fail(self, error: UpstreamError) -> None:
        """Wake the reader with an error."""
        self._content.set_exception(error)

    def _late(self, what: str, limit_s: float) -> UpstreamTimeoutError:
        message = f"The provider '{self._provider}' {what} for {limit_s:g} s."
        return UpstreamTimeoutError(message, provider=self._provider)

    def _lost(self, error: BaseException | None) -> UpstreamError:
        if isinstance(error, aiohttp.ClientPayloadError) and "TransferEncoding" in str(error):
            what = "broke off its answer"
        else:
            what = "lost the connection in the middle of its answer"
        message = f"The provider '{self._provider}' {what}."
        return UpstreamProtocolError(
            message, code=Code.UPSTREAM_DISCONNECTED, provider=self._provider
        )


class UpstreamClient:
    """Opens calls to upstreams over one pool of connections.

    Args:
        background: Owner of the ticker.
    """

    def __init__(self, background: Background) -> None:
        self._background = background
        self._streams: set[UpstreamStream] = set()
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Make the session. Needs a running loop."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30, ttl_dns_cache=60),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"accept-encoding": "identity", "user-agent": "iop-edge"},
            auto_decompress=False,
            max_line_size=64 * 2**10,
            max_field_size=64 * 2**10,
        )
        self._background.start(self._tick(), name="upstream time limits")

    async def close(self) -> None:
        """End every call and close the connections."""
        for stream in list(self._streams):
            stream.close()
        if self._session is not None:
            await self._session.close()

    @property
    def open_streams(self) -> int:
        """Calls that are at work now."""
        return len(self._streams)

    async def post(
        self, slot: Slot, path: str, body: bytes, *, timeouts: Timeouts, request_id: str
    ) -> UpstreamStream:
        """Send a request and wait for the head of its answer.

        Raises:
            UpstreamError: Refused, lost or late, or a status that is not 200.
            OverloadedError: The upstream says that it has too much to do.
        """
        if self._session is None:
            raise RuntimeError("the client has not been started")
        headers = {
            "content-type": "application/json",
            "accept": "text/event-stream",
            "x-request-id": request_id,
            **slot.headers,
        }
        sent_at = asyncio.get_running_loop().time()
        limit = aiohttp.ClientTimeout(total=None, sock_connect=timeouts.connect_s)
        try:
            async with asyncio.timeout(timeouts.first_token_s or None):
                response = await self._session.post(
                    slot.url + path,
                    data=body if len(body) <= _LARGE_BODY else BytesIO(body),
                    headers=headers,
                    timeout=limit,
                    allow_redirects=False,
                )
        except TimeoutError as error:
            raise _too_late(slot, error, timeouts) from error
        except aiohttp.ClientConnectionError as error:
            raise _no_answer(slot, error) from error
        except (aiohttp.ClientError, OSError) as error:
            message = f"The provider '{slot.provider}' answered with broken HTTP."
            raise UpstreamProtocolError(message, provider=slot.provider) from error
        stream = UpstreamStream(
            response,
            provider=slot.provider,
            timeouts=timeouts,
            sent_at=sent_at,
            on_close=self._streams.discard,
        )
        if response.status == 200 and response.content_type != "text/html":
            self._streams.add(stream)
            return stream
        try:
            raise await _failed(response)
        finally:
            stream.close()

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_TICK_S)
            now = loop.time()
            for stream in list(self._streams):
                stream.tick(now)


async def _failed(response: aiohttp.ClientResponse) -> GatewayError:
    """The error of an answer that is not 200."""
    raw = b""
    try:
        async with asyncio.timeout(5):
            while len(raw) < _MAX_ERROR_BODY and (part := await response.content.readany()):
                raw += part
    except (aiohttp.ClientError, OSError, TimeoutError):
        pass  # what came of the body has to do
    error = error_of(raw[:_MAX_ERROR_BODY], status=response.status)
    error.retry_after_s = parse_retry_after(response.headers.get("retry-after"))
    return error


def _too_late(slot: Slot, error: TimeoutError, timeouts: Timeouts) -> UpstreamError:
    """aiohttp's own timeout is the connect limit; any other is the wait for the answer."""
    if isinstance(error, aiohttp.ServerTimeoutError):
        what = f"could not be connected to within {timeouts.connect_s:g} s"
    else:
        what = f"sent nothing for {timeouts.first_token_s:g} s"
    return UpstreamTimeoutError(f"The provider '{slot.provider}' {what}.", provider=slot.provider)


def _no_answer(slot: Slot, error: aiohttp.ClientConnectionError) -> UpstreamError:
    """A connection that was refused, or lost before the answer began."""
    if isinstance(error, aiohttp.ClientConnectorError):
        message = f"The provider '{slot.provider}' refused the connection."
        return UpstreamUnavailableError(message, status=502, provider=slot.provider)
    message = f"The provider '{slot.provider}' closed the connection before it answered."
    return UpstreamError(message, code=Code.UPSTREAM_DISCONNECTED, provider=slot.provider)
