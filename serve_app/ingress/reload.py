"""Follows `edge.yaml`: routes, models, limits and tokens change without a restart.

A new text is used whole or not at all. Providers are deployments: a change to them needs a
redeploy, and until then the old ones stay and the log says so.

The last text that was in force is kept in a file of this host's own, for a replica that starts
while the configuration is broken: the text of the deployment may hold a token that is no longer
good.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Final

from serve_app import config
from serve_app.config import Settings
from serve_app.errors import ConfigError
from serve_app.ingress.gateway import Gateway

logger = logging.getLogger("ray.serve.edge")

_EVERY_S: Final = 2.0


class ConfigFile:
    """The file that an ingress replica follows.

    Args:
        path: The file; where it is missing, the configuration stays as it is.
        text: What it said when the application was built.
        types: The known provider types.
        kept_in: Folder for the last text that was in force.
    """

    def __init__(
        self,
        path: Path,
        text: str,
        types: Collection[str] | None = None,
        *,
        kept_in: Path | None = None,
    ) -> None:
        self._path = path
        self._types = types
        self._seen = text
        self._next: str | None = None
        # Of this very deployment: another one's last text is nobody's business.
        name = hashlib.sha256(f"{path}\0{text}".encode()).hexdigest()[:32]
        folder = Path(tempfile.gettempdir()) if kept_in is None else kept_in
        self._kept = folder / f"iop-edge-config-{os.getuid()}-{name}.yaml"

    async def watch(self, gateway: Gateway) -> None:
        """Look at the file every two seconds, for as long as the replica lives."""
        while True:
            await asyncio.sleep(_EVERY_S)
            await asyncio.to_thread(self._read)
            self._use_changed(gateway)

    def take_over(self, gateway: Gateway) -> None:
        """At a replica's start: serve by what the file says now, or said last."""
        self._read()
        if self._next is not None and not self._use_changed(gateway):
            with contextlib.suppress(OSError, UnicodeDecodeError):
                kept = self._kept.read_text(encoding="utf-8")
                take_over(gateway, kept, str(self._kept), self._types)

    def _read(self) -> None:
        """Read the file; the content is compared, since a mounted ConfigMap is a link."""
        self._next = None
        with contextlib.suppress(OSError, UnicodeDecodeError):
            text = self._path.read_text(encoding="utf-8-sig")
            if text != self._seen:
                self._next = text

    def _use_changed(self, gateway: Gateway) -> bool:
        """Use what was read, if it is new."""
        text = self._next
        if text is None:
            return True
        self._seen, self._next = text, None
        if not take_over(gateway, text, str(self._path), self._types):
            return False
        with contextlib.suppress(OSError):
            self._kept.touch(mode=0o600)
            self._kept.write_text(text, encoding="utf-8")
        return True


def take_over(gateway: Gateway, text: str, name: str, types: Collection[str] | None = None) -> bool:
    """Serve by a new text if it is valid; give whether it is in force now."""
    try:
        fresh = config.load(text, types=types)
    except ConfigError as error:
        logger.error(  # noqa: TRY400 - the faults say it all, a traceback says nothing
            "the new %s is not used, the last good one stays: %s", name, "; ".join(error.faults)
        )
        return False
    old = gateway.current.settings
    if fresh.providers != old.providers:
        logger.warning("%s changes 'providers': that part needs a redeploy", name)
        fresh = fresh.model_copy(update={"providers": old.providers})
    try:
        gateway.use(fresh)
    except LookupError as error:
        logger.warning("the rest of %s waits for it too: %s", name, error)
        return False
    logger.info("%s was read again and is in force", name)
    if _has_token(old) and not _has_token(fresh):
        logger.warning("%s has no bearer_token any more: everybody is let in", name)
    return True


def _has_token(settings: Settings) -> bool:
    return bool(settings.openai.bearer_token.get_secret_value())
