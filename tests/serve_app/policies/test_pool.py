"""The choice among a pool's members."""

from __future__ import annotations

import pytest

from serve_app.policies.pool import least_loaded


@pytest.mark.parametrize(
    ("loads", "chosen"),
    [
        pytest.param({"a": 0.0}, "a", id="only-one"),
        pytest.param({"a": 1.0}, "a", id="only-one-and-full"),
        pytest.param({"a": 0.5, "b": 0.25}, "b", id="less"),
        pytest.param({"a": 0.25, "b": 0.5, "c": 0.1}, "c", id="least-of-three"),
        pytest.param({"a": 0.0, "b": 0.0}, "a", id="equal-and-idle"),
        pytest.param({"a": 0.7, "b": 0.3, "c": 0.3}, "b", id="earlier-of-equal"),
        pytest.param({"a": 3.0, "b": 2.0}, "b", id="over-full"),
    ],
)
def test_the_least_loaded_member_is_chosen(loads: dict[str, float], chosen: str) -> None:
    """By the share of its slots at work; the earlier of two equal ones."""
    assert least_loaded(list(loads), loads.__getitem__) == chosen


def test_each_load_is_asked_once() -> None:
    """A load may change while it is looked at, so it is looked at once."""
    asked: list[str] = []

    def load(member: str) -> float:
        asked.append(member)
        return 0.0

    least_loaded("abc", load)
    assert asked == ["a", "b", "c"]
