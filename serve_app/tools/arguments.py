"""What a model wrote as arguments, made the arguments object that the tool's schema describes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final, cast

from serve_app.runs import Json
from serve_app.tools.commands import COMMANDS, HINTS, fit_commands
from serve_app.tools.kinds import Spot, named, spot
from serve_app.tools.literals import LiteralError, read_literal
from serve_app.tools.restore import read_json, restore_at, write_json
from serve_app.tools.schema import Schema, TooManyStepsError, limited

_TEXT_ONLY: Final = frozenset({"string"})
_WORDS: Final = frozenset({"True", "False", "None"})


class ArgumentsError(ValueError):
    """The arguments are not what the schema wants; the text says why."""


def from_texts(parameters: Mapping[str, str], schema: Schema) -> str:
    """The arguments of a call whose values are JSON or plain text.

    Raises:
        ArgumentsError: They do not satisfy the schema.
    """
    size = sum(map(len, parameters.values()))
    return _checked(parameters.items(), schema, _from_text, size=size)


def from_values(values: Mapping[str, object], schema: Schema) -> str:
    """The arguments of a call whose values are literals.

    Raises:
        ArgumentsError: They do not satisfy the schema.
    """
    return _checked(values.items(), schema, _from_value, size=len(str(values)))


def unwrapped(text: str) -> str:
    """A value less the layout around it: one line break on each side; the rest is the value's."""
    if text.startswith("\n"):
        text = text[1:]
    elif text.startswith("\r\n"):
        text = text[2:]
    if text.endswith("\r\n"):
        return text[:-2]
    return text[:-1] if text.endswith("\n") else text


def _checked(
    items: Iterable[tuple[str, object]],
    schema: Schema,
    convert: Callable[[object, Spot, Schema, str], object],
    *,
    size: int,
) -> str:
    """The arguments as JSON text, each value converted, the whole checked."""
    declared = named(schema.root)
    arguments: Json = {}
    try:
        with limited(size):
            for key, written in items:
                if key not in HINTS or key in declared:
                    arguments[key] = convert(written, spot(schema.root, key), schema, key)
            fault = schema.fault(arguments)
        if fault is None:
            return write_json(arguments)
    except TooManyStepsError:
        fault = "they take too many steps"
    except ValueError:  # a number that JSON cannot hold
        fault = "they cannot be written as JSON"
    raise ArgumentsError(fault)


def _from_text(written: object, place: Spot, schema: Schema, key: str) -> object:
    """The value of a text: JSON, then a Python literal, then the text, as the schema has room."""
    text = unwrapped(str(written))
    kinds = place.kinds()
    if kinds and kinds <= _TEXT_ONLY:
        return _quoted(text, place, schema)
    candidates = list(_readings(text, roomy="string" in kinds))
    for candidate in candidates:
        value = _fitted(candidate, place, schema, key)
        if place.accepts(schema, value):
            return value
    value = _fitted(text, place, schema, key)
    if place.accepts(schema, value):
        return value
    # Nothing fits: the check of the whole will say so of the likeliest reading.
    return _fitted(candidates[0], place, schema, key) if candidates else value


def _from_value(written: object, place: Spot, schema: Schema, key: str) -> object:
    """The value of a literal."""
    return _fitted(written, place, schema, key)


def _quoted(text: str, place: Spot, schema: Schema) -> str:
    """Text for a string; a whole JSON string is what it says, without its quotes."""
    if text.strip().startswith('"'):
        try:
            value = read_json(text)
        except ValueError:
            return text
        if isinstance(value, str) and place.accepts(schema, value):
            return value
    return text


def _readings(text: str, *, roomy: bool) -> Iterable[object]:
    """The values that a text may mean.

    Args:
        text: What the model wrote.
        roomy: True where plain text fits too: then only what is plainly Python is read as such.
    """
    with suppress(ValueError):
        yield read_json(text)
    bare = text.strip()
    if roomy and bare not in _WORDS and not bare.startswith(("[", "{")):
        return
    try:
        value = read_literal(bare)
    except LiteralError:
        return
    if not isinstance(value, str):
        yield cast("object", value)


def _fitted(value: object, place: Spot, schema: Schema, key: str) -> object:
    """A value with its commands in shape and its double encoding undone."""
    value = restore_at(value, place, schema, _read_any)
    if key == COMMANDS:
        value = fit_commands(value, place, lambda one: place.accepts(schema, one))
    return value


def _read_any(text: str) -> object:
    """The value of a text in JSON or, failing that, in Python.

    Raises:
        ValueError: It is neither.
    """
    try:
        return read_json(text)
    except ValueError:
        return read_literal(text)
