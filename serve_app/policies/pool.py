"""Which member of a pool gets the next request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

_T = TypeVar("_T")


def least_loaded(members: Sequence[_T], load: Callable[[_T], float]) -> _T:
    """The member with the smallest share of its slots at work; the earlier of two equal ones.

    Args:
        members: At least one.
        load: A member → its busy slots as a share of all, from this ingress's view.
    """
    return min(members, key=load)
