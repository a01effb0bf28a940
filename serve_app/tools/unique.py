"""`uniqueItems` of a caller's schema, in linear time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from jsonschema import exceptions

from serve_app.runs import Json


def judge_unique(_validator: Any, unique: Any, instance: Any, _schema: Any) -> Iterator[Any]:
    """`uniqueItems`, in linear time; the library compares each item with each other one."""
    if unique and isinstance(instance, list):
        items = cast("list[object]", instance)
        if len({_comparable(item) for item in items}) < len(items):
            yield exceptions.ValidationError("the items are not unique")


def _comparable(value: object) -> object:
    """What two JSON values have in common exactly if they are equal: 1 is 1.0 and not true."""
    if isinstance(value, dict):
        pairs = cast("Json", value).items()
        return ("object", frozenset((key, _comparable(item)) for key, item in pairs))
    if isinstance(value, list):
        return ("array", tuple(_comparable(item) for item in cast("list[object]", value)))
    return ("boolean", value) if isinstance(value, bool) else value
