"""One connection of the fake upstream: requests read from it, steps written to it."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

from tests.fakes.answers import Chunk, End, Head, Send
from tests.fakes.sse import Json

#: `done`: answered to the end; `left`: the client went first; `cut`: we broke it off, as told.
Outcome: TypeAlias = Literal["active", "done", "left", "cut"]
#: RST instead of FIN: linger on, for no time.
_LINGER_ZERO = struct.pack("ii", 1, 0)
_READ_LIMIT_BYTES = 2**26


class LeftError(Exception):
    """The client is gone."""


class CutError(Exception):
    """We closed the connection, as the answer told."""


@dataclass(slots=True)
class Received:
    """One request as it came in, and what became of it."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    #: `time.monotonic()` when it was complete.
    arrived_s: float
    #: The client's port: two requests with one port came by one connection.
    peer_port: int
    outcome: Outcome = "active"

    @property
    def json(self) -> Json:
        """The body as a JSON object; empty if it is none."""
        try:
            parsed: object = json.loads(self.body)
        except ValueError:
            return {}
        return cast("Json", parsed) if isinstance(parsed, dict) else {}


@dataclass(eq=False, slots=True)
class Connection:
    """A client's connection; `left` is set as soon as it is gone, also while nobody reads.

    A client that closes only its sending side counts as gone: no HTTP client does that.
    """

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    left: asyncio.Event

    async def read(self) -> Received | None:
        """The next request, or None if the client closed between two."""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
        method, path, _ = first.split(" ", 2)
        pairs = (line.partition(":") for line in lines)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        peer_port = self.writer.get_extra_info("peername")[1]
        return Received(method, path, headers, body, time.monotonic(), peer_port)

    async def write(self, step: Head | Send | Chunk | End) -> None:
        """Writes one step's bytes, by themselves."""
        self.writer.write(to_bytes(step))
        await self.writer.drain()

    async def idle(self, what: Coroutine[Any, Any, object]) -> None:
        """Waits for `what`, but not longer than the client does.

        Raises:
            LeftError: The client went first.
        """
        loop = asyncio.get_running_loop()
        waiting, leaving = loop.create_task(what), loop.create_task(self.left.wait())
        try:
            await asyncio.wait((waiting, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            leaving.cancel()
        if self.left.is_set():
            raise LeftError

    def break_off(self, *, reset: bool) -> None:
        """Closes the connection in the middle, by RST or by FIN.

        Raises:
            CutError: Always; there is nothing more to do on this connection.
        """
        if reset:
            sock = self.writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
            self.writer.transport.abort()
        raise CutError

    def close(self, *, at_once: bool) -> None:
        """Closes the connection; `at_once` drops what is not sent yet."""
        if at_once:
            self.writer.transport.abort()
        else:
            self.writer.close()


class WatchedProtocol(asyncio.StreamReaderProtocol):
    """Makes a `Connection` of each accepted socket, and knows at once when its client leaves."""

    def __init__(self, serve: Callable[[Connection], None]) -> None:
        self._gone = asyncio.Event()

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            serve(Connection(reader, writer, self._gone))

        super().__init__(asyncio.StreamReader(limit=_READ_LIMIT_BYTES), connected)

    def eof_received(self) -> bool | None:
        """Notes that the client closed."""
        self._gone.set()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Notes that the connection broke."""
        self._gone.set()
        super().connection_lost(exc)


def to_bytes(step: Head | Send | Chunk | End) -> bytes:
    """What a step puts on the wire."""
    match step:
        case Send(data):
            return data
        case Chunk(data):
            return b"%x\r\n%s\r\n" % (len(data), data)
        case End():
            return b"0\r\n\r\n"
        case Head(status, headers, chunked):
            lines = [f"HTTP/1.1 {status} Fake", *(f"{k}: {v}" for k, v in headers)]
            lines += ["transfer-encoding: chunked"] * chunked
            return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
