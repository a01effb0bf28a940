"""`retry-after` as strangers write it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from serve_app.upstream.retry_after import MAX_S, parse_retry_after

NOW = datetime(2026, 12, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "wait_s"),
    [
        pytest.param("7", 7.0, id="seconds"),
        pytest.param(" 7 ", 7.0, id="white-space"),
        pytest.param("0", 0.0, id="zero"),
        pytest.param("007", 7.0, id="leading-zeros"),
        pytest.param("60", 60.0, id="the-most"),
        pytest.param("61", 60.0, id="more-than-the-most"),
        pytest.param("9" * 5000, 60.0, id="five-thousand-digits"),
        pytest.param("Tue, 01 Dec 2026 12:00:30 GMT", 30.0, id="date"),
        pytest.param("Tue, 01 Dec 2026 13:00:30 +0100", 30.0, id="date-with-zone"),
        pytest.param("Tuesday, 01-Dec-26 12:00:30 GMT", 30.0, id="old-date"),
        pytest.param("Tue, 01 Dec 2026 12:00:30", 30.0, id="date-without-zone"),
        pytest.param("Tue, 01 Dec 2026 12:00:30 -0000", 30.0, id="date-of-unknown-zone"),
        pytest.param("Tue, 01 Dec 2026 11:00:00 GMT", 0.0, id="past"),
        pytest.param("Wed, 01 Dec 2027 12:00:00 GMT", 60.0, id="far"),
        pytest.param("Fri, 31 Dec 9999 23:59:59 -2359", 60.0, id="the-end-of-time"),
        pytest.param("Mon, 01 Jan 0001 00:00:00 +2359", 0.0, id="before-time"),
    ],
)
def test_seconds_and_dates_are_understood(value: str, wait_s: float) -> None:
    """At most a minute is believed, and no wait is negative."""
    assert parse_retry_after(value, now=NOW) == wait_s


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        " ",
        "soon",
        "-1",
        "1.5",
        "+5",
        "1e3",
        "5s",
        "٣",
        "²",
        ",",
        "()",
        "\x00",
        "Fri, 31 Feb 2025 00:00:00 GMT",
        "Tue, 01 Dec 99999 12:00:00 GMT",
        "Tue, 01 Dec 2026 12:00:00 +" + "9" * 20,
        "Tue, 01 Dec 2026 12:00:00 +9999",
    ],
)
def test_garbage_is_no_time(value: str | None) -> None:
    """What is not understood is ignored."""
    assert parse_retry_after(value, now=NOW) is None


@given(st.one_of(st.text(), st.text("MonTueJan0123456789:,+- GMT()")))
@example("Tue, 01 Dec 2026 12:00:00 -" + "9" * 400)
def test_no_value_does_harm(value: str) -> None:
    """Whatever the header says, it is a wait within bounds or none."""
    wait_s = parse_retry_after(value, now=NOW)
    assert wait_s is None or 0 <= wait_s <= MAX_S


def test_the_clock_is_the_default() -> None:
    """Without `now` a date is compared with the present."""
    assert parse_retry_after("Thu, 01 Jan 1970 00:00:00 GMT") == 0.0
