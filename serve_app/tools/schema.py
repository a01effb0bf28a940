"""A caller's JSON Schema, compiled: whether values satisfy it, and what stands at a place in it.

1. A reference is resolved inside the schema or not at all; nothing is ever fetched.
2. References are counted while a value is judged: a few lines of schema can ask for more steps
   than a machine takes in a year.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, NamedTuple, Protocol, cast

from jsonschema import FormatChecker, exceptions, validators
from jsonschema.protocols import Validator
from jsonschema_specifications import REGISTRY  # pyright: ignore[reportMissingTypeStubs]
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable, Unretrievable
from referencing.jsonschema import (
    DRAFT3,
    DRAFT4,
    DRAFT6,
    DRAFT7,
    DRAFT201909,
    DRAFT202012,
)

from serve_app.runs import Json
from serve_app.tools.patterns import matcher
from serve_app.tools.unique import judge_unique

#: Steps that a call's arguments may take whatever their length: keywords judged, references
#: followed, branches tried. A branch that does not fit can take a quarter of a millisecond.
_FREE_STEPS: Final = 2_000
#: Characters of arguments that earn one step more.
_CHARS_A_STEP: Final = 4
#: References that may stand one behind the other at one place.
_MAX_CHAIN: Final = 32
#: Subschemas that may have to be judged at one place, those of all branches together.
_MAX_EXPANSE: Final = 2_000
#: Subschemas that a schema may have.
_MAX_NODES: Final = 5_000

_steps: ContextVar[list[int]] = ContextVar("_steps")
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_SAME_PLACE: Final = ("not", "if", "then", "else")
_DATA_KEYWORDS: Final = frozenset({"const", "enum", "default", "examples", "example"})


class SchemaFaultError(ValueError):
    """The schema cannot be used; the text says why, as the end of a sentence."""


class Resolver(Protocol):
    """What finds the target of a reference, from where the reference stands."""

    def lookup(self, ref: str) -> Any:
        """The target of a reference, and the resolver of the references in it."""
        ...

    def in_subresource(self, subresource: Any) -> Any:
        """The resolver of the references in a part."""
        ...


class Node(NamedTuple):
    """One subschema, and the resolver of its references."""

    contents: Json | bool
    resolver: Resolver


class TooManyStepsError(Exception):
    """A value asks for more steps than are given to it."""


@contextmanager
def limited(size: int) -> Generator[None]:
    """Bound all that is done with arguments of this many characters."""
    token = _steps.set([_FREE_STEPS + size // _CHARS_A_STEP])
    try:
        yield
    finally:
        _steps.reset(token)


def count_step() -> None:
    """Take one step.

    Raises:
        TooManyStepsError: None is left.
    """
    left = _steps.get(None)
    if left is not None:
        left[0] -= 1
        if left[0] < 0:
            raise TooManyStepsError


class Schema:
    """One tool's parameters.

    Args:
        contents: The schema, as the caller sent it.

    Raises:
        SchemaFaultError: It is no schema, or refers to what is not in it.
    """

    def __init__(self, contents: Json) -> None:
        draft, specification = _draft(contents)
        clean = cast("Json", _without_drafts(contents))
        try:
            # Not by format: patterns are JavaScript's, and those that cannot be read do no harm.
            cast("Any", draft).check_schema(clean, format_checker=FormatChecker(()))
        except exceptions.SchemaError as error:
            raise SchemaFaultError(f"it is no JSON Schema: {error.message[:200]}") from None
        except RecursionError:
            raise SchemaFaultError("it is nested too deeply") from None
        registry: Any = REGISTRY.combine(Registry(retrieve=_refuse))
        resource: Any = Resource(contents=clean, specification=specification)
        resolver = registry.resolver_with_root(resource)
        _check_references(resource, resolver, specification)
        self.root = Node(clean, resolver)
        self._validator: Validator = validators.extend(
            draft,
            {
                **_bounded(draft),
                "pattern": _pattern,
                "patternProperties": _patterns,
                "uniqueItems": judge_unique,
            },
        )(clean, registry=registry, _resolver=resolver)

    def fits(self, value: object, node: Node | None = None) -> bool:
        """True where a value satisfies the schema, or one subschema of it."""
        return self.fault(value, node) is None

    def fault(self, value: object, node: Node | None = None) -> str | None:
        """Why a value does not satisfy the schema; `None` where it does.

        Raises:
            TooManyStepsError: Inside `limited`: the steps are used up.
        """
        count_step()
        validator = self._validator
        if node is not None:
            validator = validator.evolve(schema=node.contents, _resolver=node.resolver)
        try:
            error = next(iter(validator.iter_errors(cast("Any", value))), None)
        except (RecursionError, OverflowError, Unresolvable):
            return "its schema cannot judge it"
        if error is None:
            return None
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.path)
        return f"{place.lstrip('.')[:80]}: {error.message}" if place else error.message


def conjuncts(node: Node) -> list[Node]:
    """All subschemas that hold at a node without a choice: itself, its `$ref`, its `allOf`."""
    found: list[Node] = []
    waiting = [node]
    while waiting and len(found) < _MAX_CHAIN:
        here = waiting.pop()
        found.append(here)
        contents = here.contents
        if isinstance(contents, bool):
            continue
        ref = contents.get("$ref")
        if isinstance(ref, str):
            resolved = here.resolver.lookup(ref)
            waiting.append(Node(resolved.contents, resolved.resolver))
        waiting.extend(_nodes(contents.get("allOf"), here.resolver))
    return found


def unions(node: Node) -> list[list[Node]]:
    """The branches of each `anyOf` and `oneOf` at this very node."""
    if isinstance(node.contents, bool):
        return []
    lists = (_nodes(node.contents.get(name), node.resolver) for name in ("anyOf", "oneOf"))
    return [branches for branches in lists if branches]


def members(node: Node, key: str) -> list[Node]:
    """The subschemas for one property of an object, as this very node says."""
    if isinstance(node.contents, bool):
        return []
    found: list[object] = []
    named = node.contents.get("properties")
    if isinstance(named, dict) and key in named:
        found.append(cast("Json", named)[key])
    patterned = node.contents.get("patternProperties")
    if isinstance(patterned, dict):
        found += [
            part for pattern, part in cast("Json", patterned).items() if matcher(pattern)(key)
        ]
    if not found and "additionalProperties" in node.contents:
        found.append(node.contents["additionalProperties"])
    return _nodes(found, node.resolver)


def element(node: Node, index: int) -> list[Node]:
    """The subschemas for one item of an array, as this very node says."""
    if isinstance(node.contents, bool):
        return []
    items = node.contents.get("items")
    first = node.contents.get("prefixItems")
    rest = items
    if isinstance(items, list):  # before draft 2020-12
        first, rest = cast("list[object]", items), node.contents.get("additionalItems")
    if isinstance(first, list) and index < len(cast("list[object]", first)):
        rest = cast("list[object]", first)[index]
    return _nodes([rest], node.resolver)


def subschemas(root: Node) -> Iterator[Node]:
    """Every subschema that can be reached from a node, through references too, each once."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node.contents) in seen or isinstance(node.contents, bool):
            continue
        seen.add(id(node.contents))
        yield node
        waiting.extend(conjuncts(node)[1:])
        waiting.extend(branch for branches in unions(node) for branch in branches)
        for name in ("properties", "patternProperties"):
            parts = node.contents.get(name)
            if isinstance(parts, dict):
                waiting.extend(_nodes(list(cast("Json", parts).values()), node.resolver))
        for name in ("items", "prefixItems", "additionalProperties", "additionalItems"):
            part = node.contents.get(name)
            listed = cast("list[object]", part) if isinstance(part, list) else [part]
            waiting.extend(_nodes(listed, node.resolver))


def _nodes(parts: object, resolver: Resolver) -> list[Node]:
    """Nodes of those parts that are schemas."""
    if not isinstance(parts, list):
        return []
    listed = cast("list[object]", parts)
    return [Node(cast("Json", part), resolver) for part in listed if isinstance(part, dict | bool)]


def _draft(contents: Json) -> tuple[type[Validator], Any]:
    """The validator and the specification that `$schema` asks for."""
    name = str(contents.get("$schema", "")).rstrip("#")
    known: dict[str, tuple[Any, Any]] = {
        "http://json-schema.org/draft-03/schema": (validators.Draft3Validator, DRAFT3),
        "http://json-schema.org/draft-04/schema": (validators.Draft4Validator, DRAFT4),
        "http://json-schema.org/draft-06/schema": (validators.Draft6Validator, DRAFT6),
        "http://json-schema.org/draft-07/schema": (validators.Draft7Validator, DRAFT7),
        "https://json-schema.org/draft/2019-09/schema": (
            validators.Draft201909Validator,
            DRAFT201909,
        ),
    }
    return known.get(name, (validators.Draft202012Validator, DRAFT202012))


def _without_drafts(part: object) -> object:
    """A schema less every `$schema`, by which the library would choose unbounded keywords."""
    if isinstance(part, list):
        return [_without_drafts(item) for item in cast("list[object]", part)]
    if not isinstance(part, dict):
        return part
    return {
        name: value if name in _DATA_KEYWORDS else _without_drafts(value)
        for name, value in cast("Json", part).items()
        if name != "$schema" or not isinstance(value, str)
    }


def _refuse(uri: str) -> Any:
    """No document is ever fetched."""
    raise LookupError(uri)


def _check_references(resource: Any, resolver: Resolver, specification: Any) -> None:
    """Every reference has its target inside the schema, and no place asks for too much.

    Raises:
        SchemaFaultError: It is not so.
    """
    waiting: list[tuple[Any, Any]] = [(resource, resolver)]
    seen: set[int] = set()
    sizes: dict[int, int] = {}
    while waiting:
        here, near = waiting.pop()
        key = id(here.contents)
        if not isinstance(here.contents, dict) or key in seen:
            continue
        seen.add(key)
        if len(seen) > _MAX_NODES:
            raise SchemaFaultError("it has too many parts")
        for target, far in _targets(Node(cast("Json", here.contents), near), *_REFERENCES):
            waiting.append((Resource(contents=target, specification=specification), far))
        for part in here.subresources():
            waiting.append((part, near.in_subresource(part)))
        try:
            _expanse(Node(cast("Json", here.contents), near), sizes)
        except RecursionError:
            raise SchemaFaultError("its references are nested too deeply") from None


def _targets(node: Node, *names: str) -> list[Node]:
    """What a subschema's own references point at.

    Raises:
        SchemaFaultError: A target is missing, or elsewhere.
    """
    found: list[Node] = []
    for name in names:
        ref = cast("Json", node.contents).get(name)
        if not isinstance(ref, str):
            continue
        try:
            resolved = node.resolver.lookup(ref)
        except (Unresolvable, Unretrievable, LookupError, ValueError):
            where = "" if ref.startswith("#") else " (references to other documents are not read)"
            message = f"its reference '{ref[:100]}' has no target in it{where}"
            raise SchemaFaultError(message) from None
        found.append(Node(resolved.contents, resolved.resolver))
    return found


def _expanse(node: Node, sizes: dict[int, int]) -> int:
    """How many subschemas may have to be judged at one place of a value.

    Raises:
        SchemaFaultError: They are too many, or lead back to themselves.
    """
    if isinstance(node.contents, bool):
        return 1
    key = id(node.contents)
    if key in sizes:
        if not sizes[key]:
            raise SchemaFaultError("its references go around without an end")
        return sizes[key]
    sizes[key] = 0
    size = 1 + sum(_expanse(part, sizes) for part in _in_place(node))
    if size > _MAX_EXPANSE:
        raise SchemaFaultError("its branches are too many")
    sizes[key] = size
    return size


def _in_place(node: Node) -> list[Node]:
    """The subschemas that judge the same value as this one."""
    contents = cast("Json", node.contents)
    found = _targets(node, "$ref")
    for name in ("allOf", "anyOf", "oneOf"):
        found += _nodes(contents.get(name), node.resolver)
    return found + _nodes([contents.get(name) for name in _SAME_PLACE], node.resolver)


def _bounded(draft: type[Validator]) -> dict[str, Any]:
    """The draft's keywords, counted, and its `type` with OpenAPI's `nullable`."""
    table = cast("dict[str, Any]", cast("Any", draft).VALIDATORS)

    def counted(rule: Any) -> Any:
        def judge(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
            count_step()
            return rule(validator, value, instance, schema)

        return judge

    def typed(validator: Any, types: Any, instance: Any, schema: Any) -> Any:
        if instance is None and schema.get("nullable") is True:
            return None
        return table["type"](validator, types, instance, schema)

    rules = {name: counted(rule) for name, rule in table.items()}
    return rules | {"type": counted(typed)}


def _pattern(validator: Any, pattern: Any, instance: Any, _schema: Any) -> Iterator[Any]:
    """`pattern`, in bounded time."""
    if validator.is_type(instance, "string") and not matcher(pattern)(instance):
        yield exceptions.ValidationError(f"{instance!r} does not match {pattern!r}")


def _patterns(validator: Any, patterns: Any, instance: Any, _schema: Any) -> Iterator[Any]:
    """`patternProperties`, in bounded time."""
    if validator.is_type(instance, "object"):
        for pattern, part in patterns.items():
            matches = matcher(pattern)
            for key, value in instance.items():
                if matches(key):
                    yield from validator.descend(value, part, path=key, schema_path=pattern)
