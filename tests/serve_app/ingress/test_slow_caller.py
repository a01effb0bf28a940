"""Callers who read slowly, or not at all: bounded memory, and no blame for the upstream."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Final, cast

from tests.fakes.answers import Answer, Step
from tests.fakes.sse import DONE, chunk, finish, frame, role
from tests.fakes.upstream import Chunk, End, Head, Pause, Upstream
from tests.serve_app.ingress.edge import Edge, body, running

PIECE: Final = frame(chunk("x" * 64 * 2**10))
PIECES: Final = 640

#: What the system holds on the two connections of a stream, at most; the gateway's own part is
#: bounded by 1 MiB.
SYSTEM_BYTES: Final = 16 * 2**20


class Large:
    """A stream of 40 MiB that counts what of it was written."""

    def __init__(self) -> None:
        self.written = 0

    def answer(self) -> Answer:
        return cast("Answer", self)

    def __iter__(self) -> Iterator[Step]:
        yield Head()
        yield Chunk(frame(role()))
        for _ in range(PIECES):
            yield Chunk(PIECE)
            self.written += 1
        yield Chunk(frame(finish()) + DONE)
        yield End()

    async def stands_still(self, quiet_s: float) -> int:
        """Wait until nothing was written for a while; gives how much was."""
        loop = asyncio.get_running_loop()
        seen, since = self.written, loop.time()
        async with asyncio.timeout(10):
            while loop.time() - since < quiet_s or not seen:
                await asyncio.sleep(0.02)
                if self.written != seen:
                    seen, since = self.written, loop.time()
        return seen


@asynccontextmanager
async def caller(edge: Edge) -> AsyncGenerator[tuple[socket.socket, asyncio.AbstractEventLoop]]:
    """A caller with a small receive buffer, its request sent and nothing read."""
    loop = asyncio.get_running_loop()
    with socket.socket() as sock:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**14)
        await loop.sock_connect(sock, ("127.0.0.1", edge.port))
        raw = json.dumps(body(model="m", stream=True)).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(raw)}"
        await loop.sock_sendall(sock, head.encode() + b"\r\n\r\n" + raw)
        yield sock, loop


async def test_a_caller_who_does_not_read_holds_the_upstream_back(upstream: Upstream) -> None:
    """The upstream's writes block after a bounded amount, and go on as the caller reads.

    Its idle limit passes several times meanwhile: the silence is the caller's.
    """
    large = Large()
    upstream.default = large.answer()
    async with running(upstream, openai={"timeouts": {"idle_s": 0.3}}) as edge:
        async with caller(edge) as (sock, loop):
            written = await large.stands_still(quiet_s=1.2)
            assert written * len(PIECE) < SYSTEM_BYTES
            assert upstream.active == 1
            got = bytearray()
            while not got.endswith(b"0\r\n\r\n"):
                got += await asyncio.wait_for(loop.sock_recv(sock, 2**20), 5)
        assert large.written == PIECES
        assert got.count(b"x" * 64 * 2**10) == PIECES
        assert DONE in got[-200:]
        assert b'"error"' not in got


async def test_a_caller_who_does_not_read_and_leaves(upstream: Upstream) -> None:
    """A call that stands still for its caller ends with the caller, like any other."""
    large = Large()
    upstream.default = large.answer()
    async with running(upstream) as edge:
        async with caller(edge):
            await large.stands_still(quiet_s=0.3)
        await upstream.until(lambda u: u.disconnected == 1, 1.0)
        assert large.written < PIECES


async def test_others_are_served_while_one_does_not_read(upstream: Upstream) -> None:
    """A stream that stands still takes nothing from the others but its slot."""
    large = Large()
    upstream.named["large"] = large.answer()
    upstream.default = large.answer()
    async with running(upstream, slots=2) as edge, caller(edge):
        await large.stands_still(quiet_s=0.2)
        for _ in range(20):
            assert (await edge.chat()).status_code == 200


async def test_a_fast_upstream_does_not_starve_the_others(upstream: Upstream) -> None:
    """While one answer pours in as fast as it can be taken, others are served in between."""
    poured = asyncio.Event()

    def pour() -> Iterator[Step]:
        yield Head()
        while not poured.is_set():
            yield Chunk(frame(chunk("x")) * 500)
            yield Pause(0)  # else the fake itself serves nobody else
        yield Chunk(frame(finish()) + DONE)
        yield End()

    upstream.default = cast("Answer", pour())
    async with running(upstream) as edge, asyncio.TaskGroup() as group:
        pouring = group.create_task(edge.chat(model="m", stream=True))
        await upstream.until(lambda u: u.active == 1)
        for _ in range(5):
            assert (await edge.chat("usage")).status_code == 200
        poured.set()
    assert pouring.result().content.endswith(DONE)


async def test_a_slow_caller_gets_all_of_a_fast_answer(upstream: Upstream) -> None:
    """Read a little at a time, an answer is whole."""
    pieces = [Chunk(frame(chunk("x" * 1000)))] * 400
    upstream.default = (Head(), *pieces, Chunk(frame(finish()) + DONE), End())
    async with running(upstream) as edge, caller(edge) as (sock, loop):
        got = bytearray()
        while not got.endswith(b"0\r\n\r\n"):
            got += await asyncio.wait_for(loop.sock_recv(sock, 1500), 5)
    assert got.count(b'"content":"' + b"x" * 1000) == 400
    assert DONE in got[-200:]
