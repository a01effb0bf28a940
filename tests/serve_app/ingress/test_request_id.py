"""The request id, from the caller to the upstream and into the log (clause ERR-3)."""

from __future__ import annotations

import logging
import re

import httpx
import pytest

from tests.fakes.upstream import Upstream
from tests.serve_app.ingress.edge import Edge, access_line, body

MADE = re.compile(r"req_[0-9a-f]{32}")

GOOD = ["a", "0", "trace-1.2:3_4", "x" * 128, "01J9ZC7Q8VQ4S9", "req_1"]

BAD = [
    pytest.param((), id="missing"),
    pytest.param((b"",), id="empty"),
    pytest.param((b"two words",), id="space"),
    pytest.param((b"x" * 129,), id="129-characters"),
    pytest.param((b"a/b",), id="slash"),
    pytest.param((b"a,b",), id="comma"),
    pytest.param(("아이디".encode(),), id="not-ascii"),
    pytest.param((b"\xff",), id="not-utf-8"),
    pytest.param((b"%0aINFO",), id="escaped-line-end"),
    pytest.param((b"one", b"two"), id="two-headers"),
    pytest.param((b"one", b"one"), id="two-equal-headers"),
]

ENDPOINTS = [
    ("GET", "/v1/models", 200),
    ("GET", "/v1/models/no", 404),
    ("GET", "/nowhere", 404),
    ("POST", "/v1/models", 405),
    ("POST", "/v1/chat/completions", 400),
    ("POST", "/v1/completions", 404),
    ("GET", "/healthz", 200),
    ("GET", "/readyz", 200),
]


async def ask(edge: Edge, *ids: bytes, stream: bool = False) -> httpx.Response:
    """A chat call with these `x-request-id` headers."""
    return await edge.client.post(
        "/v1/chat/completions",
        json=body(stream=stream),
        headers=[(b"x-request-id", value) for value in ids],
    )


@pytest.mark.clause("ERR-3")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("request_id", GOOD)
async def test_a_good_id_is_the_same_on_every_hop(
    edge: Edge,
    upstream: Upstream,
    records: list[logging.LogRecord],
    request_id: str,
    stream: bool,
) -> None:
    """The caller's id is in the response, in the upstream's request and in the log."""
    response = await ask(edge, request_id.encode(), stream=stream)
    assert response.headers.get_list("x-request-id") == [request_id]
    assert upstream.requests[0].headers["x-request-id"] == request_id
    assert (await access_line(records))["request_id"] == request_id


@pytest.mark.clause("ERR-3")
@pytest.mark.parametrize("ids", BAD)
async def test_a_bad_id_is_replaced_on_every_hop(
    edge: Edge, upstream: Upstream, records: list[logging.LogRecord], ids: tuple[bytes, ...]
) -> None:
    """What is not fit to be logged is nowhere; a new id stands in its place everywhere."""
    response = await ask(edge, *ids)
    made = response.headers.get_list("x-request-id")
    assert len(made) == 1
    assert MADE.fullmatch(made[0])
    assert upstream.requests[0].headers["x-request-id"] == made[0]
    assert (await access_line(records))["request_id"] == made[0]


@pytest.mark.clause("ERR-3")
@pytest.mark.parametrize(("method", "path", "status"), ENDPOINTS)
async def test_every_response_has_an_id(edge: Edge, method: str, path: str, status: int) -> None:
    """Successes and failures of every endpoint carry the caller's id."""
    response = await edge.client.request(method, path, headers={"x-request-id": "mine"})
    assert response.status_code == status
    assert response.headers.get_list("x-request-id") == ["mine"]


@pytest.mark.clause("ERR-3")
async def test_each_request_gets_an_id_of_its_own(edge: Edge) -> None:
    """Two requests on one connection have two ids."""
    first, second = [(await ask(edge)).headers["x-request-id"] for _ in range(2)]
    assert first != second


@pytest.mark.clause("ERR-3")
@pytest.mark.parametrize(
    ("script", "stream", "status", "code", "source"),
    [
        ("hello", True, 200, None, None),
        ("hello", False, 200, None, None),
        ("error_500", True, 502, "upstream_error", "upstream"),
        ("reset_after_2", True, 200, "upstream_disconnected", "upstream"),
        ("reset_after_2", False, 502, "upstream_disconnected", "upstream"),
    ],
)
async def test_the_log_says_what_became_of_a_request(
    edge: Edge,
    records: list[logging.LogRecord],
    script: str,
    stream: bool,
    status: int,
    code: str | None,
    source: str | None,
) -> None:
    """One line a request, with what is needed to look into it; a broken stream is told too."""
    await edge.client.post(
        "/v1/chat/completions",
        json=body(script, stream=stream),
        headers={"x-request-id": "seen"},
    )
    line = await access_line(records)
    assert line["duration_ms"] >= 0
    assert (line["request_id"], line["model"]) == ("seen", f"script:{script}")
    assert (line["method"], line["path"]) == ("POST", "/v1/chat/completions")
    assert (line["provider"], line["status"]) == ("fake", status)
    assert (line.get("error_code"), line.get("error_source")) == (code, source)


@pytest.mark.clause("ERR-3")
async def test_a_request_that_failed_is_in_the_replicas_own_log_too(
    edge: Edge, records: list[logging.LogRecord]
) -> None:
    """A status of 500 and more is a warning with the same fields."""
    await edge.chat("error_500")
    line = await access_line(records)
    (record,) = [record for record in records if record.levelno == logging.WARNING]
    assert vars(record)["request_id"] == line["request_id"]
    assert vars(record)["error_code"] == "upstream_error"


@pytest.mark.parametrize(
    "path", ["/a%0aINFO%20fake", "/a%0d%0ab", "/%1b[31m", "/%00", "/" + "x" * 5000]
)
async def test_a_request_is_one_line_in_the_log(
    edge: Edge, records: list[logging.LogRecord], path: str
) -> None:
    """A caller cannot write lines of its own into the log, nor a terminal's control codes."""
    await edge.get(path)
    await access_line(records)
    (line,) = [record.getMessage() for record in records if record.name == "ray.serve.edge"]
    assert line.isprintable()
    assert len(line) < 500
