"""YAML text to plain data, with the environment put in.

Rules of this file:
1. Values are substituted after the YAML is parsed, so a secret may hold any character.
2. What the environment gave is remembered, so that no fault can show it.
3. Only JSON's types come out; a date stays the text that it was.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import yaml
from yaml.constructor import ConstructorError
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from serve_app.errors import ConfigError

_VARIABLE = re.compile(
    r"\$(?P<escaped>\$\{)"
    r"|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<has_default>:-(?P<default>[^}]*))?\}"
    r"|(?P<malformed>\$\{)"
)
_TAG = "tag:yaml.org,2002:"
_MERGE = f"{_TAG}merge"
_TYPED = {f"{_TAG}{name}" for name in ("null", "bool", "int", "float", "str")}
_TEXT = {f"{_TAG}timestamp", f"{_TAG}value"}
#: A shorter value is no secret, and replacing it would make other words unreadable.
_SHORTEST_SECRET = 6
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_.-]{0,64}")


@dataclass(slots=True)
class Source:
    """A configuration text as data, and what was wrong with it so far."""

    data: dict[str, Any] = field(default_factory=dict[str, Any])
    faults: list[str] = field(default_factory=list[str])
    #: Paths of values whose variable is missing: what else is wrong with them is no news.
    unresolved: set[str] = field(default_factory=set[str])
    variables: frozenset[str] = frozenset()
    _found: dict[str, str] = field(default_factory=dict[str, str], repr=False)

    def news(self, faults: list[str]) -> list[str]:
        """Leave out what is said of a value that is missing anyway."""
        return [fault for fault in faults if fault.partition(": ")[0] not in self.unresolved]

    def redact(self, faults: list[str]) -> list[str]:
        """Write the name of a variable wherever a fault would show its value."""
        secret = {v: n for n, v in self._found.items() if len(v) >= _SHORTEST_SECRET}
        if secret:
            longest_first = sorted(secret, key=len, reverse=True)
            pattern = re.compile("|".join(re.escape(value) for value in longest_first))
            faults = [pattern.sub(lambda hit: f"${{{secret[hit[0]]}}}", line) for line in faults]
        return [_one_line(fault) for fault in faults]


def _one_line(text: str) -> str:
    """Escape what would break a line or could not be printed."""
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)


def join(path: str, key: str | int) -> str:
    """Extend a dotted path by a key or an index."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    # `bearer_token:secret` without a space is one key: show no more than a name can hold.
    match = _PLAIN_KEY.match(key)
    shown = match[0] if match else ""
    shown = shown if shown == key else f"{shown}…"
    return f"{path}.{shown}" if path else shown


def parse(text: str, environ: Mapping[str, str]) -> Source:
    """Parse the text and substitute `${NAME}` in its values.

    Raises:
        ConfigError: It is no YAML, or not a mapping at its top. Faults in single values are
            left in the result, to be told together with the others.
    """
    loader: yaml.SafeLoader | None = None
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            raise ConfigError(["line 1: the file is empty; at least 'providers' is needed"])
        if not isinstance(node, MappingNode):
            raise ConfigError([f"{_place(node)}: must be a mapping (key: value) at its top"])
        reading = _Reading(loader, environ)
        data = reading.mapping(node, "")
    except yaml.YAMLError as error:
        raise ConfigError([_yaml_fault(error, text)]) from None
    except RecursionError:
        raise ConfigError(["line 1: the YAML is nested too deeply, or within itself"]) from None
    finally:
        if loader is not None:
            loader.dispose()
    return Source(
        data, reading.faults, reading.unresolved, frozenset(reading.variables), reading.found
    )


class _Reading:
    """One walk over the nodes of a text."""

    def __init__(self, loader: yaml.SafeLoader, environ: Mapping[str, str]) -> None:
        self.faults: list[str] = []
        self.unresolved: set[str] = set()
        self.variables: set[str] = set()
        self.found: dict[str, str] = {}
        self._loader = loader
        self._environ = environ

    def mapping(self, node: MappingNode, path: str) -> dict[str, Any]:
        """Give a mapping as a dict; of a key that stands twice, the first counts."""
        self._report_duplicates(node, path)
        self._loader.flatten_mapping(node)  # `<<: *defaults`
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, ScalarNode):
                self.faults.append(f"{path or _place(key_node)}: a key must be plain text")
                continue
            key = str(key_node.value)
            # Merged pairs stand first, so that the mapping's own replace them.
            result[key] = self._value(value_node, join(path, key))
        return result

    def _report_duplicates(self, node: MappingNode, path: str) -> None:
        seen: dict[str, Node] = {}
        for key_node, _ in node.value:
            if not isinstance(key_node, ScalarNode) or key_node.tag == _MERGE:
                continue
            first = seen.setdefault(str(key_node.value), key_node)
            if first is not key_node:
                where = f"{_place(first)} and {_place(key_node)}"
                self.faults.append(f"{join(path, str(key_node.value))}: stands twice ({where})")

    def _value(self, node: Node, path: str) -> Any:
        if isinstance(node, MappingNode):
            return self.mapping(node, path)
        if isinstance(node, SequenceNode):
            return [self._value(item, join(path, i)) for i, item in enumerate(node.value)]
        if node.tag in _TEXT:
            return self._substitute(str(node.value), path)
        if node.tag not in _TYPED:
            self.faults.append(f"{path}: has a YAML tag that is not known here ({_place(node)})")
            self.unresolved.add(path)
            return ""
        try:
            value = cast(
                "object",
                self._loader.construct_object(node),
            )
        except (ValueError, ConstructorError):
            self.faults.append(f"{path}: cannot be read as the number it looks like")
            self.unresolved.add(path)
            return ""
        return self._substitute(value, path) if isinstance(value, str) else value

    def _substitute(self, text: str, path: str) -> str:
        def replaced(match: re.Match[str]) -> str:
            if match["escaped"]:
                return "${"
            if match["malformed"]:
                return self._unresolved(path, "has a '${' that is no ${NAME} or ${NAME:-default}")
            return self._look_up(match, path)

        return _VARIABLE.sub(replaced, text)

    def _look_up(self, match: re.Match[str], path: str) -> str:
        name = match["name"]
        self.variables.add(name)
        value = self._environ.get(name, "")
        if value:
            self.found[name] = value
            return value
        if match["has_default"]:
            return match["default"]
        # An empty secret would quietly switch authentication off.
        state = "is empty" if name in self._environ else "is not set"
        return self._unresolved(
            path, f"the environment variable {name} {state}; ${{{name}:-}} allows that"
        )

    def _unresolved(self, path: str, message: str) -> str:
        self.faults.append(f"{path}: {message}")
        self.unresolved.add(path)
        return ""


def _place(node: Node) -> str:
    return f"line {node.start_mark.line + 1}"


def _yaml_fault(error: yaml.YAMLError, text: str) -> str:
    """Say where YAML ends to be YAML, without showing what stands there."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        # The problem quotes tokens, and a token may be a piece of a secret.
        problem = re.sub(r"(?<!\S)(['\"])(?!<).{3,}?\1", "…", str(error.problem))
        return f"line {mark.line + 1}, column {mark.column + 1}: is not valid YAML: {problem}"
    position = getattr(error, "position", 0)
    line = text.count("\n", 0, position) + 1
    return f"line {line}: is not valid YAML: it holds a character that YAML does not allow"
