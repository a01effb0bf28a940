"""The bearer token (clauses AUTH)."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator

import pytest

from tests.fakes.upstream import Upstream
from tests.serve_app.ingress.edge import API_KEY, Edge, RawAnswer, body, running

TOKEN = "sesame-0123456789"
RIGHT = b"Bearer " + TOKEN.encode()


@pytest.fixture
async def closed(upstream: Upstream) -> AsyncGenerator[Edge]:
    """A gateway that asks for the token."""
    async with running(upstream, openai={"bearer_token": TOKEN}) as edge:
        yield edge


async def ask(edge: Edge, *authorization: bytes, path: str = "/v1/models") -> RawAnswer:
    """A request with these `Authorization` headers, exactly as they are."""
    return await edge.get(path, *(b"authorization: " + value for value in authorization))


@pytest.mark.clause("AUTH-2")
@pytest.mark.parametrize("authorization", [(), (b"Bearer anything",), (b"Basic Og==",), (b"", b"")])
async def test_without_a_configured_token_all_are_let_in(
    edge: Edge, authorization: tuple[bytes, ...]
) -> None:
    """An empty `bearer_token` means no authentication, whatever is sent."""
    assert (await ask(edge, *authorization)).status == 200


@pytest.mark.clause("AUTH-1")
@pytest.mark.parametrize(
    "authorization",
    [
        pytest.param(RIGHT, id="as-documented"),
        pytest.param(b"bearer " + TOKEN.encode(), id="lower-case-scheme"),
        pytest.param(b"BEARER " + TOKEN.encode(), id="upper-case-scheme"),
        pytest.param(b"Bearer   " + TOKEN.encode(), id="many-spaces"),
        pytest.param(RIGHT + b"  ", id="trailing-spaces"),
    ],
)
async def test_the_token_lets_in(closed: Edge, authorization: bytes) -> None:
    """The scheme's case and white space around the token do not matter."""
    assert (await ask(closed, authorization)).status == 200


@pytest.mark.clause("AUTH-1")
@pytest.mark.parametrize(
    "authorization",
    [
        pytest.param((), id="missing"),
        pytest.param((b"",), id="empty"),
        pytest.param((b"Bearer",), id="scheme-alone"),
        pytest.param((b"Bearer ",), id="empty-token"),
        pytest.param((TOKEN.encode(),), id="token-alone"),
        pytest.param((b"Basic " + TOKEN.encode(),), id="other-scheme"),
        pytest.param((b"Bearer" + TOKEN.encode(),), id="no-space"),
        pytest.param((b"Bearer " + TOKEN.upper().encode(),), id="other-case"),
        pytest.param((RIGHT[:-1],), id="one-less"),
        pytest.param((RIGHT + b"0",), id="one-more"),
        pytest.param((RIGHT + b", " + RIGHT,), id="twice-in-one"),
        pytest.param((RIGHT, RIGHT), id="two-headers-both-right"),
        pytest.param((b"Bearer no", RIGHT), id="two-headers-one-right"),
        pytest.param((b"Bearer " + "토큰".encode(),), id="not-ascii"),
        pytest.param((b"Bearer \xff\xfe\x80",), id="not-utf-8"),
        pytest.param((b"Bearer " + b"x" * 40_000,), id="long"),
    ],
)
async def test_anything_else_is_shut_out_alike(
    closed: Edge, authorization: tuple[bytes, ...]
) -> None:
    """Every wrong way gets one and the same 401, which tells nothing about the token."""
    response = await ask(closed, *authorization)
    assert response.status == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert response.headers["content-type"] == "application/json"
    assert response.json == {
        "error": {
            "message": "Missing or wrong API key. Send 'Authorization: Bearer <token>'.",
            "type": "authentication_error",
            "param": None,
            "code": "unauthorized",
        }
    }


@pytest.mark.clause("AUTH-1")
async def test_a_token_of_a_megabyte_does_no_harm(closed: Edge) -> None:
    """It is refused, by us or by the server below us, and the next request is served."""
    assert (await ask(closed, b"Bearer " + b"x" * 2**20)).status in {400, 401, 431}
    assert (await ask(closed, RIGHT)).status == 200


@pytest.mark.clause("AUTH-1")
@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_health_paths_are_open(closed: Edge, path: str) -> None:
    """Probes carry no token."""
    assert (await ask(closed, path=path)).status == 200


@pytest.mark.clause("AUTH-1")
@pytest.mark.parametrize(
    "path",
    [
        "/v1/models",
        "/v1/models/m",
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/nowhere",
        "/v1",
        "/",
        "/nowhere",
        "/metrics",
        "/docs",
        "/openapi.json",
        "/healthz/",
        "/healthz/x",
        "//healthz",
        "/HEALTHZ",
        "/v1/models?x=/healthz",
        "/healthz%2f..%2fv1%2fmodels",
        "/healthz;/v1/models",
    ],
)
async def test_no_other_path_is_open(closed: Edge, path: str) -> None:
    """Known or unknown, nothing but the two is told to a caller without the token."""
    assert (await closed.get(path)).status == 401


@pytest.mark.clause("AUTH-1")
@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "PUT", "DELETE", "PATCH", "POST"])
async def test_no_method_is_open(closed: Edge, method: str) -> None:
    """A preflight and a HEAD need the token as well."""
    response = await closed.client.request(method, "/v1/chat/completions")
    assert response.status_code == 401


@pytest.mark.clause("AUTH-1")
async def test_the_token_is_asked_for_before_the_body_is_read(closed: Edge) -> None:
    """Who has no token is told so at once, without having to send a large body first."""
    answer = await closed.raw(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
        b"content-length: 30000000\r\n\r\n{"
    )
    assert answer.status == 401


@pytest.mark.clause("AUTH-3")
@pytest.mark.parametrize("stream", [False, True])
async def test_the_callers_token_never_reaches_the_upstream(
    closed: Edge, upstream: Upstream, stream: bool
) -> None:
    """The upstream gets the provider's own key, and no header of the caller's."""
    extra = {"x-api-key": TOKEN, "cookie": f"token={TOKEN}", "openai-organization": TOKEN}
    response = await closed.client.post(
        "/v1/chat/completions",
        json=body(stream=stream),
        headers=[(b"authorization", RIGHT), *((k.encode(), v.encode()) for k, v in extra.items())],
    )
    assert response.status_code == 200
    received = upstream.requests[0]
    assert received.headers["authorization"] == f"Bearer {API_KEY}"
    assert TOKEN not in repr(received)
    assert not extra.keys() & received.headers.keys()


@pytest.mark.clause("AUTH-3")
async def test_no_token_is_logged_or_shown(
    closed: Edge, upstream: Upstream, records: list[logging.LogRecord]
) -> None:
    """Neither the callers' token nor the provider's key is in a log record or in an answer."""
    closed.client.headers["authorization"] = RIGHT.decode()
    shown: list[str] = []
    for script in ("hello", "error_500", "reset_after_2", "status:401", "nothing-of-that-name"):
        for stream in (False, True):
            response = await closed.chat(script, stream=stream)
            shown.append(f"{response.headers} {response.text}")
    closed.slots.failure = RuntimeError(f"the slot's key is {API_KEY}")
    closed.slots.lose_all()
    closed.gateway.pools["fake"].close()
    shown.append((await closed.chat()).text)
    wrong = await ask(closed, RIGHT + b"x")
    shown.append(f"{wrong.headers} {wrong.body}")
    logged = [f"{record.getMessage()} {vars(record)}" for record in records]
    assert len(logged) >= len(shown)
    assert not [text for text in shown if TOKEN in text or API_KEY in text]
    assert not [text for text in logged if TOKEN in text]
    assert not [text for text in logged if API_KEY in text and "the slot's key" not in text]
