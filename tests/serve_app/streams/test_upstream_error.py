"""What upstreams say when they refuse or fail, and what becomes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from serve_app.errors import (
    Code,
    GatewayError,
    OverloadedError,
    UpstreamError,
    UpstreamRejectedError,
    UpstreamTimeoutError,
    UpstreamUnavailableError,
)
from serve_app.runs import Json
from serve_app.streams.upstream_error import error_in, error_of

FOLDER = Path(__file__).parents[2] / "golden" / "errors"
FILES = {f"{path.parent.name}/{path.stem}": path for path in sorted(FOLDER.glob("*/*.json"))}

REJECTED = (UpstreamRejectedError, 400, Code.UPSTREAM_REJECTED)
TOO_LONG = (UpstreamRejectedError, 400, Code.CONTEXT_LENGTH_EXCEEDED)
FAILED = (UpstreamError, 502, Code.UPSTREAM_ERROR)
KEY = (UpstreamError, 502, Code.UPSTREAM_UNAUTHORIZED)

#: Recording → our class, status and code, the field it blames, and words of its own that stay.
RECORDED: dict[str, tuple[tuple[type[GatewayError], int, Code], str | None, str]] = {
    "llama_server/404": (FAILED, None, "File Not Found"),
    "llama_server/ctx_overflow": (TOO_LONG, None, "exceeds the available context size"),
    "llama_server/embeddings": (FAILED, None, "does not support embeddings"),
    "llama_server/image_content": (REJECTED, None, "image input is not supported"),
    "llama_server/noauth": (KEY, None, "Invalid API Key"),
    "llama_server/tool_choice_bogus": (REJECTED, None, "Invalid tool_choice: bogus"),
    "llama_server/tools_without_jinja": (FAILED, None, "tools param requires --jinja flag"),
    "vllm/404": (FAILED, None, "Not Found"),
    "vllm/ctx_overflow_prompt": (TOO_LONG, "input_tokens", "maximum context length is 2048"),
    "vllm/max_tokens_huge": (REJECTED, "max_tokens", "cannot be greater than max_model_len"),
    "vllm/reasoning_effort_bad": (REJECTED, "reasoning_effort", "literal_error"),
    "vllm/temp_neg": (REJECTED, "temperature", "temperature must be non-negative"),
    "vllm/temp_str": (REJECTED, "temperature", "float_parsing"),
    "vllm/tools_auto": (REJECTED, None, "requires --enable-auto-tool-choice"),
    "vllm/tools_object": (REJECTED, None, "requires --tool-call-parser"),
    "vllm/wrong_model": (FAILED, None, "The model `nope` does not exist"),
    "vllm_mlx/bare_500": (FAILED, None, "Internal Server Error"),
    "vllm_mlx/busy": (
        (UpstreamUnavailableError, 503, Code.UPSTREAM_UNAVAILABLE),
        None,
        "SimpleEngine serialized route is busy",
    ),
    "vllm_mlx/max_tokens_huge": (REJECTED, None, "max_tokens exceeds server limit"),
    "vllm_mlx/noauth": (KEY, None, "API key required"),
    "vllm_mlx/response_format_bad": (REJECTED, None, "Failed to extract valid JSON"),
    "vllm_mlx/stop_string": (REJECTED, None, "Input should be a valid list"),
    "vllm_mlx/wrong_model": (FAILED, None, "The model `nope` does not exist"),
    "xllamacpp/enable_thinking_str": (REJECTED, None, "expected boolean, got string"),
    "xllamacpp/no_messages": (REJECTED, None, "'messages' is required"),
}


#: Statuses about the gateway's own key: some servers repeat the key in their words.
SECRET = {401, 403}


def test_every_recording_is_under_test() -> None:
    """A new recording needs its line above."""
    assert set(FILES) == set(RECORDED)


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_failure_becomes_ours(name: str) -> None:
    """Whose fault it is, by class, status and code; the server's own words stay."""
    said = json.loads(FILES[name].read_text(encoding="utf-8"))
    body = said["body"]
    raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    error = error_of(raw, status=said["status"])
    expected, param, words = RECORDED[name]
    assert (type(error), error.status, error.code) == expected
    kept = said["status"] not in SECRET
    assert (error.param, words in error.message) == (param, kept)
    assert f"HTTP {said['status']}" in error.message


BY_STATUS: dict[int, tuple[type[GatewayError], int, Code]] = {
    400: REJECTED,
    401: KEY,
    403: KEY,
    404: FAILED,
    405: FAILED,
    408: (UpstreamTimeoutError, 504, Code.UPSTREAM_TIMEOUT),
    409: FAILED,
    413: (UpstreamRejectedError, 413, Code.UPSTREAM_REJECTED),
    422: REJECTED,
    429: (OverloadedError, 429, Code.UPSTREAM_RATE_LIMITED),
    500: FAILED,
    501: FAILED,
    502: FAILED,
    503: (UpstreamUnavailableError, 503, Code.UPSTREAM_UNAVAILABLE),
    504: (UpstreamTimeoutError, 504, Code.UPSTREAM_TIMEOUT),
    599: FAILED,
    204: FAILED,
    302: FAILED,
}
BODIES: dict[str, bytes] = {
    "openai": b'{"error":{"message":"boom","type":"x","param":null,"code":null}}',
    "text-in-error": b'{"error":"boom"}',
    "detail": b'{"detail":"boom"}',
    "detail-list": b'{"detail":[{"loc":["body","x"],"msg":"boom"}]}',
    "detail-object": b'{"detail":{"error":"x","message":"boom"}}',
    "detail-object-without-message": b'{"detail":{"error":"boom"}}',
    "object-error": b'{"object":"error","message":"boom"}',
    "plain-text": b" boom \n",
    "html": b"<html><h1>boom</h1></html>",
    "json-array": b'["boom"]',
    "not-utf8": b"boom \xff",
}


@pytest.mark.parametrize("raw", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("status", BY_STATUS)
def test_each_status_with_each_kind_of_body(status: int, raw: bytes) -> None:
    """The status decides, and what the body says is shown, unless it is about our key."""
    error = error_of(raw, status=status)
    assert (type(error), error.status, error.code) == BY_STATUS[status]
    assert ("boom" in error.message) is (status not in SECRET)


@pytest.mark.parametrize("status", BY_STATUS)
@pytest.mark.parametrize("raw", [b"", b"{}", b"null", b'{"error":null}', b'{"error":{}}'])
def test_a_failure_without_words_is_still_one(status: int, raw: bytes) -> None:
    """An empty body changes nothing about whose fault it is."""
    error = error_of(raw, status=status)
    assert (type(error), error.status, error.code) == BY_STATUS[status]
    assert error.message


KNOWN: dict[str, tuple[Json, Code]] = {
    "context-by-code": ({"code": "context_length_exceeded"}, Code.CONTEXT_LENGTH_EXCEEDED),
    "context-by-type": ({"type": "exceed_context_size_error"}, Code.CONTEXT_LENGTH_EXCEEDED),
    "context-by-message": (
        {"message": "This model's MAXIMUM CONTEXT LENGTH is 8 tokens"},
        Code.CONTEXT_LENGTH_EXCEEDED,
    ),
    "filter-by-code": ({"code": "content_filter"}, Code.CONTENT_FILTER),
    "filter-by-type": ({"type": "content_policy_violation"}, Code.CONTENT_FILTER),
}


@pytest.mark.parametrize("status", [400, 413, 422, 429, 500, 503, None])
@pytest.mark.parametrize(("said", "code"), KNOWN.values(), ids=KNOWN)
def test_what_callers_act_on_keeps_its_code(said: Json, code: Code, status: int | None) -> None:
    """Whoever says it and with which status: 400, and never worth a try elsewhere."""
    error = error_in({"error": said}, status=status)
    assert isinstance(error, UpstreamRejectedError)
    assert (error.status, error.code) == (400, code)


@pytest.mark.parametrize("length", [1001, 2**20])
@pytest.mark.parametrize("status", [400, 429, 500, None])
def test_a_message_is_bounded(length: int, status: int | None) -> None:
    """No more than a thousand characters of an upstream's words are shown."""
    error = error_in({"error": {"message": "한" * length}}, status=status)
    assert error is not None
    assert 1000 < len(error.message) < 1100


@pytest.mark.parametrize(
    ("param", "shown"),
    [
        ("temperature", "temperature"),
        ("body.tools.0", "tools.0"),
        (None, None),
        ("", None),
        (5, None),
        (["a"], None),
        ("x" * 101, None),
    ],
)
def test_the_field_that_an_upstream_blames_is_named(param: Any, shown: str | None) -> None:
    """Where it is a field's name at all."""
    error = error_in({"error": {"message": "no", "param": param}}, status=400)
    assert error is not None
    assert error.param == shown


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"error": None},
        {"error": ""},
        {"error": False},
        {"detail": None},
        {"detail": []},
        {"object": "chat.completion.chunk", "choices": []},
        {"choices": [], "error": None},
    ],
)
def test_what_reports_no_error_is_none(body: Json) -> None:
    """A key that is there and empty is no error."""
    assert error_in(body) is None
