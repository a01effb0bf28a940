"""`tool_choice` against `tools`."""

from __future__ import annotations

from typing import Any

import pytest

from serve_app.errors import Code
from serve_app.runs import Json
from tests.serve_app.wire.chat_bodies import body, refused, taken, tool

TOOLS = [tool("f"), tool("g")]


def forced(name: Any) -> Json:
    return {"type": "function", "function": {"name": name}}


@pytest.mark.parametrize("choice", ["none", "auto", "required", forced("f"), forced("g"), None])
def test_a_choice_among_the_tools_is_taken(choice: Any) -> None:
    """The three words, an object that names one of the tools, and null."""
    assert taken(body(tools=TOOLS, tool_choice=choice)).tool_choice == choice


@pytest.mark.parametrize("tools", [None, []], ids=["absent", "empty"])
@pytest.mark.parametrize("choice", ["none", "auto", None])
def test_a_choice_that_needs_no_tool_is_taken_without_tools(tools: Any, choice: Any) -> None:
    """Clients send `auto` and `none` by habit."""
    assert taken(body(tools=tools, tool_choice=choice)).tool_choice == choice


@pytest.mark.parametrize("tools", [None, []], ids=["absent", "empty"])
@pytest.mark.parametrize("choice", ["required", forced("f")], ids=["required", "forced"])
def test_a_choice_that_insists_on_a_tool_needs_tools(tools: Any, choice: Any) -> None:
    """Without tools it can never be kept, so it is refused; `tools: []` is none."""
    expected = ("tool_choice", Code.INVALID_VALUE)
    assert refused(body(tools=tools, tool_choice=choice)) == expected


@pytest.mark.parametrize(
    ("choice", "param", "code"),
    [
        pytest.param("any", "tool_choice", Code.INVALID_VALUE, id="unknown-word"),
        pytest.param("", "tool_choice", Code.INVALID_VALUE, id="empty-word"),
        pytest.param("f", "tool_choice", Code.INVALID_VALUE, id="bare-name"),
        pytest.param(1, "tool_choice", Code.INVALID_TYPE, id="number"),
        pytest.param(["f"], "tool_choice", Code.INVALID_TYPE, id="array"),
        pytest.param({}, "tool_choice.type", Code.MISSING_REQUIRED_PARAMETER, id="empty-object"),
        pytest.param(
            {"type": "function"},
            "tool_choice.function",
            Code.MISSING_REQUIRED_PARAMETER,
            id="no-function",
        ),
        pytest.param(
            {"type": "function", "function": {}},
            "tool_choice.function.name",
            Code.MISSING_REQUIRED_PARAMETER,
            id="no-name",
        ),
        pytest.param(forced(""), "tool_choice.function.name", Code.EMPTY_STRING, id="empty-name"),
        pytest.param(forced(1), "tool_choice.function.name", Code.INVALID_TYPE, id="name-number"),
        pytest.param(forced("h"), "tool_choice.function.name", Code.INVALID_VALUE, id="unknown"),
        pytest.param(
            {"type": "allowed_tools"}, "tool_choice.type", Code.INVALID_VALUE, id="other-type"
        ),
    ],
)
def test_a_wrong_choice_is_named(choice: Any, param: str, code: Code) -> None:
    """Each wrong form of choice names the place at fault."""
    assert refused(body(tools=TOOLS, tool_choice=choice)) == (param, code)
