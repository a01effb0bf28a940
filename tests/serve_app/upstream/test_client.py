"""The client to upstreams: what goes out, what comes in, and how a call ends."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import psutil
import pytest

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
from serve_app.upstream.background import Background
from serve_app.upstream.client import UpstreamClient, UpstreamStream
from tests.fakes.answers import SCRIPTS, Answer, replay, stream
from tests.fakes.sse import chunk, finish, frames, role
from tests.fakes.upstream import (
    Chunk,
    Close,
    End,
    Hang,
    Head,
    Pause,
    Reset,
    Send,
    Upstream,
    reply,
    text,
)

HEADERS = {"authorization": "Bearer key", "x-tenant": "a"}
LIMITS = Timeouts(connect_s=1, first_token_s=2, idle_s=1)
GOOD = frames([role(), chunk("안녕"), finish()], done=True)


@pytest.fixture
async def client() -> AsyncGenerator[UpstreamClient]:
    """A client that has been started."""
    background = Background()
    started = UpstreamClient(background)
    await started.start()
    yield started
    await started.close()
    await background.close()


async def post(
    client: UpstreamClient,
    upstream: Upstream,
    answer: Answer | None = None,
    *,
    limits: Timeouts = LIMITS,
    body: bytes = b"{}",
) -> UpstreamStream:
    """Begin a call, which the upstream answers so."""
    if answer is not None:
        upstream.script.append(answer)
    slot = Slot("fake", upstream.url, HEADERS)
    return await client.post(slot, "/chat/completions", body, timeouts=limits, request_id="r-1")


@asynccontextmanager
async def call(
    client: UpstreamClient, upstream: Upstream, answer: Answer, *, limits: Timeouts = LIMITS
) -> AsyncGenerator[UpstreamStream]:
    """A call that is closed at the end of the block."""
    answering = await post(client, upstream, answer, limits=limits)
    try:
        yield answering
    finally:
        answering.close()


async def read_all(answering: UpstreamStream) -> bytes:
    """All bytes to the end."""
    got = b""
    while piece := await answering.read():
        got += piece
    return got


async def test_what_is_sent(client: UpstreamClient, upstream: Upstream) -> None:
    """The body as it is, the slot's headers, the request's id, and nothing that asks for more."""
    async with call(client, upstream, text("x")) as answering:
        await read_all(answering)
    received = upstream.requests[0]
    assert (received.method, received.path) == ("POST", "/v1/chat/completions")
    assert received.body == b"{}"
    assert received.headers.pop("host") == f"127.0.0.1:{upstream.port}"
    assert received.headers == {
        "content-type": "application/json",
        "content-length": "2",
        "accept": "text/event-stream",
        "accept-encoding": "identity",
        "user-agent": "iop-edge",
        "x-request-id": "r-1",
        **HEADERS,
    }


@pytest.mark.parametrize("size", [2**20, 2**20 + 1, 5 * 2**20])
async def test_a_large_body_arrives_whole(
    client: UpstreamClient, upstream: Upstream, size: int
) -> None:
    """Above a megabyte it is written in pieces, with its length said all the same."""
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    answering = await post(client, upstream, text("x"), body=body)
    answering.close()
    assert upstream.requests[0].body == body


@pytest.mark.parametrize("cuts", [range(0), range(1, len(GOOD)), [5, 6, 200]])
async def test_the_bytes_come_as_they_are(
    client: UpstreamClient, upstream: Upstream, cuts: range | list[int]
) -> None:
    """Nothing is decoded, joined by lines or lost."""
    async with call(client, upstream, replay(GOOD, cuts)) as answering:
        assert not answering.whole
        assert await read_all(answering) == GOOD
        assert await answering.read() == b""


async def test_a_json_body_is_read_whole(client: UpstreamClient, upstream: Upstream) -> None:
    """An answer that is no stream is one piece, however it came."""
    head = Head(200, (("content-type", "application/json; charset=utf-8"),))
    answer = (head, Chunk(b'{"a":'), Pause(0.05), Chunk(b" 1}"), End())
    async with call(client, upstream, answer) as answering:
        assert answering.whole
        assert await answering.read() == b'{"a": 1}'
        assert await answering.read() == b""


async def test_a_good_connection_is_used_again(client: UpstreamClient, upstream: Upstream) -> None:
    """One that was read to its end serves the next call; one that was not is closed."""
    for _ in range(2):
        async with call(client, upstream, text("x")) as answering:
            await read_all(answering)
    async with call(client, upstream, text("x")) as answering:
        await answering.read()
    async with call(client, upstream, text("x")) as answering:
        await read_all(answering)
    ports = [request.peer_port for request in upstream.requests]
    assert ports[0] == ports[1]
    assert len(set(ports)) <= 3


async def test_a_cookie_and_a_redirect_are_not_followed(
    client: UpstreamClient, upstream: Upstream
) -> None:
    """What an upstream sets for one caller is not sent for another; a redirect is a failure."""
    head = (("content-type", "text/event-stream"), ("set-cookie", "session=1; Path=/"))
    async with call(client, upstream, (Head(200, head), *text("x")[1:])) as answering:
        await read_all(answering)
    with pytest.raises(UpstreamError, match="HTTP 307"):
        await post(client, upstream, reply(307, {}, {"location": "/v1/chat/completions"}))
    assert len(upstream.requests) == 2
    assert "cookie" not in upstream.requests[1].headers


@pytest.mark.parametrize(
    ("answer", "error", "code"),
    [
        pytest.param(SCRIPTS["reset_before_headers"], UpstreamError, "upstream_disconnected"),
        pytest.param(SCRIPTS["close_before_headers"], UpstreamError, "upstream_disconnected"),
        pytest.param(
            (Send(b"nonsense\r\n\r\n"), Hang()), UpstreamProtocolError, "upstream_protocol_error"
        ),
        pytest.param(
            (Send(b"HTTP/1.1 200 OK\r\n" + b"x: y" * 2**18),),
            UpstreamProtocolError,
            "upstream_protocol_error",
        ),
        pytest.param((Send(b"HTTP/1.1 2"), Reset()), UpstreamError, "upstream_disconnected"),
        pytest.param(
            (Head(200, (("content-type", "application/json"), ("content-length", "x")), False),),
            UpstreamProtocolError,
            "upstream_protocol_error",
        ),
    ],
    ids=["reset", "close", "no-http", "endless-header", "reset-in-the-head", "bad-length"],
)
async def test_no_head(
    client: UpstreamClient,
    upstream: Upstream,
    answer: Answer,
    error: type[GatewayError],
    code: str,
) -> None:
    """An answer whose head does not come is an error that names the provider."""
    with pytest.raises(error) as caught:
        await post(client, upstream, answer)
    assert (caught.value.code, caught.value.provider) == (code, "fake")
    assert caught.value.status == 502
    assert client.open_streams == 0


async def test_a_port_where_nobody_listens(client: UpstreamClient) -> None:
    """502: it was refused."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        slot = Slot("fake", f"http://127.0.0.1:{sock.getsockname()[1]}/v1")
        with pytest.raises(UpstreamUnavailableError) as caught:
            await client.post(slot, "/x", b"{}", timeouts=LIMITS, request_id="r")
    assert (caught.value.status, caught.value.code) == (502, Code.UPSTREAM_UNAVAILABLE)


async def test_a_name_that_nobody_has(client: UpstreamClient) -> None:
    """The same for a host name that cannot be found, whose address the caller is not told."""
    slot = Slot("fake", "http://no-such-host.invalid/v1")
    with pytest.raises(UpstreamUnavailableError) as caught:
        await client.post(slot, "/x", b"{}", timeouts=LIMITS, request_id="r")
    assert "no-such-host" not in caught.value.message


async def test_a_host_that_does_not_accept(client: UpstreamClient) -> None:
    """A connection that is not accepted is given up after `connect_s`."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen(0)
        address = sock.getsockname()
        filling = [socket.socket() for _ in range(8)]
        for one in filling:
            one.setblocking(False)
            one.connect_ex(address)
        limits = Timeouts(connect_s=0.2, first_token_s=5)
        slot = Slot("fake", f"http://127.0.0.1:{address[1]}/v1")
        with pytest.raises(UpstreamTimeoutError, match=r"within 0\.2 s"):
            await client.post(slot, "/x", b"{}", timeouts=limits, request_id="r")
        for one in filling:
            one.close()


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        pytest.param(SCRIPTS["reset_after_2"], UpstreamProtocolError, "answer", id="reset"),
        pytest.param(SCRIPTS["close_after_2"], UpstreamProtocolError, "broke off", id="close"),
        pytest.param(
            (Head(), Chunk(b"x"), Pause(0.05), Send(b"zz\r\n"), Hang()),
            UpstreamProtocolError,
            "answer",
            id="broken-chunk-header",
        ),
        pytest.param(
            (Head(), Chunk(b"x"), Hang()), UpstreamTimeoutError, "silent for 1 s", id="silence"
        ),
        pytest.param(
            (Head(200, (("content-length", "9"),), False), Send(b"x"), Reset()),
            UpstreamProtocolError,
            "answer",
            id="short-body",
        ),
    ],
)
async def test_a_break_in_the_middle(
    client: UpstreamClient,
    upstream: Upstream,
    answer: Answer,
    error: type[GatewayError],
    message: str,
) -> None:
    """What came is given, then the error; nothing waits for ever."""
    async with call(client, upstream, answer) as answering, asyncio.timeout(3):
        assert await answering.read()
        answering.got_event()
        with pytest.raises(error, match=message):
            await read_all(answering)
    assert client.open_streams == 0
    await upstream.until(lambda u: u.active == 0)


async def test_no_first_event(client: UpstreamClient, upstream: Upstream) -> None:
    """Until the first event the limit is that for it, whatever else comes."""
    pings = stream([b": ping\n\n"] * 100, pause_s=0.05)
    limits = Timeouts(first_token_s=0.3, idle_s=5)
    async with call(client, upstream, pings, limits=limits) as answering:
        with pytest.raises(UpstreamTimeoutError, match=r"no event for 0\.3 s"):
            await read_all(answering)


async def test_the_readers_own_time_is_not_the_upstreams(
    client: UpstreamClient, upstream: Upstream
) -> None:
    """Silence is counted only while someone waits for bytes."""
    limits = Timeouts(idle_s=0.2)
    first, *rest = text("a", "b")[1:]
    async with call(client, upstream, (Head(), first, Hang(), *rest), limits=limits) as answering:
        await answering.read()
        answering.got_event()
        await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.8)
        upstream.release()
        assert (await read_all(answering)).endswith(b"[DONE]\n\n")


@pytest.mark.parametrize(
    "end", [Send(b"zz\r\n"), Reset(), Close()], ids=["broken-chunk-header", "reset", "close"]
)
async def test_a_break_while_nobody_reads(
    client: UpstreamClient, upstream: Upstream, end: Send | Reset | Close
) -> None:
    """It is the same error for a reader who comes back later."""
    answer = (Head(), Chunk(b"x"), Hang(), end, Hang())
    async with call(client, upstream, answer) as answering, asyncio.timeout(3):
        assert await answering.read() == b"x"
        upstream.release()
        await upstream.until(lambda u: u.active == 0)
        with pytest.raises(UpstreamProtocolError) as caught:
            await read_all(answering)
    assert caught.value.code == Code.UPSTREAM_DISCONNECTED


async def test_after_the_finish_little_time_is_left(
    client: UpstreamClient, upstream: Upstream
) -> None:
    """What follows a whole answer is waited for 5 s, though an answer has no limit at all."""
    limits = Timeouts(idle_s=0, first_token_s=0)
    loop = asyncio.get_running_loop()
    async with call(client, upstream, (Head(), Chunk(b"x"), Hang()), limits=limits) as answering:
        await answering.read()
        answering.got_event()
        answering.got_finish()
        reading = loop.create_task(answering.read())
        await asyncio.wait([reading], timeout=0.01)
        answering.tick(loop.time() + 4.9)
        await asyncio.wait([reading], timeout=0.01)
        assert not reading.done()
        answering.tick(loop.time() + 5.1)
        with pytest.raises(UpstreamTimeoutError, match="silent for 5 s"):
            await reading


async def test_a_failed_answer_gives_its_connection_back(
    client: UpstreamClient, upstream: Upstream
) -> None:
    """An error's body is read, so that the next call can use the connection."""
    for _ in range(3):
        with pytest.raises(UpstreamError):
            await post(client, upstream, reply(500, {"error": {"message": "boom"}}))
    assert client.open_streams == 0
    assert len({request.peer_port for request in upstream.requests}) == 1


async def test_an_endless_error_body_is_cut(client: UpstreamClient, upstream: Upstream) -> None:
    """Of a failure's body no more is read than a message needs."""
    head = Head(500, (("content-type", "text/plain"),))
    answer = (head, *[Chunk(b"x" * 2**14)] * 1000, End())
    with pytest.raises(UpstreamError) as caught:
        await post(client, upstream, answer)
    assert len(caught.value.message) < 1200
    await upstream.until(lambda u: u.active == 0)


async def test_close_ends_calls_and_connections(client: UpstreamClient, upstream: Upstream) -> None:
    """Every call is broken off, and no socket stays open."""
    before = psutil.Process().num_fds()
    calls = [await post(client, upstream, (Head(), Chunk(b"x"), Hang())) for _ in range(5)]
    assert client.open_streams == 5
    await client.close()
    assert client.open_streams == 0
    # The fake's sockets are this process's too, and close a moment after they are counted off.
    await upstream.until(lambda u: u.connections == 0)
    async with asyncio.timeout(5):
        while psutil.Process().num_fds() > before:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.02)
    for answering in calls:
        answering.close()
