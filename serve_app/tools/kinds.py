"""Which JSON types a schema accepts at a place, and which subschemas hold for a part of a value."""

from __future__ import annotations

from typing import Final, NamedTuple, cast

from serve_app.runs import Json
from serve_app.tools.schema import Node, Schema, conjuncts, members, unions

ALL: Final = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
STRUCTURED: Final = frozenset({"array", "object"})

_OBJECT_WORDS: Final = frozenset({"properties", "patternProperties", "required"})
_ARRAY_WORDS: Final = frozenset({"items", "prefixItems"})
_KINDS: Final[dict[type, str]] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
    type(None): "null",
}


class Spot(NamedTuple):
    """A place in an arguments object: what holds there, and branches of which one has to."""

    always: list[Node]
    either: list[Node]

    def kinds(self) -> frozenset[str]:
        """The JSON types that may stand here."""
        found = ALL
        for node in self.always:
            found &= accepted(node)
        if self.either:
            found &= frozenset[str]().union(*(accepted(node) for node in self.either))
        return found

    def accepts(self, schema: Schema, value: object) -> bool:
        """True where a value may stand here."""
        if not all(schema.fits(value, node) for node in self.always):
            return False
        return not self.either or any(schema.fits(value, node) for node in self.either)


def kind(value: object) -> str:
    """JSON's name for the type of a value."""
    return _KINDS[type(value)]


def accepted(node: Node) -> frozenset[str]:
    """The JSON types that a subschema accepts."""
    return _accepted(node, {})


def _accepted(node: Node, known: dict[int, frozenset[str]]) -> frozenset[str]:
    key = id(node.contents)
    if isinstance(node.contents, bool) or key not in known:
        known[key] = ALL
        found = ALL
        for part in conjuncts(node):
            found &= _own(part)
            for branches in unions(part):
                found &= frozenset[str]().union(*(_accepted(one, known) for one in branches))
        known[key] = found
    return known[key]


def spot(node: Node, key: str) -> Spot:
    """What a schema says of one property: in any case, and in the branches of its unions."""
    always: list[Node] = []
    either: list[Node] = []
    for part in conjuncts(node):
        always += members(part, key)
        for branches in unions(part):
            for branch in branches:
                either += [one for inner in conjuncts(branch) for one in members(inner, key)]
    return Spot(always, either)


def named(node: Node) -> frozenset[str]:
    """The properties that a subschema names, in any of its branches."""
    found: set[str] = set()
    for part in in_place(node):
        if not isinstance(part.contents, bool):
            properties = part.contents.get("properties")
            found.update(cast("Json", properties) if isinstance(properties, dict) else ())
    return frozenset(found)


def in_place(node: Node) -> list[Node]:
    """A subschema and all that may hold with it, in all branches of its unions, each once."""
    found: dict[int, Node] = {}
    waiting = [node]
    while waiting:
        here = waiting.pop()
        if id(here.contents) in found:
            continue
        found[id(here.contents)] = here
        for part in conjuncts(here):
            waiting.append(part)
            waiting += [branch for branches in unions(part) for branch in branches]
    return list(found.values())


def _own(node: Node) -> frozenset[str]:
    """What one subschema says by its own keywords."""
    contents = node.contents
    if isinstance(contents, bool):
        return ALL if contents else frozenset()
    found = _typed(contents)
    values: list[object] = []
    if isinstance(contents.get("enum"), list):
        values = cast("list[object]", contents["enum"])
    elif "const" in contents:
        values = [contents["const"]]
    return found & frozenset(kind(value) for value in values) if values else found


def _typed(contents: Json) -> frozenset[str]:
    """What `type` says, or what the other keywords make plain where there is none."""
    said = contents.get("type")
    types = cast("list[object]", said) if isinstance(said, list) else [said]
    found = {one for one in types if isinstance(one, str) and one in ALL}
    if not found:
        if contents.keys() & _OBJECT_WORDS:
            return frozenset({"object"})
        return frozenset({"array"}) if contents.keys() & _ARRAY_WORDS else ALL
    if "number" in found:
        found.add("integer")
    if contents.get("nullable") is True:
        found.add("null")
    return frozenset(found)
