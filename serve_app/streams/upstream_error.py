"""What an upstream says when it fails, in each shape that real servers use.

`{"error": {"message", "type", "code", …}}` (OpenAI, vLLM, llama.cpp), `{"error": "text"}`
(Lemonade), `{"detail": …}` (vLLM-MLX, FastAPI), `{"object": "error", "message"}` (older vLLM),
plain text.
"""

from __future__ import annotations

from typing import TypeAlias, cast

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

Failure: TypeAlias = UpstreamError | OverloadedError

#: Most of an upstream's own words that a caller is shown.
_MESSAGE_CHARS = 1000
_PARAM_CHARS = 100

#: Words in an upstream's code, type or message → the code that a caller acts on.
_KNOWN = (
    ("context_length_exceeded", Code.CONTEXT_LENGTH_EXCEEDED),
    ("exceed_context_size", Code.CONTEXT_LENGTH_EXCEEDED),
    ("maximum context length", Code.CONTEXT_LENGTH_EXCEEDED),
    ("content_filter", Code.CONTENT_FILTER),
    ("content_policy", Code.CONTENT_FILTER),
    # llama.cpp answers this one with 500, though it is the request that cannot be served.
    ("image input is not supported", Code.UPSTREAM_REJECTED),
    ("audio input is not supported", Code.UPSTREAM_REJECTED),
)

#: An upstream's status → our error, with its code where that is not the class's own. What is not
#: here is the upstream's fault: a 404 too, since the path and the model's name are the gateway's.
_BY_STATUS: dict[int, tuple[type[Failure], Code | None]] = {
    400: (UpstreamRejectedError, None),
    401: (UpstreamError, Code.UPSTREAM_UNAUTHORIZED),
    403: (UpstreamError, Code.UPSTREAM_UNAUTHORIZED),
    408: (UpstreamTimeoutError, None),
    413: (UpstreamRejectedError, None),
    422: (UpstreamRejectedError, None),
    429: (OverloadedError, Code.UPSTREAM_RATE_LIMITED),
    503: (UpstreamUnavailableError, None),
    504: (UpstreamTimeoutError, None),
}


def error_in(body: Json, *, status: int | None = None) -> Failure | None:
    """The error that a JSON body reports; `None` where it reports none.

    Args:
        body: A response body, or a chunk of a stream.
        status: The HTTP status; `None` inside a stream that began with 200.
    """
    said = _said(body)
    return None if said is None else failure(said, status=status)


def error_of(raw: bytes, *, status: int) -> Failure:
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


def failure(said: Json, *, status: int | None) -> Failure:
    """Our error for what an upstream said.

    A 4xx about the request stays the caller's; 401, 403 and 404 are ours, since the key and the
    model name in the upstream call are the gateway's; anything else is the upstream's.
    """
    words = str(said.get("message") or said.get("type") or "no message")
    message = words if len(words) <= _MESSAGE_CHARS else words[:_MESSAGE_CHARS] + "…"
    shown = f" (HTTP {status})" if status else " inside its stream"
    cls, code = _class_of(said, status)
    if issubclass(cls, UpstreamRejectedError):
        too_large = status == 413 and code is None
        return cls(
            f"The upstream refused the request{shown}: {message}",
            param=_param(said.get("param")),
            code=code,
            status=413 if too_large else None,
        )
    if status in {401, 403}:
        # Its words are about the gateway's own key, and some servers repeat the key in them.
        return cls(f"The upstream does not accept the gateway's key{shown}.", code=code)
    return cls(f"The upstream failed{shown}: {message}", code=code)


def _class_of(said: Json, status: int | None) -> tuple[type[Failure], Code | None]:
    """Whose fault it is, and by which code it is known."""
    hints = " ".join(str(said.get(name) or "") for name in ("code", "type", "message")).lower()
    known = next((code for word, code in _KNOWN if word in hints), None)
    if known is not None:
        return UpstreamRejectedError, known
    if status is None:
        # Inside a stream, servers put the status that came too late into the error's code.
        code = said.get("code")
        status = code if isinstance(code, int) else 0
    return _BY_STATUS.get(status, (UpstreamError, None))


def _param(value: object) -> str | None:
    """The field that an upstream blames, by the name that the caller gave it."""
    if not isinstance(value, str) or len(value) > _PARAM_CHARS:
        return None
    return value.removeprefix("body.") or None


def _said(body: Json) -> Json | None:
    """The part of a body that is about an error."""
    error = body.get("error")
    if isinstance(error, dict):
        return cast("Json", error)
    if error:
        return {"message": error if isinstance(error, str) else to_json(error).decode()}
    if body.get("object") == "error":
        return body
    return _detailed(body.get("detail"))


def _detailed(detail: object) -> Json | None:
    """FastAPI's `detail`: text, an object of the server's own, or a list of wrong fields."""
    if not detail:
        return None
    if isinstance(detail, str):
        return {"message": detail}
    if isinstance(detail, dict) and isinstance(cast("Json", detail).get("message"), str):
        said = cast("Json", detail)
        return {"message": said["message"], "code": said.get("error")}
    return {"message": to_json(detail).decode()}
