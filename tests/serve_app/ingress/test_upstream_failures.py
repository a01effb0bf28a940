"""What becomes of an upstream's failure: a status before the first event, an error event after."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import pytest

from tests.fakes.answers import SCRIPTS, Script, paced, stream
from tests.fakes.sse import DONE, chunk, finish, role
from tests.fakes.upstream import Hang, Pause, Send, Upstream, reply, text
from tests.serve_app.ingress.edge import Edge, Json, running

QUICK = {"first_token_s": 0.4, "idle_s": 0.8, "connect_s": 1, "slot_s": 0.3}

#: Script → status and code for whoever has got nothing yet, and how often it is tried.
BEFORE: list[tuple[str, int, str, int]] = [
    ("hang_before_headers", 504, "upstream_timeout", 1),
    ("hang_after_headers", 504, "upstream_timeout", 1),
    ("reset_before_headers", 502, "upstream_disconnected", 2),
    ("close_before_headers", 502, "upstream_disconnected", 2),
    ("reset_after_headers", 502, "upstream_disconnected", 2),
    ("empty", 502, "upstream_disconnected", 2),
    ("not_json", 502, "upstream_error", 1),
    ("error_in_stream", 502, "upstream_error", 1),
    ("error_429", 429, "upstream_rate_limited", 1),
    ("error_500", 502, "upstream_error", 1),
    ("error_503", 503, "upstream_unavailable", 2),
    ("error_text", 502, "upstream_error", 1),
    ("status:400", 400, "upstream_rejected", 1),
    ("status:401", 502, "upstream_unauthorized", 1),
    ("status:403", 502, "upstream_unauthorized", 1),
    ("status:404", 502, "upstream_error", 1),
    ("status:408", 504, "upstream_timeout", 1),
    ("status:413", 413, "upstream_rejected", 1),
    ("status:422", 400, "upstream_rejected", 1),
    ("status:418", 502, "upstream_error", 1),
    ("status:302", 502, "upstream_error", 1),
    ("status:201", 502, "upstream_error", 1),
    ("status:502", 502, "upstream_error", 1),
    ("status:504", 504, "upstream_timeout", 1),
    ("status:599", 502, "upstream_error", 1),
]

#: Script that sends some text first → what its stream ends with.
AFTER = [
    ("reset_after_2", "upstream_disconnected"),
    ("close_after_2", "upstream_disconnected"),
    ("end_after_2", "upstream_disconnected"),
    ("no_finish", "upstream_disconnected"),
    ("broken_chunk_header", "upstream_disconnected"),
    ("bad_json", "upstream_protocol_error"),
    ("hang_after_2", "upstream_timeout"),
    ("stall_after_20", "upstream_timeout"),
    ("error_after_text", "upstream_error"),
    ("broken_chunk_end", "upstream_disconnected"),
    ("huge_chunk_header", "upstream_disconnected"),
]

GOOD = text(*(f"w{number} " for number in range(40)))

#: Answers of which the fake has none by itself.
ODD: dict[str, Script] = {
    "stall_after_20": (*GOOD[:21], Hang()),
    "error_after_text": stream([role(), chunk("a"), {"error": {"message": "boom"}}]),
    "broken_chunk_header": (*GOOD[:5], Pause(0.05), Send(b"zz\r\n"), Hang()),
    "broken_chunk_end": (*GOOD[:5], Pause(0.05), Send(b"5\r\nabcdefghij"), Hang()),
    "huge_chunk_header": (*GOOD[:5], Pause(0.05), Send(b"f" * 100_000), Hang()),
}

BOTH = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "stream"])


@pytest.fixture
async def quick(upstream: Upstream) -> AsyncGenerator[Edge]:
    """A gateway that does not wait long."""
    upstream.named |= ODD
    async with running(upstream, openai={"timeouts": QUICK}) as edge:
        yield edge


def error_of(response: httpx.Response) -> Json:
    """The envelope of a failed response."""
    assert response.headers["content-type"] == "application/json"
    error: Json = response.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    return error


def last_event(response: httpx.Response) -> Json:
    """The error event that a broken stream ends with."""
    assert response.status_code == 200
    assert response.content.endswith(b"}\n\n")
    assert DONE not in response.content
    last = response.content.split(b"\n\n")[-2]
    error: Json = json.loads(last.removeprefix(b"data: "))["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    return error


async def gather(edge: Edge, scripts: list[str]) -> list[httpx.Response]:
    """All of these at once."""
    asking = [edge.chat(script, stream=bool(at % 2)) for at, script in enumerate(scripts)]
    return await asyncio.gather(*asking)


@pytest.mark.clause("ERR-1")
@BOTH
@pytest.mark.parametrize(("script", "status", "code", "tries"), BEFORE)
async def test_a_failure_before_the_first_event_is_a_status(
    quick: Edge,
    upstream: Upstream,
    script: str,
    status: int,
    code: str,
    tries: int,
    streamed: bool,
) -> None:
    """JSON with status and code, whether the caller streams or not; the provider is named."""
    began = time.monotonic()
    response = await quick.chat(script, stream=streamed)
    error = error_of(response)
    assert (response.status_code, error["code"]) == (status, code)
    assert "'fake'" in error["message"]
    assert response.headers["x-iop-provider"] == "fake"
    assert response.headers["x-iop-source"] in {"upstream", "gateway"}
    assert len(upstream.requests) == tries
    assert time.monotonic() - began < 3
    assert quick.quiet


@pytest.mark.clause("ERR-1")
@BOTH
@pytest.mark.parametrize(("script", "code"), AFTER)
async def test_a_failure_in_the_middle(
    quick: Edge, upstream: Upstream, script: str, code: str, streamed: bool
) -> None:
    """Who streams gets the text so far, an error event and no `[DONE]`; who does not, a status."""
    began = time.monotonic()
    response = await quick.chat(script, stream=streamed)
    error = last_event(response) if streamed else error_of(response)
    assert error["code"] == code
    assert error["type"] == "upstream_error"
    assert "'fake'" in error["message"]
    if streamed:
        assert b'"content":' in response.content.split(b"\n\n")[1]
    else:
        assert response.status_code == (504 if code == "upstream_timeout" else 502)
    assert time.monotonic() - began < 3
    assert len(upstream.requests) == 1
    assert quick.quiet


@pytest.mark.clause("ERR-1")
@BOTH
async def test_a_refused_connection(upstream: Upstream, streamed: bool) -> None:
    """502 after two attempts, a little apart."""
    async with running(upstream, openai={"timeouts": QUICK}) as edge:
        upstream.stop()
        began = time.monotonic()
        response = await edge.chat(stream=streamed)
        took_s = time.monotonic() - began
    assert (response.status_code, error_of(response)["code"]) == (502, "upstream_unavailable")
    assert 0.1 <= took_s < 2
    assert edge.slots.asked == 2


@BOTH
@pytest.mark.parametrize("script", ["reset_before_headers", "reset_after_headers", "error_503"])
async def test_one_failure_before_the_first_event_is_made_good(
    quick: Edge, upstream: Upstream, script: str, streamed: bool
) -> None:
    """A server that was just restarted answers the second attempt, on a new slot."""
    upstream.script = [SCRIPTS[script]]
    response = await quick.chat(model="m", stream=streamed)
    assert response.status_code == 200
    assert b"llo" in response.content
    first, second = upstream.requests
    assert second.arrived_s - first.arrived_s >= 0.1
    assert first.json == second.json
    assert quick.slots.asked == 2


@pytest.mark.clause("ERR-1")
@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (400, {"error": {"message": "m", "code": "context_length_exceeded"}}, None),
        (400, {"error": {"message": "m", "type": "exceed_context_size_error"}}, None),
        (400, {"object": "error", "message": "the maximum context length is 5"}, None),
        (500, {"error": {"message": "m", "code": "context_length_exceeded"}}, None),
        (400, {"error": {"message": "m", "code": "content_filter"}}, "content_filter"),
        (400, {"detail": "no such field"}, "upstream_rejected"),
        (422, {"detail": [{"loc": ["body"], "msg": "m"}]}, "upstream_rejected"),
        (400, {"error": "just text"}, "upstream_rejected"),
        (400, "plain text", "upstream_rejected"),
        (400, "", "upstream_rejected"),
        (400, b"\xff\xfe\x00", "upstream_rejected"),
        (400, "[1, 2]", "upstream_rejected"),
        (400, "null", "upstream_rejected"),
        (400, {"error": {"message": "x" * 200_000}}, "upstream_rejected"),
        (400, {"error": {"message": None, "code": 7}}, "upstream_rejected"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_a_refusal_of_the_request_is_the_callers(
    quick: Edge, status: int, body: object, code: str | None, upstream: Upstream
) -> None:
    """400 with the code a caller can act on, whatever the body's shape; never a novel."""
    upstream.default = reply(status, body)
    response = await quick.chat(model="m")
    error = error_of(response)
    assert response.status_code == 400
    assert error["code"] == (code or "context_length_exceeded")
    assert error["type"] == "invalid_request_error"
    assert 0 < len(error["message"]) < 1200
    assert response.headers["x-iop-source"] == "upstream"
    assert len(upstream.requests) == 1


@pytest.mark.parametrize(
    ("status", "said", "told"),
    [
        (429, "7", "7"),
        (429, " 7 ", "7"),
        (429, "0", "1"),
        (429, "999999", "60"),
        (429, "9" * 400, "60"),
        (429, "1.5", "1"),
        (429, "-3", "1"),
        (429, "soon", "1"),
        (429, "", "1"),
        (429, "Mon, 01 Jan 2001 00:00:00 GMT", "1"),
        (429, "Fri, 31 Dec 9999 23:59:59 GMT", "60"),
        (429, "Mon, 99 Jan 2001 99:00:00 GMT", "1"),
        (429, "٣", "1"),
        (503, "7", "7"),
        (503, "", "1"),
    ],
)
async def test_the_upstreams_wait_is_passed_on(
    quick: Edge, upstream: Upstream, status: int, said: str, told: str
) -> None:
    """`retry-after` in seconds or as a date, at most a minute; garbage counts as nothing."""
    headers = {"retry-after": said.encode().decode("latin-1")} if said else {}
    upstream.default = reply(status, {"error": {"message": "slow down"}}, headers)
    response = await quick.chat(model="m")
    assert response.status_code == status
    assert response.headers["retry-after"] == told


async def test_the_upstreams_wait_as_a_date(quick: Edge, upstream: Upstream) -> None:
    """A date is told in seconds from now."""
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    upstream.default = reply(429, {"error": {"message": "m"}}, {"retry-after": date})
    response = await quick.chat(model="m")
    assert 25 <= int(response.headers["retry-after"]) <= 30


@BOTH
async def test_all_slots_busy(quick: Edge, upstream: Upstream, streamed: bool) -> None:
    """429 with a wait once none became free in time; nothing has reached the upstream."""
    quick.slots.count = 0
    response = await quick.chat(stream=streamed)
    assert (response.status_code, error_of(response)["code"]) == (429, "overloaded")
    assert error_of(response)["type"] == "rate_limit_error"
    assert int(response.headers["retry-after"]) >= 1
    assert upstream.requests == []
    quick.slots.count = 1
    assert (await quick.chat(stream=streamed)).status_code == 200


async def test_a_wait_for_a_slot_ends_when_one_is_free(upstream: Upstream) -> None:
    """Who waits is served as soon as another is done, by the slot that the other had."""
    async with running(upstream, slots=1) as edge:
        answers = await gather(edge, ["paced:3:20"] * 6)
        assert [answer.status_code for answer in answers] == [200] * 6
        assert len(edge.slots.held) == 1


@BOTH
async def test_silence_is_counted_from_piece_to_piece(
    quick: Edge, upstream: Upstream, streamed: bool
) -> None:
    """An answer may take longer than the limits, while pieces or comments keep coming."""
    pause_s = 0.1
    ping = b": ping\n\n"
    upstream.default = stream(
        [role(), chunk("a"), *[ping] * 4, chunk("b"), *[ping] * 4, finish(), DONE], pause_s=pause_s
    )
    began = time.monotonic()
    response = await quick.chat(model="m", stream=streamed)
    assert time.monotonic() - began > QUICK["idle_s"]
    assert response.status_code == 200
    assert b"error" not in response.content


@BOTH
async def test_comments_are_no_first_event(quick: Edge, upstream: Upstream, streamed: bool) -> None:
    """A server that only says that it is alive has `first_token_s` for its first event."""
    upstream.default = stream([b": ping\n\n"] * 40, pause_s=0.1)
    response = await quick.chat(model="m", stream=streamed)
    assert (response.status_code, error_of(response)["code"]) == (504, "upstream_timeout")


@BOTH
async def test_a_whole_answer_has_a_limit(upstream: Upstream, streamed: bool) -> None:
    """`total_s` ends an answer that would go on for ever, though it is never silent."""
    upstream.default = paced(200, 0.05)
    async with running(upstream, openai={"timeouts": {"total_s": 0.5}}) as edge:
        response = await edge.chat(model="m", stream=streamed)
        error = last_event(response) if streamed else error_of(response)
        assert error["code"] == "upstream_timeout"
        await upstream.until(lambda u: u.active == 0)
        assert edge.quiet


@BOTH
async def test_no_limits_at_all(upstream: Upstream, streamed: bool) -> None:
    """0 switches a time limit off."""
    upstream.default = paced(5, 0.1)
    limits = {"first_token_s": 0, "idle_s": 0, "total_s": 0}
    async with running(upstream, openai={"timeouts": limits}) as edge:
        assert (await edge.chat(model="m", stream=streamed)).status_code == 200


@BOTH
async def test_an_answer_that_ends_but_does_not_close(
    quick: Edge, upstream: Upstream, streamed: bool
) -> None:
    """After its finish reason an answer is whole, though neither `[DONE]` nor an end comes."""
    upstream.default = (*stream([role(), chunk("Hello"), finish()])[:-1], Hang())
    response = await quick.chat(model="m", stream=streamed)
    assert response.status_code == 200
    assert b"Hello" in response.content
    assert b"error" not in response.content
    await upstream.until(lambda u: u.active == 0)


@BOTH
async def test_done_without_an_end_is_not_waited_for(upstream: Upstream, streamed: bool) -> None:
    """After `[DONE]` the caller has its answer at once, whatever the connection does."""
    upstream.default = (*text("Hello")[:-1], Hang())
    async with running(upstream) as edge:
        began = time.monotonic()
        response = await edge.chat(model="m", stream=streamed)
        assert time.monotonic() - began < 1
        assert response.status_code == 200
        await upstream.until(lambda u: u.active == 0)


async def test_what_an_upstream_does_to_one_is_not_felt_by_another(upstream: Upstream) -> None:
    """Good answers go on beside failures of every kind."""
    upstream.named |= ODD
    bad = [name for name, *_ in BEFORE] + [name for name, *_ in AFTER]
    limits = {"first_token_s": 2, "idle_s": 2}
    async with running(upstream, openai={"timeouts": limits}) as edge:
        answers = await gather(edge, bad + ["hello"] * len(bad))
        assert [answer.status_code for answer in answers[len(bad) :]] == [200] * len(bad)
        assert edge.quiet
        await upstream.until(lambda u: u.active == 0)


@BOTH
async def test_a_slot_whose_answer_broke_is_not_used_again(
    quick: Edge, upstream: Upstream, streamed: bool
) -> None:
    """Its server may be gone: the next request asks for a slot, so that the replica looks."""
    await quick.chat("reset_after_2", stream=streamed)
    assert (await quick.chat(stream=streamed)).status_code == 200
    assert quick.slots.asked == 2
    assert (await quick.chat(stream=streamed)).status_code == 200
    assert quick.slots.asked == 2
