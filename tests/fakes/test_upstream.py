"""The fake upstream does on the wire what its answers say, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import aiohttp
import httpx
import openai
import psutil
import pytest

from tests.fakes.answers import GOLDEN, SCRIPTS, replay
from tests.fakes.sse import DONE, answer_text
from tests.fakes.upstream import Hang, Reset, Upstream, golden, reply, text

ROOT = Path(__file__).parent.parent.parent


def ask(upstream: Upstream, script: str) -> httpx.Response:
    """One streaming chat call for the named answer."""
    body = {"model": f"script:{script}", "stream": True}
    return httpx.post(f"{upstream.url}/chat/completions", json=body, timeout=5)


def ask_raw(upstream: Upstream, script: str) -> bytes:
    """Everything that came over the socket until it was closed or broken."""
    head = f"POST /v1/chat/completions HTTP/1.1\r\nx-fake-script: {script}\r\n\r\n"
    got = b""
    with socket.create_connection(("127.0.0.1", upstream.port), timeout=5) as sock:
        sock.sendall(head.encode())
        while piece := sock.recv(65536):
            got += piece
    return got


def test_official_client_reads_the_default_answer() -> None:
    """The official client reads the default answer, streamed and whole."""
    with Upstream() as upstream:
        client = openai.OpenAI(base_url=upstream.url, api_key="x", max_retries=0)
        whole = client.chat.completions.create(model="m", messages=[])
        assert whole.choices[0].message.content == "Hello"
        with client.chat.completions.create(model="m", messages=[], stream=True) as chunks:
            pieces = [chunk.choices[0].delta.content for chunk in chunks]
        client.close()
    assert pieces == [None, "He", "llo", None]
    assert [request.json["model"] for request in upstream.requests] == ["m", "m"]


def test_script_is_used_up_before_the_default() -> None:
    """Each request takes the next answer of the script, then the default."""
    with Upstream(script=[reply(429, {"a": 1}, {"retry-after": "3"}), text("one")]) as upstream:
        url = f"{upstream.url}/chat/completions"
        first, second, third = (httpx.post(url, json={}) for _ in range(3))
    assert (first.status_code, first.headers["retry-after"]) == (429, "3")
    assert second.content == b"".join(answer_text("one"))
    assert third.json()["object"] == "chat.completion"


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*/*.sse")), ids=lambda p: f"{p}"[-40:])
def test_recording_is_replayed_byte_for_byte(path: Path) -> None:
    """A recording arrives exactly as it is, however it is cut."""
    case = str(path.relative_to(GOLDEN).with_suffix(""))
    data = path.read_bytes()
    with Upstream(named={"cut": golden(case, range(1, len(data), 97))}) as upstream:
        assert ask(upstream, f"golden:{case}").content == data
        assert ask(upstream, "cut").content == data


async def test_cuts_arrive_as_separate_pieces() -> None:
    """With a pause between, the reader gets the pieces as they were cut."""
    data = "안녕".encode()
    async with (
        Upstream(default=replay(data, [1, 4], pause_s=0.02)) as upstream,
        aiohttp.ClientSession() as session,
        session.post(upstream.url) as answer,
    ):
        pieces = [piece async for piece in answer.content.iter_any()]
    assert pieces == [data[:1], data[1:4], data[4:]]


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("reset_before_headers", httpx.ReadError),
        ("reset_after_2", httpx.ReadError),
        ("close_before_headers", httpx.RemoteProtocolError),
        ("close_after_2", httpx.RemoteProtocolError),
        ("bad_http_chunk", httpx.RemoteProtocolError),
    ],
)
def test_broken_connection_is_seen_as_one(script: str, error: type[Exception]) -> None:
    """A reset, a close in the middle and a malformed chunk header are errors to a client."""
    with Upstream() as upstream, pytest.raises(error):
        ask(upstream, script)


def test_reset_is_a_reset() -> None:
    """`Reset` sends RST, after the bytes before it have arrived."""
    with Upstream() as upstream:
        with pytest.raises(ConnectionResetError):
            ask_raw(upstream, "reset_after_2")
        assert b"He" in ask_raw(upstream, "close_after_2")


@pytest.mark.parametrize(
    ("script", "starts", "has", "lacks"),
    [
        ("end_after_2", b"data: {", b"He", DONE),
        ("no_done", b"data: {", b'"finish_reason": "stop"', DONE),
        ("no_finish", b"data: {", DONE, b'"finish_reason": "stop"'),
        ("bad_json", b"data: {", b'data: {"id":"x","choices":[{"delta":\n\n', b"\r"),
        ("error_in_stream", b"data: {", b'data: {"error"', b"\r"),
        ("comments", b": ping", b"\n:\n", b"\r"),
        ("empty_data", b"data:\n", b"\ndata\n", b"\r"),
        ("no_space", b"data:{", b"data:[DONE]", b"data: "),
        ("crlf", b"data: ", b"\r\n\r\n", b"}\n"),
        ("cr", b"data: ", b"\r\r", b"\n"),
        ("bom", b"\xef\xbb\xbfdata: ", DONE, b"\r"),
        ("multi_line_data", b"data: ", b',\ndata: "object"', b"\r"),
        ("early_usage", b"data: ", b'"usage"', b'"choices": []'),
        ("split_utf8", b"data: ", "안녕".encode(), b"\r"),
        ("paced:3:5", b"data: ", b"w2 ", b"w3"),
    ],
)
def test_odd_stream_has_its_oddity(script: str, starts: bytes, has: bytes, lacks: bytes) -> None:
    """Each odd but complete stream shows on the wire what its name says."""
    with Upstream() as upstream:
        got = ask(upstream, script).content
    assert got.startswith(starts)
    assert has in got
    assert lacks not in got


async def test_client_that_leaves_is_seen() -> None:
    """A client that goes while the server is silent is counted at once, and only once."""
    async with Upstream(default=(*text("Hi")[:2], Hang())) as upstream:
        async with aiohttp.ClientSession() as session, session.post(upstream.url) as answer:
            await answer.content.readany()
            assert (upstream.active, upstream.disconnected) == (1, 0)
        await upstream.until(lambda u: u.disconnected == 1)
    assert (upstream.active, upstream.connections) == (0, 0)


async def test_hanging_answer_goes_on_when_released() -> None:
    """`release` lets a hanging answer take its next step."""
    async with (
        Upstream(default=(Hang(), *reply(200, "late"))) as upstream,
        aiohttp.ClientSession() as session,
    ):
        asking = asyncio.get_running_loop().create_task(_text_of(session, upstream.url))
        await upstream.until(lambda u: u.active == 1)
        upstream.release()
        assert await asking == "late"
    assert upstream.requests[0].outcome == "done"


async def _text_of(session: aiohttp.ClientSession, url: str) -> str:
    async with session.post(url) as answer:
        return await answer.text()


def test_connection_is_kept_between_requests() -> None:
    """Two good answers in a row use one connection."""
    with Upstream() as upstream, httpx.Client() as client:
        for script in ("usage", "hello"):
            client.post(upstream.url, headers={"x-fake-script": script})
        first, second = upstream.requests
    assert first.peer_port == second.peer_port


def test_health_and_models_are_not_recorded() -> None:
    """Probes get an answer of their own and do not use up the script."""
    with Upstream(script=[(Reset(),)], models=["a"]) as upstream:
        root = upstream.url.removesuffix("/v1")
        assert httpx.get(f"{root}/health").status_code == 200
        upstream.healthy = False
        assert httpx.get(f"{root}/health").status_code == 503
        assert httpx.get(f"{upstream.url}/models").json()["data"][0]["id"] == "a"
    assert upstream.requests == []
    assert len(upstream.script) == 1


def test_stop_ends_hanging_answers_and_the_thread() -> None:
    """After `stop` there is no thread, no open socket, and the port can be taken again."""
    before = (threading.active_count(), psutil.Process().num_fds())
    with Upstream() as upstream:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(upstream.url, json={"model": "script:hang_before_headers"}, timeout=0.1)
        upstream.wait(lambda u: u.connections == 0)  # or the next wait could mean that one
        with socket.create_connection(("127.0.0.1", upstream.port), timeout=5) as idle:
            upstream.wait(lambda u: u.connections == 1)
            upstream.stop()
            with contextlib.suppress(ConnectionResetError):  # gone is gone
                assert idle.recv(1) == b""
    assert (threading.active_count(), psutil.Process().num_fds()) == before
    with Upstream(port=upstream.port) as again:
        assert again.url == upstream.url


def test_port_in_use_is_told_at_once() -> None:
    """A port that is taken raises in the thread that started the server."""
    with Upstream() as upstream, pytest.raises(OSError, match="in use"):
        Upstream(port=upstream.port).start()


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_process_tells_its_address_and_state(ending: signal.Signals) -> None:
    """As a process it prints its address, answers by name, tells its state, and ends well."""
    command = [sys.executable, "-m", "tests.fakes.upstream", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        body = {"model": "script:paced:2:1"}
        assert b"w1" in httpx.post(f"{url}/chat/completions", json=body).content
        state = httpx.get(f"{url.removesuffix('/v1')}/_state").json()
        process.send_signal(ending)
    assert process.returncode == 0
    assert (state["active"], state["disconnected"]) == (0, 0)
    assert state["requests"][0]["json"] == body


@pytest.mark.parametrize("name", [name for name in SCRIPTS if "hang" not in name])
def test_every_named_answer_can_be_asked_for(name: str) -> None:
    """No named answer raises in the server: each comes to an end, or breaks where it says so."""
    broken = any(word in name for word in ("reset", "close", "bad_http"))
    with Upstream() as upstream:
        with contextlib.suppress(httpx.TransportError):
            ask(upstream, name)
            assert not broken
        upstream.wait(lambda u: u.active == 0)
        assert upstream.requests[0].outcome in (("cut", "left") if broken else ("done",))
