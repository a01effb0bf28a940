"""One JSON line a request.

A line through Serve's own logger costs a fifth of all the work on a request (filters, formatter, a
look at the file's size). So lines are made here, and written together a few times a second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, Final, Protocol

from pydantic_core import to_json

logger = logging.getLogger("ray.serve.edge")

_EVERY_S: Final = 0.25
_FILE_BYTES: Final = 64 * 2**20
_FILES: Final = 4


class AccessLog(Protocol):
    """Takes what is known of a request at its end."""

    def add(self, fields: Mapping[str, Any]) -> None:
        """Note one request."""
        ...

    def close(self) -> None:
        """Write what is still held."""
        ...


class LoggerAccessLog:
    """Every line at once, by Python's logging. For any server that is not busy."""

    def add(self, fields: Mapping[str, Any]) -> None:
        """Note one request."""
        logger.info("%s", to_json(fields).decode())

    def close(self) -> None:
        """Nothing is held."""


class FileAccessLog:
    """Lines into a file that is rotated, written together every quarter of a second.

    Args:
        path: The file; its folder has to exist.
    """

    def __init__(self, path: Path) -> None:
        self._handler = RotatingFileHandler(
            path, maxBytes=_FILE_BYTES, backupCount=_FILES, encoding="utf-8", delay=True
        )
        self._lines: list[str] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, fields: Mapping[str, Any]) -> None:
        """Note one request."""
        self._lines.append(to_json(fields).decode())
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_EVERY_S, self._write)

    def close(self) -> None:
        """Write what is still held."""
        if self._timer is not None:
            self._timer.cancel()
        self._write()
        self._handler.close()

    def _write(self) -> None:
        self._timer = None
        lines, self._lines = self._lines, []
        if lines:
            text = "\n".join(lines)
            record = logging.LogRecord(logger.name, logging.INFO, "", 0, text, None, None)
            self._handler.handle(record)


def serve_access_log(replica: str) -> AccessLog:
    """The access log beside Serve's own log of this replica, where `ray logs` finds it."""
    for handler in logging.getLogger("ray.serve").handlers:
        file = getattr(handler, "target", handler)
        name = getattr(file, "baseFilename", None)
        if name is not None:
            return FileAccessLog(Path(name).with_name(f"access_{replica}.log"))
    return LoggerAccessLog()
