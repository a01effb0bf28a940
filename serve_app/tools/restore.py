"""Arrays and objects that came as JSON text where the schema has no room for text."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, cast

from pydantic_core import from_json

from serve_app.runs import Json
from serve_app.tools.kinds import STRUCTURED, Spot, accepted, kind
from serve_app.tools.schema import (
    Node,
    Schema,
    TooManyStepsError,
    conjuncts,
    count_step,
    element,
    limited,
    members,
    subschemas,
    unions,
)

#: Reads a string's text as a value; raises `ValueError` where it is none.
Reader = Callable[[str], object]

_MAX_DEPTH: Final = 64


def read_json(text: str) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: It is none, or not one that every reader of JSON takes.
    """
    return from_json(text, allow_inf_nan=False)


def write_json(value: object) -> str:
    """A value as JSON text."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def restorable(schema: Schema) -> bool:
    """True where an array or object inside the arguments could come as text and be restored."""
    return any(
        node.contents is not schema.root.contents and _no_text(accepted(node))
        for node in subschemas(schema.root)
    )


def restore_native(arguments: str, schema: Schema | None) -> str:
    """Arguments of a native call, with what was encoded twice decoded once.

    Where there is nothing to restore the text stays as it came, byte for byte.

    Args:
        arguments: The text of the arguments. None at all means that there are none.
        schema: The tool's parameters; `None` where nothing is known of the tool.
    """
    if not arguments.strip():
        return "{}"
    try:
        value = read_json(arguments)
        whole = read_json(value) if isinstance(value, str) else value
    except ValueError:
        return arguments
    if not isinstance(whole, dict):
        return arguments
    restored: object = cast("Json", whole)
    try:
        if schema is not None:
            with limited(len(arguments)):
                restored = restore(restored, schema.root, schema, read_json)
        return arguments if restored is value else write_json(restored)
    except (TooManyStepsError, ValueError):
        return arguments


def restore_at(value: object, place: Spot, schema: Schema, reader: Reader) -> object:
    """A value for one property, restored by all that holds there."""
    if isinstance(value, str):
        if not _no_text(place.kinds()):
            return value
        value = _decoded(value, place.kinds(), reader)
    for node in place.always:
        value = restore(value, node, schema, reader)
    return _by_branch(value, place.either, schema, reader, 0) if place.either else value


def restore(value: object, node: Node, schema: Schema, reader: Reader, depth: int = 0) -> object:
    """A value with every array and object in it that came as text; itself where there is none."""
    if depth > _MAX_DEPTH:
        return value
    if isinstance(value, str):
        kinds = accepted(node)
        if not _no_text(kinds):
            return value
        value = _decoded(value, kinds, reader)
    if not isinstance(value, list | dict):
        return value
    value = cast("object", value)
    for part in conjuncts(node):
        value = _inside(value, part, schema, reader, depth)
        for branches in unions(part):
            value = _by_branch(value, branches, schema, reader, depth)
    return value


def _no_text(kinds: frozenset[str]) -> bool:
    """True where an array or an object may stand, but no string."""
    return "string" not in kinds and bool(kinds & STRUCTURED)


def _decoded(text: str, kinds: frozenset[str], reader: Reader) -> object:
    """The array or object that a text holds; the text where it holds none that fits."""
    try:
        value = reader(text)
    except ValueError:
        return text
    return value if kind(value) in kinds & STRUCTURED else text


def _inside(value: object, node: Node, schema: Schema, reader: Reader, depth: int) -> object:
    """A value whose parts are restored by one subschema's own keywords."""
    changed = False
    if isinstance(value, dict):
        fields = dict(cast("Json", value))
        for key, part in fields.items():
            for below in members(node, key):
                new = restore(fields[key], below, schema, reader, depth + 1)
                changed = changed or new is not part
                fields[key] = new
        return fields if changed else cast("Json", value)
    if isinstance(value, list):
        items = list(cast("list[object]", value))
        for index, part in enumerate(items):
            for below in element(node, index):
                new = restore(items[index], below, schema, reader, depth + 1)
                changed = changed or new is not part
                items[index] = new
        return items if changed else cast("list[object]", value)
    return value


def _by_branch(
    value: object, branches: list[Node], schema: Schema, reader: Reader, depth: int
) -> object:
    """A value restored by that branch of a union which it is meant for, where that is plain."""
    fitting = [branch for branch in branches if kind(value) in accepted(branch)]
    if len(fitting) == 1:
        return restore(value, fitting[0], schema, reader, depth + 1)
    if any(schema.fits(value, branch) for branch in fitting):
        return value
    for branch in fitting:
        count_step()
        new = restore(value, branch, schema, reader, depth + 1)
        if new is not value and schema.fits(new, branch):
            return new
    return value
