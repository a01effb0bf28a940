"""`retry-after`: seconds or an HTTP date, from strangers."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

#: Longest wait that is believed, in seconds.
MAX_S = 60.0


def parse_retry_after(value: str | None, *, now: datetime | None = None) -> float | None:
    """Seconds to wait, at most `MAX_S`; `None` for garbage or nothing."""
    if not value:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return min(float(text), MAX_S)
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, OverflowError):  # the second for a zone of many digits
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    wait_s = (date - (now or datetime.now(UTC))).total_seconds()
    return min(max(wait_s, 0.0), MAX_S)
