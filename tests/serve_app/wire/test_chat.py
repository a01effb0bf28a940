"""Fields of a chat request: every one by itself, with every kind of value."""

from __future__ import annotations

from typing import Any, TypeAlias

import pytest

from serve_app.errors import Code
from serve_app.runs import Json
from serve_app.wire.chat import REFUSED_FIELDS, ChatRequest
from tests.serve_app.wire.chat_bodies import HELLO, body, refused, taken, tool

BIG = 10**30

#: One of each JSON type, and the values at which types are confused with one another.
VALUES: dict[str, Any] = {
    "null": None,
    "true": True,
    "zero": 0,
    "float": 1.5,
    "text": "x",
    "array": [],
    "object": {},
    "big": BIG,
}

#: What comes of a value: `None` where it is taken, else the code; with another field's name
#: where it is not the field itself that is at fault.
Outcome: TypeAlias = Code | tuple[str, Code] | None

_BOOLEAN: dict[str, Outcome] = {"true": None}
_TEXT: dict[str, Outcome] = {"text": None}
_TOKENS: dict[str, Outcome] = {
    "zero": Code.INTEGER_BELOW_MIN_VALUE,
    "big": Code.INTEGER_ABOVE_MAX_VALUE,
}
_PENALTY: dict[str, Outcome] = {
    "zero": None,
    "float": None,
    "big": Code.DECIMAL_ABOVE_MAX_VALUE,
}

#: Field → what comes of the values that have its type; any other value is `invalid_type`, and
#: null is absent.
FIELDS: dict[str, dict[str, Outcome]] = {
    "model": {"null": Code.MISSING_REQUIRED_PARAMETER, "text": None},
    "messages": {"null": Code.MISSING_REQUIRED_PARAMETER, "array": Code.EMPTY_ARRAY},
    "stream": _BOOLEAN,
    "metadata": {"object": None},
    "max_tokens": _TOKENS,
    "max_completion_tokens": _TOKENS,
    "temperature": _PENALTY,
    "top_p": {
        "zero": None,
        "float": Code.DECIMAL_ABOVE_MAX_VALUE,
        "big": Code.DECIMAL_ABOVE_MAX_VALUE,
    },
    "presence_penalty": _PENALTY,
    "frequency_penalty": _PENALTY,
    "seed": {"zero": None, "big": Code.INTEGER_ABOVE_MAX_VALUE},
    "stop": {"text": None, "array": None},
    "response_format": {"object": ("response_format.type", Code.MISSING_REQUIRED_PARAMETER)},
    "tools": {"array": None},
    "tool_choice": {
        "text": Code.INVALID_VALUE,
        "object": ("tool_choice.type", Code.MISSING_REQUIRED_PARAMETER),
    },
    "parallel_tool_calls": _BOOLEAN,
    "stream_options": {"object": None},
    "store": _BOOLEAN,
    "think": _BOOLEAN,
    "reasoning_effort": {"text": Code.INVALID_VALUE},
    "thinking_token_budget": {"zero": None, "big": Code.INTEGER_ABOVE_MAX_VALUE},
    "include_reasoning": _BOOLEAN,
    "user": _TEXT,
    "n": {"zero": Code.UNSUPPORTED_VALUE, "big": Code.UNSUPPORTED_VALUE},
    "service_tier": {"text": Code.UNSUPPORTED_VALUE},
    "prompt_cache_key": _TEXT,
    "safety_identifier": _TEXT,
    "logprobs": {"true": Code.UNSUPPORTED_VALUE},
}


@pytest.mark.clause("CHAT-1")
def test_exactly_the_contracts_fields_are_known() -> None:
    """The table below has every accepted field, and no other is accepted."""
    assert set(ChatRequest.model_fields) == set(FIELDS)


@pytest.mark.clause("CHAT-1", "ERR-2")
@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("field", FIELDS)
def test_a_field_takes_its_type_and_no_other(field: str, kind: str) -> None:
    """Each field with each kind of value: taken, or refused by the right name and code."""
    absent: dict[str, Outcome] = {"null": None}
    outcome = (absent | FIELDS[field]).get(kind, Code.INVALID_TYPE)
    fields = body(**{field: VALUES[kind]})
    if outcome is None:
        taken(fields)
    else:
        expected = outcome if isinstance(outcome, tuple) else (field, outcome)
        assert refused(fields) == expected


GOOD: dict[str, list[Any]] = {
    "stream": [True, False],
    "max_tokens": [1, 4096],
    "max_completion_tokens": [1, 4096],
    "temperature": [0, 2, 0.7],
    "top_p": [0, 1, 0.5],
    "presence_penalty": [-2, 2.0],
    "frequency_penalty": [-2.0, 2],
    "seed": [-(2**63), 0, 2**63 - 1],
    "stop": ["END", ["a"], ["a", "b", "c", "d"], []],
    "tools": [[tool()], [tool(f"f{number}") for number in range(1024)]],
    "tool_choice": ["none", "auto"],
    "stream_options": [
        {"include_usage": True},
        {"include_usage": None},
        {"include_obfuscation": 1},
    ],
    "reasoning_effort": ["none", "low", "medium", "high"],
    "thinking_token_budget": [0, 1, 2**31 - 1],
    "user": ["", "me"],
    "n": [1],
    "service_tier": ["auto", "default"],
    "logprobs": [False],
    "response_format": [
        {"type": "text"},
        {"type": "json_object"},
        {"type": "json_schema", "json_schema": {"name": "A"}},
        {"type": "json_schema", "json_schema": {"name": "A", "schema": {"a": 1}, "strict": True}},
        {"type": "json_schema", "json_schema": {"name": "A", "schema": None, "strict": None}},
    ],
}


@pytest.mark.clause("CHAT-1")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param(field, value, id=f"{field}-{number}")
        for field, values in GOOD.items()
        for number, value in enumerate(values)
    ],
)
def test_a_good_value_comes_through_as_it_is(field: str, value: Any) -> None:
    """What is accepted is kept; only a single `stop` becomes a list of one."""
    expected = [value] if field == "stop" and isinstance(value, str) else value
    assert getattr(taken(body(**{field: value})), field) == expected


BAD: dict[str, list[tuple[Any, str, Code]]] = {
    "model": [("", "model", Code.EMPTY_STRING)],
    "max_tokens": [
        (-1, "max_tokens", Code.INTEGER_BELOW_MIN_VALUE),
        (1.0, "max_tokens", Code.INVALID_TYPE),
        ("5", "max_tokens", Code.INVALID_TYPE),
    ],
    "temperature": [
        (-0.1, "temperature", Code.DECIMAL_BELOW_MIN_VALUE),
        (2.1, "temperature", Code.DECIMAL_ABOVE_MAX_VALUE),
        ("0.5", "temperature", Code.INVALID_TYPE),
    ],
    "top_p": [(-1, "top_p", Code.DECIMAL_BELOW_MIN_VALUE)],
    "presence_penalty": [(-2.1, "presence_penalty", Code.DECIMAL_BELOW_MIN_VALUE)],
    "frequency_penalty": [(3, "frequency_penalty", Code.DECIMAL_ABOVE_MAX_VALUE)],
    "seed": [(-(2**63) - 1, "seed", Code.INTEGER_BELOW_MIN_VALUE)],
    "stop": [
        (["a"] * 5, "stop", Code.ARRAY_ABOVE_MAX_LENGTH),
        ([1], "stop[0]", Code.INVALID_TYPE),
        (["a", None], "stop[1]", Code.INVALID_TYPE),
        ([""], "stop[0]", Code.EMPTY_STRING),
        ("", "stop", Code.EMPTY_STRING),
    ],
    "stream_options": [({"include_usage": 1}, "stream_options.include_usage", Code.INVALID_TYPE)],
    "reasoning_effort": [
        ("", "reasoning_effort", Code.INVALID_VALUE),
        ("minimal", "reasoning_effort", Code.INVALID_VALUE),
        ("xhigh", "reasoning_effort", Code.INVALID_VALUE),
        ("HIGH", "reasoning_effort", Code.INVALID_VALUE),
    ],
    "thinking_token_budget": [
        (-1, "thinking_token_budget", Code.INTEGER_BELOW_MIN_VALUE),
        ("10", "thinking_token_budget", Code.INVALID_TYPE),
    ],
    "n": [(2, "n", Code.UNSUPPORTED_VALUE), (-1, "n", Code.UNSUPPORTED_VALUE)],
    "service_tier": [("flex", "service_tier", Code.UNSUPPORTED_VALUE)],
    "response_format": [
        ({"type": "xml"}, "response_format.type", Code.INVALID_VALUE),
        ({"type": "json_schema"}, "response_format.json_schema", Code.MISSING_REQUIRED_PARAMETER),
        (
            {"type": "json_schema", "json_schema": {}},
            "response_format.json_schema.name",
            Code.MISSING_REQUIRED_PARAMETER,
        ),
        (
            {"type": "json_schema", "json_schema": {"name": "A", "schema": []}},
            "response_format.json_schema.schema",
            Code.INVALID_TYPE,
        ),
    ],
    "tools": [
        ([tool()] * 1025, "tools", Code.ARRAY_ABOVE_MAX_LENGTH),
        ([1], "tools[0]", Code.INVALID_TYPE),
        ([{"type": "function"}], "tools[0].function", Code.MISSING_REQUIRED_PARAMETER),
        ([tool(), {"type": "x"}], "tools[1].type", Code.INVALID_VALUE),
        ([tool("")], "tools[0].function.name", Code.EMPTY_STRING),
        ([tool("x" * 129)], "tools[0].function.name", Code.STRING_ABOVE_MAX_LENGTH),
        ([tool(parameters=[])], "tools[0].function.parameters", Code.INVALID_TYPE),
        ([tool(strict="yes")], "tools[0].function.strict", Code.INVALID_TYPE),
    ],
}


@pytest.mark.clause("CHAT-1", "ERR-2")
@pytest.mark.parametrize(
    ("field", "value", "param", "code"),
    [
        pytest.param(field, *case, id=f"{field}-{number}")
        for field, cases in BAD.items()
        for number, case in enumerate(cases)
    ],
)
def test_a_bad_value_is_refused_by_name(field: str, value: Any, param: str, code: Code) -> None:
    """A value out of range or of a wrong shape inside names the very place."""
    assert refused(body(**{field: value})) == (param, code)


@pytest.mark.clause("THINK-2")
@pytest.mark.parametrize("effort", ["", "None", "minimal", "max", "0", " low"])
def test_an_effort_that_is_none_of_the_four_words_is_refused(effort: str) -> None:
    """`none`, `low`, `medium`, `high`; the empty string is a value and a wrong one."""
    assert refused(body(reasoning_effort=effort)) == ("reasoning_effort", Code.INVALID_VALUE)


@pytest.mark.clause("THINK-3")
@pytest.mark.parametrize("budget", [-1, -(2**63)])
def test_a_negative_budget_is_refused(budget: int) -> None:
    """A budget is an integer of 0 or more."""
    expected = ("thinking_token_budget", Code.INTEGER_BELOW_MIN_VALUE)
    assert refused(body(thinking_token_budget=budget)) == expected


@pytest.mark.clause("CHAT-2")
@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (None, False),
        ({}, False),
        ({"include_usage": False}, False),
        ({"include_usage": None}, False),
        ({"include_usage": True}, True),
    ],
)
def test_only_include_usage_asks_for_a_usage_chunk(options: Json | None, wanted: bool) -> None:
    """`stream_options` has this one effect."""
    assert taken(body(stream_options=options)).include_usage is wanted


@pytest.mark.clause("CHAT-3")
@pytest.mark.parametrize("value", [1, "x", {}, [], False])
@pytest.mark.parametrize(
    "name",
    [
        "options",
        "chat_template_kwargs",
        "format",
        "keep_alive",
        "session_id",
        "timeout_sec",
        "iop",
    ],
)
def test_wrappers_are_refused_whatever_they_hold(name: str, value: Any) -> None:
    """400 with the field's name, also where other fields are wrong as well."""
    assert name in REFUSED_FIELDS
    expected = (name, Code.UNSUPPORTED_PARAMETER)
    assert refused(body(**{name: value}, model=5, unknown=1)) == expected


@pytest.mark.clause("CHAT-3")
@pytest.mark.parametrize("key", ["cli", "inference", "nomadcode", "source"])
def test_metadata_wrappers_are_refused(key: str) -> None:
    """The four keys of `metadata` that would be wrappers are refused by name."""
    expected = (f"metadata.{key}", Code.UNSUPPORTED_PARAMETER)
    assert refused(body(metadata={"a": "b", key: "x"})) == expected


@pytest.mark.clause("CHAT-1")
@pytest.mark.parametrize(
    "name", ["top_k", "input", "functions", "logit_bias", "Model", "", "모델", "messages ", "a.b"]
)
def test_any_other_name_is_unknown(name: str) -> None:
    """400 `unknown_parameter` that names it."""
    assert refused(body(**{name: 1})) == (name, Code.UNKNOWN_PARAMETER)


def test_an_unknown_name_with_null_is_absent() -> None:
    """A client that writes null for all it does not say is served."""
    assert taken(body(top_k=None, options=None)).model == "m"


def test_an_unknown_name_is_shown_in_part() -> None:
    """A name of a megabyte does not come back whole."""
    param, code = refused(body(**{"x" * 2**20: 1}))
    assert (code, len(param or "") < 300) == (Code.UNKNOWN_PARAMETER, True)


@pytest.mark.parametrize("missing", ["model", "messages"])
def test_model_and_messages_are_required(missing: str) -> None:
    """400 `missing_required_parameter` with the field's name."""
    fields = {name: value for name, value in body().items() if name != missing}
    assert refused(fields) == (missing, Code.MISSING_REQUIRED_PARAMETER)


@pytest.mark.parametrize("value", [10**400, -(10**400)])
@pytest.mark.parametrize("field", ["temperature", "top_p", "presence_penalty", "seed"])
def test_an_integer_beyond_any_double_is_out_of_range(field: str, value: int) -> None:
    """Four hundred digits are no fault of ours."""
    assert refused(body(**{field: value}))[0] == field


def test_a_null_for_every_optional_field_is_an_ordinary_request() -> None:
    """`null` anywhere optional means that the caller did not say."""
    nulls = dict.fromkeys(set(FIELDS) - {"model", "messages"})
    assert taken(body(**nulls)) == taken({"model": "m", "messages": [HELLO]})
