"""Fields of a chat request: what is taken, what is refused, and what goes upstream."""

from __future__ import annotations

from typing import Any

import pytest

from serve_app.wire.metadata import split_metadata
from tests.fakes.upstream import Upstream
from tests.serve_app.ingress.edge import MESSAGES, Edge, Json, running

TOOL: Json = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object", "properties": {}}},
}
SCHEMA: Json = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}

#: Field → a value of it → what of it the upstream has to see.
SENT: list[tuple[Json, Json]] = [
    ({"max_tokens": 7}, {"max_tokens": 7}),
    ({"max_completion_tokens": 7}, {"max_tokens": 7}),
    ({"max_completion_tokens": 7, "max_tokens": 9}, {"max_tokens": 7}),
    ({"max_completion_tokens": None, "max_tokens": 9}, {"max_tokens": 9}),
    ({"temperature": 0}, {"temperature": 0.0}),
    ({"temperature": 0.7}, {"temperature": 0.7}),
    ({"top_p": 0.1}, {"top_p": 0.1}),
    ({"presence_penalty": -2}, {"presence_penalty": -2.0}),
    ({"frequency_penalty": 1.5}, {"frequency_penalty": 1.5}),
    ({"seed": 0}, {"seed": 0}),
    ({"seed": -(2**63)}, {"seed": -(2**63)}),
    ({"stop": "a"}, {"stop": ["a"]}),
    ({"stop": ["a", "끝", "\n", "d"]}, {"stop": ["a", "끝", "\n", "d"]}),
    ({"response_format": {"type": "text"}}, {"response_format": {"type": "text"}}),
    ({"response_format": SCHEMA}, {"response_format": SCHEMA}),
    ({"tools": [TOOL]}, {"tools": [TOOL]}),
    ({"tools": [TOOL], "tool_choice": "none"}, {"tools": [TOOL], "tool_choice": "none"}),
    ({"tools": [TOOL], "tool_choice": "auto"}, {"tools": [TOOL]}),
    ({"think": True}, {"think": True}),
    ({"think": False}, {"think": False}),
    ({"reasoning_effort": "low"}, {"reasoning_effort": "low"}),
    ({"thinking_token_budget": 0}, {"thinking_token_budget": 0}),
    ({"include_reasoning": False}, {"include_reasoning": False}),
]

#: Taken, and none of the upstream's business.
KEPT: list[Json] = [
    {"stream": True},
    {"stream": False},
    {"parallel_tool_calls": False},
    {"parallel_tool_calls": True},
    {"stream_options": {"include_usage": False}},
    {"stream_options": {"include_usage": True, "include_obfuscation": False}},
    {"store": True},
    {"metadata": {"task_id": "42", "workspace": "/srv/work"}},
    {"user": "u"},
    {"n": 1},
    {"service_tier": "auto"},
    {"service_tier": "default"},
    {"prompt_cache_key": "k"},
    {"safety_identifier": "s"},
    {"logprobs": False},
    {"tools": []},
    {"stop": []},
    {"tool_choice": "auto"},
]

#: What is refused → the field that is named, and the code.
REFUSED: list[tuple[Any, str, str]] = [
    ({"messages": None}, "messages", "missing_required_parameter"),
    ({"model": None}, "model", "missing_required_parameter"),
    ({"model": 5}, "model", "invalid_type"),
    ({"model": ""}, "model", "empty_string"),
    ({"messages": []}, "messages", "empty_array"),
    ({"messages": "hi"}, "messages", "invalid_type"),
    ({"messages": [{"content": "x"}]}, "messages[0].role", "missing_required_parameter"),
    ({"messages": [{"role": "cat", "content": "x"}]}, "messages[0].role", "invalid_value"),
    ({"messages": [{"role": "user", "content": 1}]}, "messages[0].content", "invalid_type"),
    ({"temperature": 2.1}, "temperature", "decimal_above_max_value"),
    ({"temperature": -0.1}, "temperature", "decimal_below_min_value"),
    ({"temperature": "1"}, "temperature", "invalid_type"),
    ({"temperature": True}, "temperature", "invalid_type"),
    ({"top_p": 1.01}, "top_p", "decimal_above_max_value"),
    ({"presence_penalty": 3}, "presence_penalty", "decimal_above_max_value"),
    ({"max_tokens": 0}, "max_tokens", "integer_below_min_value"),
    ({"max_tokens": 1.5}, "max_tokens", "invalid_type"),
    ({"max_completion_tokens": -1}, "max_completion_tokens", "integer_below_min_value"),
    ({"seed": 2**63}, "seed", "integer_above_max_value"),
    ({"seed": 0.5}, "seed", "invalid_type"),
    ({"stop": list("abcde")}, "stop", "array_above_max_length"),
    ({"stop": 5}, "stop", "invalid_type"),
    ({"stream": "true"}, "stream", "invalid_type"),
    ({"n": 2}, "n", "unsupported_value"),
    ({"logprobs": True}, "logprobs", "unsupported_value"),
    ({"service_tier": "flex"}, "service_tier", "unsupported_value"),
    ({"tool_choice": "required"}, "tool_choice", "invalid_value"),
    ({"top_k": 5}, "top_k", "unknown_parameter"),
    ({"Model": "m"}, "Model", "unknown_parameter"),
    ({"input": "x"}, "input", "unknown_parameter"),
    ({"functions": []}, "functions", "unknown_parameter"),
]


def ids_of(cases: list[Json]) -> list[str]:
    """Each case by its fields, and by its number since some have the same."""
    return [f"{number}-{','.join(fields)}" for number, fields in enumerate(cases)]


WRAPPERS = [
    "options",
    "chat_template_kwargs",
    "format",
    "keep_alive",
    "session_id",
    "timeout_sec",
    "iop",
]


async def ask(edge: Edge, fields: Json) -> Json:
    """The response's error; empty where it succeeded."""
    asked: Json = {"model": "script:hello", "messages": MESSAGES, **fields}
    response = await edge.client.post("/v1/chat/completions", json=asked)
    if response.status_code == 200:
        return {}
    error = response.json()["error"]
    assert response.status_code == 400, error
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    return error


@pytest.mark.clause("CHAT-1", "CHAT-4")
@pytest.mark.parametrize(("fields", "sent"), SENT, ids=ids_of([case[0] for case in SENT]))
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_sampling_fields_reach_the_upstream(
    edge: Edge, upstream: Upstream, fields: Json, sent: Json, stream: bool
) -> None:
    """Exactly these go upstream, with the same meaning, whether the caller streams or not."""
    assert await ask(edge, {**fields, "stream": stream}) == {}
    assert upstream.requests[0].json == {
        "model": "script:hello",
        "messages": MESSAGES,
        "stream": True,
        "stream_options": {"include_usage": True},
        **sent,
    }


@pytest.mark.clause("CHAT-1", "CHAT-2", "META-3")
@pytest.mark.parametrize("fields", KEPT, ids=ids_of(KEPT))
async def test_fields_for_the_gateway_alone_change_nothing_upstream(
    edge: Edge, upstream: Upstream, fields: Json
) -> None:
    """They are taken, and the upstream is asked the same as without them."""
    assert await ask(edge, fields) == {}
    assert await ask(edge, {}) == {}
    with_them, without = upstream.requests
    assert with_them.json == without.json
    assert with_them.headers.keys() == without.headers.keys()


@pytest.mark.clause("CHAT-1")
@pytest.mark.parametrize("name", sorted({name for fields, _ in SENT for name in fields}))
async def test_null_is_the_same_as_absent(edge: Edge, upstream: Upstream, name: str) -> None:
    """Clients send `null` for what they did not set."""
    assert await ask(edge, {name: None}) == {}
    assert name not in upstream.requests[0].json


@pytest.mark.clause("ERR-2", "CHAT-1")
@pytest.mark.parametrize(
    ("fields", "param", "code"), REFUSED, ids=ids_of([case[0] for case in REFUSED])
)
async def test_a_refusal_names_its_field(
    edge: Edge, upstream: Upstream, fields: Json, param: str, code: str
) -> None:
    """400 with the dotted name of the field and a code; nothing goes upstream."""
    error = await ask(edge, fields)
    assert (error["param"], error["code"]) == (param, code)
    assert param.rpartition(".")[2] in error["message"]
    assert upstream.requests == []


@pytest.mark.clause("CHAT-3", "ERR-2")
@pytest.mark.parametrize("value", [None, {}, "x", 0], ids=["null", "object", "text", "number"])
@pytest.mark.parametrize("name", WRAPPERS)
async def test_wrappers_are_refused_by_name(edge: Edge, name: str, value: object) -> None:
    """What would pass options by another way is refused; only `null` means it was not sent."""
    error = await ask(edge, {name: value})
    assert error == {} if value is None else error["param"] == name
    assert error.get("code") == (None if value is None else "unsupported_parameter")


@pytest.mark.clause("CHAT-3", "ERR-2")
@pytest.mark.parametrize("name", ["cli", "inference", "nomadcode", "source"])
@pytest.mark.parametrize("value", ["x", "", None, {}], ids=["text", "empty", "null", "object"])
async def test_wrappers_in_the_metadata_are_refused_by_name(
    edge: Edge, name: str, value: object
) -> None:
    """Their value does not matter."""
    error = await ask(edge, {"metadata": {name: value}})
    assert (error["param"], error["code"]) == (f"metadata.{name}", "unsupported_parameter")


@pytest.mark.clause("THINK-2", "THINK-3", "THINK-4", "ERR-2")
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"reasoning_effort": ""}, "reasoning_effort"),
        ({"reasoning_effort": "minimal"}, "reasoning_effort"),
        ({"reasoning_effort": "LOW"}, "reasoning_effort"),
        ({"reasoning_effort": 1}, "reasoning_effort"),
        ({"think": "yes"}, "think"),
        ({"thinking_token_budget": -1}, "thinking_token_budget"),
        ({"thinking_token_budget": 1.5}, "thinking_token_budget"),
        ({"think": False, "reasoning_effort": "low"}, "reasoning_effort"),
        ({"think": False, "reasoning_effort": "medium"}, "reasoning_effort"),
        ({"think": False, "reasoning_effort": "high"}, "reasoning_effort"),
        ({"think": False, "thinking_token_budget": 0}, "thinking_token_budget"),
        ({"reasoning_effort": "none", "thinking_token_budget": 5}, "thinking_token_budget"),
        ({"think": True, "reasoning_effort": "none"}, "reasoning_effort"),
    ],
    ids=str,
)
async def test_thinking_that_makes_no_sense_is_refused(
    edge: Edge, upstream: Upstream, fields: Json, param: str
) -> None:
    """Values outside the lists, and fields that contradict each other, whatever the provider."""
    assert (await ask(edge, fields))["param"] == param
    assert upstream.requests == []


@pytest.mark.clause("THINK-2", "THINK-3", "THINK-4")
@pytest.mark.parametrize(
    "fields",
    [
        *({"reasoning_effort": word} for word in ("none", "low", "medium", "high")),
        {"think": False, "reasoning_effort": "none"},
        {"think": True, "reasoning_effort": "high", "thinking_token_budget": 0},
    ],
    ids=str,
)
async def test_thinking_that_agrees_is_taken(edge: Edge, upstream: Upstream, fields: Json) -> None:
    """The same thing said twice is no contradiction."""
    assert await ask(edge, fields) == {}
    assert fields.items() <= upstream.requests[0].json.items()


@pytest.mark.clause("META-1", "ERR-2")
@pytest.mark.parametrize(
    ("metadata", "param"),
    [
        pytest.param("x", "metadata", id="text"),
        pytest.param([], "metadata", id="array"),
        pytest.param({f"k{n}": "v" for n in range(17)}, "metadata", id="17-pairs"),
        pytest.param({f"k{n}": "v" for n in range(20)}, "metadata", id="20-pairs"),
        pytest.param(
            {"workspace": "/w"} | {f"k{n}": "v" for n in range(16)}, "metadata", id="16-and-one"
        ),
        pytest.param({"k": None}, "metadata.k", id="null"),
        pytest.param({"k": 1}, "metadata.k", id="number"),
        pytest.param({"k": {"a": "b"}}, "metadata.k", id="nested"),
        pytest.param({"k": "x" * 513}, "metadata.k", id="long-value"),
        pytest.param({"k" * 65: "x"}, "metadata." + "k" * 64, id="long-key"),
        pytest.param({"workspace": 5}, "metadata.workspace", id="workspace-number"),
    ],
)
async def test_metadata_out_of_its_bounds_is_refused(
    edge: Edge, metadata: object, param: str
) -> None:
    """The faulty pair is named."""
    assert (await ask(edge, {"metadata": metadata}))["param"] == param


@pytest.mark.clause("META-1", "META-3")
@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param({}, id="none"),
        pytest.param({f"k{n}": "v" for n in range(16)}, id="16-pairs"),
        pytest.param({"k" * 64: "v" * 512, "빈 칸": ""}, id="longest"),
        pytest.param({"request_id": "r", "task_id": "t", "workspace": ""}, id="examples"),
    ],
)
async def test_metadata_within_its_bounds_stays_here(
    edge: Edge, upstream: Upstream, metadata: dict[str, str]
) -> None:
    """It is taken, and none of it is sent to the upstream."""
    assert await ask(edge, {"metadata": metadata}) == {}
    received = upstream.requests[0]
    assert "metadata" not in received.json
    assert not [value for value in metadata.values() if value and value in str(received.json)[200:]]


@pytest.mark.clause("META-2", "META-3")
def test_the_workspace_is_taken_out_of_the_metadata() -> None:
    """It is a thing of its own; the other pairs stay as they are."""
    said = {"workspace": "/srv/w", "task_id": "t"}
    assert split_metadata(said) == ("/srv/w", {"task_id": "t"})
    assert split_metadata({"task_id": "t"}) == (None, {"task_id": "t"})


@pytest.mark.clause("CHAT-4")
async def test_messages_reach_the_upstream_whole(edge: Edge, upstream: Upstream) -> None:
    """Roles, parts, tool calls and unknown fields of messages go through; nulls do not."""
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages: list[Json] = [
        {"role": "developer", "content": "Be brief."},
        {"role": "system", "content": [{"type": "text", "text": "안녕 🙂\u0000"}]},
        {
            "role": "user",
            "content": [{"type": "image_url", "image_url": {"url": "data:,", "detail": "low"}}],
            "name": "ann",
        },
        {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None},
        {"role": "tool", "tool_call_id": "c1", "content": "seen"},
        {"role": "assistant", "content": "ok", "tool_calls": None, "reasoning_content": "hm"},
    ]
    assert await ask(edge, {"messages": messages}) == {}
    del messages[3]["refusal"], messages[5]["tool_calls"]
    assert upstream.requests[0].json["messages"] == messages


@pytest.mark.clause("GEN-1", "GEN-2", "GEN-3")
@pytest.mark.parametrize(
    ("fields", "sent"),
    [
        ({}, {"max_tokens": 64, "thinking_token_budget": 9}),
        ({"max_tokens": 5}, {"max_tokens": 16, "thinking_token_budget": 9}),
        ({"max_completion_tokens": 5}, {"max_tokens": 16, "thinking_token_budget": 9}),
        ({"max_tokens": 99}, {"max_tokens": 99, "thinking_token_budget": 9}),
        ({"think": False}, {"max_tokens": 64, "think": False}),
        ({"reasoning_effort": "none"}, {"max_tokens": 64, "reasoning_effort": "none"}),
        ({"thinking_token_budget": 3}, {"max_tokens": 64, "thinking_token_budget": 3}),
    ],
    ids=str,
)
async def test_a_catalog_entry_sets_limits(upstream: Upstream, fields: Json, sent: Json) -> None:
    """A default where the caller said nothing, a least value where it said too little."""
    entry: Json = {
        "id": "script:hello",
        "providers": [{"provider": "fake"}],
        "default_max_tokens": 64,
        "min_max_tokens": 16,
        "default_thinking_token_budget": 9,
    }
    async with running(upstream, models=[entry]) as edge:
        assert await ask(edge, fields) == {}
    usual = {"model", "messages", "stream", "stream_options"}
    received = upstream.requests[0].json
    assert {name: value for name, value in received.items() if name not in usual} == sent
