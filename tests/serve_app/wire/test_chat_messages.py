"""Messages of a chat request: roles, content parts, past tool calls."""

from __future__ import annotations

import time
from typing import Any

import pytest

from serve_app.errors import Code
from serve_app.runs import Json
from tests.serve_app.wire.chat_bodies import HELLO, body, refused, taken

TEXT: Json = {"type": "text", "text": "hi"}
CALL: Json = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
NOTHING: Json = {}
MISSING = Code.MISSING_REQUIRED_PARAMETER


@pytest.mark.parametrize(
    "message",
    [
        pytest.param({"role": "system", "content": "be brief"}, id="system"),
        pytest.param({"role": "developer", "content": [TEXT]}, id="developer"),
        pytest.param({"role": "user", "content": ""}, id="empty-text"),
        pytest.param({"role": "user", "content": [TEXT, TEXT]}, id="parts"),
        pytest.param({"role": "user", "content": "x", "name": "ann"}, id="name"),
        pytest.param({"role": "user", "content": "x", "cache_control": {"a": None}}, id="foreign"),
        pytest.param(
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]},
            id="image",
        ),
        pytest.param(
            {
                "role": "user",
                "content": [
                    {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
                    {"type": "file", "file": {"file_id": "file-1"}},
                ],
            },
            id="audio-and-file",
        ),
        pytest.param({"role": "assistant", "content": "x"}, id="assistant"),
        pytest.param({"role": "assistant", "content": None, "tool_calls": [CALL]}, id="null"),
        pytest.param({"role": "assistant", "tool_calls": [CALL]}, id="calls-without-content"),
        pytest.param({"role": "assistant", "content": "x", "tool_calls": None}, id="null-calls"),
        pytest.param({"role": "assistant", "content": "x", "tool_calls": []}, id="no-calls"),
        pytest.param(
            {"role": "assistant", "tool_calls": [{k: CALL[k] for k in ("id", "function")}]},
            id="call-without-type",
        ),
        pytest.param({"role": "assistant", "tool_calls": [CALL | {"type": None}]}, id="null-type"),
        pytest.param(
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}, id="refusal"
        ),
        pytest.param(
            {"role": "assistant", "content": "x", "reasoning_content": "y", "audio": None},
            id="foreign-fields-of-an-assistant",
        ),
        pytest.param({"role": "tool", "tool_call_id": "c1", "content": "sunny"}, id="tool"),
        pytest.param({"role": "tool", "tool_call_id": "c1", "content": [TEXT]}, id="tool-parts"),
    ],
)
def test_a_message_comes_through_as_it_is(message: Json) -> None:
    """Every role and form of content is taken, and fields we do not read are left in."""
    assert taken(body(messages=[HELLO, message])).messages == [HELLO, message]


@pytest.mark.clause("ERR-2")
@pytest.mark.parametrize(
    ("message", "place", "code"),
    [
        pytest.param(1, "", Code.INVALID_TYPE, id="number"),
        pytest.param("hi", "", Code.INVALID_TYPE, id="text"),
        pytest.param(None, "", Code.INVALID_TYPE, id="null"),
        pytest.param({}, ".role", MISSING, id="empty"),
        pytest.param({"content": "x"}, ".role", MISSING, id="no-role"),
        pytest.param({"role": "king", "content": "x"}, ".role", Code.INVALID_VALUE, id="role"),
        pytest.param({"role": 5, "content": "x"}, ".role", Code.INVALID_TYPE, id="role-number"),
        pytest.param({"role": None, "content": "x"}, ".role", Code.INVALID_TYPE, id="role-null"),
        pytest.param({"role": "user"}, ".content", MISSING, id="no-content"),
        pytest.param({"role": "system"}, ".content", MISSING, id="system-without-content"),
        pytest.param(
            {"role": "user", "content": None}, ".content", Code.INVALID_TYPE, id="null-content"
        ),
        pytest.param({"role": "user", "content": 5}, ".content", Code.INVALID_TYPE, id="content"),
        pytest.param({"role": "user", "content": {}}, ".content", Code.INVALID_TYPE, id="object"),
        pytest.param({"role": "user", "content": []}, ".content", Code.EMPTY_ARRAY, id="no-parts"),
        pytest.param({"role": "tool", "content": "x"}, ".tool_call_id", MISSING, id="tool-no-id"),
        pytest.param(
            {"role": "tool", "content": "x", "tool_call_id": 1},
            ".tool_call_id",
            Code.INVALID_TYPE,
            id="tool-id",
        ),
    ],
)
def test_a_wrong_message_is_named(message: Any, place: str, code: Code) -> None:
    """`param` names the message by its number, and the field in it."""
    expected = (f"messages[1]{place}", code)
    assert refused(body(messages=[HELLO, message])) == expected


@pytest.mark.clause("ERR-2")
@pytest.mark.parametrize(
    ("part", "place", "code"),
    [
        pytest.param(1, "", Code.INVALID_TYPE, id="number"),
        pytest.param("hi", "", Code.INVALID_TYPE, id="text"),
        pytest.param({}, ".type", MISSING, id="empty"),
        pytest.param({"type": "video"}, ".type", Code.INVALID_VALUE, id="unknown-type"),
        pytest.param({"type": "text"}, ".text", MISSING, id="text-missing"),
        pytest.param({"type": "text", "text": 5}, ".text", Code.INVALID_TYPE, id="text-number"),
        pytest.param({"type": "text", "text": None}, ".text", Code.INVALID_TYPE, id="text-null"),
        pytest.param({"type": "image_url"}, ".image_url", MISSING, id="image-missing"),
        pytest.param(
            {"type": "image_url", "image_url": "http://x"},
            ".image_url",
            Code.INVALID_TYPE,
            id="image-as-text",
        ),
        pytest.param(
            {"type": "image_url", "image_url": {}},
            ".image_url.url",
            MISSING,
            id="image-without-url",
        ),
        pytest.param(
            {"type": "image_url", "image_url": {"url": 1}},
            ".image_url.url",
            Code.INVALID_TYPE,
            id="image-url-number",
        ),
        pytest.param({"type": "file", "file": 1}, ".file", Code.INVALID_TYPE, id="file"),
        pytest.param({"type": "input_audio"}, ".input_audio", MISSING, id="audio-missing"),
        pytest.param(
            {"type": "refusal", "refusal": 1}, ".refusal", Code.INVALID_TYPE, id="refusal"
        ),
    ],
)
def test_a_wrong_content_part_is_named(part: Any, place: str, code: Code) -> None:
    """`param` goes down to the part and its field."""
    message = {"role": "user", "content": [TEXT, part]}
    expected = (f"messages[0].content[1]{place}", code)
    assert refused(body(messages=[message])) == expected


@pytest.mark.clause("ERR-2")
@pytest.mark.parametrize(
    ("call", "place", "code"),
    [
        pytest.param(1, "", Code.INVALID_TYPE, id="number"),
        pytest.param({}, ".id", MISSING, id="empty"),
        pytest.param(CALL | {"id": 1}, ".id", Code.INVALID_TYPE, id="id-number"),
        pytest.param(CALL | {"type": "custom"}, ".type", Code.INVALID_VALUE, id="type"),
        pytest.param(CALL | {"function": None}, ".function", Code.INVALID_TYPE, id="null-function"),
        pytest.param(CALL | {"function": NOTHING}, ".function.name", MISSING, id="no-name"),
        pytest.param(
            CALL | {"function": {"name": "f"}}, ".function.arguments", MISSING, id="no-arguments"
        ),
        pytest.param(
            CALL | {"function": {"name": "f", "arguments": NOTHING}},
            ".function.arguments",
            Code.INVALID_TYPE,
            id="arguments-as-object",
        ),
    ],
)
def test_a_wrong_past_tool_call_is_named(call: Any, place: str, code: Code) -> None:
    """`arguments` is a JSON string, and an id is needed for the answer to refer to."""
    message = {"role": "assistant", "tool_calls": [CALL, call]}
    expected = (f"messages[0].tool_calls[1]{place}", code)
    assert refused(body(messages=[message])) == expected


def test_tool_calls_have_to_be_an_array() -> None:
    """An object in their place is a wrong type."""
    message = {"role": "assistant", "tool_calls": CALL}
    assert refused(body(messages=[message])) == ("messages[0].tool_calls", Code.INVALID_TYPE)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"messages": [1] * 300_000}, id="messages"),
        pytest.param({"messages": [{"role": "user", "content": [1] * 300_000}]}, id="parts"),
        pytest.param(
            {"messages": [{"role": "assistant", "tool_calls": [1] * 300_000}]}, id="tool-calls"
        ),
        pytest.param({"tools": [1] * 300_000}, id="tools"),
        pytest.param({"stop": [1] * 300_000}, id="stop"),
        pytest.param({str(number): 1 for number in range(300_000)}, id="unknown-names"),
        pytest.param({"metadata": {str(n): 1 for n in range(300_000)}}, id="metadata"),
    ],
)
def test_the_first_of_many_faults_is_enough(fields: Json) -> None:
    """Hundreds of thousands of faults in one body cost no more than a moment."""
    fields = body(**fields)
    start = time.thread_time()  # other work on the machine does not count
    refused(fields)
    assert time.thread_time() - start < 1.0
