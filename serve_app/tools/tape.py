"""Text that comes in pieces, read as if it were whole.

A reader is a generator that yields where it needs more text, so that it is written like a reader
of whole text and gives the same result wherever the text is cut. It goes on when a piece has been
added, or when the tape is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TypeAlias, TypeVar

from serve_app.tools.dialects import MAX_GAP_CHARS

_T = TypeVar("_T")

#: A reader under way; what it returns is what it has read.
Reading: TypeAlias = Generator[None, None, _T]


class Tape:
    """The part of a text that is still of interest.

    Args:
        noise: Marks that count as white space between tags.
        on_wait: Called each time before more text is waited for.
    """

    def __init__(self, noise: Sequence[str], on_wait: Callable[[], None]) -> None:
        self.text = ""
        self.at = 0
        #: How much of the whole text lies before `text`.
        self.dropped = 0
        #: From here on the text is kept, since reading may have to go back; -1: from `at` on.
        self.kept = -1
        self.closed = False
        self._noise = tuple(noise)
        self._firsts = frozenset(mark[0] for mark in noise)
        self._on_wait = on_wait

    @property
    def place(self) -> int:
        """How far the whole text has been read."""
        return self.dropped + self.at

    @property
    def held(self) -> int:
        """Characters that are here and not yet done with."""
        return len(self.text) - (self.kept if self.kept >= 0 else self.at)

    def add(self, piece: str) -> None:
        """Add text at the end, and let go what has been read."""
        start = self.kept if self.kept >= 0 else self.at
        self.text = self.text[start:] + piece
        self.at -= start
        self.dropped += start
        if self.kept >= 0:
            self.kept = 0

    def more(self) -> Reading[bool]:
        """Wait for text; false where there will be none."""
        if self.closed:
            return False
        self._on_wait()
        yield
        return True

    def peek(self, count: int) -> Reading[str]:
        """The next characters; fewer only at the end."""
        while len(self.text) - self.at < count and (yield from self.more()):
            pass
        return self.text[self.at : self.at + count]

    def next_of(self, marks: Sequence[str]) -> Reading[str | None]:
        """Which of these marks stands here, if any, the longest first; nothing is passed over."""
        while True:
            rest = self.text[self.at : self.at + max(map(len, marks))]
            undecided = any(len(rest) < len(mark) and mark.startswith(rest) for mark in marks)
            if undecided and (yield from self.more()):
                continue
            fitting = [mark for mark in marks if rest.startswith(mark)]
            return max(fitting, key=len) if fitting else None

    def skip_gap(self) -> Reading[None]:
        """Pass over white space and noise, as far as may stand between two tags."""
        start = self.place
        while self.place - start < MAX_GAP_CHARS:
            first = yield from self.peek(1)
            if first.isspace():
                self.at += 1
                continue
            mark = yield from self.noise_here()
            if mark is None:
                return
            self.at += len(mark)

    def noise_here(self) -> Reading[str | None]:
        """The noise that stands here, if any."""
        if self.text[self.at : self.at + 1] not in self._firsts:
            return None
        return (yield from self.next_of(self._noise))

    def name(self, limit: int) -> Reading[str | None]:
        """The text up to `>`, which is passed over; `None` where that is no name."""
        while True:
            window = self.text[self.at : self.at + limit + 1]
            name, end, _ = window.partition(">")
            if "<" in name:
                return None
            if end:
                self.at += len(name) + 1
                return name.strip() or None
            if len(window) > limit or not (yield from self.more()):
                return None
