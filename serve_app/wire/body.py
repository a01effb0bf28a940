"""A request's bytes as one JSON object, and validation errors as the caller should read them.

`pydantic_core`'s parser is used directly: it refuses NaN, lone surrogates and invalid UTF-8,
keeps integers of any size, and is three times as fast as the standard library's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, from_json

from serve_app.errors import Code, InvalidRequestError
from serve_app.runs import Json

_M = TypeVar("_M", bound=BaseModel)

#: Every digit as 0, so that a number which may be too large for a double is found by plain
#: search, at a tenth of what a regular expression would cost on a large body.
_DIGITS_AS_0 = bytes.maketrans(b"123456789E", b"000000000e")
_MANY_DIGITS = b"0" * 200

#: Most that is shown of a field's dotted name.
_PATH_CHARS = 200

_JSON_TYPES: dict[type, str] = {
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    str: "a string",
    list: "an array",
    dict: "an object",
    type(None): "null",
}

#: Error types that a shape of ours raised by itself.
_OUR_CODES = frozenset(code.value for code in Code)

#: pydantic's error type → what was expected there.
_EXPECTED = {
    "string_type": "a string",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "bool_type": "a boolean",
    "list_type": "an array",
    "dict_type": "an object",
    "model_type": "an object",
    "typed_dict_type": "an object",
    "model_attributes_type": "an object",
}

#: pydantic's error type → its limit's name, what to say, and the code for an integer's limit and
#: for a decimal's.
_LIMITS = {
    "greater_than_equal": (
        "ge",
        "expected at least {}",
        Code.INTEGER_BELOW_MIN_VALUE,
        Code.DECIMAL_BELOW_MIN_VALUE,
    ),
    "less_than_equal": (
        "le",
        "expected at most {}",
        Code.INTEGER_ABOVE_MAX_VALUE,
        Code.DECIMAL_ABOVE_MAX_VALUE,
    ),
}

#: pydantic's error type → code and what to say of a length.
_LENGTHS = {
    "too_long": (Code.ARRAY_ABOVE_MAX_LENGTH, "at most {} items are allowed"),
    "too_short": (Code.EMPTY_ARRAY, "the array must not be empty"),
    "string_too_long": (Code.STRING_ABOVE_MAX_LENGTH, "at most {} characters are allowed"),
    "string_too_short": (Code.EMPTY_STRING, "the string must not be empty"),
}


def parse_object(raw: bytes, *, max_depth: int) -> Json:
    """Parse a body that has to be one JSON object.

    Args:
        raw: The body as received.
        max_depth: Deepest nesting of arrays and objects.

    Raises:
        InvalidRequestError: It is not JSON, not an object, or nested too deeply.
    """
    try:
        value = from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        if "recursion limit" in str(error):
            raise _too_deep(max_depth) from None
        message = f"The request body is not valid JSON: {error}."
        raise InvalidRequestError(message, code=Code.INVALID_JSON) from None
    if not isinstance(value, dict):
        message = f"The request body has to be a JSON object, but it is {json_type(value)}."
        raise InvalidRequestError(message, code=Code.INVALID_TYPE)
    body = cast("Json", value)
    if raw.count(b"[") + raw.count(b"{") > max_depth and _deeper_than(body, max_depth):
        raise _too_deep(max_depth)
    if _may_hold_infinity(raw) and _has_infinity(body):
        message = "The request body holds a number that is too large for JSON's double precision."
        raise InvalidRequestError(message, code=Code.INVALID_JSON)
    return body


def without_nulls(body: Json) -> Json:
    """The body less its top-level nulls: for every client, `null` means that it did not say."""
    return {name: value for name, value in body.items() if value is not None}


def json_type(value: object) -> str:
    """Name of a parsed value's JSON type, with its article."""
    return _JSON_TYPES.get(type(value), "a value")


def dotted(path: tuple[str | int, ...]) -> str:
    """Write a path as callers know it: `messages[0].content[1].text`.

    A name may be the caller's own and of any length, so what is shown of the path is bounded.
    """
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text if len(text) <= _PATH_CHARS else text[:_PATH_CHARS] + "…"


def validate(model: type[_M], body: Mapping[str, Any]) -> _M:
    """Validate a body against its shape.

    Raises:
        InvalidRequestError: The first fault, with the field's dotted name as `param`.
    """
    try:
        return model.model_validate(body)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=True)
        raise refusal(details[0], body) from None


def refusal(detail: ErrorDetails, body: Mapping[str, Any]) -> InvalidRequestError:
    """One of pydantic's errors in the caller's terms."""
    kind = detail["type"]
    context = detail.get("ctx", {})
    path = _path_in(body, detail["loc"])
    if kind in {"union_tag_not_found", "union_tag_invalid"}:
        path = (*path, str(context["discriminator"]).strip("'"))
    param = dotted(path)
    if kind in {"missing", "union_tag_not_found"}:
        message = f"Missing required parameter: '{param}'."
        return InvalidRequestError(message, param=param, code=Code.MISSING_REQUIRED_PARAMETER)
    if kind == "extra_forbidden":
        return unknown_parameter(path)
    if kind in _OUR_CODES:
        return InvalidRequestError(detail["msg"], param=param, code=Code(kind))
    if kind in _EXPECTED:
        got = json_type(detail["input"])
        message = f"Invalid type for '{param}': expected {_EXPECTED[kind]}, but got {got} instead."
        return InvalidRequestError(message, param=param, code=Code.INVALID_TYPE)
    code, reason = _out_of_bounds(kind, context, detail)
    return InvalidRequestError(f"Invalid value for '{param}': {reason}.", param=param, code=code)


def unknown_parameter(path: tuple[str | int, ...]) -> InvalidRequestError:
    """The error for a field that the surface does not have."""
    param = dotted(path)
    message = f"Unknown parameter: '{param}'."
    return InvalidRequestError(message, param=param, code=Code.UNKNOWN_PARAMETER)


def _out_of_bounds(kind: str, context: dict[str, Any], detail: ErrorDetails) -> tuple[Code, str]:
    """Code and explanation for a value of the right type that is not accepted."""
    if kind in _LIMITS:
        name, text, integer, decimal = _LIMITS[kind]
        limit = context[name]
        # The limit has the type of the field; a person writes `2`, not `2.0`.
        if isinstance(limit, int):
            return integer, text.format(limit)
        return decimal, text.format(f"{limit:g}")
    if kind in _LENGTHS:
        code, text = _LENGTHS[kind]
        return code, text.format(context.get("max_length"))
    if kind == "literal_error":
        return _not_one_of(detail["input"], context["expected"])
    if kind == "union_tag_invalid":
        fields = cast("Json", detail["input"])
        tag = fields.get(str(context["discriminator"]).strip("'"))
        return _not_one_of(tag, context["expected_tags"])
    return Code.INVALID_VALUE, detail["msg"]


def _not_one_of(value: object, allowed: str) -> tuple[Code, str]:
    """Code and explanation for a value that is none of a few words."""
    code = Code.INVALID_VALUE if isinstance(value, str) else Code.INVALID_TYPE
    return code, f"supported are {allowed}"


def _path_in(body: object, location: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """pydantic's location less the names of union branches, which are no part of the body."""
    path: list[str | int] = []
    here: object = body
    for position, part in enumerate(location):
        last = position == len(location) - 1
        if isinstance(part, int) and isinstance(here, list):
            items = cast("list[object]", here)
            path.append(part)
            here = items[part] if part < len(items) else None
        elif isinstance(part, str) and isinstance(here, Mapping):
            fields = cast("Mapping[str, object]", here)
            if part in fields or last:
                path.append(part)
                here = fields.get(part)
    return tuple(path)


def _too_deep(limit: int) -> InvalidRequestError:
    message = f"The request body is nested more than {limit} levels deep."
    return InvalidRequestError(message, code=Code.INVALID_JSON)


def _deeper_than(value: object, limit: int) -> bool:
    """True where arrays and objects stand more than `limit` levels deep. Level by level."""
    level: list[object] = [value]
    for _ in range(limit):
        level = [
            child for item in level for child in _children(item) if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


def _may_hold_infinity(raw: bytes) -> bool:
    """False where no number can be beyond a double: no three-digit exponent, no 200 digits."""
    flat = raw.translate(_DIGITS_AS_0, b"+")
    return b"0e000" in flat or _MANY_DIGITS in flat


def _has_infinity(value: object) -> bool:
    """True where a number became infinite."""
    stack: list[object] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, float) and math.isinf(item):
            return True
        stack.extend(_children(item))
    return False


def _children(item: object) -> list[object]:
    """Values directly inside an array or object."""
    if isinstance(item, dict):
        return list(cast("dict[str, object]", item).values())
    if isinstance(item, list):
        return cast("list[object]", item)
    return []
