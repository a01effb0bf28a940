"""The server behind the gateways in a benchmark: as little work as a server can do.

Every answer is made of bytes built beforehand. `bench-stream` streams `WORDS`, one chunk each,
`PACE_S` apart and the first at once; any other model answers `ANSWER` at once, as a stream or as
one JSON object, whichever is asked for. `load.py` knows both texts and checks them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
from typing import cast

try:
    from uvloop import run
except ImportError:  # a little slower, and just as right
    from asyncio import run

CHUNKS = 64
PACE_S = 0.02
WORDS = [f"w{number} " for number in range(CHUNKS)]
ANSWER = "four words, no more"

_END = b"0\r\n\r\n"


def _chunk(model: str, delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return _event({**_common(model, "chat.completion.chunk"), "choices": [choice]})


def _common(model: str, kind: str) -> dict[str, object]:
    return {"id": "chatcmpl-bench", "object": kind, "created": 1_700_000_000, "model": model}


def _event(value: object) -> bytes:
    return b"data: %s\n\n" % json.dumps(value, separators=(",", ":")).encode()


def _framed(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _whole(value: object) -> bytes:
    data = json.dumps(value, separators=(",", ":")).encode()
    head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: "
    return f"{head}{len(data)}\r\n\r\n".encode() + data


_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)
_USAGE = {"prompt_tokens": 8, "completion_tokens": 4, "total_tokens": 12}
_USAGE_EVENT = _event({**_common("bench", "chat.completion.chunk"), "choices": [], "usage": _USAGE})
_DONE = b"data: [DONE]\n\n"

#: The paced stream, a write an item; with and without the counts at its end.
_PACED = [
    _STREAM_HEAD
    + _framed(_chunk("bench-stream", {"role": "assistant", "content": ""}))
    + _framed(_chunk("bench-stream", {"content": WORDS[0]})),
    *(_framed(_chunk("bench-stream", {"content": word})) for word in WORDS[1:]),
]
_LAST = _chunk("bench-stream", {}, "stop")
_PACED_END = {
    False: _framed(_LAST + _DONE) + _END,
    True: _framed(_LAST + _USAGE_EVENT + _DONE) + _END,
}
_AT_ONCE = b"".join(
    [
        _chunk("bench-unary", {"role": "assistant", "content": ""}),
        _chunk("bench-unary", {"content": ANSWER}),
        _chunk("bench-unary", {}, "stop"),
    ]
)
_AT_ONCE_STREAM = {
    False: _STREAM_HEAD + _framed(_AT_ONCE + _DONE) + _END,
    True: _STREAM_HEAD + _framed(_AT_ONCE + _USAGE_EVENT + _DONE) + _END,
}
_MESSAGE = {"role": "assistant", "content": ANSWER}
_UNARY = _whole(
    {
        **_common("bench-unary", "chat.completion"),
        "choices": [{"index": 0, "message": _MESSAGE, "finish_reason": "stop"}],
        "usage": _USAGE,
    }
)
_MODELS = _whole(
    {
        "object": "list",
        "data": [{"id": name, "object": "model"} for name in ("bench-stream", "bench-unary")],
    }
)


class _Server(asyncio.Protocol):
    """One connection; requests on it come one after the other."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._buffer = b""
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass of asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head_end = self._buffer.find(b"\r\n\r\n")
        if head_end < 0:
            return
        head = self._buffer[:head_end].lower()
        length = 0
        at = head.find(b"\r\ncontent-length:")
        if at >= 0:
            length = int(head[at + 17 :].split(b"\r\n", 1)[0])
        if len(self._buffer) < head_end + 4 + length:
            return
        body = self._buffer[head_end + 4 : head_end + 4 + length]
        self._buffer = self._buffer[head_end + 4 + length :]
        if head.startswith(b"post"):
            self._answer(json.loads(body))
        else:
            self._transport.write(_MODELS)

    def _answer(self, request: dict[str, object]) -> None:
        usage = bool(request.get("stream_options"))
        if not request.get("stream"):
            self._transport.write(_UNARY)
        elif request.get("model") == "bench-stream":
            self._tick(0, self._loop.time(), usage)
        else:
            self._transport.write(_AT_ONCE_STREAM[usage])

    def _tick(self, number: int, start_s: float, usage: bool) -> None:  # noqa: FBT001 - a callback
        """Writes one chunk; the next is due by the stream's start, so that delays do not add up."""
        if number + 1 == CHUNKS:
            self._transport.write(_PACED[number] + _PACED_END[usage])
            return
        self._transport.write(_PACED[number])
        due_s = start_s + (number + 1) * PACE_S
        self._timer = self._loop.call_at(due_s, self._tick, number + 1, start_s, usage)


async def _serve(port: int) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    server = await loop.create_server(_Server, "127.0.0.1", port, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await ended.wait()
    server.close()


def main() -> None:
    """Serves on the loopback until it is ended; prints its port first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    run(_serve(parser.parse_args().port))


if __name__ == "__main__":
    main()
