"""A request's bytes: JSON of the strict kind, an object, not too deep."""

from __future__ import annotations

import json

import pytest
from pydantic import BaseModel, ConfigDict, Field

from serve_app.errors import Code, InvalidRequestError
from serve_app.runs import Json
from serve_app.wire.body import dotted, json_type, parse_object, validate, without_nulls

DEPTH = 100


def refused(raw: bytes) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        parse_object(raw, max_depth=DEPTH)
    assert (caught.value.status, caught.value.error_type) == (400, "invalid_request_error")
    return caught.value


@pytest.mark.clause("ERR-1")
@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b" \n", id="blank"),
        pytest.param(b"{", id="unclosed"),
        pytest.param(b'{"a":1} x', id="trailing-garbage"),
        pytest.param(b'{"a":1}{"a":1}', id="two-objects"),
        pytest.param(b'{"a":1,}', id="trailing-comma"),
        pytest.param(b"{'a':1}", id="single-quotes"),
        pytest.param(b"{a:1}", id="bare-key"),
        pytest.param(b'// x\n{"a":1}', id="comment"),
        pytest.param(b'{"a":NaN}', id="nan"),
        pytest.param(b'{"a":Infinity}', id="infinity"),
        pytest.param(b'{"a":-Infinity}', id="minus-infinity"),
        pytest.param(b'{"a":1e999}', id="exponent-too-large"),
        pytest.param(b'{"a":[{"b":-1E+0400}]}', id="exponent-too-large-deep-inside"),
        pytest.param(b'{"a":1' + b"0" * 400 + b".0}", id="mantissa-too-large"),
        pytest.param(b'{"a":1' + b"0" * 250 + b"e99}", id="mantissa-and-exponent"),
        pytest.param(b'{"a":' + b"9" * 5000 + b"}", id="integer-of-5000-digits"),
        pytest.param(b'{"a":01}', id="leading-zero"),
        pytest.param(b'{"a":+1}', id="plus-sign"),
        pytest.param(b'{"a":.5}', id="no-integer-part"),
        pytest.param(b'{"a":t}', id="half-a-word"),
        pytest.param(b'{"a":"\\ud800"}', id="lone-leading-surrogate"),
        pytest.param(b'{"a":"\\udc00"}', id="lone-trailing-surrogate"),
        pytest.param(b'{"\\ud800x":1}', id="lone-surrogate-in-a-key"),
        pytest.param(b'{"a":"\\ud800\\ud800"}', id="two-leading-surrogates"),
        pytest.param(b'{"a":"\\x"}', id="unknown-escape"),
        pytest.param(b'{"a":"\x00"}', id="raw-nul"),
        pytest.param(b'{"a":"\n"}', id="raw-line-end"),
        pytest.param(b'\x00{"a":1}', id="nul-before"),
        pytest.param(b'{"a":1}\x00', id="nul-after"),
        pytest.param(b'{"a":"\xff"}', id="invalid-utf8"),
        pytest.param(b'{"a":"\xed\xa0\x80"}', id="surrogate-in-utf8"),
        pytest.param(b'{"a":"\xc0\x80"}', id="overlong-utf8"),
        pytest.param('{"a":"한'.encode()[:-1] + b'"}', id="cut-character"),
        pytest.param(b'\xef\xbb\xbf{"a":1}', id="byte-order-mark"),
        pytest.param('{"a":1}'.encode("utf-16"), id="utf-16"),
    ],
)
def test_what_is_not_json_is_refused(raw: bytes) -> None:
    """Every kind of malformed JSON is 400 `invalid_json` about no field."""
    error = refused(raw)
    assert (error.code, error.param) == (Code.INVALID_JSON, None)


@pytest.mark.clause("ERR-1")
@pytest.mark.parametrize("raw", [b"[]", b'"x"', b"1", b"1.5", b"true", b"null"])
def test_what_is_not_an_object_is_refused(raw: bytes) -> None:
    """A body that is JSON but no object is a wrong type, which the message names."""
    error = refused(raw)
    assert error.code is Code.INVALID_TYPE
    assert json_type(json.loads(raw)) in error.message


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        pytest.param(b' \r\n\t{"a": 1}\n', 1, id="white-space-around"),
        pytest.param(b'{"a":"\\u0000"}', "\x00", id="escaped-nul"),
        pytest.param(b'{"a":"\\ud83d\\ude42"}', "🙂", id="escaped-pair"),
        pytest.param('{"a":"한\u2028\u0085"}'.encode(), "한\u2028\u0085", id="unicode"),
        pytest.param(b'{"a":1e308}', 1e308, id="largest-exponent"),
        pytest.param(b'{"a":1e-999}', 0.0, id="too-small-is-zero"),
        pytest.param(b'{"a":"1e999 and ' + b"9" * 300 + b'"}', "1e999 and " + "9" * 300, id="text"),
        pytest.param(b'{"a":' + b"9" * 400 + b"}", int("9" * 400), id="large-integer"),
        pytest.param(b'{"a":1,"a":2}', 2, id="the-last-of-two"),
        pytest.param(b'{"a":null}', None, id="null"),
    ],
)
def test_what_is_json_is_taken_exactly(raw: bytes, value: object) -> None:
    """Text, integers and doubles come through as they were written."""
    assert parse_object(raw, max_depth=DEPTH) == {"a": value}


def nested(depth: int, *, opening: bytes, closing: bytes, core: bytes = b"1") -> bytes:
    """A body that is `depth` levels deep, its own object among them."""
    return b'{"a":' + opening * (depth - 1) + core + closing * (depth - 1) + b"}"


SHAPES = [
    pytest.param(b"[", b"]", id="arrays"),
    pytest.param(b'{"a":', b"}", id="objects"),
    pytest.param(b'[1,"x",', b"]", id="wide-arrays"),
]


@pytest.mark.parametrize(("opening", "closing"), SHAPES)
def test_a_hundred_levels_are_taken(opening: bytes, closing: bytes) -> None:
    """The limit itself is allowed, with an empty array at the bottom too."""
    assert parse_object(nested(DEPTH, opening=opening, closing=closing), max_depth=DEPTH)
    assert parse_object(
        nested(DEPTH - 1, opening=opening, closing=closing, core=b"[]"), max_depth=DEPTH
    )


@pytest.mark.parametrize(("opening", "closing"), SHAPES)
@pytest.mark.parametrize("depth", [101, 150, 199, 250, 100_000])
def test_more_levels_are_refused(opening: bytes, closing: bytes, depth: int) -> None:
    """Too deep is 400 and says the limit, also far beyond what any parser bears."""
    error = refused(nested(depth, opening=opening, closing=closing))
    assert error.code is Code.INVALID_JSON
    assert "more than 100 levels" in error.message


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'{"a":['])
def test_depth_that_never_closes_is_refused(opening: bytes) -> None:
    """A hundred thousand opening brackets and nothing else do no harm."""
    refused(opening * 100_000)


def test_brackets_inside_text_are_no_depth() -> None:
    """Only arrays and objects count, not their signs in a string."""
    assert parse_object(b'{"a":"' + b"[{" * 1000 + b'"}', max_depth=DEPTH)


def test_null_means_absent() -> None:
    """Top-level nulls are left out; false, zero and empty ones are not null."""
    body: Json = {"a": None, "b": False, "c": 0, "d": "", "e": [], "f": {"g": None}}
    assert without_nulls(body) == {"b": False, "c": 0, "d": "", "e": [], "f": {"g": None}}


@pytest.mark.clause("ERR-2")
@pytest.mark.parametrize(
    ("path", "text"),
    [
        ((), ""),
        (("model",), "model"),
        (("messages", 0, "role"), "messages[0].role"),
        (("messages", 12, "content", 3, "text"), "messages[12].content[3].text"),
        (("metadata", "a.b"), "metadata.a.b"),
        (("한글",), "한글"),
    ],
)
def test_a_path_is_written_with_dots_and_brackets(path: tuple[str | int, ...], text: str) -> None:
    """A field's name as callers know it."""
    assert dotted(path) == text


def test_a_path_of_any_length_is_shown_in_part() -> None:
    """A name that the caller made up does not come back at its full length."""
    assert len(dotted(("x" * 1_000_000,))) < 300


class Inner(BaseModel):
    """A part of the shape below."""

    model_config = ConfigDict(strict=True, extra="forbid")

    code: str = Field(default="", pattern="^[a-z]*$")


class Shape(BaseModel):
    """A shape with a closed object inside it."""

    model_config = ConfigDict(strict=True, extra="forbid")

    inner: list[Inner] = []


@pytest.mark.clause("ERR-2")
@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        pytest.param({"x": 1}, "x", Code.UNKNOWN_PARAMETER, id="unknown"),
        pytest.param({"inner": [{"x": 1}]}, "inner[0].x", Code.UNKNOWN_PARAMETER, id="inside"),
        pytest.param({"inner": [1]}, "inner[0]", Code.INVALID_TYPE, id="type"),
        pytest.param({"inner": [{"code": "A"}]}, "inner[0].code", Code.INVALID_VALUE, id="pattern"),
    ],
)
def test_a_fault_of_any_shape_is_told_in_the_callers_terms(
    body: Json, param: str, code: Code
) -> None:
    """Also where a shape finds something that has no words of its own here."""
    with pytest.raises(InvalidRequestError) as caught:
        validate(Shape, body)
    assert (caught.value.param, caught.value.code) == (param, code)
    assert param in caught.value.message
