"""Think tags at the start of content: what stands in them is reasoning.

Rules of this file:
1. `<think>…</think>` and `<thinking>…</thinking>` count at the start of the content, after white
   space at most. Anywhere later a tag is text: the model writes about tags.
2. A tag that never closes makes all the rest reasoning: the model was cut off while it thought.
3. A closing tag with nothing but white space before it is the end of a thought of which nothing is
   left, so it goes.
4. Where a chat template has opened the tag in the prompt, content begins in the middle of the
   thought, and only the closing tag tells. By then the thought has been sent as content, unless it
   was held back. How much may be held for that is the caller's choice (`look_ahead`): nothing on a
   live stream of a model that does not do so, a lot where nobody waits for the first word.
5. Line ends directly after a tag are its layout, and go with it.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from serve_app.runs import Finish, ReasoningDelta, RunEvent, TextDelta, Usage

#: Opening tag → the tag that closes it.
_PAIRS: Final = {"<think>": "</think>", "<thinking>": "</thinking>"}
_CLOSERS: Final = tuple(_PAIRS.values())
_TAGS: Final = (*_PAIRS, *_CLOSERS)

#: Most white space that is held back at the start of content; more of it is content.
MAX_SPACE: Final = 256


class _State(Enum):
    """Where in the content the step is."""

    START = auto()  # nothing has been decided yet
    INSIDE = auto()  # in a tag: reasoning
    LAYOUT = auto()  # behind a tag, where only line ends have come
    TEXT = auto()  # content, to its end


class ThinkTags:
    """Makes reasoning of what stands in think tags. A `Step[RunEvent, RunEvent]`.

    Args:
        look_ahead: Most characters at the start of content that are held back for a closing tag
            whose opening tag was in the prompt. 0 for a model that is not known to do so.
    """

    def __init__(self, *, look_ahead: int = 0) -> None:
        self._look_ahead = look_ahead
        self._state = _State.START
        self._held = ""
        self._closer = ""
        self._thought = False  # whether the reasoning in the tag has begun

    def feed(self, event: RunEvent, /) -> list[RunEvent]:
        """Take one event."""
        match event:
            case TextDelta(text):
                return [event] if self._state is _State.TEXT else self._text(text)
            case ReasoningDelta(""):
                return []
            case Usage():  # comes in the middle of a text with some servers, and has no order
                return [event]
            case Finish():
                return [*self.finish(), event]
            case _:
                return [*self._interrupt(), event]

    def finish(self) -> list[RunEvent]:
        """Give what was held back and is no tag."""
        held, self._held = self._held, ""
        return self._thoughts(held) if self._state is _State.INSIDE else _content(held)

    def _interrupt(self) -> list[RunEvent]:
        """Give what is held: something else comes in between. White space decides nothing."""
        if self._state is _State.START and self._held.strip():
            self._state = _State.TEXT
        return self.finish()

    def _text(self, text: str) -> list[RunEvent]:
        """Take a piece of content while tags still count."""
        if self._state is _State.START:
            return self._start(text)
        if self._state is _State.INSIDE:
            return self._inside(text)
        text = text.lstrip("\r\n")
        if not text:
            return []
        self._state = _State.TEXT
        return _content(text)

    def _start(self, text: str) -> list[RunEvent]:
        """Look for a tag at the start."""
        self._held += text
        begun = self._held.lstrip()
        if len(self._held) - len(begun) > MAX_SPACE:
            self._state = _State.TEXT
            return self.finish()
        tag = next((tag for tag in _TAGS if begun.startswith(tag)), "")
        if tag in _PAIRS:
            self._held = ""
            self._state = _State.INSIDE
            self._closer = _PAIRS[tag]
            return self._inside(begun[len(tag) :])
        if tag:
            return self._close("", begun[len(tag) :])
        window = begun[: self._look_ahead]
        found = [(at, tag) for tag in _CLOSERS if (at := window.find(tag)) >= 0]
        if found:
            at, tag = min(found)
            return self._close(begun[:at], begun[at + len(tag) :])
        if self._is_open(begun):
            return []
        self._state = _State.TEXT
        return self.finish()

    def _is_open(self, begun: str) -> bool:
        """Whether what has come may still become a tag, or be followed by the closing one."""
        return len(begun) < self._look_ahead or any(tag.startswith(begun) for tag in _TAGS)

    def _inside(self, text: str) -> list[RunEvent]:
        """Look for the closing tag."""
        text = self._held + text
        thought, tag, rest = text.partition(self._closer)
        if tag:
            return self._close(thought, rest)
        keep = _beginning_at_end(text, self._closer)
        self._held = text[len(text) - keep :]
        return self._thoughts(text[: len(text) - keep])

    def _close(self, thought: str, rest: str) -> list[RunEvent]:
        """Go on behind a closing tag."""
        self._held = ""
        self._state = _State.LAYOUT
        return [*self._thoughts(thought), *self._text(rest)]

    def _thoughts(self, text: str) -> list[RunEvent]:
        """Reasoning, less the line ends directly after the tag."""
        if not self._thought:
            text = text.lstrip("\r\n")
        if not text:
            return []
        self._thought = True
        return [ReasoningDelta(text)]


def _content(text: str) -> list[RunEvent]:
    return [TextDelta(text)] if text else []


def _beginning_at_end(text: str, tag: str) -> int:
    """Length of the longest beginning of a tag that a text ends with."""
    if "<" not in text[-len(tag) :]:
        return 0
    return next((n for n in range(len(tag) - 1, 0, -1) if text.endswith(tag[:n])), 0)
