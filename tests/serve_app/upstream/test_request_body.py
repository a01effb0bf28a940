"""The body that goes to an upstream, exactly."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from serve_app.runs import Json, ProviderFacts, RunRequest, ThinkControl
from serve_app.upstream.request_body import chat_body

HELLO: Json = {"role": "user", "content": "hi"}
RUN = RunRequest(request_id="r", model="public", target="theirs", messages=[HELLO])
TOOL: Json = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
FORCED: Json = {"type": "function", "function": {"name": "f"}}
PLAIN = ProviderFacts(type="plain")
#: What goes out whatever the caller says.
LEAST: Json = {
    "model": "theirs",
    "messages": [HELLO],
    "stream": True,
    "stream_options": {"include_usage": True},
}


def sent(facts: ProviderFacts = PLAIN, **fields: Any) -> Json:
    return json.loads(chat_body(replace(RUN, **fields), facts))


def test_the_least_request_is_exactly_this() -> None:
    """The upstream's own name of the model, and always a stream with counts."""
    assert sent() == LEAST


@pytest.mark.clause("CHAT-4")
@pytest.mark.parametrize(
    ("fields", "added"),
    [
        pytest.param({"max_tokens": 5}, {"max_tokens": 5}, id="max_tokens"),
        pytest.param({"temperature": 0.0}, {"temperature": 0.0}, id="temperature-0"),
        pytest.param({"top_p": 0.5}, {"top_p": 0.5}, id="top_p"),
        pytest.param({"presence_penalty": -2.0}, {"presence_penalty": -2.0}, id="presence"),
        pytest.param({"frequency_penalty": 0.0}, {"frequency_penalty": 0.0}, id="frequency-0"),
        pytest.param({"seed": 0}, {"seed": 0}, id="seed-0"),
        pytest.param({"seed": -(2**63)}, {"seed": -(2**63)}, id="seed-least"),
        pytest.param({"stop": ("a", "한")}, {"stop": ["a", "한"]}, id="stop"),
        pytest.param({"stop": ()}, {}, id="no-stop"),
        pytest.param(
            {"response_format": {"type": "json_object"}},
            {"response_format": {"type": "json_object"}},
            id="response_format",
        ),
        pytest.param({"tools": (TOOL,)}, {"tools": [TOOL]}, id="tools"),
        pytest.param({"tools": ()}, {}, id="no-tools"),
    ],
)
def test_an_option_reaches_the_upstream_as_it_is(fields: Json, added: Json) -> None:
    """Top-level, with the same meaning; zero is a value, and what was not said is not sent."""
    assert sent(**fields) == LEAST | added


@pytest.mark.clause("CHAT-4", "TOOL-1")
def test_all_options_together() -> None:
    """No option shuts out another."""
    options: Json = {
        "max_tokens": 5,
        "temperature": 0.5,
        "top_p": 0.9,
        "presence_penalty": 1.0,
        "frequency_penalty": -1.0,
        "seed": 42,
        "response_format": {"type": "text"},
        "tool_choice": "required",
        "think": True,
        "thinking_token_budget": 0,
        "include_reasoning": False,
    }
    body = sent(**options, stop=("a",), tools=(TOOL,))
    assert body == LEAST | options | {"stop": ["a"], "tools": [TOOL]}


@pytest.mark.clause("META-3", "CHAT-2")
def test_what_is_the_gateways_own_never_goes_out() -> None:
    """Metadata, workspace and request id stay here, and so does the caller's name of the model."""
    body = chat_body(
        replace(
            RUN, metadata={"task_id": "secret-1"}, workspace="/secret-2", request_id="secret-3"
        ),
        PLAIN,
    )
    assert json.loads(body) == LEAST
    assert b"secret" not in body
    assert b"public" not in body


@pytest.mark.clause("TOOL-1")
@pytest.mark.parametrize(
    ("choice", "tools", "added"),
    [
        pytest.param(None, (TOOL,), {"tools": [TOOL]}, id="absent"),
        pytest.param("auto", (TOOL,), {"tools": [TOOL]}, id="auto"),
        pytest.param("none", (TOOL,), {"tools": [TOOL], "tool_choice": "none"}, id="none"),
        pytest.param(
            "required", (TOOL,), {"tools": [TOOL], "tool_choice": "required"}, id="required"
        ),
        pytest.param(FORCED, (TOOL,), {"tools": [TOOL], "tool_choice": FORCED}, id="forced"),
        pytest.param("auto", (), {}, id="auto-without-tools"),
        pytest.param("none", (), {}, id="none-without-tools"),
    ],
)
def test_auto_is_left_out(choice: Any, tools: tuple[Json, ...], added: Json) -> None:
    """It is every server's default, and a choice without tools is refused by some."""
    assert sent(tool_choice=choice, tools=tools) == LEAST | added


def test_the_limit_has_the_providers_name() -> None:
    """One option inside, whatever the server calls it."""
    facts = replace(PLAIN, max_tokens_field="max_completion_tokens")
    assert sent(facts, max_tokens=5) == LEAST | {"max_completion_tokens": 5}
    assert sent(facts) == LEAST


def test_stream_options_are_spared_where_they_are_not_understood() -> None:
    """By the provider's facts; the call still streams."""
    body = sent(replace(PLAIN, takes_stream_options=False))
    assert body == {name: value for name, value in LEAST.items() if name != "stream_options"}


THINK: Json = {
    "think": False,
    "reasoning_effort": "none",
    "thinking_token_budget": 0,
    "include_reasoning": False,
}


@pytest.mark.clause("THINK-9")
@pytest.mark.parametrize("name", THINK)
def test_a_think_field_goes_through_or_is_spared_by_facts(name: str) -> None:
    """As it is to a provider that takes it; false and 0 are values."""
    field = {name: THINK[name]}
    assert sent(**field) == LEAST | field
    assert sent(replace(PLAIN, takes_think_fields=False), **field) == LEAST


@pytest.mark.clause("THINK-6", "THINK-7", "THINK-8")
@pytest.mark.parametrize("name", THINK)
def test_no_think_field_goes_to_a_provider_with_a_table(name: str) -> None:
    """At the top level it would be ignored in silence; the table's fields are in `extra`."""
    assert sent(replace(PLAIN, think=ThinkControl()), **{name: THINK[name]}) == LEAST


@pytest.mark.parametrize("extra", [{"chat_template_kwargs": {"a": {"b": None}}}, {"x": 0}, {}])
def test_what_a_policy_put_in_goes_out_as_it_is(extra: Json) -> None:
    """`extra` stands at the top level of the body."""
    assert sent(extra=extra) == LEAST | extra
    assert sent(replace(PLAIN, think=ThinkControl()), extra=extra) == LEAST | extra


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        pytest.param(HELLO, HELLO, id="nothing-to-do"),
        pytest.param({**HELLO, "name": None}, HELLO, id="null-name"),
        pytest.param(
            {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}], "audio": None},
            {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]},
            id="null-content-of-an-assistant",
        ),
        pytest.param(
            {"role": "assistant", "content": "x", "tool_calls": None},
            {"role": "assistant", "content": "x"},
            id="null-calls",
        ),
        pytest.param({**HELLO, "mine": {"a": 1}}, {**HELLO, "mine": {"a": 1}}, id="foreign"),
        pytest.param(
            {"role": "user", "content": [{"type": "text", "text": "한🙂\u2028"}]},
            {"role": "user", "content": [{"type": "text", "text": "한🙂\u2028"}]},
            id="parts",
        ),
    ],
)
def test_a_message_goes_out_less_its_nulls(message: Json, shown: Json) -> None:
    """Servers stop at nulls they do not know; an assistant's null content is part of its shape."""
    before = json.dumps(message)
    assert sent(messages=[HELLO, message])["messages"] == [HELLO, shown]
    assert json.dumps(message) == before


def test_a_tool_goes_out_less_the_nulls_of_its_function() -> None:
    """What a schema holds inside stays as it is, nulls too."""
    parameters = {"type": "object", "properties": {"a": {"default": None, "enum": [None]}}}
    function = {"name": "f", "description": None, "strict": None, "parameters": parameters}
    tool: Json = {"type": "function", "function": function}
    assert sent(tools=(tool,))["tools"] == [
        {"type": "function", "function": {"name": "f", "parameters": parameters}}
    ]
    assert tool["function"] is function
    assert function["strict"] is None


def test_a_body_is_compact_utf8() -> None:
    """No escapes for what needs none, and no white space."""
    body = chat_body(replace(RUN, messages=[{"role": "user", "content": "한 🙂"}]), PLAIN)
    assert '"content":"한 🙂"'.encode() in body
