"""What every stream step is: `feed` and `finish`, and nothing that waits.

Rules of this folder:
1. No await, no clock, no logging: ids and times are passed in.
2. A step emits at once all that is certain, and holds back only what may still change.
3. However the input is cut, the output is the same.
4. Lists, not generators: a generator that nobody consumes silently does nothing.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

In = TypeVar("In", contravariant=True)
Out = TypeVar("Out")


class Step(Protocol[In, Out]):
    """One stage of a stream. A new object for every turn."""

    def feed(self, item: In, /) -> list[Out]:
        """Take one item and give what is certain by now."""
        ...

    def finish(self) -> list[Out]:
        """Say that the input is over and give what was held back."""
        ...
