"""The client of a benchmark: closed-loop load over raw sockets, in a process of its own.

It shares the cores with what it measures, so it does as little as it can: one asyncio protocol a
connection, the request built once, an answer looked at only when it is whole. Each answer is
checked to the last word: a wrong one is a failure, never a fast result. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import cast
from urllib.parse import urlsplit

from upstream import ANSWER, CHUNKS, WORDS

try:
    from uvloop import run
except ImportError:
    from asyncio import run

WARM_UP_S = 0.5
#: An answer that takes longer than this is a failure.
PATIENCE_S = 30.0

_TEXT = re.compile(rb'"content": ?"([^"\\]*)"')
_STREAM_TEXT = "".join(WORDS).encode()
_FIRST_WORD = WORDS[0].strip().encode() + b" "


class WrongAnswerError(Exception):
    """The gateway did not say what the upstream said."""


@dataclass(slots=True)
class Result:
    """What one measurement gave; times in seconds."""

    answers: int = 0
    wall_s: float = 0.0
    #: Unary: time of each whole answer. Streams: time to each first word.
    times_s: list[float] = field(default_factory=list[float])
    #: Longest wait between two pieces of one stream.
    longest_gap_s: float = 0.0
    #: Times to the first word in the wave before the measured ones.
    cold_s: list[float] = field(default_factory=list[float])


@dataclass(slots=True)
class Answer:
    """One answer as it came."""

    sent_s: float
    ended_s: float
    first_s: float
    longest_gap_s: float


class Caller(asyncio.Protocol):
    """One kept connection with at most one request on it."""

    def __init__(self, request: bytes, *, streams: bool) -> None:
        self._request = request
        self._streams = streams
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[Answer] | None = None
        self._buffer = bytearray()
        self._body_at = 0
        self._length: int | None = None
        self._answer = Answer(0, 0, 0, 0)
        self._last_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the transport."""
        # uvloop's transports are no subclass of asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fails the answer that is under way, if there is one."""
        self._transport = None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(WrongAnswerError(f"closed in an answer: {exc}"))

    def ask(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[Answer]:
        """Sends the request; the future comes with the whole, checked answer."""
        assert self._transport is not None
        self._buffer.clear()
        self._body_at, self._length = 0, None
        self._waiter = loop.create_future()
        now_s = time.perf_counter()
        self._answer = Answer(now_s, 0, 0, 0)
        self._transport.write(self._request)
        return self._waiter

    @property
    def connected(self) -> bool:
        """False once the server has closed the connection."""
        return self._transport is not None

    def close(self) -> None:
        """Closes the connection."""
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Takes the next piece, and the time at which it came."""
        now_s = time.perf_counter()
        self._buffer += data
        waiter, answer = self._waiter, self._answer
        if waiter is None or waiter.done():
            return
        try:
            if not self._body_at and not self._read_head():
                return
            if self._streams:
                self._time_piece(now_s)
            if self._is_whole():
                check(self._body(), streams=self._streams)
                answer.ended_s = now_s
                waiter.set_result(answer)
        except WrongAnswerError as error:
            waiter.set_exception(error)

    def _read_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        head = bytes(self._buffer[:end]).lower()
        if not head.startswith(b"http/1.1 200"):
            raise WrongAnswerError(bytes(self._buffer[:600]).decode("latin-1"))
        at = head.find(b"\r\ncontent-length:")
        if at >= 0:
            self._length = int(head[at + 17 :].split(b"\r\n", 1)[0])
        self._body_at = end + 4
        return True

    def _time_piece(self, now_s: float) -> None:
        answer = self._answer
        if answer.first_s:
            answer.longest_gap_s = max(answer.longest_gap_s, now_s - self._last_s)
        elif self._buffer.find(_FIRST_WORD, self._body_at) >= 0:
            answer.first_s = now_s
        self._last_s = now_s

    def _is_whole(self) -> bool:
        if self._length is not None:
            return len(self._buffer) >= self._body_at + self._length
        return self._buffer.endswith(b"\r\n0\r\n\r\n")

    def _body(self) -> bytes:
        raw = bytes(self._buffer[self._body_at :])
        if self._length is not None:
            return raw
        pieces: list[bytes] = []
        at = 0
        while True:
            line_end = raw.index(b"\r\n", at)
            size = int(raw[at:line_end], 16)
            if size == 0:
                return b"".join(pieces)
            pieces.append(raw[line_end + 2 : line_end + 2 + size])
            at = line_end + 4 + size


def check(body: bytes, *, streams: bool) -> None:
    """Looks whether this is the upstream's answer, whole.

    Raises:
        WrongAnswerError: It is another one.
    """
    if streams:
        said = b"".join(_TEXT.findall(body))
        if said != _STREAM_TEXT or b'"stop"' not in body or not body.endswith(b"[DONE]\n\n"):
            raise WrongAnswerError(f"not the stream: {body[-600:]!r}")
    elif ANSWER.encode() not in body or b'"stop"' not in body:
        raise WrongAnswerError(f"not the answer: {body[:600]!r}")


#: What an agent sends along; no answer calls one.
_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"Does {name}.",
            "parameters": {
                "type": "object",
                "properties": {
                    "path": {"type": "string"},
                    "lines": {"type": "array", "items": {"type": "integer"}},
                },
                "required": ["path"],
            },
        },
    }
    for name in ("read_file", "write_file", "list_files", "run_command")
]


def request_bytes(url: str, key: str, *, streams: bool, tools: bool) -> bytes:
    """The whole HTTP request."""
    parts = urlsplit(url)
    body: dict[str, object] = {
        "model": "bench-stream" if streams else "bench-unary",
        "messages": [{"role": "user", "content": "Say it."}],
        "max_tokens": CHUNKS if streams else 1,
    }
    if streams:
        body["stream"] = True
    if tools:
        body["tools"] = _TOOLS
    data = json.dumps(body).encode()
    head = (
        f"POST {parts.path}/chat/completions HTTP/1.1\r\nhost: {parts.netloc}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(data)}\r\n"
    )
    if key:
        head += f"authorization: Bearer {key}\r\n"
    return head.encode() + b"\r\n" + data


class Load:
    """Some connections to one gateway, and what is measured over them."""

    def __init__(
        self, url: str, key: str, connections: int, *, streams: bool, tools: bool = False
    ) -> None:
        parts = urlsplit(url)
        self._address = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._request = request_bytes(url, key, streams=streams, tools=tools)
        self._connections = connections
        self._streams = streams

    async def unary(self, seconds: float) -> Result:
        """Asks again as soon as it is answered, for so long; the warm-up is not counted."""
        result = Result()
        begin_s = time.perf_counter() + WARM_UP_S
        end_s = begin_s + seconds

        async def loop() -> None:
            caller = await self._connect()
            while time.perf_counter() < end_s:
                caller, answer = await self._ask(caller)
                if answer.sent_s >= begin_s:
                    result.times_s.append(answer.ended_s - answer.sent_s)
            caller.close()

        async with asyncio.TaskGroup() as group:
            for _ in range(self._connections):
                group.create_task(loop())
        result.wall_s = time.perf_counter() - begin_s
        result.answers = len(result.times_s)
        return result

    async def streams(self, waves: int) -> Result:
        """All connections at once, each `waves` streams one after the other; one more before."""
        result = Result()
        callers = [await self._connect() for _ in range(self._connections)]
        cold = await asyncio.gather(*(self._ask(caller) for caller in callers))
        result.cold_s = [answer.first_s - answer.sent_s for _, answer in cold]

        async def loop(caller: Caller) -> None:
            for _ in range(waves):
                caller, answer = await self._ask(caller)
                result.times_s.append(answer.first_s - answer.sent_s)
                result.longest_gap_s = max(result.longest_gap_s, answer.longest_gap_s)
            caller.close()

        begin_s = time.perf_counter()
        await asyncio.gather(*(loop(caller) for caller, _ in cold))
        result.wall_s = time.perf_counter() - begin_s
        result.answers = len(result.times_s)
        return result

    async def _ask(self, caller: Caller) -> tuple[Caller, Answer]:
        """One request; a connection that the server closed since the last one is replaced."""
        if not caller.connected:
            caller = await self._connect()
        async with asyncio.timeout(PATIENCE_S):
            return caller, await caller.ask(asyncio.get_running_loop())

    async def _connect(self) -> Caller:
        _, caller = await asyncio.get_running_loop().create_connection(
            lambda: Caller(self._request, streams=self._streams), *self._address
        )
        return caller


async def _measure(options: argparse.Namespace) -> Result:
    streams = options.waves > 0
    load = Load(options.url, options.key, options.connections, streams=streams, tools=options.tools)
    return await (load.streams(options.waves) if streams else load.unary(options.seconds))


def main() -> None:
    """Measures once and prints the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True, help="address of the API (…/v1)")
    parser.add_argument("--key", default="", help="bearer token")
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3.0, help="how long, without --waves")
    parser.add_argument("--waves", type=int, default=0, help="measure streams: so many each")
    parser.add_argument("--tools", action="store_true", help="send tools along")
    options = parser.parse_args()
    try:
        json.dump(asdict(run(_measure(options))), sys.stdout)
    except* (WrongAnswerError, OSError) as group:
        first = group.exceptions[0]
        sys.exit(f"{type(first).__name__}: {first}")


if __name__ == "__main__":
    main()
