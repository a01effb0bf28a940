"""Python and JSON literals, as models mix them: `{'a': true, "b": None, 'c': [1, 2,],}`.

`ast.literal_eval` will not do: it knows no `true`, no JSON escapes and no line break in a string.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

#: One value of a literal. `Any`, since JSON's own type would have to name itself.
Value = Any

MAX_DEPTH: Final = 64

_WORDS: Final[dict[str, Value]] = {
    "True": True,
    "true": True,
    "False": False,
    "false": False,
    "None": None,
    "null": None,
}
_SPACE: Final = re.compile(r"\s*")
_WORD: Final = re.compile(r"[A-Za-z_]\w*")
_KEY: Final = re.compile(r"([A-Za-z_][\w-]*)\s*=(?!=)\s*")
_NUMBER: Final = re.compile(
    r"[+-]?(?:0[xXoObB]\w+|(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d+)?)"
)
_WHOLE: Final = re.compile(r"[+-]?(?:0[xXoObB]\w+|\d[\d_]*)\Z")
_ESCAPES: Final = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "b": "\b",
    "f": "\f",
    "a": "\a",
    "v": "\v",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "\n": "",
}
_ESCAPE: Final = re.compile(
    r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|x([0-9a-fA-F]{2})|([0-7]{1,3})|(.))", re.DOTALL
)
_BODIES: Final = {
    quote: re.compile(rf"((?:[^\\{quote[0]}]|\\.|{quote[0]}(?!{quote[1:]}))*){quote}", re.DOTALL)
    if len(quote) > 1
    else re.compile(rf"([^\\{quote}]*(?:\\.[^\\{quote}]*)*){quote}", re.DOTALL)
    for quote in ('"""', "'''", '"', "'")
}


class LiteralError(ValueError):
    """The text is not a literal."""


def read_literal(text: str) -> Value:
    """The value of a text that is one literal and nothing else.

    Raises:
        LiteralError: It is not.
    """
    reader = _Reader(text)
    value = reader.value(0)
    reader.end()
    return value


def read_keywords(text: str) -> dict[str, Value]:
    """The values of `key=literal, …`, as between the parentheses of a call.

    Raises:
        LiteralError: It is not of that form, or a key stands twice, of which none can be chosen.
    """
    reader = _Reader(text)
    values: dict[str, Value] = {}
    while not reader.at_end():
        key = reader.key()
        if key in values:
            raise LiteralError(f"the argument '{key[:64]}' stands twice")
        values[key] = reader.value(0)
        if not reader.taken(","):
            break
    reader.end()
    return values


class _Reader:
    """A text and how far it has been read."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._skip()

    def at_end(self) -> bool:
        return self._at >= len(self._text)

    def end(self) -> None:
        """Nothing may be left."""
        if not self.at_end():
            raise self._fault()

    def taken(self, mark: str) -> bool:
        """True where this mark stood here; it is then behind."""
        if not self._text.startswith(mark, self._at):
            return False
        self._at += len(mark)
        self._skip()
        return True

    def key(self) -> str:
        """`key=`."""
        found = _KEY.match(self._text, self._at)
        if found is None:
            raise self._fault()
        self._at = found.end()
        return found[1]

    def value(self, depth: int) -> Value:
        """The literal that begins here."""
        if depth > MAX_DEPTH:
            raise LiteralError(f"its arguments are nested more than {MAX_DEPTH} levels deep")
        first = self._text[self._at : self._at + 1]
        if first in "\"'" and first:
            return self._strings()
        if first == "{":
            return self._object(depth)
        if first == "[":
            return self._items("[", "]", depth)[0]
        if first == "(":
            items, comma = self._items("(", ")", depth)
            return items if comma or len(items) != 1 else items[0]
        return self._plain()

    def _plain(self) -> Value:
        """A word or a number."""
        found = _WORD.match(self._text, self._at)
        if found is not None and found[0] in _WORDS:
            self._pass(found)
            return _WORDS[found[0]]
        found = _NUMBER.match(self._text, self._at)
        if found is None:
            raise self._fault()
        try:
            number = int(found[0], 0) if _WHOLE.match(found[0]) else float(found[0])
        except ValueError:
            raise self._fault() from None
        if isinstance(number, float) and math.isinf(number):
            raise self._fault()
        self._pass(found)
        return number

    def _items(self, opener: str, closer: str, depth: int) -> tuple[list[Value], bool]:
        """Items up to the closing mark, and whether a comma stood among them."""
        self.taken(opener)
        items: list[Value] = []
        comma = False
        while not self.taken(closer):
            items.append(self.value(depth + 1))
            if self.taken(","):
                comma = True
            elif not self._text.startswith(closer, self._at):
                raise self._fault()
        return items, comma

    def _object(self, depth: int) -> dict[str, Value]:
        self.taken("{")
        fields: dict[str, Value] = {}
        while not self.taken("}"):
            if self._text[self._at : self._at + 1] not in {'"', "'"}:
                raise self._fault()
            key = self._strings()
            if not self.taken(":"):
                raise self._fault()
            fields[key] = self.value(depth + 1)
            if not self.taken(",") and not self._text.startswith("}", self._at):
                raise self._fault()
        return fields

    def _strings(self) -> str:
        """A string; several side by side are one, as in Python."""
        pieces: list[str] = []
        while self._text[self._at : self._at + 1] in {'"', "'"}:
            first = self._text[self._at]
            quote = first * 3 if self._text.startswith(first * 3, self._at) else first
            found = _BODIES[quote].match(self._text, self._at + len(quote))
            if found is None:
                raise self._fault()
            pieces.append(_unescaped(found[1], json_slash=first == '"'))
            self._pass(found)
        return "".join(pieces)

    def _pass(self, found: re.Match[str]) -> None:
        self._at = found.end()
        self._skip()

    def _skip(self) -> None:
        found = _SPACE.match(self._text, self._at)
        self._at = found.end() if found else self._at

    def _fault(self) -> LiteralError:
        place = self._text[self._at : self._at + 40]
        return LiteralError(
            f"its arguments are no literals at '{place}'" if place else "its arguments break off"
        )


def _unescaped(body: str, *, json_slash: bool) -> str:
    r"""A string's characters. An escape that nobody knows stays as it is, as in Python.

    Args:
        body: What stands between the quotes.
        json_slash: True where `\/` is a slash: JSON's strings have double quotes only.
    """
    if "\\" not in body:
        return body

    def character(found: re.Match[str]) -> str:
        for group, base in ((1, 16), (2, 16), (3, 16), (4, 8)):
            if found[group] is not None:
                code = int(found[group], base)
                if code > 0x10FFFF:
                    raise LiteralError("a character in its arguments does not exist")
                return chr(code)
        if found[5] == "/" and json_slash:
            return "/"
        return _ESCAPES.get(found[5], found[0])

    text = _ESCAPE.sub(character, body)
    try:  # JSON writes characters beyond the first 65,536 as two halves
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise LiteralError("half a character stands in its arguments") from None
