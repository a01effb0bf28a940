"""How many requests one ingress replica works on at once.

More are refused at once, in our own words. Serve's own limit would let them wait in
silence, and health checks among them.
"""

from __future__ import annotations

from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from serve_app.errors import OverloadedError
from serve_app.ingress.auth import OPEN_PATHS
from serve_app.ingress.gateway import Gateway

_RETRY_AFTER_S: Final = 2.0


class Admission:
    """Lets requests in up to the limit; health checks always."""

    def __init__(self, app: ASGIApp, *, gateway: Gateway) -> None:
        self._app = app
        self._gateway = gateway
        self._inside = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request.

        Raises:
            OverloadedError: There are as many inside as may be.
        """
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        limit = self._gateway.current.settings.openai.limits.requests
        if self._inside >= limit:
            message = f"The gateway is at work on {limit} requests already. Try again in a moment."
            raise OverloadedError(message, status=503, retry_after_s=_RETRY_AFTER_S)
        self._inside += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._inside -= 1
