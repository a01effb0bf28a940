"""Bodies of chat requests for the tests of their shape."""

from __future__ import annotations

from typing import Any

import pytest

from serve_app.errors import Code, InvalidRequestError
from serve_app.runs import Json
from serve_app.wire.chat import ChatRequest, parse_chat
from serve_app.wire.metadata import split_metadata

HELLO: Json = {"role": "user", "content": "hi"}


def body(**fields: Any) -> Json:
    """The smallest good body, with these fields besides or in place of its own."""
    return {"model": "m", "messages": [HELLO]} | fields


def tool(name: str = "f", **function: Any) -> Json:
    """One entry of `tools`."""
    return {"type": "function", "function": {"name": name} | function}


def taken(fields: Json) -> ChatRequest:
    """Check a body as the endpoint does."""
    request = parse_chat(fields)
    split_metadata(request.metadata)
    return request


def refused(fields: Json) -> tuple[str | None, Code]:
    """Field and code for which a body is refused, always as the caller's own fault."""
    with pytest.raises(InvalidRequestError) as caught:
        taken(fields)
    error = caught.value
    assert (error.status, error.error_type) == (400, "invalid_request_error")
    return error.param, error.code
