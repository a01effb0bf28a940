"""The caller's tools: names, schemas, and what a schema may not do."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from typing import Any

import pytest

from serve_app.errors import Code, InvalidRequestError
from serve_app.runs import Json
from serve_app.tools.arguments import ArgumentsError, from_values
from serve_app.tools.patterns import matcher
from serve_app.tools.restore import restore_native
from serve_app.tools.schema import Schema
from serve_app.tools.toolset import ToolSet


def tools(*parameters: Any) -> ToolSet:
    return ToolSet(
        [
            {"type": "function", "function": {"name": f"t{index}", "parameters": one}}
            for index, one in enumerate(parameters)
        ]
    )


def schema_of(parameters: Json) -> Schema:
    found = tools(parameters).get("t0")
    assert found
    return found.schema


def test_tools_by_name() -> None:
    """A tool is found by its name; without parameters it takes any object."""
    given = ToolSet([{"type": "function", "function": {"name": "a"}}])
    assert "a" in given
    assert "b" not in given
    assert len(given) == 1
    assert given.get("b") is None
    found = given.get("a")
    assert found
    assert from_values({"x": 1}, found.schema) == '{"x": 1}'


def test_a_name_stands_once() -> None:
    """Of two tools with one name none can be chosen."""
    with pytest.raises(InvalidRequestError) as caught:
        ToolSet([{"function": {"name": "a"}}, {"function": {"name": "a"}}])
    assert caught.value.param == "tools[1].function.name"


def test_schemas_are_compiled_once() -> None:
    """The same tools come with every turn of an agent."""
    parameters = {"type": "object", "properties": {"x": {"type": "integer"}}}
    assert schema_of(parameters) is schema_of(dict(parameters))


BRANCHES = {f"a{at}": {"anyOf": [{"$ref": f"#/$defs/a{at + 1}"}] * 2} for at in range(40)}
CHAIN = {f"a{at}": {"$ref": f"#/$defs/a{at + 1}"} for at in range(3000)}
BAD: dict[str, Json] = {
    "type": {"type": "thing"},
    "properties": {"properties": []},
    "required": {"properties": {"a": {"required": True}}},
    "no-target": {"properties": {"a": {"$ref": "#/$defs/a"}}},
    "no-anchor": {"properties": {"a": {"$ref": "#a"}}},
    "file": {"properties": {"a": {"$ref": "file:///etc/hostname"}}},
    "relative": {"$id": "http://localhost/", "properties": {"a": {"$ref": "other.json"}}},
    "dynamic": {"properties": {"a": {"$dynamicRef": "http://localhost/x#y"}}},
    "behind-a-reference": {
        "properties": {"a": {"$ref": "#/components/A"}},
        "components": {"A": {"$ref": "http://localhost/a"}},
    },
    "itself": {"$ref": "#"},
    "in-a-circle": {"anyOf": [{"not": {"$ref": "#"}}]},
    "many-branches": {"properties": {"a": {"$ref": "#/$defs/a0"}}, "$defs": BRANCHES | {"a40": {}}},
    "long-chain": {"properties": {"a": {"$ref": "#/$defs/a0"}}, "$defs": CHAIN | {"a3000": {}}},
}


@pytest.mark.parametrize("parameters", BAD.values(), ids=BAD)
def test_a_schema_that_cannot_be_used(parameters: Json) -> None:
    """It is the caller's fault, and the tool is named."""
    with pytest.raises(InvalidRequestError) as caught:
        tools({}, parameters)
    assert caught.value.param == "tools[1].function.parameters"
    assert caught.value.code is Code.INVALID_VALUE
    assert len(caught.value.message) < 400


def test_nothing_is_fetched() -> None:
    """A reference to another machine makes no connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        port = server.getsockname()[1]
        came: list[object] = []

        def wait() -> None:
            with suppress(TimeoutError):
                came.append(server.accept())

        thread = threading.Thread(target=wait)
        thread.start()
        for part in ({"$ref": f"http://127.0.0.1:{port}/a"}, {"$id": f"http://127.0.0.1:{port}/"}):
            with pytest.raises(InvalidRequestError):
                tools({"properties": {"a": part | {"items": {"$ref": "b.json"}}}})
        assert schema_of({"$schema": f"http://127.0.0.1:{port}/draft", "type": "object"}).fits({})
        thread.join()
        assert came == []


@pytest.mark.parametrize(
    ("draft", "parameters"),
    [
        ("http://json-schema.org/draft-04/schema#", {"exclusiveMinimum": True, "minimum": 5}),
        ("http://json-schema.org/draft-06/schema#", {"exclusiveMinimum": 5}),
        ("http://json-schema.org/draft-07/schema#", {"exclusiveMinimum": 5}),
        ("https://json-schema.org/draft/2019-09/schema", {"exclusiveMinimum": 5}),
        ("https://json-schema.org/draft/2020-12/schema", {"exclusiveMinimum": 5}),
        ("http://example.org/mine", {"exclusiveMinimum": 5}),
    ],
)
def test_drafts(draft: str, parameters: Json) -> None:
    """`$schema` says by which draft a schema is read; without a known one it is 2020-12."""
    schema = schema_of({"$schema": draft, "properties": {"a": parameters}})
    assert schema.fits({"a": 6})
    assert not schema.fits({"a": 5})


def test_a_draft_inside_changes_nothing() -> None:
    """A part that names another draft is judged like the rest, and a property may be so named."""
    inner = {"$schema": "http://json-schema.org/draft-04/schema#", "type": "string"}
    schema = schema_of({"properties": {"$schema": {"type": "integer"}, "a": inner}})
    assert schema.fits({"$schema": 1, "a": "x"})
    assert not schema.fits({"$schema": "x"})


def test_references_inside() -> None:
    """To definitions, to anchors, to the draft itself, and to the whole."""
    schema = schema_of(
        {
            "properties": {
                "a": {"$ref": "#/$defs/a"},
                "b": {"$ref": "#here"},
                "c": {"$ref": "http://json-schema.org/draft-07/schema#"},
                "d": {"$ref": "#"},
            },
            "$defs": {"a": {"type": "integer"}, "b": {"$anchor": "here", "type": "string"}},
        }
    )
    assert schema.fits({"a": 1, "b": "x", "c": {"type": "string"}, "d": {"a": 1}})
    for wrong in ({"a": "x"}, {"b": 1}, {"c": {"type": 5}}, {"d": {"d": {"a": "x"}}}):
        assert not schema.fits(wrong)


def test_steps_are_bounded() -> None:
    """A schema whose work doubles with each level of the value is given up."""
    parts = [
        {"type": "object", "properties": {"x": {"$ref": "#"}}, "required": [key]} for key in "qr"
    ]
    schema = schema_of({"anyOf": parts})
    value: Json = {"l": "[]"}
    for _ in range(60):
        value = {"x": value}
    start = time.monotonic()
    with pytest.raises(ArgumentsError, match="steps"):
        from_values(value, schema)
    arguments = '{"x":' * 60 + "{}" + "}" * 60
    assert restore_native(arguments, schema) == arguments
    assert time.monotonic() - start < 30


@pytest.mark.parametrize(
    "pattern",
    [
        r"^(a+)+$",
        r"^(?=a)(a+)+$",
        r"(.*a){20}",
        r"^(?!b)(a|aa)*$",
        r"^(?=.)((a|a)*)*$",
        r"(?!z)(?:(?:a?){20}){20}b",
        r"(?!z)^(?:a{1,9}){14}b$",
    ],
)
def test_patterns_are_bounded(pattern: str) -> None:
    """A pattern that would take Python's engine years takes no time."""
    start = time.monotonic()
    for length in (12, 30, 3000):
        matcher(pattern)("a" * length + "!")
    assert time.monotonic() - start < 5


def test_patterns() -> None:
    """Patterns are searched for; one that cannot be read here forbids nothing."""
    schema = schema_of(
        {"properties": {"a": {"pattern": "b+$"}}, "patternProperties": {"^x": {"type": "integer"}}}
    )
    assert schema.fits({"a": "abb", "x1": 1, "y": "z"})
    assert not schema.fits({"a": "abc"})
    assert not schema.fits({"x1": "z"})
    assert matcher(r"^(?!a)b")("b")
    assert matcher(r"^(?!a)b")("a")  # look-around: not checked
    assert matcher(r"(?<name>a)\k<name>(")("anything")


UNIQUE: Json = {"properties": {"v": {"type": "array", "uniqueItems": True}}}


#: Items → whether no two of them are equal.
ITEMS: list[tuple[list[Any], bool]] = [
    ([1, True, "1", None, [1], {"a": 1}], True),
    ([1, 1.0], False),
    ([{"a": 1, "b": [2]}, {"b": [2], "a": 1}], False),
    ([{"a": 0}, {"a": False}], True),
    ([[], {}], True),
]


@pytest.mark.parametrize(("items", "fits"), ITEMS)
def test_unique_items(items: list[Any], *, fits: bool) -> None:
    """Items are compared as JSON: numbers by value, objects whatever their order."""
    assert schema_of(UNIQUE).fits({"v": items}) is fits


_BRANCHES: list[Json] = [{"required": [str(number)]} for number in range(500)]
_INNER: Json = {"contains": {"contains": {"contains": {"const": 1}}}}
_EMPTY: list[Json] = [{} for _ in range(2000)]

#: Name → schema and value that would take very long if nothing bounded it.
LONG: dict[str, tuple[Json, Any]] = {
    "unique": (UNIQUE, [{"a": number} for number in range(5000)]),
    "branches": ({"properties": {"v": {"items": {"anyOf": _BRANCHES}}}}, _EMPTY),
    "contains": ({"properties": {"v": _INNER}}, [[[0] * 100] * 100] * 20),
}


@pytest.mark.parametrize(("schema", "value"), LONG.values(), ids=LONG)
def test_what_is_judged_is_bounded(schema: Json, value: Any) -> None:
    """No schema and no value hold up the gateway for more than a moment."""
    tools = ToolSet([{"type": "function", "function": {"name": "f", "parameters": schema}}])
    tool = tools.get("f")
    assert tool is not None
    start = time.monotonic()
    with suppress(ArgumentsError):
        from_values({"v": value}, tool.schema)
    assert time.monotonic() - start < 5
