"""What an upstream says when it fails, in each shape that real servers use.

`{"error": {"message", "type", "code", …}}` (OpenAI, vLLM, llama.cpp), `{"error": "text"}`
(Lemonade), `{"detail": …}` (vLLM-MLX, FastAPI), `{"object": "error", "message"}` (older vLLM),
plain text.
"""

from __future__ import annotations

from typing import cast

from pydantic_core import from_json, to_json

from serve_app.errors import (
    Code,
    OverloadedError,
    UpstreamError,
    UpstreamRejectedError,
    UpstreamTimeoutError,
    UpstreamUnavailableError,
)
from serve_app.runs import Json

#: Most of an upstream's own words that a caller is shown.
_MESSAGE_CHARS = 1000

#: Words in an upstream's code, type or message → the code that a caller acts on.
_KNOWN = (
    ("context_length_exceeded", Code.CONTEXT_LENGTH_EXCEEDED),
    ("exceed_context_size", Code.CONTEXT_LENGTH_EXCEEDED),
    ("maximum context length", Code.CONTEXT_LENGTH_EXCEEDED),
    ("content_filter", Code.CONTENT_FILTER),
    ("content_policy", Code.CONTENT_FILTER),
)


def error_in(body: Json, *, status: int | None = None) -> UpstreamError | OverloadedError | None:
    """The error that a JSON body reports; `None` where it reports none.

    Args:
        body: A response body, or a chunk of a stream.
        status: The HTTP status; `None` inside a stream that began with 200.
    """
    said = _said(body)
    return None if said is None else failure(said, status=status)


def error_of(raw: bytes, *, status: int) -> UpstreamError | OverloadedError:
    """The error that a failed response reports, whatever its body is."""
    try:
        body = from_json(raw)
    except ValueError:
        body = None
    if isinstance(body, dict):
        found = error_in(cast("Json", body), status=status)
        if found is not None:
            return found
    text = raw.decode(errors="replace").strip()
    return failure({"message": text or "no message"}, status=status)


def failure(said: Json, *, status: int | None) -> UpstreamError | OverloadedError:
    """Our error for what an upstream said.

    A 4xx about the request stays the caller's; 401, 403 and 404 are ours, since the key and the
    model name in the upstream call are the gateway's; anything else is the upstream's.
    """
    words = str(said.get("message") or said.get("type") or "no message")
    message = words if len(words) <= _MESSAGE_CHARS else words[:_MESSAGE_CHARS] + "…"
    hints = " ".join(str(said.get(name) or "") for name in ("code", "type", "message")).lower()
    code = next((code for word, code in _KNOWN if word in hints), None)
    if code is not None:
        return UpstreamRejectedError(f"The upstream refused the request: {message}", code=code)
    shown = f" (HTTP {status})" if status else " inside its stream"
    text = f"The upstream failed{shown}: {message}"
    match status:
        case 400 | 413 | 422:
            refused = f"The upstream refused the request{shown}: {message}"
            return UpstreamRejectedError(refused, status=413 if status == 413 else 400)
        case 401 | 403:
            return UpstreamError(text, code=Code.UPSTREAM_UNAUTHORIZED)
        case 408 | 504:
            return UpstreamTimeoutError(text)
        case 429:
            return OverloadedError(text, code=Code.UPSTREAM_RATE_LIMITED)
        case 503:
            return UpstreamUnavailableError(text)
        case _:
            return UpstreamError(text)


def _said(body: Json) -> Json | None:
    """The part of a body that is about an error."""
    error = body.get("error")
    if isinstance(error, dict):
        return cast("Json", error)
    if error:
        return {"message": error if isinstance(error, str) else to_json(error).decode()}
    if body.get("object") == "error":
        return body
    detail = body.get("detail")
    if detail:
        return {"message": detail if isinstance(detail, str) else to_json(detail).decode()}
    return None
