"""Literals as models write them."""

from __future__ import annotations

from typing import Any

import pytest

from serve_app.tools.literals import LiteralError, read_keywords, read_literal

VALUES: list[tuple[str, Any]] = [
    ("True", True),
    ("true", True),
    ("false", False),
    ("None", None),
    ("null", None),
    ("0", 0),
    ("-4", -4),
    ("+5", 5),
    ("0x1F", 31),
    ("1_000", 1000),
    ("2.5e3", 2500.0),
    (".5", 0.5),
    ("5.", 5.0),
    ("'a'", "a"),
    ('"it\'s"', "it's"),
    ("''", ""),
    ("'a' \"b\"", "ab"),
    ('"""a "b"\n"""', 'a "b"\n'),
    ("'''it's'''", "it's"),
    ("'line\nline'", "line\nline"),
    (r"'\n\t\r\b\f\a\v\\\'\"'", "\n\t\r\b\f\a\v\\'\""),
    (r"'\x41\101\u00e9\U0001F324'", "AAé\U0001f324"),
    (r'"\ud83c\udf24"', "\U0001f324"),
    (r'"\/"', "/"),
    (r"'\/\d'", r"\/\d"),
    ("'a\\\nb'", "ab"),
    ("[]", []),
    ("[1, 'a', [True],]", [1, "a", [True]]),
    ("(1, 2)", [1, 2]),
    ("(1,)", [1]),
    ("(1)", 1),
    ("()", []),
    ("{}", {}),
    ("{'a': 1, \"b\": {'c': None,},}", {"a": 1, "b": {"c": None}}),
    (" \n[ 1 ] ", [1]),
]


@pytest.mark.clause("TEXT-1")
@pytest.mark.parametrize(("text", "value"), VALUES)
def test_values(text: str, value: Any) -> None:
    """Python's and JSON's ways of writing, mixed."""
    read = read_literal(text)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Rome",
        "truely",
        "007",
        "1 2",
        "1e999",
        "9" * 5000,
        "-",
        "'a",
        "[1",
        "[1 2]",
        "[,]",
        "{1: 2}",
        "{'a' 1}",
        "{'a': 1 'b': 2}",
        "{'a'}",
        "{a: 1}",
        "b'a'",
        "f'a'",
        "x=1",
        "__import__('os')",
        r"'\ud83c'",
        r"'\UFFFFFFFF'",
        "[" * 100 + "]" * 100,
        '"""a""',
    ],
)
def test_no_values(text: str) -> None:
    """Names, code, broken strings and numbers that JSON cannot hold."""
    with pytest.raises(LiteralError):
        read_literal(text)


def test_keywords() -> None:
    """Keys, some with dashes, a comma at the end, none at all."""
    assert read_keywords("") == {}
    assert read_keywords("a=1, b-c = 'x',") == {"a": 1, "b-c": "x"}


@pytest.mark.parametrize("text", ["1", "a", "a=", "a=1 b=2", "a=1, a=2", "a==1", ",", "a=1,,b=2"])
def test_no_keywords(text: str) -> None:
    """Positional values, missing ones, and a key that stands twice."""
    with pytest.raises(LiteralError):
        read_keywords(text)
