"""Arguments of calls in text, made what the schema describes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from serve_app.runs import Json
from serve_app.tools.arguments import ArgumentsError, from_texts, from_values, unwrapped
from serve_app.tools.commands import needs_shell
from serve_app.tools.schema import Schema

STRING: Json = {"type": "string"}
ARGV: Json = {
    "type": "object",
    "properties": {"command": STRING, "args": {"type": "array", "items": STRING}},
    "required": ["command", "args"],
}
LOOSE: Json = ARGV | {"required": ["command"]}


def one(schema: Json, **more: Any) -> Schema:
    return Schema({"type": "object", "properties": {"v": schema}, **more})


def commands(*items: Json, **more: Any) -> Schema:
    item = items[0] if len(items) == 1 else {"anyOf": list(items)}
    inner = {"type": "array", "items": item}
    return Schema({"type": "object", "properties": {"commands": inner}, **more})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a", "a"),
        ("\na\n", "a"),
        ("\r\na\r\n", "a"),
        ("\n\na\n\n", "\na\n"),
        ("  a", "  a"),
        ("a\n", "a"),
        ("\n", ""),
        ("", ""),
    ],
)
def test_layout(text: str, value: str) -> None:
    """One line break on each side is layout, all else is the value's own."""
    assert unwrapped(text) == value


TEXTS: list[tuple[Json, str, Any]] = [
    (STRING, "5", "5"),
    (STRING, "null", "null"),
    (STRING, '{"a": 1}', '{"a": 1}'),
    (STRING, '"a"', "a"),
    (STRING, '"a" b', '"a" b'),
    (STRING, "'a'", "'a'"),
    ({"enum": ["a", "b"]}, "a", "a"),
    ({"enum": ["a", "b"]}, '"b"', "b"),
    ({"const": "a"}, "a", "a"),
    ({"enum": [1, "1"]}, "1", 1),
    ({"type": "integer"}, " 5 ", 5),
    ({"type": "number"}, "1e2", 100.0),
    ({"type": "boolean"}, "True", True),
    ({"type": ["integer", "string"]}, "5", 5),
    ({"type": ["integer", "string"]}, "five", "five"),
    ({"type": ["string", "null"]}, "null", None),
    ({"type": ["string", "null"]}, "None", None),
    ({"type": ["string", "null"]}, "(1, 2)", "(1, 2)"),
    ({"type": "string", "nullable": True}, "null", None),
    ({"anyOf": [STRING, {"type": "null"}]}, "null", None),
    ({"type": "array"}, "['a', 1,]", ["a", 1]),
    ({"type": "array", "items": STRING}, '"[\\"a\\"]"', ["a"]),
    ({"type": "array", "items": {"type": "object"}}, '["{}"]', [{}]),
    ({"type": "object"}, "{'a': True}", {"a": True}),
    ({"$ref": "#/$defs/n"}, "5", 5),
    ({}, "5", 5),
    ({}, "5 apples", "5 apples"),
    ({}, "0x1F", "0x1F"),
    ({"allOf": [STRING, {"minLength": 1}]}, "5", "5"),
]


@pytest.mark.clause("TEXT-1", "TEXT-2")
@pytest.mark.parametrize(("schema", "text", "value"), TEXTS)
def test_texts(schema: Json, text: str, value: Any) -> None:
    """JSON, then a Python literal, then text, as the schema has room."""
    told = json.loads(from_texts({"v": text}, one(schema, **{"$defs": {"n": {"type": "integer"}}})))
    assert told == {"v": value}
    assert type(told["v"]) is type(value)


@pytest.mark.clause("TEXT-3")
@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "integer"}, "4.5"),
        ({"type": "integer"}, ""),
        ({"type": "boolean"}, "yes"),
        ({"type": "array", "items": {"type": "integer"}}, "[1, 'x']"),
        ({"type": "array"}, "a, b"),
        ({"enum": ["a"]}, "b"),
        ({"type": "string", "pattern": "^a+$"}, "b"),
        ({"type": "number"}, "1e999"),
        ({"type": "number", "multipleOf": 0.5}, "9" * 400),
        ({"type": "integer"}, "9" * 5000),
        (False, "a"),
    ],
)
def test_texts_that_do_not_fit(schema: Json, text: str) -> None:
    """A value is not bent until it fits."""
    with pytest.raises(ArgumentsError):
        from_texts({"v": text}, one(schema))


def test_values_keep_their_types() -> None:
    """A literal says its type; only text that hides an array or object is read."""
    schema = one({"type": ["array", "integer"]})
    assert from_values({"v": "[1]"}, schema) == '{"v": [1]}'
    assert from_values({"v": "['a']"}, schema) == '{"v": ["a"]}'
    with pytest.raises(ArgumentsError):
        from_values({"v": "5"}, schema)


def test_arguments_of_a_union() -> None:
    """A key that only branches of the schema know is read by what they say."""
    branches = [
        {"properties": {"kind": {"const": kind}, "v": value}, "required": ["kind"]}
        for kind, value in (("n", {"type": "integer"}), ("s", STRING))
    ]
    schema = Schema({"type": "object", "oneOf": branches})
    assert from_texts({"kind": "n", "v": "5"}, schema) == '{"kind": "n", "v": 5}'
    assert from_texts({"kind": "s", "v": "a"}, schema) == '{"kind": "s", "v": "a"}'


@pytest.mark.clause("ARGS-3")
def test_hints_are_dropped() -> None:
    """At the top where the schema does not name them; in commands too."""
    written = {"v": "a", "description": "d", "runInTerminal": "true"}
    assert from_texts(written, one(STRING, additionalProperties=False)) == '{"v": "a"}'
    kept = Schema({"type": "object", "properties": {"description": STRING}})
    assert from_values({"description": "d"}, kept) == '{"description": "d"}'
    hinted: Json = {"command": "a", "args": [], "description": "d", "runInTerminal": True}
    closed = commands(ARGV | {"additionalProperties": False})
    assert from_values({"commands": [hinted]}, closed) == from_values(
        {"commands": [argv("a")]}, closed
    )
    naming = ARGV | {"properties": {**ARGV["properties"], "description": STRING}}
    assert "description" in from_values({"commands": [hinted]}, commands(naming))


def argv(command: str, *args: str) -> Json:
    return {"command": command, "args": list(args)}


COMMANDS: list[tuple[Schema, Any, Any]] = [
    (commands(STRING), [argv("git", "status")], ["git status"]),
    (commands(STRING), [argv("a", "b c", "|")], ["a 'b c' '|'"]),
    (commands(STRING), [argv("my tool", "-v")], ["my tool -v"]),
    (commands(STRING), [{"command": "cd /srv && make"}], ["cd /srv && make"]),
    (commands(STRING), [{"command": "npm test", "args": None}], ["npm test"]),
    (commands(STRING), [{"command": "sleep", "args": [5]}], ["sleep 5"]),
    (commands(STRING), "ls -la", ["ls -la"]),
    (commands(STRING), {"command": "ls"}, ["ls"]),
    (commands(STRING), '["ls"]', ["ls"]),
    (commands(ARGV), ["git log -1", "ls"], [argv("git", "log", "-1"), argv("ls")]),
    (commands(ARGV), [{"command": "git status"}], [argv("git", "status")]),
    (commands(ARGV), [argv("git status", "-s")], [argv("git status", "-s")]),
    (commands(ARGV), "ls", [argv("ls")]),
    (commands(ARGV), ['{"command": "ls", "args": []}'], [argv("ls")]),
    (commands(LOOSE), ["ls"], [argv("ls")]),
    (commands(LOOSE), [{"command": "npm test"}], [{"command": "npm test"}]),
    (commands(STRING, ARGV), ["ls -a", "cd b"], [argv("ls", "-a"), "cd b"]),
    (commands(STRING, ARGV), [{"command": "cd b"}], ["cd b"]),
    (commands({}), ["ls -a"], ["ls -a"]),
    (commands({"type": "object"}), [{"x": 1}], [{"x": 1}]),
    (commands({"type": "integer"}), [1], [1]),
]


@pytest.mark.clause("ARGS-1", "ARGS-2", "ARGS-4")
@pytest.mark.parametrize(("schema", "written", "fitted"), COMMANDS)
def test_commands(schema: Schema, written: Any, fitted: Any) -> None:
    """A command has the shape that the schema has room for, where it means the same."""
    assert json.loads(from_values({"commands": written}, schema)) == {"commands": fitted}


@pytest.mark.clause("ARGS-1", "ARGS-2", "ARGS-4")
def test_commands_of_one_shape() -> None:
    """Where only lists of one shape fit, what needs a shell decides for all."""
    lists = [{"type": "array", "items": item} for item in (STRING, ARGV)]
    schema = Schema({"type": "object", "properties": {"commands": {"anyOf": lists}}})
    for written, fitted in (
        (["git status", "cd a && ls"], ["git status", "cd a && ls"]),
        (["git status"], [argv("git", "status")]),
    ):
        assert json.loads(from_values({"commands": written}, schema)) == {"commands": fitted}


UNFIT: list[tuple[Schema, Any]] = [
    (commands(ARGV), ["cd a && ls"]),
    (commands(ARGV), [{"command": "a | b"}]),
    (commands(ARGV), [""]),
    (commands(STRING), [{"command": "a", "args": [], "cwd": "/srv"}]),
    (commands(STRING), [{"command": "a", "args": "b"}]),
    (commands(STRING), [{"args": ["b"]}]),
]


@pytest.mark.clause("ARGS-2", "ARGS-4")
@pytest.mark.parametrize(("schema", "written"), UNFIT)
def test_commands_that_do_not_fit(schema: Schema, written: Any) -> None:
    """No shell is invented, no shell syntax split, nothing thrown away."""
    with pytest.raises(ArgumentsError):
        from_values({"commands": written}, schema)


def test_commands_that_may_be_one_line() -> None:
    """A schema with room for one string has it as it is."""
    either = {"anyOf": [STRING, {"type": "array", "items": STRING}]}
    schema = Schema({"type": "object", "properties": {"commands": either}})
    assert from_values({"commands": "ls"}, schema) == '{"commands": "ls"}'


@pytest.mark.clause("ARGS-4")
def test_what_needs_a_shell() -> None:
    """Builtins, operators, quotes, expansions and assignments do; plain words do not."""
    for line in (
        "cd a", "command -v x", "test -f x", "a && b", "a || b", "a; b", "a | b", "a > b", "a < b",
        "a &", 'a "b"', "a 'b'", "echo $HOME", "ls *.py", "ls ?", "ls [ab]", "a `b`", "a $(b)",
        "A=1 b", "~/x", "ls ~", "a\\ b", "a {b,c}", "a # b", "a\nb", ". x", "source x",
        "export A=1", "[ -f x ]", "for x", "", " ",
    ):  # fmt: skip
        assert needs_shell(line), line
    for line in ("ls", "git log --oneline HEAD~1", "a=b.py --x=1"[3:], "go test ./...", "echo a!"):
        assert not needs_shell(line), line
