"""Double encoding of native arguments, undone by the schema and by nothing else."""

from __future__ import annotations

import json

import pytest

from serve_app.runs import Json
from serve_app.tools.restore import restorable, restore_native
from serve_app.tools.schema import Schema

LIST: Json = {"type": "array", "items": {"type": "string"}}
HOLDING: Json = {"type": "object", "properties": {"l": LIST}}


def one(schema: Json | bool) -> Schema:
    defs: Json = {"l": LIST, "m": {"$ref": "#/$defs/l"}, "node": {"type": "object"}}
    return Schema({"type": "object", "properties": {"v": schema}, "$defs": defs})


RESTORED: dict[str, tuple[Json, str, str]] = {
    "array": (LIST, '"[\\"a\\"]"', '["a"]'),
    "object": ({"type": "object"}, '"{\\"a\\": 1}"', '{"a": 1}'),
    "reference": ({"$ref": "#/$defs/m"}, '"[]"', "[]"),
    "all-of": ({"allOf": [{"$ref": "#/$defs/l"}]}, '"[]"', "[]"),
    "nullable-type": ({"type": ["array", "null"]}, '"[]"', "[]"),
    "nullable": ({"type": "array", "nullable": True}, '"[]"', "[]"),
    "nullable-union": ({"anyOf": [LIST, {"type": "null"}]}, '"[]"', "[]"),
    "one-of": ({"oneOf": [LIST, {"type": "object"}]}, '"{}"', "{}"),
    "enum": ({"enum": [[1], None]}, '"[1]"', "[1]"),
    "const": ({"const": {"a": 1}}, '"{\\"a\\": 1}"', '{"a": 1}'),
    "no-type-but-items": ({"items": {}}, '"[]"', "[]"),
    "no-type-but-properties": ({"properties": {}}, '"{}"', "{}"),
    "in-object": (HOLDING, '{"l": "[]"}', '{"l": []}'),
    "in-object-in-text": (HOLDING, '"{\\"l\\": \\"[]\\"}"', '{"l": []}'),
    "in-array": ({"type": "array", "items": {"type": "object"}}, '["{}", {}]', "[{}, {}]"),
    "in-tuple": ({"type": "array", "prefixItems": [{}, LIST]}, '["[]", "[]"]', '["[]", []]'),
    "additional": ({"type": "object", "additionalProperties": LIST}, '{"x": "[]"}', '{"x": []}'),
    "by-pattern": (
        {"type": "object", "patternProperties": {"^x": LIST}},
        '{"x": "[]", "y": "[]"}',
        '{"x": [], "y": "[]"}',
    ),
    "in-the-branch-meant": (
        {
            "anyOf": [
                {"type": "object", "properties": {"k": {"const": 1}, "l": LIST}},
                {"type": "object", "properties": {"k": {"const": 2}}, "required": ["q"]},
            ]
        },
        '{"k": 1, "l": "[]"}',
        '{"k": 1, "l": []}',
    ),
}


@pytest.mark.clause("TOOL-5")
@pytest.mark.parametrize(("schema", "came", "restored"), RESTORED.values(), ids=RESTORED)
def test_restored(schema: Json, came: str, restored: str) -> None:
    """What the schema says is an array or object, and nothing else, is one."""
    whole = one(schema)
    assert restorable(whole)
    assert json.loads(restore_native(f'{{"v":{came}}}', whole)) == {"v": json.loads(restored)}


KEPT: dict[str, tuple[Json | bool, str]] = {
    "string": ({"type": "string"}, '"[1]"'),
    "union-with-string": ({"anyOf": [LIST, {"type": "string"}]}, '"[]"'),
    "untyped": ({}, '"[]"'),
    "integer": ({"type": "integer"}, '"5"'),
    "no-json": (LIST, '"a, b"'),
    "other-json": (LIST, '"{}"'),
    "scalar-json": (LIST, '"5"'),
    "python": (LIST, "\"['a']\""),
    "array-already": (LIST, '[ "a",1 ]'),
    "wrong-items": (LIST, "[1]"),
    "both-branches": (
        {"anyOf": [HOLDING, {"type": "object", "properties": {"l": {"type": "string"}}}]},
        '{"l": "[]"}',
    ),
    "nothing": (False, '"[]"'),
}


@pytest.mark.clause("TOOL-5")
@pytest.mark.parametrize(("schema", "came"), KEPT.values(), ids=KEPT)
def test_kept(schema: Json | bool, came: str) -> None:
    """All else stays as it came, byte for byte."""
    arguments = f'{{ "v":{came},"é" : 1.50 }}'
    assert restore_native(arguments, one(schema)) == arguments


@pytest.mark.clause("TOOL-4", "TOOL-5")
@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ("", "{}"),
        (" \n", "{}"),
        ('"{\\"v\\": \\"x\\"}"', '{"v": "x"}'),
        ('"x"', '"x"'),
        ('"[1]"', '"[1]"'),
        ("[1]", "[1]"),
        ('{"v": ', '{"v": '),
        ('{"v": NaN}', '{"v": NaN}'),
        ("[" * 5000, "[" * 5000),
    ],
)
def test_the_whole(arguments: str, given: str) -> None:
    """Arguments are an object, also one inside a string; none at all are an empty one."""
    assert restore_native(arguments, one({"type": "string"})) == given
    assert restore_native(arguments, None) == given


def test_where_nothing_can_be_restored() -> None:
    """Arguments of such tools need not wait."""
    assert not restorable(one({"type": "string"}))
    assert not restorable(one({}))
    tree = {"type": "object", "properties": {"v": {"type": "string"}, "w": {"$ref": "#"}}}
    assert restorable(Schema(tree))


def test_a_tree_is_restored_as_deep_as_it_goes() -> None:
    """A schema may refer to itself."""
    tree = Schema({"type": "object", "properties": {"w": {"$ref": "#"}}})
    assert restore_native('{"w": "{\\"w\\": \\"{}\\"}"}', tree) == '{"w": {"w": {}}}'
