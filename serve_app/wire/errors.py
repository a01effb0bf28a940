"""The error envelope: `{"error": {"message", "type", "param", "code"}}`, all four keys always."""

from __future__ import annotations

from pydantic_core import to_json

from serve_app.errors import GatewayError


def envelope(error: GatewayError) -> bytes:
    """The JSON body of a failed request."""
    return to_json(
        {
            "error": {
                "message": error.message,
                "type": error.error_type,
                "param": error.param,
                "code": error.code.value,
            }
        }
    )
