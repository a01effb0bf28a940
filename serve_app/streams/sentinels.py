"""Sentinels out of text: control tokens of chat templates that leaked into an answer.

Rules of this file:
1. A text is read character by character, and a sentinel is cut out at the moment it is whole. So
   it does not matter how the text came in pieces, and one that appears when another is cut out
   goes as well.
2. Only what may still become a sentinel is held back. Where that grows too long (beginnings within
   beginnings), it is given up as text, but remembered: if it is completed after all, its rest is
   cut out, so that no whole sentinel ever leaves.
3. Content and reasoning are texts of their own. When the one is interrupted by the other or by a
   tool call, what is held is given up in the same way, so that nothing changes its order.
4. Names between the tokens of a header (`<|channel|>final<|message|>`) go with them.
5. `</s>` is an HTML tag everywhere but at the very end of a text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from functools import lru_cache
from typing import Final

from serve_app.runs import Finish, ReasoningDelta, RunEvent, TextDelta, Usage
from serve_app.tools.sentinel_names import KNOWN_SENTINELS

#: Most characters that one text holds back because they may become sentinels.
MAX_HELD: Final = 256
#: Longest name in a header; what is longer is text.
MAX_HEADER: Final = 64

_OPENERS: Final = frozenset({"<|channel|>", "<|start|>", "<|start_header_id|>"})
_CLOSERS: Final = frozenset({"<|message|>", "<|end_header_id|>"})

_END: Final = "</s>"
#: Most of these at the end of a text that are cut off.
_MAX_ENDS: Final = 8
#: The longest end of a text that is ends, and perhaps the beginning of one more.
_ENDING: Final = re.compile(rf"(?:</s>){{0,{_MAX_ENDS}}}(?:<(?:/s?)?)?\Z")


class _Mark(Enum):
    """Where a token stood that begins or ends a header."""

    OPEN = auto()
    CLOSE = auto()


class Sentinels:
    """Takes sentinels out of content and reasoning. A `Step[RunEvent, RunEvent]`.

    Args:
        extra: Sentinels beside the known ones.
    """

    def __init__(self, extra: Sequence[str] = ()) -> None:
        automaton = _automaton(tuple(extra))
        self._content = _Text(automaton)
        self._reasoning = _Text(automaton)

    def feed(self, event: RunEvent, /) -> list[RunEvent]:
        """Take one event."""
        match event:
            case TextDelta("") | ReasoningDelta(""):
                return []
            case TextDelta(text):
                held = _reasoning(self._reasoning.interrupt()) if self._reasoning.at_work else []
                return held + _content(self._content.feed(text))
            case ReasoningDelta(text):
                held = _content(self._content.interrupt()) if self._content.at_work else []
                return held + _reasoning(self._reasoning.feed(text))
            case Usage():  # comes in the middle of a text with some servers, and has no order
                return [event]
            case Finish():
                return [*self.finish(), event]
            case _:
                held = _reasoning(self._reasoning.interrupt())
                return [*held, *_content(self._content.interrupt()), event]

    def finish(self) -> list[RunEvent]:
        """Give what was held back and is no sentinel."""
        return [*_reasoning(self._reasoning.finish()), *_content(self._content.finish())]


def _content(text: str) -> list[RunEvent]:
    return [TextDelta(text)] if text else []


def _reasoning(text: str) -> list[RunEvent]:
    return [ReasoningDelta(text)] if text else []


class _Automaton:
    """All sentinels as one machine: a state is the longest beginning of one that was just read.

    (Aho and Corasick, 1975.) State 0 is that nothing has begun.
    """

    def __init__(self, sentinels: Iterable[str]) -> None:
        self.sentinels = frozenset(sentinels)
        self.longest = max(map(len, self.sentinels))
        self.begins = _begins(self.sentinels)
        beginnings = sorted({one[:end] for one in self.sentinels for end in range(len(one) + 1)})
        self._beginnings = beginnings  # the empty one is the first
        self._numbers = {beginning: number for number, beginning in enumerate(beginnings)}
        self._next: dict[tuple[int, str], int] = {}
        #: State → the longest sentinel that is whole there, or the empty string.
        self.whole = [self._longest_at_end(beginning) for beginning in beginnings]

    def step(self, state: int, char: str) -> int:
        """The state after one more character."""
        after = self._next.get((state, char))
        if after is None:
            read = self._beginnings[state] + char
            after = next(
                n for i in range(len(read) + 1) if (n := self._numbers.get(read[i:], -1)) >= 0
            )
            if after:  # the others are as many as there are characters
                self._next[state, char] = after
        return after

    def _longest_at_end(self, read: str) -> str:
        return next((read[i:] for i in range(len(read)) if read[i:] in self.sentinels), "")


def _begins(sentinels: frozenset[str]) -> re.Pattern[str]:
    """Finds where one may begin: its first character, and one that does not end the hope.

    What follows may be the second character, or another first one (the one that begins there may
    be cut out), or not have come yet.
    """
    firsts = {one[0] for one in sentinels}
    seconds = firsts | {one[1] for one in sentinels if len(one) > 1}
    alone = "|".join(re.escape(one) for one in sorted(sentinels) if len(one) == 1)
    pattern = rf"{_any_of(firsts)}(?={_any_of(seconds)}|\Z)"
    return re.compile(f"{alone}|{pattern}" if alone else pattern)


def _any_of(chars: Iterable[str]) -> str:
    return "[" + "".join(re.escape(char) for char in sorted(chars)) + "]"


@lru_cache(maxsize=8)
def _automaton(extra: tuple[str, ...]) -> _Automaton:
    """The machine of a configuration's sentinels, made once: it costs more than a short answer."""
    return _Automaton((*KNOWN_SENTINELS, *extra))


class _Text:
    """One text, cleaned."""

    def __init__(self, automaton: _Automaton) -> None:
        #: Whether anything in here is more than at its start.
        self.at_work = False
        self._may_begin = automaton.begins.search
        self._cutter = _Cutter(automaton)
        self._headers = _Headers()
        # A header that goes may bring a beginning and an end together.
        self._second = _Cutter(automaton)
        self._ends = _Ends()

    def feed(self, text: str) -> str:
        """Take a piece and give what is certain."""
        if not self.at_work and "<" not in text and not self._may_begin(text):
            return text
        out = self._behind(self._headers.feed(self._cutter.feed(text)))
        parts = (self._cutter, self._headers, self._second, self._ends)
        self.at_work = any(part.at_work for part in parts)
        return out

    def interrupt(self) -> str:
        """Give everything: something else comes in between."""
        return self._give_up() + self._ends.give_up()

    def finish(self) -> str:
        """Give what is left at the very end of the text."""
        out = self._give_up() + self._ends.end() if self.at_work else ""
        self.at_work = False
        return out

    def _behind(self, text: str) -> str:
        """Take text that has no header any more."""
        return self._ends.feed(_words(self._second.feed(text)))

    def _give_up(self) -> str:
        """Give what is held, less what may be the very end."""
        text = self._headers.feed(self._cutter.give_up()) + self._headers.give_up()
        return self._behind(text) + self._ends.feed(_words(self._second.give_up()))


class _Cutter:
    """Text in, text without sentinels out, with a mark where a header's token stood."""

    def __init__(self, automaton: _Automaton) -> None:
        self._automaton = automaton
        # What was read since nothing had begun: each character with the state after it. A mark
        # stands among them with the state before it.
        self._read: list[tuple[str | _Mark, int]] = []
        # How many of these, from the first, have left already.
        self._gone = 0

    @property
    def at_work(self) -> bool:
        """Whether something has begun."""
        return bool(self._read)

    def feed(self, text: str) -> list[str | _Mark]:
        """Take a piece."""
        out: list[str | _Mark] = []
        at = 0
        while at < len(text):
            if not self._read:
                found = self._automaton.begins.search(text, at)
                start = found.start() if found else len(text)
                out.append(text[at:start])
                at = start
            if at < len(text):
                self._take(text[at], out)
                at += 1
        return out

    def give_up(self) -> list[str | _Mark]:
        """Give what is held, and remember what of it may still be completed."""
        held = [item for item, _ in self._read[self._gone :]]
        self._read = [entry for entry in self._read if isinstance(entry[0], str)]
        self._read = self._read[-self._automaton.longest :]
        self._gone = len(self._read)
        return held

    def _take(self, char: str, out: list[str | _Mark]) -> None:
        """Read one character."""
        state = self._automaton.step(self._read[-1][1] if self._read else 0, char)
        if state == 0:
            out += [item for item, _ in self._read[self._gone :]]
            out.append(char)
            self._read = []
            self._gone = 0
            return
        self._read.append((char, state))
        whole = self._automaton.whole[state]
        if whole:
            self._cut(whole, out)
        elif len(self._read) - self._gone > MAX_HELD:
            out += self.give_up()

    def _cut(self, sentinel: str, out: list[str | _Mark]) -> None:
        """Take a whole sentinel off the end of what is held."""
        left = len(sentinel)
        while left and len(self._read) > self._gone:
            item, _ = self._read.pop()
            left -= isinstance(item, str)
        mark = _mark_of(sentinel)
        if mark is None:
            return
        if len(self._read) > self._gone:
            self._read.append((mark, self._read[-1][1]))
        else:
            out.append(mark)


def _words(items: Iterable[str | _Mark]) -> str:
    """Text without marks."""
    return "".join([item for item in items if isinstance(item, str)])


def _mark_of(sentinel: str) -> _Mark | None:
    if sentinel in _OPENERS:
        return _Mark.OPEN
    return _Mark.CLOSE if sentinel in _CLOSERS else None


class _Headers:
    """Leaves out what stands between a header's tokens, where that is a short name."""

    def __init__(self) -> None:
        self._open = False
        self._name = ""

    @property
    def at_work(self) -> bool:
        """Whether a header has begun."""
        return self._open

    def feed(self, items: Iterable[str | _Mark]) -> str:
        """Take text and marks."""
        return "".join([self._item(item) for item in items])

    def give_up(self) -> str:
        """Give what is held: no header comes of it."""
        name, self._name, self._open = self._name, "", False
        return name

    def _item(self, item: str | _Mark) -> str:
        if item is _Mark.OPEN:
            self._open = True
            return ""
        if item is _Mark.CLOSE:
            self.give_up()
            return ""
        if not self._open:
            return item
        self._name += item
        if len(self._name) > MAX_HEADER or "\n" in item:
            return self.give_up()
        return ""


class _Ends:
    """Holds back `</s>` until it is known whether more text comes."""

    def __init__(self) -> None:
        self._held = ""

    @property
    def at_work(self) -> bool:
        """Whether something is held."""
        return bool(self._held)

    def feed(self, text: str) -> str:
        """Take a piece."""
        if not text or (not self._held and "<" not in text):
            return text
        text = self._held + text
        found = _ENDING.search(text)
        start = found.start() if found else len(text)
        self._held = text[start:]
        return text[:start]

    def end(self) -> str:
        """Give what is held at the very end: nothing, where that is whole."""
        held = self.give_up()
        return held if held.replace(_END, "") else ""

    def give_up(self) -> str:
        """Give what is held."""
        held, self._held = self._held, ""
        return held
