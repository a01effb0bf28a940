"""`metadata`, the same on every endpoint (clauses META)."""

from __future__ import annotations

from typing import cast

from serve_app.errors import Code, InvalidRequestError
from serve_app.wire.body import json_type

MAX_PAIRS = 16
MAX_KEY_CHARS = 64
MAX_VALUE_CHARS = 512

#: The one key that the gateway reads.
WORKSPACE = "workspace"

#: Keys that would be a wrapper of their own for what other fields already say.
REFUSED_KEYS = frozenset({"cli", "inference", "nomadcode", "source"})


def split_metadata(value: object) -> tuple[str | None, dict[str, str]]:
    """Check `metadata` and take the workspace out of it.

    Returns:
        The workspace (`None` if there is none), and the caller's other pairs.

    Raises:
        InvalidRequestError: It is not an object of at most 16 short strings, or it has a
            refused key; `param` names the pair.
    """
    if value is None:
        return None, {}
    if not isinstance(value, dict):
        message = f"Invalid type for 'metadata': expected an object, but got {json_type(value)}."
        raise InvalidRequestError(message, param="metadata", code=Code.INVALID_TYPE)
    pairs = cast("dict[str, object]", value)
    if len(pairs) > MAX_PAIRS:
        message = f"Invalid 'metadata': at most {MAX_PAIRS} pairs are allowed, got {len(pairs)}."
        raise InvalidRequestError(message, param="metadata", code=Code.OBJECT_ABOVE_MAX_PROPERTIES)
    checked = {key: _checked(key, item) for key, item in pairs.items()}
    workspace = checked.pop(WORKSPACE, None)
    return workspace, checked


def _checked(key: str, value: object) -> str:
    """One pair's value, or the reason why the pair is refused."""
    param = f"metadata.{key[:MAX_KEY_CHARS]}"
    if key in REFUSED_KEYS:
        message = f"Unsupported parameter: '{param}' is not accepted."
        raise InvalidRequestError(message, param=param, code=Code.UNSUPPORTED_PARAMETER)
    if len(key) > MAX_KEY_CHARS:
        message = f"Invalid '{param}': a metadata key has at most {MAX_KEY_CHARS} characters."
        raise InvalidRequestError(message, param=param, code=Code.STRING_ABOVE_MAX_LENGTH)
    if not isinstance(value, str):
        got = json_type(value)
        message = f"Invalid type for '{param}': expected a string, but got {got} instead."
        raise InvalidRequestError(message, param=param, code=Code.INVALID_TYPE)
    if len(value) > MAX_VALUE_CHARS:
        message = f"Invalid '{param}': a metadata value has at most {MAX_VALUE_CHARS} characters."
        raise InvalidRequestError(message, param=param, code=Code.STRING_ABOVE_MAX_LENGTH)
    return value
