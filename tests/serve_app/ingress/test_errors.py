"""Every failure is the envelope with a fitting status (clause ERR-1)."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest

from serve_app.errors import UpstreamUnavailableError
from tests.fakes.upstream import Upstream
from tests.serve_app.ingress.edge import MESSAGES, Edge, Json, RawAnswer, body, running

CHAT = "/v1/chat/completions"
SECRET = "path-/srv/secret-of-the-gateway"


def error_in(response: httpx.Response | RawAnswer) -> Json:
    """The error of a response, which has to be the envelope and nothing else."""
    assert response.headers["content-type"] == "application/json"
    parsed: Json = response.json() if isinstance(response, httpx.Response) else response.json
    assert parsed.keys() == {"error"}
    error: Json = parsed["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert error["message"]
    return error


def nested(depth: int) -> bytes:
    """A chat request whose metadata is an array this deep, the body itself not counted."""
    head = json.dumps({"model": "script:hello", "messages": MESSAGES})[:-1]
    return f'{head},"metadata":{"[" * depth}{"]" * depth}}}'.encode()


def with_content(content: bytes) -> bytes:
    """A chat request whose one message has this JSON text as its content."""
    return b'{"model":"script:hello","messages":[{"role":"user","content":' + content + b"}]}"


@pytest.mark.clause("ERR-1", "ERR-2")
@pytest.mark.parametrize(
    ("raw", "code"),
    [
        pytest.param(b"", "invalid_json", id="empty"),
        pytest.param(b"{", "invalid_json", id="cut-off"),
        pytest.param(b"{}x", "invalid_json", id="more-after-it"),
        pytest.param(b"{'a': 1}", "invalid_json", id="single-quotes"),
        pytest.param(b'{"a": 1,}', "invalid_json", id="trailing-comma"),
        pytest.param(with_content(b"NaN"), "invalid_json", id="nan"),
        pytest.param(with_content(b"-Infinity"), "invalid_json", id="infinity"),
        pytest.param(with_content(b"1e999"), "invalid_json", id="too-large-a-number"),
        pytest.param(with_content(b'"\\ud800"'), "invalid_json", id="lone-surrogate"),
        pytest.param(with_content(b'"\xff"'), "invalid_json", id="not-utf-8"),
        pytest.param(with_content(b'"\xed\xa0\x80"'), "invalid_json", id="surrogate-in-utf-8"),
        pytest.param(with_content(b'"\x00"'), "invalid_json", id="bare-nul"),
        pytest.param("﻿{}".encode(), "invalid_json", id="byte-order-mark"),
        pytest.param('{"a": 1}'.encode("utf-16"), "invalid_json", id="utf-16"),
        pytest.param(b"null", "invalid_type", id="null"),
        pytest.param(b"[]", "invalid_type", id="array"),
        pytest.param(b'"text"', "invalid_type", id="text"),
        pytest.param(nested(100), "invalid_json", id="101-deep"),
        pytest.param(nested(100_000), "invalid_json", id="100000-deep"),
        pytest.param(b"[" * 2**20, "invalid_json", id="a-megabyte-of-brackets"),
        pytest.param(b'{"a":' * 100_000, "invalid_json", id="open-objects"),
        pytest.param(b"model=m&messages=hi", "invalid_json", id="form"),
    ],
)
async def test_a_body_that_is_no_request_is_refused(edge: Edge, raw: bytes, code: str) -> None:
    """400 with a code, however odd the bytes are, and the gateway goes on."""
    response = await edge.client.post(CHAT, content=raw)
    error = error_in(response)
    assert (response.status_code, error["type"]) == (400, "invalid_request_error")
    assert error["code"] == code
    assert len(error["message"]) < 500
    assert (await edge.chat()).status_code == 200


@pytest.mark.clause("ERR-1")
async def test_the_deepest_nesting_that_is_allowed_is_read(edge: Edge) -> None:
    """100 levels are not 101: the fault is then the field's own."""
    error = error_in(await edge.client.post(CHAT, content=nested(99)))
    assert (error["code"], error["param"]) == ("invalid_type", "metadata")


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b'"\\u0000"', id="escaped-nul"),
        pytest.param(b'"\\ud83d\\ude42"', id="surrogate-pair"),
        pytest.param('"안녕 👍🏽 "'.encode(), id="utf-8"),
        pytest.param(b'"' + b"x" * 2**20 + b'"', id="a-megabyte"),
        pytest.param(b'""', id="empty"),
    ],
)
async def test_odd_but_valid_text_is_passed_on(
    edge: Edge, upstream: Upstream, content: bytes
) -> None:
    """What JSON allows in a string reaches the upstream as it is."""
    response = await edge.client.post(CHAT, content=with_content(content))
    assert response.status_code == 200
    assert upstream.requests[0].json["messages"][0]["content"] == json.loads(content)


async def test_a_hundred_thousand_messages_are_passed_on(edge: Edge, upstream: Upstream) -> None:
    """A long conversation is no fault; only the body's size is limited."""
    messages = [{"role": "user", "content": "x"}] * 100_000
    response = await edge.client.post(CHAT, json={"model": "script:hello", "messages": messages})
    assert response.status_code == 200
    assert len(upstream.requests[0].json["messages"]) == 100_000


@pytest.mark.clause("ERR-2")
async def test_a_hundred_thousand_faults_are_one(edge: Edge) -> None:
    """The first fault is told, and the others are not even looked for."""
    messages: list[Any] = [{"role": "user", "content": 5}] * 100_000
    error = error_in(await edge.client.post(CHAT, json={"model": "m", "messages": messages}))
    assert error["param"] == "messages[0].content"
    assert len(error["message"]) < 500


@pytest.mark.clause("ERR-1")
@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", CHAT, {"POST"}),
        ("DELETE", CHAT, {"POST"}),
        ("OPTIONS", CHAT, {"POST"}),
        ("POST", "/v1/models", {"GET", "HEAD"}),
        ("DELETE", "/v1/models/m", {"GET", "HEAD"}),
        ("PUT", "/v1/completions", {"GET", "HEAD", "POST"}),
        ("POST", "/healthz", {"GET", "HEAD"}),
    ],
)
async def test_a_wrong_method_is_told_the_right_ones(
    edge: Edge, method: str, path: str, allowed: set[str]
) -> None:
    """405 with `Allow`."""
    response = await edge.client.request(method, path)
    error = error_in(response)
    assert (response.status_code, error["code"]) == (405, "method_not_allowed")
    assert {name.strip() for name in response.headers["allow"].split(",")} == allowed


@pytest.mark.clause("ERR-1")
@pytest.mark.parametrize(
    "path",
    ["/", "/v1", "/v1/", "/v1/chat", "/v1/chat/completions/", "/v2/models", "//v1/models",
     "/v1//models", "/%00", "/%ff", "/..%2f..%2fetc/passwd", "/v1/embeddings", "/" + "x" * 8000],
)  # fmt: skip
async def test_an_unknown_path_is_not_found(edge: Edge, path: str) -> None:
    """404 that names the endpoints, and no redirect for a slash too many."""
    answer = await edge.get(path)
    error = error_in(answer)
    assert (answer.status, error["code"]) == (404, "not_found")
    assert CHAT in error["message"]
    assert len(error["message"]) < 500


@pytest.mark.clause("ERR-1")
async def test_a_body_that_says_it_is_too_large_is_not_read(upstream: Upstream) -> None:
    """413 by its length alone, before a byte of it has come."""
    async with running(upstream, openai={"limits": {"body_mib": 1}}) as edge:
        head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
        answer = await edge.raw(f"{head}content-length: {2**20 + 1}\r\n\r\n".encode())
        assert (answer.status, error_in(answer)["code"]) == (413, "body_too_large")
        assert "1 MiB" in answer.json["error"]["message"]
        assert (await edge.chat()).status_code == 200


@pytest.mark.clause("ERR-1")
async def test_a_body_that_grows_too_large_is_cut_short(upstream: Upstream) -> None:
    """413 as soon as more has come than is allowed, with no length said; the next is served."""

    async def chunks() -> AsyncGenerator[bytes]:
        for _ in range(64):
            yield b" " * 2**16

    async with running(upstream, openai={"limits": {"body_mib": 1}}) as edge:
        for _ in range(3):
            response = await edge.client.post(CHAT, content=chunks())
            assert (response.status_code, error_in(response)["code"]) == (413, "body_too_large")
        assert (await edge.chat()).status_code == 200


async def test_a_body_of_just_the_limit_is_read(upstream: Upstream) -> None:
    """The limit itself is allowed, with and without a length."""
    text = json.dumps(body()).encode()
    full = text + b" " * (2**20 - len(text))

    async def chunks() -> AsyncGenerator[bytes]:
        for at in range(0, len(full), 2**16):
            yield full[at : at + 2**16]

    async with running(upstream, openai={"limits": {"body_mib": 1}}) as edge:
        assert (await edge.client.post(CHAT, content=full)).status_code == 200
        assert (await edge.client.post(CHAT, content=chunks())).status_code == 200
        assert (await edge.client.post(CHAT, content=full + b" ")).status_code == 413


@pytest.mark.clause("ERR-1")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_fault_of_our_own_tells_nothing(
    edge: Edge, records: list[logging.LogRecord], stream: bool
) -> None:
    """500 with the request's id; what was raised stands in the log alone."""
    edge.slots.failure = RuntimeError(SECRET)
    response = await edge.chat(stream=stream)
    error = error_in(response)
    assert (response.status_code, error["code"]) == (500, "internal_error")
    assert (error["type"], error["param"]) == ("server_error", None)
    assert response.headers["x-request-id"] in error["message"]
    assert SECRET not in f"{response.headers} {response.text}"
    assert "Traceback" not in response.text
    raised = [record.exc_info[1] for record in records if record.exc_info]
    assert [str(one) for one in raised] == [SECRET]
    edge.slots.failure = None
    assert (await edge.chat()).status_code == 200


@pytest.mark.clause("ERR-1")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_what_a_replica_raises_is_told_as_it_is(edge: Edge, stream: bool) -> None:
    """An error of ours keeps its status, code and wait when it comes from a provider."""
    edge.slots.failure = UpstreamUnavailableError("It is starting.", retry_after_s=7.2)
    response = await edge.chat(stream=stream)
    assert response.status_code == 503
    assert response.headers["retry-after"] == "8"
    assert error_in(response)["code"] == "upstream_unavailable"


@pytest.mark.clause("ERR-1")
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\r\n\r\n", id="nothing"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", id="tls"),
        pytest.param(b"GET /v1/models\r\n\r\n", id="no-version"),
        pytest.param(b"GET /v1/models HTTP/9.9\r\n\r\n", id="unknown-version"),
        pytest.param(b"GET /v1/models HTTP/1.1\r\nno colon\r\n\r\n", id="no-colon"),
        pytest.param(b"GET /v1/models HTTP/1.1\r\na\x00b: c\r\n\r\n", id="nul-in-a-name"),
        pytest.param(b"POST %b HTTP/1.1\r\ncontent-length: x\r\n\r\n", id="length-not-a-number"),
        pytest.param(b"POST %b HTTP/1.1\r\ncontent-length: -1\r\n\r\n", id="negative-length"),
        pytest.param(
            b"POST %b HTTP/1.1\r\ncontent-length: " + b"9" * 5000 + b"\r\n\r\n", id="huge-length"
        ),
        pytest.param(
            b"POST %b HTTP/1.1\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}",
            id="two-lengths",
        ),
        pytest.param(
            b"POST %b HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", id="broken-chunk"
        ),
        pytest.param(
            b"POST %b HTTP/1.1\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            id="length-and-chunks",
        ),
        pytest.param(b"GET /v1/models HTTP/1.1\r\nx: " + b"y" * 2**21, id="endless-header"),
        pytest.param(b"GET /v1/models HTTP/1.1\r\n" + b"x: y\r\n" * 50_000, id="endless-headers"),
        pytest.param(b"GET /" + b"x" * 2**21, id="endless-path"),
    ],
)
async def test_broken_http_does_no_harm(
    edge: Edge, records: list[logging.LogRecord], data: bytes
) -> None:
    """It is no fault of ours, raises nowhere, and the next request is served."""
    try:
        answer = await edge.raw(data.replace(b"%b", CHAT.encode()), end=True)
    except ConnectionError:
        pass
    else:
        assert answer.status < 500
    assert (await edge.chat()).status_code == 200
    assert not [record for record in records if record.exc_info]


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param((b"content-type: text/plain",), id="other-content-type"),
        pytest.param((b"content-type: \xff\xfe",), id="content-type-not-ascii"),
        pytest.param((), id="no-content-type"),
        pytest.param((b"accept: \xec\x95\x88",), id="accept-not-ascii"),
        pytest.param((b"x-long: " + b"y" * 30_000,), id="long-header"),
        pytest.param((b"cookie: a=b", b"cookie: c=d", b"x-forwarded-for: ,,,"), id="more-headers"),
        pytest.param((b"accept-encoding: gzip, br", b"range: bytes=0-1"), id="asks-for-parts"),
        pytest.param((b"expect: 100-continue",), id="expects-continue"),
        pytest.param((b"upgrade: websocket",), id="upgrade-without-connection"),
    ],
)
async def test_odd_headers_do_not_matter(edge: Edge, headers: tuple[bytes, ...]) -> None:
    """The body is JSON whatever its headers say of it."""
    raw = json.dumps(body()).encode()
    lines = [
        f"POST {CHAT} HTTP/1.1".encode(),
        b"host: x",
        b"connection: close",
        b"content-length: %d" % len(raw),
        *headers,
    ]
    answer = await edge.raw(b"\r\n".join(lines) + b"\r\n\r\n" + raw)
    assert answer.status in {100, 200}
    assert b'"chat.completion"' in answer.body
