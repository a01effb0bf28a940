"""Streams that break, fail or are cut off."""

from __future__ import annotations

import json

import pytest

from serve_app.errors import Code, GatewayError, UpstreamError, UpstreamProtocolError
from serve_app.runs import Json
from serve_app.streams.chat_decode import ChatDecoder
from serve_app.streams.sse import DONE
from tests.fakes.sse import chunk, finish, role, usage
from tests.serve_app.streams.feeding import called, decoded, piece

BROKEN: dict[str, Json | bytes] = {
    "not-json": b'{"choices":[{"delta":',
    "plain-text": b"hello",
    "invalid-utf8": b'{"choices":[{"delta":{"content":"\xff"}}]}',
    "lone-surrogate": b'{"choices":[{"delta":{"content":"\\ud83d"}}]}',
    "array": b"[]",
    "text": b'"x"',
    "choices-text": {"choices": "x"},
    "choices-object": {"choices": {}},
    "choices-of-numbers": {"choices": [1]},
    "choices-of-null": {"choices": [None]},
    "delta-text": {"choices": [{"delta": "x"}]},
    "delta-array": {"choices": [{"delta": ["x"]}]},
    "content-number": chunk(delta={"content": 5}),
    "content-parts": chunk(delta={"content": [{"type": "text", "text": "x"}]}),
    "reasoning-object": chunk(delta={"reasoning": {"text": "x"}}),
    "tool-calls-object": chunk(delta={"tool_calls": {"index": 0}}),
    "tool-call-text": called("f"),
    "function-text": called({"index": 0, "function": "f"}),
    "name-number": called({"index": 0, "function": {"name": 1}}),
    "id-number": called({"index": 0, "id": 1}),
}


@pytest.mark.parametrize("item", BROKEN.values(), ids=BROKEN)
def test_a_broken_chunk_is_an_error(item: Json | bytes) -> None:
    """Never skipped, whatever good chunks follow; the message shows only its beginning."""
    with pytest.raises(UpstreamProtocolError) as caught:
        decoded(chunk("a"), item, chunk("b"), finish(), DONE)
    assert caught.value.code is Code.UPSTREAM_PROTOCOL_ERROR


def test_a_broken_chunk_is_shown_in_part() -> None:
    """A megabyte of garbage does not end up in an error message."""
    with pytest.raises(UpstreamProtocolError) as caught:
        decoded(b"x" * 2**20)
    assert len(caught.value.message) < 400


@pytest.mark.parametrize(
    "late",
    [
        pytest.param(chunk("b"), id="text"),
        pytest.param(chunk(delta={"reasoning": "r"}), id="reasoning"),
        pytest.param(called(piece("{}", index=0, name="f")), id="tool-call"),
    ],
)
def test_what_goes_on_after_the_finish_reason_is_an_error(late: Json) -> None:
    """A caller has been told the reason; more of an answer contradicts it."""
    with pytest.raises(UpstreamProtocolError):
        decoded(chunk("a"), finish(), late)


FAILURES: dict[str, tuple[Json, int, Code]] = {
    "openai": (
        {"error": {"message": "boom", "type": "server_error", "code": None}},
        502,
        Code.UPSTREAM_ERROR,
    ),
    "code-500": ({"error": {"message": "boom", "code": 500}}, 502, Code.UPSTREAM_ERROR),
    "code-503": ({"error": {"message": "boom", "code": 503}}, 503, Code.UPSTREAM_UNAVAILABLE),
    "code-429": ({"error": {"message": "boom", "code": 429}}, 429, Code.UPSTREAM_RATE_LIMITED),
    "code-400": ({"error": {"message": "boom", "code": 400}}, 400, Code.UPSTREAM_REJECTED),
    "text": ({"error": "boom"}, 502, Code.UPSTREAM_ERROR),
    "list": ({"error": ["boom"]}, 502, Code.UPSTREAM_ERROR),
    "beside-choices": (chunk("a", error={"message": "boom"}), 502, Code.UPSTREAM_ERROR),
    "detail": ({"detail": "boom"}, 502, Code.UPSTREAM_ERROR),
    "detail-object": ({"detail": {"error": "busy", "message": "boom"}}, 502, Code.UPSTREAM_ERROR),
    "object-error": ({"object": "error", "message": "boom"}, 502, Code.UPSTREAM_ERROR),
    "context-length": (
        {"error": {"message": "boom", "code": "context_length_exceeded"}},
        400,
        Code.CONTEXT_LENGTH_EXCEEDED,
    ),
}


@pytest.mark.parametrize(("item", "status", "code"), FAILURES.values(), ids=FAILURES)
def test_an_error_inside_a_stream_is_an_error(item: Json, status: int, code: Code) -> None:
    """In each shape there is, with the status that it would have had."""
    with pytest.raises(GatewayError, match="boom") as caught:
        decoded(role(), chunk("a"), item, DONE)
    assert (caught.value.status, caught.value.code) == (status, code)


@pytest.mark.parametrize(
    "items",
    [
        pytest.param([], id="nothing"),
        pytest.param([DONE], id="only-done"),
        pytest.param([role(), chunk("a")], id="no-finish"),
        pytest.param([role(), chunk("a"), DONE], id="done-without-finish"),
        pytest.param([role(), chunk("a"), usage()], id="usage-without-finish"),
        pytest.param([{}, {"type": "ping"}], id="chunks-that-say-nothing"),
    ],
)
def test_a_stream_without_a_finish_reason_is_cut_off(items: list[Json | bytes]) -> None:
    """It is broken however cleanly it ends."""
    with pytest.raises(UpstreamProtocolError) as caught:
        decoded(*items)
    assert caught.value.code is Code.UPSTREAM_DISCONNECTED


@pytest.mark.parametrize(
    ("item", "words"),
    [({"message": "boom"}, "boom"), ({"surprise": 1}, "no 'choices'")],
    ids=["bare message", "no chat chunk"],
)
def test_a_frame_that_is_no_chunk_is_not_skipped(item: Json, words: str) -> None:
    """A frame without an answer in it is a failure with its words, also after the finish."""
    for before in ([role(), chunk("a")], [role(), chunk("a"), finish()]):
        decoder = ChatDecoder()
        for data in before:
            decoder.feed(json.dumps(data).encode())
        with pytest.raises(UpstreamError, match=words):
            decoder.feed(json.dumps(item).encode())
