"""Server-sent events: bytes to data, data to bytes.

The decoder follows the WHATWG text with two departures that real servers need: an event with
empty data is dropped, and one that lacks only its blank line at the very end still counts.
Lines end at CR, LF or CRLF and nowhere else; Unicode's other line ends are ordinary text.
"""

from __future__ import annotations

from serve_app.errors import UpstreamProtocolError

_BOM = b"\xef\xbb\xbf"

#: The sentinel that ends a chat stream.
DONE = b"[DONE]"

DONE_FRAME = b"data: [DONE]\n\n"


def frame(data: bytes) -> bytes:
    """One event whose data holds no line end (JSON never does)."""
    return b"data: " + data + b"\n\n"


class SseDecoder:
    """Bytes in, the `data` of each event out. A `Step[bytes, bytes]`.

    Args:
        max_event_bytes: Most that the data lines of one event may hold, and any line; more is a
            fault of the upstream's.
    """

    def __init__(self, *, max_event_bytes: int = 16 * 2**20) -> None:
        self._max = max_event_bytes
        self._line: list[bytes] = []  # pieces of a line that has not ended
        self._line_bytes = 0
        self._data: list[bytes] = []  # data lines of an event that has not ended
        self._data_bytes = 0  # the same lines, with their field name
        self._skip_lf = False  # the last byte was CR: an LF now belongs to it
        self._at_start = True

    def feed(self, chunk: bytes, /) -> list[bytes]:
        """Take bytes as they came off the wire.

        Raises:
            UpstreamProtocolError: One event is larger than allowed.
        """
        if self._skip_lf and chunk:
            self._skip_lf = False
            chunk = chunk.removeprefix(b"\n")
        if not self._line and not self._data and not self._at_start and len(chunk) <= self._max:
            whole = _whole_events(chunk)
            if whole is not None:
                return whole
        if b"\n" not in chunk and b"\r" not in chunk:
            self._hold(chunk)
            return []
        self._skip_lf = chunk.endswith(b"\r")
        text = b"".join((*self._line, chunk)).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = text.split(b"\n")
        self._line = []
        self._line_bytes = 0
        found = [data for line in lines if (data := self._end_line(line)) is not None]
        self._hold(rest)
        return found

    def finish(self) -> list[bytes]:
        """Give the event that lacks only its blank line."""
        if self._line:
            self._end_line(b"".join(self._line))
            self._line = []
        data = self._end_event()
        return [] if data is None else [data]

    def _hold(self, piece: bytes) -> None:
        """Keep a piece of a line that has not ended."""
        if piece:
            self._line.append(piece)
            self._line_bytes += len(piece)
            self._check(self._line_bytes)

    def _end_line(self, line: bytes) -> bytes | None:
        """Take one whole line; gives an event's data where the line ends one."""
        self._check(len(line))
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BOM)
        if not line:
            return self._end_event()
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
            self._data_bytes += len(line)
        return None

    def _end_event(self) -> bytes | None:
        """The data of the event that ends here; `None` where it has none."""
        data = b"\n".join(self._data)
        self._data = []
        self._data_bytes = 0
        return data or None

    def _check(self, line_bytes: int) -> None:
        """Refuse an event that is too large, however it is cut."""
        if self._data_bytes + line_bytes > self._max:
            limit = self._max // 2**20
            message = f"The upstream sent one stream event of more than {limit} MiB."
            raise UpstreamProtocolError(message)


def _whole_events(chunk: bytes) -> list[bytes] | None:
    """The short way: a chunk that is whole one-line events and nothing else; else `None`."""
    if not chunk.endswith(b"\n\n") or b"\r" in chunk:
        return None
    events = chunk[:-2].split(b"\n\n")
    for event in events:
        if not event.startswith(b"data: ") or b"\n" in event:
            return None
    return [event[6:] for event in events if len(event) > len(b"data: ")]
