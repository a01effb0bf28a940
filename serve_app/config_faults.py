"""What is wrong with a configuration, in words: one line a fault, its path first.

Rules of this file:
1. Checks between sections work on the raw data, so that they are told together with the rest.
2. A line names keys and names, never the value of a secret.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from serve_app.config_text import join

#: Sections that later versions have.
LATER = {
    "cli",
    "code_interpreter",
    "state",
    "openai.responses",
}
LATER_TEXT = "not available in this version"
RESERVED = ("cli", "pool")
#: Types whose engine starts with nothing said about it.
ENGINE_BY_DEFAULT = ("llama_cpp",)
#: Types that only exist behind a URL.
URL_ONLY = ("lemonade", "ollama", "openai_compat", "vllm", "vllm_mlx")
DEFAULT_SLOTS = 64

_PLAIN: dict[str, str] = {
    "missing": "is required",
    "model_type": "must be a mapping (key: value)",
    "list_type": "must be a list (lines that begin with '- ')",
    "string_type": "must be text; put it in quotes",
    "string_pattern_mismatch": (
        "must be 1 to 63 letters, digits, '.', '_' or '-', and begin with a letter or digit"
    ),
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "too_short": "must have at least one entry",
}

Row = Mapping[str, Any]


def of_validation(error: ValidationError, root: type[BaseModel]) -> list[str]:
    """Say each of pydantic's errors in a line of ours."""
    return [_said(detail, root) for detail in error.errors(include_url=False, include_input=False)]


def _said(detail: ErrorDetails, root: type[BaseModel]) -> str:
    loc, context = detail["loc"], detail.get("ctx", {})
    path = _dotted(loc)
    kind = detail["type"]
    if kind == "extra_forbidden":
        return f"{path}: {_unknown_key(path, str(loc[-1]), _keys_at(root, loc[:-1]))}"
    if "key" in context:
        path = join(path, str(context["key"]))
    if kind == "value_error":
        return f"{path}: {context['error']}"
    if kind in _PLAIN:
        return f"{path}: {_PLAIN[kind]}"
    message = detail["msg"].removeprefix("Input ").replace("should ", "must ", 1)
    return f"{path}: {message[:1].lower()}{message[1:]}"


def _unknown_key(path: str, key: str, known: Sequence[str]) -> str:
    if path in LATER:
        return LATER_TEXT
    return f"unknown key{_hint(key, known)}"


def _hint(word: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(word, sorted(known), n=1, cutoff=0.6)
    return f"; did you mean '{near[0]}'?" if near else ""


def _dotted(loc: Iterable[str | int]) -> str:
    path = ""
    for part in loc:
        path = join(path, part)
    return path


def _keys_at(root: type[BaseModel], loc: Iterable[str | int]) -> list[str]:
    """List the keys of the section at this place."""
    section = root
    for part in loc:
        if isinstance(part, str):
            section = next(_sections_in(section.model_fields[part].annotation), section)
    return list(section.model_fields)


def _sections_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _sections_in(inner)


def of_references(data: Row, types: Collection[str] | None) -> list[str]:
    """Find what is wrong between sections: names, references, and what excludes what."""
    check = _References(data, types)
    check.providers()
    check.pool()
    check.routes()
    return check.faults


class _References:
    """One look over data that may be wrong in any other way at the same time."""

    def __init__(self, data: Row, types: Collection[str] | None) -> None:
        self.faults: list[str] = []
        self._types = types
        self._openai = _row(data.get("openai"))
        self._providers = list(_rows(data.get("providers"), "providers"))
        self._models = list(_rows(data.get("models"), "models"))
        self._names = {_text(row, "name") for _, row in self._providers} - {""}
        self._type_counts = Counter(_text(row, "type") for _, row in self._providers)
        self._ids = {_text(row, "id") for _, row in self._models} - {""}

    def providers(self) -> None:
        """Check every entry of `providers`."""
        self._unique(self._providers, "name")
        for path, row in self._providers:
            if _text(row, "name") in RESERVED:
                self._say(f"{path}.name", f"'{_text(row, 'name')}' is a reserved name")
            if self._type_is_known(path, _text(row, "type")):
                self._place(path, row)
            self._scaling(path, row)

    def pool(self) -> None:
        """Check every entry of `models`."""
        self._unique(self._models, "id")
        for path, row in self._models:
            members = list(_rows(row.get("providers"), f"{path}.providers"))
            for member_path, member in members:
                if name := _text(member, "provider"):
                    self._resolve(f"{member_path}.provider", name)
            pairs = [(_text(m, "provider"), _text(m, "target")) for _, m in members]
            for pair, count in Counter(pairs).items():
                if count > 1:
                    self._say(f"{path}.providers", f"'{pair[0]}' stands there {count} times")

    def routes(self) -> None:
        """Check the fallback and every entry of `openai.model_routes`."""
        adapter, target = _text(self._openai, "adapter"), _text(self._openai, "target")
        if adapter:
            self._adapter("openai", adapter, target)
        elif target:
            self._say("openai.target", "has no effect without 'openai.adapter'")
        routes = list(_rows(self._openai.get("model_routes"), "openai.model_routes"))
        self._unique(routes, "model")
        for path, row in routes:
            if name := _text(row, "adapter"):
                self._adapter(path, name, _text(row, "target") or _text(row, "model"))

    def _say(self, path: str, message: str) -> None:
        self.faults.append(f"{path}: {message}")

    def _unique(self, rows: list[tuple[str, Row]], key: str) -> None:
        first: dict[str, str] = {}
        for path, row in rows:
            value = _text(row, key)
            if value and first.setdefault(value, path) != path:
                self._say(f"{path}.{key}", f"'{value}' is taken by {first[value]}")

    def _type_is_known(self, path: str, kind: str) -> bool:
        if not kind or self._types is None or kind in self._types:
            return bool(kind)
        known = ", ".join(sorted(self._types))
        self._say(f"{path}.type", f"'{kind}' is none of {known}{_hint(kind, self._types)}")
        return False

    def _place(self, path: str, row: Row) -> None:
        kind = _text(row, "type")
        url, engine = row.get("url") is not None, row.get("engine") is not None
        if kind in URL_ONLY:
            if engine:
                self._say(f"{path}.engine", f"a provider of type {kind} has no engine")
            if not url:
                self._say(f"{path}.url", f"is required for a provider of type {kind}")
        elif url and engine:
            self._say(path, "has 'url' and 'engine'; it must have exactly one of them")
        elif not url and not engine and kind not in ENGINE_BY_DEFAULT:
            self._say(path, "must have exactly one of 'url' and 'engine'")

    def _scaling(self, path: str, row: Row) -> None:
        target, slots = _row(row.get("autoscaling")).get("target"), row.get("slots", DEFAULT_SLOTS)
        if isinstance(target, int | float) and isinstance(slots, int) and target > slots:
            self._say(
                f"{path}.autoscaling.target", f"is above 'slots' ({slots}), so it is never reached"
            )

    def _adapter(self, path: str, name: str, target: str) -> None:
        if name == "cli":
            self._say(f"{path}.adapter", f"'cli' is {LATER_TEXT}")
        elif name != "pool":
            self._resolve(f"{path}.adapter", name, "pool")
        elif target and target not in self._ids:
            self._say(
                f"{path}.target",
                f"no entry of 'models' has the id '{target}'{_hint(target, self._ids)}",
            )

    def _resolve(self, path: str, name: str, *others: str) -> None:
        """Check that a name means exactly one provider."""
        if name in self._names or self._type_counts[name] == 1:
            return
        if self._type_counts[name] > 1:
            found = [_text(row, "name") for _, row in self._providers if row.get("type") == name]
            self._say(path, f"several providers have the type '{name}': {', '.join(found)}")
            return
        known = {*self._names, *self._type_counts, *others}
        self._say(path, f"no provider has the name or type '{name}'{_hint(name, known)}")


def _row(value: object) -> Row:
    return cast("Row", value) if isinstance(value, Mapping) else {}


def _rows(value: object, path: str) -> Iterator[tuple[str, Row]]:
    """Give the mappings of a list, each with its path."""
    if isinstance(value, list):
        for index, item in enumerate(cast("list[object]", value)):
            if isinstance(item, Mapping):
                yield f"{path}[{index}]", cast("Row", item)


def _text(row: Row, key: str) -> str:
    value = row.get(key)
    return value if isinstance(value, str) else ""
