"""The end of a bracket or a string in a text that comes in pieces, whatever the strings hold."""

from __future__ import annotations

import re
from typing import Final

from serve_app.tools.literals import MAX_DEPTH, LiteralError
from serve_app.tools.tape import Reading, Tape

_SIGN: Final = re.compile(r"""["'()\[\]{}]""")
_CLOSER: Final = {"(": ")", "[": "]", "{": "}"}
_STOP: Final = {quote: re.compile(rf"\\|{quote}") for quote in ('"', "'", '"""', "'''")}


class CutOffError(Exception):
    """The text ended too early."""


def read_balanced(tape: Tape, closer: str = "") -> Reading[str]:
    """The text up to the end of the bracket that begins here, or that has begun before.

    Args:
        tape: The text.
        closer: The closing mark of the bracket that has begun before.

    Raises:
        LiteralError: The brackets do not match.
        CutOffError: The text ended first.
    """
    pieces: list[str] = []
    waiting = [closer] if closer else []
    before = ""
    while True:
        found = _SIGN.search(tape.text, tape.at)
        end = found.start() if found else len(tape.text)
        if end > tape.at:
            before = ""
        pieces.append(_take(tape, end))
        if found is None:
            if not (yield from tape.more()):
                raise CutOffError
            continue
        sign = found[0]
        if sign in "\"'":
            pieces.append((yield from _read_string(tape, sign)))
            before = ""
            continue
        pieces.append(_take(tape, tape.at + 1))
        _count(waiting, sign, before)
        before = sign
        if not waiting:
            return "".join(pieces)


def _count(waiting: list[str], sign: str, before: str) -> None:
    """Open or close a bracket.

    Raises:
        LiteralError: It closes another one than was opened, or no literal has such brackets.
    """
    if sign not in _CLOSER:
        if waiting.pop() != sign:
            raise LiteralError("the brackets of its arguments do not match")
        return
    if sign == before == "{" or len(waiting) > MAX_DEPTH:
        raise LiteralError("the brackets of its arguments are those of no literal")
    waiting.append(_CLOSER[sign])


def _read_string(tape: Tape, sign: str) -> Reading[str]:
    """A string, from its opening quote to its closing one."""
    start = yield from tape.peek(3)
    quote = sign * 3 if start == sign * 3 else sign
    if quote == sign and start.startswith(sign * 2):
        return _take(tape, tape.at + 2)
    pieces = [_take(tape, tape.at + len(quote))]
    while True:
        found = _STOP[quote].search(tape.text, tape.at)
        if found is None:
            # The last characters may be the beginning of the closing quote.
            pieces.append(_take(tape, max(tape.at, len(tape.text) - len(quote) + 1)))
            if not (yield from tape.more()):
                raise CutOffError
            continue
        pieces.append(_take(tape, found.start()))
        if found[0] == quote:
            pieces.append(_take(tape, tape.at + len(quote)))
            return "".join(pieces)
        escape = yield from tape.peek(2)
        pieces.append(escape)
        tape.at += len(escape)


def _take(tape: Tape, end: int) -> str:
    """The text up to a position, which is then behind."""
    piece = tape.text[tape.at : end]
    tape.at = end
    return piece
