"""Callers who leave: the upstream's work ends with them, and nothing stays behind (CHAT-7)."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from contextlib import suppress
from typing import Final

import psutil
import pytest

from tests.fakes.upstream import Upstream, text
from tests.serve_app.ingress.edge import Edge, access_line, body, running, until

#: The contract's word for how fast the upstream has to be told.
LIMIT_S: Final = 1.0

CALLERS: Final = 200

BOTH = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "stream"])


class Caller:
    """A caller's connection, with its request sent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self._writer = writer

    @classmethod
    async def arrive(cls, edge: Edge, script: str, *, stream: bool) -> Caller:
        """Connect and ask for one of the upstream's named answers."""
        raw = json.dumps(body(script, stream=stream)).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(raw)}"
        reader, writer = await asyncio.open_connection("127.0.0.1", edge.port)
        writer.write(head.encode() + b"\r\n\r\n" + raw)
        return cls(reader, writer)

    async def leave(self, *, reset: bool = False) -> None:
        """Close the connection, by FIN or by RST, without reading what has come."""
        if reset:
            self._writer.transport.abort()
        else:
            self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()


def in_use() -> tuple[int, int]:
    """Open files and sockets of this process, and tasks of this loop."""
    return psutil.Process().num_fds(), len(asyncio.all_tasks())


@pytest.mark.clause("CHAT-7")
@pytest.mark.parametrize("reset", [False, True], ids=["fin", "rst"])
@pytest.mark.parametrize(
    ("script", "streamed"),
    [
        pytest.param("hang_before_headers", False, id="whole-before-the-head"),
        pytest.param("hang_before_headers", True, id="stream-before-the-head"),
        pytest.param("hang_after_headers", False, id="whole-before-the-first-event"),
        pytest.param("hang_after_headers", True, id="stream-before-the-first-event"),
        pytest.param("hang_after_2", False, id="whole-in-the-middle"),
        pytest.param("hang_after_2", True, id="stream-in-a-silence"),
        pytest.param("paced:1000:5", False, id="whole-while-it-comes"),
        pytest.param("paced:1000:5", True, id="stream-while-it-comes"),
    ],
)
async def test_a_caller_who_leaves_ends_the_work(
    edge: Edge,
    upstream: Upstream,
    records: list[logging.LogRecord],
    script: str,
    streamed: bool,
    reset: bool,
) -> None:
    """The upstream sees the disconnect within a second, and slot and call are given back."""
    caller = await Caller.arrive(edge, script, stream=streamed)
    if streamed and not script.startswith("hang_before") and "headers" not in script:
        await caller.reader.readuntil(b'"content":"')
    await upstream.until(lambda u: u.active == 1)
    left = time.monotonic()
    await caller.leave(reset=reset)
    await upstream.until(lambda u: u.disconnected == 1, LIMIT_S)
    assert time.monotonic() - left < LIMIT_S
    await until(lambda: edge.quiet)
    assert (await access_line(records))["status"] == 499
    assert not [record for record in records if record.exc_info]


@pytest.mark.clause("CHAT-7")
@BOTH
async def test_a_caller_who_leaves_while_waiting_for_a_slot(
    edge: Edge, upstream: Upstream, streamed: bool
) -> None:
    """It gives up its place, and the upstream never hears of it."""
    edge.slots.count = 0
    caller = await Caller.arrive(edge, "hello", stream=streamed)
    await until(lambda: edge.slots.asked == 1)
    await caller.leave()
    edge.slots.count = 1
    assert (await edge.chat("usage")).status_code == 200
    assert [request.json["model"] for request in upstream.requests] == ["script:usage"]
    assert len(edge.slots.held) == 1


@pytest.mark.clause("CHAT-7")
async def test_a_caller_who_leaves_while_sending(
    edge: Edge, records: list[logging.LogRecord]
) -> None:
    """Half a body is no request: nothing is asked for, and nothing is logged as a fault."""
    reader, writer = await asyncio.open_connection("127.0.0.1", edge.port)
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 99\r\n\r\n{")
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    assert await reader.read() == b""
    assert (await access_line(records))["status"] == 499
    assert edge.slots.asked == 0
    assert not [record for record in records if record.exc_info]


@pytest.mark.clause("CHAT-7")
@pytest.mark.parametrize("script", ["hang_before_headers", "paced:200:100"])
@BOTH
async def test_two_hundred_who_leave_at_once_leave_nothing_behind(
    upstream: Upstream, script: str, streamed: bool
) -> None:
    """There is no call, slot, task or open socket then that was not there before."""
    async with running(upstream, slots=CALLERS) as edge:
        await edge.chat()
        await edge.client.aclose()
        edge.gateway.pools["fake"].close()
        await until(lambda: not edge.slots.held)
        files, tasks = in_use()
        arriving = [Caller.arrive(edge, script, stream=streamed) for _ in range(CALLERS)]
        callers = await asyncio.gather(*arriving)
        await upstream.until(lambda u: u.active == CALLERS)
        assert edge.gateway.client.open_streams <= CALLERS
        await asyncio.gather(*(caller.leave() for caller in callers))
        await upstream.until(lambda u: u.active == 0, LIMIT_S)
        assert upstream.disconnected == CALLERS
        await until(lambda: edge.quiet)
        edge.gateway.pools["fake"].close()  # else idle slots are kept for a second
        await until(lambda: not edge.slots.held)
        await until(lambda: in_use()[0] <= files and in_use()[1] <= tasks)


@pytest.mark.clause("CHAT-7")
async def test_half_leave_and_half_are_served(upstream: Upstream) -> None:
    """Who stays gets a whole answer, whoever left beside them."""
    upstream.default = text(*(f"w{number} " for number in range(20)), pause_s=0.03)
    async with running(upstream, slots=100) as edge:
        arriving = [Caller.arrive(edge, "paced:200:50", stream=True) for _ in range(40)]
        leaving = await asyncio.gather(*arriving)
        async with asyncio.TaskGroup() as group:
            staying = [group.create_task(edge.chat(model="m", stream=True)) for _ in range(40)]
            for caller in leaving:
                await caller.reader.readuntil(b'"content":"')
                await caller.leave()
        for answer in staying:
            assert answer.result().content.endswith(b"data: [DONE]\n\n")
            assert b"w19 " in answer.result().content
        await upstream.until(lambda u: u.active == 0, LIMIT_S)
        await until(lambda: edge.quiet)


async def test_a_client_that_keeps_its_connection_is_not_taken_for_gone(
    edge: Edge, upstream: Upstream
) -> None:
    """A second request sent before the first is answered is served after it."""
    raw = json.dumps(body("paced:3:30")).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(raw)}\r\n\r\n"
    one = head.encode() + raw
    last = one.replace(b"host: x", b"host: x\r\nconnection: close")
    answer = await edge.raw(one + last)
    assert (answer.body.count(b"HTTP/1.1 200 OK"), answer.status) == (1, 200)
    await upstream.until(lambda u: [one.outcome for one in u.requests] == ["done", "done"])


@BOTH
async def test_a_gateway_that_stops_ends_its_calls(upstream: Upstream, streamed: bool) -> None:
    """Closing it breaks off what is at work, and gives every slot back."""
    async with running(upstream) as edge:
        caller = await Caller.arrive(edge, "hang_after_2", stream=streamed)
        await upstream.until(lambda u: u.active == 1)
        await edge.gateway.close()
        await upstream.until(lambda u: u.active == 0, LIMIT_S)
        await until(lambda: not edge.slots.held)
        await caller.leave()
