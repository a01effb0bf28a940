"""Follows `edge.yaml`: routes, models, limits and tokens change without a restart.

A new text is used whole or not at all. Providers are deployments: a change to them needs a
redeploy, and until then the old ones stay and the log says so.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

from serve_app import config
from serve_app.errors import ConfigError
from serve_app.ingress.gateway import Gateway

logger = logging.getLogger("ray.serve.edge")

_EVERY_S: Final = 2.0


async def watch_config(gateway: Gateway, path: Path, text: str) -> None:
    """Look at the file every two seconds, for as long as the replica lives.

    The content is compared, not the time: a mounted ConfigMap is a link that is swapped.

    Args:
        gateway: Whose configuration it is.
        path: The file; where it is missing, the configuration stays as it is.
        text: What it said when the application was built.
    """
    while True:
        await asyncio.sleep(_EVERY_S)
        try:
            now = await asyncio.to_thread(path.read_text, encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError):
            continue
        if now != text:
            text = now
            take_over(gateway, now, str(path))


def take_over(gateway: Gateway, text: str, name: str) -> bool:
    """Serve by a new text if it is valid; give whether it is in force now."""
    try:
        fresh = config.load(text)
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
    return True
